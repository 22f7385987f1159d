"""What there is to know about topics."""

from __future__ import annotations

import enum
from collections.abc import Mapping

import attrs

from rocketmq_py.admin.asking import Listing
from rocketmq_py.errors import RocketMQError
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import READABLE, WRITABLE, TopicConfig

TYPE_ATTRIBUTE = "message.type"
"""The attribute of 5.x topics that says which kind of messages they take. Java: ``TopicAttributes``."""


class MessageType(enum.StrEnum):
    """Which kind of messages a topic takes, where proxies of 5.x check that. Java: ``TopicMessageType``.

    Brokers know them from 5.0 on, LITE and PRIORITY from later ones; they refuse those that they do not know,
    and MIXED where ``enableMixedMessageType`` is not set.
    """

    NORMAL = "NORMAL"
    FIFO = "FIFO"
    DELAY = "DELAY"
    TRANSACTION = "TRANSACTION"
    MIXED = "MIXED"
    LITE = "LITE"
    PRIORITY = "PRIORITY"


class Permission(enum.StrEnum):
    """What clients may do with a topic. Java: ``PermName``."""

    READ_WRITE = "RW"
    READ = "R"
    WRITE = "W"
    NONE = "-"

    @classmethod
    def of_bits(cls, perm: int) -> Permission:
        """Return the permission that the bits of ``TopicConfig.perm`` say."""
        return _OF_BITS[perm & (READABLE | WRITABLE)]

    @property
    def bits(self) -> int:
        """The bits of ``TopicConfig.perm``."""
        return next(bits for bits, permission in _OF_BITS.items() if permission is self)


_OF_BITS = {
    READABLE | WRITABLE: Permission.READ_WRITE,
    READABLE: Permission.READ,
    WRITABLE: Permission.WRITE,
    0: Permission.NONE,
}


@attrs.frozen(kw_only=True)
class TopicSettings:
    """A topic's settings on one broker. Java: ``TopicConfig``.

    Attributes:
        read_queues: queues that consumers read.
        write_queues: queues that producers write.
        permission: what clients may do with it.
        order: whether its queues keep their places when a broker is lost.
        attributes: further settings (5.x), such as ``message.type``.
    """

    read_queues: int
    write_queues: int
    permission: Permission
    order: bool = False
    attributes: Mapping[str, str] = attrs.field(factory=dict)

    @classmethod
    def of(cls, config: TopicConfig) -> TopicSettings:
        """Return the settings that a broker's answer holds."""
        return cls(
            read_queues=config.read_queue_nums,
            write_queues=config.write_queue_nums,
            permission=Permission.of_bits(config.perm),
            order=config.order,
            attributes=dict(config.attributes),
        )


def _type_of(brokers: Mapping[str, TopicSettings]) -> str:
    """Return the kind of messages that a topic takes; several with ``/`` between, if brokers differ."""
    types = {settings.attributes.get(TYPE_ATTRIBUTE, MessageType.NORMAL) for settings in brokers.values()}
    return "/".join(sorted(types)) or MessageType.NORMAL


@attrs.frozen(kw_only=True)
class TopicSummary:
    """A topic in a list.

    Attributes:
        topic: its name.
        brokers: its settings by broker; of a broker that did not answer they are missing.
    """

    topic: str
    brokers: Mapping[str, TopicSettings]

    @property
    def message_type(self) -> str:
        """A ``MessageType``, or one that is not known here. Brokers of 4.x know only NORMAL."""
        return _type_of(self.brokers)

    @property
    def read_queues(self) -> int:
        """Queues that consumers read, of all brokers together."""
        return sum(settings.read_queues for settings in self.brokers.values())

    @property
    def write_queues(self) -> int:
        """Queues that producers write, of all brokers together."""
        return sum(settings.write_queues for settings in self.brokers.values())

    @property
    def permissions(self) -> tuple[Permission, ...]:
        """What clients may do with it; several where brokers differ."""
        return tuple(sorted({settings.permission for settings in self.brokers.values()}))


@attrs.frozen(kw_only=True)
class TopicListing(Listing[TopicSummary]):
    """All topics.

    Attributes:
        topics: sorted by name.
        failures: the error of each broker that did not tell its topics' settings.
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
        queue: which.
        min_offset: the oldest message.
        max_offset: the offset that the next message will get.
        last_message_ms: when the last message was stored, epoch milliseconds; None if there is none.
    """

    queue: MessageQueue
    min_offset: int
    max_offset: int
    last_message_ms: int | None

    @property
    def messages(self) -> int:
        """How many there are."""
        return self.max_offset - self.min_offset


@attrs.frozen(kw_only=True)
class TopicDescription:
    """A topic, and where it is. Java: ``TopicRouteData``, ``TopicConfig`` and ``TopicStatsTable``.

    Attributes:
        topic: its name.
        brokers: its settings by broker.
        addresses: the addresses of its brokers, by name.
        queues: its queues, sorted by broker and id.
        order_configuration: of an ordered topic: which queues each broker has for good, as
            ``broker:count;broker:count``.
        failures: the error of each broker that did not answer.
    """

    topic: str
    brokers: Mapping[str, TopicSettings]
    addresses: Mapping[str, str]
    queues: tuple[TopicQueue, ...]
    order_configuration: str | None
    failures: Mapping[str, RocketMQError]

    @property
    def message_type(self) -> str:
        """A ``MessageType``, or one that is not known here. Brokers of 4.x know only NORMAL."""
        return _type_of(self.brokers)

    @property
    def messages(self) -> int:
        """How many there are."""
        return sum(queue.messages for queue in self.queues)

    @property
    def last_message_ms(self) -> int | None:
        """When the last message was stored, epoch milliseconds; None if there is none."""
        return max((queue.last_message_ms for queue in self.queues if queue.last_message_ms), default=None)
