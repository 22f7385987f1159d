"""Where ``send`` gets the bodies of its messages from: the lines of a stream, or one body again and again."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from typing import Protocol

import trio

from rocketmq_py.cli.running import CommandError

LONGEST_LINE = 4 * 1024 * 1024
"""Bytes; what the producer and, by default, brokers take. A stream without newlines must not fill memory."""
_BATCH = 1024
_CHUNK = 64 * 1024


class Bodies(Protocol):
    """Bodies to send, handed out in batches."""

    empty: int
    """Lines that were left out as they were empty."""
    too_long: int
    """Lines that were left out as they were longer than LONGEST_LINE."""

    @property
    def fraction(self) -> float | None:
        """How much of all has been handed out, from 0 to 1; None if nobody knows how much there is."""

    async def next_batch(self) -> list[bytes]:
        """Return some more; an empty list at the end."""


class Repeated:
    """One body, ``count`` times."""

    empty = 0
    too_long = 0

    def __init__(self, body: bytes, count: int) -> None:
        self._body = body
        self._count = count
        self._left = count

    @property
    def fraction(self) -> float | None:
        """How much has been handed out."""
        return 1 - self._left / self._count

    async def next_batch(self) -> list[bytes]:
        """Return some more."""
        await trio.lowlevel.checkpoint()
        size = min(self._left, _BATCH)
        self._left -= size
        return [self._body] * size


class Lines:
    r"""The lines of a stream that are not empty, without their ``\n``, as soon as each has come.

    Args:
        read: returns the next bytes of the stream, waiting until there are some; none at its end.
            It runs in a thread, so it may block; a cancellation leaves it behind there.
        count: the most lines to hand out; None for all.
        size: the bytes of the whole stream, if that is known.
    """

    def __init__(
        self, read: Callable[[], bytes], *, count: int | None = None, size: int | None = None
    ) -> None:
        self.empty: int = 0
        self.too_long: int = 0
        self._read = read
        self._count = count
        self._left = count
        self._size = size
        self._bytes_read = 0
        self._unfinished: list[bytes] = []
        self._unfinished_size = 0
        self._ended = False

    @property
    def fraction(self) -> float | None:
        """How much has been handed out: of ``count``, else of ``size``."""
        if self._count and self._left is not None:
            return 1 - self._left / self._count
        return min(self._bytes_read / self._size, 1.0) if self._size else None

    async def next_batch(self) -> list[bytes]:
        """Return the lines that have come; waits for one. Raises CommandError if the stream fails."""
        while not self._ended and self._left != 0:
            try:
                data = await trio.to_thread.run_sync(self._read, abandon_on_cancel=True)
            except OSError as error:
                raise CommandError(f"cannot read the messages: {error.strerror or error}") from error
            self._bytes_read += len(data)
            self._ended = not data
            lines = self._lines(data) if data else self._end()
            if self._left is not None:
                lines = lines[: self._left]
                self._left -= len(lines)
            if lines:
                return lines
        return []

    def _lines(self, data: bytes) -> list[bytes]:
        head, *rest = data.split(b"\n")
        if not rest:
            self._keep(head)
            return []
        pieces = [*self._finish(head), *rest[:-1]]
        self._keep(rest[-1])
        lines = [piece for piece in pieces if piece]
        self.empty += len(pieces) - len(lines)
        return lines

    def _end(self) -> list[bytes]:
        """Return the last line, if no newline ended it."""
        return self._finish(b"") if self._unfinished_size else []

    def _keep(self, piece: bytes) -> None:
        self._unfinished_size += len(piece)
        if self._unfinished_size > LONGEST_LINE:
            self._unfinished.clear()
        else:
            self._unfinished.append(piece)

    def _finish(self, piece: bytes) -> list[bytes]:
        """Return the line that ``piece`` ends, or nothing when it is too long."""
        self._keep(piece)
        line, size = b"".join(self._unfinished), self._unfinished_size
        self._unfinished, self._unfinished_size = [], 0
        if size > LONGEST_LINE:
            self.too_long += 1
            return []
        return [line]


def lines_of_stdin(count: int | None = None) -> Lines:
    """Return the lines of standard input, at most ``count`` of them."""
    if sys.stdin is None:
        return Lines(_closed)
    fd = sys.stdin.fileno()
    status = os.fstat(fd)
    size = status.st_size if stat.S_ISREG(status.st_mode) else None
    return Lines(lambda: os.read(fd, _CHUNK), count=count, size=size)


def _closed() -> bytes:
    raise OSError("standard input is closed")
