"""Standard output: in large writes when much comes, at once when little does."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Sequence

import trio

from rocketmq_py.cli.running import CommandError

MOST_BUFFERED = 256 * 1024
"""Bytes that may wait for a slow reader before whoever prints has to wait as well."""


class OutputClosedError(Exception):
    """Whoever read the output has gone away, as ``head`` does: the end, but no error."""


class Output:
    """Collects what is printed while a write is under way, and writes it all in one go.

    Writes happen in a thread: a pager that nobody scrolls must not stop the heartbeats.

    Args:
        write: writes all parts, waiting as long as that takes; BrokenPipeError ends it.
    """

    def __init__(self, write: Callable[[Sequence[bytes]], object]) -> None:
        self._write = write
        self._waiting: list[bytes] = []
        self._size = 0
        self._begun = 0
        self._written = 0
        self._something = trio.lowlevel.ParkingLot()
        self._progress = trio.lowlevel.ParkingLot()

    async def run(self) -> None:
        """Write what is printed, until cancelled.

        Raises OutputClosedError when nobody reads it any more, CommandError when it cannot be written.
        """
        while True:
            if not self._waiting:
                await self._something.park()
            parts, self._waiting, self._size = self._waiting, [], 0
            begun = self._begun
            try:
                await trio.to_thread.run_sync(self._write, parts, abandon_on_cancel=True)
            except BrokenPipeError:
                raise OutputClosedError from None
            except OSError as error:
                raise CommandError(f"cannot write the output: {error.strerror or error}") from error
            self._written = begun
            self._progress.unpark_all()

    async def print(self, parts: Sequence[bytes]) -> None:
        """Have ``parts`` written soon; waits only while too much is waiting already."""
        self._waiting += parts
        self._size += sum(map(len, parts))
        self._begun += len(parts)
        self._something.unpark()
        while self._size > MOST_BUFFERED:
            await self._progress.park()

    async def print_now(self, parts: Sequence[bytes]) -> None:
        """Return when ``parts`` have been written."""
        await self.print(parts)
        await self.flush()

    async def flush(self) -> None:
        """Wait until all that was printed before this call has been written."""
        wanted = self._begun
        while self._written < wanted:
            await self._progress.park()

    @property
    def is_flushed(self) -> bool:
        """Whether all that was printed has been written."""
        return self._written == self._begun

    async def end(self) -> None:
        """Raise OutputClosedError, as nobody reads it any more; what was written before that counts.

        Who reads may go at once when the last bytes have come, and before whoever printed them has heard so.
        """
        # What is being written is neither waiting nor written. Not for long: it is taken now, or refused.
        while self._written + len(self._waiting) < self._begun:
            await self._progress.park()
        raise OutputClosedError


async def stdout_closed() -> bool:
    """Wait until the reader of standard output goes away; return False where the system does not tell.

    Linux does for a pipe. Without that, only the next write would notice, which on a quiet topic may
    never come.
    """
    if sys.platform != "linux" or sys.stdout is None:
        return False
    import fcntl

    fd = sys.stdout.fileno()
    writes_only = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY
    if not (stat.S_ISFIFO(os.fstat(fd).st_mode) and writes_only):
        return False
    # A pipe's writing end never has anything to read: what wakes this is the error condition.
    await trio.lowlevel.wait_readable(fd)
    return True
