"""Where ``tail`` puts messages: standard output, files, or a command for each."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

import trio

from rocketmq_py.cli.console import write_parts
from rocketmq_py.cli.output import Output, stdout_closed
from rocketmq_py.cli.running import CommandError
from rocketmq_py.message import ReceivedMessage

MOST_FILES = 256
"""That are written at the same time: a key in their name must not use up all that a process may open."""


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


class Files:
    """Files to whose ends messages are written; each message's attributes say which.

    Args:
        template: returns the name of a message's file.
        nursery: where they are written.

    Raises CommandError for what cannot be opened or written.
    """

    def __init__(self, template: Callable[[ReceivedMessage], str], nursery: trio.Nursery) -> None:
        self._template = template
        self._nursery = nursery
        self._outputs: dict[str, Output] = {}

    async def put(self, message: ReceivedMessage, parts: Sequence[bytes]) -> None:
        """See Outlet."""
        await self._output_of(message).print(parts)

    async def put_now(self, message: ReceivedMessage, parts: Sequence[bytes]) -> None:
        """See Outlet."""
        await self._output_of(message).print_now(parts)

    async def flush(self) -> None:
        """See Outlet."""
        for output in self._outputs.values():
            await output.flush()

    def _output_of(self, message: ReceivedMessage) -> Output:
        name = self._template(message)
        output = self._outputs.get(name)
        if output is None:
            if len(self._outputs) == MOST_FILES:
                raise CommandError(f"there are {MOST_FILES} files already, and one more is wanted: {name}")
            try:
                Path(name).parent.mkdir(parents=True, exist_ok=True)
                file = open(name, "ab", buffering=0)  # noqa: SIM115  # closed when its task ends
            except OSError as error:
                raise CommandError(f"cannot write {name}: {error.strerror or error}") from error
            output = self._outputs[name] = Output(lambda parts: file.write(b"".join(parts)))
            self._nursery.start_soon(_run_and_close, output, file.close)
        return output


async def _run_and_close(output: Output, close: Callable[[], None]) -> None:
    try:
        await output.run()
    finally:
        close()


class Command:
    """A command of the shell that is run for each message, which it gets on its standard input.

    Raises CommandError if it ends with anything but 0.
    """

    def __init__(self, command: str, _: trio.Nursery) -> None:
        self._command = command

    async def put(self, message: ReceivedMessage, parts: Sequence[bytes]) -> None:
        """Return when the command has ended."""
        told = {
            "ROCKETMQ_MESSAGE_TOPIC": message.topic,
            "ROCKETMQ_MESSAGE_ID": message.message_id,
            "ROCKETMQ_MESSAGE_TAG": message.tags,
            "ROCKETMQ_MESSAGE_KEYS": " ".join(message.keys),
        }
        ended = await trio.run_process(
            ["/bin/sh", "-c", self._command], stdin=b"".join(parts), check=False, env={**os.environ, **told}
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
