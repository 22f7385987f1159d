from __future__ import annotations

import pytest

from rocketmq_py.consumer.group.hooks import ConsumerHooks
from rocketmq_py.consumer.lite_pull.poll_buffer import PollBuffer
from rocketmq_py.consumer.pull.process_queue import ProcessQueue
from rocketmq_py.message import MessageQueue
from tests.consumer.received import QUEUE, several


@pytest.fixture
def buffer() -> PollBuffer:
    return PollBuffer(ConsumerHooks("g", "client", now_ms=lambda: 0))


def test_messages_of_paused_and_dropped_queues_are_not_counted(buffer: PollBuffer) -> None:
    first, second = ProcessQueue(QUEUE, 0), ProcessQueue(MessageQueue("T", "broker-a", 1), 0)
    first.put(several([0, 1]), 2)
    second.put(several([0, 1, 2]), 3)
    for process_queue in (first, second):
        buffer.add(process_queue)
    assert buffer.total == 5
    first.paused = True
    buffer.recount(first)
    assert buffer.total == 3
    first.paused = False
    buffer.recount(first)
    second.dropped = True
    buffer.recount(second)
    assert buffer.total == 2
