"""Offsets of queues and groups, and the state of consumers. Most bodies have tables with queues as keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import attrs
import msgspec

from rocketmq_py.errors import ProtocolError
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol import fastjson
from rocketmq_py.protocol.bodies.base import (
    Body,
    JsonMessageQueue,
    convert,
    read_queue_table,
    write_queue_table,
)
from rocketmq_py.protocol.bodies.group import SubscriptionData
from rocketmq_py.protocol.decode_errors import decoder


class TopicOffset(Body, frozen=True, kw_only=True):
    """A queue's offsets. Java: ``TopicOffset``.

    Attributes:
        min_offset: the offset of the first message.
        max_offset: the offset that the next message will get.
        last_update_timestamp: the store time of the last message, epoch milliseconds; 0 if there is none.
    """

    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0


@attrs.frozen
class TopicStats:
    """The offsets of a topic's queues: the answer to GET_TOPIC_STATS_INFO. Java: ``TopicStatsTable``.

    Attributes:
        offset_table: offsets by queue.
        topic_put_tps: messages stored per second (5.x).
    """

    offset_table: Mapping[MessageQueue, TopicOffset]
    topic_put_tps: float = 0.0

    def encode(self) -> bytes:
        """Return the body in fastjson's dialect."""
        table = write_queue_table(self.offset_table)
        return msgspec.json.encode({"offsetTable": table, "topicPutTps": self.topic_put_tps})

    @classmethod
    @decoder("a body")
    def decode(cls, data: bytes) -> Self:
        """Return the body in ``data``, or raise ProtocolError."""
        members = _members(data)
        return cls(
            read_queue_table(members.get("offsetTable", {}), TopicOffset), _number(members, "topicPutTps")
        )


class GroupOffset(Body, frozen=True, kw_only=True):
    """A group's offsets in a queue. Java: ``OffsetWrapper``.

    Attributes:
        broker_offset: the offset that the queue's next message will get.
        consumer_offset: the offset of the first message that is not consumed.
        pull_offset: the offset of the first message that is not pulled (5.x).
        last_timestamp: the store time of the last consumed message, epoch milliseconds.
    """

    broker_offset: int = 0
    consumer_offset: int = 0
    pull_offset: int = 0
    last_timestamp: int = 0


@attrs.frozen
class ConsumeStats:
    """A group's offsets and rate: the answer to GET_CONSUME_STATS. Java: ``ConsumeStats``.

    Attributes:
        offset_table: offsets by queue.
        consume_tps: messages consumed per second.
    """

    offset_table: Mapping[MessageQueue, GroupOffset]
    consume_tps: float = 0.0

    def encode(self) -> bytes:
        """Return the body in fastjson's dialect."""
        table = write_queue_table(self.offset_table)
        return msgspec.json.encode({"consumeTps": self.consume_tps, "offsetTable": table})

    @classmethod
    @decoder("a body")
    def decode(cls, data: bytes) -> Self:
        """Return the body in ``data``, or raise ProtocolError."""
        members = _members(data)
        return cls(
            read_queue_table(members.get("offsetTable", {}), GroupOffset), _number(members, "consumeTps")
        )


@attrs.frozen
class ResetOffsets:
    """The offsets to continue from: the body of RESET_CONSUMER_CLIENT_OFFSET.

    Java: ``ResetOffsetBody``, and ``ResetOffsetBodyForC``, which brokers write if the tool's language is C++.
    """

    offset_table: Mapping[MessageQueue, int]

    def encode(self) -> bytes:
        """Return the body in fastjson's dialect."""
        return msgspec.json.encode({"offsetTable": write_queue_table(self.offset_table)})

    def encode_as_list(self) -> bytes:
        """Return the body as standard JSON: a list of queues with their offsets."""
        entries = [
            _QueueWithOffset(
                topic=queue.topic, broker_name=queue.broker_name, queue_id=queue.queue_id, offset=offset
            )
            for queue, offset in self.offset_table.items()
        ]
        return msgspec.json.encode({"offsetTable": entries})

    @classmethod
    @decoder("a body")
    def decode(cls, data: bytes) -> Self:
        """Return the body in ``data``, or raise ProtocolError.

        The table may be an object with queues as keys, a list of queues that contain an offset, or a list of
        pairs of queue and offset.
        """
        table = _members(data).get("offsetTable", {})
        if not isinstance(table, list):
            return cls(read_queue_table(table, int))
        offsets = {}
        for item in table:
            if isinstance(item, list):
                queue, offset = convert(item, tuple[JsonMessageQueue, int])
            else:
                entry = convert(item, _QueueWithOffset)
                queue, offset = entry, entry.offset
            offsets[queue.queue] = offset
        return cls(offsets)


class _QueueWithOffset(JsonMessageQueue, frozen=True, kw_only=True):
    """A queue that contains an offset. Java: ``MessageQueueForC``."""

    offset: int


@attrs.frozen
class ConsumerOffsets:
    """The offsets of one client, or of each client of a group.

    The answer to GET_CONSUMER_STATUS_FROM_CLIENT and to INVOKE_BROKER_TO_GET_CONSUMER_STATUS. Java:
    ``GetConsumerStatusBody``.

    Attributes:
        offset_table: for one client, its offsets by queue.
        client_tables: for several clients, such a table for each client id.
    """

    offset_table: Mapping[MessageQueue, int] = attrs.field(factory=dict)
    client_tables: Mapping[str, Mapping[MessageQueue, int]] = attrs.field(factory=dict)

    def encode(self) -> bytes:
        """Return the body in fastjson's dialect."""
        clients = {client_id: write_queue_table(table) for client_id, table in self.client_tables.items()}
        return msgspec.json.encode(
            {"consumerTable": clients, "messageQueueTable": write_queue_table(self.offset_table)}
        )

    @classmethod
    @decoder("a body")
    def decode(cls, data: bytes) -> Self:
        """Return the body in ``data``, or raise ProtocolError."""
        members = _members(data)
        clients = members.get("consumerTable", {})
        if not isinstance(clients, dict):
            raise ProtocolError(f"a table of clients is {type(clients).__name__}, not an object")
        return cls(
            read_queue_table(members.get("messageQueueTable", {}), int),
            {str(client_id): read_queue_table(table, int) for client_id, table in clients.items()},
        )


class QueueTimeSpan(Body, frozen=True, kw_only=True):
    """The store times of a queue's messages, and a group's delay. Java: ``QueueTimeSpan``.

    Times are epoch milliseconds.

    Attributes:
        message_queue: the queue.
        min_time_ms: the store time of the first message.
        max_time_ms: the store time of the last message.
        consume_time_ms: the store time of the last message that the group has consumed.
        delay_ms: milliseconds since the first message that the group has not consumed was stored; 0 if there
            is none.
    """

    message_queue: JsonMessageQueue
    min_time_ms: int = msgspec.field(name="minTimeStamp", default=0)
    max_time_ms: int = msgspec.field(name="maxTimeStamp", default=0)
    consume_time_ms: int = msgspec.field(name="consumeTimeStamp", default=0)
    delay_ms: int = msgspec.field(name="delayTime", default=0)


class ConsumeTimeSpans(Body, frozen=True, kw_only=True):
    """The answer to QUERY_CONSUME_TIME_SPAN. Java: ``QueryConsumeTimeSpanBody``."""

    consume_time_span_set: tuple[QueueTimeSpan, ...] = ()


class ProcessQueueInfo(Body, frozen=True, kw_only=True):
    """A consumer's buffer of one queue. Java: ``ProcessQueueInfo``.

    Times are epoch milliseconds.

    Attributes:
        commit_offset: the committed offset.
        cached_msg_min_offset: the offset of the first buffered message.
        cached_msg_max_offset: the offset of the last buffered message.
        cached_msg_count: the number of buffered messages.
        cached_msg_size_in_mib: their size in MiB.
        transaction_msg_min_offset: 0; Java's client does not use it.
        transaction_msg_max_offset: 0; Java's client does not use it.
        transaction_msg_count: 0; Java's client does not use it.
        locked: whether the queue is locked for this client.
        try_unlock_times: the number of attempts to unlock.
        last_lock_timestamp: the time of the last lock.
        dropped: whether the queue was revoked.
        last_pull_timestamp: the time of the last pull.
        last_consume_timestamp: the time of the last consumption.
    """

    commit_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_count: int = 0
    cached_msg_size_in_mib: int = msgspec.field(name="cachedMsgSizeInMiB", default=0)
    transaction_msg_min_offset: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_count: int = 0
    locked: bool = False
    try_unlock_times: int = 0
    last_lock_timestamp: int = 0
    dropped: bool = msgspec.field(name="droped", default=False)
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0


class PopQueueInfo(Body, frozen=True, kw_only=True):
    """A consumer's state of one queue that it pops from. Java: ``PopProcessQueueInfo``.

    Attributes:
        wait_ack_count: the number of unacknowledged messages.
        dropped: whether the queue was revoked.
        last_pop_timestamp: the time of the last pop, epoch milliseconds.
    """

    wait_ack_count: int = 0
    dropped: bool = msgspec.field(name="droped", default=False)
    last_pop_timestamp: int = 0


class ConsumeStatus(Body, frozen=True, kw_only=True):
    """A consumer's rates on one topic. Java: ``ConsumeStatus``.

    Attributes:
        pull_rt: milliseconds per pull.
        pull_tps: messages pulled per second.
        consume_rt: milliseconds to consume a message.
        consume_ok_tps: messages consumed per second.
        consume_failed_tps: messages failed per second.
        consume_failed_msgs: messages failed in the last hour.
    """

    pull_rt: float = msgspec.field(name="pullRT", default=0.0)
    pull_tps: float = msgspec.field(name="pullTPS", default=0.0)
    consume_rt: float = msgspec.field(name="consumeRT", default=0.0)
    consume_ok_tps: float = msgspec.field(name="consumeOKTPS", default=0.0)
    consume_failed_tps: float = msgspec.field(name="consumeFailedTPS", default=0.0)
    consume_failed_msgs: int = 0


@attrs.frozen
class ConsumerRunningInfo:
    """A consumer's state: the answer to GET_CONSUMER_RUNNING_INFO. Java: ``ConsumerRunningInfo``.

    Attributes:
        properties: settings, under Java's names ``PROP_CONSUME_TYPE``, ``PROP_CONSUMEORDERLY``,
            ``PROP_CONSUMER_START_TIMESTAMP``, ``PROP_THREADPOOL_CORE_SIZE``, ``PROP_NAMESERVER_ADDR`` and
            ``PROP_CLIENT_VERSION``.
        subscription_set: its subscriptions.
        queue_table: its buffers by queue.
        status_table: its rates by topic.
        jstack: the stacks of its threads (here: tasks), if requested.
        pop_queue_table: its state of the queues that it pops from (5.x).
        user_info: further information from the application (5.x).
    """

    properties: Mapping[str, str]
    subscription_set: tuple[SubscriptionData, ...] = ()
    queue_table: Mapping[MessageQueue, ProcessQueueInfo] = attrs.field(factory=dict)
    status_table: Mapping[str, ConsumeStatus] = attrs.field(factory=dict)
    jstack: str | None = None
    pop_queue_table: Mapping[MessageQueue, PopQueueInfo] = attrs.field(factory=dict)
    user_info: Mapping[str, str] = attrs.field(factory=dict)

    def encode(self) -> bytes:
        """Return the body in fastjson's dialect."""
        members: dict[str, Any] = {
            "mqPopTable": write_queue_table(self.pop_queue_table),
            "mqTable": write_queue_table(self.queue_table),
            "properties": dict(self.properties),
            "statusTable": dict(self.status_table),
            "subscriptionSet": self.subscription_set,
            "userConsumerInfo": dict(self.user_info),
        }
        if self.jstack is not None:
            members["jstack"] = self.jstack
        return msgspec.json.encode(members)

    @classmethod
    @decoder("a body")
    def decode(cls, data: bytes) -> Self:
        """Return the body in ``data``, or raise ProtocolError."""
        members = _members(data)
        return cls(
            convert(members.get("properties", {}), dict[str, str]),
            convert(members.get("subscriptionSet", []), tuple[SubscriptionData, ...]),
            read_queue_table(members.get("mqTable", {}), ProcessQueueInfo),
            convert(members.get("statusTable", {}), dict[str, ConsumeStatus]),
            convert(members["jstack"], str) if "jstack" in members else None,
            read_queue_table(members.get("mqPopTable", {}), PopQueueInfo),
            convert(members.get("userConsumerInfo", {}), dict[str, str]),
        )


class ConsumeMessageDirectlyResult(Body, frozen=True, kw_only=True):
    """The answer to CONSUME_MESSAGE_DIRECTLY. Java: ``ConsumeMessageDirectlyResult``.

    Attributes:
        consume_result: CR_SUCCESS, CR_LATER, CR_ROLLBACK, CR_COMMIT, CR_THROW_EXCEPTION or CR_RETURN_NULL.
        order: whether the consumer consumes in order.
        auto_commit: whether it commits automatically.
        remark: the error, as text.
        spent_time_mills: the duration in milliseconds.
    """

    consume_result: str
    order: bool = False
    auto_commit: bool = True
    remark: str | None = None
    spent_time_mills: int = 0


def _members(data: bytes) -> dict[Any, Any]:
    """Return the members of the JSON object in ``data``, without those that are null."""
    members = fastjson.loads(data)
    if not isinstance(members, dict):
        raise ProtocolError(f"a body is {type(members).__name__}, not an object")
    return {name: value for name, value in members.items() if value is not None}


def _number(members: dict[Any, Any], name: str) -> float:
    return convert(members.get(name, 0.0), float)
