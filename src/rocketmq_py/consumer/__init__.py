"""Consumers: PushConsumer, LitePullConsumer and PopConsumer of a group, and Reader without one.

LitePushConsumer and LiteConsumer consume lite topics.

``group/`` has what the consumers of a group share: subscriptions, rebalancing, offset commits, statistics.
``pull/`` pulls messages and buffers them. ``push/``, ``lite_pull/``, ``pop/``, ``lite/`` and ``read/``
contain the consumer classes, in their ``consumer.py`` or ``reader.py``. That is the place to start reading.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_py.lazy import lazy_attributes

if TYPE_CHECKING:
    from rocketmq_py.consumer.allocation import (
        AllocateByBroker,
        AllocateByConfig,
        AllocateByMachineRoom,
        AllocateConsistentHash,
        AllocateMachineRoomNearby,
        AllocateStrategy,
        allocate_averagely,
        allocate_averagely_by_circle,
    )
    from rocketmq_py.consumer.config import ConsumeFrom, PushConsumerConfig, PushConsumerOptions
    from rocketmq_py.consumer.group.assignment_listener import AssignmentListener
    from rocketmq_py.consumer.group.handler_results import (
        CommitOffset,
        ConsumeLater,
        ConsumeResult,
        RollbackOffset,
        Suspend,
    )
    from rocketmq_py.consumer.group.health import ConsumerHealth
    from rocketmq_py.consumer.group.hooks import ConsumeContext, ConsumeOperation, ConsumerHook
    from rocketmq_py.consumer.group.statistics import (
        ConsumerStatistics,
        PullState,
        QueueStatistics,
        TopicStatistics,
    )
    from rocketmq_py.consumer.lite.config import (
        LiteConsumerConfig,
        LiteConsumerOptions,
        LitePushConsumerConfig,
        LitePushConsumerOptions,
    )
    from rocketmq_py.consumer.lite.consumer import LiteConsumer
    from rocketmq_py.consumer.lite.push_consumer import LitePushConsumer
    from rocketmq_py.consumer.lite.start_position import LiteStart
    from rocketmq_py.consumer.lite_pull.config import LitePullConsumerConfig, LitePullConsumerOptions
    from rocketmq_py.consumer.lite_pull.consumer import LitePullConsumer
    from rocketmq_py.consumer.pop.config import PopConsumerConfig, PopConsumerOptions
    from rocketmq_py.consumer.pop.consumer import PopConsumer
    from rocketmq_py.consumer.pop.messages import PoppedMessage
    from rocketmq_py.consumer.push.consumer import PushConsumer
    from rocketmq_py.consumer.read.offset_ranges import OffsetRange, PullResult
    from rocketmq_py.consumer.read.reader import Reader
    from rocketmq_py.consumer.read.start_position import StartPosition
else:
    __getattr__ = lazy_attributes(
        globals(),
        {
            "allocation": (
                "AllocateByBroker",
                "AllocateByConfig",
                "AllocateByMachineRoom",
                "AllocateConsistentHash",
                "AllocateMachineRoomNearby",
                "AllocateStrategy",
                "allocate_averagely",
                "allocate_averagely_by_circle",
            ),
            "config": (
                "ConsumeFrom",
                "PushConsumerConfig",
                "PushConsumerOptions",
            ),
            "group.assignment_listener": ("AssignmentListener",),
            "group.health": ("ConsumerHealth",),
            "group.hooks": (
                "ConsumeContext",
                "ConsumeOperation",
                "ConsumerHook",
            ),
            "group.handler_results": (
                "CommitOffset",
                "ConsumeLater",
                "ConsumeResult",
                "RollbackOffset",
                "Suspend",
            ),
            "group.statistics": (
                "ConsumerStatistics",
                "PullState",
                "QueueStatistics",
                "TopicStatistics",
            ),
            "lite.config": (
                "LiteConsumerConfig",
                "LiteConsumerOptions",
                "LitePushConsumerConfig",
                "LitePushConsumerOptions",
            ),
            "lite.consumer": ("LiteConsumer",),
            "lite.push_consumer": ("LitePushConsumer",),
            "lite.start_position": ("LiteStart",),
            "lite_pull.config": (
                "LitePullConsumerConfig",
                "LitePullConsumerOptions",
            ),
            "lite_pull.consumer": ("LitePullConsumer",),
            "pop.config": (
                "PopConsumerConfig",
                "PopConsumerOptions",
            ),
            "pop.consumer": ("PopConsumer",),
            "pop.messages": ("PoppedMessage",),
            "push.consumer": ("PushConsumer",),
            "read.offset_ranges": (
                "OffsetRange",
                "PullResult",
            ),
            "read.reader": ("Reader",),
            "read.start_position": ("StartPosition",),
        },
    )


__all__ = [
    "AllocateByBroker",
    "AllocateByConfig",
    "AllocateByMachineRoom",
    "AllocateConsistentHash",
    "AllocateMachineRoomNearby",
    "AllocateStrategy",
    "AssignmentListener",
    "CommitOffset",
    "ConsumeContext",
    "ConsumeFrom",
    "ConsumeLater",
    "ConsumeOperation",
    "ConsumeResult",
    "ConsumerHealth",
    "ConsumerHook",
    "ConsumerStatistics",
    "LiteConsumer",
    "LiteConsumerConfig",
    "LiteConsumerOptions",
    "LitePullConsumer",
    "LitePullConsumerConfig",
    "LitePullConsumerOptions",
    "LitePushConsumer",
    "LitePushConsumerConfig",
    "LitePushConsumerOptions",
    "LiteStart",
    "OffsetRange",
    "PopConsumer",
    "PopConsumerConfig",
    "PopConsumerOptions",
    "PoppedMessage",
    "PullResult",
    "PullState",
    "PushConsumer",
    "PushConsumerConfig",
    "PushConsumerOptions",
    "QueueStatistics",
    "Reader",
    "RollbackOffset",
    "StartPosition",
    "Suspend",
    "TopicStatistics",
    "allocate_averagely",
    "allocate_averagely_by_circle",
]
