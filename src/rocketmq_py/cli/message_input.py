"""The messages that ``send`` sends: bodies from the command line or standard input, with their fields.

With ``--json``, they are lines of JSON with the names of :class:`~rocketmq_py.Message`.
"""

from __future__ import annotations

import base64
import itertools
import os
import random
import re
import stat
import sys
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Protocol

import attrs
import msgspec
import trio

from rocketmq_py.cli.runner import CommandError
from rocketmq_py.errors import InvalidMessageError
from rocketmq_py.message import Message
from rocketmq_py.property_names import SHARDING_KEY

MAX_LINE_SIZE = 4 * 1024 * 1024
"""Bytes that the producer and, by default, brokers accept. Bounds memory for input without newlines."""
_BATCH_SIZE = 1024
_CHUNK_SIZE = 64 * 1024
_TOKEN = re.compile(rb"\{(n|time_ms|time|random)\}")


# Bodies


class BodySource(Protocol):
    """Bodies to send, in batches."""

    empty: int
    """Empty lines that were skipped."""
    too_long: int
    """Lines longer than MAX_LINE_SIZE, which were skipped."""

    @property
    def fraction(self) -> float | None:
        """The share of bodies that has been returned, 0 to 1. None if the total is unknown."""

    async def next_batch(self) -> list[bytes]:
        """Return the next bodies. An empty list is the end."""


class RepeatedBody:
    """The same body ``count`` times."""

    empty = 0
    too_long = 0

    def __init__(self, body: bytes, count: int) -> None:
        self._body = body
        self._count = count
        self._left = count

    @property
    def fraction(self) -> float | None:
        """See :class:`BodySource`."""
        return 1 - self._left / self._count

    async def next_batch(self) -> list[bytes]:
        """See :class:`BodySource`."""
        await trio.lowlevel.checkpoint()
        size = min(self._left, _BATCH_SIZE)
        self._left -= size
        return [self._body] * size


class LineBodies:
    r"""The non-empty lines of a stream, without their ``\n``, as soon as each arrives.

    Args:
        read: returns the next bytes of the stream, or ``b""`` at its end. It runs in a thread, so it may
            block. A cancellation abandons the thread.
        count: the maximum number of lines. None for all.
        size: the size of the stream in bytes, if it is known.
    """

    def __init__(
        self, read: Callable[[], bytes], *, count: int | None = None, size: int | None = None
    ) -> None:
        self.empty: int = 0
        self.too_long: int = 0
        self._read = read
        self._count = count
        self._left = count
        self._size = size
        self._bytes_read = 0
        self._partial_line: list[bytes] = []
        self._partial_size = 0
        self._ended = False

    @property
    def fraction(self) -> float | None:
        """See :class:`BodySource`. Relative to ``count``, or to ``size`` without a count."""
        if self._count and self._left is not None:
            return 1 - self._left / self._count
        return min(self._bytes_read / self._size, 1.0) if self._size else None

    async def next_batch(self) -> list[bytes]:
        """See :class:`BodySource`. Waits for at least one line. Raises CommandError if the stream fails."""
        while not self._ended and self._left != 0:
            try:
                data = await trio.to_thread.run_sync(self._read, abandon_on_cancel=True)
            except OSError as error:
                raise CommandError(f"cannot read the messages: {error.strerror or error}") from error
            self._bytes_read += len(data)
            self._ended = not data
            lines = self._split(data) if data else self._last_line()
            if self._left is not None:
                lines = lines[: self._left]
                self._left -= len(lines)
            if lines:
                return lines
        return []

    def _split(self, data: bytes) -> list[bytes]:
        head, *rest = data.split(b"\n")
        if not rest:
            self._append(head)
            return []
        pieces = [self._complete_line(head), *rest[:-1]]
        self._append(rest[-1])
        self.empty += pieces.count(b"")
        return self._bodies(pieces)

    def _last_line(self) -> list[bytes]:
        """Return the last line if it does not end with a newline."""
        return self._bodies([self._complete_line(b"")]) if self._partial_size else []

    def _bodies(self, lines: list[bytes | None]) -> list[bytes]:
        """Return the lines that are neither empty nor, as None, too long."""
        return [line for line in lines if line]

    def _append(self, piece: bytes) -> None:
        self._partial_size += len(piece)
        if self._partial_size > MAX_LINE_SIZE:
            self._partial_line.clear()
        else:
            self._partial_line.append(piece)

    def _complete_line(self, piece: bytes) -> bytes | None:
        """Return the line that ends with ``piece``, or None if it is too long."""
        self._append(piece)
        line, size = b"".join(self._partial_line), self._partial_size
        self._partial_line, self._partial_size = [], 0
        if size > MAX_LINE_SIZE:
            self.too_long += 1
            return None
        return line


def lines_of_stdin(count: int | None = None) -> LineBodies:
    """Return the lines of standard input, at most ``count``."""
    if sys.stdin is None:
        return LineBodies(_read_closed_stdin)
    return LineBodies(read_stdin, count=count, size=size_of_stdin())


def read_stdin() -> bytes:
    """Return the next bytes of standard input."""
    return os.read(sys.stdin.fileno(), _CHUNK_SIZE)


def size_of_stdin() -> int | None:
    """Return the size of the file that is standard input. None for a pipe or a terminal."""
    status = os.fstat(sys.stdin.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _read_closed_stdin() -> bytes:
    raise OSError("standard input is closed")


# Messages


@attrs.frozen(kw_only=True)
class MessageFields:
    """The fields of all messages, without the body.

    Attributes:
        topic: the topic.
        tags: the tag.
        keys: the keys.
        properties: the user's properties.
        delay: seconds until delivery.
        deliver_at_ms: time of delivery, epoch milliseconds. 0 for immediate delivery.
        sharding_key: the key that selects the queue.
        priority: the priority, for brokers from 5.4.0 on. None for none.
        lite_topic: the lite topic, for brokers from 5.5.0 on.
    """

    topic: str
    tags: str = ""
    keys: tuple[str, ...] = ()
    properties: Mapping[str, str] = attrs.field(factory=dict)
    delay: float = 0.0
    deliver_at_ms: int = 0
    sharding_key: str = ""
    priority: int | None = None
    lite_topic: str = ""

    def message(self, body: bytes) -> Message:
        """Return the message with this body. Raises InvalidMessageError if it is invalid."""
        return Message(
            self.topic,
            body,
            self.tags,
            self.keys,
            self.properties,
            delay=self.delay,
            deliver_at_ms=self.deliver_at_ms,
            sharding_key=self.sharding_key,
            priority=self.priority,
            lite_topic=self.lite_topic,
        )


def template_messages(
    fields: MessageFields, *, rng: random.Random, now: Callable[[], float] = time.time
) -> Callable[[bytes], Message]:
    """Return a function that makes messages, and replaces tokens in them.

    Tokens are replaced in the body, the keys, the sharding key and the lite topic.
    ``{n}`` is a counter from 1. ``{time_ms}`` and ``{time}`` are the current time. ``{random}`` is a number
    of 8 hex digits. All tokens of one message have the same values.
    """
    numbers = itertools.count(1)

    def make(body: bytes) -> Message:
        moment = now()
        values = {
            b"n": b"%d" % next(numbers),
            b"time_ms": b"%d" % (moment * 1000),
            b"time": datetime.fromtimestamp(moment).astimezone().isoformat(timespec="milliseconds").encode(),
            b"random": b"%08x" % rng.getrandbits(32),
        }

        def replace(template: bytes) -> bytes:
            return _TOKEN.sub(lambda token: values[token[1]], template)

        def replace_text(template: str) -> str:
            return replace(template.encode()).decode()

        replaced = attrs.evolve(
            fields,
            keys=tuple(map(replace_text, fields.keys)),
            sharding_key=replace_text(fields.sharding_key),
            lite_topic=replace_text(fields.lite_topic),
        )
        return replaced.message(replace(body))

    return make


# Lines of JSON

BODY_NAMES = ("body", "body_base64")
PRINTED_NAMES = frozenset(
    {
        "topic", "broker_name", "queue_id", "queue_offset", "message_id", "store_time_ms", "born_time_ms",
        "reconsume_times", "corruption", "offset_message_id", "commit_log_offset", "born_host", "store_host",
        "store_size", "user_properties", "system_properties", "origin_topic", "origin_message_id", "reason",
        "resent_ms",
    }
)  # fmt: skip
"""Fields that commands print for a stored message. Of these, only the user's properties are sent again."""


class _Line(msgspec.Struct):
    """The fields of a line. Those that are None are missing."""

    body: str | None = None
    body_base64: str | None = None
    tags: str | None = None
    keys: str | list[str] | None = None
    properties: dict[str, str] | None = None
    flag: int | None = None
    delay_level: int | str | None = None
    delay: float | None = None
    deliver_at_ms: int | None = None
    wait_store_ok: bool | None = None
    sharding_key: str | None = None
    priority: int | None = None
    lite_topic: str | None = None
    user_properties: dict[str, str] | None = None


class NumberedLine(bytes):
    """A line of the input.

    Attributes:
        number: its number from 1 on. 0 if it is unknown.
    """

    number: int = 0

    @classmethod
    def of(cls, line: bytes, number: int) -> NumberedLine:
        """Return a line with its number."""
        numbered = cls(line)
        numbered.number = number
        return numbered


MESSAGE_NAMES = _Line.__struct_fields__[:-1]
_DELAYS = ("delay", "deliver_at_ms", "delay_level")


def json_message(fields: MessageFields, line: bytes) -> Message:
    """Return the message of a line of JSON, such as ``tail --json`` prints.

    Fields that the line lacks come from ``fields``, the topic always does. ``user_properties``, as printed
    for a received message, means the same as ``properties``, which takes precedence. Raises
    InvalidMessageError, with the number of a :class:`NumberedLine`, if the line is invalid.
    """
    if not isinstance(line, NumberedLine):
        return _json_message(fields, line)
    try:
        return _json_message(fields, line)
    except InvalidMessageError as error:
        raise InvalidMessageError(f"line {line.number}: {error}") from None


def _json_message(fields: MessageFields, line: bytes) -> Message:
    try:
        read = msgspec.json.decode(line, type=_Line)
        body = _body_of(read)
    except (msgspec.MsgspecError, ValueError) as error:  # ValueError: not UTF-8, or not base64
        raise InvalidMessageError(f"it is not a message in JSON: {error}") from None
    if body is None:
        raise InvalidMessageError("it needs either body or body_base64")
    given: dict[str, Any] = {
        name: value for name in MESSAGE_NAMES[2:] if (value := getattr(read, name)) is not None
    }
    printed = read.user_properties or {}
    properties = {**fields.properties, **printed, **given.pop("properties", {})}
    # `tail --json` prints the sharding key among the user's properties.
    stored_key = properties.pop(SHARDING_KEY, "")
    defaults: dict[str, Any] = {
        "tags": fields.tags,
        "keys": fields.keys,
        "sharding_key": stored_key or fields.sharding_key,
        "priority": fields.priority,
        "lite_topic": fields.lite_topic,
    }
    if not any(name in given for name in _DELAYS):
        defaults |= {"delay": fields.delay, "deliver_at_ms": fields.deliver_at_ms}
    return Message(fields.topic, body, properties=properties, **{**defaults, **given})


def _body_of(line: _Line) -> bytes | None:
    """Return the body of a line, None if it has none or two. Raises ValueError for invalid base64."""
    if line.body is not None:
        return line.body.encode() if line.body_base64 is None else None
    return None if line.body_base64 is None else base64.b64decode(line.body_base64, validate=True)


class JsonLines(LineBodies):
    """Lines of JSON without unknown fields.

    A field that the command does not know would be lost without a word, so it ends the command. Each line is
    a :class:`NumberedLine`.
    """

    _count_of_lines = 0

    async def next_batch(self) -> list[bytes]:
        """See :class:`BodySource`. Raises CommandError if a line of the batch has an unknown field."""
        batch = await super().next_batch()
        for line in batch:
            if unknown := unknown_names(line):
                assert isinstance(line, NumberedLine)
                raise CommandError(
                    f"line {line.number} of the input has unknown fields: "
                    f"{', '.join(map(repr, unknown))}; the names are those of Message: "
                    f"{', '.join(MESSAGE_NAMES)}"
                )
        return batch

    def _bodies(self, lines: list[bytes | None]) -> list[bytes]:
        numbered: list[bytes] = []
        for line in lines:
            self._count_of_lines += 1
            if line:
                numbered.append(NumberedLine.of(line, self._count_of_lines))
        return numbered


def unknown_names(line: bytes) -> list[str]:
    """Return the names of the fields of a line that neither a message nor the output of a command has.

    There are none in a line that is invalid, which :func:`json_message` reports.
    """
    try:
        names = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, ValueError):
        return []
    return sorted(names.keys() - set(MESSAGE_NAMES) - PRINTED_NAMES)


async def json_lines_of_stdin(count: int | None = None) -> JsonLines:
    """Return the lines of standard input, at most ``count``.

    A file is checked as a whole first, so that nothing is sent if one of its lines has an unknown field. The
    lines of a pipe are checked as they arrive.
    """
    if sys.stdin is None:
        raise CommandError("cannot read the messages: standard input is closed")
    size = size_of_stdin()
    if size is not None:
        start = os.lseek(sys.stdin.fileno(), 0, os.SEEK_CUR)
        checked = JsonLines(read_stdin, count=count)
        while await checked.next_batch():
            pass
        os.lseek(sys.stdin.fileno(), start, os.SEEK_SET)
    return JsonLines(read_stdin, count=count, size=size)
