"""Flow control: whether the unacknowledged messages of a queue allow another pull."""

from __future__ import annotations

from rocketmq_py.consumer.group.statistics import PullState
from rocketmq_py.consumer.pull.process_queue import ProcessQueue
from rocketmq_py.consumer.settings import FlowLimits


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
