"""Telling users' topics from those that RocketMQ makes for itself."""

from __future__ import annotations

from collections.abc import Iterable

from rocketmq_py.client.namespace import Namespace
from rocketmq_py.names import is_internal_topic, reply_topic
from rocketmq_py.protocol.bodies import ClusterInfo


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
        if topic not in own and not is_internal_topic(topic) and namespace.wrap_topic(topic) == topic
    ]
