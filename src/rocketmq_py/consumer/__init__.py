"""Consuming: share out queues, pull, hold, hand over, remember offsets."""

from rocketmq_py.consumer.allocation import AllocateStrategy, allocate_averagely
from rocketmq_py.consumer.config import ConsumeFrom, PushConsumerConfig, PushConsumerOptions
from rocketmq_py.consumer.push_consumer import PushConsumer
from rocketmq_py.consumer.reader import Reader, Start

__all__ = [
    "AllocateStrategy",
    "ConsumeFrom",
    "PushConsumer",
    "PushConsumerConfig",
    "PushConsumerOptions",
    "Reader",
    "Start",
    "allocate_averagely",
]
