"""Durations of handler calls, in the statistics and in the metrics."""

from __future__ import annotations

import math

import pytest
import trio
import trio.testing
from trio.testing import wait_all_tasks_blocked

from rocketmq_py.consumer.group.counters import ConsumeMeter
from rocketmq_py.consumer.group.handler_results import ConsumeLater
from rocketmq_py.consumer.group.queue_locks import QueueLock
from rocketmq_py.consumer.pull.process_queue import ProcessQueue
from rocketmq_py.consumer.push.handler_executor import NO_RESULT
from rocketmq_py.consumer.push.orderly_dispatch import OrderlyDispatch
from rocketmq_py.consumer.settings import PushConsumerSettings
from rocketmq_py.message import ReceivedMessage
from tests.consumer.dispatching import ScriptedReturns, SentBackMessages, concurrent_dispatch, filled_queue
from tests.consumer.push.test_handler_executor import TIMEOUT, manual_dispatch
from tests.consumer.received import QUEUE, several


def metered(process_queue: ProcessQueue) -> ProcessQueue:
    process_queue.counts.meter = ConsumeMeter("T", lambda: 0)
    return process_queue


def durations(process_queue: ProcessQueue) -> dict[str, tuple[int, float]]:
    """Return the number of recorded calls and their total seconds, by outcome."""
    assert process_queue.counts.meter is not None
    return {
        outcome: (histogram.count, round(histogram.sum, 3))
        for _, outcome, histogram in process_queue.counts.meter.calls.snapshots()
    }


def calls(process_queue: ProcessQueue) -> tuple[int, float]:
    return process_queue.counts.calls, round(process_queue.counts.call_seconds, 3)


async def send_back_slowly(_: ReceivedMessage, __: object) -> None:
    await trio.sleep(10)


@pytest.mark.parametrize("outcome", [ValueError("no"), ConsumeLater()])
async def test_time_to_send_messages_back_does_not_count(
    outcome: Exception | ConsumeLater, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    async def handle(_: ReceivedMessage) -> ConsumeLater:
        await trio.sleep(1)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    process_queue = metered(filled_queue(1))
    concurrent_dispatch(nursery, handle, send_back=send_back_slowly).offer(process_queue)
    await trio.sleep(20)
    assert calls(process_queue) == (1, 1)
    assert durations(process_queue) == {type(outcome).__name__: (1, 1)}


async def test_time_to_send_dead_letters_of_an_ordered_queue_does_not_count(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    async def handle(_: ReceivedMessage) -> None:
        await trio.sleep(1)
        raise ValueError("no")

    process_queue = metered(ProcessQueue(QUEUE, 0, QueueLock(QUEUE, held_until=math.inf)))
    process_queue.put(several([0]), 1)
    OrderlyDispatch(
        nursery,
        handle,
        PushConsumerSettings(group="g", orderly=True, concurrency=1, max_reconsume_times=0),
        dead_letter_queue=ScriptedReturns(send_to_dead_letters=send_back_slowly),
    ).offer(process_queue)
    await trio.sleep(20)
    assert calls(process_queue) == (1, 1)
    assert durations(process_queue) == {"ValueError": (1, 1)}


async def test_timed_out_call_and_the_calls_before_it_are_recorded(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    async def handle(message: ReceivedMessage) -> None:
        if message.queue_offset == 2:
            await trio.sleep_forever()

    process_queue = metered(filled_queue(3))
    concurrent_dispatch(nursery, handle, 1, timeout=TIMEOUT, send_back=SentBackMessages()).offer(
        process_queue
    )
    await trio.sleep(TIMEOUT * 2)
    assert calls(process_queue) == (3, TIMEOUT * 1.1)
    assert durations(process_queue) == {"": (2, 0), "TimeoutError": (1, TIMEOUT * 1.1)}


async def test_call_that_goes_on_after_its_timeout_is_recorded_once_as_timed_out(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    async def handle(_: ReceivedMessage) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(TIMEOUT * 3)

    process_queue = metered(filled_queue(1))
    concurrent_dispatch(nursery, handle, 1, timeout=TIMEOUT, send_back=SentBackMessages()).offer(
        process_queue
    )
    await trio.sleep(TIMEOUT * 4)
    assert calls(process_queue) == (1, TIMEOUT * 3)
    assert durations(process_queue) == {"TimeoutError": (1, TIMEOUT * 3)}


async def test_cancelled_call_is_not_recorded() -> None:
    async def handle(_: ReceivedMessage) -> None:
        await trio.sleep_forever()

    process_queue = metered(filled_queue(1))
    async with trio.open_nursery() as nursery:
        concurrent_dispatch(nursery, handle, 1, send_back=SentBackMessages()).offer(process_queue)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert calls(process_queue) == (0, 0)


# Outside of trio


async def test_timed_out_call_outside_of_trio_is_recorded(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    dispatch, executor = manual_dispatch(nursery, SentBackMessages())
    process_queue = metered(filled_queue(1))
    dispatch.offer(process_queue)
    call = executor.start_next()
    await trio.sleep(TIMEOUT * 1.2)
    assert executor.cancelled == [call]
    call.seconds = TIMEOUT
    call.cancelled()
    executor.end(call)
    await wait_all_tasks_blocked()
    assert calls(process_queue) == (1, TIMEOUT)
    assert durations(process_queue) == {"TimeoutError": (1, TIMEOUT)}


async def test_call_of_a_revoked_queue_that_did_not_start_is_not_recorded(nursery: trio.Nursery) -> None:
    dispatch, executor = manual_dispatch(nursery, SentBackMessages())
    process_queue = metered(filled_queue(1))
    dispatch.offer(process_queue)
    call = executor.start_next()
    call.result = NO_RESULT
    executor.end(call)
    await wait_all_tasks_blocked()
    assert calls(process_queue) == (0, 0)
    assert durations(process_queue) == {}


@pytest.mark.parametrize("fails", [False, True])
async def test_time_of_an_awaited_result_counts(
    fails: bool, nursery: trio.Nursery, mock_clock: trio.testing.MockClock
) -> None:
    async def work() -> None:
        mock_clock.jump(5)
        if fails:
            raise ValueError("no")

    process_queue = metered(filled_queue(1))
    dispatch = concurrent_dispatch(nursery, lambda _: work(), 1, send_back=SentBackMessages())
    dispatch.offer(process_queue)
    while len(process_queue):
        await trio.lowlevel.checkpoint()
    count, seconds = calls(process_queue)
    assert count == 1
    assert seconds == pytest.approx(5, abs=0.5)
    assert [(outcome, count) for outcome, (count, _) in durations(process_queue).items()] == [
        ("ValueError" if fails else "", 1)
    ]
