"""Sends without a task, as the asyncio and threads APIs and producers with ``linger`` make them."""

from __future__ import annotations

import gc
import random
from typing import Any

import pytest
import trio
import trio.testing

from rocketmq_py.client import core_of
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import BrokerBusyError, BrokerError, ClosedError, InvalidMessageError
from rocketmq_py.message import Message, SendResult
from rocketmq_py.producer import PendingSend, Producer, ProducerHook, SendContext
from rocketmq_py.producer.first_attempt import FirstAttempt
from rocketmq_py.producer.outcome import Acknowledgement, send_result
from rocketmq_py.producer.send_request import Destination
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
        self.answers: list[Acknowledgement | SendResult | None] = []
        self._has_answer = trio.Event()
        self.attempt = producer._begin_send(message, self._answered, queue, timeout)

    @property
    def is_in_flight(self) -> bool:
        assert self.attempt is not None
        return self.attempt.is_in_flight

    def _answered(self, stored: Acknowledgement | SendResult | None) -> None:
        self.answers.append(stored)
        self._has_answer.set()

    async def result(self) -> SendResult:
        assert self.attempt is not None
        if self.attempt.is_in_flight:
            await self._has_answer.wait()
        if not self.answers or self.answers[0] is None:
            return await self.attempt.rest()
        return send_result(self.answers[0])


def producer_of(address: str, **options: Any) -> Producer:
    return created(Producer, address, group="g", rng=random.Random(1), **options)


def waiting(producer: Producer) -> int:
    return sum(one.pending for one in core_of(producer).connections.open_connections())


async def test_a_send_that_only_waits_for_the_broker_has_no_task() -> None:
    async with scripted_cluster(store) as cluster, producer_of(cluster.address) as producer:
        first = Sending(producer)
        assert not first.is_in_flight  # the route is not known
        await first.result()
        tasks = trio.lowlevel.current_statistics().tasks_living
        second = Sending(producer)
        assert second.is_in_flight
        assert trio.lowlevel.current_statistics().tasks_living == tasks
        assert (await second.result()).message_id
        assert producer.statistics.sent == 2
        assert producer.statistics.latency.count == 2


@pytest.mark.parametrize("size", [5, 5000])
async def test_a_finished_send_is_not_left_to_the_garbage_collector(size: int) -> None:
    def ignore_answer(_: object) -> None:
        pass

    async with scripted_cluster(store) as cluster, producer_of(cluster.address) as producer:
        await producer.send(MESSAGE)
        gc.collect()
        gc.disable()
        try:
            attempt = producer._begin_send(Message("T", bytes(size)), ignore_answer, None, None)
            assert attempt is not None
            if attempt.is_in_flight:
                with trio.fail_after(10):
                    while attempt.is_in_flight:
                        await trio.sleep(0.01)
            else:
                await attempt.rest()
            del attempt
            assert not [one for one in gc.get_objects() if isinstance(one, FirstAttempt)]
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


async def test_forget_ignores_the_answer(jumping_clock: trio.testing.MockClock) -> None:
    async with scripted_cluster(ignore) as cluster, producer_of(cluster.address) as producer:
        await producer.queues(MESSAGE.topic)
        for broker in cluster.brokers.values():
            await core_of(producer).connections.get(broker.address)
        before = waiting(producer)
        sent = Sending(producer)
        assert sent.is_in_flight
        assert waiting(producer) == before + 1
        assert sent.attempt is not None
        sent.attempt.forget()
        assert waiting(producer) == before
    assert sent.answers == []


async def test_wrong_messages_and_a_closed_producer_raise_at_once() -> None:
    async with scripted_cluster(store) as cluster:
        async with producer_of(cluster.address) as producer:
            with pytest.raises(InvalidMessageError):
                Sending(producer, b"text")  # type: ignore[arg-type]
        with pytest.raises(ClosedError):
            Sending(producer)
        with pytest.raises(ClosedError):
            await submit(producer, PendingSend())


async def test_a_send_with_hooks_or_a_relay_needs_a_task() -> None:
    async with scripted_cluster(store) as cluster, producer_of(cluster.address) as producer:
        producer.add_hook(ProducerHook())
        assert Sending(producer).attempt is None
        async with producer_of(cluster.address, delay_relay="Buffer") as relayed:
            assert Sending(relayed).attempt is None


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
        assert not large.is_in_flight
        await large.result()
        assert len(cluster.brokers["broker-a"].asked(SENDS)[-1].body) < 1000


async def test_a_batch_without_a_task_goes_in_one_request() -> None:
    answers: list[Acknowledgement | SendResult | None] = []
    two = [MESSAGE, Message("T", b"x" * 100)]
    async with (
        scripted_cluster(store) as cluster,
        producer_of(cluster.address, max_message_size=300) as producer,
    ):
        await producer.send(MESSAGE)
        assert producer._begin_batch([*two, *two], answers.append, None, None) is None
        attempt = producer._begin_batch(two, answers.append, None, None)
        assert attempt is not None
        assert attempt.is_in_flight
        attempt.forget()
        with pytest.raises(InvalidMessageError):
            producer._begin_batch([], answers.append, None, None)
        producer.add_hook(ProducerHook())
        assert producer._begin_batch(two, answers.append, None, None) is None
    assert answers == []


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
