"""Typed headers of requests and answers; what each means is said by its class.

Names are ``…Request`` and ``…Answer``. A request's class knows its code; to ext fields and back lead
``to_fields()`` and ``from_fields()``. Requests without fields of their own have a class only where brokers
look for the common ones (see :class:`Request`).
"""

from __future__ import annotations

from rocketmq_py.protocol.headers.admin import (
    CreateTopicRequest,
    DeleteTopicInBrokerRequest,
    DeleteTopicInNameServerRequest,
    GetConsumerConnectionListRequest,
    GetConsumeStatsRequest,
    GetTopicStatsInfoRequest,
)
from rocketmq_py.protocol.headers.client import (
    ConsumeMessageDirectlyRequest,
    GetConsumerListByGroupRequest,
    GetConsumerRunningInfoRequest,
    GetRouteInfoRequest,
    HeartbeatAnswer,
    HeartbeatRequest,
    LockBatchMqRequest,
    NotifyConsumerIdsChangedRequest,
    ResetOffsetRequest,
    UnlockBatchMqRequest,
    UnregisterClientRequest,
)
from rocketmq_py.protocol.headers.fields import Header, Int32, Int64, Request, wire
from rocketmq_py.protocol.headers.pull import (
    ConsumerSendMsgBackRequest,
    GetEarliestStoreTimeAnswer,
    GetEarliestStoreTimeRequest,
    GetMaxOffsetRequest,
    GetMinOffsetRequest,
    OffsetAnswer,
    PullMessageAnswer,
    PullMessageRequest,
    QueryConsumerOffsetRequest,
    QueryMessageAnswer,
    QueryMessageRequest,
    SearchOffsetRequest,
    UpdateConsumerOffsetRequest,
    ViewMessageRequest,
)
from rocketmq_py.protocol.headers.send import (
    CheckTransactionStateRequest,
    EndTransactionRequest,
    SendBatchMessageRequest,
    SendMessageAnswer,
    SendMessageRequest,
    SendMessageRequestV2,
)

__all__ = [
    "CheckTransactionStateRequest",
    "ConsumeMessageDirectlyRequest",
    "ConsumerSendMsgBackRequest",
    "CreateTopicRequest",
    "DeleteTopicInBrokerRequest",
    "DeleteTopicInNameServerRequest",
    "EndTransactionRequest",
    "GetConsumeStatsRequest",
    "GetConsumerConnectionListRequest",
    "GetConsumerListByGroupRequest",
    "GetConsumerRunningInfoRequest",
    "GetEarliestStoreTimeAnswer",
    "GetEarliestStoreTimeRequest",
    "GetMaxOffsetRequest",
    "GetMinOffsetRequest",
    "GetRouteInfoRequest",
    "GetTopicStatsInfoRequest",
    "Header",
    "HeartbeatAnswer",
    "HeartbeatRequest",
    "Int32",
    "Int64",
    "LockBatchMqRequest",
    "NotifyConsumerIdsChangedRequest",
    "OffsetAnswer",
    "PullMessageAnswer",
    "PullMessageRequest",
    "QueryConsumerOffsetRequest",
    "QueryMessageAnswer",
    "QueryMessageRequest",
    "Request",
    "ResetOffsetRequest",
    "SearchOffsetRequest",
    "SendBatchMessageRequest",
    "SendMessageAnswer",
    "SendMessageRequest",
    "SendMessageRequestV2",
    "UnlockBatchMqRequest",
    "UnregisterClientRequest",
    "UpdateConsumerOffsetRequest",
    "ViewMessageRequest",
    "wire",
]
