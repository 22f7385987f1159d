"""Consuming: share out queues, pull, hold, hand over, remember offsets."""

from rocketmq_py.consumer.allocation import (
    AllocateByConfig,
    AllocateStrategy,
    allocate_averagely,
    allocate_averagely_by_circle,
)
from rocketmq_py.consumer.assigning import AllocateByBroker
from rocketmq_py.consumer.config import ConsumeFrom, PushConsumerConfig, PushConsumerOptions
from rocketmq_py.consumer.consistent_hash import AllocateConsistentHash
from rocketmq_py.consumer.consumer_statistics import ConsumerStatistics, QueueStatistics, TopicStatistics
from rocketmq_py.consumer.flow import Flow
from rocketmq_py.consumer.hooks import ConsumeContext, ConsumeMode, ConsumerHook
from rocketmq_py.consumer.lite_pull import LitePullConsumer
from rocketmq_py.consumer.lite_pull_config import LitePullConsumerConfig, LitePullConsumerOptions
from rocketmq_py.consumer.lite_pull_queues import AssignmentListener
from rocketmq_py.consumer.machine_rooms import AllocateByMachineRoom, AllocateMachineRoomNearby
from rocketmq_py.consumer.pop_config import PopConsumerConfig, PopConsumerOptions
from rocketmq_py.consumer.pop_consumer import PopConsumer
from rocketmq_py.consumer.pop_message import PoppedMessage
from rocketmq_py.consumer.push_consumer import PushConsumer
from rocketmq_py.consumer.raw_pulling import PulledChunk, Span
from rocketmq_py.consumer.reader import Reader, Start
from rocketmq_py.consumer.results import Commit, ConsumeLater, ConsumeResult, Rollback, Suspend

__all__ = [
    "AllocateByBroker",
    "AllocateByConfig",
    "AllocateByMachineRoom",
    "AllocateConsistentHash",
    "AllocateMachineRoomNearby",
    "AllocateStrategy",
    "AssignmentListener",
    "Commit",
    "ConsumeContext",
    "ConsumeFrom",
    "ConsumeLater",
    "ConsumeMode",
    "ConsumeResult",
    "ConsumerHook",
    "ConsumerStatistics",
    "Flow",
    "LitePullConsumer",
    "LitePullConsumerConfig",
    "LitePullConsumerOptions",
    "PopConsumer",
    "PopConsumerConfig",
    "PopConsumerOptions",
    "PoppedMessage",
    "PulledChunk",
    "PushConsumer",
    "PushConsumerConfig",
    "PushConsumerOptions",
    "QueueStatistics",
    "Reader",
    "Rollback",
    "Span",
    "Start",
    "Suspend",
    "TopicStatistics",
    "allocate_averagely",
    "allocate_averagely_by_circle",
]
