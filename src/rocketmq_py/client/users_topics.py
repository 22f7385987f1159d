"""Telling users' topics from those that RocketMQ makes for itself."""

from __future__ import annotations

from collections.abc import Iterable

from rocketmq_py.client.namespace import Namespace
from rocketmq_py.names import DEAD_LETTER_PREFIX, RETRY_PREFIX, is_system_topic, reply_topic
from rocketmq_py.protocol.bodies import ClusterInfo

_SYSTEM_PREFIX = "RMQ_SYS_"
"""Topics of 5.5 brokers that Java's own list of system topics lacks begin like the others."""


def users_topics(topics: Iterable[str], info: ClusterInfo, namespace: Namespace) -> list[str]:
    """Return those topics that are neither a group's own nor RocketMQ's, by their names on the wire.

    Where there is a namespace, those of it.

    Args:
        topics: as name servers or brokers list them.
        info: the cluster: brokers make topics by its name and by their own.
        namespace: the client's.
    """
    own = {*info.broker_addr_table, *info.cluster_addr_table, *map(reply_topic, info.cluster_addr_table)}
    return [
        topic
        for topic in topics
        if topic not in own
        and not topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX, _SYSTEM_PREFIX))
        and not is_system_topic(topic)
        and namespace.wrap_topic(topic) == topic
    ]
