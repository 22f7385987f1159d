"""The page on the settings of Java's client names counterparts that exist."""

from __future__ import annotations

import importlib
import inspect
import itertools
import re
from pathlib import Path
from typing import Any

import attrs

PAGE = Path(__file__).parent.parent / "docs" / "java-settings.md"
ROOMS = ("rocketmq_py", "rocketmq_py.client", "rocketmq_py.producer", "rocketmq_py.consumer")
_COUNTERPART = re.compile(r"`(\w+)(?:\.(\w+)|\((\w+)\))?`").fullmatch


def settings() -> dict[str, list[tuple[str, str, str]]]:
    """Return the cells of each setting, by Java's class."""
    rows: dict[str, list[tuple[str, str, str]]] = {}
    for section in PAGE.read_text().split("\n## ")[1:]:
        title, *lines = section.splitlines()
        cells = [line.strip("|").split(" | ") for line in lines if line.startswith("| ")][2:]
        rows[title.strip("`")] = [(java.strip(), ours.strip(), note.strip()) for java, ours, note in cells]
    return rows


def find(name: str) -> Any:
    for room in ROOMS:
        if hasattr(importlib.import_module(room), name):
            return getattr(importlib.import_module(room), name)
    raise AssertionError(f"{name} does not exist")


def has_counterpart(ours: str) -> bool:
    match = _COUNTERPART(ours)
    assert match is not None, ours
    name, member, argument = match.groups()
    found = find(name)
    if argument is not None:
        return argument in inspect.signature(found).parameters
    if member is not None and attrs.has(found):
        return member in {field.name for field in attrs.fields(found)}
    return member is None or callable(getattr(found, member, None))


def test_each_counterpart_exists_or_a_reason_says_why_there_is_none() -> None:
    for java, ours, note in itertools.chain.from_iterable(settings().values()):
        assert note.endswith(".") if ours == "none" else has_counterpart(ours), java


def test_each_setting_is_listed_once() -> None:
    assert set(settings()) == {
        "ClientConfig", "DefaultMQProducer", "DefaultMQPushConsumer", "DefaultLitePullConsumer",
    }  # fmt: skip
    for rows in settings().values():
        names = [java for java, _, _ in rows]
        assert len(names) == len(set(names)) > 20
