"""The bound on what is under way: whoever finds no space waits in turn."""

from __future__ import annotations

from collections.abc import Callable

import trio

YIELD_EVERY = 128
"""About two milliseconds of pipelined sends."""


class Admission:
    """Bounds how many sends are under way, and their bytes. One that is larger than the bound goes alone.

    Args:
        most: how many may be under way.
        most_bytes: how many bytes they may have together.
        on_full: called when somebody begins to wait: it may make space.
        yield_every: a sender that always finds space lets other tasks run after so many sends.

    Attributes:
        count: how many are under way.
        bytes: how many bytes they have together.
        is_wanted: whether somebody waits.
    """

    def __init__(
        self,
        most: float,
        most_bytes: int,
        on_full: Callable[[], None] | None = None,
        *,
        yield_every: int = YIELD_EVERY,
    ) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._on_full = on_full
        self._waiting: dict[trio.lowlevel.Task, int] = {}
        self.is_wanted: bool = False
        self._until_yield = self._yield_every = yield_every
        self.count: int = 0
        self.bytes: int = 0

    def enter_nowait(self, size: int) -> bool:
        """Take space for one of so many bytes, if nothing has to be waited for; else :meth:`enter` is due."""
        if (
            self._until_yield
            and not self.is_wanted
            and ((self.count < self._most and self.bytes + size <= self._most_bytes) or not self.count)
        ):
            self._until_yield -= 1
            self.count += 1
            self.bytes += size
            return True
        return False

    async def enter(self, size: int) -> None:
        """Take space for one of so many bytes, waiting for it in turn. When cancelled, none is taken.

        It is a cancellation point always, and lets other tasks run when it waits or now and then.
        """
        if self._until_yield:
            self._until_yield -= 1
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            self._until_yield = self._yield_every
            await trio.lowlevel.checkpoint()
        if self.count and (self._waiting or self.count >= self._most or self.bytes + size > self._most_bytes):
            await self._wait(size)
        else:
            self.count += 1
            self.bytes += size

    def leave(self, size: int, count: int = 1) -> None:
        """Give back the space of so many that have so many bytes together."""
        self.count -= count
        self.bytes -= size
        if self.is_wanted:
            self.admit()

    def _fits(self, size: int) -> bool:
        return not self.count or (self.count < self._most and self.bytes + size <= self._most_bytes)

    async def _wait(self, size: int) -> None:
        task = trio.lowlevel.current_task()
        self._waiting[task] = size
        self.is_wanted = True
        if self._on_full is not None:
            self._on_full()

        def abort(_: object) -> trio.lowlevel.Abort:
            del self._waiting[task]
            self.admit()  # a smaller one behind it may fit
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def admit(self) -> None:
        """Give space to those who wait, first come first served, as long as the first of them fits.

        It is taken here, on the waiting task's behalf: nobody can slip in before it runs.
        """
        while self._waiting:
            task, size = next(iter(self._waiting.items()))
            if not self._fits(size):
                return
            del self._waiting[task]
            self.count += 1
            self.bytes += size
            trio.lowlevel.reschedule(task)
        self.is_wanted = False
