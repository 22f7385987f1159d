"""Settings of push consumers, and the settings that all consumers share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from os import PathLike
from typing import Any, TypedDict

import attrs

from rocketmq_py.allocation import AllocateStrategy, allocate_averagely
from rocketmq_py.arguments import (
    BYTES,
    Duration,
    check_integer,
    check_number,
    flag,
    not_negative,
    path,
    positive,
    seconds,
    whole,
)
from rocketmq_py.callables import check_callable
from rocketmq_py.client.settings import ClientOptions, trace_topic
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.names import check_group
from rocketmq_py.position import OF_GROUPS, Position, check_position

MAX_BATCH_SIZE = 1024
"""Maximum number of messages that are pulled or handled at once, as in Java."""
DEFAULT_RECONSUME_TIMES = 16
UNLIMITED_RECONSUME_TIMES = 2**31 - 1
"""The limit in requests for messages that never become dead letters."""

LOCK_INTERVAL = 20.0
"""Default seconds between two renewals of a queue lock."""
LOCK_MAX_LIVE_TIME = 30.0
"""Default seconds for which a queue lock counts as held after a renewal. Brokers keep it twice as long."""
CLOSE_SECONDS = 25.0
"""Default seconds to wait for running handlers. Kubernetes kills a process 30 seconds after SIGTERM."""


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


def _batch_size(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    check_integer(value, attribute.name, lowest=1, highest=MAX_BATCH_SIZE)


def to_consume_from(value: Position | str) -> Position:
    """Convert the position at which a new group starts (an attrs converter)."""
    return check_position(value, "consume_from", OF_GROUPS)


def _within(low: int, high: int) -> Callable[[object, attrs.Attribute[Any], float], None]:
    def check(_: object, attribute: attrs.Attribute[Any], value: float) -> None:
        if not low <= check_number(value, attribute.name) <= high:
            raise ConfigurationError(f"{attribute.name} is {value!r}; it must be from {low} to {high}")

    return check


def check_allocate_strategy(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Check that a value can be called as an AllocateStrategy (an attrs validator)."""
    check_callable(value, attribute.name, "group", "client_id", "queues", "client_ids", awaited=False)


@attrs.frozen(kw_only=True)
class PullSettings:
    """Settings of all consumers that pull: push and lite pull consumers. Java's names are given in brackets.

    Args:
        group: the consumer group (consumerGroup). All its members must subscribe alike.
        pull_batch_size: messages requested per pull. Brokers return about 32 (pullBatchSize).
        pull_threshold_for_queue: pause pulling a queue while it has more unacknowledged messages than this
            (pullThresholdForQueue).
        pull_threshold_size_for_queue: the same for the total size of their bodies in bytes
            (pullThresholdSizeForQueue, in MiB).
        consume_max_span: pause pulling a queue while the offsets of its unacknowledged messages span more
            than this (consumeMaxSpan).
        consume_from: where the group starts in a queue that it has never consumed: ``"earliest"``,
            ``"latest"`` or ``Position.time(...)``. While a broker still has the first message of a queue in
            memory, it lets new groups start there under ``"latest"`` too, and a 4.x broker also under a time
            (consumeFromWhere, consumeTimestamp).
        allocate: the strategy that distributes queues among members (allocateMessageQueueStrategy).
        rebalance_interval: seconds between two rebalances (rocketmq.client.rebalance.waitInterval). A change
            reported by a broker starts one at once. Lower it if the queues of a lost member must be taken
            over sooner where a report does not arrive.
        commit_interval: seconds between two offset commits (persistConsumerOffsetInterval).
        pull_hold: seconds for which a broker may hold a pull request while the queue has no new message
            (brokerSuspendMaxTimeMillis). Raise it for fewer requests from many idle queues.
        pull_timeout: timeout of a pull request in seconds (consumerTimeoutMillisWhenSuspend). Raise it with
            ``pull_hold``.
    """

    group: str = attrs.field(converter=check_group)
    pull_batch_size: int = attrs.field(default=32, validator=_batch_size)
    pull_threshold_for_queue: int = attrs.field(default=1000, validator=positive)
    pull_threshold_size_for_queue: int = attrs.field(
        default=100 * 1024 * 1024, validator=positive, metadata=BYTES
    )
    consume_max_span: int = attrs.field(default=2000, validator=positive)
    consume_from: Position = attrs.field(default=Position.latest, converter=to_consume_from)
    allocate: AllocateStrategy = attrs.field(default=allocate_averagely, validator=check_allocate_strategy)
    rebalance_interval: float = attrs.field(default=20.0, converter=seconds, validator=positive)
    commit_interval: float = attrs.field(default=5.0, converter=seconds, validator=positive)
    pull_hold: float = attrs.field(default=15.0, converter=seconds, validator=positive)
    pull_timeout: float = attrs.field(default=30.0, converter=seconds, validator=positive)

    def __attrs_post_init__(self) -> None:
        if self.pull_timeout <= self.pull_hold:
            raise ConfigurationError(
                f"pull_timeout is {self.pull_timeout:g} s; it must be longer than pull_hold, which is "
                f"{self.pull_hold:g} s"
            )

    @property
    def pull_max_idle_time(self) -> float:
        """Seconds without a pull request after which a stalled pull loop is restarted.

        Java: ``rocketmq.client.pull.pullMaxIdleTime``.
        """
        return max(120.0, 2 * self.pull_timeout)

    def flow_limits(self, queues: int) -> FlowLimits:
        """Return the limits of each queue when the member has this number of queues of the topic."""
        return FlowLimits(
            self.pull_threshold_for_queue, self.pull_threshold_size_for_queue, self.consume_max_span
        )


@attrs.frozen(kw_only=True)
class PushConsumerSettings(PullSettings):
    """Settings of a push consumer, in addition to PullSettings. Java: ``DefaultMQPushConsumer``.

    "Orderly" and "concurrent" mark the settings that have no effect in the other mode.

    Args:
        broadcasting: every member receives every message, and commits its offsets to a local file. Failed
            messages are logged and skipped (MessageModel.BROADCASTING).
        local_offsets: when broadcasting, the folder of the offset file, which is
            ``local_offsets/address@instance_name/group/offsets.json``. Characters that Windows refuses in
            names, such as the colons of IPv6 addresses, are escaped. Each member on a machine needs its own
            ``instance_name``, which must stay the same across restarts. None for ``~/.rocketmq_offsets``
            (rocketmq.client.localOffsetStoreDir).
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
        pull_threshold_size_for_topic: if set, replaces ``pull_threshold_size_for_queue`` by this number
            divided by the number of this member's queues of the topic (pullThresholdSizeForTopic, in MiB).
        consume_max_span: concurrent: pause pulling a queue while the offsets of its
            unacknowledged messages span more than this (consumeConcurrentlyMaxSpan).
        max_reconsume_times: redeliveries before a failing message is moved to the group's dead letter topic.
            None for 16 or, if orderly, without limit. Messages whose body cannot be decoded are moved after
            16 redeliveries in any case (maxReconsumeTimes).
        allocate: the strategy that distributes queues among members (allocateMessageQueueStrategy).
            AllocateByBroker() leaves it to brokers of 5.x (clientRebalance).
        lock_max_live_time: orderly: seconds after which a lock that was not renewed no longer counts as held
            (rocketmq.client.rebalance.lockMaxLiveTime). Renewed after two thirds of it. Must be half of
            the brokers' setting rocketmq.broker.rebalance.lockMaxLiveTime, which is how long the queues of a
            dead member stay locked.
        invisible: if brokers let the group pop (AllocateByBroker): seconds, 5 to 300, after which an
            unacknowledged message is redelivered to any member. Waiting in the buffer and handling together
            must take less (popInvisibleTime).
        pop_batch_nums: messages per pop request, 1 to 32 (popBatchNums). Lower it if handlers are slow, so
            that other members get the rest.
        pop_threshold: pause popping a queue while it has more unacknowledged messages than this
            (popThresholdForQueue).
        trace: True sends a trace record of each consumed message to RMQ_SYS_TRACE_TOPIC, in RocketMQ's
            format and in the background (enableMsgTrace). "cloud" sends them to the topics of a managed
            service, ``rmq_sys_TRACE_DATA_`` and the message's region (accessChannel). Another string names
            the topic (customizedTraceTopic).
        close_timeout: seconds that ``stop()`` and closing wait for running handlers
            (awaitTerminationMillisWhenShutdown). Then handlers are cancelled, or abandoned in their threads,
            and their messages are delivered again. Leaving the group takes at most 3 seconds more.
    """

    broadcasting: bool = attrs.field(default=False, validator=flag)
    local_offsets: str | PathLike[str] | None = attrs.field(
        default=None, validator=attrs.validators.optional(path)
    )
    concurrency: int = attrs.field(default=20, validator=positive)
    batch_size: int | None = attrs.field(default=None, validator=attrs.validators.optional(_batch_size))
    orderly: bool = attrs.field(default=False, validator=flag)
    auto_commit: bool = attrs.field(default=True, validator=flag)
    suspend_current_queue: float = attrs.field(default=1.0, converter=seconds, validator=not_negative)
    consume_timeout: float = attrs.field(default=900.0, converter=seconds, validator=positive)
    pull_threshold_size_for_topic: int | None = attrs.field(
        default=None, validator=attrs.validators.optional(positive), metadata=BYTES
    )
    max_reconsume_times: int | None = attrs.field(
        default=None, validator=attrs.validators.optional(not_negative)
    )
    lock_max_live_time: float = attrs.field(default=LOCK_MAX_LIVE_TIME, converter=seconds, validator=positive)
    invisible: float = attrs.field(default=60.0, converter=seconds, validator=_within(5, 300))
    pop_batch_nums: int = attrs.field(default=32, validator=[whole, _within(1, 32)])
    pop_threshold: int = attrs.field(default=96, validator=positive)
    trace: bool | str = attrs.field(default=False, validator=trace_topic)
    close_timeout: float = attrs.field(default=CLOSE_SECONDS, converter=seconds, validator=positive)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if not self.auto_commit and not self.orderly:
            raise ConfigurationError("auto_commit=False needs orderly=True")

    @property
    def lock_interval(self) -> float:
        """Seconds between two renewals of a queue lock. Java: ``rocketmq.client.rebalance.lockInterval``."""
        return self.lock_max_live_time * LOCK_INTERVAL / LOCK_MAX_LIVE_TIME

    @property
    def reconsume_limit(self) -> int:
        """The maximum number of redeliveries of a failing message."""
        if self.max_reconsume_times is not None:
            return self.max_reconsume_times
        return UNLIMITED_RECONSUME_TIMES if self.orderly else DEFAULT_RECONSUME_TIMES

    def flow_limits(self, queues: int) -> FlowLimits:
        """Return the limits of each queue when the member has this number of queues of the topic."""
        count, size = self.pull_threshold_for_queue, self.pull_threshold_size_for_queue
        if self.pull_threshold_size_for_topic is not None:
            size = max(self.pull_threshold_size_for_topic // queues, 1)
        return FlowLimits(count, size, sys.maxsize if self.orderly else self.consume_max_span)


class PushConsumerFactoryOptions(TypedDict, total=False):
    """Settings of a PushConsumer that shares a client. Made by ``make apis``.

    Defaults: broadcasting=False, local_offsets=None, concurrency=20, batch_size=None, orderly=False,
    auto_commit=True, suspend_current_queue=1.0, consume_timeout=900.0, pull_threshold_size_for_topic=None,
    max_reconsume_times=None, lock_max_live_time=30.0, invisible=60.0, pop_batch_nums=32, pop_threshold=96,
    trace=False, close_timeout=25.0, pull_batch_size=32, pull_threshold_for_queue=1000,
    pull_threshold_size_for_queue=104857600, consume_max_span=2000, consume_from=Position.latest,
    allocate=allocate_averagely, rebalance_interval=20.0, commit_interval=5.0, pull_hold=15.0,
    pull_timeout=30.0.
    """

    broadcasting: bool
    local_offsets: str | PathLike[str] | None
    concurrency: int
    batch_size: int | None
    orderly: bool
    auto_commit: bool
    suspend_current_queue: Duration
    consume_timeout: Duration
    pull_threshold_size_for_topic: int | None
    max_reconsume_times: int | None
    lock_max_live_time: Duration
    invisible: Duration
    pop_batch_nums: int
    pop_threshold: int
    trace: bool | str
    close_timeout: Duration
    pull_batch_size: int
    pull_threshold_for_queue: int
    pull_threshold_size_for_queue: int
    consume_max_span: int
    consume_from: Position | str
    allocate: AllocateStrategy
    rebalance_interval: Duration
    commit_interval: Duration
    pull_hold: Duration
    pull_timeout: Duration


class PushConsumerOptions(PushConsumerFactoryOptions, ClientOptions, total=False):
    """Settings of a PushConsumer, with those of ClientOptions. Made by ``make apis``."""
