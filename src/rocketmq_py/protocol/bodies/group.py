"""Heartbeats, members and settings of groups, and locks on queues."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Self

import msgspec

from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies.base import Body, JsonMessageQueue, json_queues


class ConsumeType(enum.StrEnum):
    """The way in which a group receives messages. Java: ``ConsumeType``."""

    PULL = "CONSUME_ACTIVELY"
    PUSH = "CONSUME_PASSIVELY"
    POP = "CONSUME_POP"


class MessageModel(enum.StrEnum):
    """Whether each message goes to one member of a group, or to all. Java: ``MessageModel``."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"
    LITE_SELECTIVE = "LITE_SELECTIVE"
    """Each message of a lite topic goes to one of the members that subscribe to that lite topic (5.5)."""


class ConsumeFromWhere(enum.StrEnum):
    """The position at which a new group begins. Java: ``ConsumeFromWhere``."""

    LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class SubscriptionData(Body, frozen=True, kw_only=True):
    """A group's subscription to a topic. Java: ``SubscriptionData``.

    ``subscription.make_subscription`` makes one.

    Attributes:
        topic: the topic.
        sub_string: the filter expression.
        tags_set: the tags in the expression; empty for all messages.
        code_set: the ``subscription.tag_code`` of each tag.
        sub_version: the time of the subscription, epoch milliseconds. Brokers use the newest one.
        expression_type: TAG or SQL92.
        class_filter_mode: a feature of 4.x; False.
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
        consume_type: a ``ConsumeType``, or an unknown one.
        message_model: a ``MessageModel``, or an unknown one.
        consume_from_where: a ``ConsumeFromWhere``, or an unknown one.
        subscription_data_set: its subscriptions.
        unit_mode: part of a feature that is not public; False.
    """

    group_name: str
    consume_type: str = ConsumeType.PUSH
    message_model: str = MessageModel.CLUSTERING
    consume_from_where: str = ConsumeFromWhere.LAST_OFFSET
    subscription_data_set: tuple[SubscriptionData, ...] = ()
    unit_mode: bool = False


class Heartbeat(Body, frozen=True, kw_only=True):
    """A client's heartbeat, sent every 30 s: the body of HEART_BEAT. Java: ``HeartbeatData``.

    Attributes:
        client_id: the client.
        producer_data_set: its producer groups.
        consumer_data_set: its consumer groups.
        heartbeat_fingerprint: a hash of the subscriptions, for heartbeats that omit them (5.x); else 0.
        without_sub: whether the subscriptions are omitted (5.x).
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
        only_this_broker: whether the broker locks without its slaves (5.x).
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
    """The locked queues: the answer to LOCK_BATCH_MQ. Java: ``LockBatchResponseBody``."""

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
    """A subscription to validate: the body of CHECK_CLIENT_CONFIG. Java: ``CheckClientRequestBody``."""

    client_id: str
    group: str
    subscription_data: SubscriptionData
    namespace: str | None = None


class Connection(Body, frozen=True, kw_only=True):
    """A client's connection to a broker. Java: ``Connection``.

    Attributes:
        client_id: the client.
        client_addr: its address, ``host:port``.
        language: its language, such as JAVA.
        version: its version, an ordinal of Java's ``MQVersion``.
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
        consume_type: as in ``ConsumerData``.
        message_model: as in ``ConsumerData``.
        consume_from_where: as in ``ConsumerData``.
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
    """A group's subscription to a topic: the answer to QUERY_SUBSCRIPTION_BY_CONSUMER.

    Java: ``QuerySubscriptionResponseBody``.

    Attributes:
        group: the group.
        topic: the topic.
        subscription_data: the subscription. None if no member has subscribed the topic.
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
        retry_queue_nums: the number of queues of its retry topic.
        retry_max_times: the failures after which a message becomes a dead letter.
        broker_id: the id of the broker to consume from.
        which_broker_when_consume_slowly: the id of the broker to consume from when the group falls behind.
        notify_consumer_ids_changed_enable: whether the broker notifies members of changes immediately.
        group_sys_flag: its system flag (5.x).
        consume_timeout_minute: minutes until an unacknowledged message is delivered again (5.x).
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
