"""Faults of requests and networks, which tests inject."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from types import TracebackType
from typing import Self, TypeAlias, TypedDict

import attrs
import msgspec
import trio

from rocketmq_py.broker.dispatch import RequestHandler, topic_of
from rocketmq_py.protocol.command import ONEWAY_FLAG, Command
from rocketmq_py.remoting import Connection

CLIENTS = "clients"
"""The name of all clients in a partition."""


class Fault:
    """A fault that is active until :meth:`end` is called, or its ``with`` block is left.

    Attributes:
        count: the number of requests affected so far. Faults of networks do not count.
    """

    def __init__(self, on_end: Callable[[Fault], None]) -> None:
        self.count = 0
        self._on_end = on_end

    def end(self) -> None:
        """End the fault. Bytes that it delays or holds up arrive now, unless another fault affects them."""
        self._on_end(self)

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
class FaultTarget:
    """The servers and clients that a fault affects.

    Attributes:
        servers: names of brokers and addresses of name servers; None for all.
        client: a client's id or its address ``host:port``; None for all.
    """

    servers: frozenset[str] | None = None
    client: str | None = None

    def includes(self, server_names: Collection[str], peer_names: Collection[str]) -> bool:
        """Return whether the target includes a connection, given all names of its server and its client."""
        return (self.servers is None or not self.servers.isdisjoint(server_names)) and (
            self.client is None or self.client in peer_names
        )


class RequestSelection(TypedDict, total=False):
    """The requests that a fault affects; by default all.

    Attributes:
        times: the number of requests; None for all until the fault ends.
        topic: requests with this topic in their header only.
        client: requests of this client only.
        server: requests to this broker or name server only.
    """

    times: int | None
    topic: str | None
    client: str | None
    server: str | None


FaultAction: TypeAlias = Callable[[Connection, Command, RequestHandler], None]
"""Handles an affected request. The last argument is the handler that it replaces."""


class RequestFault(Fault):
    """A fault of requests.

    Args:
        target: the affected servers and clients.
        codes: the affected request codes; None for all.
        topic: the affected topic; None for all.
        times: the number of affected requests; None for no limit.
        action: handles the affected requests.
        on_end: removes the fault.
    """

    def __init__(
        self,
        target: FaultTarget,
        codes: frozenset[int] | None,
        topic: str | None,
        times: int | None,
        action: FaultAction,
        on_end: Callable[[Fault], None],
    ) -> None:
        super().__init__(on_end)
        self.action = action
        self._target = target
        self._codes = codes
        self._topic = topic
        self._times = times

    def affects(self, server_names: Collection[str], peer_names: Collection[str], request: Command) -> bool:
        """Return whether the fault affects a request, and count it if so."""
        if (
            self._times == self.count
            or (self._codes is not None and request.code not in self._codes)
            or (self._topic is not None and topic_of(request.code, request.fields) != self._topic)
            or not self._target.includes(server_names, peer_names)
        ):
            return False
        self.count += 1
        return True


def refuse(code: int, remark: str) -> FaultAction:
    """Return an action that answers with an error."""
    return lambda connection, request, _: connection.respond(request, code, remark=remark)


def lose_answer(connection: Connection, request: Command, handler: RequestHandler) -> None:
    """Handle the request, but do not answer it."""
    handler(connection, msgspec.structs.replace(request, flag=request.flag | ONEWAY_FLAG))


def lose_request(connection: Connection, request: Command, handler: RequestHandler) -> None:
    """Neither handle nor answer the request."""


def delay(seconds: float, nursery: trio.Nursery) -> FaultAction:
    """Return an action that handles requests later, unless their connection has been closed by then."""

    async def handle_later(connection: Connection, request: Command, handler: RequestHandler) -> None:
        await trio.sleep(seconds)
        if not connection.is_closed:  # otherwise the broker would keep the client as a member forever
            handler(connection, request)

    return lambda connection, request, handler: nursery.start_soon(handle_later, connection, request, handler)


class NetworkFault(Fault):
    """A fault of the network between servers and clients.

    Args:
        target: the affected servers and clients.
        on_end: removes the fault.
        latency: seconds by which each piece is delayed.
        bytes_per_second: the throughput.
        max_size: maximum bytes of a piece; None for no limit.
    """

    def __init__(
        self,
        target: FaultTarget,
        on_end: Callable[[Fault], None],
        *,
        latency: float = 0.0,
        bytes_per_second: float = math.inf,
        max_size: int | None = None,
    ) -> None:
        super().__init__(on_end)
        self.latency = latency
        self.bytes_per_second = bytes_per_second
        self.max_size = max_size
        self._target = target

    def affects(self, server_names: Collection[str], peer_names: Collection[str]) -> bool:
        """Return whether the fault affects a connection."""
        return self._target.includes(server_names, peer_names)


class Partition(NetworkFault):
    """A network partition: no bytes get from one party to the other."""

    def __init__(self, one: str, other: str, on_end: Callable[[Fault], None]) -> None:
        super().__init__(FaultTarget(), on_end, latency=math.inf)
        self._parties = (one, other)

    def affects(self, server_names: Collection[str], peer_names: Collection[str]) -> bool:
        """Return whether the connection is between the two parties."""
        one, other = self._parties
        return (one in server_names and other in peer_names) or (other in server_names and one in peer_names)


class ActiveFaults:
    """The active faults of a cluster."""

    def __init__(self) -> None:
        self._request_faults: dict[Fault, RequestFault] = {}
        self._network_faults: dict[Fault, NetworkFault] = {}
        self._network_changed = trio.Event()

    def add(self, fault: RequestFault | NetworkFault) -> None:
        """Activate a fault."""
        if isinstance(fault, RequestFault):
            self._request_faults[fault] = fault
        else:
            self._network_faults[fault] = fault
            self._wake_network()

    def remove(self, fault: Fault) -> None:
        """Deactivate a fault."""
        self._request_faults.pop(fault, None)
        if self._network_faults.pop(fault, None) is not None:
            self._wake_network()

    def clear(self) -> None:
        """Deactivate all faults."""
        self._request_faults.clear()
        self._network_faults.clear()
        self._wake_network()

    def handle(
        self,
        server_names: Collection[str],
        peer_names: Collection[str],
        connection: Connection,
        request: Command,
        handler: RequestHandler,
    ) -> None:
        """Handle a request: with the first fault that affects it, or with ``handler``."""
        for fault in self._request_faults.values():
            if fault.affects(server_names, peer_names, request):
                fault.action(connection, request, handler)
                return
        handler(connection, request)

    def network_faults(
        self, server_names: Collection[str], peer_names: Collection[str]
    ) -> list[NetworkFault]:
        """Return the network faults that affect a connection."""
        return [fault for fault in self._network_faults.values() if fault.affects(server_names, peer_names)]

    def are_partitioned(self, server_names: Collection[str], other_names: Collection[str]) -> bool:
        """Return whether no bytes get from one server to another."""
        return any(fault.latency == math.inf for fault in self.network_faults(server_names, other_names))

    async def delay_bytes(
        self, server_names: Collection[str], peer_names: Collection[str], size: int
    ) -> None:
        """Wait until ``size`` bytes arrive. Faults that begin or end meanwhile change the arrival time."""
        began = trio.current_time()
        while self._network_faults:
            faults = self.network_faults(server_names, peer_names)
            arrival = began + sum([fault.latency + size / fault.bytes_per_second for fault in faults])
            if trio.current_time() >= arrival:
                return
            with trio.move_on_at(arrival):
                await self._network_changed.wait()

    def _wake_network(self) -> None:
        self._network_changed.set()
        self._network_changed = trio.Event()
