"""The client that producers and consumers share, and its factory methods for all three APIs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar, Unpack

from rocketmq_py import client as core
from rocketmq_py.admin import Admin
from rocketmq_py.consumer import (
    AssignmentListener,
    LiteConsumer,
    LiteConsumerConfig,
    LiteConsumerOptions,
    LitePullConsumer,
    LitePullConsumerConfig,
    LitePullConsumerOptions,
    LitePushConsumer,
    LitePushConsumerConfig,
    LitePushConsumerOptions,
    PopConsumer,
    PopConsumerConfig,
    PopConsumerOptions,
    PushConsumer,
    PushConsumerConfig,
    PushConsumerOptions,
    Reader,
)
from rocketmq_py.producer import (
    BatchingConfig,
    BatchingOptions,
    BatchingProducer,
    Producer,
    ProducerConfig,
    ProducerOptions,
    TransactionCheck,
    TransactionConfig,
    TransactionOptions,
    TransactionProducer,
)

ProducerKind = TypeVar("ProducerKind")
BatchingKind = TypeVar("BatchingKind")
TransactionKind = TypeVar("TransactionKind")
PushKind = TypeVar("PushKind")
PopKind = TypeVar("PopKind")
LitePullKind = TypeVar("LitePullKind")
LiteKind = TypeVar("LiteKind")
LitePushKind = TypeVar("LitePushKind")
ReaderKind = TypeVar("ReaderKind")
AdminKind = TypeVar("AdminKind")


class FactoryMethods(
    Generic[
        ProducerKind,
        BatchingKind,
        TransactionKind,
        PushKind,
        PopKind,
        LitePullKind,
        LiteKind,
        LitePushKind,
        ReaderKind,
        AdminKind,
    ]
):
    """Mixin with the methods of a client that return producers, consumers, readers and admins.

    The trio, asyncio and threads clients set the class attributes to the classes of their API.
    """

    _producer: Callable[..., ProducerKind]
    _batching_producer: Callable[..., BatchingKind]
    _transaction_producer: Callable[..., TransactionKind]
    _push_consumer: Callable[..., PushKind]
    _pop_consumer: Callable[..., PopKind]
    _lite_pull_consumer: Callable[..., LitePullKind]
    _lite_consumer: Callable[..., LiteKind]
    _lite_push_consumer: Callable[..., LitePushKind]
    _reader: Callable[..., ReaderKind]
    _admin: Callable[..., AdminKind]

    def producer(
        self, group: str, *configs: ProducerConfig, **options: Unpack[ProducerOptions]
    ) -> ProducerKind:
        """Return a Producer that shares this client. Use it in ``async with`` (``with``)."""
        return self._producer(self, *configs, group=group, **options)

    def batching_producer(
        self, group: str, *configs: BatchingConfig | ProducerConfig, **options: Unpack[BatchingOptions]
    ) -> BatchingKind:
        """Return a BatchingProducer that shares this client. Use it in ``async with`` (``with``)."""
        return self._batching_producer(self, *configs, group=group, **options)

    def transaction_producer(
        self,
        group: str,
        check: TransactionCheck,
        *configs: TransactionConfig | ProducerConfig,
        **options: Unpack[TransactionOptions],
    ) -> TransactionKind:
        """Return a TransactionProducer that shares this client. Use it in ``async with`` (``with``)."""
        return self._transaction_producer(self, *configs, group=group, check=check, **options)

    def push_consumer(
        self,
        group: str,
        *configs: PushConsumerConfig,
        assignment_listener: AssignmentListener | None = None,
        **options: Unpack[PushConsumerOptions],
    ) -> PushKind:
        """Return a PushConsumer that shares this client. Use it in ``async with`` (``with``)."""
        return self._push_consumer(
            self, *configs, group=group, assignment_listener=assignment_listener, **options
        )

    def pop_consumer(
        self, group: str, *configs: PopConsumerConfig, **options: Unpack[PopConsumerOptions]
    ) -> PopKind:
        """Return a PopConsumer that shares this client. Use it in ``async with`` (``with``)."""
        return self._pop_consumer(self, *configs, group=group, **options)

    def lite_pull_consumer(
        self,
        group: str,
        *configs: LitePullConsumerConfig,
        assignment_listener: AssignmentListener | None = None,
        **options: Unpack[LitePullConsumerOptions],
    ) -> LitePullKind:
        """Return a LitePullConsumer that shares this client. Use it in ``async with`` (``with``)."""
        return self._lite_pull_consumer(
            self, *configs, group=group, assignment_listener=assignment_listener, **options
        )

    def lite_consumer(
        self, group: str, *configs: LiteConsumerConfig, **options: Unpack[LiteConsumerOptions]
    ) -> LiteKind:
        """Return a LiteConsumer that shares this client. Use it in ``async with`` (``with``)."""
        return self._lite_consumer(self, *configs, group=group, **options)

    def lite_push_consumer(
        self, group: str, *configs: LitePushConsumerConfig, **options: Unpack[LitePushConsumerOptions]
    ) -> LitePushKind:
        """Return a LitePushConsumer that shares this client. Use it in ``async with`` (``with``)."""
        return self._lite_push_consumer(self, *configs, group=group, **options)

    def reader(self) -> ReaderKind:
        """Return a Reader that shares this client. Use it in ``async with`` (``with``)."""
        return self._reader(self)

    def admin(self) -> AdminKind:
        """Return an Admin that shares this client. Use it in ``async with`` (``with``)."""
        return self._admin(self)


class Client(
    core.Client,
    FactoryMethods[
        Producer,
        BatchingProducer,
        TransactionProducer,
        PushConsumer,
        PopConsumer,
        LitePullConsumer,
        LiteConsumer,
        LitePushConsumer,
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
    """

    _producer = Producer
    _batching_producer = BatchingProducer
    _transaction_producer = TransactionProducer
    _push_consumer = PushConsumer
    _pop_consumer = PopConsumer
    _lite_pull_consumer = LitePullConsumer
    _lite_consumer = LiteConsumer
    _lite_push_consumer = LitePushConsumer
    _reader = Reader
    _admin = Admin
