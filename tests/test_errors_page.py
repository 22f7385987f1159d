"""docs/errors.md has a row for each public error class, and for each log line at WARNING and above."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import rocketmq_py
from rocketmq_py import errors

PACKAGE = Path(rocketmq_py.__file__).parent
PAGE = (Path(__file__).parents[1] / "docs/errors.md").read_text()
LEVELS = {"warning", "error", "exception", "critical"}
FORWARDING = {"client/retry_log.py", "client/user_functions.py"}
"""Modules that log texts of their callers."""
PLACEHOLDER = re.compile(r"%[-\d.]*[a-z]")
ROWS = re.findall(r"^\| `(.+?)` \|", PAGE, re.MULTILINE)
FIRST_LOG_ROW = "route lookup failed, retrying: …"


def texts(node: ast.expr, module: ast.Module) -> list[str]:
    """Return the texts that an argument may have: a constant, or a name that the module assigns or passes."""
    if isinstance(node, ast.Constant):
        return [str(node.value)]
    assert isinstance(node, ast.Name), ast.unparse(node)
    found = [
        str(one.value.value)
        for one in ast.walk(module)
        if isinstance(one, ast.Assign)
        and isinstance(one.value, ast.Constant)
        and any(isinstance(target, ast.Name) and target.id == node.id for target in one.targets)
    ]
    if found:
        return found
    return [
        str(one.args[1].value)
        for one in ast.walk(module)
        if isinstance(one, ast.Call)
        and ast.unparse(one.func) == "self._warn_once"
        and isinstance(one.args[1], ast.Constant)
    ]


@cache
def modules() -> dict[str, ast.Module]:
    """Return the parsed modules of the package by their paths in it."""
    return {
        str(path.relative_to(PACKAGE)): ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))
    }


def log_texts() -> Iterator[str]:
    """Return the texts of all log lines at WARNING and above, with their placeholders."""
    for path, module in modules().items():
        is_forwarding = path in FORWARDING
        for node in ast.walk(module):
            if not isinstance(node, ast.Call) or is_forwarding:
                continue
            match node.func:
                case ast.Attribute(value=owner, attr=method) if method in LEVELS:
                    if ast.unparse(owner).lower().endswith(("logger", "_log", "log")):
                        yield from texts(node.args[0], module)
                case ast.Name(id="raise_without_failures"):
                    yield from texts(node.args[2], module)
                case ast.Name(id="RetryLog" | "RetryLogs"):
                    yield from (f"{event} failed, retrying: %s" for event in texts(node.args[1], module))
                case _:
                    pass


def as_row(text: str) -> str:
    return PLACEHOLDER.sub("…", text).replace("|", r"\|")


@cache
def log_rows() -> set[str]:
    return {as_row(text) for text in log_texts()}


NEVER_REACHES_USERS = {"EarlierBatchFailedError"}
"""Error classes that the library catches itself."""


def error_classes() -> set[str]:
    """Return the public subclasses of RocketMQError, those outside of ``errors`` by their direct base."""
    found = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.RocketMQError)
    }
    for module in modules().values():
        for node in ast.walk(module):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found |= {node.name} if found & {ast.unparse(base) for base in node.bases} else set()
    return found - NEVER_REACHES_USERS


def test_each_log_line_has_a_row() -> None:
    assert FIRST_LOG_ROW in log_rows()
    assert sorted(log_rows() - set(ROWS)) == []


def test_each_error_class_has_a_row() -> None:
    assert sorted(error_classes() - set(ROWS)) == []


def test_page_has_no_row_for_a_removed_message() -> None:
    assert sorted(set(ROWS) - log_rows() - error_classes()) == []


def test_each_row_is_complete_and_unique() -> None:
    assert len(ROWS) == len(set(ROWS))
    for line in PAGE.splitlines():
        if line.startswith("| `"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            assert len(cells) == 4, line
            assert all(cells), line
