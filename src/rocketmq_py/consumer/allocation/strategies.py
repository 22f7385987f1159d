"""How the members of a group share out a topic's queues."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import attrs

from rocketmq_py.arguments import check_instances
from rocketmq_py.message import MessageQueue
from rocketmq_py.names import RETRY_PREFIX


class AllocateStrategy(Protocol):
    """Chooses one member's queues of a topic. Java: ``AllocateMessageQueueStrategy``.

    Any callable will do. Every member asks for itself, so all must come to results that fit together: the
    answer depends on nothing but the arguments, and all members, also those in Java, use the same strategy.
    What it raises ends the consumer's run.
    """

    def __call__(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str], /
    ) -> Sequence[MessageQueue]:
        """Return the queues of the member ``client_id``.

        Args:
            group: the consumer group.
            client_id: who asks; one of ``client_ids``.
            queues: the topic's queues, sorted; not empty.
            client_ids: all members of the group, sorted.
        """


def allocate_averagely(
    group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str], /
) -> Sequence[MessageQueue]:
    """Give each member a run of neighbouring queues, the first members one more where it does not divide.

    Java: ``AllocateMessageQueueAveragely``, the default there and here.
    """
    index = client_ids.index(client_id)
    share, left_over = divmod(len(queues), len(client_ids))
    start = index * share + min(index, left_over)
    return queues[start : start + share + (index < left_over)]


def allocate_averagely_by_circle(
    group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str], /
) -> Sequence[MessageQueue]:
    """Give each member a queue in turn, as cards are dealt. Java: ``AllocateMessageQueueAveragelyByCircle``.

    With several brokers each member gets queues of all of them, rather than all of one broker's.
    """
    return queues[client_ids.index(client_id) :: len(client_ids)]


def _queues(queues: Iterable[MessageQueue]) -> frozenset[MessageQueue]:
    return frozenset(check_instances(queues, "queues", MessageQueue))


@attrs.frozen
class AllocateByConfig:
    """Give this member the queues that are named here. Java: ``AllocateMessageQueueByConfig``.

    Whoever configures the members sees to it that each queue is named once. The group's retry topic, if no
    queue of it is named, is shared out averagely: in Java nobody consumes it then.

    Args:
        queues: the member's queues, of all its topics; those that do not exist are waited for. Raises
            ConfigurationError if they are no queues.
    """

    queues: frozenset[MessageQueue] = attrs.field(converter=_queues)

    def __call__(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str], /
    ) -> Sequence[MessageQueue]:
        """Return those of ``queues`` that are named."""
        named = [queue for queue in queues if queue in self.queues]
        topic = queues[0].topic
        if topic.startswith(RETRY_PREFIX) and all(queue.topic != topic for queue in self.queues):
            return allocate_averagely(group, client_id, queues, client_ids)
        return named
