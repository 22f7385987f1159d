"""Parsers for the values of options. A ValueError of theirs becomes a usage error: see :func:`checked`."""

from __future__ import annotations

import datetime
import enum
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, TypeVar

import attrs
import click

from rocketmq_py.names import check_topic

if TYPE_CHECKING:
    from rocketmq_py.admin import ResetTo
    from rocketmq_py.consumer import StartPosition
    from rocketmq_py.message import MessageQueue

MAX_BODY_SIZE = 4 * 1024 * 1024
"""Bytes that brokers accept by default."""
_MAX_OFFSET = 2**63 - 1
_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

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
    from rocketmq_py.client.config import ClientConfig, name_servers

    name_servers(text, ClientConfig())
    return text


# Times and sizes


def parse_duration(text: str) -> float:
    """Return the seconds of ``7.3s``, ``250ms``, ``5m``, ``2h``, ``1d`` or ``90``."""
    found = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)(ms|s|m|h|d|)", text, re.ASCII)
    if found is None:
        raise ValueError(f"{text!r} is not a duration such as 250ms, 7.3s, 5m, 2h or 1d")
    return float(found[1]) * _SECONDS[found[2]]


def parse_sizes(text: str) -> range:
    """Return the sizes of ``100``, or of the range ``100-4000``."""
    found = re.fullmatch("([0-9]{1,8})(?:-([0-9]{1,8}))?", text, re.ASCII)
    sizes = range(int(found[1]), int(found[2] or found[1]) + 1) if found else range(0)
    if not sizes or sizes[0] < 1 or sizes[-1] > MAX_BODY_SIZE:
        raise ValueError(f"{text!r} is neither a size from 1 to {MAX_BODY_SIZE} nor a range such as 100-4000")
    return sizes


def parse_past_time(text: str) -> int:
    """Return the epoch milliseconds of ``@MS``, or of a duration before now such as ``10m``."""
    if re.fullmatch("@[0-9]{1,18}", text, re.ASCII):
        return int(text[1:])
    try:
        ago = parse_duration(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is neither @MS (epoch milliseconds) nor a duration before now such as 10m"
        ) from None
    return max(int((time.time() - ago) * 1000), 0)


def parse_time(text: str) -> int:
    """Return the epoch milliseconds of ``@MS``, or of a time such as ``2026-01-31T08:00``.

    A time without an offset is in this machine's time zone.
    """
    if re.fullmatch("@[0-9]{1,15}", text, re.ASCII):
        return int(text[1:])
    try:
        return int(datetime.datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise ValueError(
            f"{text!r} is neither @MS (epoch milliseconds) nor a time such as 2026-01-31T08:00"
        ) from None


# Positions: `tail -o`


class Position(enum.Enum):
    """The meaning of an offset's number."""

    BEGINNING = "beginning"
    END = "end"
    OFFSET = "offset"
    LAST = "last"
    TIMESTAMP = "timestamp"


@attrs.frozen
class Offset:
    """A value of ``tail -o``.

    Attributes:
        position: the meaning of ``number``.
        number: an offset, a number of messages, or epoch milliseconds.
        end_ms: the time to end at, epoch milliseconds. None for no end.
    """

    position: Position
    number: int = 0
    end_ms: int | None = None

    def start(self) -> StartPosition:
        """Return the library's value."""
        from rocketmq_py.consumer import StartPosition

        match self.position:
            case Position.BEGINNING:
                return StartPosition.BEGINNING
            case Position.END:
                return StartPosition.END
            case Position.OFFSET:
                return StartPosition.offset(self.number)
            case Position.LAST:
                return StartPosition.last(self.number)
            case Position.TIMESTAMP:
                return StartPosition.at(self.number)


def parse_offset(text: str) -> Offset:
    """Return the offset for ``beginning``, ``end``, ``N``, ``-N``, ``@TIMESTAMP_MS`` or ``@T1..@T2``."""
    if text in (Position.BEGINNING.value, Position.END.value):
        return Offset(Position(text))
    if found := re.fullmatch(r"@([0-9]{1,18})\.\.@([0-9]{1,18})", text):
        begin_ms, end_ms = int(found[1]), int(found[2])
        if begin_ms > end_ms:
            raise ValueError(f"{text!r} ends before it begins")
        return Offset(Position.TIMESTAMP, begin_ms, end_ms)
    found = re.fullmatch(r"([-@]?)([0-9]{1,19})", text)
    number = int(found[2]) if found else -1
    if found is None or number > _MAX_OFFSET or (found[1] == "-" and number == 0):
        raise ValueError(f"{text!r} is none of beginning, end, N, -N, @TIMESTAMP_MS and @T1..@T2")
    position = {"": Position.OFFSET, "-": Position.LAST, "@": Position.TIMESTAMP}[found[1]]
    return Offset(position, number)


# Reset targets: `group reset --to` and `--file`


@attrs.frozen
class ResetTarget:
    """A value of ``group reset --to``.

    Attributes:
        kind: ``earliest``, ``latest``, ``time`` or ``offset``.
        number: epoch milliseconds or an offset.
    """

    kind: str
    number: int = 0

    def reset_to(self) -> ResetTo:
        """Return the library's value."""
        from rocketmq_py.admin import ResetTo

        match self.kind:
            case "earliest":
                return ResetTo.earliest()
            case "latest":
                return ResetTo.latest()
            case "time":
                return ResetTo.at(self.number)
            case _:
                return ResetTo.offset(self.number)


def parse_reset_target(text: str) -> ResetTarget:
    """Return the target for ``earliest``, ``latest``, ``@MS`` or ``OFFSET``."""
    if text in ("earliest", "latest"):
        return ResetTarget(text)
    found = re.fullmatch(r"(@?)([0-9]{1,19})", text)
    if found is None or int(found[2]) > _MAX_OFFSET:
        raise ValueError(f"{text!r} is none of earliest, latest, @MS and OFFSET")
    return ResetTarget("time" if found[1] else "offset", int(found[2]))


def read_offsets(file: IO[bytes], topic: str) -> dict[MessageQueue, int]:
    """Return the offsets in a file of JSON lines. Other fields of a line are ignored.

    Raises click.UsageError if it cannot be read, or for a line that is invalid.
    """
    import msgspec

    from rocketmq_py.message import MessageQueue

    not_negative = Annotated[int, msgspec.Meta(ge=0)]
    line_type = msgspec.defstruct(
        "Line", [("broker", str), ("queue", not_negative), ("offset", not_negative)]
    )
    offsets = {}
    for number, text in enumerate(read_file(file).split(b"\n"), 1):
        if text.strip():
            try:
                line: Any = msgspec.json.decode(text, type=line_type)
            except msgspec.MsgspecError as error:
                raise click.UsageError(f"line {number} of the offsets: {error}") from None
            offsets[MessageQueue(topic, line.broker, line.queue)] = line.offset
    return offsets
