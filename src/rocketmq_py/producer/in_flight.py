"""The bound on pipelined sends that are under way."""

from __future__ import annotations

from typing import Any, TypeAlias

import trio

from rocketmq_py.producer.pending import Pending

AnyPending: TypeAlias = Pending[Any]

YIELD_EVERY = 64
"""A sender that always finds a place lets other tasks run after so many sends."""


class InFlight:
    """Places for pipelined sends: bounded in number and in bytes; senders wait in turn.

    Args:
        most: how many may be under way.
        most_bytes: how large their bodies may be together. One larger than that goes alone.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._sizes: dict[AnyPending, int] = {}
        self._bytes = 0
        self._waiting: dict[AnyPending, tuple[trio.lowlevel.Task, int]] = {}
        self._empty = trio.lowlevel.ParkingLot()
        self._until_yield = YIELD_EVERY

    def __len__(self) -> int:
        return len(self._sizes)

    @property
    def bytes(self) -> int:
        """How large the bodies under way are together."""
        return self._bytes

    async def enter(self, pending: AnyPending, size: int) -> None:
        """Take a place, waiting for one if there is none. When cancelled, none is taken.

        It is a cancellation point always, and lets other tasks run when it waits or now and then.
        """
        if self._waiting or not self._fits(size):
            await self._wait_for_place(pending, size)
            return
        if self._until_yield:
            self._until_yield -= 1
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            self._until_yield = YIELD_EVERY
            await trio.lowlevel.checkpoint()
        self._take(pending, size)

    def leave(self, pending: AnyPending) -> None:
        """Give a place back; nothing happens for one that was abandoned."""
        self._bytes -= self._sizes.pop(pending, 0)
        if self._waiting:
            self._admit()
        if not self._sizes:
            self._empty.unpark_all()

    async def all_left(self) -> None:
        """Wait until nothing is under way."""
        while self._sizes:
            await self._empty.park()

    def abandon(self) -> list[AnyPending]:
        """Give all places back at once, and return what still was under way."""
        left = list(self._sizes)
        self._sizes.clear()
        self._bytes = 0
        self._admit()
        return left

    def _fits(self, size: int) -> bool:
        if not self._sizes:
            return True
        return len(self._sizes) < self._most and self._bytes + size <= self._most_bytes

    def _take(self, pending: AnyPending, size: int) -> None:
        self._sizes[pending] = size
        self._bytes += size

    async def _wait_for_place(self, pending: AnyPending, size: int) -> None:
        self._waiting[pending] = (trio.lowlevel.current_task(), size)

        def abort(_: object) -> trio.lowlevel.Abort:
            del self._waiting[pending]
            self._admit()  # a smaller one behind it may fit
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def _admit(self) -> None:
        """Give places to those who wait, first come first served, as long as the first of them fits.

        The place is taken here, on the waiting task's behalf: nobody can slip in before it runs.
        """
        while self._waiting:
            pending, (task, size) = next(iter(self._waiting.items()))
            if not self._fits(size):
                return
            del self._waiting[pending]
            self._take(pending, size)
            trio.lowlevel.reschedule(task)
