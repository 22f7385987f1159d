"""Awaited sends of the asyncio and threads APIs: the trio thread writes the first attempt without a task."""

from __future__ import annotations

from functools import partial
from typing import Any

from rocketmq_py.arguments import Duration
from rocketmq_py.errors import ClosedError
from rocketmq_py.handoff.calls import CANCELLED, Call, LoopCall, ThreadCall
from rocketmq_py.message import Message, SendResult
from rocketmq_py.producer import Producer
from rocketmq_py.producer.first_attempt import FirstAttempt
from rocketmq_py.producer.outcome import Acknowledgement, send_result
from rocketmq_py.producer.producer import begin_send
from rocketmq_py.producer.send_request import Destination


class SendCall(Call[SendResult]):
    """A call of a producer's ``send``, without a task while it waits only for the broker's answer.

    Args:
        thread_or_link: the argument of ThreadCall (a TrioThread) or LoopCall (a LoopLink).
        producer: the producer.
        message, queue, timeout: the arguments of ``send``.
    """

    _attempt: FirstAttempt | None = None

    def __init__(
        self,
        thread_or_link: Any,
        producer: Producer,
        message: Message,
        queue: Destination | None,
        timeout: Duration | None,
    ) -> None:
        # Not a bound method of this class: that would be a reference cycle, and leave each call to the
        # garbage collector.
        super().__init__(thread_or_link, partial(producer.send, message, queue=queue, timeout=timeout))
        self._producer = producer
        self._arguments = message, queue, timeout

    def __call__(self) -> None:
        """Write the first attempt. A task is started only if it cannot be written at once, or if it fails."""
        self.has_started = True
        message, queue, timeout = self._arguments
        try:
            attempt = self._context.run(begin_send, self._producer, message, self._answered, queue, timeout)
        except BaseException as error:  # noqa: BLE001  # raised in the caller's thread
            self._error = error
            self.ended()
            return
        if attempt is None:
            super().__call__()
        elif attempt.is_in_flight:
            self._attempt = attempt
        else:
            self._function = attempt.rest
            super().__call__()

    def _answered(self, outcome: Acknowledgement | SendResult | None) -> None:
        attempt, self._attempt = self._attempt, None
        if outcome is not None:
            self._result = send_result(outcome)
            self.ended()
        elif attempt is not None:
            self._function = attempt.rest
            super().__call__()

    def cancel(self) -> None:
        """Cancel the send. The message may still be stored."""
        if self._attempt is None:
            super().cancel()
        else:
            self._attempt.forget()
            self._attempt = None
            self._error = ClosedError(CANCELLED)
            self.ended()


class ThreadSendCall(SendCall, ThreadCall[SendResult]):
    """A call of a producer's ``send`` that a thread waits for."""


class LoopSendCall(SendCall, LoopCall[SendResult]):
    """A call of a producer's ``send`` that a task of an asyncio loop waits for."""
