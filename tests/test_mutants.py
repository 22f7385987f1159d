"""Mutants of the code: each is one change that Python can compile."""

from __future__ import annotations

from pathlib import Path

import pytest

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


def test_the_tests_of_a_mutant_go_from_its_module_to_all() -> None:
    runs = [arguments[0] for arguments in stages(Path("src/rocketmq_py/consumer/read/reader.py"))]
    assert runs == [
        "tests/consumer/read/test_reader.py",
        "tests/consumer/read",
        "tests/consumer",
        "tests/behaviours",
        "tests",
    ]
