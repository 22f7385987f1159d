"""The command group of ``rocketmq-py``: one-line errors, and commands that are imported on use."""

from __future__ import annotations

import difflib
import errno
import importlib
import os
import sys
from collections.abc import Mapping
from typing import Any

import click

from rocketmq_py.cli.console import complain, guard_terminals

_NO_ARGUMENTS_ERROR: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())
"""Raised by click from 8.2 on for an empty command line. Older versions print the help themselves."""
_OUTPUT_ERRORS = {errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF}


class Utf8Text(click.types.StringParamType):
    """Text that can be encoded as UTF-8.

    Python decodes other bytes of the command line to surrogates, which cannot be encoded. The error does not
    quote the value, which may be a secret.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text. Raises click.BadParameter if it is not UTF-8."""
        text = super().convert(value, param, ctx)
        try:
            text.encode()
        except UnicodeEncodeError:
            self.fail("it is not UTF-8", param, ctx)
        return str(text)


UTF8_TEXT = Utf8Text()


class OneLineErrors(click.Group):
    """A group that prints usage errors as one line, ``rocketmq-py: …``."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a command line and exit. See ``click.Command.main``."""
        run: Any = super().main
        if not options.get("standalone_mode", True):
            return run(*args, **options)
        guard_terminals()
        try:
            code = run(*args, **{**options, "standalone_mode": False})
        except click.ClickException as error:
            if isinstance(error, _NO_ARGUMENTS_ERROR):
                error.show()
            else:
                complain(" ".join(f"{error.format_message()}{_hint_for_option(error)}".split()))
            sys.exit(error.exit_code)
        except OSError as error:
            if error.errno not in _OUTPUT_ERRORS:
                raise
            # Otherwise the interpreter would fail again at exit, when it flushes the buffer.
            if sys.stdout is not None:
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if not isinstance(error, BrokenPipeError):
                complain(f"cannot write the output: {error.strerror}")
            sys.exit(1)
        sys.exit(code)


def _hint_for_option(error: click.ClickException) -> str:
    """Return where to put an option that precedes a command's name. Groups only have ``--help``."""
    if isinstance(error, click.NoSuchOption) and error.ctx and isinstance(error.ctx.command, click.Group):
        return f" Options follow the command: {error.ctx.command_path} COMMAND {error.option_name} …"
    return ""


class LazyGroup(OneLineErrors):
    """A group whose commands are imported when they are called. ``--help`` imports none.

    Args:
        package: the package of the commands' modules.
        modules: the module and the help line of each command, by its name. In the module, the command has
            its own name, or the name of the module, as ``consumer_group`` has for ``group``.
    """

    def __init__(
        self, *args: Any, package: str, modules: Mapping[str, tuple[str, str]], **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._package = package
        self._modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands. See ``click.Group.list_commands``."""
        return sorted(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command. See ``click.Group.get_command``."""
        if cmd_name not in self._modules:
            return None
        # Fast path: only the called command is imported, saves 62 % of the CPU of `--help`.
        name, _ = self._modules[cmd_name]
        module = importlib.import_module(f"{self._package}.{name}")
        command: click.Command = getattr(module, cmd_name if hasattr(module, cmd_name) else name)
        _require_utf_8(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the nearest commands in the error for an unknown one. See ``click.Group.resolve_command``."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = [] if args[0].startswith("-") else difflib.get_close_matches(args[0], self._modules)
            if not near:
                raise
            advice = f"Did you mean {' or '.join(map(repr, near))}?"
            raise click.UsageError(f"{error.message} {advice}", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names and help lines of the commands. See ``click.Group.format_commands``."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in sorted(self._modules.items())])


def _require_utf_8(command: click.Command) -> None:
    """Make the text parameters of a command, and of its subcommands, refuse values that are not UTF-8.

    Parameters that accept any bytes, such as the body of a message, have the type click.UNPROCESSED.
    """
    for parameter in command.params:
        if parameter.type is click.STRING:
            parameter.type = UTF8_TEXT
    if isinstance(command, click.Group):
        for subcommand in command.commands.values():
            _require_utf_8(subcommand)
