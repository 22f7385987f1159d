"""The Java names in the docstrings of documented classes and methods: ``make apis`` writes their table."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator

from tests.reference import DOCS, directives

PAGE = DOCS / "from-java.md"
BEGIN, END = "<!-- from the docstrings: begin -->\n", "<!-- from the docstrings: end -->\n"
OTHER_APIS = ("rocketmq_py.aio.", "rocketmq_py.blocking.", "rocketmq_py.integrations.")
_JAVA = re.compile(r"Java: ``([A-Za-z][\w.]*)``")


def _java_names(documented: object) -> list[str]:
    names = _JAVA.findall(getattr(documented, "__doc__", None) or "")
    return [re.sub(r"^(?:[a-z]\w*\.)+(?=[A-Z])", "", name) for name in names]


def pairs() -> Iterator[tuple[str, str]]:
    """Return each Java name with the documented name whose docstring gives it."""
    for full_name in directives():
        if full_name.startswith(OTHER_APIS):
            continue
        package, _, name = full_name.rpartition(".")
        documented = getattr(importlib.import_module(package), name)
        if callable(documented):
            for java in _java_names(documented):
                yield java, name
        if inspect.isclass(documented):
            for member, value in vars(documented).items():
                if not member.startswith("_") and (inspect.isroutine(value) or isinstance(value, property)):
                    for java in _java_names(value):
                        yield java, f"{name}.{member}"


def table() -> str:
    """Return the table in Markdown, sorted by the Java names."""
    ours: dict[str, set[str]] = {}
    for java, name in pairs():
        ours.setdefault(java, set()).add(f"`{name}`")
    rows = [f"| `{java}` | {', '.join(sorted(ours[java]))} |" for java in sorted(ours, key=str.lower)]
    return "\n".join(["| Java | here |", "| --- | --- |", *rows, ""])


def page_with_table(text: str) -> str:
    """Return the text of the page with the current table between its marks."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(page_with_table(PAGE.read_text()))
