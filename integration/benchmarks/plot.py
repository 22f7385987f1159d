"""The results of the benchmarks as a picture."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from integration.benchmarks.bench import Plan, Results
from integration.benchmarks.report import Row, rows

COLUMNS = 2
WIDTH = 13.0
"""Inches."""
BAR, AROUND = 0.32, 1.0
"""Inches of a bar, and of the space around the bars of one workload."""
OURS, OTHERS = "#2a6f97", "#a9b4c2"


def write_plot(file: Path, plan: Plan, results: Results, title: str) -> None:
    """Draw bars for the medians and a dot for each round, and write them to ``file``.

    The file's extension is the format: ``.png``, ``.svg`` or ``.pdf``. Without results, nothing is written.
    """
    groups = [list(group) for _, group in itertools.groupby(rows(plan, results), _work)]
    if not groups:
        return
    lines = [groups[index : index + COLUMNS] for index in range(0, len(groups), COLUMNS)]
    heights = [AROUND + BAR * max(map(len, line)) for line in lines]
    figure = Figure(figsize=(WIDTH, sum(heights)), layout="constrained")
    axes = figure.subplots(len(lines), COLUMNS, squeeze=False, height_ratios=heights)
    for axis, group in itertools.zip_longest(axes.flat, groups):
        if group is None:
            axis.set_visible(False)
        else:
            _draw(axis, group)
    figure.suptitle(title, fontsize="small", wrap=True)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=150)


def _work(row: Row) -> tuple[str, int]:
    return row.workload.name, row.size


def _draw(axis: Axes, group: Sequence[Row]) -> None:
    figure = group[0].workload.figure
    labels = []
    for index, row in enumerate(group):
        values = [value for run in row.runs if (value := run.figure(figure)) is not None]
        median = statistics.median(values) if values else 0.0
        axis.barh(index, median, color=OURS if row.client.startswith("ours") else OTHERS)
        axis.plot(values, [index] * len(values), ".", color="black", markersize=4)
        labels.append(f"{row.label}  {median:,.0f}" if values else row.label)
    axis.set_yticks(range(len(group)), labels)
    axis.invert_yaxis()
    axis.tick_params(labelsize="small")
    axis.spines[["top", "right"]].set_visible(False)
    better = "less is better" if figure.less_is_better else "more is better"
    axis.set_title(f"{group[0].workload.title}, {group[0].size:,} bytes", loc="left", fontsize="medium")
    axis.set_xlabel(f"{figure.value}, {better}", fontsize="small")
