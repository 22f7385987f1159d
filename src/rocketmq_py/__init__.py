"""rocketmq-py: an Apache RocketMQ client on trio, with an embedded broker.

The names in ``__all__`` are the public ones, with those of ``rocketmq_py.admin``, ``rocketmq_py.aio``,
``rocketmq_py.blocking``, ``rocketmq_py.broker`` and ``rocketmq_py.errors``; everything else may change.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocketmq_py.admin import Admin
    from rocketmq_py.client import ClientConfig
    from rocketmq_py.consumer import (
        AllocateByBroker,
        AllocateByConfig,
        AllocateByMachineRoom,
        AllocateConsistentHash,
        AllocateMachineRoomNearby,
        AllocateStrategy,
        AssignmentListener,
        Commit,
        ConsumeContext,
        ConsumeFrom,
        ConsumeLater,
        ConsumeMode,
        ConsumerHook,
        ConsumerStatistics,
        Flow,
        LitePullConsumer,
        LitePullConsumerConfig,
        PopConsumer,
        PopConsumerConfig,
        PoppedMessage,
        PulledChunk,
        PushConsumer,
        PushConsumerConfig,
        QueueStatistics,
        Reader,
        Rollback,
        Span,
        Start,
        Suspend,
        TopicStatistics,
        allocate_averagely,
        allocate_averagely_by_circle,
    )
    from rocketmq_py.credentials import Credentials
    from rocketmq_py.errors import Delivery, RocketMQError
    from rocketmq_py.message import Message, MessageQueue, ReceivedMessage, SendResult, SendStatus
    from rocketmq_py.producer import (
        JAVA_4,
        JAVA_5,
        BatchingConfig,
        BatchingProducer,
        BrokerFaultState,
        Compression,
        EndTransactionContext,
        Latency,
        LatencyFaultPolicy,
        PendingReply,
        PendingSend,
        Producer,
        ProducerConfig,
        ProducerHook,
        ProducerStatistics,
        QueueSelector,
        SelectByHash,
        SelectByMachineRoom,
        SelectByRandom,
        SendContext,
        SendMode,
        Transaction,
        TransactionConfig,
        TransactionProducer,
        TransactionSendResult,
        TransactionState,
        TransactionStatistics,
    )
    from rocketmq_py.protocol.command import Serialization
    from rocketmq_py.protocol.compression import CompressionType
    from rocketmq_py.protocol.trace import ConsumeReturn
    from rocketmq_py.remoting import TLS, RpcContext, RpcHook
    from rocketmq_py.shared_client import Client

    __version__: str

_NAMES_OF_MODULE = {
    "rocketmq_py.admin": ("Admin",),
    "rocketmq_py.client": ("ClientConfig",),
    "rocketmq_py.consumer": (
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
        "ConsumerHook",
        "ConsumerStatistics",
        "Flow",
        "LitePullConsumer",
        "LitePullConsumerConfig",
        "PopConsumer",
        "PopConsumerConfig",
        "PoppedMessage",
        "PulledChunk",
        "PushConsumer",
        "PushConsumerConfig",
        "QueueStatistics",
        "Reader",
        "Rollback",
        "Span",
        "Start",
        "Suspend",
        "TopicStatistics",
        "allocate_averagely",
        "allocate_averagely_by_circle",
    ),
    "rocketmq_py.credentials": ("Credentials",),
    "rocketmq_py.errors": ("Delivery", "RocketMQError"),
    "rocketmq_py.message": ("Message", "MessageQueue", "ReceivedMessage", "SendResult", "SendStatus"),
    "rocketmq_py.producer": (
        "JAVA_4",
        "JAVA_5",
        "BatchingConfig",
        "BatchingProducer",
        "BrokerFaultState",
        "Compression",
        "EndTransactionContext",
        "Latency",
        "LatencyFaultPolicy",
        "PendingReply",
        "PendingSend",
        "Producer",
        "ProducerConfig",
        "ProducerHook",
        "ProducerStatistics",
        "QueueSelector",
        "SelectByHash",
        "SelectByMachineRoom",
        "SelectByRandom",
        "SendContext",
        "SendMode",
        "Transaction",
        "TransactionConfig",
        "TransactionProducer",
        "TransactionSendResult",
        "TransactionState",
        "TransactionStatistics",
    ),
    "rocketmq_py.protocol.command": ("Serialization",),
    "rocketmq_py.protocol.compression": ("CompressionType",),
    "rocketmq_py.protocol.trace": ("ConsumeReturn",),
    "rocketmq_py.remoting": ("TLS", "RpcContext", "RpcHook"),
    "rocketmq_py.shared_client": ("Client",),
}
_MODULE_OF_NAME = {name: module for module, names in _NAMES_OF_MODULE.items() for name in names}


def __getattr__(name: str) -> Any:
    # Public names are loaded when they are first asked for: trio and the client take a fifth of a second,
    # which `rocketmq-py --help` and whoever needs only the errors should not wait for.
    if name == "__version__":
        value: Any = importlib.import_module("importlib.metadata").version("rocketmq-py")
    elif name in _MODULE_OF_NAME:
        value = getattr(importlib.import_module(_MODULE_OF_NAME[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})


__all__ = [
    "JAVA_4",
    "JAVA_5",
    "TLS",
    "Admin",
    "AllocateByBroker",
    "AllocateByConfig",
    "AllocateByMachineRoom",
    "AllocateConsistentHash",
    "AllocateMachineRoomNearby",
    "AllocateStrategy",
    "AssignmentListener",
    "BatchingConfig",
    "BatchingProducer",
    "BrokerFaultState",
    "Client",
    "ClientConfig",
    "Commit",
    "Compression",
    "CompressionType",
    "ConsumeContext",
    "ConsumeFrom",
    "ConsumeLater",
    "ConsumeMode",
    "ConsumeReturn",
    "ConsumerHook",
    "ConsumerStatistics",
    "Credentials",
    "Delivery",
    "EndTransactionContext",
    "Flow",
    "Latency",
    "LatencyFaultPolicy",
    "LitePullConsumer",
    "LitePullConsumerConfig",
    "Message",
    "MessageQueue",
    "PendingReply",
    "PendingSend",
    "PopConsumer",
    "PopConsumerConfig",
    "PoppedMessage",
    "Producer",
    "ProducerConfig",
    "ProducerHook",
    "ProducerStatistics",
    "PulledChunk",
    "PushConsumer",
    "PushConsumerConfig",
    "QueueSelector",
    "QueueStatistics",
    "Reader",
    "ReceivedMessage",
    "RocketMQError",
    "Rollback",
    "RpcContext",
    "RpcHook",
    "SelectByHash",
    "SelectByMachineRoom",
    "SelectByRandom",
    "SendContext",
    "SendMode",
    "SendResult",
    "SendStatus",
    "Serialization",
    "Span",
    "Start",
    "Suspend",
    "TopicStatistics",
    "Transaction",
    "TransactionConfig",
    "TransactionProducer",
    "TransactionSendResult",
    "TransactionState",
    "TransactionStatistics",
    "allocate_averagely",
    "allocate_averagely_by_circle",
]
