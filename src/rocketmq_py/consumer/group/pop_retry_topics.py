"""The retry topics of pop, which members that pull read as well. Java: ``KeyBuilder``."""

from __future__ import annotations

from rocketmq_py.client.namespace import Namespace
from rocketmq_py.protocol.handles import pop_retry_topic


def retries_of(topic: str, group: str, namespace: Namespace) -> str:
    """Return where the broker puts what the group popped of a topic and did not acknowledge.

    It is for brokers without ``enableRetryTopicV2``, as in Java. The group is named as the user knows it, the
    topic as on the wire: so the namespace makes the name on the wire of it.
    """
    return pop_retry_topic(namespace.wrap_topic(topic), group)


def original_topic(topic: str, group: str, namespace: Namespace) -> str:
    """Return the topic, as a user calls it, that messages of a retry topic of pop were sent to.

    Any other topic, as it is on the wire, comes back as the user calls it.
    """
    name, prefix = namespace.unwrap_topic(topic), pop_retry_topic("", group)
    return namespace.unwrap_topic(name.removeprefix(prefix)) if name.startswith(prefix) else name
