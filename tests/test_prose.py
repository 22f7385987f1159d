"""Docstrings and comments use plain constructions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import rocketmq_py

ROOT = Path(__file__).parents[1]
FOLDERS = (Path(rocketmq_py.__file__).parent, *[ROOT / name for name in ("tests", "integration", "examples")])

LIMITS = {
    r"\b(what|who|whoever|whom|whatever)\b": 3.0,
    r"\b(nobody|somebody|anybody)\b": 0.2,
    r"\b(is|are|be) told\b|\bsee(s|n)? to\b": 0.1,
    r"\btime-outs?\b": 0.0,
    r"\bat the (most|least)\b": 0.0,
}
"""Patterns with the allowed number of matches per 1,000 words."""


def texts(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*.py"):
        source = path.read_text()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                yield ast.get_docstring(node) or ""
        yield from re.findall(r"^ *# .*|  # .*", source, re.MULTILINE)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_constructions_that_hide_the_actor_are_rare(folder: Path) -> None:
    prose = "\n".join(texts(folder))
    words = len(re.findall(r"[A-Za-z']+", prose))
    for pattern, limit in LIMITS.items():
        found = [line for line in prose.splitlines() if re.search(pattern, line, re.IGNORECASE)]
        assert len(found) / words * 1000 <= limit, "\n".join([pattern, *found])
