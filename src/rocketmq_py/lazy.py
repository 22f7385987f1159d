"""Lazy imports: packages whose public names are imported on first use.

Importing the whole client takes a third of a second of CPU. A command that lists topics, or a program that
only sends, should not pay for it. A package imports its names for type checkers under ``TYPE_CHECKING``. At
run time, :func:`lazy_names` loads them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def lazy_names(
    namespace: dict[str, Any], homes: Mapping[str, Iterable[str]], modules: Iterable[str] = ()
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` (PEP 562) and ``__dir__`` of a package.

    Args:
        namespace: the package's ``globals()``. A name is stored there when it is first used.
        homes: the public names by the module that defines them, relative to the package.
        modules: the public modules of the package, which are not part of ``__all__``.
    """
    package = namespace["__name__"]
    home_of = {name: home for home, names in homes.items() for name in names}
    loadable = frozenset(modules)

    def load(name: str) -> Any:
        if name in loadable:
            return importlib.import_module(f"{package}.{name}")
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{package}.{home_of[name]}"), name)
        namespace[name] = value
        return value

    def listed() -> list[str]:
        dunders = (name for name in namespace if name.startswith("__"))
        return sorted({*dunders, *home_of, *loadable})

    return sorted(home_of), load, listed
