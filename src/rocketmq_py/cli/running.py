"""How every command runs: its errors become one line, and signals end it in good order."""

from __future__ import annotations

import gc
import logging
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NoReturn

import trio

from rocketmq_py.cli.console import complain
from rocketmq_py.errors import RocketMQError, TopicNotFoundError, leaves_of

if TYPE_CHECKING:
    from rocketmq_py.client import Client


class CommandError(Exception):
    """Why a command cannot do what was asked; its text is the line that the user sees."""


def run(work: Callable[[], Awaitable[object]]) -> signal.Signals | None:
    """Run ``work`` until it ends, or until SIGINT or SIGTERM cancels it: then return that signal.

    Further signals change nothing: closing is bounded, and terminals and shells like to send them twice.
    A CommandError or RocketMQError is printed as one line, ``rocketmq-py: …``, and ends the program with
    exit code 1.
    """
    _log_to_stderr()
    _collect_garbage()
    try:
        return trio.run(_until_signal, work)
    except (CommandError, RocketMQError, BaseExceptionGroup) as error:
        _end_for(error)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


def run_here(work: Callable[[], object]) -> None:
    """Do ``work``, which talks to nobody; its errors end the program as those of :func:`run` do."""
    _collect_garbage()
    try:
        work()
    except RocketMQError as error:
        _end_for(error)


def end_for_signal(caught: signal.Signals | None) -> None:
    """Exit as a shell expects of a program that a signal ended: 130 for SIGINT, 143 for SIGTERM."""
    if caught is not None:
        sys.exit(128 + caught)


async def wait_for_topic(client: Client, topic: str, *, wait: bool) -> bool:
    """Return once a topic exists, and whether it had to be waited for.

    Raises CommandError if it does not exist and ``wait`` is not set.
    """
    try:
        await client.routes.get(topic)
    except TopicNotFoundError as error:
        if not wait:
            raise CommandError(f"{error}; --wait waits until it is created") from None
        complain(f"{error}; waiting until it is created")
        await client.routes.wait_for(topic)
        return True
    return False


def show_warnings() -> None:
    """Print the library's warnings from now on: a long-running command tells of faults that it goes on from.

    Before that only its end is told, in one line.
    """
    logging.getLogger("rocketmq_py").setLevel(logging.WARNING)


async def _until_signal(work: Callable[[], Awaitable[object]]) -> signal.Signals | None:
    caught: signal.Signals | None = None
    working = trio.CancelScope()

    async def cancel_on_signal(*, task_status: trio.TaskStatus[None]) -> None:
        nonlocal caught
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            task_status.started()
            async for number in signals:
                caught = caught or signal.Signals(number)
                working.cancel()

    async with trio.open_nursery() as nursery:
        await nursery.start(cancel_on_signal)
        with working:
            await work()
        nursery.cancel_scope.cancel()
    return caught


def _collect_garbage() -> None:
    """Do so from now on; what is loaded by now is no garbage, and was not searched for any: see __main__."""
    gc.freeze()
    gc.enable()


def _end_for(error: BaseException) -> NoReturn:
    """Print what the user can do something about and exit; raise anything else: it is a bug."""
    causes = leaves_of(error)
    if any(isinstance(cause, KeyboardInterrupt) for cause in causes):
        sys.exit(128 + signal.SIGINT)
    for cause in causes:
        if isinstance(cause, OSError) and not isinstance(cause, RocketMQError):
            raise cause from None  # output that cannot be written: who calls commands knows what to say
        if not isinstance(cause, CommandError | RocketMQError):
            raise error
    complain(str(causes[0]))
    sys.exit(1)


class _OneLine(logging.Formatter):
    """Names an exception where others would print its traceback."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"rocketmq-py: {record.getMessage()}"
        if record.exc_info:
            line = f"{line}: {record.exc_info[1]}"
        return " ".join(line.splitlines())


def _log_to_stderr() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine())
    logger = logging.getLogger("rocketmq_py")
    logger.setLevel(logging.ERROR)
    logger.addHandler(handler)
