"""Settings of lite pull consumers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, TypedDict

import attrs

from rocketmq_py.allocation import AllocateStrategy
from rocketmq_py.arguments import Duration, flag, positive, seconds
from rocketmq_py.client.settings import ClientOptions, trace_topic
from rocketmq_py.consumer.settings import PullSettings
from rocketmq_py.position import Position


@attrs.frozen(kw_only=True)
class LitePullConsumerSettings(PullSettings):
    """Settings of a lite pull consumer, in addition to PullSettings. Java: ``DefaultLitePullConsumer``.

    Args:
        auto_commit: periodically commit acknowledged messages. The next poll acknowledges the messages that
            the previous one returned. If False, only ``commit()`` commits (autoCommit).
        commit_interval: with ``auto_commit``, seconds between two commits (autoCommitIntervalMillis).
        pull_threshold_for_all: pause pulling while all queues together have more unacknowledged messages than
            this (pullThresholdForAll).
        trace: True sends a trace record of each polled message to RMQ_SYS_TRACE_TOPIC, in RocketMQ's format
            and in the background (enableMsgTrace). A string names another topic, or is "cloud", as in
            Producer (customizedTraceTopic, accessChannel).
        close_timeout: maximum seconds for closing.
    """

    # Settings of Java's consumer that are arguments here. The error for an unknown setting names the call.
    ARGUMENTS_OF_CALLS: ClassVar[Mapping[str, str]] = {"poll_timeout": "poll(wait=...)"}

    auto_commit: bool = attrs.field(default=True, validator=flag)
    pull_threshold_for_all: int = attrs.field(default=10_000, validator=positive)
    pull_hold: float = attrs.field(default=20.0, converter=seconds, validator=positive)
    trace: bool | str = attrs.field(default=False, validator=trace_topic)
    close_timeout: float = attrs.field(default=5.0, converter=seconds, validator=positive)


class LitePullConsumerFactoryOptions(TypedDict, total=False):
    """Settings of a LitePullConsumer that shares a client. Made by ``make apis``.

    Defaults: auto_commit=True, pull_threshold_for_all=10000, pull_hold=20.0, trace=False, close_timeout=5.0,
    pull_batch_size=32, pull_threshold_for_queue=1000, pull_threshold_size_for_queue=104857600,
    consume_max_span=2000, consume_from=Position.latest, allocate=allocate_averagely, rebalance_interval=20.0,
    commit_interval=5.0, pull_timeout=30.0.
    """

    auto_commit: bool
    pull_threshold_for_all: int
    pull_hold: Duration
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
    pull_timeout: Duration


class LitePullConsumerOptions(LitePullConsumerFactoryOptions, ClientOptions, total=False):
    """Settings of a LitePullConsumer, with those of ClientOptions. Made by ``make apis``."""
