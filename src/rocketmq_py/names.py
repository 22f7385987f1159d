"""Names of topics and groups: which names are valid, and which topics are RocketMQ's own.

Java: ``TopicValidator``, ``Validators``, ``MixAll``.
"""

from __future__ import annotations

import re

from rocketmq_py.arguments import check_integer, check_text
from rocketmq_py.errors import ConfigurationError

DEFAULT_TOPIC = "TBW102"
"""Its route serves topics that brokers create automatically. Java: AUTO_CREATE_TOPIC_KEY_TOPIC."""
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
"""The topic of trace messages (RMQ_SYS_TRACE_TOPIC)."""
CLOUD_TRACE_PREFIX = "rmq_sys_TRACE_DATA_"
"""The beginning of the topics of trace messages on some managed services. The region follows. Java:
``TraceConstants.TRACE_TOPIC_PREFIX``.
"""
RETRY_PREFIX = "%RETRY%"
DEAD_LETTER_PREFIX = "%DLQ%"
MAX_TOPIC_LENGTH = 127
MAX_RETRY_TOPIC_LENGTH = 255
MAX_GROUP_LENGTH = 120
MAX_LITE_TOPIC_LENGTH = 64
LITE_QUEUE_PREFIX = "%LMQ%$"
"""The prefix of the queue of a lite topic. Java: ``LiteUtil.LITE_TOPIC_PREFIX``."""
MAX_QUEUES = 65_536
"""The largest number of queues of a topic, on all brokers together. Java has no bound.

Clients and brokers make an object for each queue. A larger number is a mistake or an attack, and would
exhaust the memory.
"""

SYSTEM_TOPICS = frozenset(
    {
        DEFAULT_TOPIC,
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        TRACE_TOPIC,
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "CHECKPOINT_TOPIC",
    }
)
PROXY_TOPIC = "DefaultHeartBeatSyncerTopic"
"""The default topic of the proxies, which send each other heartbeats. Brokers do not list it as their own."""
NOT_SENDABLE_TOPICS = SYSTEM_TOPICS - {DEFAULT_TOPIC, "BenchmarkTest", TRACE_TOPIC}

_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+", re.ASCII)
_LEGAL_LITE = re.compile(r"[a-zA-Z0-9_-]+", re.ASCII)


def check_topic(topic: str, name: str = "topic") -> str:
    """Return ``topic`` if it is a valid name, else raise ConfigurationError."""
    check_text(topic, name)
    longest = (
        MAX_RETRY_TOPIC_LENGTH if topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)) else MAX_TOPIC_LENGTH
    )
    return _check("topic", topic, longest)


def check_group(group: str, name: str = "group") -> str:
    """Return ``group`` if it is a valid name, else raise ConfigurationError."""
    return _check("group", check_text(group, name), MAX_GROUP_LENGTH)


def check_lite_topic(lite_topic: str, name: str = "lite_topic") -> str:
    """Return ``lite_topic`` if it is a valid name of a lite topic, else raise ConfigurationError."""
    check_text(lite_topic, name)
    if not lite_topic or len(lite_topic) > MAX_LITE_TOPIC_LENGTH or not _LEGAL_LITE.fullmatch(lite_topic):
        raise ConfigurationError(
            f"{name} is {lite_topic[:80]!r}; it must have 1 to {MAX_LITE_TOPIC_LENGTH} letters, digits, "
            "_ or -"
        )
    return lite_topic


def lite_queue(parent: str, lite_topic: str) -> str:
    """Return the name of the queue in which brokers keep a lite topic. Java: ``LiteUtil.toLmqName``."""
    return f"{LITE_QUEUE_PREFIX}{parent}${lite_topic}"


def split_lite_queue(queue: str) -> tuple[str, str]:
    """Return the parent topic and the lite topic of a queue that :func:`lite_queue` has named."""
    parent, _, lite_topic = queue.removeprefix(LITE_QUEUE_PREFIX).rpartition("$")
    return parent, lite_topic


def check_count(number: int, name: str, lowest: int = 1) -> int:
    """Return ``number`` if it is from ``lowest`` to MAX_QUEUES, else raise ConfigurationError."""
    return check_integer(number, name, lowest=lowest, highest=MAX_QUEUES)


def _check(kind: str, name: str, longest: int) -> str:
    if not name:
        raise ConfigurationError(f"the {kind} name is empty")
    if len(name) > longest:
        raise ConfigurationError(f"{kind} {name!r} has {len(name)} characters; at most {longest} are allowed")
    if not _LEGAL.fullmatch(name):
        raise ConfigurationError(f"{kind} {name!r} may hold only letters, digits and the characters % | _ -")
    return name


def retry_topic(group: str) -> str:
    """Return the topic from which a group receives messages again that its consumers failed to consume."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """Return the topic of a group's dead letters."""
    return DEAD_LETTER_PREFIX + group


def reply_topic(cluster: str) -> str:
    """Return the topic of a cluster's replies. Java: ``MixAll.getReplyTopic``."""
    return f"{cluster}_REPLY_TOPIC"


def is_internal_topic(topic: str) -> bool:
    """Return whether a topic, named as on the wire, is a retry or dead-letter topic or RocketMQ's own.

    Brokers 5.5 have system topics that are missing in Java's own list. Their names begin with RMQ_SYS_.
    """
    if topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX, "RMQ_SYS_")):
        return True
    return topic == PROXY_TOPIC or is_system_topic(topic)


def is_system_topic(topic: str) -> bool:
    """Return whether ``topic`` is a system topic of RocketMQ."""
    return topic in SYSTEM_TOPICS or topic.startswith("rmq_sys_")
