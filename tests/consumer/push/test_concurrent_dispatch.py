from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import itertools
import logging
import threading
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import wait_all_tasks_blocked

from rocketmq_py.consumer.pull.process_queue import ProcessQueue
from rocketmq_py.consumer.push.concurrent_dispatch import ConcurrentDispatch
from rocketmq_py.consumer.push.handler_workers import YIELD_EVERY
from rocketmq_py.message import MessageQueue, ReceivedMessage
from tests.cancelling import cancelled_error
from tests.consumer.dispatching import Gate, SentBackMessages, concurrent_dispatch, filled_queue
from tests.consumer.received import QUEUE, received, several

OpenDispatch = Callable[..., ConcurrentDispatch]


@pytest.fixture
def sent_back() -> SentBackMessages:
    return SentBackMessages()


@pytest.fixture
async def open_dispatch(nursery: trio.Nursery, sent_back: SentBackMessages) -> OpenDispatch:
    return functools.partial(concurrent_dispatch, nursery, send_back=sent_back)


async def test_processed_messages_are_removed(open_dispatch: OpenDispatch) -> None:
    seen: list[int] = []

    async def handle(message: ReceivedMessage) -> None:
        seen.append(message.queue_offset)

    dispatch = open_dispatch(handle)
    process_queue = filled_queue(100)
    dispatch.offer(process_queue)
    await wait_all_tasks_blocked()
    assert seen == list(range(100))
    assert process_queue.safe_offset == 100
    process_queue.put(several([100]), 101)
    dispatch.offer(process_queue)
    dispatch.offer(process_queue)
    await wait_all_tasks_blocked()
    assert process_queue.safe_offset == 101
    assert dispatch.in_flight == 0


async def test_suspended_call_delays_neither_earlier_nor_later_messages(
    open_dispatch: OpenDispatch,
) -> None:
    gate = trio.Event()
    seen: list[int] = []

    async def handle(message: ReceivedMessage) -> None:
        seen.append(message.queue_offset)
        if message.queue_offset == 5:
            await gate.wait()

    dispatch = open_dispatch(handle)
    process_queue = filled_queue(10)
    dispatch.offer(process_queue)
    await wait_all_tasks_blocked()
    assert seen == list(range(10))
    assert (process_queue.safe_offset, len(process_queue), dispatch.in_flight) == (5, 1, 1)
    gate.set()
    await wait_all_tasks_blocked()
    assert (process_queue.safe_offset, dispatch.in_flight) == (10, 0)


async def test_failed_call_delays_neither_earlier_nor_later_messages(
    open_dispatch: OpenDispatch, nursery: trio.Nursery
) -> None:
    seen: list[int] = []

    async def handle(message: ReceivedMessage) -> None:
        seen.append(message.queue_offset)
        if message.queue_offset == 5:
            raise ValueError("not this one")

    async def never(_: ReceivedMessage, __: int) -> None:
        await trio.sleep_forever()

    process_queue = filled_queue(10)
    dispatch = concurrent_dispatch(nursery, handle, send_back=never)
    dispatch.offer(process_queue)
    await wait_all_tasks_blocked()
    assert seen == list(range(10))
    assert (process_queue.safe_offset, len(process_queue), dispatch.in_flight) == (5, 1, 1)


async def test_no_call_starts_after_the_handler_closes_the_dispatch(open_dispatch: OpenDispatch) -> None:
    seen: list[int] = []

    async def handle(message: ReceivedMessage) -> None:
        seen.append(message.queue_offset)
        if message.queue_offset == 3:
            dispatch.close()

    process_queue = filled_queue(10)
    dispatch = open_dispatch(handle)
    dispatch.offer(process_queue)
    await wait_all_tasks_blocked()
    await dispatch.drain()
    assert seen == [0, 1, 2, 3]
    assert (process_queue.safe_offset, process_queue.waiting, dispatch.in_flight) == (4, 6, 0)


@pytest.mark.parametrize("batch_size", [None, 2])
async def test_cancellation_acknowledges_only_processed_messages(
    sent_back: SentBackMessages, batch_size: int | None
) -> None:
    calls = 0

    async def handle(_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            await trio.sleep_forever()

    process_queue = filled_queue(10)
    async with trio.open_nursery() as nursery:
        concurrent_dispatch(nursery, handle, 1, send_back=sent_back, batch_size=batch_size).offer(
            process_queue
        )
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert process_queue.safe_offset == 2 * (batch_size or 1)
    assert not sent_back.messages


async def test_suspended_and_unsuspended_calls_are_timed(
    open_dispatch: OpenDispatch, autojump_clock: trio.testing.MockClock
) -> None:
    async def handle(message: ReceivedMessage) -> None:
        if message.queue_offset % 2:
            await trio.sleep(1)

    process_queue = filled_queue(100)
    open_dispatch(handle).offer(process_queue)
    await trio.sleep(100)
    assert (process_queue.counts.calls, process_queue.counts.call_seconds) == (100, 50)


@pytest.mark.parametrize("concurrency", [1, 3, 50])
async def test_concurrency_limits_the_running_calls(open_dispatch: OpenDispatch, concurrency: int) -> None:
    gate = Gate()
    dispatch = open_dispatch(gate, concurrency)
    process_queue = filled_queue(20)
    dispatch.offer(process_queue)
    await wait_all_tasks_blocked()
    assert sorted(gate.running) == list(range(min(concurrency, 20)))
    assert dispatch.in_flight == min(concurrency, 20)
    gate.open.set()
    await wait_all_tasks_blocked()
    assert len(process_queue) == 0
    assert gate.max_running == min(concurrency, 20)


async def test_queues_are_served_round_robin(open_dispatch: OpenDispatch) -> None:
    order: list[str] = []

    async def handle(message: ReceivedMessage) -> None:
        order.append(message.topic)
        await trio.lowlevel.checkpoint()

    dispatch = open_dispatch(handle, concurrency=1)
    queues = [ProcessQueue(MessageQueue(topic, "b", 0), 0) for topic in "abc"]
    for process_queue in queues:
        process_queue.put([received(offset, topic=process_queue.queue.topic) for offset in range(3)], 3)
        dispatch.offer(process_queue)
    await wait_all_tasks_blocked()
    assert "".join(order) == "abcabcabc"


async def test_handler_that_never_suspends_lets_other_tasks_run(
    open_dispatch: OpenDispatch, nursery: trio.Nursery
) -> None:
    handled_at_other_steps: list[int] = []
    handled = 0

    async def handle(_: ReceivedMessage) -> None:
        nonlocal handled
        handled += 1

    async def other() -> None:
        while handled < 500:
            handled_at_other_steps.append(handled)
            await trio.lowlevel.checkpoint()

    nursery.start_soon(other)
    dispatch = open_dispatch(handle)
    dispatch.offer(filled_queue(500))
    await wait_all_tasks_blocked()
    steps = [after - before for before, after in itertools.pairwise(handled_at_other_steps)]
    # Three workers yield independently, and trio may run each twice before the other task.
    assert max(steps) <= 2 * 3 * YIELD_EVERY


async def test_failure_is_logged_and_sent_back(
    open_dispatch: OpenDispatch, sent_back: SentBackMessages, caplog: pytest.LogCaptureFixture
) -> None:
    async def handle(message: ReceivedMessage) -> None:
        if message.queue_offset == 1:
            raise ValueError("not this one")

    process_queue = ProcessQueue(MessageQueue("%RETRY%g", "broker-a", 3), 0)
    process_queue.put([received(0), received(1, UNIQ_KEY="7F0001"), received(2)], 3)
    open_dispatch(handle).offer(process_queue)
    await wait_all_tasks_blocked()
    assert [message.queue_offset for message in sent_back.messages] == [1]
    assert process_queue.safe_offset == 3
    [record] = caplog.records
    assert record.message == (
        "handler failed: message=7F0001 topic=T retry_topic=%RETRY%g broker=broker-a queue=3 offset=1: "
        "delivery 1 of 17, next in about 10 s"
    )
    assert record.exc_info
    assert str(record.exc_info[1]) == "not this one"
    (frame,) = traceback.extract_tb(record.exc_info[2])
    assert (frame.name, frame.line) == ("handle", 'raise ValueError("not this one")')


async def test_message_that_cannot_be_sent_back_is_retried_locally_after_5_seconds(
    open_dispatch: OpenDispatch,
    sent_back: SentBackMessages,
    autojump_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    tries: list[tuple[int, int, float]] = []

    async def handle(message: ReceivedMessage) -> None:
        tries.append((message.queue_offset, message.reconsume_times, trio.current_time()))
        if message.queue_offset < 2 and message.reconsume_times < 2:
            raise ValueError("no")

    sent_back.failures = 3
    process_queue = filled_queue(3)
    dispatch = open_dispatch(handle, concurrency=1)
    dispatch.offer(process_queue)
    await trio.sleep(1)
    assert process_queue.safe_offset == 0, "a message that waits for its local retry holds the offset"
    assert len(process_queue) == 2
    await trio.sleep(100)
    assert tries == [(0, 0, 0.0), (1, 0, 0.0), (2, 0, 0.0), (0, 1, 5.0), (1, 1, 5.0), (0, 2, 10.0)]
    assert [(message.queue_offset, message.reconsume_times) for message in sent_back.messages] == [(1, 1)]
    assert process_queue.safe_offset == 3


@pytest.mark.parametrize("in_thread", [False, True])
async def test_handler_is_not_called_with_a_corrupt_body(
    in_thread: bool,
    open_dispatch: OpenDispatch,
    sent_back: SentBackMessages,
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[int] = []

    def plain(message: ReceivedMessage) -> None:
        seen.append(message.queue_offset)

    async def handle(message: ReceivedMessage) -> None:
        plain(message)

    process_queue = ProcessQueue(QUEUE, 0)
    process_queue.put([received(0), received(1, corruption="not zlib"), received(2)], 3)
    open_dispatch(plain if in_thread else handle).offer(process_queue)
    while len(process_queue):
        await trio.sleep(0.001)
    assert sorted(seen) == [0, 2]
    assert [message.queue_offset for message in sent_back.messages] == [1]
    assert process_queue.safe_offset == 3
    assert "its body cannot be read: not zlib" in caplog.text


async def test_dropped_queue_is_not_dispatched(
    open_dispatch: OpenDispatch, sent_back: SentBackMessages
) -> None:
    gate = Gate()
    dispatch = open_dispatch(gate, concurrency=2)
    process_queue, other = filled_queue(10), filled_queue(1, MessageQueue("T", "broker-a", 1))
    dispatch.offer(process_queue)
    await wait_all_tasks_blocked()
    process_queue.dropped = True
    dispatch.offer(other)
    gate.open.set()
    await wait_all_tasks_blocked()
    assert process_queue.waiting == 8
    assert len(other) == 0
    assert dispatch.in_flight == 0


async def test_failed_message_of_a_dropped_queue_is_not_sent_back(
    open_dispatch: OpenDispatch, sent_back: SentBackMessages
) -> None:
    started, proceed = trio.Event(), trio.Event()

    async def handle(_: ReceivedMessage) -> None:
        started.set()
        await proceed.wait()
        raise ValueError("too late")

    process_queue = filled_queue(1)
    open_dispatch(handle).offer(process_queue)
    await started.wait()
    process_queue.dropped = True
    proceed.set()
    await wait_all_tasks_blocked()
    assert not sent_back.messages


async def test_drain_waits_for_running_calls_and_starts_no_others(
    open_dispatch: OpenDispatch, nursery: trio.Nursery
) -> None:
    gate = Gate()
    dispatch = open_dispatch(gate)
    process_queue = filled_queue(10)
    dispatch.offer(process_queue)
    await wait_all_tasks_blocked()
    drained = trio.Event()

    async def drain() -> None:
        await dispatch.drain()
        drained.set()

    nursery.start_soon(drain)
    await wait_all_tasks_blocked()
    assert not drained.is_set()
    dispatch.offer(filled_queue(5))
    gate.open.set()
    await drained.wait()
    assert process_queue.safe_offset == 3
    assert process_queue.waiting == 7
    await dispatch.drain()


async def test_messages_of_cancelled_handlers_are_not_acknowledged(sent_back: SentBackMessages) -> None:
    process_queue = filled_queue(5)
    async with trio.open_nursery() as nursery:
        dispatch = concurrent_dispatch(nursery, Gate(), 2, send_back=sent_back)
        dispatch.offer(process_queue)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert process_queue.safe_offset == 0
    assert len(process_queue) == 5
    assert not sent_back.messages


async def test_cancellation_while_a_message_is_sent_back(sent_back: SentBackMessages) -> None:
    async def fail(_: ReceivedMessage) -> None:
        raise ValueError("no")

    async def never(_: ReceivedMessage, __: int) -> None:
        await trio.sleep_forever()

    process_queue = filled_queue(1)
    async with trio.open_nursery() as nursery:
        concurrent_dispatch(nursery, fail, 2, send_back=never).offer(process_queue)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert process_queue.safe_offset == 0


async def test_synchronous_handler_runs_in_a_thread(
    open_dispatch: OpenDispatch, sent_back: SentBackMessages
) -> None:
    threads: list[threading.Thread] = []
    here = threading.current_thread()
    both_run = threading.Barrier(2)

    def handle(message: ReceivedMessage) -> None:
        threads.append(threading.current_thread())
        both_run.wait()
        if message.queue_offset == 1:
            raise ValueError("no")

    process_queue = filled_queue(2)
    open_dispatch(handle).offer(process_queue)
    while len(process_queue):
        await trio.sleep(0.001)
    assert len(threads) == 2
    assert here not in threads
    assert [message.queue_offset for message in sent_back.messages] == [1]


async def call_later(message: ReceivedMessage, seen: list[int]) -> None:
    await trio.lowlevel.checkpoint()
    seen.append(message.queue_offset)


class Callable_:  # noqa: N801  # a user's class
    def __init__(self, seen: list[int]) -> None:
        self.seen = seen

    async def __call__(self, message: ReceivedMessage) -> None:
        await call_later(message, self.seen)

    async def method(self, message: ReceivedMessage) -> None:
        await call_later(message, self.seen)


@pytest.mark.parametrize(
    "make",
    [
        lambda seen: functools.partial(call_later, seen=seen),
        lambda seen: lambda message: call_later(message, seen),
        Callable_,
        lambda seen: Callable_(seen).method,
    ],
    ids=["partial", "lambda", "object", "method"],
)
async def test_every_kind_of_async_callable_is_awaited(
    open_dispatch: OpenDispatch, make: Callable[[list[int]], Callable[[ReceivedMessage], Awaitable[None]]]
) -> None:
    seen: list[int] = []
    process_queue = filled_queue(3)
    open_dispatch(make(seen)).offer(process_queue)
    while len(process_queue):
        await trio.sleep(0.001)
    assert sorted(seen) == [0, 1, 2]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("in_thread", [False, True])
async def test_an_exit_of_the_handler_propagates_and_is_logged(
    in_thread: bool, error: BaseException, sent_back: SentBackMessages, caplog: pytest.LogCaptureFixture
) -> None:
    def handle(_: ReceivedMessage) -> None:
        raise error

    async def handle_async(message: ReceivedMessage) -> None:
        handle(message)

    process_queue = filled_queue(1)
    handler = handle if in_thread else handle_async
    with pytest.raises(BaseExceptionGroup) as caught:
        async with trio.open_nursery() as nursery:
            concurrent_dispatch(nursery, handler, 1, send_back=sent_back).offer(process_queue)
    assert caught.group_contains(type(error))
    assert process_queue.safe_offset == 0
    [record] = caplog.records
    name = type(error).__name__
    assert record.message.startswith(f"the consumer ends, because its handler raised {name}: message=")


def handler_of_kind(kind: str, handle: Callable[[ReceivedMessage], None]) -> Callable[..., Any]:
    """Return an async, a plain or a decorated handler that does the same."""

    async def handle_async(message: ReceivedMessage) -> None:
        handle(message)

    handlers = {"async": handle_async, "plain": handle, "decorated": lambda message: handle_async(message)}
    return handlers[kind]


@pytest.mark.parametrize("error", [asyncio.CancelledError("mine"), concurrent.futures.CancelledError("mine")])
@pytest.mark.parametrize("kind", ["async", "plain", "decorated"])
async def test_a_cancelled_error_of_the_handler_is_a_failure_like_others(
    error: BaseException, kind: str, sent_back: SentBackMessages, caplog: pytest.LogCaptureFixture
) -> None:
    def handle(_: ReceivedMessage) -> None:
        raise error

    process_queue = filled_queue(1)
    async with trio.open_nursery() as nursery:
        concurrent_dispatch(nursery, handler_of_kind(kind, handle), 1, send_back=sent_back).offer(
            process_queue
        )
        while not sent_back.messages:
            await trio.sleep(0.001)
        nursery.cancel_scope.cancel()
    assert sent_back.offsets == [0]
    [record] = caplog.records
    assert record.message.startswith("handler failed: ")
    assert record.exc_info
    assert "mine" in str(record.exc_info[1])
    assert traceback.extract_tb(record.exc_info[2])[0].filename == __file__


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("kind", ["async", "plain", "decorated"])
async def test_a_cancellation_that_nothing_has_caused_is_a_failure_like_others(
    kind: str, grouped: bool, sent_back: SentBackMessages, caplog: pytest.LogCaptureFixture
) -> None:
    """The consumer would end without an error. A cache may raise the error of another task again."""
    error = await cancelled_error()

    def handle(_: ReceivedMessage) -> None:
        raise BaseExceptionGroup("mine", [error]) if grouped else error

    process_queue = filled_queue(1)
    async with trio.open_nursery() as nursery:
        concurrent_dispatch(nursery, handler_of_kind(kind, handle), 1, send_back=sent_back).offer(
            process_queue
        )
        with trio.fail_after(60):
            while not sent_back.messages:
                await trio.sleep(0.001)
        nursery.cancel_scope.cancel()
    assert sent_back.offsets == [0]
    [record] = caplog.records
    assert record.message.startswith("handler failed: ")
    assert record.exc_info
    assert str(record.exc_info[1]) == "it raised Cancelled, but nothing had cancelled it"
    assert traceback.extract_tb(record.exc_info[2])[0].filename == __file__


@pytest.mark.parametrize("in_thread", [False, True])
async def test_failure_during_a_cancellation_is_logged(
    in_thread: bool, sent_back: SentBackMessages, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail_when_cancelled() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("while cleaning up")

    async def handle(_: ReceivedMessage) -> None:
        async with trio.open_nursery() as inner:
            inner.start_soon(trio.sleep_forever)
            inner.start_soon(fail_when_cancelled)
            started.set()

    caplog.set_level(logging.ERROR)
    process_queue, started = filled_queue(1), trio.Event()
    handler = (lambda message: handle(message)) if in_thread else handle
    async with trio.open_nursery() as nursery:
        concurrent_dispatch(nursery, handler, 1, send_back=sent_back).offer(process_queue)
        await started.wait()
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert "handler failed: message=" in caplog.text
    assert "while cleaning up" in caplog.text
    assert process_queue.safe_offset == 0
