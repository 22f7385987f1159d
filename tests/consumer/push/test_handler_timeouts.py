"""Timeouts of handlers, and cancellation of handlers in threads."""

from __future__ import annotations

import threading

import pytest
import trio
import trio.testing
from trio.testing import wait_all_tasks_blocked

from rocketmq_py.consumer.group.hooks import ConsumerHook, ConsumerHooks
from rocketmq_py.consumer.push.handler import open_executor
from rocketmq_py.message import ReceivedMessage
from tests.consumer.dispatching import SentBackMessages, concurrent_dispatch, filled_queue

TIMEOUT = 60.0


async def test_timed_out_handler_is_cancelled_and_its_message_sent_back(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    sent_back = SentBackMessages()
    ended: list[float] = []
    handled: list[int] = []

    async def handle(message: ReceivedMessage) -> None:
        if message.queue_offset == 0:
            try:
                await trio.sleep_forever()
            finally:
                ended.append(trio.current_time())
        handled.append(message.queue_offset)

    process_queue = filled_queue(3)
    dispatch = concurrent_dispatch(nursery, handle, 1, timeout=TIMEOUT, send_back=sent_back)
    dispatch.offer(process_queue)
    await trio.sleep(TIMEOUT - 1)
    assert (handled, ended) == ([], []), "the only worker is busy"
    await trio.sleep(TIMEOUT * 0.2 + 1)
    assert TIMEOUT <= ended[0] <= TIMEOUT * 1.2
    assert handled == [1, 2]
    assert (sent_back.offsets, sent_back.levels) == ([0], [3])
    assert process_queue.safe_offset == 3
    assert "handler timed out after 60 s: message=" in caplog.text


async def test_all_messages_of_a_timed_out_list_are_sent_back(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    sent_back = SentBackMessages()

    async def handle(_: list[ReceivedMessage]) -> None:
        await trio.sleep_forever()

    process_queue = filled_queue(3)
    concurrent_dispatch(nursery, handle, 1, batch_size=3, timeout=TIMEOUT, send_back=sent_back).offer(
        process_queue
    )
    await trio.sleep(TIMEOUT * 1.3)
    assert sent_back.offsets == [0, 1, 2]
    assert process_queue.safe_offset == 3


async def test_slow_calls_within_the_timeout_are_not_sent_back(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """Each of many consecutive calls takes nearly the whole timeout."""
    sent_back = SentBackMessages()

    async def handle(_: ReceivedMessage) -> None:
        await trio.sleep(TIMEOUT * 0.95)

    process_queue = filled_queue(20)
    concurrent_dispatch(nursery, handle, 2, timeout=TIMEOUT, send_back=sent_back).offer(process_queue)
    await trio.sleep(TIMEOUT * 20)
    assert sent_back.offsets == []
    assert process_queue.safe_offset == 20


async def test_idle_worker_does_not_time_out(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    sent_back = SentBackMessages()

    async def handle(_: ReceivedMessage) -> None:
        await trio.lowlevel.checkpoint()

    process_queue = filled_queue(1)
    dispatch = concurrent_dispatch(nursery, handle, 2, timeout=TIMEOUT, send_back=sent_back)
    dispatch.offer(process_queue)
    await trio.sleep(TIMEOUT * 10)
    assert sent_back.offsets == []


async def test_handler_that_ignores_cancellation_keeps_its_worker(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    sent_back = SentBackMessages()
    handled: list[int] = []

    async def handle(message: ReceivedMessage) -> None:
        if message.queue_offset == 0:
            with trio.CancelScope(shield=True):
                await trio.sleep(TIMEOUT * 3)
        handled.append(message.queue_offset)

    process_queue = filled_queue(2)
    concurrent_dispatch(nursery, handle, 1, timeout=TIMEOUT, send_back=sent_back).offer(process_queue)
    await trio.sleep(TIMEOUT * 2)
    assert sent_back.offsets == [0]
    assert handled == []
    await trio.sleep(TIMEOUT * 2)
    assert handled == [0, 1]
    assert process_queue.safe_offset == 2


async def test_failure_after_the_timeout_is_not_sent_back_again(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    sent_back = SentBackMessages()

    async def handle(_: ReceivedMessage) -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            raise ValueError("instead of the cancellation") from None

    process_queue = filled_queue(1)
    concurrent_dispatch(nursery, handle, 1, timeout=TIMEOUT, send_back=sent_back).offer(process_queue)
    await trio.sleep(TIMEOUT * 3)
    assert sent_back.offsets == [0]


async def test_call_that_ends_before_the_timeout_is_processed_is_acknowledged(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """The call ends between the timeout check and the send-back request."""
    sent_back = SentBackMessages()
    end = trio.Event()

    async def handle(_: ReceivedMessage) -> None:
        with trio.CancelScope(shield=True):
            await end.wait()

    process_queue = filled_queue(1)
    dispatch = concurrent_dispatch(nursery, handle, 1, timeout=TIMEOUT, send_back=sent_back)
    dispatch.offer(process_queue)
    await wait_all_tasks_blocked()
    (call,) = dispatch.running_calls()
    end.set()
    dispatch._time_out(call)
    await wait_all_tasks_blocked()
    assert process_queue.safe_offset == 1
    assert sent_back.offsets == []


async def test_timed_out_message_that_cannot_be_sent_back_is_retried_locally(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    sent_back = SentBackMessages()
    sent_back.failures = 1
    tries: list[int] = []

    async def handle(message: ReceivedMessage) -> None:
        tries.append(message.reconsume_times)
        if len(tries) == 1:
            await trio.sleep_forever()

    process_queue = filled_queue(1)
    concurrent_dispatch(nursery, handle, 1, timeout=TIMEOUT, send_back=sent_back).offer(process_queue)
    await trio.sleep(TIMEOUT * 1.5)
    assert tries == [0, 1]
    assert process_queue.safe_offset == 1


# Threads


class BlockingHandler:
    """A synchronous handler that blocks on the first message until it is released."""

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
async def test_timed_out_message_of_a_thread_is_sent_back(
    nursery: trio.Nursery,
    mock_clock: trio.testing.MockClock,
    hooked: bool,
    fail: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    sent_back, blocking = SentBackMessages(), BlockingHandler()
    blocking.fail = fail
    process_queue = filled_queue(3)
    hooks = ConsumerHooks("g", "client", lambda: 0)
    if hooked:
        hooks.add(ConsumerHook())
    dispatch = concurrent_dispatch(nursery, blocking, 2, timeout=60, send_back=sent_back, hooks=hooks)
    dispatch.offer(process_queue)
    while len(blocking.handled) < 2 or dispatch.in_flight > 1:
        await trio.lowlevel.checkpoint()
    while not sent_back.messages:  # timeouts are checked periodically
        mock_clock.jump(60)
        await trio.lowlevel.checkpoint()
    assert process_queue.safe_offset == 3
    assert dispatch.in_flight == 1
    blocking.go.set()
    while dispatch.in_flight:
        await trio.lowlevel.checkpoint()
    assert sent_back.offsets == [0]
    assert ("after all" in caplog.text) == fail


async def test_cancellation_acknowledges_the_messages_of_threads_that_have_ended() -> None:
    sent_back, blocking = SentBackMessages(), BlockingHandler()
    process_queue = filled_queue(1)
    async with trio.open_nursery() as nursery:
        dispatch = concurrent_dispatch(nursery, blocking, 1, send_back=sent_back)
        dispatch.offer(process_queue)
        await trio.to_thread.run_sync(blocking.hangs.wait)
        blocking.go.set()
        while not dispatch.executor._finished:  # no checkpoint, in which trio collects the outcome
            threading.Event().wait(0.001)
        nursery.cancel_scope.cancel()
    assert process_queue.safe_offset == 1
    assert process_queue.counts.cut_off == 0


@pytest.mark.parametrize("hooked", [False, True])
async def test_no_thread_call_starts_after_a_cancellation(
    hooked: bool, caplog: pytest.LogCaptureFixture
) -> None:
    sent_back, blocking, hooks = (
        SentBackMessages(),
        BlockingHandler(),
        ConsumerHooks("g", "client", lambda: 0),
    )
    process_queue = filled_queue(3)
    if hooked:
        hooks.add(ConsumerHook())
    async with trio.open_nursery() as nursery:
        dispatch = concurrent_dispatch(nursery, blocking, 1, send_back=sent_back, hooks=hooks)
        dispatch.offer(process_queue)
        await trio.to_thread.run_sync(blocking.hangs.wait)
        nursery.cancel_scope.cancel()
    assert process_queue.safe_offset == 0, "the message will be redelivered"
    (warning,) = caplog.records
    assert warning.message.startswith("handler cut off: message=")
    assert "topic=T broker=broker-a queue=0 offset=0: " in warning.message
    assert process_queue.counts.cut_off == 1
    blocking.go.set()
    await blocking.until(1)
    assert blocking.handled == [0]
    assert process_queue.safe_offset == 0


async def test_awaitable_result_of_a_synchronous_handler_times_out(
    nursery: trio.Nursery, mock_clock: trio.testing.MockClock
) -> None:
    sent_back = SentBackMessages()
    cancelled = False

    async def hang() -> None:
        nonlocal cancelled
        try:
            await trio.sleep_forever()
        finally:
            cancelled = True

    process_queue = filled_queue(1)
    dispatch = concurrent_dispatch(nursery, lambda _: hang(), 1, timeout=TIMEOUT, send_back=sent_back)
    dispatch.offer(process_queue)
    for _ in range(10_000):  # the call starts in a thread, and timeouts are checked periodically
        mock_clock.jump(TIMEOUT / 10)
        await trio.sleep(0)
        if process_queue.safe_offset and not dispatch.in_flight:
            break
    assert sent_back.offsets == [0]
    assert cancelled
    assert not dispatch.in_flight


async def test_awaitable_result_of_a_synchronous_handler_is_cancellable() -> None:
    waits, ended = trio.Event(), trio.Event()

    async def hang() -> None:
        try:
            waits.set()
            await trio.sleep_forever()
        finally:
            ended.set()

    async with trio.open_nursery() as nursery:
        executor = open_executor(lambda _: hang(), 1, nursery)
        nursery.start_soon(executor.call, None)
        await waits.wait()
        nursery.cancel_scope.cancel()
        executor.abandon()
    assert ended.is_set()
