"""Queues that a caller names, compared with those of their topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rocketmq_py.errors import NoQueueError
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import TopicRoute
from rocketmq_py.queues import queue_name

MAX_NAMED = 10
"""Unknown queues that an error names. There may be thousands in a file."""


def require_queues(topic: str, route: TopicRoute, queues: Iterable[MessageQueue]) -> None:
    """Raise NoQueueError if a topic does not have one of the queues, whether to write or to read."""
    counts = {
        data.broker_name: max(data.read_queue_nums, data.write_queue_nums) for data in route.queue_datas
    }
    unknown = [
        queue
        for queue in sorted(queues)
        if queue.topic != topic or not 0 <= queue.queue_id < counts.get(queue.broker_name, 0)
    ]
    if unknown:
        raise missing_queues(topic, unknown, counts)


def missing_queues(topic: str, unknown: Iterable[MessageQueue], counts: Mapping[str, int]) -> NoQueueError:
    """Return the error for queues that a topic does not have.

    Args:
        topic: the topic.
        unknown: the queues.
        counts: the number of queues that it has on each broker.
    """
    names = [
        f"{one.broker_name}/{one.queue_id}" if one.topic == topic else queue_name(one) for one in unknown
    ]
    others = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    existing = ", ".join(queue_range(name, 0, count) for name, count in sorted(counts.items()) if count)
    return NoQueueError(
        f"topic {topic!r} does not have {', '.join(names[:MAX_NAMED])}{others}; "
        f"its queues: {existing or 'none'}"
    )


def queue_range(broker_name: str, first: int, end: int) -> str:
    """Return the queues of a broker from ``first`` to the one before ``end``: ``broker-a/0 to 3``."""
    return f"{broker_name}/{first}" + (f" to {end - 1}" if end - first > 1 else "")
