"""Client for threads, which several producers and consumers share, and Admin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Unpack

from rocketmq_py import admin, shared_client
from rocketmq_py.blocking.consumer import (
    LitePullConsumer,
    LiteTopicConsumer,
    LiteTopicPushConsumer,
    PopConsumer,
    PushConsumer,
)
from rocketmq_py.blocking.generated_methods import AdminMethods
from rocketmq_py.blocking.hosted import Hosted
from rocketmq_py.blocking.producer import Producer, TransactionProducer
from rocketmq_py.blocking.reader import Reader
from rocketmq_py.client.settings import ClientOptions, ClientSettings
from rocketmq_py.handoff.hosted import reading
from rocketmq_py.remoting import RpcHook
from rocketmq_py.shared_client import FactoryMethods
from rocketmq_py.shown_settings import takes_settings


@takes_settings(ClientSettings)
class Admin(AdminMethods, Hosted[admin.Admin]):
    """``rocketmq_py.Admin`` for threads: the same attributes and methods, without ``await``.

    Args:
        client: name servers as ``host:port;host:port``, or None for NAMESRV_ADDR or 127.0.0.1:9876, or
            a ``rocketmq_py.blocking.Client`` to share.
        **options: the settings of a Client, unless one is shared.

    Raises:
        ConfigurationError: an option is unknown or not valid.
        ClosedError: the client is closed, or belongs to the parent of this process.
    """

    def __init__(self, client: Client | str | None = None, **options: Unpack[ClientOptions]) -> None:
        shared, parent = self._shared_client(client)
        target = admin.Admin(shared, **options)
        super().__init__(target, parent)
        self._set_operations(target)

    @property
    def settings(self) -> ClientSettings:
        """The settings of its client."""
        return self._target.settings


@takes_settings(ClientSettings)
class Client(
    Hosted[shared_client.Client],
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
    """``rocketmq_py.Client`` for threads: shared connections, routes and heartbeats of one cluster.

    Closing it first closes everything that was opened from it. It connects to brokers when it needs them.

    Args:
        address: name servers as ``host:port;host:port``, or a URL that returns them, or None for NAMESRV_ADDR
            or 127.0.0.1:9876.
        **options: the settings of a Client.

    Raises:
        ConfigurationError: an address or a setting is not valid.
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

    def __init__(self, address: str | None = None, **options: Unpack[ClientOptions]) -> None:
        super().__init__(shared_client.Client(address, **options))

    @property
    def settings(self) -> ClientSettings:
        """The settings."""
        return self._target.settings

    health: Final = reading(shared_client.Client.health)

    def add_rpc_hook(self, hook: RpcHook) -> Callable[[], None]:
        """Add a hook that the trio thread calls around every request. Returns its remover."""
        return self._call_plain(self._target.add_rpc_hook, hook)
