"""The comparison of two runs of the benchmarks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from integration.benchmarks.regressions import main, ratios, report

ROW = ("awaited", 128, "ours-trio")


def run(client: str, rate: float, number: int = 1) -> dict[str, Any]:
    return {"workload": "awaited", "size": 128, "client": client, "round": number, "rate": rate}


def test_ratios_are_medians_of_ratios_within_rounds() -> None:
    runs = [
        run("java", 100, 1), run("ours-trio", 100, 1),
        run("java", 50, 2), run("ours-trio", 100, 2),
        run("java", 100, 3), run("ours-trio", 300, 3),
        run("go", 100, 1), run("ours-trio", 900, 4),
    ]  # fmt: skip
    assert ratios(runs) == {ROW: 2.0}


@pytest.mark.parametrize(("after", "worse"), [(1.0, 0), (0.91, 0), (0.89, 1), (2.0, 0)])
def test_rows_that_lost_more_than_a_tenth_are_marked(after: float, worse: int) -> None:
    table, count = report({ROW: 1.0}, {ROW: after})
    assert count == worse
    assert ("**worse**" in table) == bool(worse)


def test_rows_of_one_run_only_are_left_out() -> None:
    table, count = report({ROW: 1.0}, {("consume", 128, "ours-trio"): 1.0})
    assert (table.count("\n"), count) == (1, 0)


def test_exit_code_says_whether_a_row_became_worse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    after.write_text(json.dumps({"runs": [run("java", 100), run("ours-trio", 50)]}))
    assert main([str(before), str(after)]) == 0
    assert "this run is the first" in capsys.readouterr().out
    before.write_text(json.dumps({"runs": [run("java", 100), run("ours-trio", 100)]}))
    assert main([str(before), str(after)]) == 1
    assert "| awaited | 128 | ours-trio | 1.00 | 0.50 | -50% **worse** |" in capsys.readouterr().out
