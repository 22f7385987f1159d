"""Admin for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from rocketmq_py import admin
from rocketmq_py.aio.generated_methods import AdminMethods
from rocketmq_py.aio.hosted import Hosted
from rocketmq_py.client.config import ClientOptions

if TYPE_CHECKING:
    from rocketmq_py.aio.client import Client


class Admin(AdminMethods, Hosted[admin.Admin]):
    """``rocketmq_py.Admin`` for asyncio: the same attributes and methods, as coroutines.

    Args:
        client: name servers as ``host:port;host:port``, or None for NAMESRV_ADDR or 127.0.0.1:9876, or
            an open ``rocketmq_py.aio.Client`` to share.
        **options: the fields of ClientConfig, unless a client is shared.

    Raises:
        ConfigurationError: an option is unknown or not valid.
    """

    def __init__(self, client: Client | str | None = None, **options: Unpack[ClientOptions]) -> None:
        shared, parent = self._shared_client(client)
        target = admin.Admin(shared, **options)
        super().__init__(target, parent)
        self._set_operations(target)
