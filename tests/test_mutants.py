"""Mutants of the code: each is one change that Python can compile."""

from __future__ import annotations

from pathlib import Path

import pytest
from coverage import CoverageData

from integration.covering_tests import CoveringTests
from integration.mutants import mutants_of, stages

SOURCE = """
if TYPE_CHECKING:
    import never

class Queue:
    size: int = 3

    def take(self, count: int = 1) -> str | None:
        if not self.items and count < 2:
            raise ValueError("空")
        self.count += len(self.items) - 1
        self.note("空", taken=True)
        return self.items[
            0
        ]
"""


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        ("comparison", "(count <= 2)"),
        ("and-or", "((not self.items) or (count < 2))"),
        ("not", "bool(self.items)"),
        ("condition", "(not (not self.items and count < 2))"),
        ("raise", "pass"),
        ("arithmetic", "((len(self.items)) + (1))"),
        ("call", "pass"),
        ("return", "return None"),
    ],
)
def test_a_mutant_has_one_change(kind: str, changed: str) -> None:
    (mutant,) = [one for one in mutants_of(Path("queue.py"), SOURCE) if one.kind == kind]
    text = mutant.apply(SOURCE)
    compile(text, "queue.py", "exec")
    assert mutant.text == changed
    assert changed in text


def test_constants_are_changed_wherever_they_stand() -> None:
    found = {
        (one.node.lineno, one.text) for one in mutants_of(Path("q.py"), SOURCE) if one.kind == "constant"
    }
    assert found == {(6, "4"), (8, "2"), (9, "3"), (11, "2"), (12, "False"), (14, "1")}


def test_the_tests_of_a_mutant_go_from_the_fastest_that_reach_it_to_all() -> None:
    data = CoverageData(no_disk=True)
    tests = ("test_slow|run", "test_fast[1]|setup", "test_slowest|run")
    for context in ("", *[f"tests/a/test_one.py::{test}" for test in tests]):
        data.set_context(context)
        data.add_lines({"/copy/queue.py": [9, 10]})
    seconds = {
        "tests/a/test_one.py::test_slow": 9.0,
        "tests/a/test_one.py::test_fast[1]": 0.1,
        "tests/a/test_one.py::test_slowest": 20.0,
    }
    covering = CoveringTests(data, seconds, Path("/copy"))
    by_kind = {mutant.kind: mutant for mutant in mutants_of(Path("queue.py"), SOURCE)}
    runs = [[word for word in run if "test" in word] for run in stages(by_kind["raise"], covering)]
    assert runs == [
        ["tests/a/test_one.py::test_fast[1]", "tests/a/test_one.py::test_slow"],
        ["tests/a/test_one.py"],
        ["tests"],
    ]
    assert [run[0] for run in stages(by_kind["call"], covering)] == ["tests"]


def test_the_record_of_a_run_names_tests_as_pytest_does(tmp_path: Path) -> None:
    data = CoverageData(str(tmp_path / "coverage"))
    data.set_context("tests/a/test_one.py::test_fast[a.b]|run")
    data.add_lines({"/copy/queue.py": [8]})
    data.write()
    (tmp_path / "tests.xml").write_text(
        '<testsuites><testsuite><testcase classname="tests.a.test_one" name="test_fast[a.b]" time="0.2" />'
        '<testcase classname="tests.a.test_one.TestQueue" name="test_take" time="0.3" />'
        "</testsuite></testsuites>"
    )
    covering = CoveringTests.read(tmp_path, Path("/copy"))
    assert covering.of(Path("queue.py"), 7, 8) == ["tests/a/test_one.py::test_fast[a.b]"]
    assert covering.seconds == {
        "tests/a/test_one.py::test_fast[a.b]": 0.2,
        "tests/a/test_one.py::TestQueue::test_take": 0.3,
    }
