"""Batches of calls, with an executor that is controlled by the test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import wait_all_tasks_blocked

from rocketmq_py.consumer.push.concurrent_dispatch import ConcurrentDispatch
from rocketmq_py.consumer.push.handler_executor import NO_RESULT, CallBatch, HandlerCall, HandlerExecutor
from tests.consumer.dispatching import SentBackMessages, concurrent_dispatch, filled_queue
from tests.consumer.received import received

TIMEOUT = 60.0


class ManualExecutor(HandlerExecutor):
    """An executor whose calls the test starts and ends."""

    cancels = True
    accepts_batches = True

    def __init__(self) -> None:
        super().__init__(lambda _: None, 4)
        self.cancelled: list[HandlerCall] = []

    def start(self, calls: Sequence[HandlerCall]) -> None:
        self.calls.update(calls)
        self._queue.extend(calls)

    def cancel(self, call: HandlerCall) -> bool:
        self.cancelled.append(call)
        return True

    def next_batch(self) -> CallBatch:
        """Take the next batch from the queue."""
        batch = self._queue.popleft()
        assert isinstance(batch, CallBatch)
        batch.runner = self
        return batch

    def end(self, *ended: HandlerCall) -> None:
        for call in ended:
            call.runner = None
            self.calls.add(call)
        self.collect(list(ended))


class Handler:
    """A handler with a ManualExecutor."""

    def __init__(self) -> None:
        self.executor = ManualExecutor()

    def __call__(self, _: object) -> None:
        raise AssertionError

    def make_executor(self, _: int) -> HandlerExecutor:
        return self.executor


def start_next(batch: CallBatch) -> Any:
    """Start the next call of a batch. Return its message."""
    batch.current = argument = batch.waiting.popleft()
    return argument


def batch_dispatch(
    nursery: trio.Nursery, sent_back: SentBackMessages, concurrency: int = 4
) -> tuple[ConcurrentDispatch, ManualExecutor]:
    handler = Handler()
    return concurrent_dispatch(
        nursery, handler, concurrency, timeout=TIMEOUT, send_back=sent_back
    ), handler.executor


async def test_ended_batch_is_acknowledged_and_its_rest_continues(nursery: trio.Nursery) -> None:
    dispatch, executor = batch_dispatch(nursery, SentBackMessages())
    process_queue = filled_queue(5)
    dispatch.offer(process_queue)
    batch = executor.next_batch()
    assert batch.seconds == 0.0
    assert [message.queue_offset for message in batch.waiting] == [0, 1, 2, 3]
    batch.done += [start_next(batch), start_next(batch)]
    batch.seconds = 3.0
    rest = batch.split_rest()
    executor.calls.add(rest)
    executor.end(batch)
    assert process_queue.safe_offset == 2
    assert (process_queue.counts.calls, process_queue.counts.call_seconds) == (2, 3.0)
    assert [message.queue_offset for message in rest.waiting] == [2, 3]
    assert dispatch.in_flight == 3  # including that of the last message
    rest.done += [start_next(rest), start_next(rest)]
    executor.end(rest)
    last = executor.next_batch()
    last.done.append(start_next(last))
    executor.end(last)
    assert process_queue.safe_offset == 5
    assert not dispatch.in_flight
    assert not executor.calls


async def test_failed_call_of_a_batch_is_sent_back_alone(nursery: trio.Nursery) -> None:
    sent_back = SentBackMessages()
    dispatch, executor = batch_dispatch(nursery, sent_back)
    process_queue = filled_queue(3)
    dispatch.offer(process_queue)
    batch = executor.next_batch()
    failed = batch.detach(start_next(batch))
    failed.error = ValueError("wrong")
    batch.done += [start_next(batch), start_next(batch)]
    executor.end(failed, batch)
    await wait_all_tasks_blocked()
    assert sent_back.offsets == [0]
    assert process_queue.safe_offset == 3
    assert not dispatch.in_flight


async def test_calls_of_dropped_queues_and_corrupt_messages_do_not_start(nursery: trio.Nursery) -> None:
    sent_back = SentBackMessages()
    dispatch, executor = batch_dispatch(nursery, sent_back)
    process_queue = filled_queue(1)
    process_queue.put([received(1, corruption="cut off")], 2)
    dispatch.offer(process_queue)
    batch = executor.next_batch()
    assert batch.may_start_next(start_next(batch))
    with pytest.raises(Exception, match="cut off"):
        batch.may_start_next(start_next(batch))
    process_queue.dropped = True
    assert not batch.may_start_next(batch.current)
    skipped = batch.detach(batch.current)
    skipped.result = NO_RESULT
    batch.done.append(process_queue._messages[0])
    executor.end(skipped, batch)
    await wait_all_tasks_blocked()
    assert not dispatch.in_flight
    assert process_queue.safe_offset == 1


@pytest.mark.parametrize("has_started", [False, True])
async def test_closing_withdraws_the_calls_that_have_not_started(
    nursery: trio.Nursery, has_started: bool
) -> None:
    dispatch, executor = batch_dispatch(nursery, SentBackMessages())
    process_queue = filled_queue(4)
    dispatch.offer(process_queue)
    batch = executor.next_batch()
    if has_started:
        batch.done.append(start_next(batch))
    else:
        executor._queue.append(batch)
    dispatch.close()
    assert not batch.waiting
    assert dispatch.in_flight == has_started
    if has_started:
        executor.end(batch)
    await dispatch.drain()
    assert process_queue.safe_offset == has_started
    assert not executor.calls


async def test_timed_out_call_of_a_batch_is_sent_back_once(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    sent_back = SentBackMessages()
    dispatch, executor = batch_dispatch(nursery, sent_back)
    process_queue = filled_queue(3)
    dispatch.offer(process_queue)
    batch = executor.next_batch()
    late = start_next(batch)
    await trio.sleep(TIMEOUT * 1.5)
    assert executor.cancelled == [batch]
    assert batch.expired is late
    assert sent_back.offsets == [0]
    call = batch.detach(late)
    assert batch.detached is call
    call.error = ValueError("after all")
    in_time = batch.detach(start_next(batch))
    in_time.error = ValueError("wrong")
    batch.done.append(start_next(batch))
    executor.end(call, in_time, batch)
    await wait_all_tasks_blocked()
    assert sent_back.offsets == [0, 1]
    assert process_queue.safe_offset == 3


async def test_a_call_that_the_end_of_its_loop_cancels_is_cut_off(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    dispatch, executor = batch_dispatch(nursery, SentBackMessages())
    process_queue = filled_queue(1)
    dispatch.offer(process_queue)
    batch = executor.next_batch()
    call = batch.detach(start_next(batch))
    call.result, call.is_cancelled = NO_RESULT, True
    executor.end(batch, call)
    await wait_all_tasks_blocked()
    assert process_queue.counts.cut_off == 1
    assert process_queue.safe_offset == 0
    assert "queue=0 offset=0: the message is delivered again" in caplog.text


async def test_the_running_calls_of_batches_are_cut_off_with_the_consumer() -> None:
    process_queue = filled_queue(4)
    async with trio.open_nursery() as nursery:
        dispatch, executor = batch_dispatch(nursery, SentBackMessages())
        dispatch.offer(process_queue)
        start_next(executor.next_batch())
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert process_queue.counts.cut_off == 1
