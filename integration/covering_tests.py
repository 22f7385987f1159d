"""The tests that reach a line of the package, known from one run of all tests with coverage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from xml.etree import ElementTree

import attrs
from coverage import CoverageData

FIRST_SECONDS = 5.0
FIRST_COUNT = 50
"""The first run ends after the test that exceeds the seconds, or after so many tests."""


@attrs.frozen
class CoveringTests:
    """Finds the tests that run a line. Lines that run only in a test's child processes are not recorded.

    Attributes:
        data: coverage with a context for each test.
        seconds: how long each test took.
        root: the folder below which the measured modules are.
    """

    data: CoverageData = attrs.field(repr=False)
    seconds: Mapping[str, float] = attrs.field(repr=False)
    root: Path

    @classmethod
    def read(cls, folder: Path, root: Path) -> CoveringTests:
        """Read the files that pytest wrote to ``folder`` with the options of ``recording``."""
        data = CoverageData(str(folder / "coverage"))
        data.read()
        cases = ElementTree.parse(folder / "tests.xml").iter("testcase")
        return cls(data, {_node_id(case): float(case.get("time", "0")) for case in cases}, root)

    def of(self, file: Path, first_line: int, last_line: int) -> list[str]:
        """Return the tests that reach one of these lines of a module, the fastest first."""
        by_line = self.data.contexts_by_lineno(str(self.root / file))
        contexts = {each for line in range(first_line, last_line + 1) for each in by_line.get(line, ())}
        tests = {context.rpartition("|")[0] for context in contexts} - {""}  # "": reached by an import
        return sorted(tests, key=lambda test: (self.seconds.get(test, 0.0), test))

    def fastest(self, tests: list[str]) -> Iterator[str]:
        """Yield the tests of a first run."""
        spent = 0.0
        for test in tests[:FIRST_COUNT]:
            yield test
            spent += self.seconds.get(test, 0.0)
            if spent > FIRST_SECONDS:
                return


def recording(folder: Path) -> list[str]:
    """Return pytest options that record the lines of each test in ``folder``."""
    configuration = folder / "coveragerc"
    configuration.write_text(f"[run]\nsource_pkgs = rocketmq_py\ndata_file = {folder / 'coverage'}\n")
    return [
        "--cov",
        f"--cov-config={configuration}",
        "--cov-context=test",
        "--cov-report=",
        f"--junitxml={folder / 'tests.xml'}",
        "-o",
        "junit_duration_report=call",
    ]


def _node_id(case: ElementTree.Element) -> str:
    """Return the name by which pytest runs a test. Test classes of this repository are not nested."""
    module, _, last = case.get("classname", "").rpartition(".")
    path = f"{module.replace('.', '/')}/{last}.py"
    if last[:1].isupper():  # a class of tests
        path = f"{module.replace('.', '/')}.py::{last}"
    return f"{path}::{case.get('name')}"
