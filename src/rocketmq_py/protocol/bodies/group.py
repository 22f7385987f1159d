"""What clients and brokers tell each other about groups: heartbeats, members, locks on queues."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Self

import msgspec

from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies.base import Body, JsonMessageQueue, json_queues


class ConsumeType(enum.StrEnum):
    """How a group gets its messages. Java: ``ConsumeType``."""

    PULL = "CONSUME_ACTIVELY"
    PUSH = "CONSUME_PASSIVELY"
    POP = "CONSUME_POP"


class MessageModel(enum.StrEnum):
    """Whether each message goes to one member of a group or to all. Java: ``MessageModel``."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


class ConsumeFromWhere(enum.StrEnum):
    """Where a new group begins. Java: ``ConsumeFromWhere``."""

    LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class SubscriptionData(Body, frozen=True, kw_only=True):
    """What of a topic a group wants; ``subscription.make_subscription`` makes it. Java: ``SubscriptionData``.

    Attributes:
        topic: the topic.
        sub_string: the expression as it was written.
        tags_set: the tags in it; none for all messages.
        code_set: their ``subscription.tag_code``.
        sub_version: when it was made, epoch milliseconds; the newest counts.
        expression_type: TAG or SQL92.
        class_filter_mode: left over from 4.x; False.
    """

    topic: str
    sub_string: str
    tags_set: tuple[str, ...] = ()
    code_set: tuple[int, ...] = ()
    sub_version: int = 0
    expression_type: str = "TAG"
    class_filter_mode: bool = False


class ProducerData(Body, frozen=True, kw_only=True):
    """A producer group of a client. Java: ``ProducerData``."""

    group_name: str


class ConsumerData(Body, frozen=True, kw_only=True):
    """A consumer group of a client. Java: ``ConsumerData``.

    Attributes:
        group_name: its name.
        consume_type: a ``ConsumeType``, or one that is not known here.
        message_model: a ``MessageModel``, or one that is not known here.
        consume_from_where: a ``ConsumeFromWhere``, or one that is not known here.
        subscription_data_set: what it subscribed.
        unit_mode: left over from a feature that is not public; False.
    """

    group_name: str
    consume_type: str = ConsumeType.PUSH
    message_model: str = MessageModel.CLUSTERING
    consume_from_where: str = ConsumeFromWhere.LAST_OFFSET
    subscription_data_set: tuple[SubscriptionData, ...] = ()
    unit_mode: bool = False


class Heartbeat(Body, frozen=True, kw_only=True):
    """What a client says of itself every 30 s: the body of HEART_BEAT. Java: ``HeartbeatData``.

    Attributes:
        client_id: the client.
        producer_data_set: its producer groups.
        consumer_data_set: its consumer groups.
        heartbeat_fingerprint: what stands for the subscriptions when they are left out (5.x); else 0.
        without_sub: whether the subscriptions are left out (5.x).
    """

    client_id: str = msgspec.field(name="clientID")
    producer_data_set: tuple[ProducerData, ...] = ()
    consumer_data_set: tuple[ConsumerData, ...] = ()
    heartbeat_fingerprint: int = 0
    without_sub: bool = False


class ConsumerList(Body, frozen=True, kw_only=True):
    """The client ids of a group's members. Java: ``GetConsumerListByGroupResponseBody``."""

    consumer_id_list: tuple[str, ...] = ()


class GroupList(Body, frozen=True, kw_only=True):
    """The groups that consume a topic: the answer to QUERY_TOPIC_CONSUME_BY_WHO. Java: ``GroupList``."""

    group_list: tuple[str, ...] = ()


class QueueLock(Body, frozen=True, kw_only=True):
    """The queues of LOCK_BATCH_MQ and UNLOCK_BATCH_MQ.

    Java: ``LockBatchRequestBody``, ``UnlockBatchRequestBody``.

    Attributes:
        consumer_group: the group.
        client_id: the client that holds or wants the locks.
        mq_set: the queues.
        only_this_broker: whether the broker need not ask its slaves (5.x).
    """

    consumer_group: str
    client_id: str
    mq_set: tuple[JsonMessageQueue, ...] = ()
    only_this_broker: bool = False

    @classmethod
    def of(cls, consumer_group: str, client_id: str, queues: Iterable[MessageQueue]) -> Self:
        """Return the body for these queues."""
        return cls(consumer_group=consumer_group, client_id=client_id, mq_set=json_queues(queues))

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """The queues."""
        return tuple([item.queue for item in self.mq_set])


class LockedQueues(Body, frozen=True, kw_only=True):
    """The queues that a LOCK_BATCH_MQ locked. Java: ``LockBatchResponseBody``."""

    lock_ok_mq_set: tuple[JsonMessageQueue, ...] = msgspec.field(name="lockOKMQSet", default=())

    @classmethod
    def of(cls, queues: Iterable[MessageQueue]) -> Self:
        """Return the body for these queues."""
        return cls(lock_ok_mq_set=json_queues(queues))

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """The queues."""
        return tuple([item.queue for item in self.lock_ok_mq_set])


class CheckClientConfig(Body, frozen=True, kw_only=True):
    """A subscription to be checked: the body of CHECK_CLIENT_CONFIG. Java: ``CheckClientRequestBody``."""

    client_id: str
    group: str
    subscription_data: SubscriptionData
    namespace: str | None = None


class Connection(Body, frozen=True, kw_only=True):
    """A client's connection to a broker. Java: ``Connection``.

    Attributes:
        client_id: the client.
        client_addr: its address, ``host:port``.
        language: the name of its language, such as JAVA.
        version: an ordinal of Java's ``MQVersion``.
    """

    client_id: str
    client_addr: str = ""
    language: str = "OTHER"
    version: int = 0


class ConsumerConnection(Body, frozen=True, kw_only=True):
    """A group's connections and subscriptions on a broker. Java: ``ConsumerConnection``.

    Attributes:
        connection_set: the connections.
        subscription_table: the subscriptions by topic.
        consume_type: see ``ConsumerData``, like the two below.
        message_model: see there.
        consume_from_where: see there.
    """

    connection_set: tuple[Connection, ...] = ()
    subscription_table: dict[str, SubscriptionData] = msgspec.field(default_factory=dict)
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None


class ProducerConnection(Body, frozen=True, kw_only=True):
    """A producer group's connections on a broker. Java: ``ProducerConnection``."""

    connection_set: tuple[Connection, ...] = ()


class GroupSubscription(Body, frozen=True, kw_only=True):
    """What of a topic a group wants. Java: ``QuerySubscriptionResponseBody``.

    Attributes:
        group: the group.
        topic: the topic.
        subscription_data: its subscription; None if no member has subscribed the topic.
    """

    group: str
    topic: str
    subscription_data: SubscriptionData | None = None


class SubscriptionGroupConfig(Body, frozen=True, kw_only=True):
    """A consumer group's settings on a broker. Java: ``SubscriptionGroupConfig``.

    Attributes:
        group_name: its name.
        consume_enable: whether it may consume.
        consume_from_min_enable: whether a new group may begin at the first message.
        consume_broadcast_enable: whether it may consume by broadcasting.
        consume_message_orderly: whether it consumes in order (5.x).
        retry_queue_nums: queues of its retry topic.
        retry_max_times: failures until a message goes to the dead letters.
        broker_id: the broker that it consumes from.
        which_broker_when_consume_slowly: the broker that helps when it falls behind.
        notify_consumer_ids_changed_enable: whether members are told about changes at once.
        group_sys_flag: its system flag (5.x).
        consume_timeout_minute: minutes until a message that was not acknowledged comes again (5.x).
        attributes: further settings (5.x).
    """

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    attributes: dict[str, str] = msgspec.field(default_factory=dict)
