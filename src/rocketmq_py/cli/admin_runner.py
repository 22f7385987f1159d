"""Runs commands that use ``Admin``: partial failures and ``--watch``."""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar

import click

from rocketmq_py.admin import SomeBrokersFailedError
from rocketmq_py.cli.clusters import Access
from rocketmq_py.cli.console import CLEAR_SCREEN, complain, is_terminal
from rocketmq_py.cli.tables import NEXT_PREFIX, WATCH_INTERVAL
from rocketmq_py.errors import RocketMQError, UnsupportedByBrokerError

if TYPE_CHECKING:
    from rocketmq_py.admin import Admin

Failures: TypeAlias = Mapping[str, RocketMQError]
Work: TypeAlias = "Callable[[Admin], Awaitable[Failures | None]]"
Result = TypeVar("Result")


def run_admin(access: Access, work: Work) -> None:
    """Run ``work`` with an Admin, and exit. With ``--watch`` run it repeatedly until a signal.

    ``work`` prints the results and returns the errors of brokers that failed. Each is printed as a line on
    standard error, and the exit code is 1 if there are any.
    """
    from rocketmq_py.admin import Admin
    from rocketmq_py.cli.runner import exit_for_signal, run

    failures: dict[str, RocketMQError] = {}
    context = click.get_current_context()
    seconds: float | None = context.meta.get(WATCH_INTERVAL)

    def prepare_screen() -> None:
        if is_terminal(sys.stdout):
            heading = f"every {seconds:g} s: {time.strftime('%H:%M:%S')}\n\n"
            context.meta[NEXT_PREFIX] = [CLEAR_SCREEN, heading]

    async def open_and_work() -> None:
        async with Admin(access.address, **access.client_options()) as admin:
            if seconds is not None:
                await watch(lambda: work(admin), seconds, prepare_screen)
            failures.update(await work(admin) or {})

    exit_for_signal(run(open_and_work))
    for name, error in failures.items():
        complain(f"{name}: {error}")
    sys.exit(1 if failures else 0)


def query_admin(access: Access, query: Callable[[Admin], Awaitable[Result]]) -> Result:
    """Return the result of a query that precedes a question to the user. Exits as :func:`run_admin` does.

    The question follows the query, because Ctrl-C does not end a question inside of it.
    """
    from rocketmq_py.admin import Admin
    from rocketmq_py.cli.runner import exit_for_signal, run

    results: list[Result] = []

    async def open_and_query() -> None:
        async with Admin(access.address, **access.client_options()) as admin:
            results.append(await query(admin))

    exit_for_signal(run(open_and_query))
    return results[0]


async def watch(
    work: Callable[[], Awaitable[Mapping[str, RocketMQError] | None]],
    seconds: float,
    before_each: Callable[[], None],
) -> NoReturn:
    """Run ``work`` every ``seconds`` until cancelled. Errors are printed. In the first run they propagate."""
    import trio

    is_first = True
    while True:
        before_each()
        try:
            for name, error in (await work() or {}).items():
                complain(f"{name}: {error}")
        except RocketMQError as error:
            if is_first:
                raise
            complain(str(error))
        is_first = False
        await trio.sleep(seconds)


async def partial_result(change: Awaitable[Result]) -> tuple[Result | Mapping[str, Any], Failures]:
    """Return the result of a change, or the results and errors by broker if it failed on some of them.

    Raises the error of the change if it failed on all of them.
    """
    try:
        return await change, {}
    except SomeBrokersFailedError as error:
        if not error.done:
            raise
        return error.answers, error.failures


def failure_texts(failures: Mapping[str, RocketMQError]) -> dict[str, str]:
    """Return errors as a JSON object."""
    return {name: str(error) for name, error in failures.items()}


def print_not_offered(parts: Mapping[str, UnsupportedByBrokerError]) -> None:
    """Print a line on standard error for each part of a result that a service does not offer."""
    for part, error in parts.items():
        complain(f"not shown: {part}. {error}. The console of a managed service shows more")
