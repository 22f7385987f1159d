"""Headers of routes, heartbeats and queue locks, and of the requests that brokers send to clients."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from rocketmq_py.codes import RequestCode
from rocketmq_py.protocol.headers.base import Header, Int32, Int64, Request


class GetRouteInfoRequest(Request, frozen=True, kw_only=True):
    """Get a topic's route from a name server. Java: ``GetRouteInfoRequestHeader``.

    Attributes:
        topic: the topic.
        accept_standard_json_only: whether the answer must be standard JSON, not fastjson's dialect.
        zone_name: the zone of the client (5.x).
        zone_mode: whether the answer contains only the brokers of that zone, and those of any zone whose
            master is down.
    """

    code: ClassVar[int] = RequestCode.GET_ROUTEINFO_BY_TOPIC

    topic: str
    accept_standard_json_only: bool | None = None
    zone_name: str | None = msgspec.field(default=None, name="__ZONE_NAME")
    zone_mode: bool | None = msgspec.field(default=None, name="__ZONE_MODE")


class HeartbeatRequest(Request, frozen=True, kw_only=True):
    """Send a heartbeat; the body is a ``Heartbeat``. Java: ``HeartbeatRequestHeader``."""

    code: ClassVar[int] = RequestCode.HEART_BEAT


class HeartbeatAnswer(Header, frozen=True, kw_only=True):
    """The answer to a heartbeat. 4.x brokers send no fields.

    Attributes:
        supports_heartbeat_v2: whether later heartbeats may omit unchanged subscriptions.
        subscription_changed: whether the broker noticed a change of the subscriptions.
    """

    supports_heartbeat_v2: bool = msgspec.field(default=False, name="IS_SUPPORT_HEART_BEAT_V2")
    subscription_changed: bool | None = msgspec.field(default=None, name="IS_SUB_CHANGE")


class CheckClientConfigRequest(Request, frozen=True, kw_only=True):
    """Validate a subscription; the body is a ``CheckClientConfig``. Java has no header class for it."""

    code: ClassVar[int] = RequestCode.CHECK_CLIENT_CONFIG


class UnregisterClientRequest(Request, frozen=True, kw_only=True):
    """Unregister a client from a group. Java: ``UnregisterClientRequestHeader``.

    Attributes:
        client_id: the client.
        producer_group: the group that a producer leaves, or None.
        consumer_group: the group that a consumer leaves, or None.
    """

    code: ClassVar[int] = RequestCode.UNREGISTER_CLIENT

    client_id: str = msgspec.field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerListByGroupRequest(Request, frozen=True, kw_only=True):
    """List a group's members: a ``ConsumerList``. Java: ``GetConsumerListByGroupRequestHeader``."""

    code: ClassVar[int] = RequestCode.GET_CONSUMER_LIST_BY_GROUP

    consumer_group: str


class LockBatchMqRequest(Request, frozen=True, kw_only=True):
    """Lock queues for one client; the body is a ``QueueLock``. Java: ``LockBatchMqRequestHeader``."""

    code: ClassVar[int] = RequestCode.LOCK_BATCH_MQ


class UnlockBatchMqRequest(Request, frozen=True, kw_only=True):
    """Unlock queues; the body is a ``QueueLock``. Java: ``UnlockBatchMqRequestHeader``."""

    code: ClassVar[int] = RequestCode.UNLOCK_BATCH_MQ


class NotifyConsumerIdsChangedRequest(Request, frozen=True, kw_only=True):
    """Notify a client that a group's members changed (oneway, from a broker).

    Java: ``NotifyConsumerIdsChangedRequestHeader``.
    """

    code: ClassVar[int] = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED

    consumer_group: str


class ResetOffsetRequest(Request, frozen=True, kw_only=True):
    """Reset a client's offsets to those in the body (from a broker). Java: ``ResetOffsetRequestHeader``.

    A tool makes a broker send it with INVOKE_BROKER_TO_RESET_OFFSET.

    Attributes:
        topic: the topic.
        group: the group.
        timestamp: the time to reset to, epoch milliseconds; -1 for the end.
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
    """Get a client's offsets: a ``ConsumerOffsets``. Java: ``GetConsumerStatusRequestHeader``.

    A tool makes a broker ask clients with InvokeBrokerToGetConsumerStatusRequest.

    Attributes:
        topic: the topic.
        group: the group.
        client_addr: in the tool's request, the client to ask: its id, although Java named the field after
            an address. Empty for all clients.
    """

    code: ClassVar[int] = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT

    topic: str
    group: str
    client_addr: str | None = None


class InvokeBrokerToGetConsumerStatusRequest(GetConsumerStatusRequest, frozen=True, kw_only=True):
    """Get the offsets of a group's members, which the broker asks."""

    code: ClassVar[int] = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS


class GetConsumerRunningInfoRequest(Request, frozen=True, kw_only=True):
    """Get a consumer's state: a ``ConsumerRunningInfo``. Java: ``GetConsumerRunningInfoRequestHeader``.

    Attributes:
        consumer_group: the consumer's group.
        client_id: the consumer's client.
        jstack_enable: whether the answer should contain the stacks of its threads.
    """

    code: ClassVar[int] = RequestCode.GET_CONSUMER_RUNNING_INFO

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyRequest(Request, frozen=True, kw_only=True):
    """Make a consumer consume one message immediately. Java: ``ConsumeMessageDirectlyResultRequestHeader``.

    When a broker sends it to a client, the body is the message's stored form.

    Attributes:
        consumer_group: the group.
        client_id: the consuming client.
        msg_id: the broker's id of the message.
        source_broker_name: the broker that stores the message. ``Request.broker_name`` is the broker that
            gets the request.
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
