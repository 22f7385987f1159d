"""The public methods and properties of public classes: a new one is noticed, and none is public by mistake.

``make apis`` writes the list again. Look at its diff: the name of a method that only other modules of the
library need begins with an underscore.
"""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import pytest

from tests.generate_names import PAGE, page
from tests.reference import directives

MEMBERS = Path(__file__).parent / "data" / "public_members.txt"
"""A line for each class that the reference documents, except those of the integrations, and settings."""


def members() -> str:
    """Return the classes of the reference with their public methods and properties, a line each."""
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
