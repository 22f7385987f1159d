"""Statistics: the values that ``statistics()`` of producers and consumers returns."""

from rocketmq_py.consumer.group.statistics import (
    ConsumerStatistics,
    PullState,
    QueueStatistics,
    TopicStatistics,
)
from rocketmq_py.producer.statistics import LatencyHistogram, ProducerStatistics
from rocketmq_py.producer.transaction_values import TransactionStatistics

__all__ = [
    "ConsumerStatistics",
    "LatencyHistogram",
    "ProducerStatistics",
    "PullState",
    "QueueStatistics",
    "TopicStatistics",
    "TransactionStatistics",
]
