r"""Output formats of messages: ``-f FORMAT``, with kcat's letters, and ``--json``.

============ ===================================================================================
``%s`` ``%S``  body, and its length in bytes
``%k`` ``%K``  keys separated by spaces, and their length in bytes (-1 without keys)
``%t`` ``%p``  topic, queue id
``%b``         broker name
``%o``         offset in the queue
``%T``         store time on the broker, epoch milliseconds, as in ``-o @MS``
``%h``         the user's properties: ``name=value,name=value``
``%g`` ``%i``  tags, message id
``%%``         a percent sign
============ ===================================================================================

The escapes are ``\n \t \r \0 \xNN \\``.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rocketmq_py.cli.console import Control

if TYPE_CHECKING:
    from rocketmq_py.message import ReceivedMessage

Render = Callable[["ReceivedMessage"], Sequence[bytes]]
"""Returns the parts that are printed for a message, as :func:`console.write_parts` takes them."""

DEFAULT_FORMAT = r"%s\n"
"""The default of ``-f``: one body per line."""

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
            raise ValueError(f"the format does not support {token[0]}; supported: {known}")
        elif token["hex"]:
            literal += bytes.fromhex(token["hex"])
        elif escape is not None:
            if escape not in _ESCAPES:
                raise ValueError(rf"the format does not support {token[0]}; supported: \n \t \r \0 \xNN \\")
            literal += _ESCAPES[escape]
        else:
            literal += os.fsencode(token[0])
    end_literal()
    return lambda message: [
        token if isinstance(token, Control) else _encoded(token(message)) for token in tokens
    ]


def unescaped(render: Render) -> Render:
    """Return a function that renders as ``render`` does, without escaping control characters on terminals."""
    return lambda message: [Control(b"".join(render(message)))]


def json_line(message: ReceivedMessage) -> list[bytes]:
    """Render a message as one line of JSON, with the fields of :func:`message_value`."""
    import msgspec

    return [msgspec.json.encode(message_value(message)), b"\n"]


def message_value(message: ReceivedMessage) -> dict[str, Any]:
    """Return a message as a JSON object, with its fields in a fixed order.

    The names are those of ReceivedMessage: ``topic``, ``broker_name``, ``queue_id``, ``queue_offset``,
    ``message_id``, ``store_time_ms`` (broker's clock), ``born_time_ms`` (sender's clock),
    ``reconsume_times``, ``tags``, ``keys`` (a list), ``user_properties``, then ``body`` if it is UTF-8,
    otherwise ``body_base64``. A body that could not be decompressed is included as stored, and
    ``corruption`` contains the reason.
    """
    value: dict[str, Any] = {
        "topic": message.topic,
        "broker_name": message.broker_name,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "message_id": message.message_id,
        "store_time_ms": message.store_time_ms,
        "born_time_ms": message.born_time_ms,
        "reconsume_times": message.reconsume_times,
        "tags": message.tags,
        "keys": message.keys,
        "user_properties": message.user_properties,
    }
    try:
        value["body"] = message.body.decode()
    except UnicodeDecodeError:
        value["body_base64"] = base64.b64encode(message.body).decode()
    if message.corruption is not None:
        value["corruption"] = message.corruption
    return value


def _encoded(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
