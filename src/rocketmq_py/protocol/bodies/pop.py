"""Bodies of pop consumption (5.x) and of lite topics (5.5), which clients pop.

Queue assignment by brokers, batch acknowledgement, subscriptions to lite topics, and the state of lite topics
that tools ask for.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

from rocketmq_py.errors import ProtocolError
from rocketmq_py.protocol.bodies.base import Body, JsonMessageQueue
from rocketmq_py.protocol.bodies.group import MessageModel
from rocketmq_py.protocol.bodies.progress import GroupOffset, TopicOffset

ALL_QUEUES = -1
"""The queue id of an assignment to pop from all queues of a broker."""
MAX_BITS = 65_536
"""Maximum bits of a :class:`BatchAck`. A damaged receipt handle would otherwise ask for gigabytes."""


class RequestMode(enum.StrEnum):
    """Whether the consumers of a group pull or pop a topic. Java: ``MessageRequestMode``."""

    PULL = "PULL"
    POP = "POP"


class RequestModeSetting(Body, frozen=True, kw_only=True):
    """The body of SET_MESSAGE_REQUEST_MODE. Java: ``SetMessageRequestModeRequestBody``.

    Attributes:
        topic: the topic.
        consumer_group: the group.
        mode: the way in which the group's consumers receive the topic's messages from now on.
        pop_share_queue_num: with POP, the number of other consumers that also pop from a consumer's queues.
            0 or less lets all consumers pop from all queues.
    """

    topic: str
    consumer_group: str
    mode: RequestMode = RequestMode.PULL
    pop_share_queue_num: int = 0


class AssignmentQuery(Body, frozen=True, kw_only=True):
    """A request for one consumer's queues: the body of QUERY_ASSIGNMENT.

    Java: ``QueryAssignmentRequestBody``.

    Attributes:
        topic: the topic.
        consumer_group: the consumer's group.
        client_id: the consumer's client.
        strategy_name: the allocation strategy, such as AVG.
        message_model: a ``MessageModel``, or an unknown one.
    """

    topic: str
    consumer_group: str
    client_id: str
    strategy_name: str = "AVG"
    message_model: str = MessageModel.CLUSTERING


class MessageQueueAssignment(Body, frozen=True, kw_only=True):
    """One queue that is assigned to a consumer. Java: ``MessageQueueAssignment``.

    Attributes:
        message_queue: the queue. With POP its id may be ALL_QUEUES.
        mode: the way to receive its messages.
        attachments: further information from the broker.
    """

    message_queue: JsonMessageQueue
    mode: RequestMode = RequestMode.PULL
    attachments: dict[str, str] | None = None


class QueueAssignments(Body, frozen=True, kw_only=True):
    """The queues of one consumer: the answer to QUERY_ASSIGNMENT. Java: ``QueryAssignmentResponseBody``.

    Attributes:
        message_queue_assignments: the queues. None if the broker cannot tell; the consumer keeps its queues.
    """

    message_queue_assignments: tuple[MessageQueueAssignment, ...] | None = None


class BatchAck(Body, frozen=True, kw_only=True):
    """Messages that were popped together and are acknowledged together. Java: ``BatchAck``.

    The attributes from ``topic_kind`` to ``invisible_ms`` are those of the messages' receipt handles.

    Attributes:
        consumer_group: the group.
        topic: the topic that was popped, also for messages of its retry topic.
        topic_kind: which of both the messages are from: a ``handles.TopicKind``.
        start_offset: the first popped offset.
        queue_id: the queue.
        revive_queue_id: the broker's internal queue that tracks this pop.
        pop_time_ms: the time of the pop, epoch milliseconds.
        invisible_ms: the invisible time, in milliseconds.
        bits: the acknowledged messages. Bit n stands for offset ``start_offset + n``; bit 0 is the lowest bit
            of the first byte. Java: ``BitSet.toByteArray``.
    """

    consumer_group: str = msgspec.field(name="c")
    topic: str = msgspec.field(name="t")
    topic_kind: str = msgspec.field(name="r")
    start_offset: int = msgspec.field(name="so")
    queue_id: int = msgspec.field(name="q")
    revive_queue_id: int = msgspec.field(name="rq")
    pop_time_ms: int = msgspec.field(name="pt")
    invisible_ms: int = msgspec.field(name="it")
    bits: bytes = msgspec.field(name="b", default=b"")

    def acknowledges(self, offset: int) -> bool:
        """Return whether the message at ``offset`` is acknowledged."""
        index, bit = divmod(offset - self.start_offset, 8)
        return 0 <= index < len(self.bits) and self.bits[index] >> bit & 1 == 1


class BatchAcks(Body, frozen=True, kw_only=True):
    """The body of BATCH_ACK_MESSAGE. Java: ``BatchAckMessageRequestBody``."""

    broker_name: str
    acks: tuple[BatchAck, ...] = ()


def ack_bits(start_offset: int, offsets: Iterable[int]) -> bytes:
    """Return the ``bits`` of a ``BatchAck`` for these offsets.

    Raises:
        ProtocolError: an offset is before ``start_offset``, or too far after it.
    """
    bits = 0
    for offset in offsets:
        if not 0 <= offset - start_offset < MAX_BITS:
            raise ProtocolError(f"offset {offset} cannot have been popped together with {start_offset}")
        bits |= 1 << (offset - start_offset)
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


# Lite topics


class LiteSubscriptionAction(enum.StrEnum):
    """A change of a client's lite topics. Java: ``LiteSubscriptionAction``."""

    PARTIAL_ADD = "PARTIAL_ADD"
    """Add lite topics. In exclusive groups, other clients lose them."""
    PARTIAL_REMOVE = "PARTIAL_REMOVE"
    """Remove lite topics."""
    COMPLETE_ADD = "COMPLETE_ADD"
    """Replace all lite topics, which also renews the subscription."""
    COMPLETE_REMOVE = "COMPLETE_REMOVE"
    """Remove all lite topics."""


class OffsetOptionType(enum.StrEnum):
    """The meaning of the number in an ``OffsetOption``. Java: ``OffsetOption.Type``."""

    POLICY = "POLICY"
    OFFSET = "OFFSET"
    TAIL_N = "TAIL_N"
    TIMESTAMP = "TIMESTAMP"


class OffsetOption(Body, frozen=True, kw_only=True):
    """The position at which a group continues in a lite topic. Java: ``OffsetOption``.

    Attributes:
        type: the meaning of ``value``: a policy (0 where the group stopped, 1 the first message, 2 the end),
            an offset, or a number of messages before the group's position. 5.5.0 ignores timestamps.
        value: the number.
    """

    type: OffsetOptionType
    value: int


class LiteSubscription(Body, frozen=True, kw_only=True):
    """A change of the lite topics of one client. Java: ``LiteSubscriptionDTO``.

    Attributes:
        action: the change.
        client_id: the client.
        group: its group.
        topic: the parent topic.
        lite_topic_set: the lite topics.
        offset_option: with PARTIAL_ADD, where to begin. None where the group stopped, or at the end.
        version: the time of the change, epoch milliseconds.
    """

    action: LiteSubscriptionAction
    client_id: str
    group: str
    topic: str
    lite_topic_set: tuple[str, ...] = ()
    offset_option: OffsetOption | None = None
    version: int = 0


class LiteSubscriptions(Body, frozen=True, kw_only=True):
    """The body of LITE_SUBSCRIPTION_CTL. Java: ``LiteSubscriptionCtlRequestBody``."""

    subscription_set: tuple[LiteSubscription, ...] = ()


class BrokerLiteInfo(Body, frozen=True, kw_only=True):
    """A broker's numbers of lite topics. Java: ``GetBrokerLiteInfoResponseBody``.

    Attributes:
        store_type: the kind of the broker's store.
        max_lmq_num: the largest number of lite queues, lite topics and others. 5.5.0 does not enforce it.
        current_lmq_num: the number of lite queues.
        lite_subscription_count: the subscriptions of all clients.
        order_info_count: the lite topics with a pop of a group.
        cq_table_size: the number of topics with queues, lite topics included.
        offset_table_size: the number of topics that groups have offsets of.
        event_map_size: the number of clients that messages were offered to.
        topic_meta: the parent topics, with the minutes until their lite topics expire.
        group_meta: the groups of each parent topic.
    """

    store_type: str = ""
    max_lmq_num: int = 0
    current_lmq_num: int = 0
    lite_subscription_count: int = 0
    order_info_count: int = 0
    cq_table_size: int = 0
    offset_table_size: int = 0
    event_map_size: int = 0
    topic_meta: dict[str, int] = msgspec.field(default_factory=dict)
    group_meta: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


class ParentTopicInfo(Body, frozen=True, kw_only=True):
    """The state of a parent topic on one broker. Java: ``GetParentTopicInfoResponseBody``.

    Attributes:
        topic: the topic.
        ttl: minutes after its last message until a lite topic expires. -1 for never.
        groups: the groups that consume it.
        lmq_num: the lite queues of the whole broker.
        lite_topic_count: its lite topics that have messages.
    """

    topic: str
    ttl: int = -1
    groups: tuple[str, ...] = ()
    lmq_num: int = 0
    lite_topic_count: int = 0


class ClientGroup(Body, frozen=True, kw_only=True):
    """A client and its group. Java: ``ClientGroup``."""

    client_id: str
    group: str


class LiteTopicInfo(Body, frozen=True, kw_only=True):
    """The state of a lite topic on one broker. Java: ``GetLiteTopicInfoResponseBody``.

    Attributes:
        parent_topic: the parent topic.
        lite_topic: the lite topic.
        subscriber: the clients that subscribe to it.
        topic_offset: its offsets.
        sharding_to_broker: whether senders send its messages to this broker.
    """

    parent_topic: str
    lite_topic: str
    topic_offset: TopicOffset
    subscriber: tuple[ClientGroup, ...] = ()
    sharding_to_broker: bool = False


class LiteClientInfo(Body, frozen=True, kw_only=True):
    """The lite topics of a client on one broker. Java: ``GetLiteClientInfoResponseBody``.

    Attributes:
        parent_topic: the parent topic.
        group: the client's group.
        client_id: the client.
        last_access_time: the time of its last pop, epoch milliseconds; -1 if it was never offered any.
        lite_topic_count: the number of its lite topics; -1 if it has no subscription here.
        lite_topic_set: the names of their lite queues, as many as were asked for.
    """

    parent_topic: str
    group: str
    client_id: str
    last_access_time: int = -1
    lite_topic_count: int = -1
    lite_topic_set: tuple[str, ...] = ()


class LiteLag(Body, frozen=True, kw_only=True):
    """The lag of a group in a lite topic. Java: ``LiteLagInfo``.

    Attributes:
        lite_topic: the lite topic.
        lag_count: the number of messages that are not consumed.
        earliest_unconsumed_timestamp: the store time of the first of them, epoch milliseconds; -1 if unknown.
    """

    lite_topic: str
    lag_count: int = 0
    earliest_unconsumed_timestamp: int = -1


class LiteGroupInfo(Body, frozen=True, kw_only=True):
    """The lag of a group on one broker. Java: ``GetLiteGroupInfoResponseBody``.

    Attributes:
        group: the group.
        parent_topic: its parent topic.
        lite_topic: the lite topic that was asked for; None for the whole group.
        total_lag_count: the messages that are not consumed; -1 if there is no such lite topic.
        earliest_unconsumed_timestamp: the store time of the first of them, epoch milliseconds; -1 if unknown.
        lite_topic_offset_wrapper: the offsets in the lite topic, if one was asked for.
        lag_count_top_k: without a lite topic, those with the largest lag.
        lag_timestamp_top_k: without a lite topic, those with the longest lag.
    """

    group: str
    parent_topic: str
    lite_topic: str | None = None
    total_lag_count: int = 0
    earliest_unconsumed_timestamp: int = -1
    lite_topic_offset_wrapper: GroupOffset | None = None
    lag_count_top_k: tuple[LiteLag, ...] = ()
    lag_timestamp_top_k: tuple[LiteLag, ...] = ()
