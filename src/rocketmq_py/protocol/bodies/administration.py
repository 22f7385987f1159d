"""Settings of topics, groups, brokers and name servers, which tools read and write."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from rocketmq_py.errors import ConfigurationError, ProtocolError
from rocketmq_py.protocol.bodies.base import Body
from rocketmq_py.protocol.bodies.group import SubscriptionGroupConfig


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
