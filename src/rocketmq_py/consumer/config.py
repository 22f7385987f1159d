"""Settings of push consumers, and the settings that all consumers share."""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable
from os import PathLike
from typing import Any

import attrs

from rocketmq_py.arguments import (
    check_choice,
    check_integer,
    check_number,
    flag,
    not_negative,
    path,
    positive,
    whole,
)
from rocketmq_py.callables import check_callable
from rocketmq_py.client.config import ClientOptions, trace_topic
from rocketmq_py.consumer.allocation import AllocateStrategy, allocate_averagely
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.names import check_group

MAX_BATCH_SIZE = 1024
"""Maximum number of messages that are pulled or handled at once, as in Java."""
DEFAULT_RECONSUME_TIMES = 16
UNLIMITED_RECONSUME_TIMES = 2**31 - 1
"""The limit in requests for messages that never become dead letters."""

LOCK_INTERVAL = 20.0
"""Default seconds between two renewals of a queue lock."""
LOCK_MAX_LIVE_TIME = 30.0
"""Default seconds for which a queue lock counts as held after a renewal. Brokers keep it twice as long."""
DEFAULT_TIMESTAMP_AGE_MS = 30 * 60 * 1000
"""Default age of the time for ConsumeFrom.TIMESTAMP when the consumer is created."""


@attrs.frozen
class FlowLimits:
    """How much of one queue may be cached. The pull loop pauses while a limit is exceeded.

    Attributes:
        count: unacknowledged messages.
        size: total size of their bodies in bytes.
        span: difference between the last and the first offset.
    """

    count: int
    size: int
    span: int


class ConsumeFrom(enum.Enum):
    """Where a group starts in a queue that it has never consumed. Java: ``ConsumeFromWhere``.

    A broker that still has the first message of a queue in memory lets new groups start there under LAST too,
    and a 4.x broker also under TIMESTAMP.
    """

    LAST = "last"
    """At the end: only messages sent from now on (CONSUME_FROM_LAST_OFFSET)."""
    FIRST = "first"
    """At the oldest message that the broker has (CONSUME_FROM_FIRST_OFFSET)."""
    TIMESTAMP = "timestamp"
    """At the first message stored at ``consume_timestamp_ms`` or later (CONSUME_FROM_TIMESTAMP)."""


def _batch_size(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    check_integer(value, attribute.name, lowest=1, highest=MAX_BATCH_SIZE)


def to_consume_from(value: ConsumeFrom | str) -> ConsumeFrom:
    """Convert a ConsumeFrom or the name of one (an attrs converter)."""
    return check_choice(value, "consume_from", ConsumeFrom)


def _within(low: int, high: int) -> Callable[[object, attrs.Attribute[Any], float], None]:
    def check(_: object, attribute: attrs.Attribute[Any], value: float) -> None:
        if not low <= check_number(value, attribute.name) <= high:
            raise ConfigurationError(f"{attribute.name} is {value!r}; it must be from {low} to {high}")

    return check


def check_allocate_strategy(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Check that a value can be called as an AllocateStrategy (an attrs validator)."""
    check_callable(value, attribute.name, "group", "client_id", "queues", "client_ids", awaited=False)


@attrs.frozen(kw_only=True)
class PushConsumerConfig:
    """Settings of a push consumer. Java: ``DefaultMQPushConsumer``, whose names are given in brackets.

    "Orderly" and "concurrent" mark the settings that have no effect in the other mode.

    Args:
        group: the consumer group (consumerGroup). All its members must subscribe alike.
        broadcasting: every member receives every message, and commits its offsets to a local file. Failed
            messages are logged and skipped (MessageModel.BROADCASTING).
        local_offsets: when broadcasting, the folder of the offset file, which is
            ``local_offsets/address@instance_name/group/offsets.json``. Characters that Windows refuses in
            names, such as the colons of IPv6 addresses, are escaped. Each member on a machine needs its own
            ``instance_name``, which must stay the same across restarts. None for ``~/.rocketmq_offsets``
            (rocketmq.client.localOffsetStoreDir).
        discard_damaged_offsets: when broadcasting, whether to start without offsets if the offset file and
            its backup are damaged. They are renamed to end in ``.damaged``. If False, LocalOffsetsError is
            raised. Files that cannot be read for another reason always raise it.
        concurrency: maximum number of handler calls at a time (consumeThreadMax).
        batch_size: if set, the handler receives a list of at most this many messages of one queue. If None,
            it receives a single message (consumeMessageBatchMaxSize).
        orderly: handle the messages of each queue one after the other, also across a rebalance. A failed
            message is retried in place, before the messages that follow it (MessageListenerOrderly).
        auto_commit: orderly: returning from the handler acknowledges its messages. If False, only returning
            CommitOffset does. Uncommitted messages count towards the thresholds below
            (ConsumeOrderlyContext.autoCommit).
        suspend_current_queue: orderly: seconds that a queue is suspended after a failure
            (suspendCurrentQueueTimeMillis).
        consume_timeout: concurrent: seconds after which a running handler call counts as failed. Its messages
            are sent back and, if it is async, the call is cancelled. Checked ten times per
            ``consume_timeout``. ``math.inf`` for no timeout (consumeTimeout, in minutes).
        pull_batch_size: messages requested per pull. Brokers return about 32 (pullBatchSize).
        pull_threshold_for_queue: pause pulling a queue while it has more unacknowledged messages than this
            (pullThresholdForQueue).
        pull_threshold_size_for_queue: the same for the total size of their bodies in bytes
            (pullThresholdSizeForQueue, in MiB).
        pull_threshold_for_topic: if set, replaces ``pull_threshold_for_queue`` by this number divided by the
            number of this member's queues of the topic (pullThresholdForTopic).
        pull_threshold_size_for_topic: the same for ``pull_threshold_size_for_queue``
            (pullThresholdSizeForTopic).
        consume_concurrently_max_span: concurrent: pause pulling a queue while the offsets of its
            unacknowledged messages span more than this (consumeConcurrentlyMaxSpan).
        consume_from: where a new group starts: a ConsumeFrom, or its name such as ``"first"``
            (consumeFromWhere).
        consume_timestamp_ms: the time for ConsumeFrom.TIMESTAMP, epoch milliseconds. None for half an hour
            before the consumer was created (consumeTimestamp).
        max_reconsume_times: redeliveries before a failing message is moved to the group's dead letter topic.
            None for 16 or, if orderly, without limit. Messages whose body cannot be decoded are moved after
            16 redeliveries in any case (maxReconsumeTimes).
        allocate: the strategy that distributes queues among members (allocateMessageQueueStrategy).
            AllocateByBroker() leaves it to brokers of 5.x (clientRebalance).
        rebalance_interval: seconds between two rebalances (rocketmq.client.rebalance.waitInterval). A change
            reported by a broker starts one at once.
        lock_interval: orderly: seconds between two renewals of a queue lock
            (rocketmq.client.rebalance.lockInterval).
        lock_max_live_time: orderly: seconds after which a lock that was not renewed no longer counts as held
            (rocketmq.client.rebalance.lockMaxLiveTime). Must be half of the brokers' setting
            rocketmq.broker.rebalance.lockMaxLiveTime, which is how long the queues of a dead member stay
            locked.
        commit_interval: seconds between two offset commits (persistConsumerOffsetInterval).
        pull_hold: seconds for which a broker may hold a pull request while the queue has no new message
            (brokerSuspendMaxTimeMillis).
        pull_timeout: timeout of a pull request in seconds (consumerTimeoutMillisWhenSuspend).
        pop_invisible_time: if brokers let the group pop (AllocateByBroker): seconds, 5 to 300, after which an
            unacknowledged message is redelivered to any member. Waiting in the buffer and handling together
            must take less (popInvisibleTime).
        pop_batch_nums: messages per pop request, 1 to 32 (popBatchNums).
        pop_threshold_for_queue: pause popping a queue while it has more unacknowledged messages than this
            (popThresholdForQueue).
        pull_max_idle_time: seconds without a pull request after which a stalled pull loop is restarted
            (rocketmq.client.pull.pullMaxIdleTime).
        trace: True sends a trace record of each consumed message to RMQ_SYS_TRACE_TOPIC, in RocketMQ's
            format and in the background. A string names another topic (enableMsgTrace, customizedTraceTopic).
        close_timeout: maximum seconds for closing. Running handler calls get half of it
            (awaitTerminationMillisWhenShutdown).
    """

    group: str = attrs.field(converter=check_group)
    broadcasting: bool = attrs.field(default=False, validator=flag)
    local_offsets: str | PathLike[str] | None = attrs.field(
        default=None, validator=attrs.validators.optional(path)
    )
    discard_damaged_offsets: bool = attrs.field(default=False, validator=flag)
    concurrency: int = attrs.field(default=20, validator=positive)
    batch_size: int | None = attrs.field(default=None, validator=attrs.validators.optional(_batch_size))
    orderly: bool = attrs.field(default=False, validator=flag)
    auto_commit: bool = attrs.field(default=True, validator=flag)
    suspend_current_queue: float = attrs.field(default=1.0, validator=not_negative)
    consume_timeout: float = attrs.field(default=900.0, validator=positive)
    pull_batch_size: int = attrs.field(default=32, validator=_batch_size)
    pull_threshold_for_queue: int = attrs.field(default=1000, validator=positive)
    pull_threshold_size_for_queue: int = attrs.field(default=100 * 1024 * 1024, validator=positive)
    pull_threshold_for_topic: int | None = attrs.field(
        default=None, validator=attrs.validators.optional(positive)
    )
    pull_threshold_size_for_topic: int | None = attrs.field(
        default=None, validator=attrs.validators.optional(positive)
    )
    consume_concurrently_max_span: int = attrs.field(default=2000, validator=positive)
    consume_from: ConsumeFrom = attrs.field(default=ConsumeFrom.LAST, converter=to_consume_from)
    consume_timestamp_ms: int | None = attrs.field(default=None, validator=attrs.validators.optional(whole))
    max_reconsume_times: int | None = attrs.field(
        default=None, validator=attrs.validators.optional(not_negative)
    )
    allocate: AllocateStrategy = attrs.field(default=allocate_averagely, validator=check_allocate_strategy)
    rebalance_interval: float = attrs.field(default=20.0, validator=positive)
    lock_interval: float = attrs.field(default=LOCK_INTERVAL, validator=positive)
    lock_max_live_time: float = attrs.field(default=LOCK_MAX_LIVE_TIME, validator=positive)
    commit_interval: float = attrs.field(default=5.0, validator=positive)
    pull_hold: float = attrs.field(default=15.0, validator=positive)
    pull_timeout: float = attrs.field(default=30.0, validator=positive)
    pop_invisible_time: float = attrs.field(default=60.0, validator=_within(5, 300))
    pop_batch_nums: int = attrs.field(default=32, validator=[whole, _within(1, 32)])
    pop_threshold_for_queue: int = attrs.field(default=96, validator=positive)
    pull_max_idle_time: float = attrs.field(default=120.0, validator=positive)
    trace: bool | str = attrs.field(default=False, validator=trace_topic)
    close_timeout: float = attrs.field(default=5.0, validator=positive)

    def __attrs_post_init__(self) -> None:
        for longer, shorter in (
            ("pull_timeout", "pull_hold"),
            ("pull_max_idle_time", "pull_timeout"),
            ("lock_max_live_time", "lock_interval"),
        ):
            seconds, fewer = getattr(self, longer), getattr(self, shorter)
            if seconds <= fewer:
                raise ConfigurationError(
                    f"{longer} is {seconds:g} s; it must be longer than {shorter}, which is {fewer:g} s"
                )
        if not self.auto_commit and not self.orderly:
            raise ConfigurationError("auto_commit=False needs orderly=True")

    @property
    def reconsume_limit(self) -> int:
        """The maximum number of redeliveries of a failing message."""
        if self.max_reconsume_times is not None:
            return self.max_reconsume_times
        return UNLIMITED_RECONSUME_TIMES if self.orderly else DEFAULT_RECONSUME_TIMES

    def flow_limits(self, queues: int) -> FlowLimits:
        """Return the limits of each queue when the member has this number of queues of the topic."""
        count, size = self.pull_threshold_for_queue, self.pull_threshold_size_for_queue
        if self.pull_threshold_for_topic is not None:
            count = max(self.pull_threshold_for_topic // queues, 1)
        if self.pull_threshold_size_for_topic is not None:
            size = max(self.pull_threshold_size_for_topic // queues, 1)
        return FlowLimits(count, size, sys.maxsize if self.orderly else self.consume_concurrently_max_span)


class PushConsumerOptions(ClientOptions, total=False):
    """The fields of PushConsumerConfig except ``group``, and those of ClientConfig, as keyword arguments."""

    broadcasting: bool
    local_offsets: str | PathLike[str] | None
    discard_damaged_offsets: bool
    concurrency: int
    batch_size: int | None
    orderly: bool
    auto_commit: bool
    suspend_current_queue: float
    consume_timeout: float
    pull_batch_size: int
    pull_threshold_for_queue: int
    pull_threshold_size_for_queue: int
    pull_threshold_for_topic: int | None
    pull_threshold_size_for_topic: int | None
    consume_concurrently_max_span: int
    consume_from: ConsumeFrom | str
    consume_timestamp_ms: int | None
    max_reconsume_times: int | None
    allocate: AllocateStrategy
    rebalance_interval: float
    lock_interval: float
    lock_max_live_time: float
    commit_interval: float
    pull_hold: float
    pull_timeout: float
    pop_invisible_time: float
    pop_batch_nums: int
    pop_threshold_for_queue: int
    pull_max_idle_time: float
    trace: bool | str
    close_timeout: float
