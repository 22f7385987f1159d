"""Workers: the tasks that take messages from the queues and have them handled."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, Generic, TypeVar

import trio

from rocketmq_py.consumer.group.hooks import ConsumerHook, ConsumerHooks
from rocketmq_py.consumer.pull.message_buffer import MessageBuffer
from rocketmq_py.consumer.push.invoker import Invoker

logger: Final = logging.getLogger("rocketmq_py.consumer")

Buffer = TypeVar("Buffer", bound=MessageBuffer)

YIELD_EVERY = 32
"""A worker whose handler never waits lets other tasks run after so many calls of it."""


class Dispatch(Generic[Buffer]):
    """Tasks that serve the queues in turn; what serving is, subclasses say.

    A worker handles one message after the other; another one is woken, or started, only when there is more
    to do than those that run have taken. So a handler that does not wait is called in a plain loop, and
    one that waits runs up to ``concurrency`` times at once.

    Args:
        nursery: where workers run.
        invoker: calls the handler.
        concurrency: how many calls may be under way at once.
        hooks: called around each call of the handler; None for none.

    Attributes:
        thread_grace: seconds that calls in threads have to end once the nursery is cancelled.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        invoker: Invoker,
        *,
        concurrency: int,
        hooks: ConsumerHooks | None = None,
    ) -> None:
        self.thread_grace: float = 0.0
        self._nursery = nursery
        self._invoker = invoker
        self._concurrency = concurrency
        self._hooks = hooks
        self._hooked: Sequence[ConsumerHook] = () if hooks is None else hooks.all
        # Queues that have messages waiting, each once; the first is served next.
        self._ready: deque[Buffer] = deque()
        self._worker_count = 0
        self._handling = 0
        self._idle = trio.lowlevel.ParkingLot()
        self._waking = False
        self._closed = False
        self._all_done = trio.Event()
        if not invoker.is_async:
            nursery.start_soon(self._see_threads_off)

    @property
    def handling(self) -> int:
        """How many calls are under way now."""
        return self._handling

    def offer(self, buffer: Buffer) -> None:
        """Have the messages that wait in a queue handled."""
        if self._closed:
            return
        if not buffer.offered:
            buffer.offered = True
            self._ready.append(buffer)
        if self._ready and not self._waking:
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
        elif self._worker_count < self._concurrency:
            self._waking = True
            self._worker_count += 1
            self._nursery.start_soon(self._work)

    async def _call_hooked(self, buffer: Buffer, item: Any) -> Any:
        """Call the handler with an item of a queue, and hooks around it."""
        assert self._hooks is not None
        return await self._hooks.call(self._invoker.call, buffer.queue, item)

    async def _work(self) -> None:
        """Serve queues until cancelled: the life of a worker."""
        raise NotImplementedError

    def _look_whether_all_is_done(self) -> None:
        if not self._handling:
            self._all_done.set()

    async def _see_threads_off(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self.close()  # nothing more is begun where a call ends
            with trio.move_on_after(self.thread_grace, shield=True):
                await self._invoker.until_no_thread_runs()
            self._invoker.abandon()
