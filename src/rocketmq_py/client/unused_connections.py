"""Closes connections that are not used any more: to brokers that were replaced, and idle ones."""

from __future__ import annotations

from typing import Final
from weakref import WeakKeyDictionary

import attrs
import trio

from rocketmq_py.client.broker_calls import BrokerCalls
from rocketmq_py.client.routes import Routes
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.remoting import Connection, ConnectionPool

logger: Final = LibraryLogger("rocketmq_py.client")

MAX_IDLE_SECONDS = 120.0
"""Seconds without traffic after which a connection is closed. Java: ``clientChannelMaxIdleTimeSeconds``."""
CHECK_INTERVAL = 10.0
"""Seconds between two checks."""


@attrs.frozen
class _Traffic:
    """The last traffic that was seen on a connection, and when."""

    received_at: float
    written: int
    seen_at: float


class UnusedConnections:
    """Closes the connections of a client that nothing uses any more.

    A connection to a broker's former address is closed at the next check, because brokers in containers get a
    new address with each start. Others are closed after MAX_IDLE_SECONDS without traffic. Heartbeats are
    traffic. A connection with unanswered requests stays open. The next request to a closed one dials again.
    Java: ``MQClientInstance.cleanOfflineBroker``, ``IdleStateHandler``.

    Args:
        connections: the connections of the client.
        routes: know the former addresses.
        brokers: know the addresses of VIP channels.
    """

    def __init__(self, connections: ConnectionPool, routes: Routes, brokers: BrokerCalls) -> None:
        self._connections = connections
        self._routes = routes
        self._brokers = brokers
        self._traffic: WeakKeyDictionary[Connection, _Traffic] = WeakKeyDictionary()

    async def run(self) -> None:
        """Check every CHECK_INTERVAL seconds, until cancelled."""
        while True:
            await trio.sleep(CHECK_INTERVAL)
            self._close_replaced()
            self._close_idle()

    def _close_replaced(self) -> None:
        for address in list(self._routes.replaced_addresses):
            known = {address, self._brokers.request_address(address)}
            found = [one for one in map(self._connections.get_nowait, known) if one is not None]
            if not found:
                self._routes.replaced_addresses.discard(address)
            for connection in found:
                # The next check looks again: a heartbeat may have just been going to dial this address.
                if not _has_work(connection):
                    logger.info("closing connection to a former address of a broker: %s", connection.address)
                    self._connections.close(connection.address, "no route has this broker any more")

    def _close_idle(self) -> None:
        now = trio.current_time()
        for connection in self._connections.open_connections():
            last = self._traffic.get(connection)
            received_at, written = connection.received_at, connection.writer.buffer_number
            if last is None or (last.received_at, last.written) != (received_at, written):
                self._traffic[connection] = _Traffic(received_at, written, now)
            elif now - last.seen_at >= MAX_IDLE_SECONDS and not _has_work(connection):
                logger.debug("closing idle connection: address=%s", connection.address)
                self._connections.close(connection.address, f"no traffic for {MAX_IDLE_SECONDS:g} s")


def _has_work(connection: Connection) -> bool:
    return bool(connection.pending) or not connection.writer.is_flushed
