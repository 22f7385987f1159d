"""The messages of ``send --json``: lines of JSON with the names of :class:`~rocketmq_py.Message`."""

from __future__ import annotations

import base64
import os
import sys
from typing import Any

import msgspec

from rocketmq_py.cli.message_input import LineBodies, MessageFields, read_stdin, size_of_stdin
from rocketmq_py.cli.runner import CommandError
from rocketmq_py.errors import InvalidMessageError
from rocketmq_py.message import Message
from rocketmq_py.property_names import SHARDING_KEY

BODY_NAMES = ("body", "body_base64")
PRINTED_NAMES = frozenset(
    {
        "topic", "broker", "queue", "offset", "message_id", "store_time_ms", "born_time_ms",
        "reconsume_times", "corruption", "offset_message_id", "commit_log_offset", "born_host", "store_host",
        "store_size", "system_properties", "origin_topic", "origin_message_id", "reason", "resent_ms",
    }
)  # fmt: skip
"""Fields that commands print for a stored message. A message that is sent again does not have them."""


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


MESSAGE_NAMES = tuple(_Line.__struct_fields__)
_DELAYS = ("delay", "deliver_at_ms", "delay_level")


def json_message(fields: MessageFields, line: bytes) -> Message:
    """Return the message of a line of JSON, such as ``tail --json`` prints.

    Fields that the line lacks come from ``fields``, the topic always does. Raises InvalidMessageError if the
    line is invalid.
    """
    try:
        read = msgspec.json.decode(line, type=_Line)
        body = _body_of(read)
    except (msgspec.MsgspecError, ValueError) as error:  # ValueError: not UTF-8, or not base64
        raise InvalidMessageError(f"a line is not a message in JSON: {error}") from None
    if body is None:
        raise InvalidMessageError("a line of JSON needs either body or body_base64")
    given: dict[str, Any] = {
        name: value for name in MESSAGE_NAMES[2:] if (value := getattr(read, name)) is not None
    }
    properties = {**fields.properties, **given.pop("properties", {})}
    # `tail --json` prints the sharding key among the properties.
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

    A field that the command does not know would be lost without a word, so it ends the command.
    """

    _number = 0

    async def next_batch(self) -> list[bytes]:
        """See :class:`BodySource`. Raises CommandError if a line of the batch has an unknown field."""
        batch = await super().next_batch()
        for line in batch:
            self._number += 1
            if unknown := unknown_names(line):
                raise CommandError(
                    f"message {self._number} of the input has unknown fields: "
                    f"{', '.join(map(repr, unknown))}; the names are those of Message: "
                    f"{', '.join(MESSAGE_NAMES)}"
                )
        return batch


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
