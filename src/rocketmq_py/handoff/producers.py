"""Producers of the asyncio and threads APIs: awaited sends, and a queue of pipelined ones."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

import trio

from rocketmq_py.client.client import Client
from rocketmq_py.errors import ClosedError
from rocketmq_py.handoff.calls import CANCELLED, Call
from rocketmq_py.handoff.hosted import Hosted, Target
from rocketmq_py.handoff.send_queue import QueuedSend, SendQueue
from rocketmq_py.message import Message, SendResult
from rocketmq_py.producer import BatchingProducer, PendingSend, Producer
from rocketmq_py.producer.first_attempt import FirstAttempt
from rocketmq_py.producer.outcome import Acknowledgement, OutcomeReceiver, send_result
from rocketmq_py.producer.send_request import Destination

UNREGISTER_SECONDS = 1.0
"""Time for unregistering from brokers when the time for pending sends is over."""


class SendCall(Call[SendResult]):
    """A call of a producer's ``send``, without a task while it waits only for the broker's answer.

    Args:
        thread_or_link: the argument of ThreadCall (a TrioThread) or LoopCall (a LoopLink), with one of which
            subclasses combine this class.
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
        timeout: float | None,
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
            attempt = self._context.run(self._producer._begin_send, message, self._answered, queue, timeout)
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


Queue = TypeVar("Queue", bound=SendQueue[Any])


class HostedProducer(Hosted[Target], Generic[Target, Queue]):
    """A producer of the asyncio or threads API, with a queue of pipelined sends."""

    _queue_class: ClassVar[Callable[..., Any]]
    _send_queue: Queue

    def _prepare(self) -> None:
        target: Any = self._target
        if isinstance(target, BatchingProducer):
            max_count, max_bytes = sys.maxsize, target.config.max_buffered_bytes
        else:
            max_count, max_bytes = target.config.max_in_flight, target.config.max_in_flight_bytes
        self._send_queue = type(self)._queue_class(
            self._thread, self._submit_to_target, max_count=max_count, max_bytes=max_bytes
        )

    @property
    def _client(self) -> Client:
        target: Any = self._target
        client: Client = target.producer.client if isinstance(target, BatchingProducer) else target.client
        return client

    def _count_in_flight(self) -> int:
        """Return the number of pipelined sends, and of requests that wait for replies, without an outcome.

        It reads the lengths of collections, which needs no call in the trio thread.
        """
        target: Any = self._target
        return len(self._send_queue) + len(target._replies._waiting)

    def _count_pending(self) -> int:
        """Return the number of messages of a BatchingProducer without an outcome."""
        target: Any = self._target

        def count() -> int:
            pending: int = self._send_queue.queued + target.pending
            return pending

        return self._thread.call_plain(count) if self.is_open else count()

    # In the trio thread

    def _submit_to_target(self, send: QueuedSend) -> Coroutine[Any, Any, object] | None:
        """Pass a queued message to the trio producer."""
        target = self._target
        assert send.message is not None
        if isinstance(target, Producer):
            return target._submit(send, send.message, send.queue, send.timeout)
        assert isinstance(target, BatchingProducer)
        on_done = partial(_end_send, send)
        return target.submit(send.message, queue=send.queue, timeout=send.timeout, on_done=on_done)

    def _register(self) -> None:
        super()._register()
        self._send_queue.open(self._target.nursery)

    def _unregister(self) -> None:
        super()._unregister()
        self._send_queue.abandon(self._client.name_servers.addresses)

    async def _finish(self, deadline: float) -> float:
        if deadline == math.inf:
            # An ordinary close: pending sends have close_timeout. At the end of a process they have the time
            # until ``deadline``.
            deadline = trio.current_time() + self._target.close_timeout + UNREGISTER_SECONDS
        self._send_queue.close()
        # ClosedError: another task that closes it, for example because its client is closed, has come
        # further.
        with trio.move_on_at(deadline - UNREGISTER_SECONDS), suppress(ClosedError):
            await self._drain()
        self._send_queue.stop()  # a send that still waits for a route must not delay closing
        return deadline

    async def _drain(self) -> None:
        """Wait until every message that was queued until now has its outcome."""
        target: Any = self._target
        await self._send_queue.drain()
        await target.flush()


def _end_send(send: OutcomeReceiver, handle: PendingSend) -> None:
    """Set the outcome of a queued send. Its result is made from ``handle`` when it is read, see result_of."""
    if handle.error is None:
        send.succeed(handle)
    else:
        send.fail(handle.error, None)
