"""The client that a threaded program opens to share it among several producers and readers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

from rocketmq_py import shared_client
from rocketmq_py.blocking.admin import Admin
from rocketmq_py.blocking.consumer import LitePullConsumer, PopConsumer, PushConsumer
from rocketmq_py.blocking.door import Door
from rocketmq_py.blocking.producer import BatchingProducer, Producer, TransactionProducer
from rocketmq_py.blocking.reader import Reader
from rocketmq_py.client.config import ClientOptions
from rocketmq_py.consumer import (
    AssignmentListener,
    LitePullConsumerConfig,
    LitePullConsumerOptions,
    PopConsumerConfig,
    PopConsumerOptions,
    PushConsumerConfig,
    PushConsumerOptions,
)
from rocketmq_py.producer import (
    BatchingConfig,
    ProducerConfig,
    TransactionCheck,
    TransactionConfig,
    TransactionOptions,
)
from rocketmq_py.producer.batching_config import BatchingOptions
from rocketmq_py.producer.config import ProducerOptions
from rocketmq_py.remoting import RpcHook


class Client(Door[shared_client.Client]):
    """``rocketmq_py.Client`` for threads: connections, routes and heartbeats of one cluster, shared.

    Closing it closes what was opened from it first.

    Args:
        address: name servers as ``host:port;host:port``, or a URL that says where they are; None reads
            NAMESRV_ADDR, else 127.0.0.1:9876.
        **options: the fields of ClientConfig.

    Raises:
        ConfigurationError: an address or a setting is wrong. Nothing is dialled before it is needed.
    """

    def __init__(self, address: str | None = None, **options: Unpack[ClientOptions]) -> None:
        super().__init__(shared_client.Client(address, **options))

    @property
    def _client(self) -> shared_client.Client:
        return self._behind

    def add_rpc_hook(self, hook: RpcHook) -> Callable[[], None]:
        """Have a hook called in the trio thread around every request; returns what removes it."""
        return self._call_sync(self._behind.add_rpc_hook, hook)

    def producer(self, group: str, *configs: ProducerConfig, **options: Unpack[ProducerOptions]) -> Producer:
        """Open a producer of this client; see Producer."""
        return Producer(self, *configs, group=group, **options)

    def batching_producer(
        self, group: str, *configs: BatchingConfig | ProducerConfig, **options: Unpack[BatchingOptions]
    ) -> BatchingProducer:
        """Open a batching producer of this client; see BatchingProducer."""
        return BatchingProducer(self, *configs, group=group, **options)

    def transaction_producer(
        self,
        group: str,
        check: TransactionCheck,
        *configs: TransactionConfig | ProducerConfig,
        **options: Unpack[TransactionOptions],
    ) -> TransactionProducer:
        """Open a transaction producer of this client; see TransactionProducer."""
        return TransactionProducer(self, *configs, group=group, check=check, **options)

    def push_consumer(
        self,
        group: str,
        *configs: PushConsumerConfig,
        assignment_listener: AssignmentListener | None = None,
        **options: Unpack[PushConsumerOptions],
    ) -> PushConsumer:
        """Open a push consumer of this client; see PushConsumer."""
        return PushConsumer(self, *configs, group=group, assignment_listener=assignment_listener, **options)

    def pop_consumer(
        self, group: str, *configs: PopConsumerConfig, **options: Unpack[PopConsumerOptions]
    ) -> PopConsumer:
        """Open a pop consumer of this client; see PopConsumer."""
        return PopConsumer(self, *configs, group=group, **options)

    def lite_pull_consumer(
        self,
        group: str,
        *configs: LitePullConsumerConfig,
        assignment_listener: AssignmentListener | None = None,
        **options: Unpack[LitePullConsumerOptions],
    ) -> LitePullConsumer:
        """Open a lite pull consumer of this client; see LitePullConsumer."""
        return LitePullConsumer(
            self, *configs, group=group, assignment_listener=assignment_listener, **options
        )

    def reader(self) -> Reader:
        """Open a reader of this client; see Reader."""
        return Reader(self)

    def admin(self) -> Admin:
        """Open what administers this client's cluster; see Admin."""
        return Admin(self)
