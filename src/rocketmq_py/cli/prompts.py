"""Questions to the user of a terminal: confirmations and secrets."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from rocketmq_py.cli.console import complain, is_terminal


def confirm(action: str, *, yes: bool, warn: Callable[[], str | None] | None = None) -> None:
    """Ask for confirmation of a change that cannot be undone, unless ``yes``.

    Exits with code 1 if the user declines or ends the input. Raises click.UsageError if standard input is not
    a terminal.

    Args:
        action: the change, an imperative without a full stop.
        yes: whether the user has confirmed it on the command line.
        warn: returns a line about the change that is printed before the question, and also if ``yes``. None
            for none.
    """
    if not yes and not is_terminal(sys.stdin):
        raise click.UsageError(f"{action}: confirm with --yes, since standard input is not a terminal")
    if warn is not None and (warning := warn()):
        complain(warning)
    if yes:
        return
    with _ctrl_c_exits():
        try:
            confirmed = click.confirm(f"{action}?", err=True)
        except click.Abort:
            click.echo(err=True)  # the line of the question has no end yet
            raise
    if not confirmed:
        _cancel()


def ask_for_secret(text: str, **options: Any) -> str:
    """Ask for a secret, which the terminal does not show. ``options`` are those of ``click.prompt``.

    Exits with code 1 if the user ends the input.
    """
    with _ctrl_c_exits():
        return str(click.prompt(text, hide_input=True, err=True, **options))


@contextmanager
def _ctrl_c_exits() -> Iterator[None]:
    """Exit with code 130 at Ctrl-C, after the terminal shows its input again, and with 1 at Ctrl-D."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except click.Abort as error:
        # click raises the same error for both.
        if isinstance(error.__context__, KeyboardInterrupt):
            sys.exit(128 + signal.SIGINT)
        _cancel()
    finally:
        signal.signal(signal.SIGINT, previous)


def _cancel() -> None:
    complain("cancelled; nothing was changed")
    sys.exit(1)
