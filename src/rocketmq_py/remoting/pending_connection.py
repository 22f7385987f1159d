"""A connection in the making, and the requests that wait for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import trio

from rocketmq_py.errors import ConnectError, Delivery, RequestTimeoutError, RocketMQError
from rocketmq_py.remoting.channel import Channel
from rocketmq_py.remoting.connection import Connection
from rocketmq_py.remoting.deadlines import Deadlines
from rocketmq_py.remoting.pending_requests import PendingRequest
from rocketmq_py.remoting.rpc_hooks import RpcHooks


class PendingConnection(Channel):
    """Takes requests while their connection is being dialled, and gives them to it in the same order.

    When the dialling fails, each is answered with ConnectError; oneway requests are dropped.

    Attributes:
        done: set when it has succeeded or failed.
        connection: what came of it, if it succeeded.
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
        """Always: how much may wait is the affair of those who send, as it is in flight for each of them."""
        return True

    async def wait_for_space(self) -> None:
        """Return at once."""

    @property
    def error(self) -> ConnectError:
        """Why it failed: a new one for each who asks."""
        return self._kind(self.address, self._reason)

    def carry(self, pending: PendingRequest) -> None:
        """Keep a request for the connection. Raises ConnectError if the dialling has failed meanwhile."""
        if self.done.is_set():  # hooks before the request took longer than the dialling
            self._outcome().carry(pending)
            return
        pending.channel = self
        self.deadlines.add(pending, pending.deadline)
        self._waiting[pending] = lambda connection: connection.carry(pending)

    def oneway_nowait(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> None:
        """Keep a request that has no answer for the connection. Raises as :meth:`carry`."""
        if self.done.is_set():
            self._outcome().oneway_nowait(code, fields, body)
            return
        self._waiting[object()] = lambda connection: connection.oneway_nowait(code, fields, body)

    def has_written(self, pending: PendingRequest) -> bool:
        """Nothing has left this process."""
        return False

    def forget(self, pending: PendingRequest) -> None:
        """Do not send it."""
        if self._waiting.pop(pending, None) is not None:
            self.deadlines.remove(pending)

    def time_out(self, pending: PendingRequest) -> None:
        """Answer ``pending`` with RequestTimeoutError, and do not send it."""
        if self._waiting.pop(pending, None) is not None:
            pending.answered(RequestTimeoutError(self.address, pending.timeout, Delivery.NOT_SENT))

    def fail(self, reason: str, kind: type[ConnectError]) -> None:
        """Remember why there is no connection."""
        self._reason, self._kind = reason, kind

    def finish(self) -> None:
        """Give what waits to the connection, or answer it with the error."""
        waiting, self._waiting = self._waiting, {}
        for item, send in waiting.items():
            if isinstance(item, PendingRequest):
                self.deadlines.remove(item)
            try:
                send(self._outcome())
            except RocketMQError as error:
                if isinstance(item, PendingRequest):
                    item.answered(error)
        self.done.set()

    def _outcome(self) -> Connection:
        if self.connection is None:
            raise self.error
        return self.connection
