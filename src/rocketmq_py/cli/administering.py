"""Runs what administers a cluster, and says what some brokers did not do."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping

import click

from rocketmq_py.admin import Admin
from rocketmq_py.cli.access import Access
from rocketmq_py.cli.running import complain, end_for_signal, run
from rocketmq_py.errors import RocketMQError


def administer(
    access: Access, work: Callable[[Admin], Awaitable[Mapping[str, RocketMQError] | None]]
) -> None:
    """Have ``work`` done, which returns the errors of brokers that others made up for, and exit.

    The exit code is 1 if there are any; each is a line on stderr.
    """
    failures: dict[str, RocketMQError] = {}

    async def open_and_work() -> None:
        async with Admin(access.name_servers, **access.client_options()) as admin:
            failures.update(await work(admin) or {})

    end_for_signal(run(open_and_work))
    for name, error in failures.items():
        complain(f"{name}: {error}")
    sys.exit(1 if failures else 0)


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
    if sys.stdin is None or not sys.stdin.isatty():
        raise click.UsageError(f"{what}: this needs --yes, as nobody can be asked here")
    if not click.confirm(f"{what}?", err=True):
        complain("nothing was done")
        sys.exit(1)
