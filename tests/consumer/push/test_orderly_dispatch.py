from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import wait_all_tasks_blocked

from rocketmq_py.consumer.group.handler_results import (
    CommitOffset,
    ConsumeLater,
    ConsumeResult,
    RollbackOffset,
    Suspend,
)
from rocketmq_py.consumer.group.queue_locks import QueueLock
from rocketmq_py.consumer.pull.process_queue import ProcessQueue
from rocketmq_py.consumer.push.handler_workers import YIELD_EVERY
from rocketmq_py.consumer.push.orderly_dispatch import OrderlyDispatch
from rocketmq_py.consumer.settings import LOCK_MAX_LIVE_TIME, PushConsumerSettings
from rocketmq_py.message import MessageQueue, ReceivedMessage
from tests.consumer.dispatching import DeadLetters, ScriptedReturns
from tests.consumer.received import QUEUE, received, several


def orderly_dispatch(
    nursery: trio.Nursery,
    handle: Callable[[Any], Any],
    concurrency: int = 3,
    *,
    batch_size: int | None = None,
    auto_commit: bool = True,
    max_reconsume_times: int | None = None,
    send_to_dead_letters: Callable[[ReceivedMessage, str], Awaitable[None]] | None = None,
) -> OrderlyDispatch:
    return OrderlyDispatch(
        nursery,
        handle,
        PushConsumerSettings(
            group="g",
            orderly=True,
            concurrency=concurrency,
            batch_size=batch_size,
            auto_commit=auto_commit,
            max_reconsume_times=max_reconsume_times,
        ),
        dead_letter_queue=ScriptedReturns(send_to_dead_letters=send_to_dead_letters),
    )


def held_lock(queue: MessageQueue = QUEUE) -> QueueLock:
    return QueueLock(queue, held_until=math.inf)


def locked_queue(count: int, lock: QueueLock | None = None, first: int = 0) -> ProcessQueue:
    lock = lock or held_lock()
    process_queue = ProcessQueue(lock.queue, first, lock)
    process_queue.put(several(range(first, first + count)), first + count)
    return process_queue


class JournalingHandler:
    """A handler that records its calls and returns scripted results."""

    def __init__(self, takes: float = 0.0) -> None:
        self.takes = takes
        self.started: list[tuple[float, int]] = []
        self.tries: list[tuple[int, int]] = []
        self.running: list[tuple[str, int]] = []
        self.max_running = 0
        self.results: dict[int, list[ConsumeResult | Exception]] = {}

    async def __call__(self, message: ReceivedMessage) -> ConsumeResult | None:
        offset = message.queue_offset
        self.started.append((trio.current_time(), offset))
        self.tries.append((offset, message.reconsume_times))
        assert message.topic not in [topic for topic, _ in self.running], (
            "calls for one queue must not overlap"
        )
        self.running.append((message.topic, offset))
        self.max_running = max(self.max_running, len(self.running))
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
        return [offset for _, offset in self.started]


async def test_messages_of_a_queue_are_sequential_and_queues_concurrent(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    journal = JournalingHandler(takes=1)
    dispatch = orderly_dispatch(nursery, journal, 10)
    queues = []
    for topic in "abc":
        process_queue = ProcessQueue(MessageQueue(topic, "b", 0), 0, held_lock(MessageQueue(topic, "b", 0)))
        process_queue.put([received(offset, topic=topic) for offset in range(5)], 5)
        dispatch.offer(process_queue)
        queues.append(process_queue)
    await trio.sleep(2.5)
    for process_queue in queues:
        process_queue.put([received(5, topic=process_queue.queue.topic)], 6)
        dispatch.offer(process_queue)
    await trio.sleep(10)
    assert journal.max_running == 3
    assert [process_queue.safe_offset for process_queue in queues] == [6, 6, 6]
    assert journal.started == sorted(journal.started)
    assert journal.started[-1][0] == 5


async def test_concurrency_limits_the_queues_served_at_once(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    journal = JournalingHandler(takes=1)
    dispatch = orderly_dispatch(nursery, journal, 2)
    for number in range(4):
        queue = MessageQueue(f"T{number}", "b", 0)
        process_queue = ProcessQueue(queue, 0, held_lock(queue))
        process_queue.put([received(offset, topic=queue.topic) for offset in range(3)], 3)
        dispatch.offer(process_queue)
    await trio.sleep(20)
    assert journal.max_running == 2
    assert journal.offsets == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]


async def test_failed_message_is_retried_in_place_after_a_pause(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    journal = JournalingHandler()
    journal.results = {1: [ValueError("no"), Suspend(), Suspend(5)]}
    process_queue = locked_queue(3)
    dispatch = orderly_dispatch(nursery, journal)
    dispatch.offer(process_queue)
    await trio.sleep(0.5)
    process_queue.put(several([3]), 4)
    dispatch.offer(process_queue)
    await trio.sleep(100)
    assert journal.started == [(0.0, 0), (0.0, 1), (1.0, 1), (2.0, 1), (7.0, 1), (7.0, 2), (7.0, 3)]
    assert [tries for offset, tries in journal.tries if offset == 1] == [0, 1, 2, 3]
    assert process_queue.safe_offset == 4
    assert [record.levelname for record in caplog.records] == ["ERROR"], "Suspend is not logged as a failure"


async def test_retries_are_unlimited_by_default(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    journal = JournalingHandler()
    journal.results = {0: [Suspend() for _ in range(500)]}
    process_queue = locked_queue(2)
    orderly_dispatch(nursery, journal).offer(process_queue)
    await trio.sleep(400.5)
    assert len(journal.started) == 401
    assert process_queue.safe_offset == 0


async def test_message_becomes_a_dead_letter_after_the_last_retry(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    journal, dead_letters = JournalingHandler(), DeadLetters()
    dead_letters.failures = 1
    journal.results = {0: [ValueError("no") for _ in range(9)]}
    process_queue = locked_queue(2)
    orderly_dispatch(nursery, journal, max_reconsume_times=2, send_to_dead_letters=dead_letters).offer(
        process_queue
    )
    await trio.sleep(100)
    assert journal.tries == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)]
    assert dead_letters.offsets == [0]
    assert process_queue.safe_offset == 2


async def test_corrupt_message_is_retried_in_place(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    journal, dead_letters = JournalingHandler(), DeadLetters()
    process_queue = ProcessQueue(QUEUE, 0, held_lock())
    process_queue.put([received(0, corruption="not zlib"), received(1)], 2)
    orderly_dispatch(nursery, journal, max_reconsume_times=3, send_to_dead_letters=dead_letters).offer(
        process_queue
    )
    await trio.sleep(2.5)
    assert journal.offsets == []
    await trio.sleep(1)
    assert dead_letters.offsets == [0]
    assert journal.started == [(3.0, 1)]
    assert "its body cannot be read: not zlib" in caplog.text


async def test_corrupt_message_becomes_a_dead_letter_after_sixteen_retries(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    journal, dead_letters = JournalingHandler(), DeadLetters()
    process_queue = ProcessQueue(QUEUE, 0, held_lock())
    process_queue.put([received(0, corruption="not zlib"), received(1)], 2)
    orderly_dispatch(nursery, journal, send_to_dead_letters=dead_letters).offer(process_queue)
    await trio.sleep(30)
    assert dead_letters.offsets == [0]
    assert journal.started == [(16.0, 1)]
    assert process_queue.safe_offset == 2


@pytest.mark.parametrize("result", [ConsumeLater(), RollbackOffset()])
async def test_unsupported_result_is_a_failure(
    nursery: trio.Nursery,
    result: ConsumeResult,
    autojump_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    journal = JournalingHandler()
    journal.results = {0: [result]}
    orderly_dispatch(nursery, journal).offer(locked_queue(2))
    await trio.sleep(10)
    assert journal.started == [(0.0, 0), (1.0, 0), (1.0, 1)]
    assert "the handler returned" in caplog.text


# Lists


async def test_lists_in_order(nursery: trio.Nursery, autojump_clock: trio.testing.MockClock) -> None:
    lists: list[list[tuple[int, int]]] = []

    async def handle(messages: list[ReceivedMessage]) -> ConsumeResult | None:
        lists.append([(message.queue_offset, message.reconsume_times) for message in messages])
        messages.clear()
        return Suspend() if len(lists) == 2 else None

    process_queue = locked_queue(5)
    orderly_dispatch(nursery, handle, batch_size=2).offer(process_queue)
    await trio.sleep(10)
    assert lists == [[(0, 0), (1, 0)], [(2, 0), (3, 0)], [(2, 1), (3, 1)], [(4, 0)]]
    assert process_queue.safe_offset == 5


async def test_only_exhausted_messages_of_a_list_become_dead_letters(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    lists: list[list[int]] = []
    dead_letters = DeadLetters()

    async def handle(messages: list[ReceivedMessage]) -> ConsumeResult | None:
        lists.append([message.queue_offset for message in messages])
        return Suspend() if 0 in lists[-1] or len(lists) == 4 else None

    process_queue = locked_queue(1)
    dispatch = orderly_dispatch(
        nursery, handle, batch_size=2, max_reconsume_times=2, send_to_dead_letters=dead_letters
    )
    dispatch.offer(process_queue)
    await trio.sleep(0.5)
    process_queue.put(several([1, 2]), 3)
    await trio.sleep(20)
    assert lists == [[0], [0, 1], [0, 1], [1, 2], [2]]
    assert dead_letters.offsets == [0, 1]
    assert process_queue.safe_offset == 3


async def test_failures_of_a_corrupt_message_do_not_count_for_the_others_of_a_list(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    lists: list[tuple[float, list[tuple[int, int]]]] = []
    dead_letters = DeadLetters()

    async def handle(messages: list[ReceivedMessage]) -> None:
        tries = [(message.queue_offset, message.reconsume_times) for message in messages]
        lists.append((trio.current_time(), tries))

    process_queue = ProcessQueue(QUEUE, 0, held_lock())
    process_queue.put([*several([0, 1]), received(2, corruption="not zlib"), *several([3, 4])], 5)
    orderly_dispatch(
        nursery, handle, batch_size=4, max_reconsume_times=2, send_to_dead_letters=dead_letters
    ).offer(process_queue)
    await trio.sleep(20)
    assert lists == [(0.0, [(0, 0), (1, 0)]), (2.0, [(3, 0), (4, 0)])]
    assert dead_letters.offsets == [2]
    assert process_queue.safe_offset == 5


# Commit and rollback


async def test_without_auto_commit_only_commit_offset_moves_the_offset(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    journal = JournalingHandler()
    journal.results = {2: [CommitOffset()]}
    process_queue = locked_queue(5)
    orderly_dispatch(nursery, journal, auto_commit=False).offer(process_queue)
    await wait_all_tasks_blocked()
    assert journal.offsets == [0, 1, 2, 3, 4]
    assert process_queue.safe_offset == 3
    assert len(process_queue) == 2, "uncommitted messages stay in the buffer"


async def test_rollback_redelivers_uncommitted_messages(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    journal = JournalingHandler()
    journal.results = {1: [CommitOffset()], 4: [RollbackOffset(), RollbackOffset(7), CommitOffset()]}
    process_queue = locked_queue(6)
    orderly_dispatch(nursery, journal, auto_commit=False).offer(process_queue)
    await trio.sleep(100)
    assert journal.offsets == [0, 1, 2, 3, 4, 2, 3, 4, 2, 3, 4, 5]
    assert [at for at, offset in journal.started if offset == 2] == [0.0, 1.0, 8.0]
    assert {tries for _, tries in journal.tries} == {0}, "a rollback does not count as a failure"
    assert process_queue.safe_offset == 5


async def test_failure_between_commits_retries_only_its_own_message(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    journal, dead_letters = JournalingHandler(), DeadLetters()
    journal.results = {1: [ValueError("no")] * 3, 2: [CommitOffset()]}
    process_queue = locked_queue(4)
    orderly_dispatch(
        nursery, journal, auto_commit=False, max_reconsume_times=2, send_to_dead_letters=dead_letters
    ).offer(process_queue)
    await trio.sleep(100)
    assert journal.offsets == [0, 1, 1, 1, 2, 3]
    assert dead_letters.offsets == [1]
    assert process_queue.safe_offset == 3


async def test_commit_offset_is_allowed_with_auto_commit(nursery: trio.Nursery) -> None:
    journal = JournalingHandler()
    journal.results = {0: [CommitOffset()]}
    process_queue = locked_queue(2)
    orderly_dispatch(nursery, journal).offer(process_queue)
    await wait_all_tasks_blocked()
    assert process_queue.safe_offset == 2


# Locks


async def test_queue_without_its_lock_is_not_dispatched(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    journal = JournalingHandler(takes=1)
    lock = QueueLock(QUEUE)
    process_queue = locked_queue(100, lock)
    dispatch = orderly_dispatch(nursery, journal)
    lock.on_acquired = lambda: dispatch.offer(process_queue)
    dispatch.offer(process_queue)
    await trio.sleep(10)
    assert journal.offsets == []
    lock.granted(trio.current_time())
    await trio.sleep(LOCK_MAX_LIVE_TIME - 0.5)
    assert len(journal.started) == LOCK_MAX_LIVE_TIME
    await trio.sleep(50)
    assert len(journal.started) == LOCK_MAX_LIVE_TIME, "the lock has expired"
    assert process_queue.safe_offset == LOCK_MAX_LIVE_TIME, "the running call is acknowledged"
    lock.granted(trio.current_time())
    await trio.sleep(5.5)
    assert journal.offsets == list(range(int(LOCK_MAX_LIVE_TIME) + 6))


async def test_reassigned_queue_waits_for_the_running_call(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """The lock is lost and regained during a call. Two concurrent calls would break the order."""
    journal = JournalingHandler(takes=10)
    lock = held_lock()
    before = locked_queue(5, lock)
    dispatch = orderly_dispatch(nursery, journal)
    dispatch.offer(before)
    await trio.sleep(5)
    before.dropped = True
    anew = locked_queue(5, lock)
    lock.on_acquired = lambda: dispatch.offer(anew)
    dispatch.offer(anew)
    await trio.sleep(1)
    dispatch.offer(anew)
    await trio.sleep(60)
    assert journal.started == [(0.0, 0), (10.0, 0), (20.0, 1), (30.0, 2), (40.0, 3), (50.0, 4)]
    assert anew.safe_offset == 5


@pytest.mark.parametrize("result", [Suspend(), RollbackOffset(), ValueError("no"), None])
@pytest.mark.parametrize("auto_commit", [True, False])
async def test_reassigned_queue_continues_after_any_outcome_of_the_old_call(
    nursery: trio.Nursery,
    autojump_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
    result: ConsumeResult | Exception | None,
    auto_commit: bool,
) -> None:
    caplog.set_level(logging.CRITICAL)
    journal, dead_letters = JournalingHandler(takes=10), DeadLetters()
    journal.results = {} if result is None else {0: [result]}
    lock = held_lock()
    before = locked_queue(3, lock)
    dispatch = orderly_dispatch(
        nursery, journal, auto_commit=auto_commit, max_reconsume_times=0, send_to_dead_letters=dead_letters
    )
    dispatch.offer(before)
    await trio.sleep(5)
    before.dropped = True
    anew = locked_queue(3, lock)
    lock.on_acquired = lambda: dispatch.offer(anew)
    dispatch.offer(anew)
    await trio.sleep(100)
    assert journal.offsets == [0, 0, 1, 2]
    assert journal.started[1][0] == 10.0
    assert dead_letters.offsets == [], "the next owner retries it"


async def test_paused_queue_continues_after_its_lock_is_renewed(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    journal = JournalingHandler()
    journal.results = {0: [Suspend(LOCK_MAX_LIVE_TIME + 5)]}
    lock = QueueLock(QUEUE)
    process_queue = locked_queue(2, lock)
    dispatch = orderly_dispatch(nursery, journal)
    lock.on_acquired = lambda: dispatch.offer(process_queue)
    lock.granted(0.0)
    await trio.sleep(LOCK_MAX_LIVE_TIME + 20)
    assert journal.started == [(0.0, 0)]
    lock.granted(trio.current_time())
    await wait_all_tasks_blocked()
    assert journal.offsets == [0, 0, 1]


# The end


async def test_drain_waits_for_running_calls_and_starts_no_others(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    journal = JournalingHandler(takes=10)
    process_queue = locked_queue(5)
    resting = ProcessQueue(MessageQueue("U", "b", 0), 0, held_lock(MessageQueue("U", "b", 0)))
    resting.put([received(7, topic="U")], 8)
    journal.results = {7: [Suspend(5)]}
    dispatch = orderly_dispatch(nursery, journal)
    dispatch.offer(process_queue)
    dispatch.offer(resting)
    await trio.sleep(11)
    await dispatch.drain()
    assert trio.current_time() == 20
    assert process_queue.safe_offset == 2
    await trio.sleep(100)
    assert len(journal.started) == 3


async def test_message_of_a_cancelled_handler_is_not_acknowledged() -> None:
    process_queue = locked_queue(3)

    async def hang(_: ReceivedMessage) -> None:
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        orderly_dispatch(nursery, hang).offer(process_queue)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert process_queue.safe_offset == 0
    assert process_queue.lock is not None
    assert not process_queue.lock.busy


async def test_failure_during_a_cancellation_is_logged(caplog: pytest.LogCaptureFixture) -> None:
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
        orderly_dispatch(nursery, handle).offer(locked_queue(1))
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert "while cleaning up" in caplog.text


async def test_handler_that_never_suspends_lets_other_tasks_run(nursery: trio.Nursery) -> None:
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
    orderly_dispatch(nursery, handle).offer(locked_queue(500))
    await wait_all_tasks_blocked()
    # Trio may run the worker twice before the other task.
    assert 0 < most_at_once <= 2 * YIELD_EVERY
