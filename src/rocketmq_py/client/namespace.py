"""Namespaces, which let several tenants of a cluster use the same names of topics and groups."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import attrs
import msgspec

from rocketmq_py.errors import ConfigurationError
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.names import (
    DEAD_LETTER_PREFIX,
    RETRY_PREFIX,
    check_group,
    check_topic,
    is_internal_topic,
    is_system_topic,
    reply_topic,
)
from rocketmq_py.protocol.bodies import ClusterInfo
from rocketmq_py.protocol.handles import TopicKind, pop_retry_topic
from rocketmq_py.protocol.headers.base import Header

_SEPARATOR = "%"
_LEGAL = re.compile(r"[|a-zA-Z0-9_-]+", re.ASCII)
_SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
_TOOLS_GROUP = "TOOLS_CONSUMER"
"""A built-in group of every broker. It has no offsets, so tenants may share it."""

_INSTANCE = re.compile(r"(MQ_INST_\w+_\w+)\.", re.ASCII)
"""The beginning of a host that contains a namespace. Java: ``NameServerAddressUtils``."""
_NAMESPACED_HOST = re.compile(r"rocketmq-[^.]+\..*\.tencenttdmq\.com:", re.IGNORECASE)
"""The hosts of a managed service whose instances have namespaces that the host does not contain."""

_TOPIC_ATTRIBUTES = frozenset(
    {"topic", "origin_topic", "parent_topic", "subscription_table", "status_table", "topic_meta"}
)
_GROUP_ATTRIBUTES = frozenset(
    {"group", "group_name", "consumer_group", "producer_group", "group_list", "groups"}
)
_GROUPS_BY_TOPIC = frozenset({"group_meta"})
"""The attributes of headers, bodies, queues and messages that hold names of topics, names of groups, or both.

Each holds a name, a tuple of names, or a table by name. Tables of all topics or groups of a broker are not
among them, because names in such a table may differ in nothing but the namespace.
"""

_Value = TypeVar("_Value")
_Rename = Callable[[str], str]


def check_namespace(name: str) -> str:
    """Return ``name`` if it is valid for a namespace, or empty. Otherwise raise ConfigurationError."""
    if name and not _LEGAL.fullmatch(name):
        raise ConfigurationError(f"namespace {name!r} may hold only letters, digits and the characters | _ -")
    return name


def instance_namespace(addresses: Iterable[str]) -> str:
    """Return the namespace in the hosts of addresses, or an empty text. Java: ``ClientConfig.getNamespace``.

    A host such as ``MQ_INST_1234_Abcd.region.example`` is in the namespace ``MQ_INST_1234_Abcd``. Raises
    ConfigurationError if there are several namespaces.
    """
    found = {match[1]: None for address in addresses if (match := _INSTANCE.match(address))}
    if len(found) > 1:
        raise ConfigurationError(
            f"the addresses are of several instances, {' and '.join(found)}; pass those of one instance"
        )
    return next(iter(found), "")


def missing_topic_advice(topic: str, namespace: str, addresses: Sequence[str]) -> str:
    """Return why a missing topic may have another full name, or an empty text if nothing indicates it.

    Args:
        topic: the user's name of the topic.
        namespace: the client's namespace, or an empty text.
        addresses: the name servers as the user gave them.
    """
    has_namespace = _SEPARATOR in _split(topic)[1]
    if namespace and has_namespace:
        return (
            "the name may contain a namespace already; pass the name without it, or namespace='' to use the "
            "name unchanged"
        )
    instance = next((match[1] for address in addresses if (match := _INSTANCE.match(address))), None)
    if namespace or has_namespace:
        return ""
    if instance is not None:
        return f"the address is of the namespace {instance}, which namespace='' turns off"
    if any(map(_NAMESPACED_HOST.match, addresses)):
        return "instances with such an address have a namespace; pass it as namespace="
    return ""


class Namespace:
    """Converts the user's names of topics and groups to those on the wire, and back. Java: ``NamespaceUtil``.

    On the wire, topic ``T`` and group ``G`` are ``name%T`` and ``name%G``, and the group's retry and
    dead-letter topics are ``%RETRY%name%G`` and ``%DLQ%name%G``. Names that RocketMQ reserves, and names that
    have the namespace already, are not changed. Without a namespace, no name is.

    Names are converted where requests leave the client and where answers arrive: in BrokerCalls, NameServers,
    Heartbeats and ClientCore. In between, all names are the user's.

    Args:
        name: the namespace: letters, digits and ``| _ -``. Empty for no namespace.

    Raises:
        ConfigurationError: the name is not valid.
    """

    __slots__ = ("_prefix", "_system_topics", "name")

    def __init__(self, name: str = "") -> None:
        self.name: str = check_namespace(name)
        self._prefix = f"{name}{_SEPARATOR}" if name else ""
        self._system_topics: set[str] = set()

    def __repr__(self) -> str:
        return f"Namespace({self.name!r})"

    def add_system_topic(self, topic: str) -> None:
        """Do not change the name of a topic of the cluster's own. Java: ``TopicValidator.addSystemTopic``."""
        if self._prefix:
            self._system_topics.add(topic)

    def wrap_topic(self, topic: str) -> str:
        """Return the name of a topic on the wire. Raises ConfigurationError if that is too long."""
        if self.has_topic(topic):
            return topic
        kind, rest = _split(topic)
        # In the name of a pop retry topic a topic follows the group, so it may be longer than a group.
        return check_topic(kind + self._prefix + rest)

    def has_topic(self, topic: str) -> bool:
        """Return whether a topic, named as on the wire, is in this namespace or shared by all namespaces.

        Without a namespace, every topic is.
        """
        if not self._prefix or is_system_topic(topic) or topic in self._system_topics:
            return True
        kind, rest = _split(topic)
        return self.has_group(rest) if kind else topic.startswith(self._prefix)

    def unwrap_topic(self, topic: str) -> str:
        """Return the user's name of a topic. The name of a topic of another namespace is not changed."""
        if not self._prefix:
            return topic
        kind, rest = _split(topic)
        return kind + rest.removeprefix(self._prefix)

    def wrap_group(self, group: str) -> str:
        """Return the name of a group on the wire. Raises ConfigurationError if that is too long."""
        return group if self.has_group(group) else check_group(self._prefix + group)

    def has_group(self, group: str) -> bool:
        """Return whether a group is in this namespace or shared by all. See :meth:`has_topic`."""
        return (
            not self._prefix
            or group.startswith((self._prefix, _SYSTEM_GROUP_PREFIX))
            or group == _TOOLS_GROUP
        )

    def unwrap_group(self, group: str) -> str:
        """Return the user's name of a group. The name of a group of another namespace is not changed."""
        return group.removeprefix(self._prefix)

    # Tables of all topics or groups, of all namespaces, keep the names on the wire: "T" and "ns%T" differ.

    def own_topics(self, table: Mapping[str, _Value]) -> dict[str, _Value]:
        """Return the entries of a table of all topics that :meth:`has_topic` is true for, by user's name."""
        return {self.unwrap_topic(topic): value for topic, value in table.items() if self.has_topic(topic)}

    def own_groups(self, table: Mapping[str, _Value]) -> dict[str, _Value]:
        """Return the entries of a table of all groups that :meth:`has_group` is true for, by user's name."""
        return {self.unwrap_group(group): value for group, value in table.items() if self.has_group(group)}

    def find_topic(self, topic: str, table: Mapping[str, _Value]) -> _Value | None:
        """Return the entry of the user's topic in a table of all topics, or None."""
        return table.get(self.wrap_topic(topic))

    def find_group(self, group: str, table: Mapping[str, _Value]) -> _Value | None:
        """Return the entry of the user's group in a table of all groups, or None."""
        return table.get(self.wrap_group(group))

    def same_topic(self, one: str, other: str) -> bool:
        """Return whether two names, with this namespace or without it, are those of one topic."""
        return self.unwrap_topic(one) == self.unwrap_topic(other)

    def same_group(self, one: str, other: str) -> bool:
        """Return whether two names, with this namespace or without it, are those of one group."""
        return self.unwrap_group(one) == self.unwrap_group(other)

    def popped_topic(self, topic: str, group: str, kind: TopicKind = TopicKind.RETRY) -> str:
        """Return the topic that a popped message is from, by default the pop retry topic.

        Brokers put popped messages in the pop retry topic that were not acknowledged. Consumers that pull
        subscribe to it as well. As in Java's ``KeyBuilder``. The topic in the result has the namespace, and
        the group has none, so that :meth:`wrap_topic` gives the name on the wire. It could not add the
        namespace to the topic, because the name does not tell where the group ends.
        """
        return kind.topic(self.wrap_topic(topic), group)

    def original_topic(self, topic: str, group: str) -> str:
        """Return the user's name of the topic to which a message was sent before it was moved for a retry.

        Args:
            topic: the name on the wire. Unless it is a pop retry topic, it is the original one.
            group: the consumer group.
        """
        name, prefix = self.unwrap_topic(topic), pop_retry_topic("", group)
        return self.unwrap_topic(name.removeprefix(prefix)) if name.startswith(prefix) else name

    def wrap(self, value: _Value) -> _Value:
        """Return a header or body with the names on the wire."""
        return _renamed(value, self.wrap_topic, self.wrap_group) if self._prefix else value

    def unwrap(self, value: _Value) -> _Value:
        """Return a header, a body or messages from a broker with the user's names.

        Names of another namespace are not changed, nor are properties of messages, as in Java.
        """
        return _renamed(value, self.unwrap_topic, self.unwrap_group) if self._prefix else value


def _renamed(value: Any, topic: _Rename, group: _Rename) -> Any:
    """Return a header, a body or messages, or a value in one, with other names of topics and groups."""
    kind: type[object] = type(value)
    attributes, replace = _attributes_of(kind)  # type: ignore[arg-type]  # mypy: a type is hashable
    if attributes:
        changes = {}
        for attribute in attributes:
            member = getattr(value, attribute)
            if attribute in _TOPIC_ATTRIBUTES:
                changes[attribute] = _each(member, topic, topic, group)
            elif attribute in _GROUP_ATTRIBUTES:
                changes[attribute] = _each(member, group, topic, group)
            elif attribute in _GROUPS_BY_TOPIC:
                changes[attribute] = {topic(name): tuple(map(group, names)) for name, names in member.items()}
            else:
                changes[attribute] = _renamed(member, topic, group)
        return replace(value, **changes)
    if issubclass(kind, (list, tuple)):
        return kind([_renamed(item, topic, group) for item in value])
    if issubclass(kind, dict):
        return {_renamed(key, topic, group): _renamed(item, topic, group) for key, item in value.items()}
    return value


def _each(names: Any, rename: _Rename, topic: _Rename, group: _Rename) -> Any:
    """Return a name, a tuple of names, or a table by name with other names. None and empty ones stay."""
    if not names:
        return names
    if isinstance(names, str):
        return rename(names)
    if isinstance(names, dict):
        return {rename(name): _renamed(value, topic, group) for name, value in names.items()}
    return tuple(map(rename, names))


@functools.cache
def _attributes_of(kind: type) -> tuple[tuple[str, ...], Callable[..., Any]]:
    """Return the attributes of a type in which there may be names, and how they are replaced."""
    replace: Callable[..., Any] = attrs.evolve
    attributes: tuple[str, ...] = ()
    if issubclass(kind, msgspec.Struct):
        attributes, replace = kind.__struct_fields__, msgspec.structs.replace
    elif attrs.has(kind):
        attributes = tuple([field.name for field in attrs.fields(kind)])
    if issubclass(kind, Header | MessageQueue | ReceivedMessage):  # nothing in their attributes has names
        attributes = tuple([one for one in attributes if one in _TOPIC_ATTRIBUTES | _GROUP_ATTRIBUTES])
    return attributes, replace


def _split(topic: str) -> tuple[str, str]:
    """Return the prefix of a retry or dead-letter topic, or an empty str, and the rest of the name."""
    for kind in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if topic.startswith(kind):
            return kind, topic[len(kind) :]
    return "", topic


def users_topics(topics: Iterable[str], info: ClusterInfo, namespace: Namespace) -> list[str]:
    """Return the user's names of the topics that are neither retry or dead-letter topics nor RocketMQ's own.

    With a namespace, only topics of this namespace.

    Args:
        topics: the names of all topics, as name servers or brokers list them.
        info: the cluster. Brokers create topics that are named after the cluster and after themselves.
        namespace: the client's namespace.
    """
    own = {*info.broker_addr_table, *info.cluster_addr_table, *map(reply_topic, info.cluster_addr_table)}
    users = [topic for topic in topics if topic not in own and not is_internal_topic(topic)]
    return list(namespace.own_topics(dict.fromkeys(users)))
