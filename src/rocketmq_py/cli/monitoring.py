"""The output and exit codes of Nagios plugins, for the checks of ``rocketmq-py check``."""

from __future__ import annotations

import enum
import functools
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from rocketmq_py.cli.clusters import Access
from rocketmq_py.cli.console import print_out
from rocketmq_py.cli.tables import json_option

if TYPE_CHECKING:
    from rocketmq_py.admin import Admin

Function = TypeVar("Function", bound=Callable[..., Any])


class State(enum.IntEnum):
    """The result of a check. Its number is the exit code."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


class MonitoringGroup(click.Group):
    """A group whose usage errors exit with 3 for UNKNOWN, since the usual 2 means CRITICAL."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options of the group itself. See ``click.Group.parse_args``."""
        with _usage_errors_are_unknown():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Parse the options of a check and run it. See ``click.Group.invoke``."""
        with _usage_errors_are_unknown():
            return super().invoke(ctx)


@contextmanager
def _usage_errors_are_unknown() -> Iterator[None]:
    try:
        yield
    except click.UsageError as error:
        error.exit_code = State.UNKNOWN.value  # type: ignore[misc]  # of this error only
        raise


def format_options(function: Function) -> Function:
    """Add ``--json`` and ``--prometheus`` to a check, which receives ``output``. The default is Nagios."""

    @functools.wraps(function)
    def command(*args: Any, as_json: bool, prometheus: bool, **options: Any) -> Any:
        if as_json and prometheus:
            raise click.UsageError("give --json or --prometheus, not both")
        return function(
            *args, output="json" if as_json else "prometheus" if prometheus else "nagios", **options
        )

    prometheus_option = click.option(
        "--prometheus", is_flag=True, help="Print metrics for Prometheus instead of a line for Nagios."
    )
    wrapped: Any = json_option(prometheus_option(command))
    return wrapped  # type: ignore[no-any-return]


def run_check(
    access: Access, work: Callable[[Admin], Awaitable[State]], print_unknown: Callable[[str], None]
) -> NoReturn:
    """Run ``work`` with an Admin and exit with the code of its state.

    If it fails, or the Admin cannot be opened, print the reason and exit with the code of UNKNOWN.
    """
    from rocketmq_py.admin import Admin
    from rocketmq_py.cli.runner import exit_for_signal, run
    from rocketmq_py.errors import RocketMQError

    state = State.UNKNOWN

    async def open_and_work() -> None:
        nonlocal state
        try:
            async with Admin(access.name_servers, **access.client_options()) as admin:
                state = await work(admin)
        except RocketMQError as error:
            print_unknown(single_line(error))

    exit_for_signal(run(open_and_work))
    sys.exit(state)


def print_for_nagios(state: State, text: str, metrics: str = "") -> None:
    """Print a line for Nagios, where ``|`` separates the text from the metrics."""
    safe_text = text.replace("|", "/")  # names of groups and topics may contain |
    print_out(f"{state.name} - {safe_text}{f' | {metrics}' if metrics else ''}")


def single_line(error: object) -> str:
    """Return the text of an error as one line."""
    return " ".join(str(error).split())


def quoted(name: str) -> str:
    """Return a label's value for Prometheus."""
    return '"' + name.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") + '"'
