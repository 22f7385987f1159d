"""Consumers: PushConsumer, LitePullConsumer and PopConsumer of a group, and Reader without one.

LiteTopicPushConsumer and LiteTopicConsumer consume lite topics.

``group/`` has what the consumers of a group share: subscriptions, rebalancing, offset commits, statistics.
``pull/`` pulls messages and buffers them. ``push/``, ``lite_pull/``, ``pop/``, ``lite/`` and ``read/``
contain the consumer classes, in their ``consumer.py`` or ``reader.py``. That is the place to start reading.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_py.lazy import lazy_names

if TYPE_CHECKING:
    from rocketmq_py.consumer.group.assignment_listener import AssignmentListener as AssignmentListener
    from rocketmq_py.consumer.group.handler_results import CommitOffset as CommitOffset
    from rocketmq_py.consumer.group.handler_results import ConsumeLater as ConsumeLater
    from rocketmq_py.consumer.group.handler_results import ConsumeResult as ConsumeResult
    from rocketmq_py.consumer.group.handler_results import RollbackOffset as RollbackOffset
    from rocketmq_py.consumer.group.handler_results import Suspend as Suspend
    from rocketmq_py.consumer.group.health import ConsumerHealth as ConsumerHealth
    from rocketmq_py.consumer.group.hooks import ConsumeContext as ConsumeContext
    from rocketmq_py.consumer.group.hooks import ConsumeOperation as ConsumeOperation
    from rocketmq_py.consumer.group.hooks import ConsumerHook as ConsumerHook
    from rocketmq_py.consumer.group.statistics import ConsumerStatistics as ConsumerStatistics
    from rocketmq_py.consumer.group.statistics import PullState as PullState
    from rocketmq_py.consumer.group.statistics import QueueStatistics as QueueStatistics
    from rocketmq_py.consumer.group.statistics import TopicStatistics as TopicStatistics
    from rocketmq_py.consumer.lite.consumer import LiteTopicConsumer as LiteTopicConsumer
    from rocketmq_py.consumer.lite.push_consumer import LiteTopicPushConsumer as LiteTopicPushConsumer
    from rocketmq_py.consumer.lite.settings import LiteTopicConsumerOptions as LiteTopicConsumerOptions
    from rocketmq_py.consumer.lite.settings import (
        LiteTopicPushConsumerOptions as LiteTopicPushConsumerOptions,
    )
    from rocketmq_py.consumer.lite_pull.consumer import LitePullConsumer as LitePullConsumer
    from rocketmq_py.consumer.lite_pull.settings import LitePullConsumerOptions as LitePullConsumerOptions
    from rocketmq_py.consumer.pop.consumer import PopConsumer as PopConsumer
    from rocketmq_py.consumer.pop.messages import PoppedMessage as PoppedMessage
    from rocketmq_py.consumer.pop.settings import PopConsumerOptions as PopConsumerOptions
    from rocketmq_py.consumer.push.consumer import PushConsumer as PushConsumer
    from rocketmq_py.consumer.read.offset_ranges import OffsetRange as OffsetRange
    from rocketmq_py.consumer.read.offset_ranges import PullResult as PullResult
    from rocketmq_py.consumer.read.reader import Reader as Reader
    from rocketmq_py.consumer.settings import PushConsumerOptions as PushConsumerOptions
else:
    __all__, __getattr__, __dir__ = lazy_names(
        globals(),
        {
            "group.assignment_listener": ("AssignmentListener",),
            "group.handler_results": (
                "CommitOffset",
                "ConsumeLater",
                "ConsumeResult",
                "RollbackOffset",
                "Suspend",
            ),
            "group.health": ("ConsumerHealth",),
            "group.hooks": ("ConsumeContext", "ConsumeOperation", "ConsumerHook"),
            "group.statistics": ("ConsumerStatistics", "PullState", "QueueStatistics", "TopicStatistics"),
            "lite.consumer": ("LiteTopicConsumer",),
            "lite.push_consumer": ("LiteTopicPushConsumer",),
            "lite.settings": ("LiteTopicConsumerOptions", "LiteTopicPushConsumerOptions"),
            "lite_pull.consumer": ("LitePullConsumer",),
            "lite_pull.settings": ("LitePullConsumerOptions",),
            "pop.consumer": ("PopConsumer",),
            "pop.messages": ("PoppedMessage",),
            "pop.settings": ("PopConsumerOptions",),
            "push.consumer": ("PushConsumer",),
            "read.offset_ranges": ("OffsetRange", "PullResult"),
            "read.reader": ("Reader",),
            "settings": ("PushConsumerOptions",),
        },
    )
