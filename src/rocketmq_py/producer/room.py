"""A bound on bytes: whoever wants more than are left waits in turn."""

from __future__ import annotations

import trio


class Room:
    """Bytes that may be held at once. One who wants more than there are altogether gets them alone.

    Args:
        size: how many bytes there are.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._taken = 0
        self._waiting: dict[trio.lowlevel.Task, int] = {}

    @property
    def taken(self) -> int:
        """How many bytes are held."""
        return self._taken

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits."""
        return bool(self._waiting)

    def take_nowait(self, size: int) -> bool:
        """Take so many bytes, if they are left and nobody waits. False if not."""
        taken = self._taken
        if self._waiting or (taken and taken + size > self._size):
            return False
        self._taken = taken + size
        return True

    async def take(self, size: int) -> None:
        """Wait in turn for so many bytes, and take them. When cancelled, none are taken."""
        task = trio.lowlevel.current_task()
        self._waiting[task] = size

        def abort(_: object) -> trio.lowlevel.Abort:
            del self._waiting[task]
            self._admit()  # a smaller wish behind it may fit
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def give(self, size: int) -> None:
        """Give so many bytes back."""
        self._taken -= size
        if self._waiting:
            self._admit()

    def _admit(self) -> None:
        """Give bytes to those who wait, as long as the first of them can have them.

        They are taken here, on the waiting task's behalf: nobody can slip in before it runs.
        """
        while self._waiting:
            task, size = next(iter(self._waiting.items()))
            if self._taken and self._taken + size > self._size:
                return
            del self._waiting[task]
            self._taken += size
            trio.lowlevel.reschedule(task)
