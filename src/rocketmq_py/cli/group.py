"""How the commands are called: whatever is wrong with a command line is told in one line."""

from __future__ import annotations

import errno
import os
import sys
from typing import Any

import click

_SHOWS_HELP: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())
"""What click from 8.2 on raises for a command line with nothing on it; before, it showed the help itself."""
_CANNOT_WRITE = {errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF}


class OneLineErrors(click.Group):
    """A group whose usage errors are one line, ``rocketmq-py: …``, as all else that it says on stderr."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a command line, and exit; see ``click.Command.main``."""
        run: Any = super().main
        if not options.get("standalone_mode", True):
            return run(*args, **options)
        try:
            code = run(*args, **{**options, "standalone_mode": False})
        except click.ClickException as error:
            if isinstance(error, _SHOWS_HELP):
                error.show()
            else:
                _complain(error.format_message())
            sys.exit(error.exit_code)
        except OSError as error:
            if error.errno not in _CANNOT_WRITE:
                raise
            # What is left in the buffer must not fail once more when the interpreter ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if not isinstance(error, BrokenPipeError):
                _complain(f"cannot write the output: {error.strerror}")
            sys.exit(1)
        sys.exit(code)


def _complain(text: str) -> None:
    click.echo(f"rocketmq-py: {' '.join(text.split())}", err=True)
