from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, cast

import attrs
import msgspec
import pytest
import trio
import trio.testing

from rocketmq_py.client.namespace import Namespace
from rocketmq_py.client.retry_log import RetryLog
from rocketmq_py.codes import ResponseCode
from rocketmq_py.consumer.group.counters import TopicCounters
from rocketmq_py.consumer.group.queue_locks import QueueLock
from rocketmq_py.consumer.group.statistics import PullState
from rocketmq_py.consumer.pull.process_queue import ProcessQueue
from rocketmq_py.consumer.pull.pull_loop import PullLoop
from rocketmq_py.consumer.pull.queue_puller import PulledMessages, PullStatus, QueuePuller
from rocketmq_py.consumer.settings import FlowLimits
from rocketmq_py.errors import ConnectError, ConnectionLostError, ProtocolError, RocketMQError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.protocol.bodies import SubscriptionData
from rocketmq_py.remoting.answer_errors import broker_error
from tests.consumer.received import QUEUE, received, take_all

FOUND, NO_NEW, NO_MATCHED, MOVED = PullStatus


@attrs.define
class Pull:
    """A pull with its time."""

    offset: int
    commit: int | None
    at: float


class ScriptedBrokers:
    """A broker that can be reached again at a time."""

    def __init__(self) -> None:
        self.is_back_at = 0.0

    async def wait_until_reachable(self, queue: MessageQueue) -> None:
        await trio.sleep_until(self.is_back_at)


class RecordedRoutes:
    """Counts the invalidations of routes."""

    def __init__(self) -> None:
        self.invalidated = 0

    def invalidate(self, topic: str) -> None:
        self.invalidated += 1


class ScriptedClient:
    """The client of a ScriptedPuller."""

    def __init__(self) -> None:
        self.brokers = ScriptedBrokers()
        self.routes = RecordedRoutes()


class ScriptedPuller:
    """Returns scripted answers. Without one it waits, as a broker does."""

    namespace = Namespace()
    group = "g"

    def __init__(self, queue: MessageQueue = QUEUE) -> None:
        self.queue = queue
        self.client = ScriptedClient()
        self.pulls: list[Pull] = []
        self.subscriptions: list[SubscriptionData] = []
        self.answers: deque[PulledMessages | RocketMQError | Callable[[], PulledMessages]] = deque()
        self.more = trio.lowlevel.ParkingLot()

    def answer(self, *answers: PulledMessages | RocketMQError) -> None:
        self.answers += answers
        self.more.unpark_all()

    async def pull(
        self, offset: int, subscription: SubscriptionData, *, commit: int | None = None
    ) -> PulledMessages:
        self.pulls.append(Pull(offset, commit, trio.current_time()))
        self.subscriptions.append(subscription)
        while not self.answers:
            await self.more.park()
        await trio.lowlevel.checkpoint()
        answer = self.answers.popleft()
        if isinstance(answer, RocketMQError):
            raise answer
        return cast("PulledMessages", answer)

    @property
    def offsets(self) -> list[int]:
        return [pull.offset for pull in self.pulls]


def found(*offsets: int, next_offset: int | None = None, size: int = 1) -> PulledMessages:
    messages = [received(offset, b"x" * size) for offset in offsets]
    return answered(FOUND, offsets[-1] + 1 if next_offset is None else next_offset, messages)


def answered(
    status: PullStatus, next_offset: int, messages: Sequence[ReceivedMessage] = ()
) -> PulledMessages:
    return PulledMessages(status, messages, next_offset, 0, next_offset)


class LoopHarness:
    """A pull loop and its owner."""

    def __init__(
        self,
        puller: ScriptedPuller,
        *,
        start: int = 0,
        retry_log: RetryLog | None = None,
        lock: QueueLock | None = None,
    ) -> None:
        self.retry_log = retry_log or RetryLog(LibraryLogger("rocketmq_py.consumer"), "pull", group="g")
        self.puller = puller
        self.start = start
        self.start_errors: list[RocketMQError] = []
        self.delivered: list[ProcessQueue] = []
        self.set_back = 0
        self.may_commit = True
        self.subscription: SubscriptionData | None = None
        self.counts = TopicCounters()
        self.limits = FlowLimits(count=3, size=100, span=10)
        self.loop = PullLoop(
            cast("QueuePuller", puller),
            self,
            subscription=SubscriptionData(topic="T", sub_string="*"),
            retry_log=self.retry_log,
            lock=lock,
            counts=self.counts,
        )

    def limits_of(self, topic: str) -> FlowLimits:
        return self.limits

    def subscription_of(self, topic: str) -> SubscriptionData | None:
        return self.subscription

    async def start_offset(self, loop: PullLoop) -> int:
        await trio.lowlevel.checkpoint()
        if self.start_errors:
            raise self.start_errors.pop(0)
        return self.start

    def may_commit_by_pull(self, queue: MessageQueue) -> bool:
        return self.may_commit

    def deliver(self, process_queue: ProcessQueue) -> None:
        self.delivered.append(process_queue)

    def discard(self, process_queue: ProcessQueue) -> None:
        pass

    def forget_committed(self, queue: MessageQueue) -> None:
        self.set_back += 1

    @property
    def invalidated(self) -> int:
        return self.puller.client.routes.invalidated

    @property
    def process_queue(self) -> ProcessQueue:
        assert self.loop.process_queue is not None
        return self.loop.process_queue


@pytest.fixture
async def harness(nursery: trio.Nursery) -> LoopHarness:
    harness = LoopHarness(ScriptedPuller())
    nursery.start_soon(harness.loop.run)
    return harness


settled = trio.testing.wait_all_tasks_blocked


async def test_next_pull_starts_at_the_next_offset_of_the_broker(harness: LoopHarness) -> None:
    await settled()
    harness.puller.answer(found(0, 1), found(5, next_offset=9), answered(NO_MATCHED, 800))
    await settled()
    assert harness.puller.offsets == [0, 2, 9, 800]
    assert harness.delivered == [harness.process_queue] * 2
    assert [message.queue_offset for message in take_all(harness.process_queue)] == [0, 1, 5]
    assert harness.process_queue.next_offset == 800


async def test_pulls_after_the_end_of_a_subscription_carry_the_last_one(harness: LoopHarness) -> None:
    harness.subscription = changed = SubscriptionData(topic="T", sub_string="b")
    await settled()
    harness.subscription = None
    harness.puller.answer(found(0))
    await settled()
    assert harness.puller.subscriptions == [changed, changed]


async def test_pulls_carry_the_safe_offset(harness: LoopHarness) -> None:
    await settled()
    harness.puller.answer(found(0, 1, 2))
    await settled()
    harness.process_queue.remove(received(0))
    harness.process_queue.remove(received(2))
    harness.puller.answer(answered(NO_MATCHED, 4))
    await settled()
    assert [pull.commit for pull in harness.puller.pulls] == [None, None, 1]
    harness.may_commit = False
    harness.puller.answer(answered(NO_MATCHED, 5))
    await settled()
    assert harness.puller.pulls[-1].commit is None


@pytest.mark.parametrize(
    ("answer", "flow", "removed"),
    [
        (found(0, 1, 2, 3), PullState.FULL_BY_COUNT, [3]),
        (found(0, 1, size=60), PullState.FULL_BY_SIZE, [1]),
        (found(0, 11), PullState.SPAN_TOO_WIDE, [0]),
    ],
)
async def test_pulls_resume_as_soon_as_there_is_space(
    harness: LoopHarness,
    answer: PulledMessages,
    flow: PullState,
    removed: list[int],
    autojump_clock: trio.testing.MockClock,
) -> None:
    harness.puller.answer(answer)
    await trio.sleep(100)
    assert len(harness.puller.pulls) == 1
    assert harness.loop.flow is flow
    start = trio.current_time()
    for offset in removed:
        harness.process_queue.remove(received(offset))
    await settled()
    assert harness.puller.pulls[1:] == [
        Pull(harness.process_queue.next_offset, harness.process_queue.safe_offset or None, start)
    ]
    assert harness.process_queue.on_removed is None


async def test_state_includes_changes_during_a_pull(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    harness = LoopHarness(ScriptedPuller())
    states = [harness.loop.state]
    nursery.start_soon(harness.loop.run)
    harness.puller.answer(found(0, 1, 2), ConnectError("b", "refused"))
    await settled()
    states.append(harness.loop.state)
    harness.loop.pause(True)  # during the delay after a failure
    states.append(harness.loop.state)
    harness.loop.pause(False)
    await trio.sleep(4)
    states.append(harness.loop.state)
    harness.loop.pause(True)
    states.append(harness.loop.state)
    harness.loop.pause(False)
    harness.limits = attrs.evolve(harness.limits, count=2)
    states.append(harness.loop.state)
    assert harness.puller.offsets == [0, 3, 3], "the last pull was sent before the pause"
    harness.loop.drop()
    states.append(harness.loop.state)
    assert states == [
        PullState.STARTING,
        PullState.FAILED,
        PullState.FAILED,
        PullState.PULLING,
        PullState.PAUSED,
        PullState.FULL_BY_COUNT,
        PullState.DROPPED,
    ]


async def test_pulls_stay_stopped_while_a_limit_is_exceeded(harness: LoopHarness) -> None:
    harness.puller.answer(found(0, 1, 2, 3, 4))
    await settled()
    harness.process_queue.remove(received(2))
    await settled()
    assert len(harness.puller.pulls) == 1
    harness.process_queue.remove(received(3))
    await settled()
    assert len(harness.puller.pulls) == 2


async def test_changed_limits_resume_pulls(harness: LoopHarness) -> None:
    harness.puller.answer(found(0, 1, 2, 3, 4))
    await settled()
    harness.loop.resume_if_space()
    await settled()
    assert len(harness.puller.pulls) == 1
    harness.limits = FlowLimits(count=5, size=100, span=10)
    harness.loop.resume_if_space()
    await settled()
    assert len(harness.puller.pulls) == 2


async def test_pause_and_resume(harness: LoopHarness, autojump_clock: trio.testing.MockClock) -> None:
    await settled()
    harness.loop.pause(True)
    harness.puller.answer(found(0))
    await trio.sleep(100)
    assert harness.puller.offsets == [0], "the pending pull is the last one"
    assert harness.loop.flow is PullState.PAUSED
    assert harness.delivered, "its messages are dispatched"
    harness.loop.pause(False)
    await settled()
    assert harness.puller.offsets == [0, 1]


async def test_loop_may_be_paused_before_it_starts(nursery: trio.Nursery) -> None:
    harness = LoopHarness(ScriptedPuller())
    harness.loop.pause(True)
    nursery.start_soon(harness.loop.run)
    await settled()
    assert harness.puller.pulls == []
    harness.loop.pause(False)
    await settled()
    assert harness.puller.offsets == [0]


async def test_failed_pull_is_retried_after_3_seconds(
    harness: LoopHarness, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    refusal = broker_error(ResponseCode.TOPIC_NOT_EXIST, "not yet", "127.0.0.1:1")
    harness.puller.answer(*[refusal] * 12, found(0))
    await trio.sleep(100)
    times = [pull.at for pull in harness.puller.pulls]
    assert times == pytest.approx([3.0 * number for number in range(13)] + [36.0])
    assert harness.invalidated == 12
    lines = [record.message for record in caplog.records]
    where = "group=g topic=T broker=broker-a queue=0"
    error = f"error={refusal}"
    assert lines == [
        f"pull failed, retrying: {where} retry_in=3.0 {error}",
        f"pull failed, retrying: {where} retry_in=3.0 failures=11 seconds=30 {error}",
        f"pull succeeded again: {where} failures=12 seconds=36",
    ]


@pytest.mark.parametrize(
    "error", [ConnectError("127.0.0.1:1", "refused"), ConnectionLostError("127.0.0.1:1", "killed")]
)
async def test_pull_follows_as_soon_as_the_broker_can_be_reached_again(
    harness: LoopHarness,
    autojump_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
    error: RocketMQError,
) -> None:
    harness.puller.client.brokers.is_back_at = 50.5
    harness.puller.answer(error, found(0))
    states: list[PullState] = []
    for seconds in (50, 1):
        await trio.sleep(seconds)
        states.append(harness.loop.state)
    assert [pull.at for pull in harness.puller.pulls] == pytest.approx([0.0, 50.5, 50.5])
    assert states == [PullState.FAILED, PullState.PULLING]
    assert f"pull failed, retrying: group=g topic=T broker=broker-a queue=0 error={error}" in caplog.text


async def test_outage_of_a_broker_is_logged_once_for_all_its_loops(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    retry_log = RetryLog(LibraryLogger("rocketmq_py.consumer"), "pull", group="g")
    for number in range(50):
        harness = LoopHarness(ScriptedPuller(MessageQueue("T", "broker-a", number)), retry_log=retry_log)
        harness.puller.answer(ConnectError("b", "refused"), found(0))
        nursery.start_soon(harness.loop.run)
    await trio.sleep(10)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


async def test_malformed_answer_is_retried(
    harness: LoopHarness, autojump_clock: trio.testing.MockClock
) -> None:
    harness.puller.answer(ProtocolError("garbage"), found(0))
    await trio.sleep(10)
    assert harness.puller.offsets == [0, 0, 1]
    assert harness.invalidated == 0


async def test_flow_control_of_the_broker_is_a_short_delay(
    harness: LoopHarness, autojump_clock: trio.testing.MockClock
) -> None:
    harness.puller.answer(broker_error(ResponseCode.FLOW_CONTROL, "slowly", "b"), found(0))
    await trio.sleep(1)
    assert [pull.at for pull in harness.puller.pulls] == pytest.approx([0.0, 0.02, 0.02])


async def test_the_delay_grows_while_flow_control_refuses_pulls(
    harness: LoopHarness, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    refused = broker_error(ResponseCode.FLOW_CONTROL, "slowly", "b")
    harness.puller.answer(*[refused] * 8, found(0), refused)
    await trio.sleep(10)
    times = [pull.at for pull in harness.puller.pulls]
    delays = [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0, 0.0, 0.02]
    assert [after - before for before, after in pairwise(times)] == pytest.approx(delays)
    assert harness.counts.throttled == 9
    assert caplog.messages[0] == (
        "pull refused by flow control, retrying: topic=T broker=broker-a queue=0 retry_in=0.02 "
        "error=b answered FLOW_CONTROL (215): slowly"
    )
    assert len(caplog.messages) < 9


async def test_broker_that_does_not_hold_pulls_is_not_polled_in_a_tight_loop(
    harness: LoopHarness, autojump_clock: trio.testing.MockClock
) -> None:
    harness.puller.answer(answered(NO_NEW, 0), answered(NO_MATCHED, 0), found(0))
    await trio.sleep(1)
    assert [pull.at for pull in harness.puller.pulls] == pytest.approx([0.0, 0.05, 0.1, 0.1])


async def test_held_pull_is_followed_by_another_at_once(
    harness: LoopHarness, autojump_clock: trio.testing.MockClock
) -> None:
    await trio.sleep(15)
    harness.puller.answer(answered(NO_NEW, 0))
    await settled()
    assert [pull.at for pull in harness.puller.pulls] == pytest.approx([0.0, 15.0])


async def test_start_offset_is_looked_up_until_it_is_known(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    harness = LoopHarness(ScriptedPuller(), start=42)
    harness.start_errors = [ConnectError("b", "refused"), ProtocolError("garbage")]
    nursery.start_soon(harness.loop.run)
    await trio.sleep(7)
    assert harness.puller.pulls == [Pull(42, 42, at=0.1 + 3.0)]


@pytest.mark.parametrize("first", [0, 50])
async def test_forward_correction_keeps_buffered_messages(harness: LoopHarness, first: int) -> None:
    """The messages after them have expired. A tiered store names the first offset of the local one."""
    harness.puller.answer(found(0, 1), msgspec.structs.replace(answered(MOVED, 50), min_offset=first))
    await settled()
    assert harness.puller.offsets == [0, 2, 50]
    assert not harness.process_queue.dropped
    assert not harness.set_back
    assert harness.process_queue.safe_offset == 0, "it is still being processed"
    harness.process_queue.remove(received(0))
    harness.process_queue.remove(received(1))
    assert harness.process_queue.safe_offset == 50


@pytest.mark.parametrize("first", [0, 10])
@pytest.mark.parametrize("offset", [2, 50])
async def test_forward_reset_drops_buffered_messages(
    harness: LoopHarness, offset: int, first: int, autojump_clock: trio.testing.MockClock
) -> None:
    """An operator has skipped messages. The next ones may have expired."""
    harness.puller.answer(found(0, 1))
    await settled()
    before = harness.process_queue
    reset = msgspec.structs.replace(answered(MOVED, offset), min_offset=first, is_reset=True)
    harness.puller.answer(reset, found(offset))
    await trio.sleep(1)
    assert harness.puller.offsets == [0, 2, offset, offset + 1]
    assert before.dropped
    assert harness.set_back == 1, "the committed offset is invalid"
    assert harness.process_queue.safe_offset == offset


@pytest.mark.parametrize("is_reset", [True, False])
async def test_a_full_loop_can_check_for_a_reset(
    harness: LoopHarness, is_reset: bool, autojump_clock: trio.testing.MockClock
) -> None:
    harness.puller.answer(found(0, 1, 2, 3))
    await settled()
    assert harness.puller.offsets == [0]
    harness.loop.check_for_reset()
    await settled()
    assert harness.puller.offsets == [0, 4]
    if is_reset:
        harness.puller.answer(msgspec.structs.replace(answered(MOVED, 4), is_reset=True))
        await trio.sleep(1)
        assert len(harness.process_queue) == 0
        assert harness.puller.offsets[2:] == [4]
        return
    harness.puller.answer(found(4, 5))
    await settled()
    assert len(harness.process_queue) == 4, "there was no space"
    assert harness.counts.pulled == 4
    assert harness.puller.offsets == [0, 4]
    harness.process_queue.remove_all([received(number) for number in range(4)])
    await settled()
    assert harness.puller.offsets == [0, 4, 4]


async def test_a_check_for_a_reset_outlasts_an_answer_that_has_already_arrived(
    harness: LoopHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    pull = harness.puller.pull

    async def pull_and_be_asked(*arguments: Any, **options: Any) -> PulledMessages:
        pulled = await pull(*arguments, **options)
        monkeypatch.undo()
        harness.loop.check_for_reset()
        return pulled

    monkeypatch.setattr(harness.puller, "pull", pull_and_be_asked)
    harness.puller.answer(found(0, 1, 2, 3))
    await settled()
    assert harness.puller.offsets == [0, 4]


@pytest.mark.parametrize("status", [MOVED, NO_NEW])
async def test_backward_correction_drops_buffered_messages(harness: LoopHarness, status: PullStatus) -> None:
    harness.start = 100
    harness.puller.answer(found(100, 101))
    await settled()
    before = harness.process_queue
    harness.puller.answer(answered(status, 7), found(7))
    await settled()
    assert harness.puller.offsets == [100, 102, 7, 8]
    assert before.dropped
    assert harness.set_back == 1, "the committed offset is invalid"
    assert harness.process_queue is not before
    assert harness.process_queue.safe_offset == 7
    before.remove(received(100))
    assert harness.process_queue.safe_offset == 7


async def test_repeated_backward_correction_is_delayed_and_logged_once(
    harness: LoopHarness, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    harness.start = 4
    harness.puller.answer(*[answered(NO_NEW, place) for place in range(3, -20, -1)])
    await trio.sleep(28)
    assert harness.puller.offsets == [4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0]
    assert [record.message for record in caplog.records] == [
        "offset corrected by the broker: topic=T broker=broker-a queue=0 requested=4 corrected=3"
    ]


async def test_backward_correction_stops_at_the_first_offset(harness: LoopHarness) -> None:
    harness.start = 9
    harness.puller.answer(msgspec.structs.replace(answered(MOVED, 1), min_offset=5))
    await settled()
    assert harness.puller.offsets == [9, 5]


async def test_repeated_messages_are_not_dispatched_again(
    harness: LoopHarness, autojump_clock: trio.testing.MockClock
) -> None:
    harness.puller.answer(found(0, 1), *[found(0, 1)] * 5, found(2))
    await trio.sleep(60)
    assert harness.puller.offsets == [0, *[2] * 6, 3]
    assert [message.queue_offset for message in take_all(harness.process_queue)] == [0, 1, 2]


@pytest.mark.parametrize("offset", [None, 7])
async def test_reset_drops_buffered_messages(harness: LoopHarness, offset: int | None) -> None:
    await settled()
    harness.puller.answer(found(0, 1))
    await settled()
    harness.start = 50
    before = harness.process_queue
    harness.loop.reset(offset)
    assert before.dropped
    harness.puller.answer(found(60))
    await settled()
    expected = 50 if offset is None else offset
    assert harness.puller.offsets[2:] == [expected, 61]
    assert harness.process_queue is not before
    assert (harness.loop.safe_offset, len(before)) == (60, 2)


async def test_answer_to_a_pull_before_the_reset_is_ignored(
    nursery: trio.Nursery,
) -> None:
    """The answer had already arrived, so the pull could not be cancelled any more."""

    class Hasty(ScriptedPuller):
        async def pull(
            self, offset: int, subscription: SubscriptionData, *, commit: int | None = None
        ) -> PulledMessages:
            self.pulls.append(Pull(offset, commit, trio.current_time()))
            await self.more.park()
            return cast("PulledMessages", self.answers.popleft())

    harness = LoopHarness(Hasty())
    nursery.start_soon(harness.loop.run)
    await settled()
    harness.puller.answer(found(0))
    harness.loop.reset(50)
    await settled()
    assert not harness.puller.answers
    assert harness.puller.offsets == [0, 50]
    assert (len(harness.process_queue), harness.delivered) == (0, [])


async def test_reset_during_the_look_up_of_the_start_offset(nursery: trio.Nursery) -> None:
    harness = LoopHarness(ScriptedPuller(), start=3)
    nursery.start_soon(harness.loop.run)
    harness.loop.reset(9)
    await settled()
    assert harness.puller.offsets == [9]
    harness.loop.reset()
    await settled()
    assert harness.puller.offsets == [9, 3]


async def test_reset_takes_precedence_over_the_looked_up_offset(
    nursery: trio.Nursery,
) -> None:
    """The look-up had already been answered, so it could not be cancelled any more."""

    class Hasty(LoopHarness):
        async def start_offset(self, loop: PullLoop) -> int:
            loop.reset(9)
            return 3

    harness = Hasty(ScriptedPuller())
    nursery.start_soon(harness.loop.run)
    await settled()
    assert harness.process_queue.next_offset == 9
    assert set(harness.puller.offsets) == {9}


async def test_stalled_pull_is_detected_and_restarted(
    harness: LoopHarness, autojump_clock: trio.testing.MockClock
) -> None:
    harness.puller.answer(found(0))
    await trio.sleep(119)
    assert not harness.loop.has_stalled(120)
    await trio.sleep(2)
    assert harness.loop.has_stalled(120)
    harness.loop.restart_pull()
    await settled()
    assert not harness.loop.has_stalled(120)
    assert harness.puller.offsets == [0, 1, 1]
    assert len(harness.process_queue) == 1, "buffered messages stay"


async def test_full_loop_has_not_stalled(
    harness: LoopHarness, autojump_clock: trio.testing.MockClock
) -> None:
    harness.puller.answer(found(0, 1, 2, 3))
    await trio.sleep(1000)
    assert not harness.loop.has_stalled(120)


async def test_no_offset_is_committed_without_the_lock(nursery: trio.Nursery) -> None:
    lock = QueueLock(QUEUE)
    harness = LoopHarness(ScriptedPuller(), lock=lock)
    nursery.start_soon(harness.loop.run)
    harness.puller.answer(found(5))
    await settled()
    safe = [harness.loop.safe_offset]
    assert harness.process_queue.lock is lock
    lock.granted(trio.current_time())
    harness.puller.answer(answered(NO_MATCHED, 7))
    await settled()
    safe.append(harness.loop.safe_offset)
    assert safe == [None, 5]
    assert [pull.commit for pull in harness.puller.pulls] == [None, None, 5]


async def test_dropped_loop_ends_with_its_safe_offset(harness: LoopHarness) -> None:
    harness.puller.answer(found(0, 1))
    await settled()
    harness.process_queue.remove(received(0))
    harness.loop.drop()
    assert harness.loop.safe_offset == 1
    assert harness.process_queue.dropped
    harness.puller.answer(found(2))
    await settled()
    assert len(harness.puller.pulls) == 2
    assert len(harness.delivered) == 1
    assert harness.loop.flow is PullState.DROPPED


async def test_loop_dropped_before_its_start_has_no_safe_offset(nursery: trio.Nursery) -> None:
    harness = LoopHarness(ScriptedPuller())
    harness.loop.drop()
    assert harness.loop.safe_offset is None
    nursery.start_soon(harness.loop.run)
    await settled()
    assert harness.puller.pulls == []


async def test_messages_of_a_retry_topic_have_their_original_topic(nursery: trio.Nursery) -> None:
    queue = MessageQueue("%RETRY%g", "broker-a", 0)
    harness = LoopHarness(ScriptedPuller(queue))
    retried = [received(0, topic=queue.topic, RETRY_TOPIC="T"), received(1, topic=queue.topic)]
    harness.puller.answer(answered(FOUND, 2, retried))
    nursery.start_soon(harness.loop.run)
    await settled()
    assert [message.topic for message in take_all(harness.process_queue)] == ["T", "%RETRY%g"]
    assert harness.process_queue.queue == queue


async def test_failures_of_a_retry_topic_are_not_warnings(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    harness = LoopHarness(ScriptedPuller(MessageQueue("%RETRY%g", "broker-a", 0)))
    harness.puller.answer(ConnectError("b", "refused"))
    nursery.start_soon(harness.loop.run)
    await trio.sleep(4)
    assert len(harness.puller.pulls) == 2
    assert not caplog.records
