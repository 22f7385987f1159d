"""Compare two runs of the benchmarks, and report the rows that became worse.

    python -m integration.benchmarks.regressions BEFORE.json AFTER.json

Both files are written by ``python -m integration.benchmarks.run --json``. Rates of different machines cannot
be compared, so a row is the ratio of this project's rate to Java's within a round, and their median over the
rounds. The report is a Markdown table. A row that lost more than a tenth is marked, and the exit code is 1.
If BEFORE does not exist, the report says so, and the exit code is 0.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

OURS, JAVA = "ours-", "java"
LOSS = 0.1
"""The share of a ratio that may be lost between two runs."""

Row = tuple[str, int, str]
"""A workload, the size of its bodies, and a client of this project."""


def ratios(runs: Iterable[Mapping[str, Any]]) -> dict[Row, float]:
    """Return the median ratio to Java of each row that has one."""
    rates: dict[tuple[str, int, int], dict[str, float]] = defaultdict(dict)
    for run in runs:
        rates[run["workload"], run["size"], run["round"]][run["client"]] = run["rate"]
    found: dict[Row, list[float]] = defaultdict(list)
    for (workload, size, _), by_client in rates.items():
        java = by_client.get(JAVA)
        for client, rate in by_client.items():
            if java and client.startswith(OURS):
                found[workload, size, client].append(rate / java)
    return {row: statistics.median(each) for row, each in found.items()}


def report(before: Mapping[Row, float], after: Mapping[Row, float]) -> tuple[str, int]:
    """Return a Markdown table of the rows that both runs have, and the number of rows that became worse."""
    lines = ["| workload | bytes | client | times Java before | after | change |", "| --- |" + " ---: |" * 5]
    worse = 0
    for row in sorted(before.keys() & after.keys()):
        change = after[row] / before[row] - 1
        mark = " **worse**" if change < -LOSS else ""
        worse += bool(mark)
        workload, size, client = row
        cells = [
            workload,
            str(size),
            client,
            f"{before[row]:.2f}",
            f"{after[row]:.2f}",
            f"{change:+.0%}{mark}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines), worse


def main(arguments: list[str]) -> int:
    """Print the report. Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m integration.benchmarks.regressions", allow_abbrev=False)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    chosen = parser.parse_args(arguments)
    if not chosen.before.exists():
        print(f"{chosen.before} does not exist: this run is the first")
        return 0
    before, after = (ratios(json.loads(file.read_text())["runs"]) for file in (chosen.before, chosen.after))
    table, worse = report(before, after)
    print(table)
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
