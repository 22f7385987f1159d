"""The common interface of a connection and of one that is being opened."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

import trio

from rocketmq_py.errors import Delivery, RequestTimeoutError, RocketMQError
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.sends import SendAnswer
from rocketmq_py.remoting.deadlines import Deadlines
from rocketmq_py.remoting.pending_requests import Answer, CallbackRequest, PendingRequest
from rocketmq_py.remoting.rpc_hooks import RpcContext, RpcHooks


class ChannelPool(Protocol):
    """The pool of a channel. It has another channel for requests that this one can no longer send."""

    def channel_nowait(self, address: str) -> Channel:
        """Return the current channel to an address. Raises ClosedError if the client is closed."""

    def refused_by_peer(self, address: str) -> None:
        """Record that a peer goes away as soon as it is connected, so that the next dial waits."""


class Channel(ABC):
    """Sends requests to one address in order, and holds them until they are answered.

    Args:
        address: the peer's address.
        deadlines: watches the timeouts. Its ``run`` must be running.
        hooks: called around requests.

    Attributes:
        received_at: trio's time of the last read. All answers of one read share it.
    """

    def __init__(self, address: str, deadlines: Deadlines, hooks: RpcHooks) -> None:
        self.address = address
        self.deadlines = deadlines
        self.hooks = hooks
        self.received_at: float = 0.0

    async def request(
        self, code: int, fields: Mapping[str, str], body: bytes = b"", *, timeout: float
    ) -> Command:
        """Send a request and return its answer, whatever its code is.

        Args:
            code: a RequestCode.
            fields: the header's fields as on the wire.
            body: the body.
            timeout: seconds, including the wait for space in the buffer.

        Raises:
            RequestTimeoutError: no answer arrived in time.
            ConnectionLostError: the connection broke during the wait, or was closed before. The
                ``delivery`` of both says whether the request had been written.
            ConnectError: the connection could not be opened.

        When cancelled, an answer that arrives later is dropped.
        """
        if not self.hooks.all:
            return await self._exchange(code, fields, body, timeout)
        context = RpcContext(address=self.address, code=code, fields=dict(fields), body=body)
        await self.hooks.before(context)
        try:
            answer = await self._exchange(code, context.fields, body, timeout)
        except BaseException as error:
            await self.hooks.after(context, error=error)
            raise
        await self.hooks.after(context, answer)
        return answer

    async def _exchange(self, code: int, fields: Mapping[str, str], body: bytes, timeout: float) -> Command:
        pending = PendingRequest(code, fields, body, timeout)
        answer = await self.exchange(pending, trio.current_time() + timeout)
        assert isinstance(answer, Command)
        return answer

    async def exchange(self, pending: PendingRequest, deadline: float) -> Command | SendAnswer:
        """Send a request and return its answer, with a deadline in trio's time. Hooks are not called.

        Raises, and is cancelled, as :meth:`request`.
        """
        if not self.has_space:
            with trio.move_on_at(deadline) as waiting:
                await self.wait_for_space()
            if waiting.cancelled_caught:
                raise RequestTimeoutError(self.address, pending.timeout, Delivery.NOT_SENT)
        pending.deadline = deadline
        self.carry(pending)
        return await pending.wait()

    def submit(
        self,
        code: int,
        fields: Mapping[str, str],
        body: bytes = b"",
        *,
        deadline: float,
        timeout: float,
        on_answer: Callable[[Answer], None],
    ) -> PendingRequest:
        """Send a request without waiting. ``on_answer`` is called once with the answer or the error.

        The caller must check ``has_space`` or await ``wait_for_space()`` first. ``on_answer`` runs in another
        task and must neither block nor raise. Hooks are not called: see :meth:`submit_with_hooks`.

        Args:
            code: a RequestCode.
            fields: the header's fields as on the wire.
            body: the body.
            deadline: trio's time at which the request times out.
            timeout: the seconds that the error of a timeout reports.
            on_answer: called with the answer.

        Raises:
            ConnectionLostError: the connection is closed.
            ConnectError, ClosedError: the peer is going away, and no other connection can be opened.
            InvalidMessageError: a text of the header cannot be encoded as UTF-8. While the connection is
                being opened, ``on_answer`` gets this error instead.
        """
        pending = CallbackRequest(code, fields, body, timeout, on_answer)
        pending.deadline = deadline
        self.carry(pending)
        return pending

    async def submit_with_hooks(
        self,
        code: int,
        fields: Mapping[str, str],
        body: bytes = b"",
        *,
        deadline: float,
        timeout: float,
        on_answer: Callable[[Answer], None],
    ) -> None:
        """Await the hooks, then :meth:`submit`. After the answer, the hooks run before ``on_answer``."""
        context = RpcContext(address=self.address, code=code, fields=dict(fields), body=body)
        await self.hooks.before(context)
        after = partial(self.hooks.after_soon, context, on_answer)
        try:
            self.submit(code, context.fields, body, deadline=deadline, timeout=timeout, on_answer=after)
        except RocketMQError as error:
            await self.hooks.after(context, error=error)
            raise

    async def oneway(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> None:
        """Send a oneway request. It waits only while the buffer is full.

        Raises as :meth:`submit`. When cancelled, it is not sent.
        """
        await self.wait_for_space()
        if not self.hooks.all:
            self.oneway_nowait(code, fields, body)
            return
        context = RpcContext(address=self.address, code=code, fields=dict(fields), body=body, oneway=True)
        await self.hooks.before(context)
        try:
            self.oneway_nowait(code, context.fields, body)
        except RocketMQError as error:
            await self.hooks.after(context, error=error)
            raise
        await self.hooks.after(context)

    @property
    @abstractmethod
    def has_space(self) -> bool:
        """Whether another request fits into the buffer."""

    @abstractmethod
    async def wait_for_space(self) -> None:
        """Wait for space in the buffer. It is no checkpoint if there is some.

        Raises ConnectionLostError if the connection is closed.
        """

    @abstractmethod
    def carry(self, pending: PendingRequest) -> None:
        """Send a request, which may have been on another channel before. Raises as :meth:`submit`."""

    @abstractmethod
    def oneway_nowait(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> None:
        """Send a oneway request. Hooks are not called. Raises as :meth:`submit`."""

    @abstractmethod
    def has_written(self, pending: PendingRequest) -> bool:
        """Whether any byte of the request may have left this process."""

    @abstractmethod
    def forget(self, pending: PendingRequest) -> None:
        """Drop a request: its answer is ignored, and it is not written if it still waits in the buffer."""

    @abstractmethod
    def time_out(self, pending: PendingRequest) -> None:
        """Answer ``pending`` with RequestTimeoutError."""
