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
from rocketmq_py.producer.send import Send
from rocketmq_py.producer.send_states import COMPRESSING, DONE, READY
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
        self._in_flight: dict[Send, int | None] = {}
        self._hooked: dict[Send, Outcome] = {}  # those whose hooks run, with their outcomes
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

        Sends that have an outcome, and whose hooks have not ended, keep it.
        ``closing`` logs them, so they are not reported as failures that were never retrieved.
        """
        self._nursery = None
        self.admission.close()
        for send, outcome in list(self._hooked.items()):
            self.finish(send, outcome)
        self._hooked.clear()
        for send in list(self._in_flight):
            error, request = closed_error(may_be_stored=send.may_have_arrived), send.request
            self._cancel(send)
            self._sender.counters.send_failed(error, len(request.messages))
            closing.add(request.topic, error, len(request.messages))
            send.receiver._fail(error, None)
        self.failures.report()

    async def flush(self) -> None:
        """Wait until all pipelined sends that are in flight now have their outcomes."""
        await self._wait_for([send for send, size in self._in_flight.items() if size is not None])

    async def _wait_for(self, sends: list[Send]) -> None:
        self._flushing += 1
        try:
            for send in sends:
                while send in self._in_flight:
                    await self._finished.park()
        finally:
            self._flushing -= 1

    # Awaited sends

    async def deliver(self, send: Send) -> SendResult:
        """Send a request and wait for the result.

        Raises the error of the last attempt. If cancelled, no attempt is left running.
        """
        send.receiver = pending = PendingSend()
        self._in_flight[send] = None
        try:
            if send.state is COMPRESSING:
                await self._sender.compress(send)
            if send.state is READY:  # otherwise the producer was closed meanwhile
                written = self._sender.attempt(send)
                if written is not None:
                    await written
            return await pending
        except BaseException as error:
            self._stop(send, error)
            raise

    def start(self, send: Send, receiver: OutcomeReceiver) -> bool:
        """Start an awaited send, whose outcome ``receiver`` gets. Raises as :meth:`Sender.attempt`.

        Returns False, and does nothing, if it must wait before it can be written or queued. Await
        :meth:`deliver` then.
        """
        if send.state is COMPRESSING or self._sender.must_wait(send):
            return False
        send.receiver = receiver
        self._in_flight[send] = None
        try:
            self._sender.attempt(send)
        except BaseException as error:
            self._stop(send, error)
            raise
        return True

    def cancel(self, send: Send) -> None:
        """Stop an awaited send. Its receiver gets no outcome. The message may be stored."""
        if send in self._in_flight:
            self._cancel(send)

    def _stop(self, send: Send, error: BaseException) -> None:
        """Stop an awaited send that was cancelled, or that the sender has refused. Count the latter."""
        if send in self._in_flight:
            self._cancel(send)
            if isinstance(error, RocketMQError):
                self._sender.counters.send_failed(error, len(send.request.messages))

    # Pipelined sends

    def submit(self, send: Send) -> Coroutine[Any, Any, OutcomeReceiver] | None:
        """Send a request. ``send.receiver`` receives the outcome.

        Await the coroutine that is returned, if any. It returns ``send.receiver``. This and the coroutine
        raise as :meth:`Sender.attempt`.
        If cancelled while it waits, the request is not sent.
        """
        # Fast path: no coroutine if nothing must be awaited, saves 7 % of pipelined.
        size = len(send.request.body)
        if send.state is COMPRESSING or not self.admission.enter_nowait(size):
            return self._wait_and_submit(send)
        self._in_flight[send] = size
        try:
            written = self._sender.attempt(send)
        except BaseException:
            self._cancel(send)
            raise
        return written if written is None else self._submitted(send, written)

    async def _wait_and_submit(self, send: Send) -> OutcomeReceiver:
        """Wait for admission and send a request, as :meth:`submit`. Always a cancellation point."""
        if not await self.enter(send):
            return send.receiver
        try:
            written = self._sender.attempt(send)
        except BaseException:
            self._cancel(send)
            raise
        return send.receiver if written is None else await self._submitted(send, written)

    async def _submitted(self, send: Send, written: Awaitable[None]) -> OutcomeReceiver:
        try:
            await written
        except BaseException:
            self._cancel(send)
            raise
        return send.receiver

    async def enter(self, send: Send) -> bool:
        """Wait for admission, and compress a large body. Raises ClosedError.

        Returns False if the producer was closed during the compression. Then the request has failed, and must
        not be sent. If cancelled, the request is not admitted.
        """
        size = len(send.request.body)  # it may be compressed later
        await self.admission.enter(size)
        self._in_flight[send] = size
        if send.state is COMPRESSING:
            try:
                await self._sender.compress(send)
            except BaseException:
                self._cancel(send)
                raise
        return send in self._in_flight

    # Outcomes

    def _cancel(self, send: Send) -> None:
        """Remove a send that needs no further attempts."""
        if self.leave(send):
            self._sender.cancel(send)

    def leave(self, send: Send) -> bool:
        """Remove a send, and release its space. Return False if it is not in flight."""
        size = self._in_flight.pop(send, _MISSING)
        if size == _MISSING:
            return False
        if size is not None:
            self.admission.leave(size)
        if self._flushing:
            self._finished.unpark_all()
        return True

    def done(self, send: Send, outcome: Outcome) -> None:
        """Take the outcome of a send: call its hooks in the background, and then :meth:`finish`."""
        if send.context is None:
            self.finish(send, outcome)
        else:
            send.answered(outcome)
            self._hooked[send] = outcome
            start_soon(self._nursery, self._run_hooks, send.context, send, outcome)

    async def _run_hooks(self, context: SendContext, send: Send, outcome: Outcome) -> None:
        result = outcome if isinstance(outcome, RocketMQError) else send_result(outcome)
        await self._hooks.after_outcome(context, result)
        if self._hooked.pop(send, None) is not None:  # otherwise the producer was closed meanwhile
            self.finish(send, outcome)

    def finish(self, send: Send, outcome: Outcome) -> None:
        """Count a send, and pass its outcome to the receiver."""
        if send.has_reply and send in self._in_flight and not isinstance(outcome, RocketMQError):
            send.answered(outcome)  # until the reply arrives
        else:
            self.leave(send)
            if send.state is not DONE:  # else the reply came while the hooks ran
                send.end()
        counters, count = self._sender.counters, len(send.request.messages)
        if isinstance(outcome, RocketMQError):
            is_sent_again = send.in_halves and is_sent_in_halves(outcome, count)
            counters.send_failed(outcome, 0 if is_sent_again else count)
            send.receiver._fail(outcome, self.failures)
        else:
            counters.sent += count
            send.receiver._succeed(outcome)
