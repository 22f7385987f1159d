"""Sends that are begun without a task, as the doors do."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio
import trio.testing

from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import BrokerBusyError, BrokerError, ClosedError, InvalidMessageError
from rocketmq_py.message import Message, SendResult
from rocketmq_py.producer import PendingSend, Producer, ProducerHook, SendContext
from rocketmq_py.producer.begun import Begun
from rocketmq_py.producer.send_request import Destination, Stored, send_result
from rocketmq_py.remoting import Connection
from rocketmq_py.remoting.writer import WRITING_TOGETHER
from tests.scripted import ignore, refuse, scripted_cluster, store

MESSAGE = Message("T", b"body")
SENDS = RequestCode.SEND_MESSAGE_V2


class Beginning(Begun):
    """Begins a send, and keeps what is heard of it."""

    def __init__(
        self,
        producer: Producer,
        message: Message = MESSAGE,
        *,
        outside: bool = False,
        queue: Destination | None = None,
        timeout: float | None = None,
    ) -> None:
        self.heard: list[Stored | SendResult | None] = []
        self._is_done = trio.Event()
        begin = producer.begin_outside if outside else producer.begin
        self.has_begun = begin(self, message, queue, timeout)

    def tried(self, stored: Stored | SendResult | None) -> None:
        self.heard.append(stored)
        self._is_done.set()

    async def result(self) -> SendResult:
        """Do what the doors do."""
        assert self.has_begun
        if self.is_under_way:
            await self._is_done.wait()
        if not self.heard or self.heard[0] is None:
            return await self.rest()
        return send_result(self.heard[0])


def producer_of(address: str, **options: object) -> Producer:
    return Producer(address, group="g", rng=random.Random(1), **options)  # type: ignore[arg-type]


def waiting(producer: Producer) -> int:
    return sum(one.pending for one in producer.client.connections.open_connections())


async def test_where_only_the_broker_is_waited_for_there_is_no_task() -> None:
    async with scripted_cluster(store) as cluster, producer_of(cluster.address) as producer:
        first = Beginning(producer)
        assert first.has_begun
        assert not first.is_under_way  # the route is not known
        await first.result()
        tasks = trio.lowlevel.current_statistics().tasks_living
        second = Beginning(producer)
        assert second.has_begun
        assert second.is_under_way
        assert trio.lowlevel.current_statistics().tasks_living == tasks
        assert (await second.result()).message_id
        assert producer.statistics.sent == 2
        assert producer.statistics.latency.count == 2


async def test_a_first_try_that_fails_is_followed_by_others() -> None:
    answers = refuse(ResponseCode.SYSTEM_ERROR), store
    async with scripted_cluster(*answers) as cluster, producer_of(cluster.address) as producer:
        for _ in range(10):
            assert (await Beginning(producer).result()).queue.broker_name == "broker-b"
        assert producer.statistics.sent == 10
        assert producer.statistics.failed == 0
        assert producer.statistics.retried == len(cluster.brokers["broker-a"].asked(SENDS)) > 1


@pytest.mark.parametrize("retries", [0, 2])
async def test_the_error_of_the_last_try_is_raised(
    retries: int, jumping_clock: trio.testing.MockClock
) -> None:
    async with scripted_cluster(refuse(ResponseCode.SYSTEM_BUSY)) as cluster:
        async with producer_of(cluster.address, retries=retries) as producer:
            for count in (1, 2):
                with pytest.raises(BrokerBusyError):
                    await Beginning(producer).result()
                assert producer.statistics.failed == count
        assert len(cluster.brokers["broker-a"].asked(SENDS)) == 2 * (1 + retries)


async def test_what_is_cancelled_is_not_heard_of(jumping_clock: trio.testing.MockClock) -> None:
    async with scripted_cluster(ignore) as cluster, producer_of(cluster.address) as producer:
        await producer.queues(MESSAGE.topic)
        for broker in cluster.brokers.values():
            await producer.client.connections.get(broker.address)
        before = waiting(producer)
        sent = Beginning(producer)
        assert sent.has_begun
        assert sent.is_under_way
        assert waiting(producer) == before + 1
        sent.give_up()
        assert waiting(producer) == before
    assert sent.heard == []


async def test_wrong_messages_and_a_closed_producer_say_so_at_once() -> None:
    async with scripted_cluster(store) as cluster:
        async with producer_of(cluster.address) as producer:
            with pytest.raises(InvalidMessageError):
                Beginning(producer, b"text")  # type: ignore[arg-type]
        with pytest.raises(ClosedError):
            Beginning(producer)
        with pytest.raises(ClosedError):
            await begin_soon(producer, PendingSend())


async def test_with_hooks_or_a_relay_it_is_sent_otherwise() -> None:
    async with scripted_cluster(store) as cluster, producer_of(cluster.address) as producer:
        producer.add_hook(ProducerHook())
        assert not Beginning(producer).has_begun
        async with producer_of(cluster.address, delay_relay="Buffer") as relayed:
            assert not Beginning(relayed).has_begun


async def test_outside_trio_a_send_begins_where_trio_has_nothing_to_do_but_to_wait_for_the_broker() -> None:
    async with scripted_cluster(store) as cluster, producer_of(cluster.address) as producer:
        assert not Beginning(producer, outside=True).has_begun  # the route is not known
        queues = await producer.queues("T")
        assert not Beginning(producer, outside=True).has_begun  # nor is there a connection
        for _ in queues:
            await producer.send(MESSAGE)
        await trio.testing.wait_all_tasks_blocked()
        with WRITING_TOGETHER:
            one, other = Beginning(producer, outside=True), Beginning(producer, outside=True, queue=queues[0])
            assert one.has_begun
            assert other.has_begun
            assert not Beginning(producer, outside=True, queue=lambda queues, _: queues[0]).has_begun
            assert not Beginning(producer, Message("T", b"x" * 100_000), outside=True).has_begun
            assert not Beginning(producer, Message("Unknown", b"x"), outside=True).has_begun
            # Nothing is watched that would expire so early.
            assert not Beginning(producer, outside=True, timeout=0.5).has_begun
        assert (await one.result()).message_id
        assert (await other.result()).queue == queues[0]
        await trio.testing.wait_all_tasks_blocked()
        producer.add_hook(ProducerHook())
        with WRITING_TOGETHER:
            assert not Beginning(producer, outside=True).has_begun
    with WRITING_TOGETHER:
        assert not Beginning(producer, outside=True).has_begun  # it is closed


@pytest.mark.parametrize("where", ["here", "outside", "first outside"])
async def test_a_send_that_has_to_wait_takes_one_turn_of_the_queues(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if where == "first outside":
        monkeypatch.setattr(Connection, "can_carry_now", lambda *_: False)
    async with scripted_cluster(store, store) as cluster, producer_of(cluster.address) as producer:
        queues = await producer.queues("T")
        for _ in range(2):  # at first without connections
            used = []
            for _ in queues:
                with WRITING_TOGETHER:
                    sent = Beginning(producer, outside=where != "here")
                    sent.has_begun = sent.has_begun or producer.begin(sent, MESSAGE)
                used.append((await sent.result()).queue)
            assert sorted(used) == sorted(queues)


async def test_a_large_body_is_compressed_in_a_task() -> None:
    async with scripted_cluster(store) as cluster, producer_of(cluster.address) as producer:
        await producer.send(MESSAGE)
        large = Beginning(producer, Message("T", b"x" * 100_000))
        assert large.has_begun
        assert not large.is_under_way
        await large.result()
        assert len(cluster.brokers["broker-a"].asked(SENDS)[-1].body) < 1000


async def test_a_batch_is_begun_where_it_goes_in_one_request() -> None:
    heard: list[Stored | SendResult | None] = []
    two = [MESSAGE, Message("T", b"x" * 100)]
    async with scripted_cluster(store) as cluster:
        async with producer_of(cluster.address, max_message_size=300) as producer:
            await producer.send(MESSAGE)
            assert producer.begin_batch([*two, *two], heard.append) is None
            begun = producer.begin_batch(two, heard.append)
            assert begun is not None
            assert begun.is_under_way
            begun.give_up()
            with pytest.raises(InvalidMessageError):
                producer.begin_batch([], heard.append)
            producer.add_hook(ProducerHook())
            assert producer.begin_batch(two, heard.append) is None
        with pytest.raises(ClosedError):
            producer.begin_batch(two, heard.append)
    assert heard == []


# Pipelined


def begin_soon(producer: Producer, pending: PendingSend) -> Any:
    return producer.begin_soon(producer.client.now_ms(), trio.current_time(), pending, MESSAGE, None, None)


async def test_what_is_pipelined_where_nothing_is_waited_for_has_left_when_the_call_returns() -> None:
    done: list[PendingSend] = []
    async with scripted_cluster(store) as cluster, producer_of(cluster.address) as producer:
        first = begin_soon(producer, PendingSend(done.append))
        assert first is not None, "the route is not known"
        await first
        await producer.flush()
        before = waiting(producer)  # a heartbeat may be on its way
        assert begin_soon(producer, PendingSend(done.append)) is None
        assert waiting(producer) == before + 1
        await producer.flush()
        assert [one.result().queue.topic for one in done] == ["T", "T"]
        assert producer.statistics.sent == 2


async def test_with_hooks_what_is_pipelined_is_awaited() -> None:
    done: list[PendingSend] = []
    hooks: list[str] = []

    class Hook(ProducerHook):
        def before_send(self, context: SendContext) -> None:
            hooks.append(context.messages[0].topic)

    async with scripted_cluster(store) as cluster, producer_of(cluster.address) as producer:
        await producer.send(MESSAGE)
        producer.add_hook(Hook())
        hooked = begin_soon(producer, PendingSend(done.append))
        assert hooked is not None
        assert hooks == []
        await hooked
        await producer.flush()
        assert hooks == ["T"]
        assert done[0].result().message_id


async def test_with_hooks_what_is_pipelined_and_fails_is_told_all_the_same() -> None:
    answers = refuse(ResponseCode.NO_PERMISSION)
    async with scripted_cluster(answers) as cluster, producer_of(cluster.address) as producer:
        producer.add_hook(ProducerHook())
        pending = PendingSend()
        await begin_soon(producer, pending)
        with pytest.raises(BrokerError):
            await pending
