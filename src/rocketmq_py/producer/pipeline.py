"""Pipelined sends, and requests that wait for their replies: what is under way without being awaited."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import trio

from rocketmq_py.client.lifespan import start_soon
from rocketmq_py.errors import ClosedError, Delivery, RocketMQError
from rocketmq_py.producer.admission import Admission
from rocketmq_py.producer.hooks import Hooks, SendContext
from rocketmq_py.producer.pending import FailureLog
from rocketmq_py.producer.send_request import Outcome, SendRequest, send_result
from rocketmq_py.producer.sender import Sender


class Pipeline:
    """What one producer has under way, bounded.

    Args:
        sender: brings requests to brokers.
        hooks: what is called when a send has its outcome.
        admission: how much may be under way; an attribute, too.

    Attributes:
        failures: is told of those that nobody looks at.
        on_done: :meth:`finish`, one object for all requests.
    """

    def __init__(self, sender: Sender, hooks: Hooks, admission: Admission) -> None:
        self._sender = sender
        self._hooks = hooks
        self._under_way: dict[SendRequest, None] = {}  # in order
        self._flushing = 0
        self._ended = trio.lowlevel.ParkingLot()  # where those wait who flush
        self._nursery: trio.Nursery | None = None
        self._closed = False
        self.admission = admission
        self.failures: FailureLog = FailureLog()
        self.on_done: Callable[[SendRequest, Outcome], None] = self.finish

    def __len__(self) -> int:
        return len(self._under_way)

    def open(self, nursery: trio.Nursery) -> None:
        """Begin: hooks after pipelined sends run in ``nursery``."""
        self._nursery = nursery

    async def close(self) -> None:
        """Take no more, and wait for what is under way. What waits for its place is not sent."""
        self._closed = True
        while self._under_way:
            await self.flush()

    def abandon(self) -> None:
        """End: what is under way fails, and no hook is called any more."""
        self._nursery = None
        for request in list(self._under_way):
            may_have_arrived = request.may_have_arrived
            error: RocketMQError = ClosedError(
                "the producer was closed before the broker answered"
                if may_have_arrived
                else "the producer was closed before the message could be sent"
            )
            error.delivery = Delivery.UNKNOWN if may_have_arrived else Delivery.NOT_SENT
            self.leave(request)
            self._sender.counters.failed += 1
            request.pending.resolve(error, self.failures)
        self.failures.report()

    async def flush(self) -> None:
        """Wait until all that is under way now has its outcome."""
        self._flushing += 1
        try:
            for request in list(self._under_way):
                while request in self._under_way:
                    await self._ended.park()
        finally:
            self._flushing -= 1

    def submit(self, request: SendRequest) -> Coroutine[Any, Any, None] | None:
        """Send a request; its ``pending`` gets the outcome, or what else is set as ``on_done``.

        Await the coroutine that is returned, if any. This and the coroutine raise as :meth:`Sender.submit`.
        When cancelled while it waits, the request is not sent.
        """
        if request.may_be_compressed or self._closed or not self.admission.enter_nowait(len(request.body)):
            return self.submit_in_turn(request)
        self._under_way[request] = None
        try:
            waiting = self._sender.submit(request)
        except BaseException:
            self.leave(request)
            raise
        return waiting if waiting is None else self._submitted(request, waiting)

    async def submit_in_turn(self, request: SendRequest) -> None:
        """As :meth:`submit`, which this does where there is something to wait for; a cancellation point."""
        await self.enter(request)
        try:
            if request.may_be_compressed:
                await self._sender.compress(request)
            waiting = self._sender.submit(request)
        except BaseException:
            self.leave(request)
            raise
        if waiting is not None:
            await self._submitted(request, waiting)

    async def _submitted(self, request: SendRequest, waiting: Awaitable[None]) -> None:
        try:
            await waiting
        except BaseException:
            self.leave(request)
            raise

    async def enter(self, request: SendRequest) -> None:
        """Wait for a place. Raises ClosedError; when cancelled, none is taken."""
        size = len(request.messages[0].body)  # what is sent may be compressed
        await self.admission.enter(size)
        if self._closed:
            raise self._closed_meanwhile(size)
        self._under_way[request] = None

    def _closed_meanwhile(self, size: int) -> ClosedError:
        self.admission.leave(size)
        return ClosedError("the producer was closed while the send waited for a place in flight")

    def leave(self, request: SendRequest) -> None:
        """Release its space. Repeatable."""
        if request in self._under_way:
            del self._under_way[request]
            self.admission.leave(len(request.messages[0].body))
            if self._flushing:
                self._ended.unpark_all()

    def finish(self, request: SendRequest, outcome: Outcome) -> None:
        """Set the outcome of what is under way, count it, and give its place back."""
        if request not in self._under_way:
            return  # abandoned when the producer was closed
        del self._under_way[request]
        # As leave() does: two calls less for each message.
        admission = self.admission
        admission.count -= 1
        admission.bytes -= len(request.messages[0].body)
        if admission.is_wanted:
            admission.admit()
        if self._flushing:
            self._ended.unpark_all()
        counters = self._sender.counters
        if isinstance(outcome, RocketMQError):
            counters.failed += 1
            request.pending.resolve(outcome, self.failures)
        else:
            counters.sent += 1
            request.pending.settle(outcome)

    def after_hooks(
        self, context: SendContext, finish: Callable[[SendRequest, Outcome], None] | None = None
    ) -> Callable[[SendRequest, Outcome], None]:
        """Return an ``on_done`` that has the hooks called in the background, and then ``finish``."""

        def done(request: SendRequest, outcome: Outcome) -> None:
            start_soon(self._nursery, self._run_hooks, context, finish, request, outcome)

        return done

    async def _run_hooks(
        self,
        context: SendContext,
        finish: Callable[[SendRequest, Outcome], None] | None,
        request: SendRequest,
        outcome: Outcome,
    ) -> None:
        error = outcome if isinstance(outcome, RocketMQError) else None
        context.results = () if isinstance(outcome, RocketMQError) else (send_result(outcome),)
        await self._hooks.after_send(context, error)
        if finish is not None:
            finish(request, outcome)
