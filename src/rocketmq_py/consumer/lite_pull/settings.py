"""Settings of lite pull consumers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, TypedDict

import attrs

from rocketmq_py.allocation import AllocateStrategy, allocate_averagely
from rocketmq_py.arguments import BYTES, Duration, flag, positive, seconds
from rocketmq_py.client.settings import ClientOptions, trace_topic
from rocketmq_py.consumer.settings import (
    PushConsumerSettings,
    check_allocate_strategy,
    to_consume_from,
)
from rocketmq_py.names import check_group
from rocketmq_py.position import Position


@attrs.frozen(kw_only=True)
class LitePullConsumerSettings:
    """Settings of a lite pull consumer. Java: ``DefaultLitePullConsumer``, whose names are given in brackets.

    Args:
        group: the consumer group (consumerGroup). All its members must subscribe alike.
        auto_commit: periodically commit acknowledged messages. The next poll acknowledges the messages that
            the previous one returned. If False, only ``commit()`` commits (autoCommit).
        commit_interval: seconds between two of these commits (autoCommitIntervalMillis).
        pull_batch_size: messages requested per pull. Brokers return about 32 (pullBatchSize, which is 10 in
            Java).
        pull_threshold_for_all: pause pulling while all queues together have more unacknowledged messages than
            this (pullThresholdForAll).
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
        pull_hold: seconds for which a broker may hold a pull request while the queue has no new message
            (brokerSuspendMaxTimeMillis). Raise it for fewer requests from many idle queues.
        pull_timeout: timeout of a pull request in seconds (consumerTimeoutMillisWhenSuspend). Raise it with
            ``pull_hold``.
        trace: True sends a trace record of each polled message to RMQ_SYS_TRACE_TOPIC, in RocketMQ's format
            and in the background (enableMsgTrace). A string names another topic, or is "cloud", as in
            Producer (customizedTraceTopic, accessChannel).
        close_timeout: maximum seconds for closing.
    """

    # Settings of Java's consumer that are arguments here. The error for an unknown setting names the call.
    ARGUMENTS_OF_CALLS: ClassVar[Mapping[str, str]] = {"poll_timeout": "poll(wait=...)"}

    group: str = attrs.field(converter=check_group)
    auto_commit: bool = attrs.field(default=True, validator=flag)
    commit_interval: float = attrs.field(default=5.0, converter=seconds, validator=positive)
    pull_batch_size: int = 32
    pull_threshold_for_all: int = attrs.field(default=10_000, validator=positive)
    pull_threshold_for_queue: int = 1000
    pull_threshold_size_for_queue: int = attrs.field(default=100 * 1024 * 1024, metadata=BYTES)
    consume_max_span: int = attrs.field(default=2000, validator=positive)
    consume_from: Position = attrs.field(default=Position.latest, converter=to_consume_from)
    allocate: AllocateStrategy = attrs.field(default=allocate_averagely, validator=check_allocate_strategy)
    rebalance_interval: float = attrs.field(default=20.0, converter=seconds)
    pull_hold: float = attrs.field(default=20.0, converter=seconds)
    pull_timeout: float = attrs.field(default=30.0, converter=seconds)
    trace: bool | str = attrs.field(default=False, validator=trace_topic)
    close_timeout: float = attrs.field(default=5.0, converter=seconds)

    def __attrs_post_init__(self) -> None:
        self.pull_config()  # checks the fields that have no validator here

    def pull_config(self) -> PushConsumerSettings:
        """Return the settings as AssignedQueues, which push consumers use too, takes them."""
        return PushConsumerSettings(
            group=self.group,
            commit_interval=self.commit_interval,
            pull_batch_size=self.pull_batch_size,
            pull_threshold_for_queue=self.pull_threshold_for_queue,
            pull_threshold_size_for_queue=self.pull_threshold_size_for_queue,
            consume_max_span=self.consume_max_span,
            consume_from=self.consume_from,
            allocate=self.allocate,
            rebalance_interval=self.rebalance_interval,
            pull_hold=self.pull_hold,
            pull_timeout=self.pull_timeout,
            close_timeout=self.close_timeout,
        )


class LitePullConsumerFactoryOptions(TypedDict, total=False):
    """Settings of a LitePullConsumer that shares a client. Made by ``make apis``.

    Defaults: auto_commit=True, commit_interval=5.0, pull_batch_size=32, pull_threshold_for_all=10000,
    pull_threshold_for_queue=1000, pull_threshold_size_for_queue=104857600, consume_max_span=2000,
    consume_from=Position.latest, allocate=allocate_averagely, rebalance_interval=20.0, pull_hold=20.0,
    pull_timeout=30.0, trace=False, close_timeout=5.0.
    """

    auto_commit: bool
    commit_interval: Duration
    pull_batch_size: int
    pull_threshold_for_all: int
    pull_threshold_for_queue: int
    pull_threshold_size_for_queue: int
    consume_max_span: int
    consume_from: Position | str
    allocate: AllocateStrategy
    rebalance_interval: Duration
    pull_hold: Duration
    pull_timeout: Duration
    trace: bool | str
    close_timeout: Duration


class LitePullConsumerOptions(LitePullConsumerFactoryOptions, ClientOptions, total=False):
    """Settings of a LitePullConsumer, with those of ClientOptions. Made by ``make apis``."""
