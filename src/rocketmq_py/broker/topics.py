"""The broker's topics and their automatic creation (Java: ``TopicConfigManager``)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

import attrs

from rocketmq_py import names
from rocketmq_py.arguments import check_texts
from rocketmq_py.broker.admin.attributes import TOPIC_ATTRIBUTES
from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.profiles import Profile
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.names import (
    DEAD_LETTER_PREFIX,
    DEFAULT_TOPIC,
    MAX_RETRY_TOPIC_LENGTH,
    RETRY_PREFIX,
    check_count,
    check_topic,
)
from rocketmq_py.protocol import bodies

PERM_READ = 4
PERM_WRITE = 2
PERM_INHERIT = 1

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
SCHEDULE_TOPIC_QUEUES = 18
TIMER_TOPIC = "rmq_sys_wheel_timer"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
MAX_CHECKS_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
"""The topic of half messages that are discarded after too many checks."""
_NOT_SENDABLE = frozenset(
    {
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        MAX_CHECKS_TOPIC,
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)
"""Java: ``TopicValidator.NOT_ALLOWED_SEND_TOPIC_SET``."""
TYPE_ATTRIBUTE = "message.type"
"""The attribute of topics that has the type of their messages. Topics without it are NORMAL."""
_LEGAL_NAME = "^[%|a-zA-Z0-9_-]+$"
_is_legal = re.compile(_LEGAL_NAME, re.ASCII).fullmatch


@attrs.frozen
class TopicConfig:
    """The settings of a topic. Java: ``TopicConfig``.

    Attributes:
        topic_name: the name.
        read_queue_nums: the number of queues that consumers may read.
        write_queue_nums: the number of queues that producers may write to.
        perm: permission bits: 4 readable, 2 writable, 1 inherited by topics created from this one.
        topic_filter_type: SINGLE_TAG or MULTI_TAG.
        topic_sys_flag: unit flags; stored and not evaluated.
        order: whether the topic keeps its queues when a broker is lost. Here it only matters for sends to a
            broker without write permission: see ``BrokerConfig.broker_permission``.
        attributes: attributes of 5.x by name. ``TOPIC_ATTRIBUTES`` says which of them have an effect.
    """

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = PERM_READ | PERM_WRITE
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def is_readable(self) -> bool:
        """Whether consumers may pull from it."""
        return self.perm & PERM_READ != 0

    @property
    def is_writable(self) -> bool:
        """Whether producers may send to it."""
        return self.perm & PERM_WRITE != 0

    @property
    def body(self) -> bodies.TopicConfig:
        """The settings as answers contain them."""
        return bodies.TopicConfig(
            topic_name=self.topic_name,
            read_queue_nums=self.read_queue_nums,
            write_queue_nums=self.write_queue_nums,
            perm=self.perm,
            topic_filter_type=self.topic_filter_type,
            topic_sys_flag=self.topic_sys_flag,
            order=self.order,
            attributes=dict(self.attributes),
        )

    def __str__(self) -> str:
        """Return the text of the topic in the remarks of Java's broker."""
        attributes = ", ".join([f"{name}={value}" for name, value in self.attributes.items()])
        return (
            f"TopicConfig [topicName={self.topic_name}, readQueueNums={self.read_queue_nums},"
            f" writeQueueNums={self.write_queue_nums}, perm={_perm_text(self.perm)},"
            f" topicFilterType={self.topic_filter_type}, topicSysFlag={self.topic_sys_flag},"
            f" order={'true' if self.order else 'false'}, attributes={{{attributes}}}]"
        )


def check_topics(
    topics: Mapping[str, int] | Iterable[str], profile: Profile | None = None
) -> dict[str, TopicConfig]:
    """Return the settings of topics to create by their names, which have the namespace of the profile.

    An item of an iterable is ``NAME``, ``NAME:QUEUES``, ``NAME:TYPE`` or ``NAME:QUEUES:TYPE``. By default a
    topic has four queues. Raises ConfigurationError for an invalid name or type, and for a number of queues
    below 1 or above MAX_QUEUES.
    """
    if isinstance(topics, str):
        raise ConfigurationError(f"topics is a text; expected several names, such as [{topics!r}]")
    if isinstance(topics, Mapping):
        found = [_new_topic(name, count) for name, count in topics.items()]
    else:
        found = [_parse_topic(text) for text in check_texts(topics, "topics")]
    if profile is not None:
        found = [attrs.evolve(topic, topic_name=profile.full_name(topic.topic_name)) for topic in found]
    return {topic.topic_name: topic for topic in found}


def _parse_topic(text: str) -> TopicConfig:
    name, *rest = text.split(":")
    count = rest.pop(0) if rest and rest[0].isascii() and rest[0].isdigit() else "4"
    if len(count) > len(str(names.MAX_QUEUES)) or len(rest) > 1:
        raise ConfigurationError(f"topic {text!r} is not NAME, NAME:QUEUES, NAME:TYPE or NAME:QUEUES:TYPE")
    return _new_topic(name, int(count), *rest)


def _new_topic(name: str, queues: int, message_type: str = "") -> TopicConfig:
    check_topic(name)
    check_count(queues, f"the number of queues of {name}")
    return TopicConfig(name, queues, queues, attributes=type_attributes(message_type))


def type_attributes(message_type: str) -> dict[str, str]:
    """Return the attributes of a topic with a message type; none for an empty text.

    Raises ConfigurationError for an unknown type.
    """
    if not message_type:
        return {}
    error = TOPIC_ATTRIBUTES[TYPE_ATTRIBUTE].find_error(message_type)
    if error is not None:
        raise ConfigurationError(f"message type {message_type!r}: {error}")
    return {TYPE_ATTRIBUTE: message_type}


def _perm_text(perm: int) -> str:
    bits = ((PERM_READ, "R"), (PERM_WRITE, "W"), (PERM_INHERIT, "X"))
    return "".join([letter if perm & bit else "-" for bit, letter in bits])


class TopicTable:
    """The topics of the broker.

    Args:
        config: the broker's settings.
        on_change: called with each topic to register at the name servers: an added topic, including the
            initial ones, or a changed one.

    Attributes:
        changes: how many times a topic was added, changed or deleted.
        listeners: called with each topic that :meth:`put` adds or changes.
    """

    def __init__(self, config: BrokerConfig, on_change: Callable[[TopicConfig], None]) -> None:
        self._config = config
        self._on_change = on_change
        self.changes: int = 0
        self.listeners: list[Callable[[TopicConfig], None]] = []
        self._topics: dict[str, TopicConfig] = {}
        self._system_topics: set[str] = set()
        for topic in self._initial_topics():
            self._system_topics.add(topic.topic_name)
            self.put(topic)

    def get(self, name: str) -> TopicConfig | None:
        """Return a topic's settings, or None if the topic does not exist."""
        return self._topics.get(name)

    def _initial_topics(self) -> list[TopicConfig]:
        """Return the topics that real brokers create when they start."""
        config = self._config
        all_perms = PERM_INHERIT | PERM_READ | PERM_WRITE
        queues = config.default_topic_queue_nums
        topics = [
            TopicConfig("SELF_TEST_TOPIC", 1, 1),
            TopicConfig("BenchmarkTest", 1024, 1024),
            TopicConfig(config.cluster_name, perm=all_perms),
            TopicConfig(config.broker_name, 1, 1, all_perms),
            TopicConfig("OFFSET_MOVED_EVENT", 1, 1),
            TopicConfig(SCHEDULE_TOPIC, SCHEDULE_TOPIC_QUEUES, SCHEDULE_TOPIC_QUEUES),
            TopicConfig(f"{config.cluster_name}_REPLY_TOPIC", 1, 1),
            TopicConfig(f"rmq_sys_SYNC_BROKER_MEMBER_{config.broker_name}", 1, 1, PERM_INHERIT),
            TopicConfig(HALF_TOPIC, 1, 1),
            TopicConfig("RMQ_SYS_TRANS_OP_HALF_TOPIC", 1, 1),
            TopicConfig("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", 1, 1),
            TopicConfig("RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC", 1, 1),
        ]
        if config.timer_wheel_enable:
            topics.append(TopicConfig(TIMER_TOPIC, 1, 1))
        if config.auto_create_topic_enable:
            topics.append(TopicConfig(DEFAULT_TOPIC, queues, queues, all_perms))
        return topics

    def __iter__(self) -> Iterator[TopicConfig]:
        return iter(self._topics.values())

    def is_system_topic(self, topic: str) -> bool:
        """Return whether ``topic`` is one of RocketMQ's own topics on this broker."""
        return topic in self._system_topics or names.is_system_topic(topic)

    def put(self, topic: TopicConfig) -> None:
        """Add or change a topic."""
        self._topics[topic.topic_name] = topic
        self.changes += 1
        self._on_change(topic)
        for listener in self.listeners:
            listener(topic)

    def register_all(self) -> None:
        """Register all topics at the name servers again, after a change of the broker's permissions."""
        for topic in self._topics.values():
            self._on_change(topic)

    def delete(self, topic: str) -> None:
        """Delete a topic if it exists."""
        if self._topics.pop(topic, None) is not None:
            self.changes += 1

    def create_for_send(self, topic: str, default_topic: str, queue_nums: int) -> TopicConfig | None:
        """Create a topic from the default topic. Returns None if that is missing or has no PERM_INHERIT.

        Java: ``createTopicInSendMessageMethod``. The topic gets ``queue_nums`` queues, but not more than the
        default topic has.
        """
        default = self.get(default_topic)
        is_disabled = default_topic == DEFAULT_TOPIC and not self._config.auto_create_topic_enable
        if default is None or not default.perm & PERM_INHERIT or is_disabled:
            return None
        queues = max(0, min(queue_nums, default.write_queue_nums))
        created = TopicConfig(topic, queues, queues, default.perm & ~PERM_INHERIT)
        self.put(created)
        return created

    def get_or_create(self, topic: str, queue_nums: int) -> TopicConfig:
        """Return a topic. Creates it with ``queue_nums`` queues if it does not exist.

        Java: ``createTopicInSendMessageBackMethod``.
        """
        found = self.get(topic)
        if found is None:
            found = TopicConfig(topic, queue_nums, queue_nums)
            self.put(found)
        return found


def topic_name_error(topic: str) -> str | None:
    """Return why a topic name is invalid, in the words of Java's ``TopicValidator``; None if it is valid."""
    error = _name_error("topic", topic)
    if error:
        return error
    if topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
        if len(topic) > MAX_RETRY_TOPIC_LENGTH:
            return (
                f"The specified topic is DLQ or Retry topic: {topic}, and it's longer than topic max length: "
                f"{MAX_RETRY_TOPIC_LENGTH}"
            )
    elif len(topic) > names.MAX_TOPIC_LENGTH:
        return f"The specified topic: {topic}, is longer than topic max length: {names.MAX_TOPIC_LENGTH}"
    return None


def group_name_error(group: str) -> str | None:
    """Return why a group name is invalid, in Java's words; None if it is valid."""
    error = _name_error("group", group)
    if error is None and len(group) > names.MAX_GROUP_LENGTH:
        return f"The specified group: {group}, is longer than group max length: {names.MAX_GROUP_LENGTH}"
    return error


def _name_error(kind: str, name: str) -> str | None:
    if not name.strip():
        return f"The specified {kind} is blank."
    if not _is_legal(name):
        return f"The specified {kind}: {name}, contains illegal characters, allowing only {_LEGAL_NAME}"
    return None


def is_sendable(topic: str) -> bool:
    """Return whether clients may send to a topic."""
    return topic not in _NOT_SENDABLE
