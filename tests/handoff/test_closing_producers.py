"""Closing producers of the asyncio and threads APIs, in virtual time."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from rocketmq_py import Message, aio, blocking
from rocketmq_py.errors import ClosedError
from rocketmq_py.handoff import trio_thread
from rocketmq_py.handoff.callback_thread import log_records
from rocketmq_py.message import MessageQueue
from tests import virtual_time
from tests.producer.test_closing import SLOW, SlowBroker
from tests.scripted import scripted_cluster

MESSAGE = Message("T", bytes(70_000))
QUEUE = MessageQueue("T", "broker-a", 1)
COUNT = 10
FOREVER = 1e9
OPTIONS: dict[str, Any] = {"group": "g", "send_timeout": math.inf, "close_timeout": 5.0}


class VirtualTrio:
    """The module trio for the trio thread, whose ``run`` has virtual time. Time stands still at first."""

    def __init__(self, clock: trio.testing.MockClock) -> None:
        self.clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(trio, name)

    def run(self, *arguments: Any, **options: Any) -> Any:
        return virtual_time.run(*arguments, clock=self.clock, **options)


@attrs.define(eq=False)
class Cluster:
    """A slow broker in the trio thread of the process."""

    thread: trio_thread.TrioThread
    clock: trio.testing.MockClock
    broker: SlowBroker = attrs.field(factory=SlowBroker)
    address: str = ""

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        async with scripted_cluster(self.broker) as cluster:
            self.address = cluster.address
            task_status.started()
            await trio.sleep_forever()

    def start_time(self) -> None:
        """Let time go on."""
        self.thread.call_plain(partial(setattr, self.clock, "autojump_threshold", 0))

    async def watch(self, closing: Callable[[], Coroutine[Any, Any, object]]) -> float:
        """Let time go on, and the broker answer, while ``closing`` runs. Return its duration."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.broker.run)
            began = trio.current_time()
            self.clock.autojump_threshold = 0
            await closing()
            seconds = trio.current_time() - began
            self.clock.autojump_threshold = math.inf
            nursery.cancel_scope.cancel()
        return seconds


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    clock = trio.testing.MockClock()
    monkeypatch.setattr(trio_thread, "trio", VirtualTrio(clock))
    monkeypatch.setattr(trio_thread, "_threads", {})
    thread = trio_thread.trio_thread()
    running = Cluster(thread, clock)
    thread.call(partial(thread.start_task, running.run))
    yield running
    running.start_time()  # closes the objects that a failed test has left open
    thread.stop(trio_thread.EXIT_MARGIN)


def lost(caplog: pytest.LogCaptureFixture) -> list[str]:
    log_records.flush()
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


@pytest.mark.parametrize("kind", [blocking.Producer, partial(blocking.Producer, linger=0.005)])
def test_closing_waits_for_as_long_as_results_arrive_in_threads(
    cluster: Cluster, kind: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    producer = kind(cluster.address, **OPTIONS)
    futures = [producer.submit(MESSAGE, queue=QUEUE) for _ in range(COUNT)]
    assert cluster.thread.call(partial(cluster.watch, producer._end)) > (COUNT - 1) * SLOW
    assert [future.exception() for future in futures] == [None] * COUNT
    assert lost(caplog) == []


@pytest.mark.parametrize("kind", [aio.Producer, partial(aio.Producer, linger=0.005)])
def test_closing_waits_for_as_long_as_results_arrive_on_asyncio(
    cluster: Cluster, kind: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with kind(cluster.address, **OPTIONS) as producer:
            futures = [await producer.submit(MESSAGE, queue=QUEUE) for _ in range(COUNT)]
            closing = producer._call(cluster.watch, producer._end)
            assert await closing > (COUNT - 1) * SLOW
            assert [(await future).queue for future in futures] == [QUEUE] * COUNT

    asyncio.run(main())
    assert lost(caplog) == []


@pytest.mark.parametrize("kind", [blocking.Producer, partial(blocking.Producer, linger=0.005)])
def test_given_up_messages_are_counted_and_logged_in_one_line(
    cluster: Cluster, kind: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    cluster.broker.answers = 2
    producer = kind(cluster.address, **OPTIONS)
    # More than may be in flight or in the buffer: the rest waits in the queue of the API.
    producer._send_queue._max_bytes = math.inf
    futures = [producer.submit(MESSAGE, queue=QUEUE) for _ in range(1000)]
    seconds = cluster.thread.call(partial(cluster.watch, producer._end))
    assert seconds == pytest.approx(2 * SLOW + 5, abs=2)
    errors = [error for future in futures if (error := future.exception()) is not None]
    assert len(errors) == 998
    assert all(isinstance(error, ClosedError) for error in errors)
    assert producer.statistics.given_up == 998
    (line,) = lost(caplog)
    assert line.startswith("998 messages were not sent before their producer was closed (")
    assert "may have been stored): 998 of topic 'T', name_servers=" in line
    assert line.endswith("group=g, no result for 5 s")


def close_all(cluster: Cluster) -> float:
    """End as the process does, and return the seconds that it took."""
    return cluster.thread.call(partial(cluster.watch, cluster.thread._close_all))


def test_the_end_of_a_process_waits_for_as_long_as_results_arrive(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    producer = blocking.Producer(cluster.address, linger=0.005, **OPTIONS)
    count = int(trio_thread.EXIT_SECONDS // SLOW) + 5
    futures = [producer.submit(MESSAGE, queue=QUEUE) for _ in range(count)]
    assert close_all(cluster) > trio_thread.EXIT_SECONDS
    assert [future.exception() for future in futures] == [None] * count
    assert lost(caplog) == []


@pytest.mark.parametrize(
    ("answers", "seconds", "reason"),
    [
        (1000, trio_thread.EXIT_LIMIT, "the process ended"),
        (2, 2 * SLOW + trio_thread.EXIT_SECONDS, "no result for 15 s"),
    ],
)
def test_the_end_of_a_process_gives_up(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, answers: int, seconds: float, reason: str
) -> None:
    cluster.broker.answers = answers
    producer = blocking.Producer(cluster.address, linger=0.005, **OPTIONS)
    for _ in range(100):
        producer.submit(MESSAGE, queue=QUEUE)
    assert close_all(cluster) == pytest.approx(seconds, abs=1.5)
    (line,) = lost(caplog)
    assert line.endswith(f"group=g, {reason}")


def test_a_second_interruption_gives_up_at_once(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """Closing a client that is shared gives up the sends of its producers."""
    client = blocking.Client(cluster.address)
    producer = client.producer("g", send_timeout=math.inf, close_timeout=FOREVER)
    futures = [producer.submit(MESSAGE, queue=QUEUE) for _ in range(COUNT)]
    cluster.start_time()
    call = cluster.thread.call

    def interrupted(function: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    cluster.thread.call = interrupted  # type: ignore[method-assign, assignment]
    with pytest.raises(KeyboardInterrupt), client:
        raise KeyboardInterrupt
    cluster.thread.call = call  # type: ignore[method-assign]
    errors = [future.exception(timeout=60) for future in futures]
    assert all(isinstance(error, ClosedError) for error in errors)
    client.close()
    (line,) = lost(caplog)
    assert line.startswith(f"{COUNT} messages were not sent")
    assert line.endswith("group=g, closing was interrupted")


def test_a_cancellation_of_closing_on_asyncio_gives_up_at_once(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        producer = aio.Producer(cluster.address, group="g", send_timeout=math.inf, close_timeout=FOREVER)
        await producer.start()
        futures = [await producer.submit(MESSAGE, queue=QUEUE) for _ in range(COUNT)]
        closing = asyncio.create_task(producer.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        cluster.start_time()
        with pytest.raises(asyncio.CancelledError):
            await closing
        for future in futures:
            with pytest.raises(ClosedError):
                await future
        await producer.aclose()

    asyncio.run(main())
    (line,) = lost(caplog)
    assert line.endswith("group=g, closing was interrupted")
