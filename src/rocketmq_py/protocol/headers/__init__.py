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
    QueryConsumeTimeSpanRequest,
    QueryTopicConsumeByWhoRequest,
)
from rocketmq_py.protocol.headers.client import (
    ConsumeMessageDirectlyRequest,
    GetConsumerListByGroupRequest,
    GetConsumerRunningInfoRequest,
    GetConsumerStatusRequest,
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
from rocketmq_py.protocol.headers.pop import (
    INIT_FROM_MAX,
    INIT_FROM_MIN,
    AckMessageRequest,
    ChangeInvisibleTimeAnswer,
    ChangeInvisibleTimeRequest,
    PopMessageAnswer,
    PopMessageRequest,
)
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
from rocketmq_py.protocol.headers.recall import RecallMessageAnswer, RecallMessageRequest
from rocketmq_py.protocol.headers.reply import (
    PushReplyMessageRequest,
    SendReplyMessageRequest,
    SendReplyMessageRequestV2,
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
    "INIT_FROM_MAX",
    "INIT_FROM_MIN",
    "AckMessageRequest",
    "ChangeInvisibleTimeAnswer",
    "ChangeInvisibleTimeRequest",
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
    "GetConsumerStatusRequest",
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
    "PopMessageAnswer",
    "PopMessageRequest",
    "PullMessageAnswer",
    "PullMessageRequest",
    "PushReplyMessageRequest",
    "QueryConsumeTimeSpanRequest",
    "QueryConsumerOffsetRequest",
    "QueryMessageAnswer",
    "QueryMessageRequest",
    "QueryTopicConsumeByWhoRequest",
    "RecallMessageAnswer",
    "RecallMessageRequest",
    "Request",
    "ResetOffsetRequest",
    "SearchOffsetRequest",
    "SendBatchMessageRequest",
    "SendMessageAnswer",
    "SendMessageRequest",
    "SendMessageRequestV2",
    "SendReplyMessageRequest",
    "SendReplyMessageRequestV2",
    "UnlockBatchMqRequest",
    "UnregisterClientRequest",
    "UpdateConsumerOffsetRequest",
    "ViewMessageRequest",
    "wire",
]
