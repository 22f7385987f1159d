"""What requests can be given to without waiting: a connection, or the dial that makes one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial

import trio

from rocketmq_py.errors import Delivery, RequestTimeoutError, RocketMQError
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.typed_sends import SendAnswer
from rocketmq_py.remoting.deadlines import Deadlines
from rocketmq_py.remoting.pending_requests import Answer, CallbackRequest, PendingRequest
from rocketmq_py.remoting.rpc_hooks import RpcContext, RpcHooks


class Channel(ABC):
    """Takes requests for one address, in order, and keeps those that wait for an answer.

    Args:
        address: whom it leads to.
        deadlines: watches the time-outs; its ``run`` must be under way.
        hooks: what is called around requests.

    Attributes:
        received_at: when it last received anything, on trio's clock: one look for all answers of a chunk.
    """

    def __init__(self, address: str, deadlines: Deadlines, hooks: RpcHooks) -> None:
        self.address = address
        self.deadlines = deadlines
        self.hooks = hooks
        self.received_at: float = 0.0

    async def request(
        self, code: int, fields: Mapping[str, str], body: bytes = b"", *, timeout: float
    ) -> Command:
        """Send a request and wait for its answer, whatever its code is.

        Args:
            code: a RequestCode.
            fields: the header's fields as they go on the wire.
            body: the body.
            timeout: seconds, including the time that the buffer may be full.

        Raises:
            RequestTimeoutError: no answer in time.
            ConnectionLostError: the connection broke while waiting, or was closed already.
                Both say in ``delivery`` whether the request had been written.
            ConnectError: a dial failed.

        When cancelled, nothing stays behind: the answer is dropped when it comes.
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
        """Send a request and wait for its answer until ``deadline`` (trio's time). Hooks are not called.

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
        """Send a request without waiting; ``on_answer`` gets the answer or the error, once.

        The caller sees to the bound: ``has_space``, or ``wait_for_space()`` before. ``on_answer`` runs in
        another task and must neither block nor raise. Hooks are not called: where there are any,
        :meth:`submit_with_hooks` is the one to use.

        Args:
            code: a RequestCode.
            fields: the header's fields as they go on the wire.
            body: the body.
            deadline: trio's time at which the request counts as timed out.
            timeout: the seconds that a time-out's error speaks of.
            on_answer: what gets the answer.

        Raises:
            ConnectionLostError: the connection is closed.
            ConnectError, ClosedError: the peer goes away, and no other connection to it can be had.
            InvalidMessageError: a text of the header cannot be written as UTF-8. A dial says so in
                ``on_answer``.
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
        """As :meth:`submit`, waiting for the hooks before it; those after it run before ``on_answer``."""
        context = RpcContext(address=self.address, code=code, fields=dict(fields), body=body)
        await self.hooks.before(context)
        after = partial(self.hooks.after_soon, context, on_answer)
        try:
            self.submit(code, context.fields, body, deadline=deadline, timeout=timeout, on_answer=after)
        except RocketMQError as error:
            await self.hooks.after(context, error=error)
            raise

    @property
    @abstractmethod
    def has_space(self) -> bool:
        """Whether it takes another request without growing past its bound."""

    @abstractmethod
    async def wait_for_space(self) -> None:
        """Wait until there is space. Does not yield to others when there already is.

        Raises ConnectionLostError when the connection is or gets closed.
        """

    @abstractmethod
    def carry(self, pending: PendingRequest) -> None:
        """Send what was given to another channel before, or is new, until its ``deadline``.

        Raises as :meth:`submit`.
        """

    @abstractmethod
    def oneway_nowait(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> None:
        """Send a request that has no answer. Hooks are not called. Raises as :meth:`submit`."""

    @abstractmethod
    def has_written(self, pending: PendingRequest) -> bool:
        """Whether any byte of what it carries can have left this process."""

    @abstractmethod
    def forget(self, pending: PendingRequest) -> None:
        """Stop waiting for the answer of ``pending``, and do not send it if it has not been written yet."""

    @abstractmethod
    def time_out(self, pending: PendingRequest) -> None:
        """Answer ``pending`` with RequestTimeoutError."""
