"""Results as tables and as JSON."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from integration.benchmarks.bench import Plan, Results, Run
from integration.benchmarks.workloads import Workload

JAVA = "java"
RIVALS = ("java", "go")
"""The clients of which the better one is compared with."""
TRIO = "ours-trio"
INTERFACES = {
    "ours-blocking": ("threads", "floor-threads"),
    "ours-thread": ("outside the main thread", "floor-threads"),
    "ours-aio": ("asyncio", "floor-aio"),
    "ours-uvloop": ("uvloop", "floor-uvloop"),
}
"""The other APIs: their heading in the table, and the client that measures their bare hand-off."""
NOTHING = "-"

HEADINGS = {
    "work": "---",
    "bytes": "---:",
    "client": "---",
    "messages/s": "---:",
    "times Java": "---:",
    "times the better of Java and Go": "---:",
    "client CPU µs": "---:",
    "server CPU µs": "---:",
    "p50 µs": "---:",
    "p99 µs": "---:",
    "peak MiB": "---:",
}
"""The columns of the table, and how they are aligned."""


@attrs.frozen(kw_only=True)
class Row:
    """One client's runs at one workload with bodies of one size.

    Attributes:
        workload: the workload.
        size: bytes of the bodies.
        client: the client's key.
        label: the client's name in the table.
        runs: one per round, without failed ones.
        to_java: times as good as Java, the median of the rounds. None without Java.
        to_rivals: the same, relative to the better of Java and Go in each round.
    """

    workload: Workload
    size: int
    client: str
    label: str
    runs: Sequence[Run]
    to_java: float | None
    to_rivals: float | None

    def median(self, value: Callable[[Run], float | None]) -> float | None:
        """Return the median of a figure of the runs, or None if they lack it."""
        values = [each for run in self.runs if (each := value(run)) is not None]
        return statistics.median(values) if values else None


def rows(plan: Plan, results: Results) -> Iterator[Row]:
    """Yield the table's rows, grouped by workload and size. Clients without runs are omitted."""
    for workload, size in plan.rows():
        here = [run for run in results.runs if (run.workload, run.size) == (workload.name, size)]
        for peer in plan.peers:
            if runs := [run for run in here if run.client == peer.key]:
                yield Row(
                    workload=workload,
                    size=size,
                    client=peer.key,
                    label=peer.label,
                    runs=runs,
                    to_java=_ratio(workload, runs, here, (JAVA,)),
                    to_rivals=_ratio(workload, runs, here, RIVALS),
                )


def _ratio(
    workload: Workload, runs: Sequence[Run], others: Sequence[Run], rivals: Sequence[str]
) -> float | None:
    """Return the median over the rounds of the ratio to the best of ``rivals``."""
    ratios = []
    for run in runs:
        own = run.figure(workload.figure)
        same_round = [other for other in others if other.round == run.round and other.client in rivals]
        figures = [figure for other in same_round if (figure := other.figure(workload.figure)) is not None]
        if own is None or not figures:
            continue
        less = workload.figure.less_is_better
        ratios.append(min(figures) / own if less else own / max(figures))
    return statistics.median(ratios) if ratios else None


def table(plan: Plan, results: Results) -> str:
    """Return the medians and ratios as a Markdown table, followed by skipped clients and failures."""
    lines = [_line(HEADINGS), _line(HEADINGS.values())]
    before = None
    for row in rows(plan, results):
        work = (row.workload, row.size)
        lines.append(_line(_cells(row, first=work != before)))
        before = work
    lines += [f"\nNot measured: {key}: {reason}" for key, reason in results.skipped.items()]
    lines += [f"\nFailed: {failure}" for failure in results.failures]
    return "\n".join(lines)


def interfaces_table(plan: Plan, results: Results) -> str:
    """Return the asyncio and threads APIs relative to trio as a Markdown table, or "" if not planned.

    Each cell has the client's CPU time in multiples of trio's, and the compared figure in times as good as
    trio's, as medians of the ratios within rounds. In brackets, the same for the bare hand-off.
    """
    keys = {peer.key for peer in plan.peers}
    interfaces = [key for key in INTERFACES if key in keys]
    if TRIO not in keys or not interfaces:
        return ""
    names = [INTERFACES[key][0] for key in interfaces]
    lines = [_line(["times trio's CPU / as good", *names]), _line(["---", *["---:"] * len(interfaces)])]
    for workload, size in plan.rows():
        here = [run for run in results.runs if (run.workload, run.size) == (workload.name, size)]
        cells = [_relative_to_trio(workload, here, key) for key in interfaces]
        floors = [_relative_to_trio(workload, here, INTERFACES[key][1]) for key in interfaces]
        shown = [
            f"{cell} ({floor})" if cell and floor else cell or NOTHING
            for cell, floor in zip(cells, floors, strict=True)
        ]
        lines.append(_line([f"{workload.title}, {size:,} bytes", *shown]))
    return "\n".join(lines)


def _relative_to_trio(workload: Workload, here: Sequence[Run], client: str) -> str:
    runs = [run for run in here if run.client == client]
    trio_us = {run.round: run.client_us for run in here if run.client == TRIO}
    times_cpu = [run.client_us / trio_us[run.round] for run in runs if trio_us.get(run.round)]
    as_good = _ratio(workload, runs, here, (TRIO,))
    if not times_cpu or as_good is None:
        return ""
    return f"{_number(statistics.median(times_cpu), digits=2)} / {_number(as_good, digits=2)}"


def _cells(row: Row, *, first: bool) -> Iterator[str]:
    yield row.workload.title if first else ""
    yield f"{row.size:,}" if first else ""
    yield row.label
    yield _number(row.median(lambda run: run.rate))
    yield _number(row.to_java, digits=2)
    yield _number(row.to_rivals, digits=2)
    yield _number(row.median(lambda run: run.client_us), digits=1)
    yield _number(row.median(lambda run: run.server_us), digits=1)
    yield _number(row.median(lambda run: run.p50_us))
    yield _number(row.median(lambda run: run.p99_us))
    yield _number(row.median(lambda run: run.peak_bytes and run.peak_bytes / 2**20))


def _number(value: float | None, *, digits: int = 0) -> str:
    return NOTHING if value is None else f"{value:,.{digits}f}"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def environment(version: str, plan: Plan) -> dict[str, Any]:
    """Return the conditions that the numbers depend on."""
    return {
        "broker": version,
        "rounds": plan.rounds,
        "scale": plan.scale,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }


def heading(about: Mapping[str, Any]) -> str:
    """Return ``environment`` as a sentence."""
    scale = "" if about["scale"] == 1 else f", scale {about['scale']:g}: for a look, not for a comparison"
    return (
        f"RocketMQ {about['broker']}, medians of {about['rounds']} interleaved rounds{scale}; "
        f"{about['cores']} cores shared with the broker, {about['system']}, {about['python']}"
    )


def write_json(file: Path, about: Mapping[str, Any], results: Results) -> None:
    """Write every run to ``file``."""
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"environment": about, **attrs.asdict(results)}, indent=1, ensure_ascii=False)
    file.write_text(text + "\n", encoding="utf-8")
