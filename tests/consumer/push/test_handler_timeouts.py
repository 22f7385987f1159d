"""Handlers that take too long, and those in threads, which nobody can cancel."""

from __future__ import annotations

import threading

import pytest
import trio
import trio.testing

from rocketmq_py.consumer.group.hooks import ConsumerHook, ConsumerHooks
from rocketmq_py.consumer.push.invoker import Invoker
from rocketmq_py.message import ReceivedMessage
from tests.consumer.dispatching import Backs, handling_in, holding, settled

TIMEOUT = 60.0


async def test_a_handler_that_hangs_is_cancelled_and_its_message_given_back(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    backs = Backs()
    ended: list[float] = []
    handled: list[int] = []

    async def handle(message: ReceivedMessage) -> None:
        if message.queue_offset == 0:
            try:
                await trio.sleep_forever()
            finally:
                ended.append(trio.current_time())
        handled.append(message.queue_offset)

    process_queue = holding(3)
    handling = handling_in(nursery, handle, 1, timeout=TIMEOUT, backs=backs)
    handling.offer(process_queue)
    await trio.sleep(TIMEOUT - 1)
    assert (handled, ended) == ([], []), "the only place is taken"
    await trio.sleep(TIMEOUT * 0.2 + 1)
    assert TIMEOUT <= ended[0] <= TIMEOUT * 1.2
    assert handled == [1, 2]
    assert (backs.offsets, backs.levels) == ([0], [3])
    assert process_queue.safe_offset == 3
    assert "handler timed out after 60 s: message=" in caplog.text


async def test_a_list_that_takes_too_long_is_given_back_as_a_whole(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    backs = Backs()

    async def handle(_: list[ReceivedMessage]) -> None:
        await trio.sleep_forever()

    process_queue = holding(3)
    handling_in(nursery, handle, 1, batch_size=3, timeout=TIMEOUT, backs=backs).offer(process_queue)
    await trio.sleep(TIMEOUT * 1.3)
    assert backs.offsets == [0, 1, 2]
    assert process_queue.safe_offset == 3


async def test_slow_is_not_late(nursery: trio.Nursery, autojump_clock: trio.testing.MockClock) -> None:
    """Many calls one after the other, each nearly as long as it may be."""
    backs = Backs()

    async def handle(_: ReceivedMessage) -> None:
        await trio.sleep(TIMEOUT * 0.95)

    process_queue = holding(20)
    handling_in(nursery, handle, 2, timeout=TIMEOUT, backs=backs).offer(process_queue)
    await trio.sleep(TIMEOUT * 20)
    assert backs.offsets == []
    assert process_queue.safe_offset == 20


async def test_an_idle_worker_is_not_late(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    backs = Backs()

    async def handle(_: ReceivedMessage) -> None:
        await trio.lowlevel.checkpoint()

    process_queue = holding(1)
    handling = handling_in(nursery, handle, 2, timeout=TIMEOUT, backs=backs)
    handling.offer(process_queue)
    await trio.sleep(TIMEOUT * 10)
    assert backs.offsets == []


async def test_a_handler_that_will_not_be_cancelled_keeps_its_place(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    backs = Backs()
    handled: list[int] = []

    async def handle(message: ReceivedMessage) -> None:
        if message.queue_offset == 0:
            with trio.CancelScope(shield=True):
                await trio.sleep(TIMEOUT * 3)
        handled.append(message.queue_offset)

    process_queue = holding(2)
    handling_in(nursery, handle, 1, timeout=TIMEOUT, backs=backs).offer(process_queue)
    await trio.sleep(TIMEOUT * 2)
    assert backs.offsets == [0]
    assert handled == []
    await trio.sleep(TIMEOUT * 2)
    assert handled == [0, 1]
    assert process_queue.safe_offset == 2


async def test_a_late_failure_is_not_given_back_twice(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    backs = Backs()

    async def handle(_: ReceivedMessage) -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            raise ValueError("instead of the cancellation") from None

    process_queue = holding(1)
    handling_in(nursery, handle, 1, timeout=TIMEOUT, backs=backs).offer(process_queue)
    await trio.sleep(TIMEOUT * 3)
    assert backs.offsets == [0]


async def test_what_ends_in_the_last_moment_is_not_given_back(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """It is late, but done before anybody was asked to take it back."""
    backs = Backs()
    end = trio.Event()

    async def handle(_: ReceivedMessage) -> None:
        with trio.CancelScope(shield=True):
            await end.wait()

    process_queue = holding(1)
    handling = handling_in(nursery, handle, 1, timeout=TIMEOUT, backs=backs)
    handling.offer(process_queue)
    await settled()
    (place,) = handling._workers
    end.set()
    handling._time_out(place, place.item)
    await settled()
    assert process_queue.safe_offset == 1
    assert backs.offsets == []


async def test_a_late_message_that_nobody_takes_is_handled_again_here(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    backs = Backs()
    backs.failures = 1
    tries: list[int] = []

    async def handle(message: ReceivedMessage) -> None:
        tries.append(message.reconsume_times)
        if len(tries) == 1:
            await trio.sleep_forever()

    process_queue = holding(1)
    handling_in(nursery, handle, 1, timeout=TIMEOUT, backs=backs).offer(process_queue)
    await trio.sleep(TIMEOUT * 1.5)
    assert tries == [0, 1]
    assert process_queue.safe_offset == 1


# Threads


class Stuck:
    """A plain handler that hangs on the first message until it is let go."""

    def __init__(self) -> None:
        self.hangs = threading.Event()
        self.go = threading.Event()
        self.handled: list[int] = []
        self.fail = False

    def __call__(self, message: ReceivedMessage) -> None:
        if message.queue_offset == 0:
            self.hangs.set()
            self.go.wait()
            if self.fail:
                raise ValueError("after all")
        self.handled.append(message.queue_offset)

    async def until(self, count: int) -> None:
        while len(self.handled) < count:
            await trio.sleep(0.001)


@pytest.mark.parametrize("fail", [False, True])
@pytest.mark.parametrize("hooked", [False, True])
async def test_a_thread_that_hangs_keeps_its_place_but_not_its_message(
    nursery: trio.Nursery,
    mock_clock: trio.testing.MockClock,
    hooked: bool,
    fail: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    backs, stuck = Backs(), Stuck()
    stuck.fail = fail
    process_queue = holding(3)
    hooks = ConsumerHooks("g", "client", lambda: 0)
    if hooked:
        hooks.add(ConsumerHook())
    handling = handling_in(nursery, stuck, 2, timeout=60, backs=backs, hooks=hooks)
    handling.offer(process_queue)
    while len(stuck.handled) < 2 or handling.in_flight > 1:
        await trio.lowlevel.checkpoint()
    while not backs.taken:  # it is looked now and then which calls are still the same
        mock_clock.jump(60)
        await trio.lowlevel.checkpoint()
    assert process_queue.safe_offset == 3
    assert handling.in_flight == 1
    stuck.go.set()
    while handling.in_flight:
        await trio.lowlevel.checkpoint()
    assert backs.offsets == [0]
    assert ("after all" in caplog.text) == fail


async def test_a_cancellation_waits_for_threads_and_what_they_did_counts() -> None:
    backs, stuck = Backs(), Stuck()
    process_queue = holding(1)
    async with trio.open_nursery() as nursery:
        handling = handling_in(nursery, stuck, 1, backs=backs)
        handling.thread_grace = 60
        handling.offer(process_queue)
        await trio.to_thread.run_sync(stuck.hangs.wait)
        nursery.cancel_scope.cancel()
        stuck.go.set()
    assert stuck.handled == [0]
    assert process_queue.safe_offset == 1


async def test_a_cancellation_lets_nothing_more_begin() -> None:
    backs, stuck = Backs(), Stuck()
    process_queue = holding(3)
    async with trio.open_nursery() as nursery:
        handling = handling_in(nursery, stuck, 1, backs=backs)
        handling.thread_grace = 60
        handling.offer(process_queue)
        await trio.to_thread.run_sync(stuck.hangs.wait)
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await settled()  # what is cancelled has heard of it
        stuck.go.set()
    assert stuck.handled == [0]
    assert process_queue.safe_offset == 1


async def test_threads_that_do_not_end_in_time_are_left_alone() -> None:
    backs, stuck = Backs(), Stuck()
    process_queue = holding(1)
    async with trio.open_nursery() as nursery:
        handling = handling_in(nursery, stuck, 1, backs=backs)
        handling.thread_grace = 0.01
        handling.offer(process_queue)
        await trio.to_thread.run_sync(stuck.hangs.wait)
        nursery.cancel_scope.cancel()
    assert process_queue.safe_offset == 0, "it is delivered again"
    stuck.go.set()
    await stuck.until(1)
    assert process_queue.safe_offset == 0


async def test_what_a_plain_function_returns_to_be_awaited_is_cancelled_at_once() -> None:
    async def hang() -> None:
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        caller = Invoker(lambda _: hang(), 1, nursery, in_lists=False)
        nursery.start_soon(caller.call, None)
        await settled()
        await caller.wait_for_threads()
        await settled()
        nursery.cancel_scope.cancel()
        caller.abandon()


async def test_nobody_waits_where_no_thread_runs(nursery: trio.Nursery) -> None:
    caller = Invoker(lambda _: 5, 1, nursery, in_lists=False)
    await caller.wait_for_threads()
