"""Handler threads. These tests run in real time, because threads do not follow a mock clock."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import wait_all_tasks_blocked

from rocketmq_py.consumer.pull.process_queue import ProcessQueue
from rocketmq_py.consumer.push.concurrent_dispatch import ConcurrentDispatch
from rocketmq_py.consumer.push.handler_threads import THREAD_NAME, HandlerThreads
from rocketmq_py.message import ReceivedMessage
from tests.consumer.dispatching import SentBackMessages, concurrent_dispatch, filled_queue
from tests.consumer.received import QUEUE, several

PATIENCE = 60
"""Seconds after which a waiting test fails."""

number: contextvars.ContextVar[int] = contextvars.ContextVar("number")


@asynccontextmanager
async def threads_of(
    function: Callable[[Any], Any], max_calls: int = 3
) -> AsyncIterator[tuple[HandlerThreads, trio.Nursery]]:
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            threads = HandlerThreads(function, max_calls, nursery)
            try:
                yield threads, nursery
            finally:
                threads.abandon()


class BlockingFunction:
    """A function whose calls block until they are released."""

    def __init__(self) -> None:
        self.started: list[object] = []
        self.ended: list[object] = []
        self.go = threading.Event()

    def __call__(self, item: object) -> object:
        self.started.append(item)
        self.go.wait(PATIENCE)
        self.ended.append(item)
        return item

    async def until_started(self, count: int) -> None:
        while len(self.started) < count:
            await trio.sleep(0.001)

    async def until_ended(self, count: int) -> None:
        while len(self.ended) < count:
            await trio.sleep(0.001)


async def test_call_returns_its_own_result_or_raises_its_own_error() -> None:
    def function(item: int) -> int:
        if item % 7 == 0:
            raise LookupError(item)
        return item * 2

    outcomes: dict[int, object] = {}

    async with threads_of(function) as (threads, _):

        async def call(item: int) -> None:
            try:
                outcomes[item] = await threads.call(item)
            except LookupError as error:
                outcomes[item] = str(error)

        async with trio.open_nursery() as calls:
            for item in range(500):
                calls.start_soon(call, item)
        assert not threads.unended
    assert outcomes == {item: item * 2 if item % 7 else str(item) for item in range(500)}


async def test_consecutive_calls_run_in_one_thread() -> None:
    seen: set[threading.Thread] = set()
    async with threads_of(lambda _: seen.add(threading.current_thread())) as (threads, _):
        for _ in range(200):
            await threads.call(None)
    assert len(seen) == 1
    assert threading.current_thread() not in seen


async def test_blocking_calls_run_concurrently_up_to_max_calls() -> None:
    blocking = BlockingFunction()
    async with threads_of(blocking, 3) as (threads, nursery):
        for item in range(5):
            nursery.start_soon(threads.call, item)
        await blocking.until_started(3)
        await trio.testing.wait_all_tasks_blocked()
        assert len(blocking.started) == 3
        blocking.go.set()
        await blocking.until_ended(5)
    assert sorted(map(str, blocking.ended)) == ["0", "1", "2", "3", "4"]


async def test_slow_call_does_not_delay_the_results_of_others() -> None:
    """The fast calls are queued before and after the slow one."""
    blocking = BlockingFunction()
    done: list[int] = []

    def function(item: int) -> None:
        if item == 5:
            blocking(item)

    async with threads_of(function, 3) as (threads, nursery):

        async def call(item: int) -> None:
            await threads.call(item)
            done.append(item)

        for item in range(12):
            nursery.start_soon(call, item)
        while len(done) < 11:
            await trio.sleep(0.001)
        assert blocking.started == [5]
        blocking.go.set()
    assert sorted(done) == list(range(12))


async def test_call_runs_in_a_copy_of_the_callers_context() -> None:
    def function(value: int) -> int:
        before = number.get()
        number.set(value)
        return before

    async with threads_of(function) as (threads, _):
        for value in (1, 2, 3):
            number.set(value * 10)
            assert await threads.call(value) == value * 10
            assert number.get() == value * 10


async def test_threads_can_call_trio() -> None:
    def function(item: int) -> int:
        trio.from_thread.run(trio.lowlevel.checkpoint)
        trio.from_thread.check_cancelled()
        return trio.from_thread.run_sync(lambda: item + 1)

    async with threads_of(function) as (threads, _):
        assert [await threads.call(item) for item in range(3)] == [1, 2, 3]


async def test_cancelled_call_waits_for_its_thread() -> None:
    blocking = BlockingFunction()
    results: list[object] = []
    async with threads_of(blocking, 1) as (threads, nursery):

        async def call(item: int) -> None:
            results.append(await threads.call(item))

        with trio.CancelScope() as scope:
            async with trio.open_nursery() as inner:
                inner.start_soon(call, 0)
                await blocking.until_started(1)
                inner.start_soon(call, 1)
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
                blocking.go.set()
        assert results == [0]
        assert blocking.started == [0], "the queued call is withdrawn"
        assert await threads.call(2) == 2
        nursery.cancel_scope.cancel()


async def test_abandoned_threads_end_with_their_call() -> None:
    blocking = BlockingFunction()
    before = {thread for thread in threading.enumerate() if thread.name == THREAD_NAME}
    async with threads_of(blocking) as (threads, nursery):
        nursery.start_soon(threads.call, 0)
        await blocking.until_started(1)
        nursery.cancel_scope.cancel()
    assert blocking.ended == []
    blocking.go.set()
    with trio.fail_after(PATIENCE):
        while {thread for thread in threading.enumerate() if thread.name == THREAD_NAME} - before:
            await trio.sleep(0.001)


async def test_call_fails_if_no_thread_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        await trio.lowlevel.checkpoint()
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(trio.to_thread, "run_sync", refuse)
    async with threads_of(BlockingFunction()) as (threads, _):
        for _ in range(2):
            with pytest.raises(RuntimeError, match="new thread"):
                await threads.call(0)
        assert not threads.unended


# Prefetch: a thread gets its next message without a round trip to the trio thread


@asynccontextmanager
async def blocked_on_second_message(
    process_queue: ProcessQueue,
) -> AsyncIterator[tuple[ConcurrentDispatch, BlockingFunction, list[int]]]:
    """Process a queue in one thread that blocks on the second message, with the others prefetched."""
    blocking, seen = BlockingFunction(), []

    def handle(message: ReceivedMessage) -> None:
        seen.append(message.queue_offset)
        if message.queue_offset == 1:
            blocking(message)

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            dispatch = concurrent_dispatch(nursery, handle, 1, send_back=SentBackMessages())
            dispatch.offer(process_queue)
            await blocking.until_started(1)
            yield dispatch, blocking, seen
            blocking.go.set()
            dispatch.close()
            while dispatch.in_flight:
                await trio.sleep(0.001)
            nursery.cancel_scope.cancel()


async def test_prefetched_messages_of_a_dropped_queue_are_not_processed() -> None:
    process_queue = filled_queue(5)
    async with blocked_on_second_message(process_queue) as (dispatch, blocking, seen):
        assert dispatch.in_flight > 1
        process_queue.dropped = True
        blocking.go.set()
        while dispatch.in_flight:
            await trio.sleep(0.001)
        assert seen == [0, 1]


async def test_queue_without_prefetch_waits_for_a_free_thread() -> None:
    class QueueWithoutPrefetch(ProcessQueue):
        allows_prefetch = False

    process_queue = QueueWithoutPrefetch(QUEUE, 0)
    process_queue.put(several(range(3)), 3)
    async with blocked_on_second_message(process_queue) as (dispatch, blocking, seen):
        process_queue.put(several([3]), 4)
        dispatch.offer(process_queue)
        assert dispatch.in_flight == 1
        blocking.go.set()
        while len(process_queue):
            await trio.sleep(0.001)
        assert seen == [0, 1, 2, 3]


async def test_closing_withdraws_calls_that_have_not_started() -> None:
    handled: list[ReceivedMessage] = []
    process_queue = filled_queue(5)
    async with trio.open_nursery() as nursery:
        dispatch = concurrent_dispatch(nursery, handled.append, 3, send_back=SentBackMessages())
        dispatch.offer(process_queue)
        assert dispatch.in_flight > 0
        dispatch.close()
        assert dispatch.in_flight == 0
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert (handled, process_queue.safe_offset) == ([], 0)
