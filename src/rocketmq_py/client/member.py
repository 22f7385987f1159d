"""A producer or consumer: a member of a client of its own, or of one that it shares."""

from __future__ import annotations

import random
from typing import Any

from rocketmq_py.arguments import check_instance, optional
from rocketmq_py.client.client import Client
from rocketmq_py.client.lifespan import Lifespan
from rocketmq_py.errors import ClosedError, ConfigurationError


class Member(Lifespan):
    """Has a Client: given an open one it shares that, else it opens and closes its own.

    Args:
        client: an open Client, or name servers as ``host:port;host:port``, or a URL that says
            where they are; None reads NAMESRV_ADDR, else 127.0.0.1:9876.
        rng: the source of randomness of a client of its own.
        options: fields of ClientConfig, for a client of its own only.
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
                    f"{names}: set this on the client that is shared, not on its members"
                )
            self.client: Client = client
            self._owns_client = False
        else:
            self.client = Client(client, rng=rng, **options)
            self._owns_client = True

    async def _open(self) -> None:
        if self._owns_client:
            await self.client.start(self.nursery)
        elif not self.client.is_open:
            raise ClosedError("the client that this is opened from is not open")

    async def _close(self) -> None:
        if self._owns_client:
            await self.client.aclose()
