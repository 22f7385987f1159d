"""Parsers for the values of options. A ValueError of theirs becomes a usage error: see :func:`checked`."""

from __future__ import annotations

import datetime
import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, TypeVar

import click

from rocketmq_py import arguments
from rocketmq_py.names import check_topic

if TYPE_CHECKING:
    from rocketmq_py.message import MessageQueue
    from rocketmq_py.position import Position

MAX_BODY_SIZE = 4 * 1024 * 1024
"""Bytes that brokers accept by default."""
_MAX_OFFSET = 2**63 - 1
MIN_INTERVAL = 0.1
"""Seconds between two outputs of a command that repeats them."""
TIMES = "2026-01-31T08:00 (local time without an offset), a duration such as 10m, and @MS"
"""The times that options accept. A duration counts from now, MS are epoch milliseconds."""
POSITIONS = f"earliest, latest, N (an offset), -N (the last N messages), {TIMES}"
"""The positions that options accept."""
POSITION_HELP = (
    "earliest, latest, N (offset in each queue), -N (last N of each queue), or a time (2026-01-31T08:00, "
    "@MS, or a duration before now such as 10m or 1d)"
)
"""The positions in the help of an option."""
_NUMBER = re.compile(r"[-+]?[0-9.]*")
"""A number without a unit. Where numbers are offsets, it is not a duration in seconds."""

Value = TypeVar("Value")


def checked(check: Callable[[str], Value]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return an option callback that passes the value, or each of several values, through ``check``.

    The message of a ValueError is shown to the user. An option that is not given stays None.
    """

    def callback(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
        try:
            if isinstance(value, tuple):
                return tuple([check(one) for one in value])
            return None if value is None else check(value)
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, param) from None

    return callback


def not_empty(text: str) -> str:
    """Return ``text``. Raises ValueError if it is blank."""
    if not text.strip():
        raise ValueError("it is empty: is a variable of the shell not set?")
    return text


def read_secret(text: str) -> str:
    """Return a secret, or the content of the file that ``@FILE`` names. Raises ValueError if it is empty."""
    if not text.startswith("@"):
        return not_empty(text)
    try:
        secret = Path(text[1:]).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ValueError(f"cannot read {text[1:]}: {reason}") from None
    if not secret:
        raise ValueError(f"{text[1:]} is empty")
    return secret


class InputFile(click.File):
    """The type of an option that names a file to read, or ``-`` for standard input."""

    def __init__(self) -> None:
        super().__init__("rb")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Open the file. See ``click.File.convert``, which ends with RuntimeError if stdin is closed."""
        try:
            return super().convert(value, param, ctx)
        except RuntimeError:
            self.fail("standard input is closed", param, ctx)


def read_file(file: IO[bytes]) -> bytes:
    """Return the content of an :class:`InputFile`. Raises click.UsageError if it cannot be read."""
    try:
        return file.read()
    except OSError as error:
        raise click.UsageError(f"cannot read {file.name}: {error.strerror or error}") from None


def parse_property(text: str) -> tuple[str, str]:
    """Return the name and value of ``NAME=VALUE``."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise ValueError(f"{text!r} is not NAME=VALUE")
    return name, value


def check_topic_or_pattern(text: str) -> str:
    """Return the name of a topic, or a pattern of names with ``*`` and ``?``."""
    check_topic(text.replace("*", "x").replace("?", "x"))
    return text


def compile_pattern(text: str) -> re.Pattern[bytes]:
    """Return a regular expression for bodies."""
    try:
        return re.compile(os.fsencode(text))
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from None


def parse_queue(text: str) -> tuple[str, int]:
    """Return the broker's name and the queue id of ``BROKER/N``."""
    broker, _, number = text.rpartition("/")
    if not broker or not re.fullmatch("[0-9]{1,6}", number, re.ASCII):
        raise ValueError(f"{text!r} is not BROKER/N, such as broker-a/0")
    return broker, int(number)


def check_addresses(text: str) -> str:
    """Return a list of name server addresses, or a URL that returns one."""
    not_empty(text)
    from rocketmq_py.client.settings import ClientSettings, name_servers

    name_servers(text, ClientSettings())
    return text


# Times and sizes


def parse_duration(text: str) -> float:
    """Return the seconds of ``7.3s``, ``250ms``, ``5m``, ``2h``, ``1d``, ``1h 30m`` or ``90``."""
    return arguments.parse_duration(text, bare_unit="s")


def parse_sizes(text: str) -> range:
    """Return the sizes of ``100``, or of the range ``100-4000``."""
    found = re.fullmatch("([0-9]{1,8})(?:-([0-9]{1,8}))?", text, re.ASCII)
    sizes = range(int(found[1]), int(found[2] or found[1]) + 1) if found else range(0)
    if not sizes or sizes[0] < 1 or sizes[-1] > MAX_BODY_SIZE:
        raise ValueError(f"{text!r} is neither a size from 1 to {MAX_BODY_SIZE} nor a range such as 100-4000")
    return sizes


def parse_interval(text: str) -> float:
    """Return the seconds of a duration that is at least MIN_INTERVAL."""
    seconds = parse_duration(text)
    if seconds < MIN_INTERVAL:
        raise ValueError(f"{text!r} is below {MIN_INTERVAL} s")
    return seconds


def parse_past_time(text: str) -> int:
    """Return the epoch milliseconds of a time: see TIMES. A duration counts back from now: ``10m`` ago."""
    return _parse_time(text, -1)


def parse_time_position(text: str) -> Position:
    """Return the position of a time: see :func:`parse_past_time`."""
    from rocketmq_py.position import Position

    return Position.time(parse_past_time(text))


def parse_future_time(text: str) -> int:
    """Return the epoch milliseconds of a time: see TIMES. A duration counts from now on: in ``10m``."""
    return _parse_time(text, 1)


def _parse_time(text: str, direction: int) -> int:
    if re.fullmatch("@[0-9]{1,18}", text, re.ASCII):
        return int(text[1:])
    with suppress(ValueError):
        return max(int((time.time() + direction * parse_duration(text)) * 1000), 0)
    try:
        return int(datetime.datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{text!r} is none of {TIMES}") from None


# Positions: `tail -o` and `group reset --to`


def parse_position(text: str) -> Position:
    """Return the position for a word, an offset, a number of last messages, or a time: see POSITIONS."""
    from rocketmq_py.position import WORDS, Position

    if (named := WORDS.get(text.lower())) is not None:
        return named
    if found := re.fullmatch(r"(-?)([0-9]{1,19})", text, re.ASCII):
        number = int(found[2])
        if number <= _MAX_OFFSET and (number or not found[1]):
            return Position.last(number) if found[1] else Position.offset(number)
    elif not _NUMBER.fullmatch(text):
        with suppress(ValueError):
            return Position.time(parse_past_time(text))
    raise ValueError(f"{text!r} is none of {POSITIONS}")


def read_offsets(file: IO[bytes], topic: str) -> dict[MessageQueue, int]:
    """Return the offsets in a file of JSON lines. Other fields of a line are ignored.

    Raises click.UsageError if it cannot be read, or for a line that is invalid.
    """
    import msgspec

    from rocketmq_py.message import MessageQueue

    not_negative = Annotated[int, msgspec.Meta(ge=0)]
    line_type = msgspec.defstruct(
        "Line", [("broker_name", str), ("queue_id", not_negative), ("queue_offset", not_negative)]
    )
    offsets = {}
    for number, text in enumerate(read_file(file).split(b"\n"), 1):
        if text.strip():
            try:
                line: Any = msgspec.json.decode(text, type=line_type)
            except msgspec.MsgspecError as error:
                raise click.UsageError(f"line {number} of the offsets: {error}") from None
            offsets[MessageQueue(topic, line.broker_name, line.queue_id)] = line.queue_offset
    return offsets
