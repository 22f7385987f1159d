"""When a queue is pulled from, and when it has to wait: the states of a pull loop, in one place."""

from __future__ import annotations

from collections.abc import Mapping

import trio

from rocketmq_py.consumer.config import FlowLimits
from rocketmq_py.consumer.group.statistics import PullState
from rocketmq_py.consumer.pull.process_queue import ProcessQueue

WAIT_SECONDS: Mapping[PullState, float] = {
    PullState.STALLED: 0.05,
    PullState.BUSY: 0.02,
    PullState.FAILED: 3.0,
}
"""States that a broker's answer leads to: they end after a time. Java: PULL_TIME_DELAY_MILLS_WHEN_…"""


def after_nothing(asked_at: float) -> PullState:
    """Return what to do after an answer that brought nothing, to what was asked at ``asked_at``.

    A broker that does not hold requests answers at once, and shall not be asked without end.
    """
    at_once = trio.current_time() - asked_at < WAIT_SECONDS[PullState.STALLED]
    return PullState.STALLED if at_once else PullState.PULLING


def flow_of(process_queue: ProcessQueue, limits: FlowLimits) -> PullState:
    """Return what the loop of a queue should do, as far as that depends on what is here of it.

    The first that applies is the state; if none does, the queue is pulled from. They end when something
    here changes, and who changes it tells the loop: where Java looks again every 50 ms, or every second when
    it is paused, here nothing is polled.
    """
    if process_queue.dropped:
        return PullState.DROPPED
    if process_queue.paused:
        return PullState.PAUSED
    count = len(process_queue)
    if count > limits.count:
        return PullState.FULL_BY_COUNT
    if process_queue.size > limits.size:
        return PullState.FULL_BY_SIZE
    if count and process_queue.span > limits.span:
        return PullState.SPAN_TOO_WIDE
    return PullState.PULLING
