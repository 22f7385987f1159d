"""The health of a consumer: a snapshot for readiness probes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from rocketmq_py.client.health import ClientHealth, Health, some_of
from rocketmq_py.consumer.group.statistics import PullState, QueueStatistics
from rocketmq_py.message import MessageQueue, queue_name


@attrs.frozen(kw_only=True)
class ConsumerHealth(Health):
    """The health of a consumer.

    Attributes:
        reasons: why it cannot consume now: those of its client, a consumer that is not running, and failed
            pulls in all of its queues. Failed handlers are not among them. Neither is an empty assignment,
            because a group may have more members than queues.
        client: the health of its client.
        assignment: the queues assigned to it, sorted. Empty for a PopConsumer.
        failing: those whose last pull failed.
        lag: total lag of these queues, as known from pull responses. 0 for popped queues, whose offsets only
            the brokers know.
        last_error: the last error of a handler or a pull. None if none has failed.
        last_error_age: seconds since then. None if none has failed.
    """

    client: ClientHealth
    assignment: tuple[MessageQueue, ...] = ()
    failing: tuple[MessageQueue, ...] = ()
    lag: int = 0
    last_error: str | None = None
    last_error_age: float | None = None


def health_of(
    client: ClientHealth,
    queues: Mapping[MessageQueue, QueueStatistics],
    last_error: tuple[str, float] | None,
    reasons: Iterable[str],
) -> ConsumerHealth:
    """Return the health of a consumer.

    Args:
        client: the health of its client.
        queues: the statistics of its queues.
        last_error: its last error, and the seconds since then. None if there is none.
        reasons: why the consumer itself is not ready.
    """
    failing = tuple(queue for queue, one in queues.items() if one.state is PullState.FAILED)
    found = [*reasons, *client.reasons]
    if failing and len(failing) == len(queues) and not client.reasons:
        found.append(f"the last pulls failed in {some_of('queue', list(map(queue_name, failing)))}")
    error, age = last_error or (None, None)
    return ConsumerHealth(
        reasons=tuple(found),
        client=client,
        assignment=tuple(queues),
        failing=failing,
        lag=sum(one.lag or 0 for one in queues.values()),
        last_error=error,
        last_error_age=age,
    )
