"""Headers of routes, of a client's life on a broker, and of what brokers ask clients."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from rocketmq_py.codes import RequestCode
from rocketmq_py.protocol.headers.base import Header, Int32, Int64, Request


class GetRouteInfoRequest(Request, frozen=True, kw_only=True):
    """Ask a name server for a topic's route. Java: ``GetRouteInfoRequestHeader``.

    Attributes:
        topic: the topic.
        accept_standard_json_only: whether the body must be standard JSON, not fastjson's dialect.
    """

    code: ClassVar[int] = RequestCode.GET_ROUTEINFO_BY_TOPIC

    topic: str
    accept_standard_json_only: bool | None = None


class HeartbeatRequest(Request, frozen=True, kw_only=True):
    """Say that a client is there; the body is a ``Heartbeat``. Java: ``HeartbeatRequestHeader``."""

    code: ClassVar[int] = RequestCode.HEART_BEAT


class HeartbeatAnswer(Header, frozen=True, kw_only=True):
    """What a 5.x broker says to a heartbeat; 4.x says nothing.

    Attributes:
        supports_heartbeat_v2: whether the next heartbeats may leave subscriptions out that did not change.
        subscription_changed: whether the broker noted a change of the subscriptions.
    """

    supports_heartbeat_v2: bool = msgspec.field(default=False, name="IS_SUPPORT_HEART_BEAT_V2")
    subscription_changed: bool | None = msgspec.field(default=None, name="IS_SUB_CHANGE")


class CheckClientConfigRequest(Request, frozen=True, kw_only=True):
    """Have a subscription checked; the body is a ``CheckClientConfig``. It has no header in Java."""

    code: ClassVar[int] = RequestCode.CHECK_CLIENT_CONFIG


class UnregisterClientRequest(Request, frozen=True, kw_only=True):
    """Say goodbye for one group. Java: ``UnregisterClientRequestHeader``."""

    code: ClassVar[int] = RequestCode.UNREGISTER_CLIENT

    client_id: str = msgspec.field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerListByGroupRequest(Request, frozen=True, kw_only=True):
    """Ask who is in a group: a ``ConsumerList``. Java: ``GetConsumerListByGroupRequestHeader``."""

    code: ClassVar[int] = RequestCode.GET_CONSUMER_LIST_BY_GROUP

    consumer_group: str


class LockBatchMqRequest(Request, frozen=True, kw_only=True):
    """Lock queues for one client; the body is a ``QueueLock``. Java: ``LockBatchMqRequestHeader``."""

    code: ClassVar[int] = RequestCode.LOCK_BATCH_MQ


class UnlockBatchMqRequest(Request, frozen=True, kw_only=True):
    """Unlock queues; the body is a ``QueueLock``. Java: ``UnlockBatchMqRequestHeader``."""

    code: ClassVar[int] = RequestCode.UNLOCK_BATCH_MQ


class NotifyConsumerIdsChangedRequest(Request, frozen=True, kw_only=True):
    """A group's members changed, says a broker (oneway). Java: ``NotifyConsumerIdsChangedRequestHeader``."""

    code: ClassVar[int] = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED

    consumer_group: str


class ResetOffsetRequest(Request, frozen=True, kw_only=True):
    """A broker tells a client to go on from other offsets (the body). Java: ``ResetOffsetRequestHeader``.

    A tool asks a broker to do so with INVOKE_BROKER_TO_RESET_OFFSET.

    Attributes:
        topic: the topic.
        group: the group.
        timestamp: the time that was gone back to, epoch milliseconds; -1 for the end.
        is_force: whether offsets may move forward too.
        queue_id: the queue, or -1 for all (5.x).
        offset: the offset, instead of a timestamp (5.x).
    """

    code: ClassVar[int] = RequestCode.RESET_CONSUMER_CLIENT_OFFSET

    topic: str
    group: str
    timestamp: Int64
    is_force: bool
    queue_id: Int32 = -1
    offset: Int64 | None = None


class GetConsumerStatusRequest(Request, frozen=True, kw_only=True):
    """Ask a client how far it has come: a ``ConsumerOffsets``. Java: ``GetConsumerStatusRequestHeader``.

    A tool asks a broker the same with INVOKE_BROKER_TO_GET_CONSUMER_STATUS.

    Attributes:
        topic: the topic.
        group: the group.
        client_addr: to a broker: the id of the only client that it shall ask; empty for all.
    """

    code: ClassVar[int] = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT

    topic: str
    group: str
    client_addr: str | None = None


class GetConsumerRunningInfoRequest(Request, frozen=True, kw_only=True):
    """Ask how a consumer is doing; the answer is JSON. Java: ``GetConsumerRunningInfoRequestHeader``.

    Attributes:
        consumer_group: its group.
        client_id: its client.
        jstack_enable: whether the answer should say what its threads do.
    """

    code: ClassVar[int] = RequestCode.GET_CONSUMER_RUNNING_INFO

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyRequest(Request, frozen=True, kw_only=True):
    """Have a consumer consume one message at once. Java: ``ConsumeMessageDirectlyResultRequestHeader``.

    To a client, the body is the message's stored form. The broker's name has its own field beside ``bname``.

    Attributes:
        consumer_group: the group.
        client_id: the client that shall do it.
        msg_id: the broker's id of the message.
        source_broker_name: the broker that has the message.
        topic: the message's topic (5.x).
        topic_sys_flag: the topic's system flag (5.x).
        group_sys_flag: the group's system flag (5.x).
    """

    code: ClassVar[int] = RequestCode.CONSUME_MESSAGE_DIRECTLY

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    source_broker_name: str | None = msgspec.field(default=None, name="brokerName")
    topic: str | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
