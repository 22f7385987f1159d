"""A connection that is being opened, and the requests that wait for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import trio

from rocketmq_py.errors import ConnectError, Delivery, RequestTimeoutError, RocketMQError
from rocketmq_py.remoting.base_channel import Channel
from rocketmq_py.remoting.connection import Connection
from rocketmq_py.remoting.deadlines import Deadlines
from rocketmq_py.remoting.pending_requests import PendingRequest
from rocketmq_py.remoting.rpc_hooks import RpcHooks


class PendingConnection(Channel):
    """Collects requests while a connection is being opened, and sends them in order when it is open.

    If it cannot be opened, the requests fail with ConnectError and oneway requests are dropped.

    Attributes:
        done: set when the attempt has succeeded or failed.
        connection: the connection, after success.
    """

    def __init__(self, address: str, deadlines: Deadlines, hooks: RpcHooks) -> None:
        super().__init__(address, deadlines, hooks)
        self.done: Final = trio.Event()
        self.connection: Connection | None = None
        self._kind: type[ConnectError] = ConnectError
        self._reason = "the client is closed"
        self._waiting: dict[object, Callable[[Connection], None]] = {}

    @property
    def has_space(self) -> bool:
        """Always true: senders bound their requests through ``max_in_flight``."""
        return True

    async def wait_for_space(self) -> None:
        """Return at once."""

    @property
    def error(self) -> ConnectError:
        """A new error with the reason of the failure."""
        return self._kind(self.address, self._reason)

    def carry(self, pending: PendingRequest) -> None:
        """Queue a request for the connection. Raises ConnectError if the attempt has failed."""
        if self.done.is_set():  # while the hooks ran before this request
            self._opened().carry(pending)
            return
        pending.channel = self
        self.deadlines.add(pending, pending.deadline)
        self._waiting[pending] = lambda connection: connection.carry(pending)

    def oneway_nowait(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> None:
        """Queue a oneway request for the connection. Raises as :meth:`carry`."""
        if self.done.is_set():
            self._opened().oneway_nowait(code, fields, body)
            return
        self._waiting[object()] = lambda connection: connection.oneway_nowait(code, fields, body)

    def has_written(self, pending: PendingRequest) -> bool:
        """Always false."""
        return False

    def forget(self, pending: PendingRequest) -> None:
        """Drop a request."""
        if self._waiting.pop(pending, None) is not None:
            self.deadlines.remove(pending)

    def time_out(self, pending: PendingRequest) -> None:
        """Drop a request and answer it with RequestTimeoutError."""
        if self._waiting.pop(pending, None) is not None:
            pending.answered(RequestTimeoutError(self.address, pending.timeout, Delivery.NOT_SENT))

    def fail(self, reason: str, kind: type[ConnectError]) -> None:
        """Set the reason of the failure. Call :meth:`finish` next."""
        self._reason, self._kind = reason, kind

    def finish(self) -> None:
        """Send the queued requests over the connection, or answer them with the error."""
        waiting, self._waiting = self._waiting, {}
        for item, send in waiting.items():
            if isinstance(item, PendingRequest):
                self.deadlines.remove(item)
            try:
                send(self._opened())
            except RocketMQError as error:
                if isinstance(item, PendingRequest):
                    item.answered(error)
        self.done.set()

    def _opened(self) -> Connection:
        """Return the connection. Raises the error if it could not be opened."""
        if self.connection is None:
            raise self.error
        return self.connection
