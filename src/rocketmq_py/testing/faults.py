"""What goes wrong with requests and networks when a test says so."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from types import TracebackType
from typing import Self, TypedDict

import attrs
import msgspec
import trio

from rocketmq_py.broker.dispatch import topic_of
from rocketmq_py.protocol.command import ONEWAY_FLAG, Command
from rocketmq_py.remoting import Connection

CLIENTS = "clients"
"""Stands for all clients where a fault is between two parties."""


class Fault:
    """Something that goes wrong until it is ended: by :meth:`end`, or by leaving a ``with`` block.

    Attributes:
        count: how often it has struck. A network's faults do not count.
    """

    def __init__(self, end: Callable[[Fault], None]) -> None:
        self.count = 0
        self._end = end

    def end(self) -> None:
        """Have it strike no more. What it has held up goes on."""
        self._end(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end()


@attrs.frozen
class Aim:
    """Whom a fault strikes.

    Attributes:
        servers: names of brokers, addresses of name servers; None for all.
        client: a client's id or its address ``host:port``; None for all.
    """

    servers: frozenset[str] | None = None
    client: str | None = None

    def hits(self, server: Collection[str], peer: Collection[str]) -> bool:
        """Tell whether it strikes what ``peer`` sends to, or gets from, a server; each has several names."""
        return (self.servers is None or not self.servers.isdisjoint(server)) and (
            self.client is None or self.client in peer
        )


class Which(TypedDict, total=False):
    """Which requests a fault strikes; all, where nothing else is said.

    Attributes:
        times: so many of them; None for all until the fault is ended.
        topic: those about this topic.
        client: those of this client.
        server: those to this broker or name server.
    """

    times: int | None
    topic: str | None
    client: str | None
    server: str | None


class RequestFault(Fault):
    """Goes wrong with requests.

    Args:
        aim: whom it strikes.
        codes: requests with one of these; None for all.
        topic: requests about this one; None for all.
        times: how often it strikes; None for always.
        strike: handles the request in its own way; it is given what would have handled it.
        end: takes it out.
    """

    def __init__(
        self,
        aim: Aim,
        codes: frozenset[int] | None,
        topic: str | None,
        times: int | None,
        strike: Strike,
        end: Callable[[Fault], None],
    ) -> None:
        super().__init__(end)
        self.strike = strike
        self._aim = aim
        self._codes = codes
        self._topic = topic
        self._times = times

    def takes(self, server: Collection[str], peer: Collection[str], request: Command) -> bool:
        """Tell whether it strikes this request, and count it if so."""
        if (
            self._times == self.count
            or (self._codes is not None and request.code not in self._codes)
            or (self._topic is not None and topic_of(request.code, request.fields) != self._topic)
            or not self._aim.hits(server, peer)
        ):
            return False
        self.count += 1
        return True


Handle = Callable[[Connection, Command], None]
Strike = Callable[[Connection, Command, Handle], None]


def refuse(code: int, remark: str) -> Strike:
    """Answer with an error instead."""
    return lambda connection, request, _: connection.respond(request, code, remark=remark)


def lose_answer(connection: Connection, request: Command, handle: Handle) -> None:
    """Do what is asked, and answer nothing."""
    handle(connection, msgspec.structs.replace(request, flag=request.flag | ONEWAY_FLAG))


def lose_request(connection: Connection, request: Command, handle: Handle) -> None:
    """Do nothing."""


def late(seconds: float, nursery: trio.Nursery) -> Strike:
    """Do what is asked later, unless its connection has ended meanwhile."""

    async def wait(connection: Connection, request: Command, handle: Handle) -> None:
        await trio.sleep(seconds)
        if not connection.is_closed:  # else the broker would know a client that is gone, for ever
            handle(connection, request)

    return lambda connection, request, handle: nursery.start_soon(wait, connection, request, handle)


class NetworkFault(Fault):
    """Goes wrong with bytes.

    Args:
        aim: whom it strikes.
        end: takes it out.
        latency: seconds that each piece takes longer.
        bytes_per_second: how much gets through.
        size: bytes of a piece at the most; None for any number.
    """

    def __init__(
        self,
        aim: Aim,
        end: Callable[[Fault], None],
        *,
        latency: float = 0.0,
        bytes_per_second: float = math.inf,
        size: int | None = None,
    ) -> None:
        super().__init__(end)
        self.latency = latency
        self.bytes_per_second = bytes_per_second
        self.size = size
        self._aim = aim

    def hits(self, server: Collection[str], peer: Collection[str]) -> bool:
        """Tell whether it strikes a connection."""
        return self._aim.hits(server, peer)


class Partition(NetworkFault):
    """Nothing gets from one party to the other."""

    def __init__(self, one: str, other: str, end: Callable[[Fault], None]) -> None:
        super().__init__(Aim(), end, latency=math.inf)
        self._parties = (one, other)

    def hits(self, server: Collection[str], peer: Collection[str]) -> bool:
        """Tell whether it is between the two."""
        one, other = self._parties
        return (one in server and other in peer) or (other in server and one in peer)


class Faults:
    """All faults of a cluster."""

    def __init__(self) -> None:
        self._of_requests: dict[Fault, RequestFault] = {}
        self._of_networks: dict[Fault, NetworkFault] = {}
        self._changed = trio.Event()

    def add(self, fault: RequestFault | NetworkFault) -> None:
        """Have a fault strike from now on."""
        if isinstance(fault, RequestFault):
            self._of_requests[fault] = fault
        else:
            self._of_networks[fault] = fault
            self._note_change()

    def remove(self, fault: Fault) -> None:
        """Have a fault strike no more."""
        self._of_requests.pop(fault, None)
        if self._of_networks.pop(fault, None) is not None:
            self._note_change()

    def clear(self) -> None:
        """Have none strike any more."""
        self._of_requests.clear()
        self._of_networks.clear()
        self._note_change()

    def handle(
        self,
        server: Collection[str],
        peer: Collection[str],
        connection: Connection,
        request: Command,
        handle: Handle,
    ) -> None:
        """Have a request handled, by the first fault that strikes it if there is one."""
        for fault in self._of_requests.values():
            if fault.takes(server, peer, request):
                fault.strike(connection, request, handle)
                return
        handle(connection, request)

    def of_network(self, server: Collection[str], peer: Collection[str]) -> list[NetworkFault]:
        """Return what strikes a connection."""
        return [fault for fault in self._of_networks.values() if fault.hits(server, peer)]

    def are_apart(self, server: Collection[str], other: Collection[str]) -> bool:
        """Tell whether nothing gets from a server to another one."""
        return any(fault.latency == math.inf for fault in self.of_network(server, other))

    async def let_through(
        self, server: Iterable[str], peer: Callable[[], Collection[str]], size: int
    ) -> None:
        """Wait for as long as ``size`` bytes take beyond what they take anyhow."""
        if not self._of_networks:
            return
        server = tuple(server)
        while True:
            striking = self.of_network(server, peer())
            seconds = sum([fault.latency + size / fault.bytes_per_second for fault in striking])
            if seconds < math.inf:
                break
            await self._changed.wait()
        if seconds:
            await trio.sleep(seconds)

    def _note_change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
