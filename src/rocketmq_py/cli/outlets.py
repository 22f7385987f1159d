"""Where ``tail`` puts messages: standard output, files, or a command for each."""

from __future__ import annotations

import os
import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Protocol

import attrs
import trio

from rocketmq_py.cli.console import write_parts
from rocketmq_py.cli.file_names import variable_text
from rocketmq_py.cli.output import Output, stdout_closed
from rocketmq_py.cli.running import CommandError
from rocketmq_py.message import ReceivedMessage

MAX_OPEN_FILES = 256
"""Files that are open at the same time. The least recently used one is closed for another one."""


class Outlet(Protocol):
    """Takes messages, as bytes."""

    async def put(self, message: ReceivedMessage, parts: Sequence[bytes]) -> None:
        """Have ``parts`` written soon; wait only while too much is waiting already."""

    async def put_now(self, message: ReceivedMessage, parts: Sequence[bytes]) -> None:
        """Return when ``parts`` has been written."""

    async def flush(self) -> None:
        """Return when all has been written."""


OpenOutlet = Callable[[trio.Nursery], Outlet]
"""Returns an outlet that works until the nursery is cancelled."""


class Printed:
    """Standard output, until nobody reads it any more."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._output = Output(lambda parts: write_parts(sys.stdout, parts))
        nursery.start_soon(self._output.run)
        nursery.start_soon(self._end_when_closed)

    async def _end_when_closed(self) -> None:
        if await stdout_closed():
            await self._output.end()

    async def put(self, _: ReceivedMessage, parts: Sequence[bytes]) -> None:
        """See Outlet."""
        await self._output.print(parts)

    async def put_now(self, _: ReceivedMessage, parts: Sequence[bytes]) -> None:
        """See Outlet."""
        await self._output.print_now(parts)

    async def flush(self) -> None:
        """See Outlet."""
        await self._output.flush()


@attrs.frozen
class _OpenFile:
    output: Output
    file: FileIO
    writing: trio.CancelScope


class Files:
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
        """See Outlet."""
        output = await self._output_of(message)
        await output.print(parts)

    async def put_now(self, message: ReceivedMessage, parts: Sequence[bytes]) -> None:
        """See Outlet."""
        output = await self._output_of(message)
        await output.print_now(parts)

    async def flush(self) -> None:
        """See Outlet."""
        for opened in list(self._open.values()):
            await opened.output.flush()

    async def _output_of(self, message: ReceivedMessage) -> Output:
        """Return the output of a message's file. Print to it before a checkpoint, where it may close."""
        name = self._template(message)
        if name not in self._open:
            async with self._opening:
                if name not in self._open:
                    while len(self._open) >= self._max_open:
                        await self._close_oldest()
                    self._open[name] = self._opened(name)
                self._open.move_to_end(name)
                return self._open[name].output
        self._open.move_to_end(name)
        return self._open[name].output

    def _opened(self, name: str) -> _OpenFile:
        try:
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            file = open(name, "ab", buffering=0)  # noqa: SIM115  # closed when its task ends
        except OSError as error:
            raise CommandError(f"cannot write {name}: {error.strerror or error}") from error
        opened = _OpenFile(Output(lambda parts: file.write(b"".join(parts))), file, trio.CancelScope())
        self._nursery.start_soon(_write_and_close, opened)
        return opened

    async def _close_oldest(self) -> None:
        """Close the least recently used file, unless it is used while its output is flushed."""
        name, opened = next(iter(self._open.items()))
        await opened.output.flush()
        if opened.output.is_flushed:
            del self._open[name]
            opened.writing.cancel()
            opened.file.close()  # at once, so that the limit of open files holds


async def _write_and_close(opened: _OpenFile) -> None:
    with opened.file, opened.writing:
        await opened.output.run()


def _max_open_files() -> int:
    if sys.platform == "win32":
        return MAX_OPEN_FILES
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_OPEN_FILES if limit == resource.RLIM_INFINITY else max(1, min(MAX_OPEN_FILES, limit // 2))


_VARIABLES: dict[str, Callable[[ReceivedMessage], str]] = {
    "ROCKETMQ_MESSAGE_TOPIC": lambda message: message.topic,
    "ROCKETMQ_MESSAGE_ID": lambda message: message.message_id,
    "ROCKETMQ_MESSAGE_TAG": lambda message: message.tags,
    "ROCKETMQ_MESSAGE_KEYS": lambda message: " ".join(message.keys),
}


class Command:
    """Runs a shell command for each message, whose body is the command's standard input.

    Raises CommandError if the exit code of a command is not 0.
    """

    def __init__(self, command: str, _: trio.Nursery) -> None:
        self._command = command
        self._texts = {name: variable_text(name) for name in _VARIABLES}

    async def put(self, message: ReceivedMessage, parts: Sequence[bytes]) -> None:
        """Return when the command has ended."""
        variables = {
            name: self._texts[name].fit(message, [value(message)]) for name, value in _VARIABLES.items()
        }
        ended = await trio.run_process(
            ["/bin/sh", "-c", self._command],
            stdin=b"".join(parts),
            check=False,
            env={**os.environ, **variables},
        )
        if ended.returncode:
            raise CommandError(f"the command ended with {ended.returncode} for message {message.message_id}")

    async def put_now(self, message: ReceivedMessage, parts: Sequence[bytes]) -> None:
        """See :meth:`put`."""
        await self.put(message, parts)

    async def flush(self) -> None:
        """See Outlet."""


def to_files(template: Callable[[ReceivedMessage], str]) -> OpenOutlet:
    """Return what opens files."""
    return partial(Files, template)


def to_command(command: str) -> OpenOutlet:
    """Return what runs a command."""
    return partial(Command, command)
