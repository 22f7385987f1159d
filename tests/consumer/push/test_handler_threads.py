"""The threads of plain handlers: in real time, as threads take no notice of a mock clock."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from rocketmq_py.consumer.pull.process_queue import ProcessQueue
from rocketmq_py.consumer.push.concurrent import ConcurrentDispatch
from rocketmq_py.consumer.push.handler_threads import THREAD_NAME, HandlerThreads
from rocketmq_py.message import ReceivedMessage
from tests.consumer.dispatching import Backs, handling_in, holding, settled
from tests.consumer.received import QUEUE, several

PATIENCE = 60
"""Seconds after which a test that still waits has failed."""

number: contextvars.ContextVar[int] = contextvars.ContextVar("number")


@asynccontextmanager
async def threads_of(
    function: Callable[[Any], Any], most: int = 3
) -> AsyncIterator[tuple[HandlerThreads, trio.Nursery]]:
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            threads = HandlerThreads(function, most, nursery)
            try:
                yield threads, nursery
            finally:
                threads.abandon()


class Held:
    """A function that holds each call until it is let go."""

    def __init__(self) -> None:
        self.begun: list[object] = []
        self.ended: list[object] = []
        self.go = threading.Event()

    def __call__(self, item: object) -> object:
        self.begun.append(item)
        self.go.wait(PATIENCE)
        self.ended.append(item)
        return item

    async def until_begun(self, count: int) -> None:
        while len(self.begun) < count:
            await trio.sleep(0.001)

    async def until_ended(self, count: int) -> None:
        while len(self.ended) < count:
            await trio.sleep(0.001)


async def test_each_call_gets_what_its_own_returns_or_raises() -> None:
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
        assert not threads.calls
    assert outcomes == {item: item * 2 if item % 7 else str(item) for item in range(500)}


async def test_one_call_after_the_other_has_the_same_thread() -> None:
    seen: set[threading.Thread] = set()
    async with threads_of(lambda _: seen.add(threading.current_thread())) as (threads, _):
        for _ in range(200):
            await threads.call(None)
    assert len(seen) == 1
    assert threading.current_thread() not in seen


async def test_calls_that_wait_run_at_the_same_time_up_to_the_most() -> None:
    held = Held()
    async with threads_of(held, 3) as (threads, nursery):
        for item in range(5):
            nursery.start_soon(threads.call, item)
        await held.until_begun(3)
        await trio.testing.wait_all_tasks_blocked()
        assert len(held.begun) == 3
        held.go.set()
        await threads.wait_idle()
    assert sorted(map(str, held.ended)) == ["0", "1", "2", "3", "4"]


async def test_what_is_done_is_told_although_the_next_call_of_its_thread_takes_long() -> None:
    """Quick calls before and behind a slow one: in whatever thread it is, it holds up none of them."""
    held = Held()
    done: list[int] = []

    def function(item: int) -> None:
        if item == 5:
            held(item)

    async with threads_of(function, 3) as (threads, nursery):

        async def call(item: int) -> None:
            await threads.call(item)
            done.append(item)

        for item in range(12):
            nursery.start_soon(call, item)
        while len(done) < 11:
            await trio.sleep(0.001)
        assert held.begun == [5]
        held.go.set()
    assert sorted(done) == list(range(12))


async def test_the_context_is_a_copy_of_the_callers() -> None:
    def function(value: int) -> int:
        before = number.get()
        number.set(value)
        return before

    async with threads_of(function) as (threads, _):
        for value in (1, 2, 3):
            number.set(value * 10)
            assert await threads.call(value) == value * 10
            assert number.get() == value * 10


async def test_trio_can_be_called_from_the_threads() -> None:
    def function(item: int) -> int:
        trio.from_thread.run(trio.lowlevel.checkpoint)
        trio.from_thread.check_cancelled()
        return trio.from_thread.run_sync(lambda: item + 1)

    async with threads_of(function) as (threads, _):
        assert [await threads.call(item) for item in range(3)] == [1, 2, 3]


async def test_a_cancelled_call_waits_for_its_thread() -> None:
    held = Held()
    results: list[object] = []
    async with threads_of(held, 1) as (threads, nursery):

        async def call(item: int) -> None:
            results.append(await threads.call(item))

        with trio.CancelScope() as scope:
            async with trio.open_nursery() as inner:
                inner.start_soon(call, 0)
                await held.until_begun(1)
                inner.start_soon(call, 1)
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
                held.go.set()
        assert results == [0]
        assert held.begun == [0], "the other one is not called any more"
        assert await threads.call(2) == 2
        nursery.cancel_scope.cancel()


async def test_threads_that_are_left_alone_end_when_their_call_does() -> None:
    held = Held()
    before = {thread for thread in threading.enumerate() if thread.name == THREAD_NAME}
    async with threads_of(held) as (threads, nursery):
        nursery.start_soon(threads.call, 0)
        await held.until_begun(1)
        nursery.cancel_scope.cancel()
    assert held.ended == []
    held.go.set()
    with trio.fail_after(PATIENCE):
        while {thread for thread in threading.enumerate() if thread.name == THREAD_NAME} - before:
            await trio.sleep(0.001)


async def test_where_the_system_has_no_thread_to_give_the_call_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        await trio.lowlevel.checkpoint()
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(trio.to_thread, "run_sync", refuse)
    async with threads_of(Held()) as (threads, _):
        for _ in range(2):
            with pytest.raises(RuntimeError, match="new thread"):
                await threads.call(0)
        assert not threads.calls


# Handed over ahead of their time: a thread that is done has the next message at once.


@asynccontextmanager
async def stuck_on_the_second(
    process_queue: ProcessQueue,
) -> AsyncIterator[tuple[ConcurrentDispatch, Held, list[int]]]:
    """Handle a queue's messages in one thread, which holds the second: as many wait for it as may."""
    held, seen = Held(), []

    def handle(message: ReceivedMessage) -> None:
        seen.append(message.queue_offset)
        if message.queue_offset == 1:
            held(message)

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            handling = handling_in(nursery, handle, 1, backs=Backs())
            handling.offer(process_queue)
            await held.until_begun(1)
            yield handling, held, seen
            held.go.set()
            handling.close()
            while handling.in_flight:
                await trio.sleep(0.001)
            nursery.cancel_scope.cancel()


async def test_what_was_handed_over_and_is_anothers_now_is_not_handled() -> None:
    process_queue = holding(5)
    async with stuck_on_the_second(process_queue) as (handling, held, seen):
        assert handling.in_flight > 1
        process_queue.dropped = True
        held.go.set()
        while handling.in_flight:
            await trio.sleep(0.001)
        assert seen == [0, 1]


async def test_what_may_not_wait_is_not_handed_over_before_there_is_space() -> None:
    class Popped(ProcessQueue):
        allows_prefetch = False

    process_queue = Popped(QUEUE, 0)
    process_queue.put(several(range(3)), 3)
    async with stuck_on_the_second(process_queue) as (handling, held, seen):
        process_queue.put(several([3]), 4)
        handling.offer(process_queue)
        assert handling.in_flight == 1
        held.go.set()
        while len(process_queue):
            await trio.sleep(0.001)
        assert seen == [0, 1, 2, 3]


async def test_what_no_thread_has_begun_is_taken_back_at_once() -> None:
    handled: list[ReceivedMessage] = []
    process_queue = holding(5)
    async with trio.open_nursery() as nursery:
        handling = handling_in(nursery, handled.append, 3, backs=Backs())
        handling.offer(process_queue)
        assert handling.in_flight > 0
        handling.close()
        assert handling.in_flight == 0
        await settled()
        nursery.cancel_scope.cancel()
    assert (handled, process_queue.safe_offset) == ([], 0)
