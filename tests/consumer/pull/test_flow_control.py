from __future__ import annotations

import sys

import pytest

from rocketmq_py.consumer.group.statistics import PullState
from rocketmq_py.consumer.pull.process_queue import ProcessQueue, flow_state
from rocketmq_py.consumer.pull.retry import RETRY_DELAYS
from rocketmq_py.consumer.settings import FlowLimits, PushConsumerSettings
from tests.consumer.received import QUEUE, received, several

LIMITS = FlowLimits(count=3, size=100, span=10)


def filled_queue(*offsets: int, size: int = 1) -> ProcessQueue:
    process_queue = ProcessQueue(QUEUE, 0)
    process_queue.put([received(offset, b"x" * size) for offset in offsets], max(offsets, default=-1) + 1)
    return process_queue


@pytest.mark.parametrize(
    ("process_queue", "flow"),
    [
        (filled_queue(), PullState.PULLING),
        (filled_queue(0, 1, 2), PullState.PULLING),
        (filled_queue(0, 1, 2, 3), PullState.FULL_BY_COUNT),
        (filled_queue(0, 1, size=50), PullState.PULLING),
        (filled_queue(0, 1, size=51), PullState.FULL_BY_SIZE),
        (filled_queue(0, 10), PullState.PULLING),
        (filled_queue(0, 11), PullState.SPAN_TOO_WIDE),
        (filled_queue(0, 1, 2, 30, size=60), PullState.FULL_BY_COUNT),
    ],
)
def test_pulls_stop_when_a_limit_is_exceeded(process_queue: ProcessQueue, flow: PullState) -> None:
    assert flow_state(process_queue, LIMITS) is flow


def test_dropped_and_paused_take_precedence() -> None:
    process_queue = filled_queue(0, 1, 2, 3)
    process_queue.paused = True
    assert flow_state(process_queue, LIMITS) is PullState.PAUSED
    process_queue.dropped = True
    assert flow_state(process_queue, LIMITS) is PullState.DROPPED


def test_pulls_resume_when_space_is_freed() -> None:
    process_queue = filled_queue(0, 1, 2, 3)
    process_queue.remove(received(3))
    assert flow_state(process_queue, LIMITS) is PullState.PULLING
    process_queue.put(several([15]), 16)
    process_queue.remove(received(1))
    assert flow_state(process_queue, LIMITS) is PullState.SPAN_TOO_WIDE
    process_queue.remove(received(0))
    assert flow_state(process_queue, LIMITS) is PullState.SPAN_TOO_WIDE
    process_queue.remove(received(2))
    assert flow_state(process_queue, LIMITS) is PullState.PULLING


def test_limits_and_delays_are_those_of_java() -> None:
    assert PushConsumerSettings(group="g").flow_limits(7) == FlowLimits(
        count=1000, size=100 * 1024 * 1024, span=2000
    )
    assert RETRY_DELAYS == {PullState.STALLED: 0.05, PullState.BUSY: 0.02, PullState.FAILED: 3.0}


@pytest.mark.parametrize(("queues", "size"), [(1, 90_000), (4, 22_500), (100_000, 1)])
def test_the_limit_of_a_topic_is_divided_among_its_queues(queues: int, size: int) -> None:
    config = PushConsumerSettings(group="g", pull_threshold_size_for_topic=90_000)
    assert config.flow_limits(queues) == FlowLimits(1000, size, 2000)


def test_ordered_consumers_have_no_span_limit() -> None:
    assert PushConsumerSettings(group="g", orderly=True).flow_limits(1).span == sys.maxsize
