"""A push consumer's settings."""

from __future__ import annotations

import enum
from typing import Any

import attrs

from rocketmq_py.client.config import ClientOptions, positive
from rocketmq_py.consumer.allocation import AllocateStrategy, allocate_averagely
from rocketmq_py.consumer.flow import FlowLimits
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.names import check_group

MAX_PULL_BATCH_SIZE = 1024


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


def _pull_batch_size(_: object, attribute: attrs.Attribute[Any], value: int) -> None:
    if not 1 <= value <= MAX_PULL_BATCH_SIZE:
        raise ConfigurationError(f"{attribute.name} is {value!r}; 1 to {MAX_PULL_BATCH_SIZE} are allowed")


@attrs.frozen(kw_only=True)
class PushConsumerConfig:
    """How a push consumer consumes. Java: ``DefaultMQPushConsumer``, whose names stand in brackets.

    Args:
        group: the consumer group (consumerGroup). All its members must subscribe alike.
        concurrency: how many handlers may run at the same time (consumeThreadMax).
        pull_batch_size: messages asked for at once; brokers give about 32 (pullBatchSize).
        pull_threshold_for_queue: no more is pulled of a queue of which more messages than this are
            waiting or being handled (pullThresholdForQueue).
        pull_threshold_size_for_queue: the same for the bytes of their bodies; Java counts MiB
            (pullThresholdSizeForQueue).
        consume_concurrently_max_span: the same for the distance between the offsets of the first and the
            last of them (consumeConcurrentlyMaxSpan).
        consume_from: where a new group begins (consumeFromWhere).
        consume_timestamp_ms: for ConsumeFrom.TIMESTAMP, epoch milliseconds; None is half an hour before
            the consumer was made (consumeTimestamp).
        max_reconsume_times: deliveries after the first one, before a message that fails each time goes
            to the group's dead letters (maxReconsumeTimes).
        allocate: how members share out queues (allocateMessageQueueStrategy).
        rebalance_interval: seconds between two looks at who shall have which queue
            (rocketmq.client.rebalance.waitInterval). A broker's notice leads to one at once.
        commit_interval: seconds between two commits of offsets (persistConsumerOffsetInterval).
        pull_hold: seconds that a broker may keep a pull while there is nothing to give
            (brokerSuspendMaxTimeMillis).
        pull_timeout: seconds until a pull without an answer has failed (consumerTimeoutMillisWhenSuspend).
        close_timeout: seconds that closing may take; handlers that are running have half of it to end
            (awaitTerminationMillisWhenShutdown).
    """

    group: str = attrs.field(converter=check_group)
    concurrency: int = attrs.field(default=20, validator=positive)
    pull_batch_size: int = attrs.field(default=32, validator=_pull_batch_size)
    pull_threshold_for_queue: int = attrs.field(default=1000, validator=positive)
    pull_threshold_size_for_queue: int = attrs.field(default=100 * 1024 * 1024, validator=positive)
    consume_concurrently_max_span: int = attrs.field(default=2000, validator=positive)
    consume_from: ConsumeFrom = attrs.field(
        default=ConsumeFrom.LAST, validator=attrs.validators.instance_of(ConsumeFrom)
    )
    consume_timestamp_ms: int | None = None
    max_reconsume_times: int = attrs.field(default=16, validator=positive)
    allocate: AllocateStrategy = allocate_averagely
    rebalance_interval: float = attrs.field(default=20.0, validator=positive)
    commit_interval: float = attrs.field(default=5.0, validator=positive)
    pull_hold: float = attrs.field(default=15.0, validator=positive)
    pull_timeout: float = attrs.field(default=30.0, validator=positive)
    close_timeout: float = attrs.field(default=5.0, validator=positive)

    def __attrs_post_init__(self) -> None:
        if self.pull_timeout <= self.pull_hold:
            raise ConfigurationError(
                f"pull_timeout is {self.pull_timeout:g} s; it must be longer than pull_hold, "
                f"which is {self.pull_hold:g} s"
            )

    @property
    def flow_limits(self) -> FlowLimits:
        """How much of one queue may be here."""
        return FlowLimits(
            count=self.pull_threshold_for_queue,
            size=self.pull_threshold_size_for_queue,
            span=self.consume_concurrently_max_span,
        )


class PushConsumerOptions(ClientOptions, total=False):
    """The fields of PushConsumerConfig but ``group``, and those of ClientConfig, as keyword arguments."""

    concurrency: int
    pull_batch_size: int
    pull_threshold_for_queue: int
    pull_threshold_size_for_queue: int
    consume_concurrently_max_span: int
    consume_from: ConsumeFrom
    consume_timestamp_ms: int | None
    max_reconsume_times: int
    allocate: AllocateStrategy
    rebalance_interval: float
    commit_interval: float
    pull_hold: float
    pull_timeout: float
    close_timeout: float
