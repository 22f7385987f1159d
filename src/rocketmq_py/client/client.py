"""The client that producers and consumers share, and the base class of all that use one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Unpack

from rocketmq_py.client.core import ClientCore
from rocketmq_py.client.health import ClientHealth
from rocketmq_py.client.lifespan import Lifespan
from rocketmq_py.client.settings import ClientOptions, ClientSettings
from rocketmq_py.errors import ClosedError, ConfigurationError
from rocketmq_py.remoting import RpcHook

member_callbacks: Final[list[Callable[[Member], None]]] = []
"""Called with each new producer and consumer. Instrumentations add themselves."""


class Member(Lifespan):
    """Uses a client: shares one that is open, or opens and closes its own.

    Args:
        client: an open Client to share, or name servers as ``host:port;host:port``, or a URL that returns
            their addresses. None reads NAMESRV_ADDR, else 127.0.0.1:9876.
        options: the settings of its own client.

    Raises:
        ConfigurationError: an option is invalid, or there are options and ``client`` is shared.
    """

    def __init__(self, client: str | Client | None, options: dict[str, Any]) -> None:
        super().__init__()
        if isinstance(client, Client):
            if options:
                names = ", ".join(options)
                raise ConfigurationError(
                    f"{names} cannot be set here, because the client is shared; set it on the Client"
                )
            self._client: ClientCore = client._client
            self._owns_client = False
        else:
            self._client = ClientCore(client, **options)
            self._owns_client = True

    def _announce(self) -> None:
        """Call the ``member_callbacks``, at the end of the construction of a producer or a consumer."""
        for callback in tuple(member_callbacks):
            callback(self)

    async def _open(self) -> None:
        if self._owns_client:
            await self._client.start(self._nursery)
        elif not self._client.is_open:
            raise ClosedError(f"the Client that this {self._name} shares is not open; open it first")

    async def _close(self) -> None:
        if self._owns_client:
            await self._client.aclose()


def core_of(member: Member) -> ClientCore:
    """Return the core of the client that a producer, a consumer or another object uses."""
    return member._client


class Client(Member):
    """The public members of a client, without the methods that return producers and consumers.

    Args:
        address: as ``client`` of a Member.
        **options: the settings of a Client.

    Raises:
        ConfigurationError: an address or a setting is invalid.
    """

    def __init__(self, address: str | None = None, **options: Unpack[ClientOptions]) -> None:
        super().__init__(address, dict(options))

    @property
    def settings(self) -> ClientSettings:
        """The settings."""
        return self._client.settings

    def add_rpc_hook(self, hook: RpcHook) -> Callable[[], None]:
        """Add a hook that runs around every request. Returns a function that removes it."""
        return self._client.add_rpc_hook(hook)

    def health(self) -> ClientHealth:
        """Return whether the name servers and brokers can be reached. For readiness probes.

        This does not wait. In the background, it asks a name server unless one is connected and has answered,
        and opens missing connections to brokers, so that the next call knows more. A client that is not open
        is unhealthy.
        """
        return self._client.health()


class BorrowedClient(Client):
    """A Client with the core of another object, which opens and closes it.

    Args:
        core: the core.
    """

    def __init__(self, core: ClientCore) -> None:
        Lifespan.__init__(self)
        self._client = core
        self._owns_client = False
