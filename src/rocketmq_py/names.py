"""Names of topics and groups: what is allowed, and the topics that RocketMQ keeps for itself.

Source: Java's ``TopicValidator``, ``Validators`` and ``MixAll``.
"""

from __future__ import annotations

import re
from functools import lru_cache

from rocketmq_py.arguments import check_integer, check_text
from rocketmq_py.errors import ConfigurationError

DEFAULT_TOPIC = "TBW102"
"""Its route stands in for a topic that a broker may create by itself (AUTO_CREATE_TOPIC_KEY_TOPIC)."""
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
"""Where clients send what they trace (RMQ_SYS_TRACE_TOPIC)."""
RETRY_PREFIX = "%RETRY%"
DEAD_LETTER_PREFIX = "%DLQ%"
MAX_TOPIC_LENGTH = 127
MAX_RETRY_TOPIC_LENGTH = 255
MAX_GROUP_LENGTH = 120
MAX_QUEUES = 65_536
"""How many queues a topic may have on all its brokers together. Java has no bound, and no cluster comes near.

Clients and brokers make an object of each queue: a number that is a slip, or an attack, would take all
memory and stop everything else meanwhile.
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
NOT_SENDABLE_TOPICS = SYSTEM_TOPICS - {DEFAULT_TOPIC, "BenchmarkTest", TRACE_TOPIC}

_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+", re.ASCII)


def check_topic(topic: str, name: str = "topic") -> str:
    """Return ``topic`` if a broker accepts it as the name of a topic, else raise ConfigurationError."""
    check_text(topic, name)
    longest = (
        MAX_RETRY_TOPIC_LENGTH if topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)) else MAX_TOPIC_LENGTH
    )
    return _check("topic", topic, longest)


def check_group(group: str, name: str = "group") -> str:
    """Return ``group`` if a broker accepts it as the name of a group, else raise ConfigurationError."""
    return _check("group", check_text(group, name), MAX_GROUP_LENGTH)


def check_count(number: int, name: str, lowest: int = 1) -> int:
    """Return a number of queues or tries. Raises ConfigurationError unless ``lowest`` to MAX_QUEUES."""
    return check_integer(number, name, lowest=lowest, highest=MAX_QUEUES)


@lru_cache(maxsize=4096)  # a producer asks for every message
def _check(kind: str, name: str, longest: int) -> str:
    if not name:
        raise ConfigurationError(f"the {kind} name is empty")
    if len(name) > longest:
        raise ConfigurationError(f"{kind} {name!r} has {len(name)} characters; at most {longest} are allowed")
    if not _LEGAL.fullmatch(name):
        raise ConfigurationError(f"{kind} {name!r} may hold only letters, digits and the characters % | _ -")
    return name


def retry_topic(group: str) -> str:
    """Return the topic on which a group gets again the messages that its consumers failed on."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """Return the topic that collects the messages that a group has given up."""
    return DEAD_LETTER_PREFIX + group


def reply_topic(cluster: str) -> str:
    """Return the topic that a cluster's replies are sent to. Java: ``MixAll.getReplyTopic``."""
    return f"{cluster}_REPLY_TOPIC"


def is_internal_topic(topic: str) -> bool:
    """Tell by a topic's name on the wire whether it is a group's own (retry, dead letters) or RocketMQ's.

    Topics of 5.5 brokers that Java's own list of system topics lacks begin like the others: RMQ_SYS_.
    """
    return topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX, "RMQ_SYS_")) or is_system_topic(topic)


def is_system_topic(topic: str) -> bool:
    """Tell whether RocketMQ keeps ``topic`` for itself."""
    return topic in SYSTEM_TOPICS or topic.startswith("rmq_sys_")
