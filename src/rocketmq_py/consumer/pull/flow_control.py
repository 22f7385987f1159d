"""When a queue is pulled from, and when it has to wait: the states of a pull loop, in one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from rocketmq_py.consumer.config import FlowLimits
from rocketmq_py.consumer.group.statistics import Flow
from rocketmq_py.consumer.pull.process_queue import ProcessQueue

_Rule: TypeAlias = tuple[Flow, Callable[[ProcessQueue, FlowLimits], bool]]

_RULES: Sequence[_Rule] = (
    (Flow.DROPPED, lambda held, _: held.dropped),
    (Flow.PAUSED, lambda held, _: held.paused),
    (Flow.FULL_BY_COUNT, lambda held, limits: len(held) > limits.count),
    (Flow.FULL_BY_SIZE, lambda held, limits: held.size > limits.size),
    (Flow.SPAN_TOO_WIDE, lambda held, limits: held.span > limits.span),
)
"""The first that applies is the state; if none does, the queue is pulled from. They end when something
here changes, and who changes it tells the loop: where Java looks again every 50 ms, or every second when
it is paused, here nothing is polled."""

WAIT_SECONDS: Mapping[Flow, float] = {Flow.STALLED: 0.05, Flow.BUSY: 0.02, Flow.FAILED: 3.0}
"""States that a broker's answer leads to: they end after a time. Java: PULL_TIME_DELAY_MILLS_WHEN_…"""


def flow_of(held: ProcessQueue, limits: FlowLimits) -> Flow:
    """Return what the loop of a queue should do, as far as that depends on what is held of it."""
    for flow, applies in _RULES:
        if applies(held, limits):
            return flow
    return Flow.PULLING
