"""Standard output and standard error: everything that a command prints goes through here.

A broker, a name server or the sender of a message chooses much of the printed text. On a terminal, control
characters in it could rename the window, clear the screen or hide text. :func:`guard_terminals` therefore
replaces both streams where they are terminals. Text that this package, click, logging or a traceback writes
to them then passes :func:`escape`. Only :class:`Control` parts are exempt. Pipes and files get every byte
unchanged.
"""

from __future__ import annotations

import contextlib
import errno
import io
import re
import select
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

SHOW_AFTER = 1.0
"""Seconds after which a long operation shows its progress."""
REFRESH_EVERY = 0.2
"""Seconds between two updates of the progress."""
_BAR_WIDTH = 30
_CONTROL_CHARACTERS = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""C0 controls except tab and newline, DEL, C1 controls, line separators and bidirectional overrides."""


class Control(bytes):
    """A control sequence of the program or its user, which is written to a terminal unchanged."""


BOLD = Control(b"\x1b[1m")
NORMAL = Control(b"\x1b[0m")
CLEAR_SCREEN = Control(b"\x1b[H\x1b[2J")
LINE_START = Control(b"\r")


def escape(text: str) -> str:
    r"""Return ``text`` with each control character written as in JSON: ``\u001b``, ``\r``.

    Tabs and newlines stay. JSON stays valid JSON with the same meaning.
    """
    return _CONTROL_CHARACTERS.sub(lambda found: rf"\u{ord(found[0]):04x}".replace(r"\u000d", r"\r"), text)


def escape_line(text: str) -> str:
    r"""Return ``text`` as :func:`escape` does, with tabs and newlines escaped as well: ``\t``, ``\n``."""
    return escape(text).replace("\t", r"\t").replace("\n", r"\n")


class TerminalStream(io.TextIOWrapper):
    """A standard stream on a terminal, where control characters appear escaped."""

    def __init__(self, stream: TextIO) -> None:
        self.raw: Any = _raw_of(stream)
        super().__init__(
            _EscapingBuffer(self.raw, stream.encoding),
            encoding=stream.encoding,
            errors="backslashreplace",
            newline="",
            line_buffering=True,
        )


class _EscapingBuffer(io.BufferedIOBase):
    """The bytes of a :class:`TerminalStream`. Bytes that are not text appear as ``\\xNN``."""

    def __init__(self, raw: Any, encoding: str) -> None:
        self.name = "<terminal>"
        self._raw = raw
        self._encoding = encoding

    def write(self, data: ReadableBuffer) -> int:
        written = bytes(data)
        write_all(self._raw, _escaped(written, self._encoding))
        return len(written)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return int(self._raw.fileno())

    def isatty(self) -> bool:
        return True


def guard_terminals() -> None:
    """Replace standard output and error, where they are terminals, by streams that escape."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and stream.isatty() and not isinstance(stream, TerminalStream):
            setattr(sys, name, TerminalStream(stream))


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether ``stream`` is open and a terminal."""
    return stream is not None and stream.isatty()


def write_parts(stream: TextIO | None, parts: Iterable[str | bytes]) -> None:
    """Write ``parts`` to ``stream`` at once; on a terminal all of them but Control appear escaped.

    Raises OSError if the stream is closed or fails.
    """
    if stream is None:
        raise OSError(errno.EBADF, "standard output is closed")
    stream.flush()
    encoding = stream.encoding
    if isinstance(stream, TerminalStream):
        pieces = [
            part if isinstance(part, Control) else _escaped(_encoded(part, encoding), encoding)
            for part in parts
        ]
    else:
        pieces = [_encoded(part, encoding) for part in parts]
    write_all(_raw_of(stream), b"".join(pieces))


def print_out(text: str, *, end: str = "\n") -> None:
    """Print ``text`` to standard output at once. Raises OSError if that fails."""
    write_parts(sys.stdout, [text, end])


def complain(text: str) -> None:
    """Print one line, ``rocketmq-py: …``, to standard error."""
    print_line(sys.stderr, f"rocketmq-py: {text}")


def print_line(stream: TextIO | None, text: str) -> None:
    """Print ``text`` as one line, with newlines replaced by blanks. A closed stream is no error."""
    if stream is None:
        return
    # One write, so that the lines of several programs do not mix.
    with contextlib.suppress(OSError):
        stream.write(" ".join(text.splitlines()) + "\n")
        stream.flush()


def progress_line(count: int, seconds: float, fraction: float | None) -> str:
    """Return the progress line for ``count`` messages sent in ``seconds``.

    Args:
        count: messages sent so far.
        seconds: time spent so far.
        fraction: share of the whole, 0 to 1. The line has a bar for it, if it is known.
    """
    rate = f"{count} sent, {count / seconds:.0f}/s" if seconds > 0 else f"{count} sent"
    if fraction is None:
        return rate
    filled = int(fraction * _BAR_WIDTH)
    return f"[{'#' * filled}{'-' * (_BAR_WIDTH - filled)}] {fraction:4.0%}  {rate}"


async def keep_line(stream: TextIO, text: Callable[[float], str]) -> None:
    """Keep a line on a terminal up to date until cancelled, and remove it then.

    Args:
        stream: the terminal.
        text: returns the line; called with the seconds since the start.
    """
    import trio

    started = trio.current_time()
    await trio.sleep(SHOW_AFTER)
    width = 0
    try:
        while True:
            line = text(trio.current_time() - started)
            width = max(width, len(line))
            write_parts(stream, [LINE_START, f"{line:<{width}}"])
            await trio.sleep(REFRESH_EVERY)
    finally:
        write_parts(stream, [LINE_START, " " * width, LINE_START])


def _escaped(data: bytes, encoding: str) -> bytes:
    return escape(data.decode(encoding, "backslashreplace")).encode(encoding, "backslashreplace")


def _encoded(part: str | bytes, encoding: str) -> bytes:
    return part.encode(encoding, "backslashreplace") if isinstance(part, str) else part


def _raw_of(stream: TextIO) -> Any:
    """Return the unbuffered stream of bytes below a stream of text."""
    if isinstance(stream, TerminalStream):
        return stream.raw
    buffer: Any = stream.buffer
    return getattr(buffer, "raw", buffer)


def write_all(raw: Any, data: bytes) -> None:
    """Write all bytes, also where another program has made the terminal or pipe non-blocking."""
    view = memoryview(data)
    while view:
        written = raw.write(view)
        if written is None:
            select.select([], [raw], [])
        else:
            view = view[written:]
