"""What tools read and write: settings of topics, groups, brokers and name servers."""

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
        read_queue_nums: queues that consumers read.
        write_queue_nums: queues that producers write.
        perm: bits: 4 readable, 2 writable, 1 inherited.
        topic_filter_type: SINGLE_TAG or MULTI_TAG.
        topic_sys_flag: the topic's system flag.
        order: whether queues keep their places when a broker is lost.
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
    """Which state of a table this is. Java: ``DataVersion``.

    Attributes:
        counter: how often it has changed.
        timestamp: when it did so last, epoch milliseconds.
        state_version: left at 0 by brokers without a controller (5.x).
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
    """Texts by name: the answer to GET_BROKER_RUNTIME_INFO. Java: ``KVTable``."""

    table: dict[str, str] = msgspec.field(default_factory=dict)


class ProducerInfo(Body, frozen=True, kw_only=True):
    """A producer that is connected to a broker. Java: ``ProducerInfo``.

    Attributes:
        client_id: the client.
        remote_ip: its address, ``host:port``.
        language: the name of its language, such as JAVA.
        version: an ordinal of Java's ``MQVersion``.
        last_update_timestamp: its last heartbeat, epoch milliseconds.
    """

    client_id: str
    remote_ip: str = msgspec.field(name="remoteIP", default="")
    language: str = "OTHER"
    version: int = 0
    last_update_timestamp: int = 0


class ProducerTable(Body, frozen=True, kw_only=True):
    """All producers of a broker by group: the answer to GET_ALL_PRODUCER_INFO.

    Java: ``ProducerTableInfo``.
    """

    data: dict[str, tuple[ProducerInfo, ...]] = msgspec.field(default_factory=dict)


def read_properties(data: bytes) -> dict[str, str]:
    """Return the settings in the answer to GET_BROKER_CONFIG or GET_NAMESRV_CONFIG.

    They are written a line each as ``name=value``, with nothing escaped (Java: ``MixAll.properties2String``).

    Raises:
        ProtocolError: they are no UTF-8.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ProtocolError(f"settings are no UTF-8: {error}") from error
    return {name: value for name, _, value in (line.partition("=") for line in text.splitlines()) if name}


def write_properties(settings: Mapping[str, str]) -> bytes:
    """Return the body of UPDATE_BROKER_CONFIG or UPDATE_NAMESRV_CONFIG.

    The other side reads it with Java's ``Properties.load``, to which a backslash is an escape.

    Raises:
        ConfigurationError: a name is empty or holds what separates names from values, or a value has a
            line break.
    """
    lines = []
    for name, value in settings.items():
        if not name or any(character in name for character in "=:\\#! \t\r\n\f"):
            raise ConfigurationError(f"a setting cannot be called {name!r}")
        if "\n" in value or "\r" in value:
            raise ConfigurationError(f"the value of {name} has a line break in it")
        lines.append(f"{name}={value}".replace("\\", "\\\\"))
    return "\n".join(lines).encode()
