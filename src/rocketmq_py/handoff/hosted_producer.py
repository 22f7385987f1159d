"""The base class of the producers of the asyncio and threads APIs, with a queue of pipelined sends."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from types import CoroutineType
from typing import Any, ClassVar, Generic, TypeVar

from rocketmq_py.arguments import Duration
from rocketmq_py.client.client import core_of
from rocketmq_py.client.core import ClientCore
from rocketmq_py.client.lifespan import GIVEN_UP_SECONDS, nursery_of
from rocketmq_py.errors import ClosedError, RocketMQError
from rocketmq_py.handoff import trio_thread
from rocketmq_py.handoff.calls import CANCELLED, Call, LoopCall, ThreadCall
from rocketmq_py.handoff.hosted import Hosted
from rocketmq_py.handoff.send_queue import QueuedSend, SendQueue
from rocketmq_py.message import Message, SendResult
from rocketmq_py.producer import PendingReply, Producer, ProducerStatistics
from rocketmq_py.producer.base_producer import closing_of
from rocketmq_py.producer.closing import INTERRUPTED
from rocketmq_py.producer.destinations import Destination
from rocketmq_py.producer.outcome import FailureLog, send_result
from rocketmq_py.producer.producer import accept, start_send

Queue = TypeVar("Queue", bound=SendQueue[Any])


# Fast path: no task per send, saves 40 % of awaited sends of the asyncio and threads APIs.
class SendCall(Call[SendResult]):
    """A call of a producer's ``send``, which receives the outcome of the send.

    A task runs ``send`` only if something has to be awaited before the message can be written.

    Args:
        thread_or_link: the argument of ThreadCall (a TrioThread) or LoopCall (a LoopLink).
        producer: the producer.
        message, queue, timeout: the arguments of ``send``.
    """

    _cancel_send: Callable[[], None] | None = None

    def __init__(
        self,
        thread_or_link: Any,
        producer: Producer,
        message: Message,
        queue: Destination | None,
        timeout: Duration | None,
    ) -> None:
        super().__init__(thread_or_link, partial(producer.send, message, queue=queue, timeout=timeout))
        self._producer = producer
        self._arguments = message, queue, timeout

    def __call__(self) -> None:
        """Start the send."""
        self.has_started = True
        try:
            self._cancel_send = self._context.run(start_send, self._producer, *self._arguments, self)
        except BaseException as error:  # noqa: BLE001  # raised in the caller's thread
            self._end(error)
            return
        if self._cancel_send is None:
            super().__call__()

    def cancel(self) -> None:
        """Cancel the send. The message may still be stored."""
        if self._cancel_send is None:
            super().cancel()
        else:
            self._cancel_send()
            self._end(ClosedError(CANCELLED))

    def _succeed(self, result: Any) -> None:
        """Set the result."""
        self._result = send_result(result)
        self._end(None)

    def _fail(self, error: BaseException, log: FailureLog | None = None) -> None:
        """Set the error."""
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        self._error = error
        self._cancel_send = None  # it is a reference cycle
        self.ended()


class ThreadSendCall(SendCall, ThreadCall[SendResult]):
    """A call of a producer's ``send`` that a thread waits for."""


class LoopSendCall(SendCall, LoopCall[SendResult]):
    """A call of a producer's ``send`` that a task of an asyncio loop waits for."""


class HostedProducer(Hosted[Producer], Generic[Queue]):
    """A producer of the asyncio or threads API, with a queue of pipelined sends."""

    _queue_class: ClassVar[Callable[..., Any]]
    _send_queue: Queue

    def _prepare(self) -> None:
        settings = self._target.settings
        self._send_queue = type(self)._queue_class(
            self._thread,
            self,
            closing_of(self._target),
            max_count=settings.max_in_flight if settings.linger is None else sys.maxsize,
            max_bytes=settings.max_in_flight_bytes,
        )

    @property
    def _client(self) -> ClientCore:
        return core_of(self._target)

    @property
    def statistics(self) -> ProducerStatistics:
        """The counters since it was opened."""
        return self._get(lambda: self._target.statistics)

    @property
    def in_flight(self) -> int:
        """The number of messages without an outcome: those of :meth:`submit` and ``submit_request``.

        With ``linger``, those of all sends that are collected into batches.
        """

        def count() -> int:
            return self._send_queue.queued + self._target.in_flight

        return self._get(count)

    # In the trio thread

    def _submit_to_target(self, send: QueuedSend) -> Coroutine[Any, Any, object] | None:
        """Pass a queued message to the trio producer."""
        assert send._message is not None
        accepted = accept(self._target, send._message, send._queue, send._timeout, send)
        return accepted if type(accepted) is CoroutineType else None

    async def _submit_request(
        self,
        message: Message,
        done: Callable[[PendingReply], None],
        *,
        queue: Destination | None,
        timeout: Duration | None,
    ) -> None:
        """Send a request. ``done`` gets its handle when that has the reply or an error."""
        pending = await self._target.submit_request(message, queue=queue, timeout=timeout)
        pending.add_done_callback(done)

    def _register(self) -> None:
        super()._register()
        self._send_queue.open(nursery_of(self._target))

    def _unregister(self) -> None:
        super()._unregister()
        self._send_queue.abandon(self._client.name_servers.addresses)

    async def _finish(self, deadline: float) -> float:
        closing = closing_of(self._target)
        seconds = self._target.settings.close_timeout
        if deadline < math.inf:  # the process ends
            seconds = max(seconds, trio_thread.EXIT_SECONDS)
            closing.latest = min(closing.latest, deadline - GIVEN_UP_SECONDS)
        self._send_queue.close()
        # ClosedError: another task that closes it, for example because its client is closed, has come
        # further.
        with suppress(ClosedError):
            await closing.wait(self._drain, seconds)
        self._send_queue.stop()  # a send that still waits for a route must not delay closing
        return deadline

    def _stop_waiting(self) -> None:
        """Give up pending sends (in the trio thread)."""
        closing_of(self._target).give_up(INTERRUPTED)

    async def _send_all(
        self, messages: list[Message], queues: list[Destination | None] | None
    ) -> list[SendResult | RocketMQError]:
        """Send messages after those that were passed to ``submit`` before."""
        await self._send_queue.drain()
        return await self._target.send_all(messages, queues=queues)

    async def _drain(self) -> None:
        """Wait until every message that was queued until now has its outcome."""
        await self._send_queue.drain()
        await self._target.flush()
