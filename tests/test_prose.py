"""Docstrings and comments use plain constructions."""

from __future__ import annotations

import ast
import io
import re
import tokenize
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
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield token.string


@pytest.fixture(scope="module", params=FOLDERS, ids=lambda folder: folder.name)
def prose(request: pytest.FixtureRequest) -> str:
    return "\n".join(texts(request.param))


@pytest.mark.parametrize(("pattern", "limit"), LIMITS.items())
def test_constructions_that_hide_the_actor_are_rare(prose: str, pattern: str, limit: float) -> None:
    words = len(re.findall(r"[A-Za-z']+", prose))
    found = [line for line in prose.splitlines() if re.search(pattern, line, re.IGNORECASE)]
    assert len(found) / words * 1000 <= limit, "\n".join(found)
