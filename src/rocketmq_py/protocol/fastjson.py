"""Reading the JSON that Java's fastjson writes, which is not always JSON.

Its maps may have keys that are no texts: numbers (``{0:"10.0.0.1:10911"}``), and whole objects
(``{{"brokerName":"a","queueId":0,"topic":"t"}:5}``). Standard JSON is left to msgspec, which is far faster.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from rocketmq_py.errors import ProtocolError
from rocketmq_py.protocol.decoding import decoder

MAX_DEPTH = 64
"""How deep objects and arrays may be nested; RocketMQ's own bodies need six."""

_string = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL).match
_skip_blanks = re.compile(r"[ \t\r\n]*").match
_number = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII).match
_WORDS = {"t": ("true", True), "f": ("false", False), "n": ("null", None)}


@decoder("a body of JSON")
def loads(data: bytes) -> Any:
    """Return the value that ``data`` holds, as ``json.loads`` would.

    A key that is a number, a boolean or null becomes its text: ``{0:1}`` and ``{"0":1}`` are the same. A key
    that is an object becomes a tuple of its (name, value) pairs, sorted by name: ``dict(key)`` is the object
    again. One that is an array becomes a tuple. Inside of such a key it goes on so.

    Raises:
        ProtocolError: ``data`` is neither, is no UTF-8, holds half a surrogate pair, or is nested deeper
            than 64.
    """
    try:
        value = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass  # what is wrong with it is found, and said, below
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
    assert match is not None  # it may be empty, but it always is one
    return match.end()


def _unexpected(text: str, position: int, wanted: str) -> ProtocolError:
    found = repr(text[position]) if position < len(text) else "the end"
    return ProtocolError(f"a body cannot be read as JSON: {found} at {position} where {wanted} should be")


def _read(text: str, position: int, depth: int) -> tuple[Any, int]:
    """Return the value at ``position``, and the position after it."""
    if depth > MAX_DEPTH:
        raise _too_deep()
    first = text[position : position + 1]
    if string := _string(text, position):
        content = json.loads(string[0], strict=False)
        content.encode()  # half a surrogate pair is no text: it could never be written again
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
    members: dict[Any, Any] = {}
    position = _after_blanks(text, position)
    if text.startswith("}", position):
        return members, position + 1
    while True:
        key, position = _read(text, position, depth)
        position = _after_blanks(text, position)
        if not text.startswith(":", position):
            raise _unexpected(text, position, "':'")
        value, position = _read(text, _after_blanks(text, position + 1), depth)
        members[_hashable(key)] = value
        position = _after_blanks(text, position)
        if text.startswith("}", position):
            return members, position + 1
        if not text.startswith(",", position):
            raise _unexpected(text, position, "',' or '}'")
        position = _after_blanks(text, position + 1)


def _read_array(text: str, position: int, depth: int) -> tuple[list[Any], int]:
    items: list[Any] = []
    position = _after_blanks(text, position)
    if text.startswith("]", position):
        return items, position + 1
    while True:
        item, position = _read(text, position, depth)
        items.append(item)
        position = _after_blanks(text, position)
        if text.startswith("]", position):
            return items, position + 1
        if not text.startswith(",", position):
            raise _unexpected(text, position, "',' or ']'")
        position = _after_blanks(text, position + 1)


def _hashable(key: Any) -> Any:
    """Return what stands for ``key`` in a dict."""
    if isinstance(key, str):
        return key
    if isinstance(key, dict | list):
        return _frozen(key)
    return json.dumps(key)


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(sorted(((name, _frozen(item)) for name, item in value.items()), key=_name))
    if isinstance(value, list):
        return tuple([_frozen(item) for item in value])
    return value


def _name(member: tuple[Any, Any]) -> str:
    return str(member[0])
