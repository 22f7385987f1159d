"""Producers: awaited, pipelined, batched and transactional sends, and requests with replies.

Begin with ``producer``: the methods of a Producer. ``request_builder`` validates a message and encodes it as
a SendRequest. ``sender`` makes the attempts: ``queue_choice`` chooses the queue, ``request_router`` finds the
connection to its broker. ``pipeline`` has the sends in flight that no task awaits, ``pending`` their handles.
BatchingProducer (``batching_producer``, ``accumulator``) and TransactionProducer (``transaction_producer``)
build on this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_py.lazy import lazy_attributes

if TYPE_CHECKING:
    from rocketmq_py.producer.batching_producer import BatchingProducer
    from rocketmq_py.producer.compression import Compression
    from rocketmq_py.producer.config import (
        BatchingConfig,
        BatchingOptions,
        ProducerConfig,
        ProducerOptions,
    )
    from rocketmq_py.producer.health import ProducerHealth
    from rocketmq_py.producer.hooks import EndTransactionContext, ProducerHook, SendContext, SendMode
    from rocketmq_py.producer.latency_faults import BrokerHealth, LatencyFaultPolicy
    from rocketmq_py.producer.pending import PendingReply, PendingSend
    from rocketmq_py.producer.producer import Producer
    from rocketmq_py.producer.selectors import (
        QueueSelector,
        SelectByHash,
        SelectByMachineRoom,
        SelectByRandom,
    )
    from rocketmq_py.producer.statistics import LatencyHistogram, ProducerStatistics
    from rocketmq_py.producer.transaction_checker import TransactionCheck
    from rocketmq_py.producer.transaction_config import TransactionConfig, TransactionOptions
    from rocketmq_py.producer.transaction_producer import LocalWork, TransactionProducer
    from rocketmq_py.producer.transaction_values import (
        Transaction,
        TransactionSendResult,
        TransactionState,
        TransactionStatistics,
    )
else:
    __getattr__ = lazy_attributes(
        globals(),
        {
            "batching_producer": ("BatchingProducer",),
            "compression": ("Compression",),
            "config": (
                "BatchingConfig",
                "BatchingOptions",
                "ProducerConfig",
                "ProducerOptions",
            ),
            "health": ("ProducerHealth",),
            "hooks": (
                "EndTransactionContext",
                "ProducerHook",
                "SendContext",
                "SendMode",
            ),
            "latency_faults": (
                "BrokerHealth",
                "LatencyFaultPolicy",
            ),
            "pending": (
                "PendingReply",
                "PendingSend",
            ),
            "producer": ("Producer",),
            "selectors": (
                "QueueSelector",
                "SelectByHash",
                "SelectByMachineRoom",
                "SelectByRandom",
            ),
            "statistics": (
                "LatencyHistogram",
                "ProducerStatistics",
            ),
            "transaction_checker": ("TransactionCheck",),
            "transaction_config": (
                "TransactionConfig",
                "TransactionOptions",
            ),
            "transaction_values": (
                "Transaction",
                "TransactionSendResult",
                "TransactionState",
                "TransactionStatistics",
            ),
            "transaction_producer": (
                "LocalWork",
                "TransactionProducer",
            ),
        },
    )


__all__ = [
    "BatchingConfig",
    "BatchingOptions",
    "BatchingProducer",
    "BrokerHealth",
    "Compression",
    "EndTransactionContext",
    "LatencyFaultPolicy",
    "LatencyHistogram",
    "LocalWork",
    "PendingReply",
    "PendingSend",
    "Producer",
    "ProducerConfig",
    "ProducerHealth",
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
