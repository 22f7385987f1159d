"""An address that is being dialled, and the calls that wait for the connection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs
import trio

from rocketmq_py.errors import ConnectError, Delivery, RequestTimeoutError, RocketMQError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.remoting.base_channel import Channel, ChannelPool
from rocketmq_py.remoting.connection import Connection
from rocketmq_py.remoting.deadlines import Deadlines
from rocketmq_py.remoting.pending_requests import PendingRequest
from rocketmq_py.remoting.reachability import Reachability
from rocketmq_py.remoting.rpc_hooks import RpcHooks

logger: Final = LibraryLogger("rocketmq_py.remoting")

ONEWAY_PATIENCE = 10.0
"""Seconds for which a oneway request waits for a connection. It has no deadline of its own."""


@attrs.define(eq=False)
class _Oneway:
    """A oneway request, and when it was queued."""

    code: int
    fields: Mapping[str, str]
    body: bytes
    queued_at: float


class PendingConnection(Channel):
    """Collects calls while an address is dialled, and sends their requests in order when it is connected.

    The pool dials repeatedly as long as calls wait. A request that is not sent until its deadline fails with
    ConnectError if a dial has failed, otherwise with RequestTimeoutError.

    Args:
        address, deadlines, hooks: see Channel.
        reachability: the failed dials of the address.
        pool: has another channel to the address for requests that come after the dialling ended.

    Attributes:
        connection: the connection, after success.
        is_dialling: whether a dial is under way. False in the pauses between dials.
        reachability: the failed dials of the address.
    """

    def __init__(
        self,
        address: str,
        deadlines: Deadlines,
        hooks: RpcHooks,
        reachability: Reachability,
        pool: ChannelPool,
    ) -> None:
        super().__init__(address, deadlines, hooks)
        self.connection: Connection | None = None
        self.reachability: Final = reachability
        self.is_dialling: bool = trio.current_time() >= reachability.retry_at
        self._pool = pool
        self._attempt_ended = trio.Event()
        self._done = trio.Event()
        self._is_closed = False
        self._callers = 0
        self._waiting: dict[PendingRequest | _Oneway, None] = {}

    @property
    def has_space(self) -> bool:
        """Always true: senders bound their requests through ``max_in_flight``."""
        return True

    async def wait_for_space(self) -> None:
        """Return at once."""

    @property
    def is_awaited(self) -> bool:
        """Whether any call waits for the connection."""
        return bool(self._callers or self._waiting)

    @property
    def error(self) -> RocketMQError:
        """A new error with the reason why there is no connection."""
        if self._is_closed or not self.reachability.failures:
            return ConnectError(self.address, "the client is closed")
        return self.reachability.error()

    # For the pool, which dials

    def begin_attempt(self) -> None:
        """Record the start of a dial."""
        self.is_dialling = True

    def end_attempt(self) -> None:
        """Record the end of a dial. Callers of :meth:`wait_for_attempt` continue."""
        self.is_dialling = False
        self._attempt_ended.set()
        self._attempt_ended = trio.Event()
        if self.connection is None:
            self._drop_old_oneways()

    def finish(self, *, is_closed: bool) -> None:
        """Send the queued requests over the connection, or answer them with the error."""
        self._is_closed = is_closed
        waiting, self._waiting = self._waiting, {}
        for one in waiting:
            if isinstance(one, _Oneway):
                self._send_oneway(one)
                continue
            self.deadlines.remove(one)
            try:
                self._opened().carry(one)
            except RocketMQError as error:
                one.answered(error)
        self._attempt_ended.set()
        self._done.set()

    def _drop_old_oneways(self) -> None:
        too_old = trio.current_time() - ONEWAY_PATIENCE
        for one in [one for one in self._waiting if isinstance(one, _Oneway) and one.queued_at < too_old]:
            del self._waiting[one]
            self._log_lost(one, self.error)

    def _send_oneway(self, one: _Oneway) -> None:
        try:
            self._opened().oneway_nowait(one.code, one.fields, one.body)
        except RocketMQError as error:
            self._log_lost(one, error)

    def _log_lost(self, one: _Oneway, error: RocketMQError) -> None:
        logger.info("oneway request lost: peer=%s code=%d: %s", self.address, one.code, error)

    # For callers

    async def wait_for_attempt(self) -> None:
        """Wait until the current dial has ended. ``connection`` is set if it has succeeded."""
        await self._attempt_ended.wait()

    async def wait_until_open(self) -> Connection:
        """Wait for the connection, through any number of dials. Raises the error if there will be none."""
        self._callers += 1
        try:
            await self._done.wait()
        finally:
            self._callers -= 1
        return self._opened()

    def carry(self, pending: PendingRequest) -> None:
        """Queue a request for the connection. Raises ClosedError if the client is closed."""
        if self._done.is_set():  # while the hooks ran before this request
            self._pool.channel_nowait(self.address).carry(pending)
            return
        pending.channel = self
        self.deadlines.add(pending, pending.deadline)
        self._waiting[pending] = None

    def oneway_nowait(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> None:
        """Queue a oneway request for the connection. Raises as :meth:`carry`."""
        if self._done.is_set():
            self._pool.channel_nowait(self.address).oneway_nowait(code, fields, body)
            return
        self._waiting[_Oneway(code, fields, body, trio.current_time())] = None

    def has_written(self, pending: PendingRequest) -> bool:
        """Always false."""
        return False

    def forget(self, pending: PendingRequest) -> None:
        """Drop a request."""
        if pending in self._waiting:
            del self._waiting[pending]
            self.deadlines.remove(pending)

    def time_out(self, pending: PendingRequest) -> None:
        """Drop a request and answer it with ConnectError or RequestTimeoutError."""
        if pending in self._waiting:
            del self._waiting[pending]
            pending.answered(self._overdue(pending.timeout))

    def _overdue(self, timeout: float) -> RocketMQError:
        if self.reachability.failures:
            return self.reachability.error()
        return RequestTimeoutError(self.address, timeout, Delivery.NOT_SENT)

    def _opened(self) -> Connection:
        """Return the connection. Raises the error if it could not be opened."""
        if self.connection is None:
            raise self.error
        return self.connection
