"""Runs what administers a cluster, and says what some brokers did not do."""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NoReturn, TypeAlias, TypeVar

import click
import trio

from rocketmq_py.admin import Admin
from rocketmq_py.cli.access import Access
from rocketmq_py.cli.console import CLEAR_SCREEN, complain, is_terminal
from rocketmq_py.cli.running import end_for_signal, run
from rocketmq_py.cli.sheet import BEFORE, WATCH
from rocketmq_py.errors import RocketMQError, SomeBrokersFailedError

Failures: TypeAlias = Mapping[str, RocketMQError]
Work: TypeAlias = Callable[[Admin], Awaitable[Failures | None]]
Done = TypeVar("Done")


def administer(access: Access, work: Work) -> None:
    """Have ``work`` done, which returns the errors of brokers that others made up for, and exit.

    The exit code is 1 if there are any; each is a line on stderr. With ``--watch`` it is done until a signal
    comes.
    """
    failures: dict[str, RocketMQError] = {}
    context = click.get_current_context()
    seconds: float | None = context.meta.get(WATCH)

    def before_each() -> None:
        if is_terminal(sys.stdout):
            heading = f"every {seconds:g} s: {time.strftime('%H:%M:%S')}\n\n"
            context.meta[BEFORE] = [CLEAR_SCREEN, heading]

    async def open_and_work() -> None:
        async with Admin(access.name_servers, **access.client_options()) as admin:
            if seconds is not None:
                await watch(lambda: work(admin), seconds, before_each)
            failures.update(await work(admin) or {})

    end_for_signal(run(open_and_work))
    for name, error in failures.items():
        complain(f"{name}: {error}")
    sys.exit(1 if failures else 0)


async def watch(
    work: Callable[[], Awaitable[Mapping[str, RocketMQError] | None]],
    seconds: float,
    before_each: Callable[[], None],
) -> NoReturn:
    """Do ``work`` again and again until cancelled. Errors are told; only the first time they end it."""
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


async def as_far_as_done(change: Awaitable[Done]) -> tuple[Done | Mapping[str, Any], Failures]:
    """Return what a change returned; or what the brokers answered that made it, and the others' errors.

    Raises what the change raises if nobody made it.
    """
    try:
        return await change, {}
    except SomeBrokersFailedError as error:
        if not error.done:
            raise
        return error.answers, error.failures


def told(failures: Mapping[str, RocketMQError]) -> dict[str, str]:
    """Return errors as JSON has them."""
    return {name: str(error) for name, error in failures.items()}


def ask_first(what: str, *, yes: bool) -> None:
    """Ask whether something that cannot be undone is wanted; go on only if it is.

    Raises:
        click.UsageError: nobody can be asked, and there is no --yes.
        click.Abort: it is not wanted.
    """
    if yes:
        return
    if not is_terminal(sys.stdin):
        raise click.UsageError(f"{what}: this needs --yes, as nobody can be asked here")
    if not click.confirm(f"{what}?", err=True):
        complain("nothing was done")
        sys.exit(1)
