"""Namespaces: several tenants of one cluster, whose topics and groups may have the same names."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import attrs
import msgspec

from rocketmq_py.errors import ConfigurationError
from rocketmq_py.message import ReceivedMessage
from rocketmq_py.names import DEAD_LETTER_PREFIX, RETRY_PREFIX, check_group, check_topic, is_system_topic
from rocketmq_py.protocol.bodies import ConsumerData
from rocketmq_py.protocol.headers.base import Request

_SEPARATOR = "%"
_LEGAL = re.compile(r"[|a-zA-Z0-9_-]+", re.ASCII)
_SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
_TOOLS_GROUP = "TOOLS_CONSUMER"
"""Every broker has this group from the beginning, and it has no offsets that tenants could share."""

_TOPIC_ATTRIBUTES = ("topic", "origin_topic")
_GROUP_ATTRIBUTES = ("group", "consumer_group", "producer_group")

_Header = TypeVar("_Header", bound=Request)


def check_namespace(name: str) -> str:
    """Return ``name`` if it can be a namespace, or is empty, else raise ConfigurationError."""
    if name and not _LEGAL.fullmatch(name):
        raise ConfigurationError(f"namespace {name!r} may hold only letters, digits and the characters | _ -")
    return name


class Namespace:
    """Turns the names that a user knows into those on the wire, and back. Java: ``NamespaceUtil``.

    On the wire, topic ``T`` and group ``G`` are called ``name%T`` and ``name%G``, and the group's own
    topics ``%RETRY%name%G`` and ``%DLQ%name%G``. Names that RocketMQ keeps for itself stay as they are, as
    do those that have the namespace already. Everything stays as it is where there is no namespace.

    Args:
        name: the namespace: letters, digits and ``| _ -``. An empty text for no namespace.

    Raises:
        ConfigurationError: no namespace can have this name.
    """

    __slots__ = ("_kept_by_clusters", "_prefix", "name")

    def __init__(self, name: str = "") -> None:
        self.name: str = check_namespace(name)
        self._prefix = f"{name}{_SEPARATOR}" if name else ""
        self._kept_by_clusters: set[str] = set()

    def __repr__(self) -> str:
        return f"Namespace({self.name!r})"

    def add_system_topic(self, topic: str) -> None:
        """Leave a topic that a cluster keeps for itself as it is. Java: ``TopicValidator.addSystemTopic``."""
        if self._prefix:
            self._kept_by_clusters.add(topic)

    def wrap_topic(self, topic: str) -> str:
        """Return what a topic is called on the wire. Raises ConfigurationError if that is too long."""
        if not self._prefix or is_system_topic(topic) or topic in self._kept_by_clusters:
            return topic
        kind, rest = _split(topic)
        if kind:
            return kind + self.wrap_group(rest)
        return topic if topic.startswith(self._prefix) else check_topic(self._prefix + topic)

    def unwrap_topic(self, topic: str) -> str:
        """Return what a user calls a topic; one of another namespace keeps its whole name."""
        if not self._prefix:
            return topic
        kind, rest = _split(topic)
        return kind + rest.removeprefix(self._prefix)

    def unwrap_messages(self, messages: list[ReceivedMessage]) -> list[ReceivedMessage]:
        """Return messages that a broker sent, with their topic as a user calls it."""
        if not self._prefix:
            return messages
        return [attrs.evolve(message, topic=self.unwrap_topic(message.topic)) for message in messages]

    def wrap_group(self, group: str) -> str:
        """Return what a group is called on the wire. Raises ConfigurationError if that is too long."""
        if (
            not self._prefix
            or group.startswith((self._prefix, _SYSTEM_GROUP_PREFIX))
            or group == _TOOLS_GROUP
        ):
            return group
        return check_group(self._prefix + group)

    def unwrap_group(self, group: str) -> str:
        """Return what a user calls a group; one of another namespace keeps its whole name."""
        return group.removeprefix(self._prefix)

    def wrap(self, header: _Header) -> _Header:
        """Return a request's header with the names in it as they are on the wire."""
        if not self._prefix:
            return header
        names: dict[str, Any] = {}
        for attributes, wrap in ((_TOPIC_ATTRIBUTES, self.wrap_topic), (_GROUP_ATTRIBUTES, self.wrap_group)):
            for attribute in attributes:
                name = getattr(header, attribute, None)
                if name:
                    names[attribute] = wrap(name)
        return msgspec.structs.replace(header, **names)

    def wrap_consumer(self, consumer: ConsumerData) -> ConsumerData:
        """Return what a heartbeat says of a consumer, with the names as they are on the wire."""
        if not self._prefix:
            return consumer
        return msgspec.structs.replace(
            consumer,
            group_name=self.wrap_group(consumer.group_name),
            subscription_data_set=tuple(
                [
                    msgspec.structs.replace(subscription, topic=self.wrap_topic(subscription.topic))
                    for subscription in consumer.subscription_data_set
                ]
            ),
        )


def _split(topic: str) -> tuple[str, str]:
    """Return the prefix that marks a group's own topic, and the rest."""
    for kind in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if topic.startswith(kind):
            return kind, topic[len(kind) :]
    return "", topic
