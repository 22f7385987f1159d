"""Sending: choose a queue, send, retry, learn; batches, hooks, transactions and requests."""

from rocketmq_py.producer.batching import BatchingProducer
from rocketmq_py.producer.batching_config import BatchingConfig, BatchingOptions
from rocketmq_py.producer.compression import Compression
from rocketmq_py.producer.config import ProducerConfig, ProducerOptions
from rocketmq_py.producer.hooks import EndTransactionContext, ProducerHook, SendContext, SendMode
from rocketmq_py.producer.latency_faults import JAVA_4, JAVA_5, BrokerFaultState, LatencyFaultPolicy
from rocketmq_py.producer.pending import PendingReply, PendingSend
from rocketmq_py.producer.producer import Producer
from rocketmq_py.producer.selectors import (
    QueueSelector,
    SelectByHash,
    SelectByMachineRoom,
    SelectByRandom,
)
from rocketmq_py.producer.statistics import Latency, ProducerStatistics
from rocketmq_py.producer.transaction_checker import TransactionCheck
from rocketmq_py.producer.transaction_config import TransactionConfig, TransactionOptions
from rocketmq_py.producer.transaction_values import (
    Transaction,
    TransactionSendResult,
    TransactionState,
    TransactionStatistics,
)
from rocketmq_py.producer.transactions import LocalWork, TransactionProducer

__all__ = [
    "JAVA_4",
    "JAVA_5",
    "BatchingConfig",
    "BatchingOptions",
    "BatchingProducer",
    "BrokerFaultState",
    "Compression",
    "EndTransactionContext",
    "Latency",
    "LatencyFaultPolicy",
    "LocalWork",
    "PendingReply",
    "PendingSend",
    "Producer",
    "ProducerConfig",
    "ProducerHook",
    "ProducerOptions",
    "ProducerStatistics",
    "QueueSelector",
    "SelectByHash",
    "SelectByMachineRoom",
    "SelectByRandom",
    "SendContext",
    "SendMode",
    "Transaction",
    "TransactionCheck",
    "TransactionConfig",
    "TransactionOptions",
    "TransactionProducer",
    "TransactionSendResult",
    "TransactionState",
    "TransactionStatistics",
]
