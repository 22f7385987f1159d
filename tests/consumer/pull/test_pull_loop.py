from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import cast

import attrs
import msgspec
import pytest
import trio
import trio.testing

from rocketmq_py.client.namespace import Namespace
from rocketmq_py.client.retry_log import RetryLog
from rocketmq_py.codes import ResponseCode
from rocketmq_py.consumer.config import FlowLimits
from rocketmq_py.consumer.group.queue_locks import QueueLock
from rocketmq_py.consumer.group.statistics import PullState
from rocketmq_py.consumer.pull.process_queue import ProcessQueue
from rocketmq_py.consumer.pull.pull_loop import PullLoop
from rocketmq_py.consumer.pull.queue_puller import Pulled, PullStatus, QueuePuller
from rocketmq_py.errors import BrokerError, ConnectError, ProtocolError, RocketMQError
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.protocol.bodies import SubscriptionData
from tests.consumer.received import QUEUE, received

FOUND, NO_NEW, NO_MATCHED, MOVED = PullStatus


@attrs.define
class Pull:
    """One pull that a loop asked for, and when."""

    offset: int
    commit: int | None
    at: float


class ScriptedPuller:
    """Gives the answers that a test lines up; when there are none it waits, as a broker does."""

    namespace = Namespace()
    group = "g"

    def __init__(self, queue: MessageQueue = QUEUE) -> None:
        self.queue = queue
        self.pulls: list[Pull] = []
        self.answers: deque[Pulled | RocketMQError | Callable[[], Pulled]] = deque()
        self.more = trio.lowlevel.ParkingLot()

    def answer(self, *answers: Pulled | RocketMQError) -> None:
        self.answers += answers
        self.more.unpark_all()

    async def pull(self, offset: int, subscription: SubscriptionData, *, commit: int | None = None) -> Pulled:
        self.pulls.append(Pull(offset, commit, trio.current_time()))
        while not self.answers:
            await self.more.park()
        await trio.lowlevel.checkpoint()
        answer = self.answers.popleft()
        if isinstance(answer, RocketMQError):
            raise answer
        return cast("Pulled", answer)

    @property
    def offsets(self) -> list[int]:
        return [pull.offset for pull in self.pulls]


def found(*offsets: int, next_offset: int | None = None, size: int = 1) -> Pulled:
    messages = [received(offset, b"x" * size) for offset in offsets]
    return answered(FOUND, offsets[-1] + 1 if next_offset is None else next_offset, messages)


def answered(status: PullStatus, next_offset: int, messages: Sequence[ReceivedMessage] = ()) -> Pulled:
    return Pulled(status, messages, next_offset, 0, next_offset)


class Looping:
    """A pull loop with what is around it."""

    def __init__(
        self,
        puller: ScriptedPuller,
        *,
        start: int = 0,
        retry_log: RetryLog | None = None,
        lock: QueueLock | None = None,
    ) -> None:
        self.retry_log = retry_log or RetryLog(logging.getLogger("rocketmq_py.consumer"), "pull", group="g")
        self.puller = puller
        self.start = start
        self.start_errors: list[RocketMQError] = []
        self.delivered: list[ProcessQueue] = []
        self.invalidated = 0
        self.set_back = 0
        self.may_commit = True
        self.limits = FlowLimits(count=3, size=100, span=10)
        self.loop = PullLoop(
            cast("QueuePuller", puller),
            lambda: self.limits,
            subscription=lambda: SubscriptionData(topic="T", sub_string="*"),
            start=self.look_up_start,
            may_commit=lambda: self.may_commit,
            deliver=self.delivered.append,
            invalidate_route=self.invalidate,
            retry_log=self.retry_log,
            lock=lock,
            on_set_back=self.note_set_back,
        )

    async def look_up_start(self) -> int:
        await trio.lowlevel.checkpoint()
        if self.start_errors:
            raise self.start_errors.pop(0)
        return self.start

    def note_set_back(self) -> None:
        self.set_back += 1

    def invalidate(self) -> None:
        self.invalidated += 1

    @property
    def process_queue(self) -> ProcessQueue:
        assert self.loop.process_queue is not None
        return self.loop.process_queue


@pytest.fixture
async def looping(nursery: trio.Nursery) -> Looping:
    looping = Looping(ScriptedPuller())
    nursery.start_soon(looping.loop.run)
    return looping


settled = trio.testing.wait_all_tasks_blocked


async def test_it_pulls_on_from_where_the_broker_says(looping: Looping) -> None:
    await settled()
    looping.puller.answer(found(0, 1), found(5, next_offset=9), answered(NO_MATCHED, 800))
    await settled()
    assert looping.puller.offsets == [0, 2, 9, 800]
    assert looping.delivered == [looping.process_queue] * 2
    assert [message.queue_offset for message in iter(looping.process_queue.take, None)] == [0, 1, 5]
    assert looping.process_queue.next_offset == 800


async def test_what_is_safe_to_commit_goes_with_each_pull(looping: Looping) -> None:
    await settled()
    looping.puller.answer(found(0, 1, 2))
    await settled()
    looping.process_queue.remove(received(0))
    looping.process_queue.remove(received(2))
    looping.puller.answer(answered(NO_MATCHED, 4))
    await settled()
    assert [pull.commit for pull in looping.puller.pulls] == [None, None, 1]
    looping.may_commit = False
    looping.puller.answer(answered(NO_MATCHED, 5))
    await settled()
    assert looping.puller.pulls[-1].commit is None


@pytest.mark.parametrize(
    ("answer", "flow", "removed"),
    [
        (found(0, 1, 2, 3), PullState.FULL_BY_COUNT, [3]),
        (found(0, 1, size=60), PullState.FULL_BY_SIZE, [1]),
        (found(0, 11), PullState.SPAN_TOO_WIDE, [0]),
    ],
)
async def test_a_full_queue_is_pulled_from_as_soon_as_there_is_space(
    looping: Looping,
    answer: Pulled,
    flow: PullState,
    removed: list[int],
    autojump_clock: trio.testing.MockClock,
) -> None:
    looping.puller.answer(answer)
    await trio.sleep(100)
    assert len(looping.puller.pulls) == 1
    assert looping.loop.flow is flow
    start = trio.current_time()
    for offset in removed:
        looping.process_queue.remove(received(offset))
    await settled()
    assert looping.puller.pulls[1:] == [
        Pull(looping.process_queue.next_offset, looping.process_queue.safe_offset or None, start)
    ]
    assert looping.process_queue.on_space is None


async def test_its_state_is_what_it_waits_for_and_else_what_comes_after_the_pull_under_way(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    looping = Looping(ScriptedPuller())
    states = [looping.loop.state]
    nursery.start_soon(looping.loop.run)
    looping.puller.answer(found(0, 1, 2), ConnectError("b", "refused"))
    await settled()
    states.append(looping.loop.state)
    looping.loop.pause(True)  # it has failed, and pauses for that until it is looked at again
    states.append(looping.loop.state)
    looping.loop.pause(False)
    await trio.sleep(4)
    states.append(looping.loop.state)
    looping.loop.pause(True)
    states.append(looping.loop.state)
    looping.loop.pause(False)
    looping.limits = attrs.evolve(looping.limits, count=2)
    states.append(looping.loop.state)
    assert looping.puller.offsets == [0, 3, 3], "the last pull is under way since before it was paused"
    looping.loop.drop()
    states.append(looping.loop.state)
    assert states == [
        PullState.STARTING,
        PullState.FAILED,
        PullState.FAILED,
        PullState.PULLING,
        PullState.PAUSED,
        PullState.FULL_BY_COUNT,
        PullState.DROPPED,
    ]


async def test_one_that_is_removed_is_not_always_room_enough(looping: Looping) -> None:
    looping.puller.answer(found(0, 1, 2, 3, 4))
    await settled()
    looping.process_queue.remove(received(2))
    await settled()
    assert len(looping.puller.pulls) == 1
    looping.process_queue.remove(received(3))
    await settled()
    assert len(looping.puller.pulls) == 2


async def test_limits_that_change_make_space(looping: Looping) -> None:
    looping.puller.answer(found(0, 1, 2, 3, 4))
    await settled()
    looping.loop.look_for_space()
    await settled()
    assert len(looping.puller.pulls) == 1
    looping.limits = FlowLimits(count=5, size=100, span=10)
    looping.loop.look_for_space()
    await settled()
    assert len(looping.puller.pulls) == 2


async def test_pause_and_resume(looping: Looping, autojump_clock: trio.testing.MockClock) -> None:
    await settled()
    looping.loop.pause(True)
    looping.puller.answer(found(0))
    await trio.sleep(100)
    assert looping.puller.offsets == [0], "the pull that was under way is the last"
    assert looping.loop.flow is PullState.PAUSED
    assert looping.delivered, "what it brought is handled"
    looping.loop.pause(False)
    await settled()
    assert looping.puller.offsets == [0, 1]


async def test_a_loop_may_be_paused_before_it_begins(nursery: trio.Nursery) -> None:
    looping = Looping(ScriptedPuller())
    looping.loop.pause(True)
    nursery.start_soon(looping.loop.run)
    await settled()
    assert looping.puller.pulls == []
    looping.loop.pause(False)
    await settled()
    assert looping.puller.offsets == [0]


async def test_an_error_is_tried_again_after_3_seconds(
    looping: Looping, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    looping.puller.answer(*[ConnectError("127.0.0.1:1", "refused")] * 12, found(0))
    await trio.sleep(100)
    times = [pull.at for pull in looping.puller.pulls]
    assert times == pytest.approx([3.0 * number for number in range(13)] + [36.0])
    assert looping.invalidated == 12
    lines = [record.message for record in caplog.records]
    where = "group=g topic=T broker=broker-a queue=0"
    error = "error=cannot connect to 127.0.0.1:1: refused"
    assert lines == [
        f"pull failed, retrying: {where} retry_in=3.0 {error}",
        f"pull failed, retrying: {where} retry_in=3.0 failures=11 seconds=30 {error}",
        f"pull succeeded again: {where} failures=12 seconds=36",
    ]


async def test_many_loops_of_a_broker_that_is_gone_are_one_line(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    retry_log = RetryLog(logging.getLogger("rocketmq_py.consumer"), "pull", group="g")
    for number in range(50):
        looping = Looping(ScriptedPuller(MessageQueue("T", "broker-a", number)), retry_log=retry_log)
        looping.puller.answer(ConnectError("b", "refused"), found(0))
        nursery.start_soon(looping.loop.run)
    await trio.sleep(10)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


async def test_an_answer_that_cannot_be_read_is_asked_for_again(
    looping: Looping, autojump_clock: trio.testing.MockClock
) -> None:
    looping.puller.answer(ProtocolError("garbage"), found(0))
    await trio.sleep(10)
    assert looping.puller.offsets == [0, 0, 1]
    assert looping.invalidated == 0


async def test_flow_control_by_the_broker_is_a_short_wait(
    looping: Looping, autojump_clock: trio.testing.MockClock
) -> None:
    looping.puller.answer(BrokerError.from_answer(ResponseCode.FLOW_CONTROL, "slowly", "b"), found(0))
    await trio.sleep(1)
    assert [pull.at for pull in looping.puller.pulls] == pytest.approx([0.0, 0.02, 0.02])


async def test_a_broker_that_has_nothing_and_does_not_wait_is_not_asked_in_a_circle(
    looping: Looping, autojump_clock: trio.testing.MockClock
) -> None:
    looping.puller.answer(answered(NO_NEW, 0), answered(NO_MATCHED, 0), found(0))
    await trio.sleep(1)
    assert [pull.at for pull in looping.puller.pulls] == pytest.approx([0.0, 0.05, 0.1, 0.1])


async def test_after_a_long_poll_it_asks_again_at_once(
    looping: Looping, autojump_clock: trio.testing.MockClock
) -> None:
    await trio.sleep(15)
    looping.puller.answer(answered(NO_NEW, 0))
    await settled()
    assert [pull.at for pull in looping.puller.pulls] == pytest.approx([0.0, 15.0])


async def test_where_to_begin_is_looked_up_until_it_is_known(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    looping = Looping(ScriptedPuller(), start=42)
    looping.start_errors = [ConnectError("b", "refused"), ProtocolError("garbage")]
    nursery.start_soon(looping.loop.run)
    await trio.sleep(7)
    assert looping.puller.pulls == [Pull(42, 42, at=6.0)]


async def test_a_correction_forwards_keeps_what_is_being_handled(looping: Looping) -> None:
    looping.puller.answer(found(0, 1), answered(MOVED, 50))
    await settled()
    assert looping.puller.offsets == [0, 2, 50]
    assert not looping.process_queue.dropped
    assert not looping.set_back
    assert looping.process_queue.safe_offset == 0, "it is handled still"
    looping.process_queue.remove(received(0))
    looping.process_queue.remove(received(1))
    assert looping.process_queue.safe_offset == 50


@pytest.mark.parametrize("status", [MOVED, NO_NEW])
async def test_a_correction_backwards_begins_anew(looping: Looping, status: PullStatus) -> None:
    looping.start = 100
    looping.puller.answer(found(100, 101))
    await settled()
    before = looping.process_queue
    looping.puller.answer(answered(status, 7), found(7))
    await settled()
    assert looping.puller.offsets == [100, 102, 7, 8]
    assert before.dropped
    assert looping.set_back == 1, "what the broker was told of offsets holds no more"
    assert looping.process_queue is not before
    assert looping.process_queue.safe_offset == 7
    before.remove(received(100))
    assert looping.process_queue.safe_offset == 7


async def test_a_broker_that_goes_back_and_back_is_asked_with_pauses_and_named_once(
    looping: Looping, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    looping.start = 4
    looping.puller.answer(*[answered(NO_NEW, place) for place in range(3, -20, -1)])
    await trio.sleep(28)
    assert looping.puller.offsets == [4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0]
    assert [record.message for record in caplog.records] == [
        "offset corrected by the broker: topic=T broker=broker-a queue=0 asked=4 corrected=3"
    ]


async def test_it_does_not_go_back_to_before_the_queue_begins(looping: Looping) -> None:
    looping.start = 9
    looping.puller.answer(msgspec.structs.replace(answered(MOVED, 1), min_offset=5))
    await settled()
    assert looping.puller.offsets == [9, 5]


async def test_messages_that_come_again_are_not_handed_out_again(
    looping: Looping, autojump_clock: trio.testing.MockClock
) -> None:
    looping.puller.answer(found(0, 1), *[found(0, 1)] * 5, found(2))
    await trio.sleep(60)
    assert looping.puller.offsets == [0, *[2] * 6, 3]
    assert [message.queue_offset for message in iter(looping.process_queue.take, None)] == [0, 1, 2]


@pytest.mark.parametrize("offset", [None, 7])
async def test_beginning_again_forgets_what_is_held(looping: Looping, offset: int | None) -> None:
    await settled()
    looping.puller.answer(found(0, 1))
    await settled()
    looping.start = 50
    before = looping.process_queue
    looping.loop.begin_again(offset)
    assert before.dropped
    looping.puller.answer(found(60))
    await settled()
    expected = 50 if offset is None else offset
    assert looping.puller.offsets[2:] == [expected, 61]
    assert looping.process_queue is not before
    assert (looping.loop.safe_offset, len(before)) == (60, 2)


async def test_an_answer_to_the_pull_before_is_not_taken_for_one_to_the_pull_after(
    nursery: trio.Nursery,
) -> None:
    """It was there already when the loop was told to begin again, and could not be cancelled any more."""

    class Hasty(ScriptedPuller):
        async def pull(
            self, offset: int, subscription: SubscriptionData, *, commit: int | None = None
        ) -> Pulled:
            self.pulls.append(Pull(offset, commit, trio.current_time()))
            await self.more.park()
            return cast("Pulled", self.answers.popleft())

    looping = Looping(Hasty())
    nursery.start_soon(looping.loop.run)
    await settled()
    looping.puller.answer(found(0))
    looping.loop.begin_again(50)
    await settled()
    assert not looping.puller.answers
    assert looping.puller.offsets == [0, 50]
    assert (len(looping.process_queue), looping.delivered) == (0, [])


async def test_beginning_again_while_it_begins(nursery: trio.Nursery) -> None:
    looping = Looping(ScriptedPuller(), start=3)
    nursery.start_soon(looping.loop.run)
    looping.loop.begin_again(9)
    await settled()
    assert looping.puller.offsets == [9]
    looping.loop.begin_again()
    await settled()
    assert looping.puller.offsets == [9, 3]


async def test_what_is_looked_up_counts_no_more_when_it_is_told_meanwhile_where_to_begin(
    nursery: trio.Nursery,
) -> None:
    """The look-up has been answered, in the same moment, and cannot be cancelled any more."""

    class Hasty(Looping):
        async def look_up_start(self) -> int:
            self.loop.begin_again(9)
            return 3

    looping = Hasty(ScriptedPuller())
    nursery.start_soon(looping.loop.run)
    await settled()
    assert looping.process_queue.next_offset == 9
    assert set(looping.puller.offsets) == {9}


async def test_a_pull_that_never_ends_is_found_and_made_anew(
    looping: Looping, autojump_clock: trio.testing.MockClock
) -> None:
    looping.puller.answer(found(0))
    await trio.sleep(119)
    assert not looping.loop.has_stalled(120)
    await trio.sleep(2)
    assert looping.loop.has_stalled(120)
    looping.loop.pull_anew()
    await settled()
    assert not looping.loop.has_stalled(120)
    assert looping.puller.offsets == [0, 1, 1]
    assert len(looping.process_queue) == 1, "what is here stays"


async def test_who_waits_for_room_has_not_stalled(
    looping: Looping, autojump_clock: trio.testing.MockClock
) -> None:
    looping.puller.answer(found(0, 1, 2, 3))
    await trio.sleep(1000)
    assert not looping.loop.has_stalled(120)


async def test_without_the_lock_there_is_nothing_to_commit(nursery: trio.Nursery) -> None:
    lock = QueueLock(QUEUE)
    looping = Looping(ScriptedPuller(), lock=lock)
    nursery.start_soon(looping.loop.run)
    looping.puller.answer(found(5))
    await settled()
    safe = [looping.loop.safe_offset]
    assert looping.process_queue.lock is lock
    lock.granted(trio.current_time())
    looping.puller.answer(answered(NO_MATCHED, 7))
    await settled()
    safe.append(looping.loop.safe_offset)
    assert safe == [None, 5]
    assert [pull.commit for pull in looping.puller.pulls] == [None, None, 5]


async def test_a_dropped_loop_ends_and_knows_what_to_commit(looping: Looping) -> None:
    looping.puller.answer(found(0, 1))
    await settled()
    looping.process_queue.remove(received(0))
    looping.loop.drop()
    assert looping.loop.safe_offset == 1
    assert looping.process_queue.dropped
    looping.puller.answer(found(2))
    await settled()
    assert len(looping.puller.pulls) == 2
    assert len(looping.delivered) == 1
    assert looping.loop.flow is PullState.DROPPED


async def test_a_loop_that_is_dropped_before_it_begins_has_nothing_to_commit(nursery: trio.Nursery) -> None:
    looping = Looping(ScriptedPuller())
    looping.loop.drop()
    assert looping.loop.safe_offset is None
    nursery.start_soon(looping.loop.run)
    await settled()
    assert looping.puller.pulls == []


async def test_messages_of_a_retry_topic_are_shown_under_their_own(nursery: trio.Nursery) -> None:
    queue = MessageQueue("%RETRY%g", "broker-a", 0)
    looping = Looping(ScriptedPuller(queue))
    retried = [received(0, topic=queue.topic, RETRY_TOPIC="T"), received(1, topic=queue.topic)]
    looping.puller.answer(answered(FOUND, 2, retried))
    nursery.start_soon(looping.loop.run)
    await settled()
    assert [message.topic for message in iter(looping.process_queue.take, None)] == ["T", "%RETRY%g"]
    assert looping.process_queue.queue == queue


async def test_a_retry_topic_that_fails_is_not_worth_a_warning(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    looping = Looping(ScriptedPuller(MessageQueue("%RETRY%g", "broker-a", 0)))
    looping.puller.answer(ConnectError("b", "refused"))
    nursery.start_soon(looping.loop.run)
    await trio.sleep(4)
    assert len(looping.puller.pulls) == 2
    assert not caplog.records
