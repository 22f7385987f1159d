"""The client that a user opens to share it among several producers and consumers."""

from __future__ import annotations

from typing import Unpack

from rocketmq_py import client as core
from rocketmq_py.admin import Admin
from rocketmq_py.consumer import (
    AssignmentListener,
    LitePullConsumer,
    LitePullConsumerConfig,
    LitePullConsumerOptions,
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


class Client(core.Client):
    """Connections, routes and heartbeats of one cluster, shared by what is opened from it.

    ::

        async with Client("127.0.0.1:9876") as client:
            async with client.producer("orders") as producer, client.push_consumer("billing") as consumer:
                ...

    Close what was opened from it first, as nested ``async with`` blocks do by themselves. A Producer or
    consumer that is made with an address instead has a client of its own.
    """

    def producer(self, group: str, *configs: ProducerConfig, **options: Unpack[ProducerOptions]) -> Producer:
        """Return a producer of this client, to be used inside ``async with``; see Producer."""
        return Producer(self, *configs, group=group, **options)

    def batching_producer(
        self, group: str, *configs: BatchingConfig | ProducerConfig, **options: Unpack[BatchingOptions]
    ) -> BatchingProducer:
        """Return one of this client, to be used inside ``async with``; see BatchingProducer."""
        return BatchingProducer(self, *configs, group=group, **options)

    def transaction_producer(
        self,
        group: str,
        check: TransactionCheck,
        *configs: TransactionConfig | ProducerConfig,
        **options: Unpack[TransactionOptions],
    ) -> TransactionProducer:
        """Return one of this client, to be used inside ``async with``; see TransactionProducer."""
        return TransactionProducer(self, *configs, group=group, check=check, **options)

    def push_consumer(
        self,
        group: str,
        *configs: PushConsumerConfig,
        assignment_listener: AssignmentListener | None = None,
        **options: Unpack[PushConsumerOptions],
    ) -> PushConsumer:
        """Return a push consumer of this client, to be used inside ``async with``; see PushConsumer."""
        return PushConsumer(self, *configs, group=group, assignment_listener=assignment_listener, **options)

    def pop_consumer(
        self, group: str, *configs: PopConsumerConfig, **options: Unpack[PopConsumerOptions]
    ) -> PopConsumer:
        """Return a pop consumer of this client, to be used inside ``async with``; see PopConsumer."""
        return PopConsumer(self, *configs, group=group, **options)

    def lite_pull_consumer(
        self,
        group: str,
        *configs: LitePullConsumerConfig,
        assignment_listener: AssignmentListener | None = None,
        **options: Unpack[LitePullConsumerOptions],
    ) -> LitePullConsumer:
        """Return one of this client, to be used inside ``async with``; see LitePullConsumer."""
        return LitePullConsumer(
            self, *configs, group=group, assignment_listener=assignment_listener, **options
        )

    def reader(self) -> Reader:
        """Return a reader of this client, to be used inside ``async with``; see Reader."""
        return Reader(self)

    def admin(self) -> Admin:
        """Return what administers this client's cluster, to be used inside ``async with``; see Admin."""
        return Admin(self)
