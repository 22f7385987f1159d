"""Admin for threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from rocketmq_py import admin
from rocketmq_py.blocking.generated_methods import AdminMethods
from rocketmq_py.blocking.hosted import Hosted
from rocketmq_py.client.settings import ClientOptions, ClientSettings
from rocketmq_py.client.shown_settings import takes_settings

if TYPE_CHECKING:
    from rocketmq_py.blocking.client import Client


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
