"""Values of wrong types for a parameter, by its annotation."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any


def wrong_values(annotation: str) -> Iterator[Any]:
    """Yield values that an annotation excludes."""
    yield object()
    if "None" not in annotation:
        yield None
    if "Position" in annotation:
        yield from ("text", 1.5, ["latest"])
    elif annotation.startswith("str | Iterable"):
        yield from ("a b", 5, [5], [None])
    elif any(name in annotation for name in ("Iterable", "Sequence")):
        yield from ("text", 5, [5], [None])
    elif "Mapping" in annotation:
        yield from ("text", ["text"], {5: "a"})
    elif "str" in annotation:
        yield from (5, b"text", ["text"])
    elif "float" in annotation or "Duration" in annotation:
        yield from ("5", True)
    elif "int" in annotation:
        yield from ("5", 1.5, True)
    elif "bool" in annotation:
        yield from ("yes", 1)
    else:
        yield from ("text", 5)


def required(function: Callable[..., Any], right: dict[str, Any]) -> dict[str, Any]:
    """Return a right value for each required parameter of a function."""
    return {
        name: right[name]
        for name, one in inspect.signature(function).parameters.items()
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    }
