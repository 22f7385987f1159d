"""The base of all dispatches: worker tasks that take messages from the queues and call the handler."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final, Generic, TypeVar

import trio

from rocketmq_py.consumer.group.hooks import ConsumerHook, ConsumerHooks
from rocketmq_py.consumer.pull.message_buffer import MessageBuffer
from rocketmq_py.consumer.push.handler_failures import describe
from rocketmq_py.consumer.push.invoker import Invoker
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import ReceivedMessage
from rocketmq_py.remoting.nurseries import leaves_of

logger: Final = LibraryLogger("rocketmq_py.consumer")

Buffer = TypeVar("Buffer", bound=MessageBuffer)

YIELD_EVERY = 32
"""Handler calls that complete without suspending before a worker yields to other tasks."""


class Dispatch(Generic[Buffer]):
    """Worker tasks that serve the queues in turn. Subclasses define how a queue is served.

    A worker starts or wakes up another one only if there are more messages than the running workers have
    taken. So a handler that never suspends is called in a loop by one worker, and a handler that suspends
    runs up to ``concurrency`` times at once.

    Args:
        nursery: runs the workers.
        invoker: calls the handler.
        concurrency: the number of handler calls that may run at once.
        hooks: called around each handler call. None calls none.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        invoker: Invoker,
        *,
        concurrency: int,
        hooks: ConsumerHooks | None = None,
    ) -> None:
        self._nursery = nursery
        self._invoker = invoker
        self._concurrency = concurrency
        self._hooks = hooks
        self._hooked: Sequence[ConsumerHook] = () if hooks is None else hooks.all
        # Queues with waiting messages, each once. The first one is served next.
        self._ready: deque[Buffer] = deque()
        self._worker_count = 0
        self._in_flight = 0
        self._idle = trio.lowlevel.ParkingLot()
        self._is_waking = False
        self._closed = False
        self._draining = trio.CancelScope()
        self._drained = trio.Event()
        if not invoker.is_async:
            nursery.start_soon(self._close_threads)

    @property
    def in_flight(self) -> int:
        """The number of handler calls that are running."""
        return self._in_flight

    def offer(self, buffer: Buffer) -> None:
        """Dispatch the waiting messages of a queue."""
        if self._closed:
            return
        if not buffer.is_ready:
            buffer.is_ready = True
            self._ready.append(buffer)
        if self._ready and not self._is_waking:
            self._wake()

    def close(self) -> None:
        """Start no more handler calls."""
        self._closed = True
        self._ready.clear()

    async def drain(self) -> None:
        """Start no more handler calls, and wait until the running ones have ended."""
        self.close()
        if self._in_flight:
            await self._drained.wait()

    async def drain_within(self, seconds: float, group: str) -> None:
        """Start no more handler calls. Wait until the running ones have ended, or until :meth:`cut_off`.

        Args:
            seconds: the maximum time to wait.
            group: the consumer group, for the log.
        """
        self.close()
        if self._in_flight:
            logger.info("waiting for %d handlers group=%s up to %g s", self._in_flight, group, seconds)
        self._draining.deadline = trio.current_time() + seconds
        with self._draining:
            await self.drain()

    def cut_off(self) -> None:
        """Wait for the running handler calls no longer."""
        self._draining.cancel()

    def _wake(self) -> None:
        """Wake up or start one worker, if possible. It wakes up the next one if there is work for it."""
        if self._idle:
            self._is_waking = True
            self._idle.unpark()
        elif self._worker_count < self._concurrency:
            self._is_waking = True
            self._worker_count += 1
            self._nursery.start_soon(self._work)

    async def _call_hooked(self, buffer: Buffer, delivery: Any) -> Any:
        """Call the handler and the hooks around it. A delivery is a message, or a sequence of messages."""
        assert self._hooks is not None
        return await self._hooks.call(self._invoker.call, buffer.queue, delivery)

    async def _work(self) -> None:
        """Run a worker until cancelled."""
        raise NotImplementedError

    def _check_drained(self) -> None:
        if not self._in_flight:
            self._drained.set()

    async def _close_threads(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self.close()  # calls that end now start no others
            self._invoker.executor.collect_finished()
            self._note_abandoned_calls()
            self._invoker.abandon()

    def _note_abandoned_calls(self) -> None:
        """Note the calls that no worker task waits for."""


def note_cut_off(buffer: MessageBuffer, messages: Sequence[ReceivedMessage]) -> None:
    """Log and count messages whose handler call is cancelled or abandoned, because the consumer ends."""
    buffer.counts.cut_off += len(messages)
    for message in messages:
        logger.warning("handler cut off: %s: the message is delivered again", describe(buffer, message))


def is_cancellation(error: BaseException) -> bool:
    """Return whether a handler call ended because its task was cancelled."""
    return any(isinstance(cause, trio.Cancelled) for cause in leaves_of(error))
