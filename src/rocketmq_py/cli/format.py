r"""Formats of ``tail -f``: kcat's letters.

============ ===================================================================================
``%s`` ``%S``  body, and its length in bytes
``%k`` ``%K``  keys with blanks between, and their length in bytes (-1 if there are none)
``%t`` ``%p``  topic, queue id
``%b``         broker name
``%o``         offset in the queue
``%T``         when the broker stored it, epoch milliseconds: what ``-o @TIMESTAMP_MS`` looks for
``%h``         the sender's own properties: ``name=value,name=value``
``%g`` ``%i``  tag, message id
``%%``         a percent sign
============ ===================================================================================

and the escapes ``\n \t \r \0 \xNN \\``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rocketmq_py.cli.console import Control

if TYPE_CHECKING:
    from rocketmq_py.message import ReceivedMessage

Render = Callable[["ReceivedMessage"], Sequence[bytes]]
"""Returns the parts that are printed for a message, as :func:`console.write_parts` takes them."""

BODY_A_LINE = r"%s\n"
"""The format that is used when none is given."""

_LETTERS: dict[str, Callable[[ReceivedMessage], object]] = {
    "s": lambda message: message.body,
    "S": lambda message: len(message.body),
    "k": lambda message: _keys(message),
    "K": lambda message: len(_keys(message).encode()) or -1,
    "t": lambda message: message.topic,
    "p": lambda message: message.queue_id,
    "b": lambda message: message.broker_name,
    "o": lambda message: message.queue_offset,
    "T": lambda message: message.store_time_ms,
    "h": lambda message: ",".join([f"{name}={value}" for name, value in message.user_properties.items()]),
    "g": lambda message: message.tags,
    "i": lambda message: message.message_id,
}
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_TOKEN = re.compile(r"%(?P<letter>.?)|\\x(?P<hex>[0-9a-fA-F]{2})|\\(?P<escape>.?)|[^%\\]+", re.DOTALL)


def _keys(message: ReceivedMessage) -> str:
    return " ".join(message.keys)


def compile_format(text: str) -> Render:
    """Return a function that renders a message in the format ``text``. Raises ValueError for unknown letters.

    The text between the letters becomes Control parts: an escape sequence that the user wrote works on a
    terminal, while control characters of the message appear escaped.
    """
    literal = bytearray()
    tokens: list[Control | Callable[[ReceivedMessage], object]] = []

    def end_literal() -> None:
        if literal:
            tokens.append(Control(literal))
            literal.clear()

    for token in _TOKEN.finditer(text):
        letter, escape = token["letter"], token["escape"]
        if letter is not None and letter in _LETTERS:
            end_literal()
            tokens.append(_LETTERS[letter])
        elif letter == "%":
            literal += b"%"
        elif letter is not None:
            known = " ".join(f"%{known}" for known in [*_LETTERS, "%"])
            raise ValueError(f"the format knows no {token[0]}; it knows {known}")
        elif token["hex"]:
            literal += bytes.fromhex(token["hex"])
        elif escape is not None:
            if escape not in _ESCAPES:
                raise ValueError(rf"the format knows no {token[0]}; it knows \n \t \r \0 \xNN \\")
            literal += _ESCAPES[escape]
        else:
            literal += os.fsencode(token[0])
    end_literal()
    return lambda message: [
        token if isinstance(token, Control) else _encoded(token(message)) for token in tokens
    ]


def as_it_is(render: Render) -> Render:
    """Return a function that renders as ``render`` does, for terminals that show control characters."""
    return lambda message: [Control(b"".join(render(message)))]


def _encoded(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
