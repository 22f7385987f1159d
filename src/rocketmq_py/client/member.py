"""The base class of producers, consumers and other users of a client."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from rocketmq_py.arguments import check_instance, optional
from rocketmq_py.client.client import Client
from rocketmq_py.client.lifespan import Lifespan
from rocketmq_py.errors import ClosedError, ConfigurationError

member_callbacks: Final[list[Callable[[Member], None]]] = []
"""Called with each new producer and consumer. Instrumentations add themselves."""


class Member(Lifespan):
    """Uses a Client: shares one that is open, or opens and closes its own.

    Args:
        client: an open Client to share, or name servers as ``host:port;host:port``, or a URL that returns
            their addresses. None reads NAMESRV_ADDR, else 127.0.0.1:9876.
        rng: the source of randomness of its own client.
        options: the fields of ClientConfig of its own client.

    Raises:
        ConfigurationError: an option is invalid, or there are options and ``client`` is shared.
    """

    def __init__(
        self, client: str | Client | None, rng: random.Random | None, options: dict[str, Any]
    ) -> None:
        super().__init__()
        optional(check_instance, rng, "rng", kind=random.Random)
        if isinstance(client, Client):
            if options:
                names = ", ".join(options)
                raise ConfigurationError(
                    f"{names} cannot be set here, because the client is shared; set it on the Client"
                )
            self.client: Client = client
            self._owns_client = False
        else:
            self.client = Client(client, rng=rng, **options)
            self._owns_client = True

    def _announce(self) -> None:
        """Call the ``member_callbacks``, at the end of the construction of a producer or a consumer."""
        for callback in tuple(member_callbacks):
            callback(self)

    async def _open(self) -> None:
        if self._owns_client:
            await self.client.start(self.nursery)
        elif not self.client.is_open:
            raise ClosedError(f"the Client that this {type(self).__name__} shares is not open; open it first")

    async def _close(self) -> None:
        if self._owns_client:
            await self.client.aclose()
