"""The page on compatibility shows the table of features and the versions that are tried.

``python -m tests.test_compatibility_page`` writes the table into the page.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from integration.clusters import provider
from rocketmq_py.client.features import FEATURES

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "compatibility.md"
HEAD = "| feature | brokers | with an older broker, the client |\n| --- | --- | --- |\n"
TABLE = re.compile(re.escape(HEAD) + r"(?:\|.*\n)*")


def table() -> str:
    """Return the table of the page."""
    rows = [f"| {feature.name} | {feature.since} | {feature.on_older} |\n" for feature in FEATURES]
    return HEAD + "".join(rows)


def test_the_page_shows_the_table_of_features() -> None:
    assert TABLE.findall(PAGE.read_text()) == [table()], __doc__


def test_the_page_names_the_versions_that_are_tried() -> None:
    brokers, python = PAGE.read_text().replace("\n", " ").split("## Python")
    tried = brokers.partition("Other versions")[0]
    assert re.findall(r"\d+\.\d+\.\d+", tried) == [*provider.VERSIONS, *provider.OTHER_VERSIONS]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    classifiers = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    assert re.findall(r"3\.\d+", python) == classifiers


if __name__ == "__main__":
    PAGE.write_text(TABLE.sub(lambda _: table(), PAGE.read_text()))
