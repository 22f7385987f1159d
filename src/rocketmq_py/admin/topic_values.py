"""Values that describe topics: settings, queues and message types."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

import attrs

from rocketmq_py.admin.fan_out import Listing
from rocketmq_py.errors import RocketMQError, UnsupportedByBrokerError
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import READABLE, WRITABLE, QueueData, TopicConfig, TopicOffset

TYPE_ATTRIBUTE = "message.type"
"""The attribute of 5.x topics that holds their message type. Java: ``TopicAttributes``."""

TOPIC_SETTINGS: Final = "order, type and attributes"
STORE_TIMES: Final = "times of the last messages"


class MessageType(enum.StrEnum):
    """The type of messages that a topic is for. Proxies of 5.x check it. Java: ``TopicMessageType``.

    Brokers support message types from 5.0 on, LITE and PRIORITY from later versions. They reject types that
    they do not support, and MIXED unless ``enableMixedMessageType`` is set.
    """

    NORMAL = "NORMAL"
    FIFO = "FIFO"
    DELAY = "DELAY"
    TRANSACTION = "TRANSACTION"
    MIXED = "MIXED"
    LITE = "LITE"
    PRIORITY = "PRIORITY"


class Permission(enum.StrEnum):
    """The permission of clients on a topic. Java: ``PermName``."""

    READ_WRITE = "RW"
    READ = "R"
    WRITE = "W"
    NONE = "-"


_OF_BITS = {
    READABLE | WRITABLE: Permission.READ_WRITE,
    READABLE: Permission.READ,
    WRITABLE: Permission.WRITE,
    0: Permission.NONE,
}


def permission_of_bits(perm: int) -> Permission:
    """Return the permission for the bits of ``TopicConfig.perm``."""
    return _OF_BITS[perm & (READABLE | WRITABLE)]


def permission_bits(permission: Permission) -> int:
    """Return the bits of ``TopicConfig.perm`` for a permission."""
    return next(bits for bits, one in _OF_BITS.items() if one is permission)


@attrs.frozen(kw_only=True)
class TopicSettings:
    """A topic's settings on one broker. Java: ``TopicConfig``.

    Attributes:
        read_queues: number of queues that consumers read.
        write_queues: number of queues that producers write.
        permission: the permission of clients.
        order: whether producers keep all queues of the topic while a broker is down. Name servers must have
            ``orderMessageEnable``.
        attributes: further settings (5.x), such as ``message.type``.
    """

    read_queues: int
    write_queues: int
    permission: Permission
    order: bool = False
    attributes: Mapping[str, str] = attrs.field(factory=dict)


def settings_of_topic(config: TopicConfig) -> TopicSettings:
    """Return the settings of a topic in a broker's response."""
    return TopicSettings(
        read_queues=config.read_queue_nums,
        write_queues=config.write_queue_nums,
        permission=permission_of_bits(config.perm),
        order=config.order,
        attributes=dict(config.attributes),
    )


def settings_in_route(data: QueueData) -> TopicSettings:
    """Return the settings of a topic in a route, which has no order and no attributes."""
    return TopicSettings(
        read_queues=data.read_queue_nums,
        write_queues=data.write_queue_nums,
        permission=permission_of_bits(data.perm),
    )


def unread_queues_of(topic: str, brokers: Mapping[str, TopicSettings]) -> tuple[MessageQueue, ...]:
    """Return the queues of a topic that producers write, but consumers do not read."""
    return tuple(
        MessageQueue(topic, name, queue_id)
        for name, settings in brokers.items()
        if permission_bits(settings.permission) & WRITABLE
        for queue_id in range(settings.read_queues, settings.write_queues)
    )


def _type_of(brokers: Mapping[str, TopicSettings]) -> str:
    """Return the message type of a topic. If brokers differ, all of their types, joined by ``/``."""
    types = {settings.attributes.get(TYPE_ATTRIBUTE, MessageType.NORMAL) for settings in brokers.values()}
    return "/".join(sorted(types))


@attrs.frozen(kw_only=True)
class TopicSummary:
    """A topic in a listing.

    Attributes:
        topic: the topic's name.
        brokers: the settings by broker name, without the brokers that did not answer.
    """

    topic: str
    brokers: Mapping[str, TopicSettings]

    @property
    def message_type(self) -> str | None:
        """A ``MessageType``, or a newer type. NORMAL on brokers of 4.x. None if no broker answered."""
        return _type_of(self.brokers) if self.brokers else None

    @property
    def read_queues(self) -> int | None:
        """The number of queues on all brokers that consumers read. None if no broker answered."""
        return sum(settings.read_queues for settings in self.brokers.values()) if self.brokers else None

    @property
    def write_queues(self) -> int | None:
        """The number of queues on all brokers that producers write. None if no broker answered."""
        return sum(settings.write_queues for settings in self.brokers.values()) if self.brokers else None

    @property
    def permissions(self) -> tuple[Permission, ...]:
        """The permission of clients. Several if brokers differ, and none if no broker answered."""
        return tuple(sorted({settings.permission for settings in self.brokers.values()}))


@attrs.frozen(kw_only=True)
class TopicListing(Listing[TopicSummary]):
    """All topics.

    Attributes:
        topics: the topics, sorted by name.
        failures: the error of each broker that did not return its topics' settings, by its name.
    """

    topics: tuple[TopicSummary, ...]
    failures: Mapping[str, RocketMQError]

    @property
    def _items(self) -> tuple[TopicSummary, ...]:
        return self.topics


@attrs.frozen(kw_only=True)
class TopicQueue:
    """A queue of a topic. Java: ``TopicOffset``.

    Attributes:
        queue: the queue.
        min_offset: the offset of the oldest message.
        max_offset: the offset of the next message.
        last_message_ms: store time of the newest message, epoch milliseconds. None if there is none.
    """

    queue: MessageQueue
    min_offset: int
    max_offset: int
    last_message_ms: int | None

    @property
    def messages(self) -> int:
        """The number of messages."""
        return self.max_offset - self.min_offset


def topic_queue(topic: str, queue: MessageQueue, offset: TopicOffset) -> TopicQueue:
    """Return a queue in a broker's response.

    Args:
        topic: the topic's user-visible name.
        queue: the queue, with the topic's name on the wire.
        offset: the queue's offsets.
    """
    return TopicQueue(
        queue=MessageQueue(topic, queue.broker_name, queue.queue_id),
        min_offset=offset.min_offset,
        max_offset=offset.max_offset,
        last_message_ms=offset.last_update_timestamp or None,
    )


@attrs.frozen(kw_only=True)
class TopicDescription:
    """A topic with its route, settings and queues.

    Java: ``TopicRouteData``, ``TopicConfig`` and ``TopicStatsTable``.

    Attributes:
        topic: the topic's name.
        brokers: the settings by broker name.
        addresses: the addresses of the topic's brokers, by name.
        queues: the queues, sorted by broker and id.
        order_configuration: the fixed number of write queues on each broker,
            ``broker:count;broker:count``. None unless the topic is ordered and the name server has
            ``orderMessageEnable``.
        logical_queues: for a static topic (5.x), the broker of each logical queue by its number. None if no
            broker has it at the moment. ``queues`` are the brokers' own queues, which hold the messages.
        failures: the error of each broker that did not answer, by its name.
        not_offered: the parts that a managed service or a proxy does not offer, in words, with its error.
            Without the settings, ``brokers`` has the queues and the permission in the route, without order
            and attributes. Without the state, ``last_message_ms`` is None.
        permissions_in_route: the permission that clients find in the route, by broker name. It differs from
            that in ``brokers`` after ``admin.brokers.wipe_write_permission``.
    """

    topic: str
    brokers: Mapping[str, TopicSettings]
    addresses: Mapping[str, str]
    queues: tuple[TopicQueue, ...]
    order_configuration: str | None
    logical_queues: Mapping[int, str | None]
    failures: Mapping[str, RocketMQError]
    not_offered: Mapping[str, UnsupportedByBrokerError] = attrs.field(factory=dict)
    permissions_in_route: Mapping[str, Permission] = attrs.field(factory=dict)

    @property
    def message_type(self) -> str | None:
        """A ``MessageType``, or a newer type. NORMAL on brokers of 4.x. None if it is not offered."""
        return _type_of(self.brokers) if self.has_settings else None

    @property
    def has_settings(self) -> bool:
        """Whether the order and the attributes in ``brokers`` are known."""
        return TOPIC_SETTINGS not in self.not_offered

    @property
    def messages(self) -> int:
        """The number of messages."""
        return sum(queue.messages for queue in self.queues)

    @property
    def unread_queues(self) -> tuple[MessageQueue, ...]:
        """The queues that producers write, but consumers do not read."""
        return unread_queues_of(self.topic, self.brokers)

    @property
    def last_message_ms(self) -> int | None:
        """Store time of the newest message, epoch milliseconds. None if there is none."""
        return max((queue.last_message_ms for queue in self.queues if queue.last_message_ms), default=None)
