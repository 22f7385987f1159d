"""Handing messages to the user's handler, several at a time, and what happens when it fails."""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import attrs
import trio

from rocketmq_py.consumer.process_queue import ProcessQueue
from rocketmq_py.errors import RocketMQError
from rocketmq_py.message import ReceivedMessage

logger = logging.getLogger("rocketmq_py.consumer")

YIELD_EVERY = 16
"""A worker whose handler never waits lets other tasks run after so many messages."""
RETRY_HERE_SECONDS = 5.0
"""How long a message waits that failed and could not be given back. Java: submitConsumeRequestLater."""

Handler: TypeAlias = Callable[[ReceivedMessage], Any]
"""What handles a message: an async function, or a plain one, which is called in a worker thread.
When it returns, the message is done with; when it raises an Exception, it is delivered again later."""


class Handling:
    """Workers that take messages from the queues in turn. Java: ``ConsumeMessageConcurrentlyService``.

    A worker is a task that handles one message after the other; another one is woken, or started, only
    when there is more to do than those that run have taken up. So a handler that does not wait is called
    in a plain loop, and one that waits runs up to ``concurrency`` times at once.

    Args:
        nursery: where workers run.
        handle: the user's handler.
        concurrency: how many handlers may run at once.
        send_back: has the broker deliver a message again later.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        handle: Handler,
        concurrency: int,
        send_back: Callable[[ReceivedMessage], Awaitable[None]],
    ) -> None:
        self._nursery = nursery
        self._call = _as_async(handle, concurrency)
        self._concurrency = concurrency
        self._send_back = send_back
        # Queues that have messages waiting, each once; the first is served and goes to the end.
        self._ready: deque[ProcessQueue] = deque()
        self._workers = 0
        self._handling = 0
        self._idle = trio.lowlevel.ParkingLot()
        self._waking = False
        self._closed = False
        self._all_done = trio.Event()
        self._later: deque[tuple[float, ProcessQueue, ReceivedMessage]] = deque()
        self._more_later = trio.lowlevel.ParkingLot()
        nursery.start_soon(self._redeliver)

    @property
    def handling(self) -> int:
        """How many messages are being handled now."""
        return self._handling

    def offer(self, held: ProcessQueue) -> None:
        """Have the messages that wait in a queue handled."""
        if self._closed:
            return
        if not held.offered:
            held.offered = True
            self._ready.append(held)
        if not self._waking:
            self._wake()

    def close(self) -> None:
        """Hand out no more."""
        self._closed = True
        self._ready.clear()

    async def drain(self) -> None:
        """Hand out no more, and wait until nothing is being handled any more."""
        self.close()
        if self._handling:
            await self._all_done.wait()

    def _wake(self) -> None:
        """Get one more worker going, if there is one. It wakes the next if there is work for that too."""
        if self._idle:
            self._waking = True
            self._idle.unpark()
        elif self._workers < self._concurrency:
            self._waking = True
            self._workers += 1
            self._nursery.start_soon(self._work)

    async def _work(self) -> None:
        ready, call = self._ready, self._call
        self._waking = False
        until_yield = YIELD_EVERY
        while True:
            if not ready:
                await self._idle.park()
                self._waking = False
                until_yield = YIELD_EVERY
                continue
            held = ready[0]
            message = held.take()
            if message is None or not held.waiting:
                ready.popleft()
                held.offered = False
                if message is None:  # the queue has been dropped
                    continue
            else:
                ready.rotate(-1)
            if ready and not self._waking:
                self._wake()
            self._handling += 1
            try:
                if message.corruption is not None:
                    raise RocketMQError(f"its body cannot be read: {message.corruption}")
                await call(message)
            except Exception:
                logger.exception("handling %s failed", _describe(held, message))
                await self._failed(held, message)
            except BaseExceptionGroup as group:
                # The handler's own nursery was cancelled from outside while something in it failed.
                failures, rest = group.split(Exception)
                if failures is not None:
                    logger.error("handling %s failed", _describe(held, message), exc_info=failures)
                if rest is not None:
                    raise rest from None
            else:
                held.remove(message.queue_offset)
            finally:
                self._handling -= 1
                if self._closed and not self._handling:
                    self._all_done.set()
            until_yield -= 1
            if not until_yield:
                until_yield = YIELD_EVERY
                await trio.lowlevel.checkpoint()

    async def _failed(self, held: ProcessQueue, message: ReceivedMessage) -> None:
        """Give a message that failed back to the broker; if that fails too, keep it and try again here."""
        if held.dropped:
            return  # whoever has the queue now gets the message anyway
        try:
            await self._send_back(message)
        except RocketMQError as error:
            logger.warning(
                "%s not given back: %s; it is handled again here in %g s",
                _describe(held, message), error, RETRY_HERE_SECONDS,
            )  # fmt: skip
            again = attrs.evolve(message, reconsume_times=message.reconsume_times + 1)
            self._later.append((trio.current_time() + RETRY_HERE_SECONDS, held, again))
            self._more_later.unpark_all()
        else:
            held.remove(message.queue_offset)

    async def _redeliver(self) -> None:
        """Hand out again what failed and could not be given back, each when its time has come."""
        while True:
            if not self._later:
                await self._more_later.park()
                continue
            due, held, message = self._later.popleft()
            await trio.sleep_until(due)
            held.put_back(message)
            self.offer(held)


def _as_async(handle: Handler, concurrency: int) -> Callable[[ReceivedMessage], Awaitable[Any]]:
    if inspect.iscoroutinefunction(handle) or inspect.iscoroutinefunction(type(handle).__call__):
        return handle
    limiter = trio.CapacityLimiter(concurrency)

    def call_in_thread(message: ReceivedMessage) -> tuple[Any]:
        return (handle(message),)

    async def call(message: ReceivedMessage) -> None:
        (result,) = await trio.to_thread.run_sync(call_in_thread, message, limiter=limiter)
        if inspect.isawaitable(result):  # a plain function that calls an async one
            await result

    return call


def _describe(held: ProcessQueue, message: ReceivedMessage) -> str:
    queue = held.queue
    return (
        f"message {message.message_id} of topic {message.topic} "
        f"({queue.topic}, {queue.broker_name}, queue {queue.queue_id}, offset {message.queue_offset})"
    )
