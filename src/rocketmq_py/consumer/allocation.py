"""How the members of a group share out a topic's queues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rocketmq_py.message import MessageQueue


class AllocateStrategy(Protocol):
    """Chooses one member's queues of a topic. Java: ``AllocateMessageQueueStrategy``.

    Every member asks for itself, so all must come to results that fit together: the answer depends on
    nothing but the arguments.
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
