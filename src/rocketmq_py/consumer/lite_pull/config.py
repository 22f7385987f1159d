"""A lite pull consumer's settings."""

from __future__ import annotations

import attrs

from rocketmq_py.arguments import flag, not_negative, positive
from rocketmq_py.client.config import ClientOptions, trace_topic
from rocketmq_py.consumer.allocation.strategies import AllocateStrategy, allocate_averagely
from rocketmq_py.consumer.config import ConsumeFrom, PushConsumerConfig, allocates, consume_from
from rocketmq_py.names import check_group


@attrs.frozen(kw_only=True)
class LitePullConsumerConfig:
    """How a lite pull consumer pulls. Java: ``DefaultLitePullConsumer``, whose names stand in brackets.

    Args:
        group: the consumer group (consumerGroup). All its members must subscribe alike.
        auto_commit: commit now and then what is done with: what a poll returned is, when the next one
            begins. If False, only ``commit()`` commits (autoCommit).
        auto_commit_interval: seconds between two of these commits (autoCommitIntervalMillis).
        poll_timeout: seconds that a poll waits for the first message, if it is not told (pollTimeoutMillis).
        pull_batch_size: messages asked for at once; brokers give about 32 (pullBatchSize, which is 10).
        pull_threshold_for_all: nothing more is pulled when more messages than this, of all queues together,
            wait or are not done with (pullThresholdForAll).
        pull_threshold_for_queue: the same for the messages of one queue (pullThresholdForQueue).
        pull_threshold_size_for_queue: the same for the bytes of their bodies; Java counts MiB
            (pullThresholdSizeForQueue).
        consume_max_span: the same for the distance between the offsets of the first and the last of them
            (consumeMaxSpan).
        consume_from: where a group begins in a queue in which it has never been (consumeFromWhere).
        consume_timestamp_ms: for ConsumeFrom.TIMESTAMP, epoch milliseconds; None is half an hour before
            the consumer was made (consumeTimestamp).
        allocate: how members share out queues (allocateMessageQueueStrategy).
        rebalance_interval: seconds between two looks at who shall have which queue
            (rocketmq.client.rebalance.waitInterval). A broker's notice leads to one at once.
        pull_hold: seconds that a broker may keep a pull while there is nothing to give
            (brokerSuspendMaxTimeMillis).
        pull_timeout: seconds until a pull without an answer has failed (consumerTimeoutMillisWhenSuspend).
        pull_max_idle_time: seconds after which a queue that should be pulled from, and is not, is pulled
            anew (rocketmq.client.pull.pullMaxIdleTime).
        trace: True sends a record of each message that is polled to RMQ_SYS_TRACE_TOPIC, in RocketMQ's own
            format, in the background; a text names another topic for them (enableMsgTrace,
            customizedTraceTopic).
        close_timeout: seconds that closing may take.
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
    consume_from: ConsumeFrom = attrs.field(default=ConsumeFrom.LAST, converter=consume_from)
    consume_timestamp_ms: int | None = None
    allocate: AllocateStrategy = attrs.field(default=allocate_averagely, validator=allocates)
    rebalance_interval: float = 20.0
    pull_hold: float = 20.0
    pull_timeout: float = 30.0
    pull_max_idle_time: float = 120.0
    trace: bool | str = attrs.field(default=False, validator=trace_topic)
    close_timeout: float = 5.0

    def __attrs_post_init__(self) -> None:
        self.pulling()

    def pulling(self) -> PushConsumerConfig:
        """Return the settings of the parts that pull, which a push consumer has too, and which it checks."""
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
    """The fields of LitePullConsumerConfig but ``group``, and those of ClientConfig, as keyword arguments."""

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
