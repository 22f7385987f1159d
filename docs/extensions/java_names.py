"""The Java names that docstrings of public classes and methods give, as the table of ``docs/from-java.md``.

``python docs/extensions/java_names.py`` writes the table into the page.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "from-java.md"
BEGIN, END = "<!-- from the docstrings: begin -->\n", "<!-- from the docstrings: end -->\n"
PACKAGES = ("rocketmq_py", "rocketmq_py.admin")
_JAVA = re.compile(r"Java: ``([A-Za-z][\w.]*)``")


def _java_names(documented: object) -> list[str]:
    names = _JAVA.findall(getattr(documented, "__doc__", None) or "")
    return [re.sub(r"^(?:[a-z]\w*\.)+(?=[A-Z])", "", name) for name in names]


def pairs() -> Iterator[tuple[str, str]]:
    """Return each Java name with the public name whose docstring gives it."""
    seen = set()
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in module.__all__:
            documented = getattr(module, name)
            if not callable(documented) or documented in seen:
                continue
            seen.add(documented)
            for java in _java_names(documented):
                yield java, name
            if inspect.isclass(documented):
                for member, value in vars(documented).items():
                    if not member.startswith("_") and (
                        inspect.isroutine(value) or isinstance(value, property)
                    ):
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
