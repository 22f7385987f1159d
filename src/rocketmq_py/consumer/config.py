"""A push consumer's settings."""

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
from rocketmq_py.consumer.allocation.strategies import AllocateStrategy, allocate_averagely
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.names import check_group

MAX_BATCH_SIZE = 1024
"""The longest list that may be pulled, or handled, at once: as in Java."""
DEFAULT_RECONSUME_TIMES = 16
ENDLESS = 2**31 - 1
"""What says on the wire that a message is never given up."""


LOCK_INTERVAL = 20.0
"""Seconds between two renewals of a lock, unless the consumer's settings differ."""
LOCK_LIFE = 30.0
"""Seconds for which a lock is trusted here, unless they differ. Brokers keep it for twice as long."""
HALF_AN_HOUR_MS = 30 * 60 * 1000
"""How long before a consumer was made ConsumeFrom.TIMESTAMP is, if no time is given."""


@attrs.frozen
class FlowLimits:
    """How much of one queue may be here before its pull loop waits.

    Attributes:
        count: messages. size: bytes of their bodies. span: between the first and the last offset.
            Each is one that may be reached; beyond it, there is a wait.
    """

    count: int
    size: int
    span: int


class ConsumeFrom(enum.Enum):
    """Where a group begins in a queue in which it has never consumed. Java: ``ConsumeFromWhere``.

    A broker that still has the first message of a queue in memory makes new groups begin there under LAST
    as well, and a 4.x broker under TIMESTAMP too.
    """

    LAST = "last"
    """With what is sent from now on (CONSUME_FROM_LAST_OFFSET)."""
    FIRST = "first"
    """With the oldest message that the broker has (CONSUME_FROM_FIRST_OFFSET)."""
    TIMESTAMP = "timestamp"
    """With the first message stored at ``consume_timestamp_ms`` or later (CONSUME_FROM_TIMESTAMP)."""


def _batch_size(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    check_integer(value, attribute.name, lowest=1, highest=MAX_BATCH_SIZE)


def consume_from(value: ConsumeFrom | str) -> ConsumeFrom:
    """Return the ConsumeFrom that ``value`` is or names (an attrs converter)."""
    return check_choice(value, "consume_from", ConsumeFrom)


def _within(low: int, high: int) -> Callable[[object, attrs.Attribute[Any], float], None]:
    def check(_: object, attribute: attrs.Attribute[Any], value: float) -> None:
        if not low <= check_number(value, attribute.name) <= high:
            raise ConfigurationError(f"{attribute.name} is {value!r}; {low} to {high} are allowed")

    return check


def allocates(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Accept a function that chooses a member's queues (an attrs validator)."""
    check_callable(value, attribute.name, "group", "client_id", "queues", "client_ids", awaited=False)


@attrs.frozen(kw_only=True)
class PushConsumerConfig:
    """How a push consumer consumes. Java: ``DefaultMQPushConsumer``, whose names stand in brackets.

    Args:
        group: the consumer group (consumerGroup). All its members must subscribe alike.
        broadcasting: each member gets every message, and keeps its offsets in a file of its own. What fails
            is logged and dropped (MessageModel.BROADCASTING).
        local_offsets: when broadcasting, the folder for that file, which is
            ``local_offsets/address@instance_name/group/offsets.json``. Characters that Windows refuses in
            names are escaped, such as the colons of IPv6. Members on one machine need an ``instance_name``
            each, which stays the same when they are restarted. None for
            ``~/.rocketmq_offsets`` (rocketmq.client.localOffsetStoreDir).
        concurrency: how many handlers may run at the same time (consumeThreadMax).
        batch_size: if set, the handler takes a list, of so many messages of one queue at the most; if None,
            it takes a message (consumeMessageBatchMaxSize).
        orderly: hand out each queue's messages one after the other, also when a queue changes hands; what
            fails is tried again in place, before what follows it (MessageListenerOrderly).
        auto_commit: in order: what was handled is done with. If False, only when the handler returns Commit;
            what it has not committed counts towards the thresholds below (ConsumeOrderlyContext.autoCommit).
        suspend_current_queue: in order: seconds that a queue rests after a failure
            (suspendCurrentQueueTimeMillis).
        consume_timeout: out of order: seconds after which a handler that still runs counts as failed: its
            messages are sent back and, if it is async, it is cancelled. That is looked for ten times in
            this time. ``math.inf`` for never (consumeTimeout, in minutes there).
        pull_batch_size: messages asked for at once; brokers give about 32 (pullBatchSize).
        pull_threshold_for_queue: no more is pulled of a queue of which more messages than this are
            waiting or being handled (pullThresholdForQueue).
        pull_threshold_size_for_queue: the same for the bytes of their bodies; Java counts MiB
            (pullThresholdSizeForQueue).
        pull_threshold_for_topic: if set, so many messages of all of this member's queues of a topic take the
            place of ``pull_threshold_for_queue``, in equal parts (pullThresholdForTopic).
        pull_threshold_size_for_topic: the same for the bytes of their bodies (pullThresholdSizeForTopic).
        consume_concurrently_max_span: out of order: as pull_threshold_for_queue, for the distance between
            the offsets of the first and the last of them (consumeConcurrentlyMaxSpan).
        consume_from: where a new group begins: a ConsumeFrom, or its name as ``"first"`` (consumeFromWhere).
        consume_timestamp_ms: for ConsumeFrom.TIMESTAMP, epoch milliseconds; None is half an hour before
            the consumer was made (consumeTimestamp).
        max_reconsume_times: deliveries after the first one, before a message that fails each time goes
            to the group's dead letters. None for 16 and, in order, for no end (maxReconsumeTimes); what has
            a body that cannot be read goes there after 16, too.
        allocate: how members share out queues (allocateMessageQueueStrategy); AllocateByBroker() leaves it
            to brokers of 5.x (clientRebalance).
        rebalance_interval: seconds between two looks at who shall have which queue
            (rocketmq.client.rebalance.waitInterval). A broker's notice leads to one at once.
        lock_interval: in order: seconds between two renewals of a queue's lock
            (rocketmq.client.rebalance.lockInterval).
        lock_max_live_time: in order: seconds after which a lock that was not renewed is trusted no more; half
            of what brokers are set to by their own rocketmq.broker.rebalance.lockMaxLiveTime, for which they
            keep the queues of a member that has died (rocketmq.client.rebalance.lockMaxLiveTime).
        commit_interval: seconds between two commits of offsets (persistConsumerOffsetInterval).
        pull_hold: seconds that a broker may keep a pull while there is nothing to give
            (brokerSuspendMaxTimeMillis).
        pull_timeout: seconds until a pull without an answer has failed (consumerTimeoutMillisWhenSuspend).
        pop_invisible_time: where brokers have the group pop (AllocateByBroker): seconds, 5 to 300, until what
            was popped and is not done with comes again, to any member. Waiting here and being handled must
            take less (popInvisibleTime).
        pop_batch_nums: messages popped at once, 1 to 32 (popBatchNums).
        pop_threshold_for_queue: no more is popped from a place of which more messages than this are waiting
            or being handled (popThresholdForQueue).
        pull_max_idle_time: seconds after which a queue that should be pulled from, and is not, is pulled
            anew (rocketmq.client.pull.pullMaxIdleTime).
        trace: True sends a record of each message that is consumed to RMQ_SYS_TRACE_TOPIC, in RocketMQ's own
            format, in the background; a text names another topic for them (enableMsgTrace,
            customizedTraceTopic).
        close_timeout: seconds that closing may take; handlers that are running have half of it to end
            (awaitTerminationMillisWhenShutdown).
    """

    group: str = attrs.field(converter=check_group)
    broadcasting: bool = attrs.field(default=False, validator=flag)
    local_offsets: str | PathLike[str] | None = attrs.field(
        default=None, validator=attrs.validators.optional(path)
    )
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
    consume_from: ConsumeFrom = attrs.field(default=ConsumeFrom.LAST, converter=consume_from)
    consume_timestamp_ms: int | None = attrs.field(default=None, validator=attrs.validators.optional(whole))
    max_reconsume_times: int | None = attrs.field(
        default=None, validator=attrs.validators.optional(not_negative)
    )
    allocate: AllocateStrategy = attrs.field(default=allocate_averagely, validator=allocates)
    rebalance_interval: float = attrs.field(default=20.0, validator=positive)
    lock_interval: float = attrs.field(default=LOCK_INTERVAL, validator=positive)
    lock_max_live_time: float = attrs.field(default=LOCK_LIFE, validator=positive)
    commit_interval: float = attrs.field(default=5.0, validator=positive)
    pull_hold: float = attrs.field(default=15.0, validator=positive)
    pull_timeout: float = attrs.field(default=30.0, validator=positive)
    pop_invisible_time: float = attrs.field(default=60.0, validator=_within(5, 300))
    pop_batch_nums: int = attrs.field(default=32, validator=_within(1, 32))
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
        """The deliveries after the first one that a message gets."""
        if self.max_reconsume_times is not None:
            return self.max_reconsume_times
        return ENDLESS if self.orderly else DEFAULT_RECONSUME_TIMES

    def flow_limits(self, queues: int) -> FlowLimits:
        """Return how much of a queue may be here, where there are so many queues of its topic."""
        count, size = self.pull_threshold_for_queue, self.pull_threshold_size_for_queue
        if self.pull_threshold_for_topic is not None:
            count = max(self.pull_threshold_for_topic // queues, 1)
        if self.pull_threshold_size_for_topic is not None:
            size = max(self.pull_threshold_size_for_topic // queues, 1)
        return FlowLimits(count, size, sys.maxsize if self.orderly else self.consume_concurrently_max_span)


class PushConsumerOptions(ClientOptions, total=False):
    """The fields of PushConsumerConfig but ``group``, and those of ClientConfig, as keyword arguments."""

    broadcasting: bool
    local_offsets: str | PathLike[str] | None
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
