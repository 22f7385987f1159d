"""The JSON bodies of commands; what each means is said by its class.

All have ``encode() -> bytes`` and a class method ``decode(bytes)``, which raises ProtocolError.
"""

from __future__ import annotations

from rocketmq_py.protocol.bodies.body import Body, BodyQueue
from rocketmq_py.protocol.bodies.group import (
    ClientCheck,
    Connection,
    ConsumeFromWhere,
    ConsumerConnection,
    ConsumerData,
    ConsumerList,
    ConsumeType,
    Heartbeat,
    LockedQueues,
    MessageModel,
    ProducerData,
    QueueLock,
    SubscriptionData,
    SubscriptionGroupConfig,
)
from rocketmq_py.protocol.bodies.progress import (
    ConsumerRunningInfo,
    ConsumeStats,
    ConsumeStatus,
    DirectConsumption,
    GroupOffset,
    ProcessQueueInfo,
    ResetOffsets,
    TopicOffset,
    TopicStats,
)
from rocketmq_py.protocol.bodies.route import (
    MASTER_ID,
    READABLE,
    WRITABLE,
    BrokerData,
    ClusterInfo,
    QueueData,
    TopicList,
    TopicRoute,
)

__all__ = [
    "MASTER_ID",
    "READABLE",
    "WRITABLE",
    "Body",
    "BodyQueue",
    "BrokerData",
    "ClientCheck",
    "ClusterInfo",
    "Connection",
    "ConsumeFromWhere",
    "ConsumeStats",
    "ConsumeStatus",
    "ConsumeType",
    "ConsumerConnection",
    "ConsumerData",
    "ConsumerList",
    "ConsumerRunningInfo",
    "DirectConsumption",
    "GroupOffset",
    "Heartbeat",
    "LockedQueues",
    "MessageModel",
    "ProcessQueueInfo",
    "ProducerData",
    "QueueData",
    "QueueLock",
    "ResetOffsets",
    "SubscriptionData",
    "SubscriptionGroupConfig",
    "TopicList",
    "TopicOffset",
    "TopicRoute",
    "TopicStats",
]
