"""The public members of public classes: a new one is noticed, and none is public by mistake.

``make apis`` writes the list again. Look at its diff: the name of a member that only other modules of the
library need begins with an underscore.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from pathlib import Path

import attrs
import pytest

from tests.generate_names import PAGE, page
from tests.reference import directives

MEMBERS = Path(__file__).parent / "data" / "public_members.txt"
"""A line for each class that the reference documents, except those of the integrations, and settings."""


def attributes(kind: type) -> set[str]:
    """Return the names of the attributes that a class declares, or assigns to its objects."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    assigned = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
    return assigned | ({field.name for field in attrs.fields(kind)} if attrs.has(kind) else set())


def members() -> str:
    """Return the classes of the reference with their public members, a line each."""
    lines = []
    for name in sorted(directives()):
        package, _, last = name.rpartition(".")
        if ".integrations" in package or last.endswith(
            "Config"
        ):  # have members of other libraries, and fields
            continue
        kind = getattr(importlib.import_module(package), last)
        if inspect.isclass(kind):
            own = [base for base in kind.__mro__ if base.__module__.startswith("rocketmq_py")]
            found = {
                member
                for base in own
                for member, value in vars(base).items()
                if not member.startswith("_") and (inspect.isroutine(value) or isinstance(value, property))
            }
            found |= {name for base in own for name in attributes(base) if not name.startswith("_")}
            if found:
                lines.append(f"{name}: {' '.join(sorted(found))}")
    return "\n".join(lines) + "\n"


def test_public_members_are_those_of_the_list() -> None:
    listed, found = MEMBERS.read_text().splitlines(), members().splitlines()
    assert sorted(set(found) - set(listed)) == sorted(set(listed) - set(found)), __doc__


def test_the_page_of_all_names_is_current() -> None:
    for extra in ("faststream", "pyarrow"):
        pytest.importorskip(extra, reason="the page has the names of all extras")
    assert PAGE.read_text() == page(), "run `make apis`"


if __name__ == "__main__":
    MEMBERS.write_text(members())
