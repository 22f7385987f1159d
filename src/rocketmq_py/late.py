"""Packages whose names are loaded when they are first asked for.

All of the client is a third of a second of processor time, which a command that lists topics, or a program
that only sends, should not pay: a package says where its names are, for type checkers by imports that do not
run, and for everybody else by :func:`late`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def late(namespace: dict[str, Any], places: Mapping[str, Iterable[str]]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package, and give it a ``__dir__`` that lists what is not loaded yet.

    Args:
        namespace: the package's ``globals()``; what was loaded is kept there.
        places: the names of each of its modules, which are named relative to it.
    """
    package = namespace["__name__"]
    place_of = {name: place for place, names in places.items() for name in names}

    def load(name: str) -> Any:
        if name not in place_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{package}.{place_of[name]}"), name)
        namespace[name] = value
        return value

    namespace["__dir__"] = lambda: sorted({*namespace, *place_of})
    return load
