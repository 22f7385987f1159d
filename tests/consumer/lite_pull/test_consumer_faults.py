"""A lite pull consumer with flow control, races, faults and cancellations."""

from __future__ import annotations

import itertools
import logging
import math
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import trio
import trio.testing

import rocketmq_py.consumer
from rocketmq_py import Client
from rocketmq_py.client import core_of
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.consumer import ConsumerHook, LitePullConsumer
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection
from tests.cancelling import cancel_at_each_await
from tests.consumer.conftest import Fill
from tests.consumer.received import stored
from tests.scripted import scripted_cluster

QUEUE = MessageQueue("T", "broker-a", 0)
OTHER = MessageQueue("T", "broker-a", 1)
END = 1 << 30


def body_of(offsets: Iterable[int]) -> bytes:
    return b"".join(stored(offset, body=b"%d" % offset) for offset in offsets)


def answer_pull(connection: Connection, request: Command, *, count: int = 32) -> None:
    """Answer a pull request with ``count`` messages from an endless queue."""
    offset = int(request.fields["queueOffset"])
    fields = {
        "nextBeginOffset": str(offset + count),
        "minOffset": "0",
        "maxOffset": str(END),
        "suggestWhichBrokerId": "0",
    }
    connection.respond(request, ResponseCode.SUCCESS, fields, body_of(range(offset, offset + count)))


class Broker:
    """A broker with endless queues.

    Attributes:
        before: called with each request. If it returns True the request is not answered further.
        pulled: the queue number and offset of each pull request.
        committed: the offset of each commit.
    """

    def __init__(self, before: Callable[[Connection, Command], bool] = lambda _, __: False) -> None:
        self.before = before
        self.pulled: list[tuple[int, int]] = []
        self.committed: list[int] = []

    def __call__(self, connection: Connection, request: Command) -> None:
        fields = request.fields
        if request.code == RequestCode.PULL_MESSAGE:
            self.pulled.append((int(fields["queueId"]), int(fields["queueOffset"])))
        if request.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            self.committed.append(int(fields["commitOffset"]))
        if self.before(connection, request):
            return
        if request.code == RequestCode.PULL_MESSAGE:
            answer_pull(connection, request)
        elif request.code == RequestCode.GET_MAX_OFFSET:
            connection.respond(request, ResponseCode.SUCCESS, {"offset": str(END)})
        else:
            connection.respond(request, ResponseCode.SUCCESS, {"offset": "0"})


def consumer_of(client: str | Client, *, group: str = "g", **options: int) -> LitePullConsumer:
    return LitePullConsumer(
        client,
        group=group,
        consume_from="earliest",
        **options,  # type: ignore[arg-type]
    )


async def offsets_of(consumer: LitePullConsumer, count: int) -> list[int]:
    offsets: list[int] = []
    with trio.fail_after(30):
        while len(offsets) < count:
            offsets += [
                message.queue_offset for message in await consumer.poll(max_messages=count - len(offsets))
            ]
    return offsets


# Flow control


@pytest.mark.parametrize(
    ("options", "cached"),
    [
        ({"pull_threshold_for_queue": 100}, 128 * 2),
        ({"pull_threshold_size_for_queue": 100}, 64 * 2),
        ({"consume_max_span": 64}, 96 * 2),
        ({"pull_threshold_for_all": 64}, 96),
    ],
    ids=["messages", "bytes", "span", "messages of all queues"],
)
async def test_pulling_pauses_at_the_configured_limits(options: dict[str, Any], cached: int) -> None:
    broker = Broker()
    async with (
        scripted_cluster(broker, queues=2) as cluster,
        consumer_of(cluster.address, **options) as consumer,
    ):
        await consumer.assign([QUEUE, OTHER])
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert cached - 64 < len(broker.pulled) * 32 <= cached + 32
        before = len(broker.pulled)
        await consumer.poll(max_messages=cached)
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert len(broker.pulled) == before, "unacknowledged messages count"
        polled = await offsets_of(consumer, 3200)
        assert len(polled) == 3200
        if "pull_threshold_for_all" in options:
            assert {queue_id for queue_id, _ in broker.pulled[before:]} == {0, 1}


# Races


class HoldFirst:
    """Holds the first request with a code, for the test to answer later."""

    def __init__(self, code: int) -> None:
        self.code = code
        self.held: tuple[Connection, Command] | None = None
        self.received = trio.Event()

    def __call__(self, connection: Connection, request: Command) -> bool:
        if request.code != self.code or self.held is not None:
            return False
        self.held = connection, request
        self.received.set()
        return True

    @property
    def first(self) -> tuple[Connection, Command]:
        assert self.held is not None
        return self.held


async def test_a_pull_response_after_a_seek_is_ignored() -> None:
    hold_first = HoldFirst(RequestCode.PULL_MESSAGE)
    async with (
        scripted_cluster(Broker(hold_first), queues=1) as cluster,
        consumer_of(cluster.address) as consumer,
    ):
        await consumer.assign([QUEUE])
        await hold_first.received.wait()
        await consumer.seek(QUEUE, 1000)
        answer_pull(*hold_first.first)
        assert await offsets_of(consumer, 64) == list(range(1000, 1064))


@pytest.mark.parametrize("code", [RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.PULL_MESSAGE])
async def test_a_response_received_just_before_a_seek_is_ignored(code: int) -> None:
    """The response has arrived, but the task that waits for it has not run yet."""
    hold_first = HoldFirst(code)
    async with (
        scripted_cluster(Broker(hold_first), queues=1) as cluster,
        consumer_of(cluster.address) as consumer,
    ):
        await consumer.assign([QUEUE])
        await hold_first.received.wait()
        instrument = SeekAtResponse(consumer, 1000)
        trio.lowlevel.add_instrument(instrument)
        connection, request = hold_first.first
        if code == RequestCode.PULL_MESSAGE:
            answer_pull(connection, request)
        else:
            connection.respond(request, ResponseCode.SUCCESS, {"offset": "500"})
        with trio.fail_after(30):
            await instrument.done.wait()
        trio.lowlevel.remove_instrument(instrument)
        assert await offsets_of(consumer, 64) == list(range(1000, 1064))


class SeekAtResponse(trio.abc.Instrument):
    """Seeks when the pull loop's task is scheduled, which is between the response and its next step."""

    def __init__(self, consumer: LitePullConsumer, offset: int) -> None:
        self.consumer = consumer
        self.offset = offset
        self.done = trio.Event()

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        if "PullLoop.run" in task.name and not self.done.is_set():
            self.consumer._queues.seek(QUEUE, self.offset)
            self.done.set()


async def test_messages_pulled_during_a_pause_are_kept() -> None:
    hold_first = HoldFirst(RequestCode.PULL_MESSAGE)
    broker = Broker(hold_first)
    async with (
        scripted_cluster(broker, queues=1) as cluster,
        consumer_of(cluster.address) as consumer,
    ):
        await consumer.assign([QUEUE])
        await hold_first.received.wait()
        consumer.pause([QUEUE])
        answer_pull(*hold_first.first)
        assert await consumer.poll(wait=0.1) == []
        assert broker.pulled == [(0, 0)]
        consumer.resume([QUEUE])
        assert await offsets_of(consumer, 40) == list(range(40))
    assert broker.pulled[1] == (0, 32)


async def test_poll_returns_no_messages_of_a_revoked_queue(client: Client, fill: Fill) -> None:
    await fill("T", 60, queues=2)
    async with consumer_of(client) as consumer:
        await consumer.assign([QUEUE, OTHER])
        await trio.testing.wait_all_tasks_blocked(0.05)
        revoked = (await consumer.poll(max_messages=5))[0].queue
        (kept,) = {QUEUE, OTHER} - {revoked}
        await consumer.assign([kept])
        messages = [message for _ in range(30) for message in await consumer.poll(max_messages=1)]
        assert [message.queue_offset for message in messages] == list(range(30))
        assert {message.queue for message in messages} == {kept}
        assert await consumer.committed(revoked) == 5
        await consumer.assign([revoked])
        assert await offsets_of(consumer, 25) == list(range(5, 30))


async def test_a_changed_filter_discards_messages_pulled_with_the_previous_one() -> None:
    """Messages that only the new filter selects would be skipped otherwise."""
    held_back: list[tuple[Connection, Command]] = []
    filters: list[str] = []

    def hold_back(connection: Connection, request: Command) -> bool:
        if request.code != RequestCode.PULL_MESSAGE:
            return False
        filters.append(request.fields["subscription"])
        if request.fields["subscription"] == "*":
            return False
        held_back.append((connection, request))
        return True

    broker = Broker(hold_back)
    async with (
        scripted_cluster(broker, queues=1) as cluster,
        consumer_of(cluster.address) as consumer,
    ):
        await consumer.assign([QUEUE], "A")
        while not held_back:
            await trio.testing.wait_all_tasks_blocked(0.01)
        await consumer.assign([QUEUE])
        answer_pull(*held_back[0], count=64)
        assert await offsets_of(consumer, 40) == list(range(40))
        await consumer.assign([QUEUE])
        assert await offsets_of(consumer, 1) == [40]
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert all(offset % 32 == 0 for _, offset in broker.pulled), "the same filter discards nothing"
        await consumer.assign([QUEUE], "A")
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert (filters[-1], broker.pulled[-1]) == ("A", (0, 41)), "buffered messages are pulled again"


async def test_a_paused_queue_does_not_starve_the_others() -> None:
    async with (
        scripted_cluster(Broker(), queues=2) as cluster,
        consumer_of(cluster.address, pull_threshold_for_all=64, pull_threshold_for_queue=64) as consumer,
    ):
        await consumer.assign([OTHER])
        await trio.testing.wait_all_tasks_blocked(0.05)
        consumer.pause()
        await consumer.assign([QUEUE, OTHER])
        assert await offsets_of(consumer, 320) == list(range(320))
        consumer.pause([QUEUE])
        consumer.resume([OTHER])
        assert await offsets_of(consumer, 320) == list(range(320))


async def test_a_second_task_cannot_poll() -> None:
    """Its poll would acknowledge the messages that the first poll is about to return."""
    entered, resume = trio.Event(), trio.Event()

    class Slow(ConsumerHook):
        async def before_consume(self, context: object) -> None:
            entered.set()
            await resume.wait()

    async with (
        scripted_cluster(Broker(), queues=1) as cluster,
        consumer_of(cluster.address) as consumer,
    ):
        await consumer.assign([QUEUE])
        consumer.add_hook(Slow())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.poll)
            await entered.wait()
            for poll in (consumer.poll, lambda: anext(consumer)):
                with pytest.raises(ConfigurationError, match="another task or thread is polling"):
                    await poll()
            resume.set()
        assert len(await consumer.poll()) == 32


async def test_messages_are_not_committed_while_hooks_run() -> None:
    """They are polled again if the poll is cancelled."""
    entered = trio.Event()

    class Endless(ConsumerHook):
        async def before_consume(self, context: object) -> None:
            entered.set()
            await trio.sleep_forever()

    broker = Broker()
    async with (
        scripted_cluster(broker, queues=1) as cluster,
        consumer_of(cluster.address, auto_commit=False) as consumer,
    ):
        await consumer.assign([QUEUE])
        remove = consumer.add_hook(Endless())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.poll)
            await entered.wait()
            await consumer.commit()
            nursery.cancel_scope.cancel()
        remove()
        assert set(broker.committed) <= {0}
        assert await offsets_of(consumer, 32) == list(range(32))


@pytest.mark.long
@pytest.mark.parametrize("over_total", [False, True])
async def test_work_grows_linearly_with_the_number_of_queues(over_total: bool) -> None:
    few, many = [await calls_for(queues, over_total=over_total) for queues in (50, 400)]
    assert many < 8 * few * 1.5


async def calls_for(queues: int, *, over_total: bool) -> int:
    """Return how many function calls of this package it takes to poll one message of each queue."""
    calls = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        if event == "call" and "rocketmq_py/consumer" in frame.f_code.co_filename:
            calls += 1

    def answer_once(connection: Connection, request: Command) -> bool:
        if request.code != RequestCode.PULL_MESSAGE:
            return False
        if request.fields["queueOffset"] == "0":
            answer_pull(connection, request, count=1)
        return True

    async with (
        scripted_cluster(Broker(answer_once), queues=queues) as cluster,
        consumer_of(
            cluster.address, pull_threshold_for_all=queues // 2 if over_total else 10_000
        ) as consumer,
    ):
        all_queues = await consumer.queues("T")
        sys.setprofile(count)
        try:
            await consumer.assign(all_queues)
            assert await offsets_of(consumer, queues) == [0] * queues
        finally:
            sys.setprofile(None)
    return calls


# Faults


async def test_failed_requests_are_retried(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    failures = 3

    def fail(connection: Connection, request: Command) -> bool:
        nonlocal failures
        if request.code not in (RequestCode.PULL_MESSAGE, RequestCode.QUERY_CONSUMER_OFFSET) or not failures:
            return False
        failures -= 1
        connection.respond(request, ResponseCode.SYSTEM_ERROR, remark="scripted")
        return True

    async with (
        scripted_cluster(Broker(fail), queues=1) as cluster,
        consumer_of(cluster.address) as consumer,
    ):
        await consumer.assign([QUEUE])
        assert await consumer.poll(wait=5) == []
        assert await offsets_of(consumer, 10) == list(range(10))
    assert [record.levelname for record in caplog.records] == ["WARNING"]


async def test_closing_without_a_cluster_keeps_its_timeout(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    async with scripted_cluster(Broker(), queues=1) as cluster, trio.open_nursery() as nursery:
        consumer = consumer_of(cluster.address)
        await consumer.start(nursery)
        await consumer.assign([QUEUE])
        await offsets_of(consumer, 10)
        for server in cluster.brokers.values():
            server.answer = lambda _, __: None
        start = trio.current_time()
        await consumer.aclose()
        assert trio.current_time() - start <= consumer.settings.close_timeout


# Cancellations


async def test_cancelling_the_user_at_each_await_loses_no_message(
    client: Client, fill: Fill, caplog: pytest.LogCaptureFixture
) -> None:
    """Committed offsets only cover handled messages, wherever the cancellation strikes."""
    caplog.set_level(logging.CRITICAL)
    await fill("T", 6)
    handled = 0

    async def consume() -> None:
        nonlocal handled
        handled = 0
        async with consumer_of(client) as consumer:
            await consumer.assign(await consumer.queues("T"))
            await consumer.seek(QUEUE, 0)
            while handled < 6:
                for message in await consumer.poll(max_messages=2):
                    assert message.queue_offset == handled
                    handled += 1
                await consumer.commit()
            await consumer.committed(QUEUE)

    async def check() -> None:
        committed = await core_of(client).brokers.committed_offset("g", QUEUE) or 0
        assert committed <= max(handled, 6 if not handled else 0)
        await trio.testing.wait_all_tasks_blocked(0.001)
        assert all(connection.pending == 0 for connection in core_of(client).connections.open_connections())
        assert not core_of(client).heartbeats.has_consumer("g")
        assert not core_of(client)._on_route

    assert await cancel_at_each_await(consume, check) > 10


async def test_a_cancelled_poll_loses_no_message(client: Client, fill: Fill) -> None:
    await fill("T", 400)
    polled: list[int] = []
    async with consumer_of(client) as consumer:
        await consumer.assign([QUEUE])

        async def poll() -> None:
            polled.extend(
                [int(message.body) for message in await consumer.poll(max_messages=1, wait=math.inf)]
            )

        async def check() -> None:
            assert polled == list(range(len(polled)))

        for _ in itertools.repeat(None, 100):
            await cancel_at_each_await(poll, check)
        polled += [int((await anext(consumer)).body) for _ in range(400 - len(polled))]
    assert polled == list(range(400))


class CancelAtStep(trio.abc.Instrument):
    """Cancels a scope when the consumer's tasks have together been suspended ``step`` times."""

    def __init__(self, scope: trio.CancelScope, step: int) -> None:
        self.scope = scope
        self.steps_left = step
        self.package = str(Path(rocketmq_py.consumer.__file__).parent)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        code = getattr(task.coro, "cr_code", None)
        if code is not None and code.co_filename.startswith(self.package):
            self.steps_left -= 1
            if self.steps_left == 0:
                self.scope.cancel()


@pytest.mark.long
async def test_cancelling_at_each_step_of_the_background_tasks_loses_no_message(
    client: Client,
    fill: Fill,
    caplog: pytest.LogCaptureFixture,
    jumping_clock: trio.testing.MockClock,
) -> None:
    """A second consumer receives the messages that the cancelled one has not handled."""
    caplog.set_level(logging.CRITICAL)
    count = 6
    await fill("T", count)

    async def consume(group: str, handled: set[int]) -> None:
        async with consumer_of(client, group=group, commit_interval=1) as consumer:
            consumer.subscribe("T")
            while len(handled) < count:
                messages = await consumer.poll(max_messages=2)
                await trio.sleep(0.7)
                handled |= {int(message.body) for message in messages}

    for step in itertools.count(1):
        group, handled = f"g{step}", set[int]()
        with trio.CancelScope() as scope:
            instrument = CancelAtStep(scope, step)
            trio.lowlevel.add_instrument(instrument)
            try:
                await consume(group, handled)
            finally:
                trio.lowlevel.remove_instrument(instrument)
        assert not core_of(client).heartbeats.has_consumer(group)
        assert not core_of(client)._on_route
        committed = await core_of(client).brokers.committed_offset(group, QUEUE) or 0
        assert {*range(committed)} <= handled
        if not scope.cancel_called:
            break
        with trio.fail_after(100):
            await consume(group, handled)
        assert handled == {*range(count)}
    assert step > 10
