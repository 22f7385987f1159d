"""The docstrings of the classes of the asyncio and threads APIs, for :mod:`tests.generate_apis`.

The description is from ``api_docstrings.md``. The arguments and errors are those of the trio class, in which
a few words are replaced.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from pathlib import Path
from typing import Any

TEXTS = Path(__file__).parent / "api_docstrings.md"

TITLES = {"aio": "asyncio", "blocking": "threads"}
"""The packages of the APIs, with the names of the APIs."""

REPLACED = {
    "aio": {"an open client": "an open ``rocketmq_py.aio.Client``"},
    "blocking": {
        "an open client": "a ``rocketmq_py.blocking.Client``",
        "called when queues are": "a worker thread calls its methods when queues are",
        "An async function, or a plain one, which runs in a worker thread.": "Worker threads call it.",
    },
}
"""Phrases of the trio docstrings that differ in an API, in the entries of arguments and errors."""

ERRORS_OF_OPENING = "    ClosedError: the client is closed, or belongs to the parent of this process.\n"
"""Threads have an object opened by its constructor."""

WIDTH = 106  # of lines of docstrings of a class, without their indentation

_CLASS = re.compile(r"^## (\w+)\n", re.MULTILINE)
_ALTERNATIVES = re.compile(r"\{([^{}|]*)\|([^{}]*)\}")
_SECTION = re.compile(r"^(?:Args|Raises):\n(?: {4}.*\n)+", re.MULTILINE)
_ENTRY = re.compile(r"^ {4}\S.*\n(?: {8}.*\n)*", re.MULTILINE)


def for_api(text: str, package: str) -> str:
    """Return a text with the alternatives of an API."""
    return _ALTERNATIVES.sub(rf"\{1 + list(TITLES).index(package)}", text)


def docstring(package: str, kind: type[Any]) -> str:
    """Return the docstring of the class of an API, without indentation, for a trio class."""
    _, *parts = _CLASS.split(TEXTS.read_text())
    described = dict(zip(parts[::2], parts[1::2], strict=True))[kind.__name__]
    title = f"``rocketmq_py.{kind.__name__}`` for {TITLES[package]}: "
    paragraphs = for_api(title + described.strip(), package).strip().split("\n\n")
    return "\n\n".join([*map(_wrapped, paragraphs), *_sections(package, kind)]) + "\n"


def _wrapped(paragraph: str) -> str:
    """Return a paragraph in lines of the right length. An example keeps its lines."""
    is_example = paragraph.startswith(" ")
    return paragraph if is_example else textwrap.fill(" ".join(paragraph.split()), WIDTH)


def _sections(package: str, kind: type[Any]) -> list[str]:
    """Return the arguments and the errors of a class."""
    (tree,) = ast.parse(inspect.getsource(kind)).body  # at runtime, the docstring has the settings, too
    assert isinstance(tree, ast.ClassDef)
    text = f"{ast.get_docstring(tree)}\n"
    for phrase, replacement in REPLACED[package].items():
        text = re.sub(r"\s+".join(map(re.escape, phrase.split())), replacement, text)
    arguments, errors = _SECTION.findall(text)
    if package == "blocking" and "    client:" in arguments:
        errors += ERRORS_OF_OPENING
    return [_ENTRY.sub(_wrapped_entry, section).rstrip() for section in (arguments, errors)]


def _wrapped_entry(entry: re.Match[str]) -> str:
    words = " ".join(entry[0].split())
    return textwrap.fill(words, WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 8) + "\n"
