"""The client that a threaded program opens to share it among several producers and readers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

from rocketmq_py import shared_client
from rocketmq_py.blocking.admin import Admin
from rocketmq_py.blocking.consumer import LitePullConsumer, PopConsumer, PushConsumer
from rocketmq_py.blocking.hosted import Hosted
from rocketmq_py.blocking.producer import BatchingProducer, Producer, TransactionProducer
from rocketmq_py.blocking.reader import Reader
from rocketmq_py.client.config import ClientOptions
from rocketmq_py.remoting import RpcHook
from rocketmq_py.shared_client import FactoryMethods


class Client(
    Hosted[shared_client.Client],
    FactoryMethods[
        Producer,
        BatchingProducer,
        TransactionProducer,
        PushConsumer,
        PopConsumer,
        LitePullConsumer,
        Reader,
        Admin,
    ],
):
    """``rocketmq_py.Client`` for threads: connections, routes and heartbeats of one cluster, shared.

    Closing it closes what was opened from it first.

    Args:
        address: name servers as ``host:port;host:port``, or a URL that says where they are; None reads
            NAMESRV_ADDR, else 127.0.0.1:9876.
        **options: the fields of ClientConfig.

    Raises:
        ConfigurationError: an address or a setting is wrong. Nothing is dialled before it is needed.
    """

    _producer = Producer
    _batching_producer = BatchingProducer
    _transaction_producer = TransactionProducer
    _push_consumer = PushConsumer
    _pop_consumer = PopConsumer
    _lite_pull_consumer = LitePullConsumer
    _reader = Reader
    _admin = Admin

    def __init__(self, address: str | None = None, **options: Unpack[ClientOptions]) -> None:
        super().__init__(shared_client.Client(address, **options))

    @property
    def _client(self) -> shared_client.Client:
        return self._target

    def add_rpc_hook(self, hook: RpcHook) -> Callable[[], None]:
        """Have a hook called in the trio thread around every request; returns what removes it."""
        return self._call_plain(self._target.add_rpc_hook, hook)
