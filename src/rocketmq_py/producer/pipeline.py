"""The pipeline: pipelined sends in flight, and requests that wait for their replies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import trio

from rocketmq_py.client.lifespan import start_soon
from rocketmq_py.errors import RocketMQError
from rocketmq_py.producer.admission import Admission
from rocketmq_py.producer.closing import Closing
from rocketmq_py.producer.hooks import Hooks, SendContext
from rocketmq_py.producer.outcome import FailureLog, Outcome, OutcomeReceiver, closed_error, send_result
from rocketmq_py.producer.send_request import SendRequest
from rocketmq_py.producer.sender import Sender


class Pipeline:
    """The sends in flight that no task of the producer awaits, within the bounds of ``admission``.

    These are pipelined sends, and requests until they have their replies.

    Args:
        sender: sends the requests.
        hooks: called when a send has its outcome.
        admission: bounds the sends in flight. Also an attribute.

    Attributes:
        failures: logs errors that are never retrieved.
        on_done: the bound method :meth:`finish`, which all pipelined sends share as ``SendRequest.on_done``.
    """

    def __init__(self, sender: Sender, hooks: Hooks, admission: Admission) -> None:
        self._sender = sender
        self._hooks = hooks
        self._in_flight: dict[SendRequest, None] = {}  # oldest first
        self._flushing = 0
        self._finished = trio.lowlevel.ParkingLot()  # tasks in flush()
        self._nursery: trio.Nursery | None = None
        self.admission = admission
        self.failures: FailureLog = FailureLog()
        # Fast path: one bound method for all requests, see Sender.on_answer.
        self.on_done: Callable[[SendRequest, Outcome], None] = self.finish

    def __len__(self) -> int:
        return len(self._in_flight)

    def open(self, nursery: trio.Nursery) -> None:
        """Start. Hooks after pipelined sends run in ``nursery``."""
        self._nursery = nursery

    async def close(self) -> None:
        """Accept no more sends, and wait for those in flight. Sends that wait for admission are not sent."""
        self.admission.close()
        while self._in_flight:
            await self.flush()

    def abandon(self, closing: Closing) -> None:
        """Fail the sends in flight, and those that wait for admission. Hooks are no longer called.

        ``closing`` logs them, so they are not reported as failures that were never retrieved.
        """
        self._nursery = None
        self.admission.close()
        for request in list(self._in_flight):
            error = closed_error(may_be_stored=request.may_have_arrived)
            self.leave(request)
            self._sender.counters.send_failed(error)
            closing.add(request.messages[0].topic, error)
            request.pending._fail(error, None)
        self.failures.report()

    async def flush(self) -> None:
        """Wait until all sends that are in flight now have their outcomes."""
        self._flushing += 1
        try:
            for request in list(self._in_flight):
                while request in self._in_flight:
                    await self._finished.park()
        finally:
            self._flushing -= 1

    def submit(self, request: SendRequest) -> Coroutine[Any, Any, OutcomeReceiver] | None:
        """Send a request. ``request.on_done`` receives the outcome.

        Await the coroutine that is returned, if any. It returns ``request.pending``. This and the coroutine
        raise as :meth:`Sender.submit`.
        If cancelled while it waits, the request is not sent.
        """
        # Fast path: no coroutine if nothing must be awaited, saves 7 % of pipelined.
        if request.may_be_compressed or not self.admission.enter_nowait(len(request.body)):
            return self.wait_and_submit(request)
        self._in_flight[request] = None
        try:
            waiting = self._sender.submit(request)
        except BaseException:
            self.leave(request)
            raise
        return waiting if waiting is None else self._submitted(request, waiting)

    async def wait_and_submit(self, request: SendRequest) -> OutcomeReceiver:
        """Wait for admission and send a request, as :meth:`submit`. Always a cancellation point."""
        if not await self.enter(request):
            return request.pending
        try:
            waiting = self._sender.submit(request)
        except BaseException:
            self.leave(request)
            raise
        return request.pending if waiting is None else await self._submitted(request, waiting)

    async def _submitted(self, request: SendRequest, waiting: Awaitable[None]) -> OutcomeReceiver:
        try:
            await waiting
        except BaseException:
            self.leave(request)
            raise
        return request.pending

    async def enter(self, request: SendRequest) -> bool:
        """Wait for admission, and compress a large body. Raises ClosedError.

        Returns False if the producer was closed during the compression. Then the request has failed, and must
        not be sent. If cancelled, the request is not admitted.
        """
        size = len(request.messages[0].body)  # the request's body may be compressed later
        await self.admission.enter(size)
        self._in_flight[request] = None
        if request.may_be_compressed:
            try:
                await self._sender.compress(request)
            except BaseException:
                self.leave(request)
                raise
        return request in self._in_flight

    def leave(self, request: SendRequest) -> bool:
        """Remove a request, and release its space. Return False if it is not in flight."""
        if request not in self._in_flight:
            return False
        del self._in_flight[request]
        self.admission.leave(len(request.messages[0].body))
        if self._flushing:
            self._finished.unpark_all()
        return True

    def finish(self, request: SendRequest, outcome: Outcome) -> None:
        """Remove a request, count it, and set its outcome."""
        if not self.leave(request):
            return  # abandoned when the producer was closed
        counters = self._sender.counters
        if isinstance(outcome, RocketMQError):
            counters.send_failed(outcome)
            request.pending._fail(outcome, self.failures)
        else:
            counters.sent += 1
            request.pending._succeed(outcome)

    def after_hooks(
        self, context: SendContext, finish: Callable[[SendRequest, Outcome], None] | None = None
    ) -> Callable[[SendRequest, Outcome], None]:
        """Return an ``on_done`` that calls the hooks in a background task, and then ``finish``."""

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
