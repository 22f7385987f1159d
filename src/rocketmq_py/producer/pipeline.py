"""The sends of a producer from their acceptance to their outcome, and requests that wait for replies."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from typing import Any, Final

import trio

from rocketmq_py.client.lifespan import start_soon
from rocketmq_py.errors import RocketMQError
from rocketmq_py.message import SendResult
from rocketmq_py.producer.admission import Admission
from rocketmq_py.producer.batch import is_sent_in_halves
from rocketmq_py.producer.closing import Closing
from rocketmq_py.producer.hooks import Hooks, SendContext
from rocketmq_py.producer.outcome import FailureLog, Outcome, OutcomeReceiver, closed_error, send_result
from rocketmq_py.producer.pending import PendingSend
from rocketmq_py.producer.send_request import SendRequest
from rocketmq_py.producer.sender import Sender

_MISSING: Final = -1


class Pipeline:
    """The sends of a producer that have no outcome yet, and requests that have no reply yet.

    Pipelined sends and requests take space in ``admission``, and wait for it. Awaited sends do not: their
    callers wait anyway.

    Args:
        sender: makes the attempts.
        hooks: called when a pipelined send has its outcome.
        admission: bounds the pipelined sends in flight. Also an attribute.

    Attributes:
        failures: logs errors that are never retrieved.
    """

    def __init__(self, sender: Sender, hooks: Hooks, admission: Admission) -> None:
        self._sender = sender
        self._hooks = hooks
        # Oldest first, with the bytes that each takes in ``admission``. None for awaited sends.
        self._in_flight: dict[SendRequest, int | None] = {}
        self._flushing = 0
        self._finished = trio.lowlevel.ParkingLot()  # tasks in flush()
        self._nursery: trio.Nursery | None = None
        self.admission = admission
        self.failures: FailureLog = FailureLog()
        sender.on_done = self.done

    def __len__(self) -> int:
        return self.admission.count

    def open(self, nursery: trio.Nursery) -> None:
        """Start. Hooks after pipelined sends run in ``nursery``."""
        self._nursery = nursery

    async def close(self) -> None:
        """Accept no more sends, and wait for those in flight. Sends that wait for admission are not sent."""
        self.admission.close()
        while self._in_flight:
            await self._wait_for(list(self._in_flight))

    def abandon(self, closing: Closing) -> None:
        """Fail the sends in flight, and those that wait for admission. Hooks are no longer called.

        ``closing`` logs them, so they are not reported as failures that were never retrieved.
        """
        self._nursery = None
        self.admission.close()
        for request in list(self._in_flight):
            error = closed_error(may_be_stored=request.may_have_arrived)
            self.leave(request)
            self._sender.counters.send_failed(error, len(request.messages))
            closing.add(request.topic, error, len(request.messages))
            request.receiver._fail(error, None)
        self.failures.report()

    async def flush(self) -> None:
        """Wait until all pipelined sends that are in flight now have their outcomes."""
        await self._wait_for([request for request, size in self._in_flight.items() if size is not None])

    async def _wait_for(self, requests: list[SendRequest]) -> None:
        self._flushing += 1
        try:
            for request in requests:
                while request in self._in_flight:
                    await self._finished.park()
        finally:
            self._flushing -= 1

    # Awaited sends

    async def deliver(self, request: SendRequest) -> SendResult:
        """Send a request and wait for the result.

        Raises the error of the last attempt. If cancelled, no attempt is left running.
        """
        request.receiver = pending = PendingSend()
        self._in_flight[request] = None
        try:
            if request.may_be_compressed:
                await self._sender.compress(request)
            if not request.is_done:  # the producer was closed meanwhile
                written = self._sender.attempt(request)
                if written is not None:
                    await written
            return await pending
        except BaseException as error:
            self._stop(request, error)
            raise

    def start(self, request: SendRequest, receiver: OutcomeReceiver) -> bool:
        """Start an awaited send, whose outcome ``receiver`` gets. Raises as :meth:`Sender.attempt`.

        Returns False, and does nothing, if it must wait before it can be written or queued. Await
        :meth:`deliver` then.
        """
        if request.may_be_compressed or self._sender.must_wait(request):
            return False
        request.receiver = receiver
        self._in_flight[request] = None
        try:
            self._sender.attempt(request)
        except BaseException as error:
            self._stop(request, error)
            raise
        return True

    def cancel(self, request: SendRequest) -> None:
        """Stop an awaited send. Its receiver gets no outcome. The message may be stored."""
        if self.leave(request):
            self._sender.cancel(request)

    def _stop(self, request: SendRequest, error: BaseException) -> None:
        """Stop an awaited send that was cancelled, or that the sender has refused. Count the latter."""
        if self.leave(request):
            self._sender.cancel(request)
            if isinstance(error, RocketMQError):
                self._sender.counters.send_failed(error, len(request.messages))

    # Pipelined sends

    def submit(self, request: SendRequest) -> Coroutine[Any, Any, OutcomeReceiver] | None:
        """Send a request. ``request.receiver`` receives the outcome.

        Await the coroutine that is returned, if any. It returns ``request.receiver``. This and the coroutine
        raise as :meth:`Sender.attempt`.
        If cancelled while it waits, the request is not sent.
        """
        # Fast path: no coroutine if nothing must be awaited, saves 7 % of pipelined.
        size = len(request.body)
        if request.may_be_compressed or not self.admission.enter_nowait(size):
            return self.wait_and_submit(request)
        self._in_flight[request] = size
        try:
            written = self._sender.attempt(request)
        except BaseException:
            self.leave(request)
            raise
        return written if written is None else self._submitted(request, written)

    async def wait_and_submit(self, request: SendRequest) -> OutcomeReceiver:
        """Wait for admission and send a request, as :meth:`submit`. Always a cancellation point."""
        if not await self.enter(request):
            return request.receiver
        try:
            written = self._sender.attempt(request)
        except BaseException:
            self.leave(request)
            raise
        return request.receiver if written is None else await self._submitted(request, written)

    async def _submitted(self, request: SendRequest, written: Awaitable[None]) -> OutcomeReceiver:
        try:
            await written
        except BaseException:
            self.leave(request)
            raise
        return request.receiver

    async def enter(self, request: SendRequest) -> bool:
        """Wait for admission, and compress a large body. Raises ClosedError.

        Returns False if the producer was closed during the compression. Then the request has failed, and must
        not be sent. If cancelled, the request is not admitted.
        """
        size = len(request.body)  # it may be compressed later
        await self.admission.enter(size)
        self._in_flight[request] = size
        if request.may_be_compressed:
            try:
                await self._sender.compress(request)
            except BaseException:
                self.leave(request)
                raise
        return request in self._in_flight

    # Outcomes

    def leave(self, request: SendRequest) -> bool:
        """Remove a request, and release its space. Return False if it is not in flight."""
        size = self._in_flight.pop(request, _MISSING)
        if size == _MISSING:
            return False
        request.is_done = True
        if size is not None:
            self.admission.leave(size)
        if self._flushing:
            self._finished.unpark_all()
        return True

    def done(self, request: SendRequest, outcome: Outcome) -> None:
        """Take the outcome of a send: call its hooks in the background, and then :meth:`finish`."""
        if request.context is None:
            self.finish(request, outcome)
        else:
            start_soon(self._nursery, self._run_hooks, request.context, request, outcome)

    async def _run_hooks(self, context: SendContext, request: SendRequest, outcome: Outcome) -> None:
        error = outcome if isinstance(outcome, RocketMQError) else None
        context.results = () if isinstance(outcome, RocketMQError) else (send_result(outcome),)
        await self._hooks.after_send(context, error)
        self.finish(request, outcome)

    def finish(self, request: SendRequest, outcome: Outcome) -> None:
        """Count a send, and pass its outcome to the receiver."""
        if not (request.has_reply or self.leave(request)):
            return  # abandoned when the producer was closed
        counters, count = self._sender.counters, len(request.messages)
        if isinstance(outcome, RocketMQError):
            is_sent_again = request.in_halves and is_sent_in_halves(outcome, count)
            counters.send_failed(outcome, 0 if is_sent_again else count)
            request.receiver._fail(outcome, self.failures)
        else:
            counters.sent += count
            request.receiver._succeed(outcome)
