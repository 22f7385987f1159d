"""rocketmq-py: an Apache RocketMQ client on trio, with an embedded broker.

Public names are those in ``__all__`` of this package, of ``rocketmq_py.admin``, ``rocketmq_py.aio``,
``rocketmq_py.allocation``, ``rocketmq_py.blocking``, ``rocketmq_py.broker``, ``rocketmq_py.codecs``,
``rocketmq_py.deduplication``, ``rocketmq_py.health``, ``rocketmq_py.hooks``, ``rocketmq_py.relay``,
``rocketmq_py.selectors``, ``rocketmq_py.spark``, ``rocketmq_py.statistics``, ``rocketmq_py.telemetry``,
``rocketmq_py.testing`` and of the modules of ``rocketmq_py.integrations``, and the classes of
``rocketmq_py.errors`` and ``rocketmq_py.codes``. So are the public attributes and methods of the objects
that these return. Everything else may change in any release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rocketmq_py.lazy import lazy_names

if TYPE_CHECKING:
    from rocketmq_py import admin as admin
    from rocketmq_py import aio as aio
    from rocketmq_py import allocation as allocation
    from rocketmq_py import blocking as blocking
    from rocketmq_py import broker as broker
    from rocketmq_py import codecs as codecs
    from rocketmq_py import codes as codes
    from rocketmq_py import deduplication as deduplication
    from rocketmq_py import errors as errors
    from rocketmq_py import health as health
    from rocketmq_py import hooks as hooks
    from rocketmq_py import selectors as selectors
    from rocketmq_py import statistics as statistics
    from rocketmq_py import testing as testing
    from rocketmq_py.admin import Admin as Admin
    from rocketmq_py.consumer import AssignmentListener as AssignmentListener
    from rocketmq_py.consumer import CommitOffset as CommitOffset
    from rocketmq_py.consumer import ConsumeLater as ConsumeLater
    from rocketmq_py.consumer import LitePullConsumer as LitePullConsumer
    from rocketmq_py.consumer import LiteTopicConsumer as LiteTopicConsumer
    from rocketmq_py.consumer import LiteTopicPushConsumer as LiteTopicPushConsumer
    from rocketmq_py.consumer import OffsetRange as OffsetRange
    from rocketmq_py.consumer import PopConsumer as PopConsumer
    from rocketmq_py.consumer import PoppedMessage as PoppedMessage
    from rocketmq_py.consumer import PushConsumer as PushConsumer
    from rocketmq_py.consumer import Reader as Reader
    from rocketmq_py.consumer import RollbackOffset as RollbackOffset
    from rocketmq_py.consumer import Suspend as Suspend
    from rocketmq_py.credentials import Credentials as Credentials
    from rocketmq_py.errors import Delivery as Delivery
    from rocketmq_py.errors import RocketMQError as RocketMQError
    from rocketmq_py.message import Message as Message
    from rocketmq_py.message import MessageQueue as MessageQueue
    from rocketmq_py.message import ReceivedMessage as ReceivedMessage
    from rocketmq_py.message import SendResult as SendResult
    from rocketmq_py.message import SendStatus as SendStatus
    from rocketmq_py.position import Position as Position
    from rocketmq_py.producer import Compression as Compression
    from rocketmq_py.producer import LatencyFaultPolicy as LatencyFaultPolicy
    from rocketmq_py.producer import PendingReply as PendingReply
    from rocketmq_py.producer import PendingSend as PendingSend
    from rocketmq_py.producer import Producer as Producer
    from rocketmq_py.producer import Transaction as Transaction
    from rocketmq_py.producer import TransactionProducer as TransactionProducer
    from rocketmq_py.producer import TransactionSendResult as TransactionSendResult
    from rocketmq_py.producer import TransactionState as TransactionState
    from rocketmq_py.protocol.compression import CompressionType as CompressionType
    from rocketmq_py.remoting import TLS as TLS
    from rocketmq_py.shared_client import Client as Client

    __version__: str
else:
    __all__, _load, __dir__ = lazy_names(
        globals(),
        {
            "admin": ("Admin",),
            "consumer": (
                "AssignmentListener",
                "CommitOffset",
                "ConsumeLater",
                "LitePullConsumer",
                "LiteTopicConsumer",
                "LiteTopicPushConsumer",
                "OffsetRange",
                "PopConsumer",
                "PoppedMessage",
                "PushConsumer",
                "Reader",
                "RollbackOffset",
                "Suspend",
            ),
            "credentials": ("Credentials",),
            "errors": ("Delivery", "RocketMQError"),
            "message": ("Message", "MessageQueue", "ReceivedMessage", "SendResult", "SendStatus"),
            "position": ("Position",),
            "producer": (
                "Compression",
                "LatencyFaultPolicy",
                "PendingReply",
                "PendingSend",
                "Producer",
                "Transaction",
                "TransactionProducer",
                "TransactionSendResult",
                "TransactionState",
            ),
            "protocol.compression": ("CompressionType",),
            "remoting": ("TLS",),
            "shared_client": ("Client",),
        },
        modules=(
            "admin",
            "aio",
            "allocation",
            "blocking",
            "broker",
            "codecs",
            "codes",
            "deduplication",
            "errors",
            "health",
            "hooks",
            "selectors",
            "statistics",
            "testing",
        ),
    )

    def __getattr__(name: str) -> Any:
        if name != "__version__":
            return _load(name)
        from importlib.metadata import version

        found = globals()[name] = version("rocketmq-py")
        return found
