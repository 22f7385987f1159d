"""Calls outside of trio, with an executor that is controlled by the test."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
import trio.testing
from trio.testing import wait_all_tasks_blocked

from rocketmq_py.consumer.push.concurrent_dispatch import ConcurrentDispatch
from rocketmq_py.consumer.push.handler_executor import NO_RESULT, HandlerCall, HandlerExecutor
from tests.consumer.dispatching import SentBackMessages, concurrent_dispatch, filled_queue
from tests.consumer.received import received

TIMEOUT = 60.0


class ManualExecutor(HandlerExecutor):
    """An executor whose calls the test starts and ends."""

    cancels = True
    prefetches = True

    def __init__(self) -> None:
        super().__init__(lambda _: None, 4)
        self.cancelled: list[HandlerCall] = []
        self.ending: list[HandlerCall] = []
        """Calls that end in their own thread while they are abandoned."""

    def start(self, calls: Sequence[HandlerCall]) -> None:
        self.unended += len(calls)
        self._queue.extend(calls)

    def cancel(self, call: HandlerCall) -> bool:
        self.cancelled.append(call)
        return True

    def abandon(self) -> None:
        super().abandon()
        for call in self.ending:
            call.cancelled()
            call.runner = None
            self._finished.append(call)

    @property
    def waiting(self) -> list[int]:
        """The offsets of the messages whose calls are queued."""
        return [call.messages[0].queue_offset for call in self._queue]

    def start_next(self) -> HandlerCall:
        """Start the next call of the queue."""
        call = self._queue.popleft()
        call.runner = self
        return call

    def end(self, *ended: HandlerCall) -> None:
        for call in ended:
            call.runner = None
        self.collect(ended)


class Handler:
    """A handler with a ManualExecutor."""

    def __init__(self) -> None:
        self.executor = ManualExecutor()

    def __call__(self, _: object) -> None:
        raise AssertionError

    def make_executor(self, _: int) -> HandlerExecutor:
        return self.executor


def manual_dispatch(
    nursery: trio.Nursery, sent_back: SentBackMessages, concurrency: int = 4
) -> tuple[ConcurrentDispatch, ManualExecutor]:
    handler = Handler()
    return concurrent_dispatch(
        nursery, handler, concurrency, timeout=TIMEOUT, send_back=sent_back
    ), handler.executor


async def test_calls_are_queued_ahead_by_twice_the_number_that_ended_together(nursery: trio.Nursery) -> None:
    dispatch, executor = manual_dispatch(nursery, SentBackMessages())
    process_queue = filled_queue(20)
    dispatch.offer(process_queue)
    assert executor.waiting == [0, 1, 2, 3]
    calls = [executor.start_next(), executor.start_next()]
    calls[0].seconds, calls[1].seconds = 1.0, 2.0
    executor.end(*calls)
    assert process_queue.safe_offset == 2
    assert (process_queue.counts.calls, process_queue.counts.call_seconds) == (2, 3.0)
    assert executor.waiting == list(range(2, 10)), "4 may run, and 4 are queued ahead"
    executor.end(executor.start_next())
    assert executor.waiting == list(range(3, 10)), "after a slow call only 2 are queued ahead"
    assert dispatch.in_flight == executor.unended == 7
    while executor.waiting:
        executor.end(executor.start_next())
    assert process_queue.safe_offset == 20
    assert not dispatch.in_flight
    assert not executor.unended


async def test_failed_call_is_sent_back_alone(nursery: trio.Nursery) -> None:
    sent_back = SentBackMessages()
    dispatch, executor = manual_dispatch(nursery, sent_back)
    process_queue = filled_queue(3)
    dispatch.offer(process_queue)
    failed, *others = [executor.start_next() for _ in range(3)]
    failed.error = ValueError("wrong")
    executor.end(failed, *others)
    await wait_all_tasks_blocked()
    assert sent_back.offsets == [0]
    assert process_queue.safe_offset == 3
    assert not dispatch.in_flight


async def test_calls_of_dropped_queues_and_corrupt_messages_do_not_start(nursery: trio.Nursery) -> None:
    dispatch, executor = manual_dispatch(nursery, SentBackMessages())
    process_queue = filled_queue(1)
    process_queue.put([received(1, corruption="cut off")], 2)
    dispatch.offer(process_queue)
    readable, corrupt = executor.start_next(), executor.start_next()
    assert readable.may_start()
    with pytest.raises(Exception, match="cut off"):
        corrupt.may_start()
    process_queue.dropped = True
    assert not readable.may_start()
    readable.result = NO_RESULT
    executor.end(readable)
    await wait_all_tasks_blocked()
    assert dispatch.in_flight == 1
    assert process_queue.safe_offset == 0


@pytest.mark.parametrize("has_started", [False, True])
async def test_closing_withdraws_the_calls_that_have_not_started(
    nursery: trio.Nursery, has_started: bool
) -> None:
    dispatch, executor = manual_dispatch(nursery, SentBackMessages())
    process_queue = filled_queue(6)
    dispatch.offer(process_queue)
    started = [executor.start_next()] if has_started else []
    dispatch.close()
    assert executor.waiting == []
    assert dispatch.in_flight == has_started
    executor.end(*started)
    await dispatch.drain()
    assert process_queue.safe_offset == has_started
    assert not executor.unended
    offsets = [message.queue_offset for message in process_queue.waiting_messages]
    assert offsets == list(range(has_started, 6))


async def test_timed_out_call_is_sent_back_once(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    sent_back = SentBackMessages()
    dispatch, executor = manual_dispatch(nursery, sent_back)
    process_queue = filled_queue(3)
    dispatch.offer(process_queue)
    late = executor.start_next()
    await trio.sleep(TIMEOUT * 1.5)
    assert executor.cancelled == [late]
    assert sent_back.offsets == [0]
    in_time, queued = executor.start_next(), executor.start_next()
    late.error = ValueError("after all")
    in_time.error = ValueError("wrong")
    executor.end(late, in_time, queued)
    await wait_all_tasks_blocked()
    assert sent_back.offsets == [0, 1]
    assert process_queue.safe_offset == 3


async def test_queued_call_does_not_time_out(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    sent_back = SentBackMessages()
    dispatch, executor = manual_dispatch(nursery, sent_back)
    dispatch.offer(filled_queue(1))
    await trio.sleep(TIMEOUT * 3)
    executor.start_next()
    await trio.sleep(TIMEOUT * 0.9)
    assert sent_back.offsets == []


async def test_a_call_that_the_end_of_its_loop_cancels_is_cut_off(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    dispatch, executor = manual_dispatch(nursery, SentBackMessages())
    process_queue = filled_queue(1)
    dispatch.offer(process_queue)
    call = executor.start_next()
    call.cancelled()
    executor.end(call)
    await wait_all_tasks_blocked()
    assert process_queue.counts.cut_off == 1
    assert process_queue.safe_offset == 0
    assert "queue=0 offset=0: the message is delivered again" in caplog.text


async def test_only_running_calls_are_cut_off_with_the_consumer() -> None:
    process_queue = filled_queue(4)
    async with trio.open_nursery() as nursery:
        dispatch, executor = manual_dispatch(nursery, SentBackMessages())
        dispatch.offer(process_queue)
        executor.start_next()
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert process_queue.counts.cut_off == 1


async def test_calls_that_end_while_they_are_abandoned_are_cut_off() -> None:
    """The outcomes in other threads come too late."""
    process_queue = filled_queue(4)
    async with trio.open_nursery() as nursery:
        dispatch, executor = manual_dispatch(nursery, SentBackMessages())
        dispatch.offer(process_queue)
        executor.ending = [executor.start_next(), executor.start_next()]
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert process_queue.counts.cut_off == 2
    assert process_queue.safe_offset == 0


async def test_a_call_whose_result_is_awaited_at_the_end_is_cut_off_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    process_queue = filled_queue(1)
    async with trio.open_nursery() as nursery:
        dispatch, executor = manual_dispatch(nursery, SentBackMessages())
        dispatch.offer(process_queue)
        call = executor.start_next()
        call.result = trio.sleep_forever()
        executor.end(call)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert process_queue.counts.cut_off == 1
    assert len(caplog.records) == 1
