"""Escapes text of messages for file names (``tail --to``) and environment variables (``tail -x``)."""

from __future__ import annotations

import codecs
import hashlib
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rocketmq_py.cli.console import complain

if TYPE_CHECKING:
    from rocketmq_py.message import ReceivedMessage

MAX_NAME_BYTES = 255
"""Size of a file name, which file systems limit."""
MAX_VARIABLE_BYTES = 127 * 1024
"""Size of an environment variable's value. Linux refuses variables of 128 KiB, name included."""

_DIGEST_LENGTH = 16
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_VALUES: dict[str, Callable[[ReceivedMessage], str]] = {
    "topic": lambda message: message.topic,
    "broker": lambda message: message.broker_name,
    "queue": lambda message: str(message.queue_id),
    "tags": lambda message: message.tags,
    "key": lambda message: message.keys[0] if message.keys else "",
}
# A percent sign is escaped only where it would read as an escape, so "100%" stays and no two values collide.
_UNSAFE_IN_NAMES = re.compile(
    r"^[.-]|%(?=[0-9A-Fa-f]{2})|[\0-\x1f\x7f-\x9f/\\\u2028-\u202e\u2066-\u2069]"
    + (r'|[<>:"|?*]' if sys.platform == "win32" else "")
)
_NUL = re.compile("\0")


class TextEscaper:
    """Escapes and shortens text of messages for one use. Warns of the first change of each kind.

    Args:
        use: the use, for the warnings: ``the file name``.
        unsafe: matches the characters to escape as ``%XX``. Characters that the file system's encoding
            lacks are escaped too.
        max_bytes: the size that longer text is shortened to. It then ends with a hash of the whole.
    """

    def __init__(self, use: str, unsafe: re.Pattern[str], max_bytes: int) -> None:
        self._use = use
        self._unsafe = unsafe
        self._max_bytes = max_bytes
        self._reported: set[str] = set()

    def fit(self, message: ReceivedMessage, values: Sequence[str], literals: Sequence[str] = ("", "")) -> str:
        """Return ``values`` of ``message`` between ``literals``, escaped and shortened as needed.

        The first literal precedes the first value, and the last one follows the last value. Literals are not
        escaped. The last one ends the shortened text too, since it contains the extension of a file name.
        """
        escaped = [self._escape(value) for value in values]
        if escaped != list(values):
            self._report(message, "has %XX instead of characters that are not allowed there")
        text = "".join(literal + value for literal, value in zip(literals, [*escaped, ""], strict=True))
        encoded = os.fsencode(text)
        if len(encoded) <= self._max_bytes:
            return text
        self._report(message, f"is shortened to {self._max_bytes} bytes, with a hash of the whole at its end")
        end = f"~{hashlib.sha256(encoded).hexdigest()[:_DIGEST_LENGTH]}{literals[-1]}"
        kept = encoded[: self._max_bytes - len(os.fsencode(end))]
        return kept.decode(sys.getfilesystemencoding(), "ignore") + end

    def _escape(self, value: str) -> str:
        text = self._unsafe.sub(lambda found: _percent(found[0]), value)
        encoding = sys.getfilesystemencoding()
        return text.encode(encoding, _percent_error.__name__).decode(encoding)

    def _report(self, message: ReceivedMessage, change: str) -> None:
        if change not in self._reported:
            self._reported.add(change)
            complain(f"message {message.message_id}: {self._use} {change}; this is reported once")


def compile_name(template: str) -> Callable[[ReceivedMessage], str]:
    """Return a function that returns the file name of a message.

    Values of messages cannot lead to another folder, hide a file, or make a name too long. Raises
    ValueError for an unknown placeholder, and for too much text around placeholders.
    """
    if not template.strip():
        raise ValueError("it is empty: is a variable of the shell not set?")
    # Literals and names of placeholders alternate.
    components = [_PLACEHOLDER.split(component) for component in template.split("/")]
    for component in components:
        _check_component(component)
    escaper = TextEscaper("the file name", _UNSAFE_IN_NAMES, MAX_NAME_BYTES)

    def component_of(message: ReceivedMessage, component: list[str]) -> str:
        if len(component) == 1:
            return component[0]
        values = [_VALUES[name](message) or "_" for name in component[1::2]]
        return escaper.fit(message, values, component[::2])

    return lambda message: "/".join([component_of(message, component) for component in components])


def variable_escaper(name: str) -> TextEscaper:
    """Return the escaper of values for the environment variable ``name``."""
    return TextEscaper(name, _NUL, MAX_VARIABLE_BYTES)


def _check_component(component: list[str]) -> None:
    for name in component[1::2]:
        if name not in _VALUES:
            known = " ".join(f"{{{known}}}" for known in _VALUES)
            raise ValueError(f"placeholder {{{name}}} is not supported; supported: {known}")
    size = sum(len(os.fsencode(literal)) for literal in component[::2])
    limit = MAX_NAME_BYTES - _DIGEST_LENGTH - 2  # the tilde before the digest, and a byte of a value
    if len(component) > 1 and size > limit:
        raise ValueError(f"the text around the placeholders has {size} bytes; at most {limit} are possible")


def _percent(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode("utf-8", "surrogatepass"))


def _percent_error(error: UnicodeError) -> tuple[str, int]:
    """Escape characters that an encoding lacks: a handler of encoding errors."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return _percent(error.object[error.start : error.end]), error.end


codecs.register_error(_percent_error.__name__, _percent_error)
