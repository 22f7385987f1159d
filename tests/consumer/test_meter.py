from __future__ import annotations

import trio
import trio.testing

from rocketmq_py.consumer.group.counters import Arrivals, ConsumerCounters
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
    queue.take_batch(1)
    assert queue.wait_of_next() is None
    assert queue.arrivals.wait_of(9) is None


async def test_metering_begins_for_topics_that_are_counted_already() -> None:
    counters = ConsumerCounters()
    before = counters.of("before")
    counters.start_metering(lambda: 0)
    meter = before.meter
    assert meter is not None
    counters.start_metering(lambda: 0)
    assert before.meter is meter
    assert counters.of("after").meter is not None
