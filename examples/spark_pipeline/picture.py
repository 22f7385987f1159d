"""The day's running totals as a picture.

Not run by itself: ``verify --plot FILE`` draws it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path

from examples.spark_pipeline.orders import Hour, Total


def draw(
    file: Path,
    expected: Sequence[tuple[Hour, Total]],
    found: Sequence[tuple[Hour, Total]],
    restarts: Iterable[int],
) -> str:
    """Draw what was sold up to each hour's end, and say what became of the picture.

    Args:
        file: its name says the format: ``.png``, ``.svg`` or ``.pdf``.
        expected: the totals as they must be, drawn as dots.
        found: the totals as the job sent them, drawn as lines.
        restarts: from which hours of the day on a job has sent them that was started again.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        return f"{file} is not drawn: matplotlib is not installed; pip install matplotlib"
    figure = Figure(figsize=(9, 5), layout="constrained")
    axis = figure.subplots()
    for number, category in enumerate(sorted({category for (_, category), _ in expected})):
        axis.step(*running(found, category), where="post", color=f"C{number}", label=category)
        axis.plot(
            *running(expected, category), "o", color=f"C{number}", markersize=4, markerfacecolor="white"
        )
    for number, hour in enumerate(restarts):
        label = "started again" if number == 0 else None
        axis.axvline(hour + 0.5, color="black", linestyle=":", linewidth=1, label=label)
    axis.set_title("Running totals: lines as the job sent them, dots as they must be", fontsize="medium")
    axis.set_xlabel("hour of the day")
    axis.set_xticks(range(0, 25, 3))
    axis.set_ylabel("euros")
    axis.yaxis.set_major_formatter("{x:,.0f}")
    axis.grid(alpha=0.3)
    axis.legend(frameon=False)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=150)
    return f"{file} shows the running totals"


def running(totals: Iterable[tuple[Hour, Total]], category: str) -> tuple[list[int], list[float]]:
    """Return the ends of the hours, and the euros up to each."""
    mine = sorted([(begin.hour + 1, total.cents) for (begin, name), total in totals if name == category])
    return [hour for hour, _ in mine], [cents / 100 for cents in accumulate(cents for _, cents in mine)]
