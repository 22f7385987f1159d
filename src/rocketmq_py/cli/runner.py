"""Runs the work of a command: signals, errors as one line, exit codes and logging."""

from __future__ import annotations

import gc
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import trio

from rocketmq_py.cli.console import complain
from rocketmq_py.errors import RocketMQError, TopicNotFoundError
from rocketmq_py.remoting.nurseries import leaves_of

if TYPE_CHECKING:
    from rocketmq_py.client import ClientCore
    from rocketmq_py.consumer import PushConsumer
    from rocketmq_py.consumer.push.handler import Handler

HANDLER_SECONDS = 1.0
"""Seconds that running handlers have to end after SIGINT or SIGTERM."""
REPEATED_SECONDS = 0.5
"""Seconds after a signal in which another one counts as the same. Terminals and shells may send one twice."""
_consumers: list[PushConsumer] = []
"""Consumers that run, which a signal stops."""
_blocks: list[trio.CancelScope] = []
"""Blocks that the first signal ends, instead of cancelling all work. See :func:`until_signal`."""


class CommandError(Exception):
    """A command failed. The text is the line that the user sees."""


def run(work: Callable[[], Awaitable[object]]) -> signal.Signals | None:
    """Run ``work`` until it ends, or until SIGINT or SIGTERM cancels it. Return the signal.

    If it runs consumers, the signal stops them and cancels ``work`` :data:`HANDLER_SECONDS` later.

    Further signals have no effect, because closing is bounded, except after :func:`until_signal`. A
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


async def wait_for_topic(client: ClientCore, topic: str, *, wait: bool) -> bool:
    """Wait until a topic exists. Return whether it did not exist at first.

    Raises CommandError if it does not exist and ``wait`` is not set.
    """
    try:
        await client.routes.find(topic)
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


async def consume(consumer: PushConsumer, handler: Handler) -> None:
    """Call ``handler`` for the messages of a consumer until it is stopped or cancelled. A signal stops it."""
    _consumers.append(consumer)
    try:
        await consumer.run(handler)
    finally:
        _consumers.remove(consumer)


@contextmanager
def until_signal() -> Iterator[None]:
    """End the block at a signal. A second signal cancels the work that follows it, such as closing."""
    with trio.CancelScope() as scope:
        _blocks.append(scope)
        try:
            yield
        finally:
            _blocks.remove(scope)


def hide_cut_off() -> None:
    """Do not log handlers that are cut off from now on.

    For a regular end of a command, when all handlers that still run wait to begin with their message, or
    print it to an output that is closed. The group gets these messages again.
    """
    logging.getLogger("rocketmq_py.consumer").addFilter(
        lambda record: not str(record.msg).startswith("handler cut off")
    )


async def _until_signal(work: Callable[[], Awaitable[object]]) -> signal.Signals | None:
    caught: signal.Signals | None = None
    working = trio.CancelScope()

    async def cancel_on_signal(*, task_status: trio.TaskStatus[None]) -> None:
        nonlocal caught
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            task_status.started()
            async for number in signals:
                if caught is None:
                    caught, caught_at = signal.Signals(number), trio.current_time()
                    if not _blocks:
                        working.deadline = caught_at + (HANDLER_SECONDS if _consumers else 0)
                    for consumer in _consumers:
                        consumer.stop()
                    for block in _blocks:
                        block.cancel()
                elif trio.current_time() >= caught_at + REPEATED_SECONDS:
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
    for earlier in list(logger.handlers):
        if isinstance(earlier.formatter, _OneLineFormatter):  # of a query before a question to the user
            logger.removeHandler(earlier)
    logger.addHandler(handler)
