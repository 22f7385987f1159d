"""Docstrings of the methods that the asyncio and threads APIs do not generate."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar

Method = TypeVar("Method", bound=Callable[..., Any])

_SECTION = re.compile(r"^(?:Args|Returns|Yields|Raises):\n(?: {4}.*\n)+", re.MULTILINE)


def with_sections_of(described: Callable[..., Any]) -> Callable[[Method], Method]:
    """Decorate a method: its docstring ends with the arguments, results and errors of a trio class's method.

    Other paragraphs are not copied, because the APIs differ in them.
    """

    def decorate(method: Method) -> Method:
        sections = _SECTION.findall(f"{inspect.cleandoc(described.__doc__ or '')}\n")
        texts = [inspect.cleandoc(method.__doc__ or ""), *map(str.rstrip, sections)]
        method.__doc__ = "\n\n".join(texts)
        return method

    return decorate
