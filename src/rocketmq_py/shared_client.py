"""The client that producers and consumers share, and its factory methods for all three APIs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar, Unpack

from rocketmq_py import client
from rocketmq_py.admin import Admin
from rocketmq_py.client.settings import ClientSettings
from rocketmq_py.consumer import (
    AssignmentListener,
    LitePullConsumer,
    LiteTopicConsumer,
    LiteTopicPushConsumer,
    PopConsumer,
    PushConsumer,
    Reader,
)
from rocketmq_py.consumer.lite.settings import (
    LiteTopicConsumerFactoryOptions,
    LiteTopicConsumerSettings,
    LiteTopicPushConsumerFactoryOptions,
    LiteTopicPushConsumerSettings,
)
from rocketmq_py.consumer.lite_pull.settings import LitePullConsumerFactoryOptions, LitePullConsumerSettings
from rocketmq_py.consumer.pop.settings import PopConsumerFactoryOptions, PopConsumerSettings
from rocketmq_py.consumer.settings import PushConsumerFactoryOptions, PushConsumerSettings
from rocketmq_py.producer import Producer, TransactionCheck, TransactionProducer
from rocketmq_py.producer.settings import ProducerFactoryOptions, ProducerSettings
from rocketmq_py.producer.transaction_settings import TransactionFactoryOptions, TransactionSettings
from rocketmq_py.shown_settings import takes_settings

ProducerKind = TypeVar("ProducerKind")
TransactionKind = TypeVar("TransactionKind")
PushKind = TypeVar("PushKind")
PopKind = TypeVar("PopKind")
LitePullKind = TypeVar("LitePullKind")
LiteTopicKind = TypeVar("LiteTopicKind")
LiteTopicPushKind = TypeVar("LiteTopicPushKind")
ReaderKind = TypeVar("ReaderKind")
AdminKind = TypeVar("AdminKind")


class FactoryMethods(
    Generic[
        ProducerKind,
        TransactionKind,
        PushKind,
        PopKind,
        LitePullKind,
        LiteTopicKind,
        LiteTopicPushKind,
        ReaderKind,
        AdminKind,
    ]
):
    """Mixin with the methods of a client that return producers, consumers, readers and admins.

    The trio, asyncio and threads clients set the class attributes to the classes of their API.
    """

    _producer: Callable[..., ProducerKind]
    _transaction_producer: Callable[..., TransactionKind]
    _push_consumer: Callable[..., PushKind]
    _pop_consumer: Callable[..., PopKind]
    _lite_pull_consumer: Callable[..., LitePullKind]
    _lite_topic_consumer: Callable[..., LiteTopicKind]
    _lite_topic_push_consumer: Callable[..., LiteTopicPushKind]
    _reader: Callable[..., ReaderKind]
    _admin: Callable[..., AdminKind]

    @takes_settings(ProducerSettings)
    def producer(self, group: str, **options: Unpack[ProducerFactoryOptions]) -> ProducerKind:
        """Return a Producer that shares this client. Use it in ``async with`` (``with``).

        Args:
            group: the producer group.
            **options: the settings of a Producer. Those of a Client are set on this client.

        Raises:
            ConfigurationError: an option is unknown or invalid, or a setting of a Client.
        """
        return self._producer(self, group=group, **options)

    @takes_settings(TransactionSettings)
    def transaction_producer(
        self,
        group: str,
        check: TransactionCheck,
        **options: Unpack[TransactionFactoryOptions],
    ) -> TransactionKind:
        """Return a TransactionProducer that shares this client. Use it in ``async with`` (``with``).

        Args:
            group: the producer group, which brokers check back with.
            check: returns the outcome of a transaction as a TransactionState; see TransactionProducer.
            **options: the settings of a TransactionProducer. Those of a Client are set on this client.

        Raises:
            ConfigurationError: an option is unknown or invalid, or a setting of a Client.
        """
        return self._transaction_producer(self, group=group, check=check, **options)

    @takes_settings(PushConsumerSettings)
    def push_consumer(
        self,
        group: str,
        *,
        assignment_listener: AssignmentListener | None = None,
        **options: Unpack[PushConsumerFactoryOptions],
    ) -> PushKind:
        """Return a PushConsumer that shares this client. Use it in ``async with`` (``with``).

        Args:
            group: the consumer group. All its members must subscribe alike.
            assignment_listener: called when queues are assigned to this consumer or revoked.
            **options: the settings of a PushConsumer. Those of a Client are set on this client.

        Raises:
            ConfigurationError: an option is unknown or invalid, or a setting of a Client.
        """
        return self._push_consumer(self, group=group, assignment_listener=assignment_listener, **options)

    @takes_settings(PopConsumerSettings)
    def pop_consumer(self, group: str, **options: Unpack[PopConsumerFactoryOptions]) -> PopKind:
        """Return a PopConsumer that shares this client. Use it in ``async with`` (``with``).

        Args:
            group: the consumer group. All members must have the same subscriptions, and pop.
            **options: the settings of a PopConsumer. Those of a Client are set on this client.

        Raises:
            ConfigurationError: an option is unknown or invalid, or a setting of a Client.
        """
        return self._pop_consumer(self, group=group, **options)

    @takes_settings(LitePullConsumerSettings)
    def lite_pull_consumer(
        self,
        group: str,
        *,
        assignment_listener: AssignmentListener | None = None,
        **options: Unpack[LitePullConsumerFactoryOptions],
    ) -> LitePullKind:
        """Return a LitePullConsumer that shares this client. Use it in ``async with`` (``with``).

        Args:
            group: the consumer group. All its members must subscribe alike.
            assignment_listener: called when queues are assigned to this consumer or revoked.
            **options: the settings of a LitePullConsumer. Those of a Client are set on this client.

        Raises:
            ConfigurationError: an option is unknown or invalid, or a setting of a Client.
        """
        return self._lite_pull_consumer(self, group=group, assignment_listener=assignment_listener, **options)

    @takes_settings(LiteTopicConsumerSettings)
    def lite_topic_consumer(
        self, group: str, *, parent: str, **options: Unpack[LiteTopicConsumerFactoryOptions]
    ) -> LiteTopicKind:
        """Return a LiteTopicConsumer that shares this client. Use it in ``async with`` (``with``).

        Args:
            group: the consumer group. Its attribute ``lite.bind.topic`` must name the parent topic.
            parent: the parent topic, of type LITE. Java: ``bindTopic``.
            **options: the settings of a LiteTopicConsumer. Those of a Client are set on this client.

        Raises:
            ConfigurationError: an option is unknown or invalid, or a setting of a Client.
        """
        return self._lite_topic_consumer(self, group=group, parent=parent, **options)

    @takes_settings(LiteTopicPushConsumerSettings)
    def lite_topic_push_consumer(
        self, group: str, *, parent: str, **options: Unpack[LiteTopicPushConsumerFactoryOptions]
    ) -> LiteTopicPushKind:
        """Return a LiteTopicPushConsumer that shares this client. Use it in ``async with`` (``with``).

        Args:
            group: the consumer group. Its attribute ``lite.bind.topic`` must name the parent topic.
            parent: the parent topic, of type LITE. Java: ``bindTopic``.
            **options: the settings of a LiteTopicPushConsumer. Those of a Client are set on this client.

        Raises:
            ConfigurationError: an option is unknown or invalid, or a setting of a Client.
        """
        return self._lite_topic_push_consumer(self, group=group, parent=parent, **options)

    def reader(self) -> ReaderKind:
        """Return a Reader that shares this client. Use it in ``async with`` (``with``)."""
        return self._reader(self)

    def admin(self) -> AdminKind:
        """Return an Admin that shares this client. Use it in ``async with`` (``with``)."""
        return self._admin(self)


@takes_settings(ClientSettings)
class Client(
    client.Client,
    FactoryMethods[
        Producer,
        TransactionProducer,
        PushConsumer,
        PopConsumer,
        LitePullConsumer,
        LiteTopicConsumer,
        LiteTopicPushConsumer,
        Reader,
        Admin,
    ],
):
    """The connections, routes and heartbeats for one cluster, shared by several producers and consumers.

    ::

        async with Client("127.0.0.1:9876") as client:
            async with client.producer("orders") as producer, client.push_consumer("billing") as consumer:
                ...

    Close the producers and consumers before the client, as nested ``async with`` blocks do. A producer or
    consumer that is created with an address has a client of its own.

    Args:
        address: name servers as ``host:port;host:port``, also with ``http://`` in front, or a URL with a path
            that returns their addresses. None reads NAMESRV_ADDR, else 127.0.0.1:9876.
        **options: the settings of a Client.

    Raises:
        ConfigurationError: an address or a setting is invalid.
    """

    _producer = Producer
    _transaction_producer = TransactionProducer
    _push_consumer = PushConsumer
    _pop_consumer = PopConsumer
    _lite_pull_consumer = LitePullConsumer
    _lite_topic_consumer = LiteTopicConsumer
    _lite_topic_push_consumer = LiteTopicPushConsumer
    _reader = Reader
    _admin = Admin
