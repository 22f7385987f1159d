"""Settings of topics, groups, brokers and name servers, and users with their permissions (5.x).

Tools read and write them.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from rocketmq_py.errors import ConfigurationError, ProtocolError
from rocketmq_py.protocol import fastjson
from rocketmq_py.protocol.bodies.base import Body, convert
from rocketmq_py.protocol.bodies.group import SubscriptionGroupConfig
from rocketmq_py.protocol.decode_errors import decoder


class TopicConfig(Body, frozen=True, kw_only=True):
    """A topic's settings on a broker: the answer to GET_TOPIC_CONFIG. Java: ``TopicConfig``.

    Attributes:
        topic_name: its name.
        read_queue_nums: the number of queues for consumers.
        write_queue_nums: the number of queues for producers.
        perm: bits: 4 readable, 2 writable, 1 inherited.
        topic_filter_type: SINGLE_TAG or MULTI_TAG.
        topic_sys_flag: the topic's system flag.
        order: whether the topic is ordered: its queues stay on their brokers even when one is lost.
        attributes: further settings (5.x), such as ``message.type``.
    """

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = msgspec.field(default_factory=dict)


class DataVersion(Body, frozen=True, kw_only=True):
    """The version of a broker's table. Java: ``DataVersion``.

    Attributes:
        counter: the number of changes.
        timestamp: the time of the last change, epoch milliseconds.
        state_version: the controller's version (5.x). 0 without a controller.
    """

    counter: int = 0
    timestamp: int = 0
    state_version: int = 0


class TopicConfigTable(Body, frozen=True, kw_only=True):
    """All topics of a broker: the answer to GET_ALL_TOPIC_CONFIG. Java: ``TopicConfigSerializeWrapper``."""

    topic_config_table: dict[str, TopicConfig] = msgspec.field(default_factory=dict)
    data_version: DataVersion | None = None


class SubscriptionGroupTable(Body, frozen=True, kw_only=True):
    """All groups of a broker: the answer to GET_ALL_SUBSCRIPTIONGROUP_CONFIG.

    Java: ``SubscriptionGroupWrapper``.
    """

    subscription_group_table: dict[str, SubscriptionGroupConfig] = msgspec.field(default_factory=dict)
    data_version: DataVersion | None = None


class KeyValueTable(Body, frozen=True, kw_only=True):
    """Values by name: the answer to GET_BROKER_RUNTIME_INFO. Java: ``KVTable``."""

    table: dict[str, str] = msgspec.field(default_factory=dict)


class ProducerInfo(Body, frozen=True, kw_only=True):
    """A producer that is connected to a broker. Java: ``ProducerInfo``.

    Attributes:
        client_id: the client.
        remote_ip: its address, ``host:port``.
        language: its language, such as JAVA.
        version: its version, an ordinal of Java's ``MQVersion``.
        last_update_timestamp: the time of its last heartbeat, epoch milliseconds.
    """

    client_id: str
    remote_ip: str = msgspec.field(name="remoteIP", default="")
    language: str = "OTHER"
    version: int = 0
    last_update_timestamp: int = 0


class ProducerTable(Body, frozen=True, kw_only=True):
    """All producers of a broker, by group: the answer to GET_ALL_PRODUCER_INFO.

    Java: ``ProducerTableInfo``.
    """

    data: dict[str, tuple[ProducerInfo, ...]] = msgspec.field(default_factory=dict)


def read_properties(data: bytes) -> dict[str, str]:
    """Return the settings in the answer to GET_BROKER_CONFIG or GET_NAMESRV_CONFIG.

    Each line is ``name=value``, without any escaping (Java: ``MixAll.properties2String``).

    Raises:
        ProtocolError: the answer is not UTF-8.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ProtocolError(f"settings are not UTF-8: {error}") from error
    return {name: value for name, _, value in (line.partition("=") for line in text.splitlines()) if name}


def write_properties(settings: Mapping[str, str]) -> bytes:
    """Return the body of UPDATE_BROKER_CONFIG or UPDATE_NAMESRV_CONFIG.

    The peer reads it with Java's ``Properties.load``, so backslashes are escaped.

    Raises:
        ConfigurationError: a name is empty or contains a character that ends a name, or a value contains a
            line break.
    """
    lines = []
    for name, value in settings.items():
        if not name or any(character in name for character in "=:\\#! \t\r\n\f"):
            raise ConfigurationError(f"{name!r} is not a possible name of a setting")
        if "\n" in value or "\r" in value:
            raise ConfigurationError(f"the value of setting {name} contains a line break")
        lines.append(f"{name}={value}".replace("\\", "\\\\"))
    return "\n".join(lines).encode()


# Users and their permissions


class UserInfo(Body, frozen=True, kw_only=True):
    """A user. Java: ``UserInfo``.

    Attributes:
        username: the name, which is the access key.
        password: the secret key. Brokers include it in their answers.
        user_type: Super or Normal.
        user_status: enable or disable.
    """

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None

    def __repr__(self) -> str:
        # Without the password, which must not get into logs.
        return f"UserInfo(username={self.username!r}, user_type={self.user_type!r})"


class PolicyEntryInfo(Body, frozen=True, kw_only=True):
    """A rule: the permissions of a user on one resource. Java: ``AclInfo.PolicyEntryInfo``.

    Attributes:
        resource: the resource, such as ``Topic:Orders``, ``Group:bill*`` or ``Cluster:*``.
        actions: Pub, Sub, Create, Update, Delete, Get, List or All.
        source_ips: the addresses or networks from which the entry applies; empty for all.
        decision: Allow or Deny.
    """

    resource: str
    actions: tuple[str, ...] = ()
    source_ips: tuple[str, ...] = ()
    decision: str | None = None


class PolicyInfo(Body, frozen=True, kw_only=True):
    """A user's rules of one policy type. Java: ``AclInfo.PolicyInfo``.

    Attributes:
        policy_type: Custom, or Default for entries that apply if no Custom entry does.
        entries: the rules, one for each resource.
    """

    policy_type: str | None = None
    entries: tuple[PolicyEntryInfo, ...] = ()


class AclInfo(Body, frozen=True, kw_only=True):
    """All rules of a user. Java: ``AclInfo``.

    Attributes:
        subject: the user, such as ``User:alice``.
        policies: the rules, one item for each policy type.
    """

    subject: str | None = None
    policies: tuple[PolicyInfo, ...] = ()


@decoder("a list of users")
def read_users(data: bytes) -> tuple[UserInfo, ...]:
    """Return the users in the answer to AUTH_LIST_USER, or raise ProtocolError. No body means no users."""
    return convert(fastjson.loads(data), tuple[UserInfo, ...]) if data else ()


@decoder("a list of rules")
def read_acls(data: bytes) -> tuple[AclInfo, ...]:
    """Return each user's rules in the answer to AUTH_LIST_ACL, or raise ProtocolError. No body means none."""
    return convert(fastjson.loads(data), tuple[AclInfo, ...]) if data else ()
