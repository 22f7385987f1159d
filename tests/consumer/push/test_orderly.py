from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from rocketmq_py.consumer.config import LOCK_MAX_LIVE_TIME
from rocketmq_py.consumer.group.handler_results import (
    CommitOffset,
    ConsumeLater,
    ConsumeResult,
    RollbackOffset,
    Suspend,
)
from rocketmq_py.consumer.group.queue_locks import QueueLock
from rocketmq_py.consumer.pull.process_queue import ProcessQueue
from rocketmq_py.consumer.push.dispatch import YIELD_EVERY
from rocketmq_py.consumer.push.invoker import Invoker
from rocketmq_py.consumer.push.orderly import OrderlyDispatch
from rocketmq_py.errors import ConnectError
from rocketmq_py.message import MessageQueue, ReceivedMessage
from tests.consumer.handing import settled
from tests.consumer.received import QUEUE, received, several


class GivenUp:
    """Takes dead letters, or fails to."""

    def __init__(self) -> None:
        self.messages: list[ReceivedMessage] = []
        self.failures = 0

    async def __call__(self, message: ReceivedMessage) -> None:
        await trio.lowlevel.checkpoint()
        if self.failures:
            self.failures -= 1
            raise ConnectError("127.0.0.1:1", "refused")
        self.messages.append(message)

    @property
    def offsets(self) -> list[int]:
        return [message.queue_offset for message in self.messages]


def orderly_in(
    nursery: trio.Nursery,
    handle: Callable[[Any], Any],
    concurrency: int = 3,
    *,
    batch_size: int | None = None,
    auto_commit: bool = True,
    max_reconsume_times: float = math.inf,
    send_to_dead_letters: Callable[[ReceivedMessage], Awaitable[None]] | None = None,
) -> OrderlyDispatch:
    return OrderlyDispatch(
        nursery,
        Invoker(handle, concurrency, nursery, in_lists=batch_size is not None),
        concurrency=concurrency,
        batch_size=batch_size,
        auto_commit=auto_commit,
        suspend=1.0,
        max_reconsume_times=max_reconsume_times,
        send_to_dead_letters=send_to_dead_letters or GivenUp(),
    )


def locked(queue: MessageQueue = QUEUE) -> QueueLock:
    return QueueLock(queue, held_until=math.inf)


def holding(count: int, lock: QueueLock | None = None, first: int = 0) -> ProcessQueue:
    lock = lock or locked()
    process_queue = ProcessQueue(lock.queue, first, lock)
    process_queue.put(several(range(first, first + count)), first + count)
    return process_queue


class Log:
    """A handler that keeps what begins and ends when, and does as it is told."""

    def __init__(self, takes: float = 0.0) -> None:
        self.takes = takes
        self.begun: list[tuple[float, int]] = []
        self.tries: list[tuple[int, int]] = []
        self.running: list[tuple[str, int]] = []
        self.most = 0
        self.results: dict[int, list[ConsumeResult | Exception]] = {}

    async def __call__(self, message: ReceivedMessage) -> ConsumeResult | None:
        offset = message.queue_offset
        self.begun.append((trio.current_time(), offset))
        self.tries.append((offset, message.reconsume_times))
        assert message.topic not in [topic for topic, _ in self.running], "one at a time of a queue"
        self.running.append((message.topic, offset))
        self.most = max(self.most, len(self.running))
        try:
            await (trio.sleep(self.takes) if self.takes else trio.lowlevel.checkpoint())
        finally:
            self.running.remove((message.topic, offset))
        results = self.results.get(offset)
        result = results.pop(0) if results else None
        if isinstance(result, Exception):
            raise result
        return result

    @property
    def offsets(self) -> list[int]:
        return [offset for _, offset in self.begun]


async def test_one_after_the_other_in_each_queue_and_queues_at_the_same_time(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    log = Log(takes=1)
    handling = orderly_in(nursery, log, 10)
    queues = []
    for topic in "abc":
        process_queue = ProcessQueue(MessageQueue(topic, "b", 0), 0, locked(MessageQueue(topic, "b", 0)))
        process_queue.put([received(offset, topic=topic) for offset in range(5)], 5)
        handling.offer(process_queue)
        queues.append(process_queue)
    await trio.sleep(2.5)
    for process_queue in queues:
        process_queue.put([received(5, topic=process_queue.queue.topic)], 6)
        handling.offer(process_queue)
    await trio.sleep(10)
    assert log.most == 3
    assert [process_queue.safe_offset for process_queue in queues] == [6, 6, 6]
    assert log.begun == sorted(log.begun)
    assert log.begun[-1][0] == 5


async def test_no_more_queues_at_once_than_allowed_and_all_in_turn(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    log = Log(takes=1)
    handling = orderly_in(nursery, log, 2)
    for number in range(4):
        queue = MessageQueue(f"T{number}", "b", 0)
        process_queue = ProcessQueue(queue, 0, locked(queue))
        process_queue.put([received(offset, topic=queue.topic) for offset in range(3)], 3)
        handling.offer(process_queue)
    await trio.sleep(20)
    assert log.most == 2
    assert log.offsets == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]


async def test_what_fails_is_tried_again_in_place_after_a_rest(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    log = Log()
    log.results = {1: [ValueError("no"), Suspend(), Suspend(5)]}
    process_queue = holding(3)
    handling = orderly_in(nursery, log)
    handling.offer(process_queue)
    await trio.sleep(0.5)
    process_queue.put(several([3]), 4)
    handling.offer(process_queue)
    await trio.sleep(100)
    assert log.begun == [(0.0, 0), (0.0, 1), (1.0, 1), (2.0, 1), (7.0, 1), (7.0, 2), (7.0, 3)]
    assert [tries for offset, tries in log.tries if offset == 1] == [0, 1, 2, 3]
    assert process_queue.safe_offset == 4
    assert [record.levelname for record in caplog.records] == ["ERROR"], "Suspend is no failure to log"


async def test_it_is_tried_for_ever_unless_there_is_a_limit(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    log = Log()
    log.results = {0: [Suspend() for _ in range(500)]}
    process_queue = holding(2)
    orderly_in(nursery, log).offer(process_queue)
    await trio.sleep(400.5)
    assert len(log.begun) == 401
    assert process_queue.safe_offset == 0


async def test_after_the_last_try_it_is_given_up_and_the_queue_goes_on(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    log, given_up = Log(), GivenUp()
    given_up.failures = 1
    log.results = {0: [ValueError("no") for _ in range(9)]}
    process_queue = holding(2)
    orderly_in(nursery, log, max_reconsume_times=2, send_to_dead_letters=given_up).offer(process_queue)
    await trio.sleep(100)
    assert log.tries == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)]
    assert given_up.offsets == [0]
    assert process_queue.safe_offset == 2


async def test_a_body_that_cannot_be_read_holds_up_its_queue_like_any_failure(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    log, given_up = Log(), GivenUp()
    process_queue = ProcessQueue(QUEUE, 0, locked())
    process_queue.put([received(0, corruption="not zlib"), received(1)], 2)
    orderly_in(nursery, log, max_reconsume_times=3, send_to_dead_letters=given_up).offer(process_queue)
    await trio.sleep(2.5)
    assert log.offsets == []
    await trio.sleep(1)
    assert given_up.offsets == [0]
    assert log.begun == [(3.0, 1)]
    assert "its body cannot be read: not zlib" in caplog.text


async def test_a_body_that_cannot_be_read_holds_up_its_queue_for_no_more_than_sixteen_tries(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    log, given_up = Log(), GivenUp()
    process_queue = ProcessQueue(QUEUE, 0, locked())
    process_queue.put([received(0, corruption="not zlib"), received(1)], 2)
    orderly_in(nursery, log, max_reconsume_times=math.inf, send_to_dead_letters=given_up).offer(process_queue)
    await trio.sleep(30)
    assert given_up.offsets == [0]
    assert log.begun == [(16.0, 1)]
    assert process_queue.safe_offset == 2


@pytest.mark.parametrize("result", [ConsumeLater(), RollbackOffset()])
async def test_a_result_that_belongs_to_other_consumers_is_a_failure(
    nursery: trio.Nursery,
    result: ConsumeResult,
    autojump_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = Log()
    log.results = {0: [result]}
    orderly_in(nursery, log).offer(holding(2))
    await trio.sleep(10)
    assert log.begun == [(0.0, 0), (1.0, 0), (1.0, 1)]
    assert "which says nothing to this consumer" in caplog.text


# Lists


async def test_lists_in_order(nursery: trio.Nursery, autojump_clock: trio.testing.MockClock) -> None:
    lists: list[list[tuple[int, int]]] = []

    async def handle(messages: list[ReceivedMessage]) -> ConsumeResult | None:
        lists.append([(message.queue_offset, message.reconsume_times) for message in messages])
        messages.clear()
        return Suspend() if len(lists) == 2 else None

    process_queue = holding(5)
    orderly_in(nursery, handle, batch_size=2).offer(process_queue)
    await trio.sleep(10)
    assert lists == [[(0, 0), (1, 0)], [(2, 0), (3, 0)], [(2, 1), (3, 1)], [(4, 0)]]
    assert process_queue.safe_offset == 5


async def test_of_a_list_only_what_has_failed_often_enough_is_given_up(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    lists: list[list[int]] = []
    given_up = GivenUp()

    async def handle(messages: list[ReceivedMessage]) -> ConsumeResult | None:
        lists.append([message.queue_offset for message in messages])
        return Suspend() if 0 in lists[-1] or len(lists) == 4 else None

    process_queue = holding(1)
    handling = orderly_in(nursery, handle, batch_size=2, max_reconsume_times=2, send_to_dead_letters=given_up)
    handling.offer(process_queue)
    await trio.sleep(0.5)
    process_queue.put(several([1, 2]), 3)
    await trio.sleep(20)
    assert lists == [[0], [0, 1], [0, 1], [1, 2], [2]]
    assert given_up.offsets == [0, 1]
    assert process_queue.safe_offset == 3


# Commit and rollback


async def test_without_auto_commit_only_a_commit_moves_the_offset(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    log = Log()
    log.results = {2: [CommitOffset()]}
    process_queue = holding(5)
    orderly_in(nursery, log, auto_commit=False).offer(process_queue)
    await settled()
    assert log.offsets == [0, 1, 2, 3, 4]
    assert process_queue.safe_offset == 3
    assert len(process_queue) == 2, "what is not committed is held"


async def test_a_rollback_hands_out_again_what_was_not_committed(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    log = Log()
    log.results = {1: [CommitOffset()], 4: [RollbackOffset(), RollbackOffset(7), CommitOffset()]}
    process_queue = holding(6)
    orderly_in(nursery, log, auto_commit=False).offer(process_queue)
    await trio.sleep(100)
    assert log.offsets == [0, 1, 2, 3, 4, 2, 3, 4, 2, 3, 4, 5]
    assert [at for at, offset in log.begun if offset == 2] == [0.0, 1.0, 8.0]
    assert {tries for _, tries in log.tries} == {0}, "a rollback is no failure"
    assert process_queue.safe_offset == 5


async def test_a_failure_between_commits_is_tried_again_alone(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    log, given_up = Log(), GivenUp()
    log.results = {1: [ValueError("no")] * 3, 2: [CommitOffset()]}
    process_queue = holding(4)
    orderly_in(nursery, log, auto_commit=False, max_reconsume_times=2, send_to_dead_letters=given_up).offer(
        process_queue
    )
    await trio.sleep(100)
    assert log.offsets == [0, 1, 1, 1, 2, 3]
    assert given_up.offsets == [1]
    assert process_queue.safe_offset == 3


async def test_a_commit_is_allowed_where_it_is_not_needed(nursery: trio.Nursery) -> None:
    log = Log()
    log.results = {0: [CommitOffset()]}
    process_queue = holding(2)
    orderly_in(nursery, log).offer(process_queue)
    await settled()
    assert process_queue.safe_offset == 2


# Locks


async def test_nothing_is_handed_out_without_the_lock(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    log = Log(takes=1)
    lock = QueueLock(QUEUE)
    process_queue = holding(100, lock)
    handling = orderly_in(nursery, log)
    lock.on_acquired = lambda: handling.offer(process_queue)
    handling.offer(process_queue)
    await trio.sleep(10)
    assert log.offsets == []
    lock.granted(trio.current_time())
    await trio.sleep(LOCK_MAX_LIVE_TIME - 0.5)
    assert len(log.begun) == LOCK_MAX_LIVE_TIME
    await trio.sleep(50)
    assert len(log.begun) == LOCK_MAX_LIVE_TIME, "it has run out"
    assert process_queue.safe_offset == LOCK_MAX_LIVE_TIME, "what was under way is done with"
    lock.granted(trio.current_time())
    await trio.sleep(5.5)
    assert log.offsets == list(range(int(LOCK_MAX_LIVE_TIME) + 6))


async def test_a_queue_that_is_consumed_anew_waits_for_the_call_that_is_under_way(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """Lost, and got back while the last call goes on: two at a time would break the order."""
    log = Log(takes=10)
    lock = locked()
    before = holding(5, lock)
    handling = orderly_in(nursery, log)
    handling.offer(before)
    await trio.sleep(5)
    before.dropped = True
    anew = holding(5, lock)
    lock.on_acquired = lambda: handling.offer(anew)
    handling.offer(anew)
    await trio.sleep(1)
    handling.offer(anew)
    await trio.sleep(60)
    assert log.begun == [(0.0, 0), (10.0, 0), (20.0, 1), (30.0, 2), (40.0, 3), (50.0, 4)]
    assert anew.safe_offset == 5


@pytest.mark.parametrize("result", [Suspend(), RollbackOffset(), ValueError("no"), None])
@pytest.mark.parametrize("auto_commit", [True, False])
async def test_whatever_a_lost_call_comes_to_the_queue_goes_on(
    nursery: trio.Nursery,
    autojump_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
    result: ConsumeResult | Exception | None,
    auto_commit: bool,
) -> None:
    caplog.set_level(logging.CRITICAL)
    log, given_up = Log(takes=10), GivenUp()
    log.results = {} if result is None else {0: [result]}
    lock = locked()
    before = holding(3, lock)
    handling = orderly_in(
        nursery, log, auto_commit=auto_commit, max_reconsume_times=0, send_to_dead_letters=given_up
    )
    handling.offer(before)
    await trio.sleep(5)
    before.dropped = True
    anew = holding(3, lock)
    lock.on_acquired = lambda: handling.offer(anew)
    handling.offer(anew)
    await trio.sleep(100)
    assert log.offsets == [0, 0, 1, 2]
    assert log.begun[1][0] == 10.0
    assert given_up.offsets == [], "it is the next owner's affair"


async def test_a_queue_that_rests_when_its_lock_runs_out_goes_on_with_the_next(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    log = Log()
    log.results = {0: [Suspend(LOCK_MAX_LIVE_TIME + 5)]}
    lock = QueueLock(QUEUE)
    process_queue = holding(2, lock)
    handling = orderly_in(nursery, log)
    lock.on_acquired = lambda: handling.offer(process_queue)
    lock.granted(0.0)
    await trio.sleep(LOCK_MAX_LIVE_TIME + 20)
    assert log.begun == [(0.0, 0)]
    lock.granted(trio.current_time())
    await settled()
    assert log.offsets == [0, 0, 1]


# The end


async def test_draining_waits_for_what_runs_and_hands_out_no_more(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    log = Log(takes=10)
    process_queue = holding(5)
    resting = ProcessQueue(MessageQueue("U", "b", 0), 0, locked(MessageQueue("U", "b", 0)))
    resting.put([received(7, topic="U")], 8)
    log.results = {7: [Suspend(5)]}
    handling = orderly_in(nursery, log)
    handling.offer(process_queue)
    handling.offer(resting)
    await trio.sleep(11)
    await handling.drain()
    assert trio.current_time() == 20
    assert process_queue.safe_offset == 2
    await trio.sleep(100)
    assert len(log.begun) == 3


async def test_cancelled_in_the_middle_it_has_handled_nothing() -> None:
    process_queue = holding(3)

    async def hang(_: ReceivedMessage) -> None:
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        orderly_in(nursery, hang).offer(process_queue)
        await settled()
        nursery.cancel_scope.cancel()
    assert process_queue.safe_offset == 0
    assert process_queue.lock is not None
    assert not process_queue.lock.busy


async def test_a_failure_in_the_course_of_a_cancellation_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def fail_when_cancelled() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("while cleaning up")

    async def handle(_: ReceivedMessage) -> None:
        async with trio.open_nursery() as inner:
            inner.start_soon(trio.sleep_forever)
            inner.start_soon(fail_when_cancelled)

    caplog.set_level(logging.ERROR)
    async with trio.open_nursery() as nursery:
        orderly_in(nursery, handle).offer(holding(1))
        await settled()
        nursery.cancel_scope.cancel()
    assert "while cleaning up" in caplog.text


async def test_a_handler_that_never_waits_lets_others_run(nursery: trio.Nursery) -> None:
    seen = 0
    most_at_once = 0

    async def handle(_: ReceivedMessage) -> None:
        nonlocal seen
        seen += 1

    async def other() -> None:
        nonlocal most_at_once
        while seen < 500:
            before = seen
            await trio.lowlevel.checkpoint()
            most_at_once = max(most_at_once, seen - before)

    nursery.start_soon(other)
    orderly_in(nursery, handle).offer(holding(500))
    await settled()
    # Trio may run the one worker that yields twice before it is the turn of another.
    assert 0 < most_at_once <= 2 * YIELD_EVERY
