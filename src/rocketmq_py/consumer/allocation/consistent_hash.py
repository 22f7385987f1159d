"""Sharing out queues by a hash ring: when a member comes or goes, few queues change hands."""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Callable, Sequence

import attrs

from rocketmq_py.arguments import positive
from rocketmq_py.client.namespace import Namespace
from rocketmq_py.message import MessageQueue

VIRTUAL_NODES = 10
"""Points that each member has on the ring: as many as in Java, else its members would not agree."""


def md5_hash(key: str) -> int:
    """Return the first 32 bits of a text's MD5. Java: ``ConsistentHashRouter.MD5Hash``."""
    return int.from_bytes(hashlib.md5(key.encode(), usedforsecurity=False).digest()[:4], "big")


@attrs.frozen
class AllocateConsistentHash:
    """Give each queue to the member that follows it on a hash ring.

    Java: ``AllocateMessageQueueConsistentHash``. How many queues a member gets is left to chance: perhaps
    none.

    Args:
        virtual_nodes: points that each member has on the ring; the more, the more even. Raises
            ConfigurationError if there are none.
        hash_function: where on the ring a text is. Java: ``HashFunction``.
        namespace: the client's namespace, if it has one and there are members in Java: they hash queues'
            names as they are on the wire.
    """

    virtual_nodes: int = attrs.field(default=VIRTUAL_NODES, validator=positive)
    hash_function: Callable[[str], int] = md5_hash
    namespace: str = attrs.field(default="", kw_only=True)

    def __call__(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str], /
    ) -> Sequence[MessageQueue]:
        """Return the queues that ``client_id`` follows."""
        ring = {
            self.hash_function(f"{member}-{number}"): member
            for member in client_ids
            for number in range(self.virtual_nodes)
        }
        points = sorted(ring)
        wrap = Namespace(self.namespace).wrap_topic

        def owner(queue: MessageQueue) -> str:
            hashed = self.hash_function(_text(wrap(queue.topic), queue))
            return ring[points[bisect.bisect_left(points, hashed) % len(points)]]

        return [queue for queue in queues if owner(queue) == client_id]


def _text(topic: str, queue: MessageQueue) -> str:
    """Return what Java's ``MessageQueue.toString`` does."""
    return f"MessageQueue [topic={topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
