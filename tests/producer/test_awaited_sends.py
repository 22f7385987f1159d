"""Awaited sends: those of the asyncio and threads APIs have no task, a cancelled one has no attempt."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import trio
import trio.testing

from rocketmq_py import Client
from rocketmq_py.client import core_of
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import BrokerBusyError, BrokerError, ClosedError, Delivery, InvalidMessageError
from rocketmq_py.message import Message, MessageQueue, SendResult
from rocketmq_py.producer import PendingSend, Producer, ProducerHook, SendContext
from rocketmq_py.producer.destinations import Destination
from rocketmq_py.producer.producer import start_send
from rocketmq_py.producer.send import Send
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection, RpcHook
from rocketmq_py.selectors import SelectByHash
from tests.environment import created
from tests.scripted import ignore, refuse, scripted_cluster, store

MESSAGE = Message("T", b"body")
SENDS = RequestCode.SEND_MESSAGE_V2


class Sending:
    """A send without a task, as the asyncio and threads APIs make it."""

    def __init__(
        self,
        producer: Producer,
        message: Message = MESSAGE,
        *,
        queue: Destination | None = None,
        timeout: float | None = None,
    ) -> None:
        self.outcome = PendingSend()
        self._send = producer.send, message, queue, timeout
        self.cancel: Callable[[], None] | None = start_send(producer, message, queue, timeout, self.outcome)

    async def result(self) -> SendResult:
        if self.cancel is not None:
            return await self.outcome
        send, message, queue, timeout = self._send
        return await send(message, queue=queue, timeout=timeout)


def producer_of(address: str, **options: Any) -> Producer:
    return created(Producer, address, group="g", rng=random.Random(1), **options)


def waiting(producer: Producer) -> int:
    return sum(one.pending for one in core_of(producer).connections.open_connections())


async def connect(producer: Producer, *addresses: str) -> None:
    await producer.queues(MESSAGE.topic)
    for address in addresses:
        await core_of(producer).connections.get(address)


# Without a task


async def test_a_send_that_only_waits_for_the_broker_has_no_task() -> None:
    async with scripted_cluster(store) as cluster, producer_of(cluster.address) as producer:
        first = Sending(producer)
        assert first.cancel is None, "the route is not known"
        await first.result()
        tasks = trio.lowlevel.current_statistics().tasks_living
        second = Sending(producer)
        assert second.cancel is not None
        assert trio.lowlevel.current_statistics().tasks_living == tasks
        assert (await second.result()).message_id
        assert producer.statistics.sent == 2
        assert producer.statistics.latency.count == 2


@pytest.mark.parametrize("size", [5, 5000])
async def test_a_finished_send_is_not_left_to_the_garbage_collector(size: int) -> None:
    async with scripted_cluster(store) as cluster, producer_of(cluster.address) as producer:
        await producer.send(MESSAGE)
        gc.collect()
        gc.disable()
        try:
            sent = Sending(producer, Message("T", bytes(size)))
            await sent.result()
            del sent
            assert not [one for one in gc.get_objects() if isinstance(one, Send)]
        finally:
            gc.enable()


async def test_a_first_attempt_that_fails_is_retried() -> None:
    answers = refuse(ResponseCode.SYSTEM_ERROR), store
    async with scripted_cluster(*answers) as cluster, producer_of(cluster.address) as producer:
        for _ in range(10):
            assert (await Sending(producer).result()).queue.broker_name == "broker-b"
        assert producer.statistics.sent == 10
        assert producer.statistics.failed == 0
        assert producer.statistics.retried == len(cluster.brokers["broker-a"].asked(SENDS)) > 1


@pytest.mark.parametrize("retries", [0, 2])
async def test_the_error_of_the_last_attempt_is_raised(
    retries: int, jumping_clock: trio.testing.MockClock
) -> None:
    async with scripted_cluster(refuse(ResponseCode.SYSTEM_BUSY)) as cluster:
        async with producer_of(cluster.address, retries=retries) as producer:
            for count in (1, 2):
                with pytest.raises(BrokerBusyError):
                    await Sending(producer).result()
                assert producer.statistics.failed == count
        assert len(cluster.brokers["broker-a"].asked(SENDS)) == 2 * (1 + retries)


async def test_wrong_messages_and_a_closed_producer_raise_at_once() -> None:
    async with scripted_cluster(store) as cluster:
        async with producer_of(cluster.address) as producer:
            await producer.queues(MESSAGE.topic)
            with pytest.raises(InvalidMessageError):
                Sending(producer, b"text")  # type: ignore[arg-type]
            other = MessageQueue("U", "broker-a", 0)
            with pytest.raises(InvalidMessageError):
                Sending(producer, queue=lambda *_: other)
            assert producer.statistics.failed == 1, "as if it had been awaited"
        with pytest.raises(ClosedError):
            Sending(producer)
        with pytest.raises(ClosedError):
            await submit(producer, PendingSend())


async def test_a_send_with_hooks_or_a_relay_needs_a_task() -> None:
    async with scripted_cluster(store) as cluster:
        async with producer_of(cluster.address) as producer:
            await producer.queues(MESSAGE.topic)
            producer.add_hook(ProducerHook())
            assert Sending(producer).cancel is None
        async with producer_of(cluster.address, delay_relay="Buffer") as relayed:
            await relayed.queues(MESSAGE.topic)
            assert Sending(relayed, Message("T", b"x", delay=5)).cancel is None
            sending = Sending(relayed)
            assert sending.cancel is not None, "only timed messages concern the relay"
            await sending.result()
        async with Client(cluster.address) as client, client.producer("g") as with_rpc_hook:
            await with_rpc_hook.queues(MESSAGE.topic)
            client.add_rpc_hook(RpcHook())
            assert Sending(with_rpc_hook).cancel is None


async def test_a_send_that_waits_uses_one_step_of_the_round_robin() -> None:
    async with scripted_cluster(store, store) as cluster, producer_of(cluster.address) as producer:
        queues = await producer.queues("T")
        for _ in range(2):  # at first without connections
            used = [(await Sending(producer).result()).queue for _ in queues]
            assert sorted(used) == sorted(queues)


async def test_a_large_body_is_compressed_in_a_task() -> None:
    async with scripted_cluster(store) as cluster, producer_of(cluster.address) as producer:
        await producer.send(MESSAGE)
        large = Sending(producer, Message("T", b"x" * 100_000))
        assert large.cancel is None
        await large.result()
        assert len(cluster.brokers["broker-a"].asked(SENDS)[-1].body) < 1000


# Cancelling


async def test_a_cancelled_send_ignores_the_answer(jumping_clock: trio.testing.MockClock) -> None:
    async with scripted_cluster(ignore) as cluster, producer_of(cluster.address) as producer:
        await connect(producer, *[broker.address for broker in cluster.brokers.values()])
        before = waiting(producer)
        sent = Sending(producer)
        assert sent.cancel is not None
        assert waiting(producer) == before + 1
        for _ in range(2):  # the second has no effect
            sent.cancel()
            assert waiting(producer) == before
    assert not sent.outcome.done()


async def test_a_send_that_is_cancelled_before_its_connection_is_open_is_not_written() -> None:
    async with scripted_cluster(store) as cluster, producer_of(cluster.address) as producer:
        await producer.queues(MESSAGE.topic)
        first, second = Sending(producer, Message("T", b"1")), Sending(producer, Message("T", b"2"))
        assert first.cancel is not None
        first.cancel()
        await second.result()
        assert [one.body for one in cluster.brokers["broker-a"].asked(SENDS)] == [b"2"]
        assert not first.outcome.done()


@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.2])
async def test_a_send_that_is_cancelled_while_it_backs_off_makes_no_further_attempt(
    seconds: float, jumping_clock: trio.testing.MockClock
) -> None:
    """The first back-off takes 0.1 seconds, the second 0.2."""
    is_busy = refuse(ResponseCode.SYSTEM_BUSY)
    async with scripted_cluster(is_busy) as cluster, producer_of(cluster.address) as producer:
        broker = cluster.brokers["broker-a"]
        await connect(producer, broker.address)
        sent = Sending(producer)
        assert sent.cancel is not None
        while not broker.asked(SENDS):
            await trio.lowlevel.checkpoint()
        await trio.sleep(seconds)
        sent.cancel()
        await trio.sleep(60)
        assert len(broker.asked(SENDS)) == 1 + (seconds == 0.2)
        assert not sent.outcome.done()


async def test_the_answer_to_a_cancelled_send_with_rpc_hooks_is_ignored() -> None:
    requests: list[tuple[Connection, Command]] = []
    has_arrived = trio.Event()

    def keep(connection: Connection, request: Command) -> None:
        if request.code != SENDS:
            store(connection, request)
            return
        requests.append((connection, request))
        has_arrived.set()

    async with (
        scripted_cluster(keep) as cluster,
        Client(cluster.address) as client,
        client.producer("g") as producer,
    ):
        client.add_rpc_hook(RpcHook())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(producer.send, MESSAGE)
            await has_arrived.wait()
            nursery.cancel_scope.cancel()
        store(*requests[0])
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert (producer.statistics.sent, producer.statistics.failed) == (0, 0)


# Closing


@pytest.mark.parametrize("seconds", [1.0, 20.0])
async def test_closing_waits_for_awaited_sends(seconds: float, jumping_clock: trio.testing.MockClock) -> None:
    requests: list[tuple[Connection, Command]] = []
    outcomes: list[SendResult | ClosedError] = []

    def keep(connection: Connection, request: Command) -> None:
        if request.code == SENDS:
            requests.append((connection, request))
        else:
            store(connection, request)

    async def send(producer: Producer) -> None:
        try:
            outcomes.append(await producer.send(MESSAGE, timeout=60))
        except ClosedError as error:
            outcomes.append(error)

    async def answer_later() -> None:
        await trio.sleep(seconds)
        store(*requests[0])

    async with (
        scripted_cluster(keep) as cluster,
        Client(cluster.address) as client,
        trio.open_nursery() as nursery,
    ):
        async with client.producer("g", close_timeout=5.0) as producer:
            nursery.start_soon(send, producer)
            while not requests:
                await trio.sleep(0.01)
            assert producer.in_flight == 0, "only pipelined sends count"
            with trio.fail_after(0.1):
                await producer.flush()
            nursery.start_soon(answer_later)
        await trio.testing.wait_all_tasks_blocked()
        (outcome,) = outcomes
        if seconds == 1.0:
            assert isinstance(outcome, SendResult)
        else:
            assert isinstance(outcome, ClosedError)
            assert outcome.delivery is Delivery.UNKNOWN
            assert (producer.statistics.failed, producer.statistics.given_up) == (1, 1)


async def test_a_send_whose_hook_runs_while_the_producer_closes_is_not_written() -> None:
    errors: list[ClosedError] = []
    is_waiting, go_on = trio.Event(), trio.Event()

    class Slow(ProducerHook):
        async def before_send(self, context: SendContext) -> None:
            is_waiting.set()
            await go_on.wait()

    async def send(producer: Producer) -> None:
        try:
            await producer.send(MESSAGE)
        except ClosedError as error:
            errors.append(error)

    async with (
        scripted_cluster(store) as cluster,
        Client(cluster.address) as client,
        trio.open_nursery() as nursery,
    ):
        async with client.producer("g") as producer:
            await producer.queues(MESSAGE.topic)
            producer.add_hook(Slow())
            nursery.start_soon(send, producer)
            await is_waiting.wait()
        go_on.set()
    (error,) = errors
    assert error.delivery is Delivery.NOT_SENT
    assert not cluster.brokers["broker-a"].asked(SENDS)
    assert producer.statistics.failed == 1


async def test_defects_in_the_background_are_not_taken_for_errors_of_selectors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with scripted_cluster(store) as cluster, producer_of(cluster.address) as producer:
        await producer.queues(MESSAGE.topic)
        sender = producer._sender
        monkeypatch.setattr(sender.router, "choose_queue", mock.Mock(side_effect=ZeroDivisionError))
        for queue, error in ((None, ZeroDivisionError), (SelectByHash("k"), InvalidMessageError)):
            with pytest.raises(error):
                await sender.attempt_in_background(producer._builder.build(MESSAGE, queue, None, 0))


# Pipelined


def submit(producer: Producer, pending: PendingSend) -> Any:
    """Return None, or a coroutine that must be awaited."""
    accepted = producer._accept(MESSAGE, None, None, pending)
    return None if accepted is pending else accepted


async def test_a_pipelined_send_is_in_flight_when_the_call_returns() -> None:
    done: list[PendingSend] = []
    async with scripted_cluster(store) as cluster, producer_of(cluster.address) as producer:
        first = submit(producer, PendingSend(done.append))
        assert first is not None, "the route is not known"
        await first
        await producer.flush()
        before = waiting(producer)  # a heartbeat may be on its way
        assert submit(producer, PendingSend(done.append)) is None
        assert waiting(producer) == before + 1
        await producer.flush()
        assert [one.result().queue.topic for one in done] == ["T", "T"]
        assert producer.statistics.sent == 2


async def test_a_pipelined_send_with_hooks_is_awaited() -> None:
    done: list[PendingSend] = []
    hooks: list[str] = []

    class Hook(ProducerHook):
        def before_send(self, context: SendContext) -> None:
            hooks.append(context.messages[0].topic)

    async with scripted_cluster(store) as cluster, producer_of(cluster.address) as producer:
        await producer.send(MESSAGE)
        producer.add_hook(Hook())
        hooked = submit(producer, PendingSend(done.append))
        assert hooked is not None
        assert hooks == []
        await hooked
        await producer.flush()
        assert hooks == ["T"]
        assert done[0].result().message_id


async def test_a_pipelined_send_with_hooks_reports_its_failure() -> None:
    answers = refuse(ResponseCode.NO_PERMISSION)
    async with scripted_cluster(answers) as cluster, producer_of(cluster.address) as producer:
        producer.add_hook(ProducerHook())
        pending = PendingSend()
        await submit(producer, pending)
        with pytest.raises(BrokerError):
            await pending
