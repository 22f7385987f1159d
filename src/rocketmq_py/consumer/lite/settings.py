"""The settings of the consumers of lite topics."""

from __future__ import annotations

import math
from typing import Any, ClassVar, TypedDict

import attrs

from rocketmq_py.arguments import Duration, check_integer, check_number, not_negative, positive, seconds
from rocketmq_py.client.settings import ClientOptions, trace_topic
from rocketmq_py.consumer.pop.receiver import MAX_MESSAGES
from rocketmq_py.consumer.settings import CLOSE_SECONDS, DEFAULT_RECONSUME_TIMES
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.names import check_group, check_topic

MIN_INVISIBLE_SECONDS = 2.0
"""A shorter invisible time would leave little time to renew it."""


def _invisible(_: object, attribute: attrs.Attribute[Any], value: float) -> None:
    if not MIN_INVISIBLE_SECONDS <= check_number(value, attribute.name) < math.inf:
        raise ConfigurationError(
            f"{attribute.name} is {value!r}; it must be finite, and at least {MIN_INVISIBLE_SECONDS:g}"
        )


def _finite(_: object, attribute: attrs.Attribute[Any], value: float) -> None:
    if value == math.inf:
        raise ConfigurationError(f"{attribute.name} is {value!r}; it must be finite")


def _pop_batch(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    check_integer(value, attribute.name, lowest=1, highest=MAX_MESSAGES)


def _optional_positive(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None:
        check_integer(value, attribute.name, lowest=1)


def _to_parent(topic: str) -> str:
    return check_topic(topic, "parent")


@attrs.frozen(kw_only=True)
class LiteTopicConsumerSettings:
    """Settings of a LiteTopicConsumer.

    Args:
        group: the consumer group. Its attribute ``lite.bind.topic`` must name the parent topic.
        parent: the parent topic, of type LITE. Java: ``bindTopic``.
        max_reconsume_times: redeliveries after which an unacknowledged message becomes a dead letter.
        trace: True sends a trace record of each received message to RMQ_SYS_TRACE_TOPIC in the background. A
            string names another topic, or is "cloud", as in Producer.
        close_timeout: the maximum duration of closing, in seconds.
    """

    group: str = attrs.field(converter=check_group)
    parent: str = attrs.field(converter=_to_parent)
    max_reconsume_times: int = attrs.field(default=DEFAULT_RECONSUME_TIMES, validator=not_negative)
    trace: bool | str = attrs.field(default=False, validator=trace_topic)
    close_timeout: float = attrs.field(default=5.0, converter=seconds, validator=positive)


@attrs.frozen(kw_only=True)
class LiteTopicPushConsumerSettings(LiteTopicConsumerSettings):
    """Settings of a LiteTopicPushConsumer, in addition to those of LiteTopicConsumerSettings.

    Args:
        concurrency: the number of lite topics whose messages are handled at once.
        batch_size: the handler receives a list of at most this many messages of one lite topic. If None, it
            receives a single message.
        suspend_current_queue: seconds until a failed message is handled again.
        invisible: seconds until the broker redelivers messages of a consumer that has died. A living consumer
            renews this time while it handles the messages.
        pop_batch_nums: the maximum number of messages of a pop, 1 to 32. Lower it if handlers are slow, so
            that other members get the rest.
        pop_threshold: stop popping from a broker while more of its messages than this are unacknowledged.
        pull_hold: seconds for which a broker may hold a pop while there are no messages.
        close_timeout: seconds that ``stop()`` and closing wait for running handlers. Then handlers are
            cancelled, or abandoned in their threads, and their messages are delivered again. Leaving the
            group takes at most 3 seconds more.
    """

    # Settings of PushConsumer that are fixed here. The code that both consumers share reads them.
    orderly: ClassVar[bool] = True
    auto_commit: ClassVar[bool] = True
    concurrency: int = attrs.field(default=20, validator=positive)
    batch_size: int | None = attrs.field(default=None, validator=_optional_positive)
    suspend_current_queue: float = attrs.field(default=1.0, converter=seconds, validator=positive)
    invisible: float = attrs.field(default=60.0, converter=seconds, validator=_invisible)
    pop_batch_nums: int = attrs.field(default=MAX_MESSAGES, validator=_pop_batch)
    pop_threshold: int = attrs.field(default=96, validator=positive)
    pull_hold: float = attrs.field(default=15.0, converter=seconds, validator=[positive, _finite])
    close_timeout: float = attrs.field(default=CLOSE_SECONDS, converter=seconds, validator=positive)

    @property
    def reconsume_limit(self) -> int:
        """The maximum number of redeliveries of a failing message."""
        return self.max_reconsume_times


class LiteTopicConsumerFactoryOptions(TypedDict, total=False):
    """Settings of a LiteTopicConsumer that shares a client. Made by ``make apis``.

    Defaults: max_reconsume_times=16, trace=False, close_timeout=5.0.
    """

    max_reconsume_times: int
    trace: bool | str
    close_timeout: Duration


class LiteTopicConsumerOptions(LiteTopicConsumerFactoryOptions, ClientOptions, total=False):
    """Settings of a LiteTopicConsumer, with those of ClientOptions. Made by ``make apis``."""


class LiteTopicPushConsumerFactoryOptions(LiteTopicConsumerFactoryOptions, total=False):
    """Settings of a LiteTopicPushConsumer that shares a client. Made by ``make apis``.

    Defaults: concurrency=20, batch_size=None, suspend_current_queue=1.0, invisible=60.0, pop_batch_nums=32,
    pop_threshold=96, pull_hold=15.0, close_timeout=25.0.
    """

    concurrency: int
    batch_size: int | None
    suspend_current_queue: Duration
    invisible: Duration
    pop_batch_nums: int
    pop_threshold: int
    pull_hold: Duration


class LiteTopicPushConsumerOptions(LiteTopicPushConsumerFactoryOptions, ClientOptions, total=False):
    """Settings of a LiteTopicPushConsumer, with those of ClientOptions. Made by ``make apis``."""
