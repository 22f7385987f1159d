"""Lazy imports: packages whose public names are imported on first use.

Importing the whole client takes a third of a second of CPU. A command that lists topics, or a program that
only sends, should not pay for it. A package declares its names twice: for type checkers by imports under
``TYPE_CHECKING``, and at run time by :func:`lazy_attributes`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def lazy_attributes(namespace: dict[str, Any], names: Mapping[str, Iterable[str]]) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for a package (PEP 562), and add a ``__dir__`` that lists its lazy names.

    Args:
        namespace: the package's ``globals()``. A name is stored there when it is first used.
        names: the public names of each module, by the module's name relative to the package.
    """
    package = namespace["__name__"]
    module_of = {name: module for module, public in names.items() for name in public}

    def load(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{package}.{module_of[name]}"), name)
        namespace[name] = value
        return value

    namespace["__dir__"] = lambda: sorted({*namespace, *module_of})
    return load
