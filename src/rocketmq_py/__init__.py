"""rocketmq-py: an Apache RocketMQ client on trio, with an embedded broker.

Public names are those in ``__all__`` of this package, of ``rocketmq_py.admin``, ``rocketmq_py.aio``,
``rocketmq_py.blocking``, ``rocketmq_py.broker``, ``rocketmq_py.codecs``, ``rocketmq_py.deduplication``,
``rocketmq_py.relay``, ``rocketmq_py.spark``, ``rocketmq_py.telemetry``, ``rocketmq_py.testing`` and of the
modules of ``rocketmq_py.integrations``, and the classes of ``rocketmq_py.errors`` and ``rocketmq_py.codes``.
Everything else may change in any release.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rocketmq_py.lazy import lazy_attributes

if TYPE_CHECKING:
    from rocketmq_py import admin as admin
    from rocketmq_py import aio as aio
    from rocketmq_py import blocking as blocking
    from rocketmq_py import broker as broker
    from rocketmq_py import codecs as codecs
    from rocketmq_py import codes as codes
    from rocketmq_py import deduplication as deduplication
    from rocketmq_py import errors as errors
    from rocketmq_py import testing as testing
    from rocketmq_py.admin import Admin
    from rocketmq_py.client import ClientConfig, ClientHealth, ServerHealth
    from rocketmq_py.consumer import (
        AllocateByBroker,
        AllocateByConfig,
        AllocateByMachineRoom,
        AllocateConsistentHash,
        AllocateMachineRoomNearby,
        AllocateStrategy,
        AssignmentListener,
        CommitOffset,
        ConsumeContext,
        ConsumeFrom,
        ConsumeLater,
        ConsumeOperation,
        ConsumerHealth,
        ConsumerHook,
        ConsumerStatistics,
        LiteConsumer,
        LiteConsumerConfig,
        LitePullConsumer,
        LitePullConsumerConfig,
        LitePushConsumer,
        LitePushConsumerConfig,
        LiteStart,
        OffsetRange,
        PopConsumer,
        PopConsumerConfig,
        PoppedMessage,
        PullResult,
        PullState,
        PushConsumer,
        PushConsumerConfig,
        QueueStatistics,
        Reader,
        RollbackOffset,
        StartPosition,
        Suspend,
        TopicStatistics,
        allocate_averagely,
        allocate_averagely_by_circle,
    )
    from rocketmq_py.credentials import Credentials
    from rocketmq_py.errors import Delivery, RocketMQError
    from rocketmq_py.message import Message, MessageQueue, ReceivedMessage, SendResult, SendStatus
    from rocketmq_py.producer import (
        BatchingConfig,
        BatchingProducer,
        BrokerHealth,
        Compression,
        EndTransactionContext,
        LatencyFaultPolicy,
        LatencyHistogram,
        PendingReply,
        PendingSend,
        Producer,
        ProducerConfig,
        ProducerHealth,
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
    from rocketmq_py.protocol.trace import ConsumeReturnType
    from rocketmq_py.remoting import TLS, RpcContext, RpcHook
    from rocketmq_py.shared_client import Client

    __version__: str

# Loads a name on first use. It also adds a __dir__, which is replaced below.
_load = lazy_attributes(
    globals(),
    {
        "admin": ("Admin",),
        "client": ("ClientConfig", "ClientHealth", "ServerHealth"),
        "consumer": (
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
            "ConsumerHealth",
            "ConsumerHook",
            "ConsumerStatistics",
            "LiteConsumer",
            "LiteConsumerConfig",
            "LitePullConsumer",
            "LitePullConsumerConfig",
            "LitePushConsumer",
            "LitePushConsumerConfig",
            "LiteStart",
            "OffsetRange",
            "PopConsumer",
            "PopConsumerConfig",
            "PoppedMessage",
            "PullResult",
            "PullState",
            "PushConsumer",
            "PushConsumerConfig",
            "QueueStatistics",
            "Reader",
            "RollbackOffset",
            "StartPosition",
            "Suspend",
            "TopicStatistics",
            "allocate_averagely",
            "allocate_averagely_by_circle",
        ),
        "credentials": ("Credentials",),
        "errors": ("Delivery", "RocketMQError"),
        "message": ("Message", "MessageQueue", "ReceivedMessage", "SendResult", "SendStatus"),
        "producer": (
            "BatchingConfig",
            "BatchingProducer",
            "BrokerHealth",
            "Compression",
            "EndTransactionContext",
            "LatencyFaultPolicy",
            "LatencyHistogram",
            "PendingReply",
            "PendingSend",
            "Producer",
            "ProducerConfig",
            "ProducerHealth",
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
        "protocol.command": ("Serialization",),
        "protocol.compression": ("CompressionType",),
        "protocol.trace": ("ConsumeReturnType",),
        "remoting": ("TLS", "RpcContext", "RpcHook"),
        "shared_client": ("Client",),
    },
)

# Loaded on first use, too. Public modules that need an extra have to be imported.
_SUBMODULES = ("admin", "aio", "blocking", "broker", "codecs", "codes", "deduplication", "errors", "testing")


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"rocketmq_py.{name}")
    if name != "__version__":
        return _load(name)
    version = globals()[name] = importlib.import_module("importlib.metadata").version("rocketmq-py")
    return version


def __dir__() -> list[str]:
    dunders = (name for name in globals() if name.startswith("__"))
    return sorted({*dunders, *__all__, *_SUBMODULES, "__version__"})


__all__ = [
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
    "BrokerHealth",
    "Client",
    "ClientConfig",
    "ClientHealth",
    "CommitOffset",
    "Compression",
    "CompressionType",
    "ConsumeContext",
    "ConsumeFrom",
    "ConsumeLater",
    "ConsumeOperation",
    "ConsumeReturnType",
    "ConsumerHealth",
    "ConsumerHook",
    "ConsumerStatistics",
    "Credentials",
    "Delivery",
    "EndTransactionContext",
    "LatencyFaultPolicy",
    "LatencyHistogram",
    "LiteConsumer",
    "LiteConsumerConfig",
    "LitePullConsumer",
    "LitePullConsumerConfig",
    "LitePushConsumer",
    "LitePushConsumerConfig",
    "LiteStart",
    "Message",
    "MessageQueue",
    "OffsetRange",
    "PendingReply",
    "PendingSend",
    "PopConsumer",
    "PopConsumerConfig",
    "PoppedMessage",
    "Producer",
    "ProducerConfig",
    "ProducerHealth",
    "ProducerHook",
    "ProducerStatistics",
    "PullResult",
    "PullState",
    "PushConsumer",
    "PushConsumerConfig",
    "QueueSelector",
    "QueueStatistics",
    "Reader",
    "ReceivedMessage",
    "RocketMQError",
    "RollbackOffset",
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
    "ServerHealth",
    "StartPosition",
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
