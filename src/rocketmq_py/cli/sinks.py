"""Sinks of ``tail``: standard output, files, or a command for each message."""

from __future__ import annotations

import os
import stat
import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence
from io import FileIO
from pathlib import Path
from typing import Protocol

import attrs
import trio

from rocketmq_py.cli.console import write_all, write_parts
from rocketmq_py.cli.file_names import variable_escaper
from rocketmq_py.cli.runner import CommandError, hide_cut_off
from rocketmq_py.message import ReceivedMessage

MAX_BUFFERED = 256 * 1024
"""Bytes in the buffer of a writer above which callers wait."""
MAX_OPEN_FILES = 256
"""Files that are open at the same time. The least recently used one is closed for another one."""


class OutputClosedError(Exception):
    """The reader of the output has closed it, as ``head`` does. This is a regular end."""


class BufferedWriter:
    """Buffers output while a write is in progress, then writes all of it at once.

    Writes run in a thread: a pager that is not scrolled must not block the heartbeats.

    Args:
        write: writes all parts, and may block. BrokenPipeError means that the output is closed.
        name: the output, for errors.
    """

    def __init__(self, write: Callable[[Sequence[bytes]], object], name: str = "the output") -> None:
        self._write = write
        self._name = name
        self._buffer: list[bytes] = []
        self._size = 0
        self._accepted = 0
        self._written = 0
        self._not_empty = trio.lowlevel.ParkingLot()
        self._progress = trio.lowlevel.ParkingLot()

    async def run(self) -> None:
        """Write buffered output until cancelled.

        Raises OutputClosedError if the output is closed, and CommandError if a write fails.
        """
        while True:
            if not self._buffer:
                await self._not_empty.park()
            parts, self._buffer, self._size = self._buffer, [], 0
            accepted = self._accepted
            try:
                await trio.to_thread.run_sync(self._write, parts, abandon_on_cancel=True)
            except BrokenPipeError:
                hide_cut_off()
                raise OutputClosedError from None
            except OSError as error:
                raise CommandError(f"cannot write {self._name}: {error.strerror or error}") from error
            self._written = accepted
            self._progress.unpark_all()

    async def write(self, parts: Sequence[bytes]) -> None:
        """Buffer ``parts``. Waits only while more than MAX_BUFFERED bytes are buffered."""
        self._buffer += parts
        self._size += sum(map(len, parts))
        self._accepted += len(parts)
        self._not_empty.unpark()
        while self._size > MAX_BUFFERED:
            await self._progress.park()

    async def write_now(self, parts: Sequence[bytes]) -> None:
        """Return once ``parts`` have been written."""
        await self.write(parts)
        await self.flush()

    async def flush(self) -> None:
        """Wait until all parts that are buffered now have been written."""
        target = self._accepted
        while self._written < target:
            await self._progress.park()

    @property
    def is_flushed(self) -> bool:
        """Whether all parts have been written."""
        return self._written == self._accepted

    async def raise_closed(self) -> None:
        """Raise OutputClosedError once the write in progress has succeeded or failed.

        A reader may close its end right after it received the last bytes, before the writer has counted them.
        """
        # Parts in progress are neither buffered nor written. The system accepts or refuses them at once.
        while self._written + len(self._buffer) < self._accepted:
            await self._progress.park()
        hide_cut_off()
        raise OutputClosedError


async def stdout_closed() -> bool:
    """Wait until the reader of standard output closes it. Return False if the system does not report that.

    Linux reports it for pipes. Otherwise only the next write fails, which may be never on a quiet topic.
    """
    if sys.platform != "linux" or sys.stdout is None:
        return False
    import fcntl

    fd = sys.stdout.fileno()
    writes_only = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY
    if not (stat.S_ISFIFO(os.fstat(fd).st_mode) and writes_only):
        return False
    # The writing end of a pipe never has data to read. Only the error condition wakes this up.
    await trio.lowlevel.wait_readable(fd)
    return True


class Sink(Protocol):
    """Receives rendered messages."""

    async def put(self, message: ReceivedMessage, parts: Sequence[bytes]) -> None:
        """Accept ``parts`` for writing. Waits only while too much is buffered."""

    async def put_now(self, message: ReceivedMessage, parts: Sequence[bytes]) -> None:
        """Return once ``parts`` have been written."""

    async def flush(self) -> None:
        """Return once everything has been written."""


OpenSink = Callable[[trio.Nursery], Sink]
"""Returns a sink that works until the nursery is cancelled."""


class StdoutSink:
    """Writes messages to standard output until its reader closes it."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._writer = BufferedWriter(lambda parts: write_parts(sys.stdout, parts))
        nursery.start_soon(self._writer.run)
        nursery.start_soon(self._end_when_closed)

    async def _end_when_closed(self) -> None:
        if await stdout_closed():
            await self._writer.raise_closed()

    async def put(self, _: ReceivedMessage, parts: Sequence[bytes]) -> None:
        """See :class:`Sink`."""
        await self._writer.write(parts)

    async def put_now(self, _: ReceivedMessage, parts: Sequence[bytes]) -> None:
        """See :class:`Sink`."""
        await self._writer.write_now(parts)

    async def flush(self) -> None:
        """See :class:`Sink`."""
        await self._writer.flush()


@attrs.frozen
class _OpenFile:
    writer: BufferedWriter
    file: FileIO
    writing: trio.CancelScope


class FileSink:
    """Appends messages to files that are named after the messages' attributes.

    At most :data:`MAX_OPEN_FILES`, or half of the process's limit, are open at the same time.

    Args:
        template: returns the name of a message's file.
        nursery: runs the tasks that write.

    Raises CommandError if a file cannot be opened or written.
    """

    def __init__(self, template: Callable[[ReceivedMessage], str], nursery: trio.Nursery) -> None:
        self._template = template
        self._nursery = nursery
        self._max_open = _max_open_files()
        self._open: OrderedDict[str, _OpenFile] = OrderedDict()
        self._opening = trio.Lock()

    async def put(self, message: ReceivedMessage, parts: Sequence[bytes]) -> None:
        """See :class:`Sink`."""
        writer = await self._writer_of(message)
        await writer.write(parts)

    async def put_now(self, message: ReceivedMessage, parts: Sequence[bytes]) -> None:
        """See :class:`Sink`."""
        writer = await self._writer_of(message)
        await writer.write_now(parts)

    async def flush(self) -> None:
        """See :class:`Sink`."""
        for opened in list(self._open.values()):
            await opened.writer.flush()

    async def _writer_of(self, message: ReceivedMessage) -> BufferedWriter:
        """Return the writer of a message's file. Write to it before a checkpoint, where it may close."""
        name = self._template(message)
        if name not in self._open:
            async with self._opening:
                if name not in self._open:
                    while len(self._open) >= self._max_open:
                        await self._close_oldest()
                    self._open[name] = await self._opened(name)
                self._open.move_to_end(name)
                return self._open[name].writer
        self._open.move_to_end(name)
        return self._open[name].writer

    async def _opened(self, name: str) -> _OpenFile:
        try:
            # In a thread, because opening a named pipe waits for its reader.
            file = await trio.to_thread.run_sync(_open_to_append, name, abandon_on_cancel=True)
        except OSError as error:
            raise CommandError(f"cannot write {name}: {error.strerror or error}") from error
        writer = BufferedWriter(lambda parts: write_all(file, b"".join(parts)), name)
        opened = _OpenFile(writer, file, trio.CancelScope())
        self._nursery.start_soon(_write_and_close, opened)
        return opened

    async def _close_oldest(self) -> None:
        """Close the least recently used file, unless it is used while its writer is flushed."""
        name, opened = next(iter(self._open.items()))
        await opened.writer.flush()
        if opened.writer.is_flushed:
            del self._open[name]
            opened.writing.cancel()
            opened.file.close()  # at once, so that the limit of open files holds


def _open_to_append(name: str) -> FileIO:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    return open(name, "ab", buffering=0)


async def _write_and_close(opened: _OpenFile) -> None:
    with opened.file, opened.writing:
        await opened.writer.run()


def _max_open_files() -> int:
    if sys.platform == "win32":
        return MAX_OPEN_FILES
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_OPEN_FILES if limit == resource.RLIM_INFINITY else max(1, min(MAX_OPEN_FILES, limit // 2))


_VARIABLES: dict[str, Callable[[ReceivedMessage], str]] = {
    "ROCKETMQ_MESSAGE_TOPIC": lambda message: message.topic,
    "ROCKETMQ_MESSAGE_ID": lambda message: message.message_id,
    "ROCKETMQ_MESSAGE_TAGS": lambda message: message.tags,
    "ROCKETMQ_MESSAGE_KEYS": lambda message: " ".join(message.keys),
}


class CommandSink:
    """Runs a shell command for each message, with the message as its standard input.

    Raises CommandError if the exit code of a command is not 0.
    """

    def __init__(self, command: str, _: trio.Nursery) -> None:
        self._command = command
        self._escapers = {name: variable_escaper(name) for name in _VARIABLES}

    async def put(self, message: ReceivedMessage, parts: Sequence[bytes]) -> None:
        """Return once the command has exited."""
        variables = {
            name: self._escapers[name].fit(message, [value(message)]) for name, value in _VARIABLES.items()
        }
        completed = await trio.run_process(
            ["/bin/sh", "-c", self._command],
            stdin=b"".join(parts),
            check=False,
            env={**os.environ, **variables},
        )
        if completed.returncode:
            raise CommandError(
                f"the command failed with exit code {completed.returncode} for message {message.message_id}"
            )

    async def put_now(self, message: ReceivedMessage, parts: Sequence[bytes]) -> None:
        """See :meth:`put`."""
        await self.put(message, parts)

    async def flush(self) -> None:
        """See :class:`Sink`. Every command has exited already."""
