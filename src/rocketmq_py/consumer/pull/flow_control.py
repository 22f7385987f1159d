"""Flow control: the states of a pull loop, and how long each lasts."""

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
"""States that follow a broker's answer, with the delay before the next pull.

Java: PULL_TIME_DELAY_MILLS_WHEN_…"""


def state_after_empty(pulled_at: float) -> PullState:
    """Return the state after an answer without messages to the pull at ``pulled_at``.

    STALLED if the broker answered at once. It does not hold pulls then, and must not be polled in a tight
    loop.
    """
    at_once = trio.current_time() - pulled_at < WAIT_SECONDS[PullState.STALLED]
    return PullState.STALLED if at_once else PullState.PULLING


def flow_state(process_queue: ProcessQueue, limits: FlowLimits) -> PullState:
    """Return the state of a loop according to its ProcessQueue. The first condition that applies decides.

    The loop waits in each state but PULLING until the ProcessQueue changes. Java polls every 50 ms or 1 s
    instead.
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
