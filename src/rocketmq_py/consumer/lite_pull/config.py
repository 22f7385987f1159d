"""Settings of lite pull consumers."""

from __future__ import annotations

import attrs

from rocketmq_py.arguments import flag, not_negative, positive
from rocketmq_py.client.config import ClientOptions, trace_topic
from rocketmq_py.consumer.allocation import AllocateStrategy, allocate_averagely
from rocketmq_py.consumer.config import (
    ConsumeFrom,
    PushConsumerConfig,
    check_allocate_strategy,
    to_consume_from,
)
from rocketmq_py.names import check_group


@attrs.frozen(kw_only=True)
class LitePullConsumerConfig:
    """Settings of a lite pull consumer. Java: ``DefaultLitePullConsumer``, whose names are given in brackets.

    Args:
        group: the consumer group (consumerGroup). All its members must subscribe alike.
        auto_commit: periodically commit acknowledged messages. The next poll acknowledges the messages that
            the previous one returned. If False, only ``commit()`` commits (autoCommit).
        auto_commit_interval: seconds between two of these commits (autoCommitIntervalMillis).
        poll_timeout: default seconds for which a poll waits for the first message (pollTimeoutMillis).
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
        consume_from: where a group starts in a queue that it has never consumed: a ConsumeFrom, or its name
            such as ``"first"`` (consumeFromWhere).
        consume_timestamp_ms: the time for ConsumeFrom.TIMESTAMP, epoch milliseconds. None for half an hour
            before the consumer was created (consumeTimestamp).
        allocate: the strategy that distributes queues among members (allocateMessageQueueStrategy).
        rebalance_interval: seconds between two rebalances (rocketmq.client.rebalance.waitInterval). A change
            reported by a broker starts one at once.
        pull_hold: seconds for which a broker may hold a pull request while the queue has no new message
            (brokerSuspendMaxTimeMillis).
        pull_timeout: timeout of a pull request in seconds (consumerTimeoutMillisWhenSuspend).
        pull_max_idle_time: seconds without a pull request after which a stalled pull loop is restarted
            (rocketmq.client.pull.pullMaxIdleTime).
        trace: True sends a trace record of each polled message to RMQ_SYS_TRACE_TOPIC, in RocketMQ's format
            and in the background. A string names another topic (enableMsgTrace, customizedTraceTopic).
        close_timeout: maximum seconds for closing.
    """

    group: str = attrs.field(converter=check_group)
    auto_commit: bool = attrs.field(default=True, validator=flag)
    auto_commit_interval: float = attrs.field(default=5.0, validator=positive)
    poll_timeout: float = attrs.field(default=5.0, validator=not_negative)
    pull_batch_size: int = 32
    pull_threshold_for_all: int = attrs.field(default=10_000, validator=positive)
    pull_threshold_for_queue: int = 1000
    pull_threshold_size_for_queue: int = 100 * 1024 * 1024
    consume_max_span: int = attrs.field(default=2000, validator=positive)
    consume_from: ConsumeFrom = attrs.field(default=ConsumeFrom.LAST, converter=to_consume_from)
    consume_timestamp_ms: int | None = None
    allocate: AllocateStrategy = attrs.field(default=allocate_averagely, validator=check_allocate_strategy)
    rebalance_interval: float = 20.0
    pull_hold: float = 20.0
    pull_timeout: float = 30.0
    pull_max_idle_time: float = 120.0
    trace: bool | str = attrs.field(default=False, validator=trace_topic)
    close_timeout: float = 5.0

    def __attrs_post_init__(self) -> None:
        self.pull_config()  # checks the fields that have no validator here

    def pull_config(self) -> PushConsumerConfig:
        """Return the settings as AssignedQueues, which push consumers use too, takes them."""
        return PushConsumerConfig(
            group=self.group,
            commit_interval=self.auto_commit_interval,
            pull_batch_size=self.pull_batch_size,
            pull_threshold_for_queue=self.pull_threshold_for_queue,
            pull_threshold_size_for_queue=self.pull_threshold_size_for_queue,
            consume_concurrently_max_span=self.consume_max_span,
            consume_from=self.consume_from,
            consume_timestamp_ms=self.consume_timestamp_ms,
            allocate=self.allocate,
            rebalance_interval=self.rebalance_interval,
            pull_hold=self.pull_hold,
            pull_timeout=self.pull_timeout,
            pull_max_idle_time=self.pull_max_idle_time,
            close_timeout=self.close_timeout,
        )


class LitePullConsumerOptions(ClientOptions, total=False):
    """The fields of LitePullConsumerConfig except ``group``, and those of ClientConfig, as keywords."""

    auto_commit: bool
    auto_commit_interval: float
    poll_timeout: float
    pull_batch_size: int
    pull_threshold_for_all: int
    pull_threshold_for_queue: int
    pull_threshold_size_for_queue: int
    consume_max_span: int
    consume_from: ConsumeFrom | str
    consume_timestamp_ms: int | None
    allocate: AllocateStrategy
    rebalance_interval: float
    pull_hold: float
    pull_timeout: float
    pull_max_idle_time: float
    trace: bool | str
    close_timeout: float
