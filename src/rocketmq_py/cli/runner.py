"""Runs the work of a command: signals, errors as one line, exit codes and logging."""

from __future__ import annotations

import gc
import logging
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NoReturn

import trio

from rocketmq_py.cli.console import complain
from rocketmq_py.errors import RocketMQError, TopicNotFoundError
from rocketmq_py.remoting.nurseries import leaves_of

if TYPE_CHECKING:
    from rocketmq_py.client import Client


class CommandError(Exception):
    """A command failed. The text is the line that the user sees."""


def run(work: Callable[[], Awaitable[object]]) -> signal.Signals | None:
    """Run ``work`` until it ends, or until SIGINT or SIGTERM cancels it. Return the signal.

    Further signals have no effect: closing is bounded, and terminals and shells may send a signal twice. A
    CommandError or RocketMQError is printed as one line, ``rocketmq-py: …``, and exits with code 1.
    """
    _log_to_stderr()
    _enable_garbage_collection()
    try:
        return trio.run(_until_signal, work)
    except (CommandError, RocketMQError, BaseExceptionGroup) as error:
        _exit_for(error)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


def run_offline(work: Callable[[], object]) -> None:
    """Run ``work``, which does not use the network. Its errors are handled as those of :func:`run`."""
    _enable_garbage_collection()
    try:
        work()
    except RocketMQError as error:
        _exit_for(error)


def exit_for_signal(caught: signal.Signals | None) -> None:
    """Exit with the code that shells use for a signal: 130 for SIGINT, 143 for SIGTERM."""
    if caught is not None:
        sys.exit(128 + caught)


async def wait_for_topic(client: Client, topic: str, *, wait: bool) -> bool:
    """Wait until a topic exists. Return whether it did not exist at first.

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


def log_warnings() -> None:
    """Log the library's warnings from now on, as a long-running command recovers from many errors.

    Before, only errors are logged: a command that fails at once prints a single line.
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


def _enable_garbage_collection() -> None:
    """Enable garbage collection, which ``__main__`` disables, and exclude the objects that exist by now."""
    gc.freeze()
    gc.enable()


def _exit_for(error: BaseException) -> NoReturn:
    """Print an error of the user or the cluster and exit. Raise any other exception, which is a bug."""
    causes = leaves_of(error)
    if any(isinstance(cause, KeyboardInterrupt) for cause in causes):
        sys.exit(128 + signal.SIGINT)
    for cause in causes:
        if isinstance(cause, OSError) and not isinstance(cause, RocketMQError):
            raise cause from None  # the output cannot be written: handled by OneLineErrors
        if not isinstance(cause, CommandError | RocketMQError):
            raise error
    complain(str(causes[0]))
    sys.exit(1)


class _OneLineFormatter(logging.Formatter):
    """Formats a record as one line, with the text of an exception instead of its traceback."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"rocketmq-py: {record.getMessage()}"
        if record.exc_info:
            line = f"{line}: {record.exc_info[1]}"
        return " ".join(line.splitlines())


def _log_to_stderr() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLineFormatter())
    logger = logging.getLogger("rocketmq_py")
    logger.setLevel(logging.ERROR)
    logger.addHandler(handler)
