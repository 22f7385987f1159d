"""Producers: awaited, pipelined, batched and transactional sends, and requests with replies.

Begin with ``producer``: the methods of a Producer. ``request_builder`` validates a message, and makes a Send
with the encoded request. ``send_states`` has the states of a Send. ``sender`` makes the attempts:
``queue_choice`` chooses the queue, ``request_router`` finds the connection to its broker. ``pipeline`` has
the sends in flight, ``pending`` their handles.
``batcher`` and ``accumulator`` collect the messages of a producer with ``linger``. TransactionProducer
(``transaction_producer``) builds on this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_py.lazy import lazy_names

if TYPE_CHECKING:
    from rocketmq_py.producer.compression import Compression as Compression
    from rocketmq_py.producer.hooks import EndTransactionContext as EndTransactionContext
    from rocketmq_py.producer.hooks import ProducerHook as ProducerHook
    from rocketmq_py.producer.hooks import SendContext as SendContext
    from rocketmq_py.producer.hooks import SendMode as SendMode
    from rocketmq_py.producer.latency_faults import BrokerHealth as BrokerHealth
    from rocketmq_py.producer.latency_faults import LatencyFaultPolicy as LatencyFaultPolicy
    from rocketmq_py.producer.pending import PendingReply as PendingReply
    from rocketmq_py.producer.pending import PendingSend as PendingSend
    from rocketmq_py.producer.producer import Producer as Producer
    from rocketmq_py.producer.settings import ProducerOptions as ProducerOptions
    from rocketmq_py.producer.statistics import LatencyHistogram as LatencyHistogram
    from rocketmq_py.producer.statistics import ProducerHealth as ProducerHealth
    from rocketmq_py.producer.statistics import ProducerStatistics as ProducerStatistics
    from rocketmq_py.producer.transaction_checker import TransactionCheck as TransactionCheck
    from rocketmq_py.producer.transaction_producer import LocalWork as LocalWork
    from rocketmq_py.producer.transaction_producer import TransactionProducer as TransactionProducer
    from rocketmq_py.producer.transaction_settings import TransactionOptions as TransactionOptions
    from rocketmq_py.producer.transaction_values import Transaction as Transaction
    from rocketmq_py.producer.transaction_values import TransactionSendResult as TransactionSendResult
    from rocketmq_py.producer.transaction_values import TransactionState as TransactionState
    from rocketmq_py.producer.transaction_values import TransactionStatistics as TransactionStatistics
else:
    __all__, __getattr__, __dir__ = lazy_names(
        globals(),
        {
            "compression": ("Compression",),
            "hooks": ("EndTransactionContext", "ProducerHook", "SendContext", "SendMode"),
            "latency_faults": ("BrokerHealth", "LatencyFaultPolicy"),
            "pending": ("PendingReply", "PendingSend"),
            "producer": ("Producer",),
            "settings": ("ProducerOptions",),
            "statistics": ("LatencyHistogram", "ProducerHealth", "ProducerStatistics"),
            "transaction_checker": ("TransactionCheck",),
            "transaction_producer": ("LocalWork", "TransactionProducer"),
            "transaction_settings": ("TransactionOptions",),
            "transaction_values": (
                "Transaction",
                "TransactionSendResult",
                "TransactionState",
                "TransactionStatistics",
            ),
        },
    )
