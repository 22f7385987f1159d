"""A reader for the JSON dialect of Java's fastjson.

In fastjson's objects, keys may be numbers (``{0:"10.0.0.1:10911"}``) and even objects
(``{{"brokerName":"a","queueId":0,"topic":"t"}:5}``). msgspec, which is much faster, reads standard JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from rocketmq_py.errors import ProtocolError
from rocketmq_py.protocol.decode_errors import JSON_ERRORS, decoder

T = TypeVar("T")

MAX_DEPTH = 64
"""The deepest allowed nesting of objects and arrays. RocketMQ's own bodies need six levels."""

_string = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL).match
_skip_blanks = re.compile(r"[ \t\r\n]*").match
_number = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII).match
_WORDS = {"t": ("true", True), "f": ("false", False), "n": ("null", None)}


@decoder("a body of JSON")
def loads(data: bytes) -> Any:
    """Return the value in ``data``, like ``json.loads``.

    A key that is a number, a boolean or null becomes its text, so that ``{0:1}`` equals ``{"0":1}``. A key
    that is an object becomes a tuple of its (name, value) pairs, sorted by name. ``dict(key)`` restores the
    object. A key that is an array becomes a tuple. The same goes for objects and arrays inside such a key.

    Raises:
        ProtocolError: ``data`` is in neither dialect, is not UTF-8, contains a lone surrogate, or is nested
            deeper than 64 levels.
    """
    try:
        value = msgspec.json.decode(data)
    except JSON_ERRORS:
        pass  # the reader below accepts fastjson's dialect, and reports what is wrong with anything else
    else:
        _check_depth(value)
        return value
    text = data.decode()
    value, end = _read(text, _after_blanks(text, 0), 0)
    end = _after_blanks(text, end)
    if end != len(text):
        raise _unexpected(text, end, "the end")
    return value


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [
            item
            for outer in level
            if isinstance(outer, dict | list)
            for item in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return
    raise _too_deep()


def _too_deep() -> ProtocolError:
    return ProtocolError(f"a body cannot be read as JSON: it is nested deeper than {MAX_DEPTH}")


def _after_blanks(text: str, position: int) -> int:
    match = _skip_blanks(text, position)
    assert match is not None  # the pattern matches an empty text too
    return match.end()


def _unexpected(text: str, position: int, wanted: str) -> ProtocolError:
    found = repr(text[position]) if position < len(text) else "the end"
    return ProtocolError(f"a body cannot be read as JSON: {found} at {position}, expected {wanted}")


def _read(text: str, position: int, depth: int) -> tuple[Any, int]:
    """Return the value at ``position``, and the position after it."""
    if depth > MAX_DEPTH:
        raise _too_deep()
    first = text[position : position + 1]
    if string := _string(text, position):
        content = json.loads(string[0], strict=False)
        content.encode()  # raises for a lone surrogate, which could not be encoded again
        return content, string.end()
    if first == "{":
        return _read_object(text, position + 1, depth + 1)
    if first == "[":
        return _read_array(text, position + 1, depth + 1)
    if first in _WORDS:
        word, value = _WORDS[first]
        if text.startswith(word, position):
            return value, position + len(word)
    elif number := _number(text, position):
        whole = number[1] is None and number[2] is None
        return (int(number[0]) if whole else float(number[0])), number.end()
    raise _unexpected(text, position, "a value")


def _read_object(text: str, position: int, depth: int) -> tuple[dict[Any, Any], int]:
    def read_member(position: int) -> tuple[tuple[Any, Any], int]:
        key, position = _read(text, position, depth)
        position = _after_blanks(text, position)
        if not text.startswith(":", position):
            raise _unexpected(text, position, "':'")
        value, position = _read(text, _after_blanks(text, position + 1), depth)
        return (_hashable(key), value), position

    members, position = _read_until("}", text, position, read_member)
    return dict(members), position


def _read_array(text: str, position: int, depth: int) -> tuple[list[Any], int]:
    return _read_until("]", text, position, lambda position: _read(text, position, depth))


def _read_until(
    end: str, text: str, position: int, read_item: Callable[[int], tuple[T, int]]
) -> tuple[list[T], int]:
    """Return the items before ``end``, which commas separate, and the position after it."""
    items: list[T] = []
    position = _after_blanks(text, position)
    if text.startswith(end, position):
        return items, position + 1
    while True:
        item, position = read_item(position)
        items.append(item)
        position = _after_blanks(text, position)
        if text.startswith(end, position):
            return items, position + 1
        if not text.startswith(",", position):
            raise _unexpected(text, position, f"',' or {end!r}")
        position = _after_blanks(text, position + 1)


def _hashable(key: Any) -> Any:
    """Return the key under which a dictionary holds ``key``."""
    if isinstance(key, str):
        return key
    if isinstance(key, dict | list):
        return _frozen(key)
    return json.dumps(key)


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        members = [(name, _frozen(item)) for name, item in value.items()]
        return tuple(sorted(members, key=lambda member: str(member[0])))
    if isinstance(value, list):
        return tuple([_frozen(item) for item in value])
    return value
