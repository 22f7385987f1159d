"""A closing producer waits for as long as results arrive, and logs and counts the sends that it gives up."""

from __future__ import annotations

import logging
import signal
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from rocketmq_py.client.lifespan import GIVEN_UP_SECONDS
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import ClosedError, ConnectError, Delivery
from rocketmq_py.message import Message, MessageQueue
from rocketmq_py.metrics import MetricSource
from rocketmq_py.names import TRACE_TOPIC
from rocketmq_py.producer import PendingSend, Producer, TransactionState
from rocketmq_py.producer.closing import Closing
from rocketmq_py.producer.statistics import Counters
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection
from tests.producer.test_linger import Store
from tests.producer.transacting import MESSAGE, SENDS, producer_of, reported_states
from tests.scripted import ScriptedCluster, ignore, scripted_cluster, store

SLOW = 4.0
"""Seconds between two answers of a slow broker, less than the default of ``close_timeout``."""
OPTIONS: dict[str, Any] = {"send_timeout": 1000, "group": "g", "compression": None}
"""Without compression, because a worker thread takes real time."""


class SlowBroker:
    """Answers one send after the other, each after ``seconds``, and no send after ``answers`` of them."""

    def __init__(self, seconds: float = SLOW, answers: int = 1000) -> None:
        self._waiting: deque[tuple[Connection, Command]] = deque()
        self._store = Store()
        self._seconds = seconds
        self.answers = answers

    def __call__(self, connection: Connection, request: Command) -> None:
        if request.code in (SENDS, RequestCode.SEND_BATCH_MESSAGE):
            self._waiting.append((connection, request))
        else:
            connection.respond(request, ResponseCode.SUCCESS)

    async def run(self) -> None:
        for _ in range(self.answers):
            await trio.sleep(self._seconds)
            if self._waiting:
                self._store(*self._waiting.popleft())


@asynccontextmanager
async def slow_cluster(seconds: float = SLOW, answers: int = 1000) -> AsyncIterator[ScriptedCluster]:
    broker = SlowBroker(seconds, answers)
    async with scripted_cluster(broker, topics=["T", "U"]) as cluster, trio.open_nursery() as nursery:
        nursery.start_soon(broker.run)
        yield cluster
        nursery.cancel_scope.cancel()


Kind = Callable[..., Producer]
KINDS: list[Kind] = [Producer, partial(Producer, linger=0.005)]


async def submit(producer: Producer, count: int, topic: str = "T") -> list[PendingSend]:
    """Submit messages for one queue, which a producer with ``linger`` sends one after the other."""
    queue = MessageQueue(topic, "broker-a", 1)
    message = Message(topic, bytes(70_000))
    return [await producer.submit(message, queue=queue) for _ in range(count)]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings of this test. Clients that other tests left to the background thread log there."""
    here = threading.get_ident()
    return [
        one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING and one.thread == here
    ]


@pytest.mark.parametrize("kind", KINDS)
async def test_closing_waits_for_as_long_as_results_arrive(
    jumping_clock: trio.testing.MockClock, kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    async with slow_cluster() as cluster:
        async with kind(cluster.address, **OPTIONS) as producer:
            pending = await submit(producer, 10)
            began = trio.current_time()
        assert trio.current_time() - began > 9 * SLOW > 5
    assert [one.exception() for one in pending] == [None] * 10
    assert (producer.statistics.sent, producer.statistics.given_up) == (10, 0)
    assert warnings(caplog) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_closing_gives_up_close_timeout_after_the_last_result(
    jumping_clock: trio.testing.MockClock, kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    async with slow_cluster(answers=3) as cluster:
        metrics = MetricSource()
        async with kind(cluster.address, close_timeout=6.0, **OPTIONS) as producer:
            metrics.add(producer)
            pending = [*await submit(producer, 5), *await submit(producer, 2, "U")]
            began = trio.current_time()
        # The broker's first answer comes within SLOW seconds, the others SLOW seconds after one another.
        assert 2 * SLOW + 6 <= trio.current_time() - began <= 3 * SLOW + 6 + 0.5
    assert sum(one.exception() is None for one in pending) == 3
    failed = [one.exception() for one in pending if one.exception() is not None]
    assert all(isinstance(error, ClosedError) for error in failed)
    statistics = producer.statistics
    assert (statistics.sent, statistics.failed, statistics.given_up) == (3, 4, 4)
    assert metrics.collect("given_up") == {(("producer_group", "g"),): 4}
    (line,) = warnings(caplog)
    assert line.startswith("4 messages were not sent before their producer was closed (")
    assert f"name_servers={cluster.address}. Last error: the producer was closed before" in line
    assert line.endswith("group=g, no result for 6 s")


async def test_failures_without_an_answer_do_not_prolong_closing(
    jumping_clock: trio.testing.MockClock,
) -> None:
    """Batches for one queue are sent one after the other. Each would take 3 s to time out."""
    async with scripted_cluster(ignore) as cluster:
        async with Producer(cluster.address, send_timeout=3, linger=0.005) as producer:
            await submit(producer, 50)
            began = trio.current_time()
        assert trio.current_time() - began <= 5 + GIVEN_UP_SECONDS
    assert producer.statistics.given_up >= 48


async def test_refusals_prolong_closing(jumping_clock: trio.testing.MockClock) -> None:
    def refuse_later(connection: Connection, request: Command) -> None:
        if request.code in (SENDS, RequestCode.SEND_BATCH_MESSAGE):
            nursery.start_soon(refuse, connection, request)
        else:
            connection.respond(request, ResponseCode.SUCCESS)

    async def refuse(connection: Connection, request: Command) -> None:
        await trio.sleep(SLOW)
        connection.respond(request, ResponseCode.MESSAGE_ILLEGAL, remark="scripted")

    async with trio.open_nursery() as nursery, scripted_cluster(refuse_later) as cluster:
        async with Producer(cluster.address, linger=0.005, **OPTIONS) as producer:
            await submit(producer, 4)
        assert (producer.statistics.failed, producer.statistics.given_up) == (4, 0)


def test_sends_that_fail_while_a_producer_closes_were_not_given_up(caplog: pytest.LogCaptureFixture) -> None:
    counters = Counters()
    closing = Closing(counters, "g")
    closing.add("T", ConnectError("127.0.0.1:1", "refused"))
    closing.report("127.0.0.1:9876")
    (line,) = warnings(caplog)
    assert line.endswith("refused. group=g")
    assert counters.given_up == 0


async def test_the_deliveries_of_given_up_messages(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        scripted_cluster(Store(holds_back=True)) as cluster,
        Producer(cluster.address, linger=0.005, **OPTIONS) as producer,
    ):
        in_flight, *behind = await submit(producer, 3)
    error = in_flight.exception()
    assert isinstance(error, ClosedError)
    assert error.delivery is Delivery.UNKNOWN
    assert [error and error.delivery for error in (one.exception() for one in behind)] == [
        Delivery.NOT_SENT
    ] * 2
    (line,) = warnings(caplog)
    assert "producer was closed (1 of them may have been stored): 3 of topic 'T', name_servers=" in line


async def test_given_up_messages_that_nobody_looked_at_are_logged_once(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted_cluster(Store(holds_back=True)) as cluster:
        for kind in KINDS:
            async with kind(cluster.address, **OPTIONS) as producer:
                await submit(producer, 3)
    assert len(warnings(caplog)) == 2


async def test_a_cancellation_while_closing_ends_it_at_once(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with slow_cluster() as cluster:
        producer = Producer(cluster.address, linger=0.005, **OPTIONS)
        with trio.CancelScope() as scope:
            async with producer:
                pending = await submit(producer, 100)
                scope.deadline = trio.current_time() + 2 * SLOW + 1
        assert scope.cancelled_caught
        assert trio.current_time() <= scope.deadline + GIVEN_UP_SECONDS
        broker = cluster.brokers["broker-a"]
        assert broker.asked(RequestCode.UNREGISTER_CLIENT), "brokers would send it the checks of its group"
    assert pending[0].exception() is None
    assert producer.statistics.given_up >= 97
    (line,) = warnings(caplog)
    assert line.endswith("closing was interrupted")


async def test_a_block_that_is_cancelled_waits_for_its_sends(jumping_clock: trio.testing.MockClock) -> None:
    async with slow_cluster() as cluster:
        with trio.CancelScope() as scope:
            async with Producer(cluster.address, **OPTIONS) as producer:
                pending = await submit(producer, 5)
                scope.cancel()
                await trio.sleep_forever()
    assert [one.exception() for one in pending] == [None] * 5


def test_ctrl_c_while_closing_ends_it_at_once() -> None:
    async def main() -> None:
        async with scripted_cluster(ignore) as cluster:
            producer = Producer(cluster.address, send_timeout=1000, close_timeout=1000)
            async with producer:
                await producer.queues("T")
                await producer.submit(MESSAGE)
                trio.lowlevel.spawn_system_task(interrupt)
            raise AssertionError("not reached")

    async def interrupt() -> None:
        await trio.testing.wait_all_tasks_blocked(0.01)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(BaseException) as caught:  # a group, because of the cluster's nursery
        trio.run(main)
    found = caught.value
    while isinstance(found, BaseExceptionGroup):
        (found,) = found.exceptions
    assert isinstance(found, KeyboardInterrupt)


async def test_a_request_without_a_reply_is_given_up(jumping_clock: trio.testing.MockClock) -> None:
    """A request that waits for its reply is given up close_timeout after the last result."""
    async with scripted_cluster(store) as cluster:
        async with Producer(cluster.address, close_timeout=2.0) as producer:
            reply = await producer.submit_request(MESSAGE, timeout=1000)
            await trio.sleep(10)
            began = trio.current_time()
        assert trio.current_time() - began <= 2 + GIVEN_UP_SECONDS
    assert isinstance(reply.exception(), ClosedError)


async def test_closing_waits_for_as_long_as_transactions_end(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(_: Message, __: str) -> TransactionState:
        await trio.sleep(next(durations))
        return TransactionState.COMMIT

    durations = iter([4.0, 8.0, 12.0, 1000.0])
    async with scripted_cluster(store) as cluster, trio.open_nursery() as nursery:
        async with producer_of(cluster.address) as producer:
            for _ in range(4):
                nursery.start_soon(producer.send_in_transaction, MESSAGE, work)
            await trio.testing.wait_all_tasks_blocked(0.05)
            began = trio.current_time()
        assert trio.current_time() - began == pytest.approx(12 + 5, abs=GIVEN_UP_SECONDS)
        assert reported_states(cluster.brokers["broker-a"]) == ["8"] * 3
        (line,) = warnings(caplog)
        assert line == (
            "transactions had not ended when their producer was closed, the broker will check back: "
            "group=g transactions=1"
        )
        nursery.cancel_scope.cancel()


class TraceBroker(SlowBroker):
    """Answers sends to the trace topic like a slow broker, and others at once."""

    def __call__(self, connection: Connection, request: Command) -> None:
        if request.fields.get("b") == TRACE_TOPIC:
            super().__call__(connection, request)
        else:
            store(connection, request)


@pytest.mark.parametrize(("answers", "lost"), [(1000, 0), (2, 60)])
async def test_closing_waits_for_as_long_as_trace_records_are_stored(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture, answers: int, lost: int
) -> None:
    broker = TraceBroker(seconds=2.0, answers=answers)
    async with (
        scripted_cluster(broker, topics=["T", TRACE_TOPIC]) as cluster,
        trio.open_nursery() as nursery,
    ):
        async with Producer(cluster.address, group="g", trace=True, request_timeout=3) as producer:
            for _ in range(100):
                await producer.send(MESSAGE)
            nursery.start_soon(broker.run)
        assert producer._tracing is not None
        assert producer._tracing.dropped == lost
        assert bool(warnings(caplog)) is bool(lost)
        nursery.cancel_scope.cancel()


async def test_the_latest_time_ends_closing_although_results_arrive(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The other APIs set it at the end of a process."""
    async with slow_cluster() as cluster:
        async with Producer(cluster.address, linger=0.005, **OPTIONS) as producer:
            await submit(producer, 100)
            producer._closing.latest = ends = trio.current_time() + 30
        assert trio.current_time() == pytest.approx(ends, abs=GIVEN_UP_SECONDS)
    (line,) = warnings(caplog)
    assert line.endswith("group=g, the process ended")
