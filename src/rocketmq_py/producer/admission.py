"""Admission control: bounds the sends in flight and their bytes. Further senders wait in FIFO order."""

from __future__ import annotations

from collections.abc import Callable

import trio

from rocketmq_py.errors import ClosedError

YIELD_EVERY = 128
"""A task whose sends never wait yields to other tasks after this many, about every two milliseconds."""


class Admission:
    """Bounds the number of sends in flight, and their bytes.

    A send larger than ``max_bytes`` waits until no other is in flight.

    Args:
        max_count: the largest number of sends in flight.
        max_bytes: the largest number of bytes in flight.
        on_full: called when a task starts to wait. It may free space.
        yield_every: a task whose sends never wait yields to other tasks after this many.

    Attributes:
        count: sends in flight.
        bytes: bytes in flight.
        has_waiters: whether tasks wait for space.
    """

    def __init__(
        self,
        max_count: float,
        max_bytes: int,
        on_full: Callable[[], None] | None = None,
        *,
        yield_every: int = YIELD_EVERY,
    ) -> None:
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._on_full = on_full
        self._waiting: dict[trio.lowlevel.Task, int] = {}
        self._is_closed = False
        self.has_waiters: bool = False
        self._until_yield = self._yield_every = yield_every
        self.count: int = 0
        self.bytes: int = 0

    def enter_nowait(self, size: int) -> bool:
        """Admit a send of ``size`` bytes if it need not wait. Return False otherwise: await :meth:`enter`."""
        if (
            self._until_yield
            and not self.has_waiters
            and ((self.count < self._max_count and self.bytes + size <= self._max_bytes) or not self.count)
        ):
            self._until_yield -= 1
            self.count += 1
            self.bytes += size
            return True
        return False

    async def enter(self, size: int) -> None:
        """Wait for space for a send of ``size`` bytes. If cancelled, the send is not admitted.

        Always a cancellation point. Yields to other tasks when it waits, and every ``yield_every`` sends.
        Raises ClosedError after :meth:`close`.
        """
        if self._is_closed:
            raise _closed_error()
        if self._until_yield:
            self._until_yield -= 1
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            self._until_yield = self._yield_every
            await trio.lowlevel.checkpoint()
            if self._is_closed:
                raise _closed_error()
        if self._waiting or not self._fits(size):
            await self._wait(size)
        else:
            self.count += 1
            self.bytes += size

    def leave(self, size: int, count: int = 1) -> None:
        """Release the space of ``count`` sends of ``size`` bytes in total."""
        self.count -= count
        self.bytes -= size
        if self.has_waiters:
            self._admit_waiters()

    def close(self) -> None:
        """Admit no more sends. Those that wait raise ClosedError."""
        self._is_closed = True
        self._until_yield = 0  # so that enter_nowait refuses
        for task in self._waiting:
            trio.lowlevel.reschedule(task)

    def _fits(self, size: int) -> bool:
        return not self.count or (self.count < self._max_count and self.bytes + size <= self._max_bytes)

    async def _wait(self, size: int) -> None:
        task = trio.lowlevel.current_task()
        self._waiting[task] = size
        self.has_waiters = True
        if self._on_full is not None:
            self._on_full()

        def abort(_: object) -> trio.lowlevel.Abort:
            del self._waiting[task]
            self._admit_waiters()  # a smaller send behind it may fit
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)
        if self._is_closed:
            if self._waiting.pop(task, None) is None:  # admitted before it was closed
                self.leave(size)
            raise _closed_error()

    def _admit_waiters(self) -> None:
        """Admit waiting sends in FIFO order, as long as the first one fits.

        The space is taken here, before the waiting task runs, so that no other task can take it first.
        """
        while self._waiting and not self._is_closed:
            task, size = next(iter(self._waiting.items()))
            if not self._fits(size):
                return
            del self._waiting[task]
            self.count += 1
            self.bytes += size
            trio.lowlevel.reschedule(task)
        self.has_waiters = False


def _closed_error() -> ClosedError:
    return ClosedError("the producer was closed before the send was written")
