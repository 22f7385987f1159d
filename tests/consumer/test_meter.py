from __future__ import annotations

import pytest
import trio
import trio.testing

from rocketmq_py.consumer.group.counters import ConsumerCounters
from rocketmq_py.consumer.group.meter import Arrivals, ConsumeMeter
from rocketmq_py.consumer.pull.process_queue import ProcessQueue
from tests.consumer.received import QUEUE, received


async def test_the_wait_of_a_message_begins_with_the_arrival_of_its_chunk(
    autojump_clock: trio.testing.MockClock,
) -> None:
    queue = ProcessQueue(QUEUE, 0)
    assert queue.wait_of_next() is None
    queue.put([received(0), received(1)], 2)
    queue.arrivals = Arrivals()
    queue.arrivals.put(1)
    await trio.sleep(3)
    queue.put([received(2)], 3)
    queue.arrivals.put(2)
    await trio.sleep(1)
    assert queue.wait_of_next() == 4
    queue.take_batch(2)
    assert queue.wait_of_next() == 1
    queue.take()
    assert queue.wait_of_next() is None
    assert queue.arrivals.wait_of(9) is None


def test_calls_of_a_turn_share_its_time_except_a_suspended_last_one() -> None:
    meter = ConsumeMeter("T", lambda: 0)
    meter.called_in_sequence(0, 0.0, None, 1.0, "")
    assert list(meter.calls.snapshots()) == []
    meter.called_in_sequence(4, 0.0, None, 4.0, "ValueError")
    meter.called_in_sequence(3, 0.0, 1.0, 11.0, "")
    (_, _, succeeded), (_, outcome, failed) = meter.calls.snapshots()
    assert (succeeded.count, failed.count, outcome) == (6, 1, "ValueError")
    assert succeeded.sum == pytest.approx(14)
    assert failed.sum == pytest.approx(1)


def test_a_single_call_is_timed_from_its_start_although_it_suspended_later() -> None:
    meter = ConsumeMeter("T", lambda: 0)
    meter.called_in_sequence(1, 0.0, 2.0, 5.0, "")
    ((_, _, calls),) = meter.calls.snapshots()
    assert (calls.count, calls.sum) == (1, 5)


async def test_metering_begins_for_topics_that_are_counted_already() -> None:
    counters = ConsumerCounters()
    before = counters.of("before")
    counters.start_metering(lambda: 0)
    meter = before.meter
    assert meter is not None
    counters.start_metering(lambda: 0)
    assert before.meter is meter
    assert counters.of("after").meter is not None
