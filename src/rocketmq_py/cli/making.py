"""The messages that ``send`` makes of bodies: all alike, by templates, or each as a line of JSON says."""

from __future__ import annotations

import base64
import binascii
import itertools
import random
import re
import time
from collections.abc import Callable, Mapping
from datetime import datetime

import attrs
import msgspec

from rocketmq_py import properties as names
from rocketmq_py.errors import InvalidMessageError
from rocketmq_py.message import Message

_TOKEN = re.compile(rb"\{(n|time_ms|time|random)\}")


@attrs.frozen(kw_only=True)
class Pattern:
    """What all messages have.

    Attributes:
        topic: where they go.
        tag: their tag.
        keys: their keys.
        properties: their properties.
        delay: seconds after which they are delivered.
        deliver_at_ms: when they are delivered, epoch milliseconds; 0 for at once.
        sharding_key: what their queue is chosen by.
        priority: which of them is first, for brokers from 5.4.0 on; None for no priority.
    """

    topic: str
    tag: str = ""
    keys: tuple[str, ...] = ()
    properties: Mapping[str, str] = attrs.field(factory=dict)
    delay: float = 0.0
    deliver_at_ms: int = 0
    sharding_key: str = ""
    priority: int | None = None

    def make(self, body: bytes) -> Message:
        """Return the message with this body. Raises InvalidMessageError if there can be none."""
        return Message(
            self.topic,
            body,
            self.tag,
            self.keys,
            self.properties,
            delay=self.delay,
            deliver_at_ms=self.deliver_at_ms,
            sharding_key=self.sharding_key,
            priority=self.priority,
        )


def templates(
    pattern: Pattern, *, rng: random.Random, now: Callable[[], float] = time.time
) -> Callable[[bytes], Message]:
    """Return what makes messages with the tokens filled in bodies, keys and sharding keys.

    ``{n}`` counts from 1, ``{time_ms}`` and ``{time}`` are the present, and ``{random}`` is a number of 8 hex
    digits, the same in all of one message.
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

        def fill(template: bytes) -> bytes:
            return _TOKEN.sub(lambda token: values[token[1]], template)

        def fill_text(template: str) -> str:
            return fill(template.encode()).decode()

        filled = attrs.evolve(
            pattern,
            keys=tuple(map(fill_text, pattern.keys)),
            sharding_key=fill_text(pattern.sharding_key),
        )
        return filled.make(fill(body))

    return make


class _Line(msgspec.Struct):
    """What is read of a line of JSON; the rest of what ``tail -J`` prints says where the message was."""

    body: str | None = None
    body_base64: str | None = None
    tag: str | None = None
    keys: list[str] | None = None
    properties: dict[str, str] | None = None
    sharding_key: str | None = None


def from_json(pattern: Pattern, line: bytes) -> Message:
    """Return the message that a line of JSON describes, such as ``tail -J`` prints.

    What it does not say is as the pattern has it. Raises InvalidMessageError if it is no such line.
    """
    try:
        read = msgspec.json.decode(line, type=_Line)
        if (read.body is None) == (read.body_base64 is None):
            raise InvalidMessageError("a line of JSON needs body or body_base64")
        body = (
            read.body.encode()
            if read.body is not None
            else base64.b64decode(read.body_base64 or "", validate=True)
        )
    except (msgspec.MsgspecError, UnicodeDecodeError, binascii.Error) as error:
        raise InvalidMessageError(f"a line is no message as JSON: {error}") from None
    properties = {**pattern.properties, **(read.properties or {})}
    # A sharding key is among the properties that `tail -J` prints.
    stored_key = properties.pop(names.SHARDING_KEY, "")
    own = attrs.evolve(
        pattern,
        tag=pattern.tag if read.tag is None else read.tag,
        keys=pattern.keys if read.keys is None else tuple(read.keys),
        properties=properties,
        sharding_key=read.sharding_key or stored_key or pattern.sharding_key,
    )
    return own.make(body)
