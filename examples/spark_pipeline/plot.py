"""A plot of the day's running totals, for ``verify --plot FILE``. This module is not a program."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path

from examples.spark_pipeline.orders import HourlyKey, Total


def draw(
    file: Path,
    expected: Sequence[tuple[HourlyKey, Total]],
    found: Sequence[tuple[HourlyKey, Total]],
    restarts: Iterable[int],
) -> str:
    """Plot the running totals, and return a line for the user.

    Args:
        file: the target. Its suffix selects the format: ``.png``, ``.svg`` or ``.pdf``.
        expected: the expected totals, drawn as dots.
        found: the totals that the job sent, drawn as lines.
        restarts: the first hour of the day that each restarted job has sent.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        return f"Cannot plot {file}: matplotlib is not installed. Run: pip install matplotlib"
    figure = Figure(figsize=(9, 5), layout="constrained")
    axis = figure.subplots()
    for number, category in enumerate(sorted({category for (_, category), _ in expected})):
        axis.step(*running(found, category), where="post", color=f"C{number}", label=category)
        axis.plot(
            *running(expected, category), "o", color=f"C{number}", markersize=4, markerfacecolor="white"
        )
    for number, hour in enumerate(restarts):
        label = "restart" if number == 0 else None
        axis.axvline(hour + 0.5, color="black", linestyle=":", linewidth=1, label=label)
    axis.set_title("Running totals: lines as sent by the job, dots as expected", fontsize="medium")
    axis.set_xlabel("hour of the day")
    axis.set_xticks(range(0, 25, 3))
    axis.set_ylabel("euros")
    axis.yaxis.set_major_formatter("{x:,.0f}")
    axis.grid(alpha=0.3)
    axis.legend(frameon=False)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=150)
    return f"Plotted the running totals: {file}"


def running(totals: Iterable[tuple[HourlyKey, Total]], category: str) -> tuple[list[int], list[float]]:
    """Return the end of each hour, and the category's total up to it in euros."""
    hours = sorted([(start.hour + 1, total.cents) for (start, name), total in totals if name == category])
    return [end for end, _ in hours], [cents / 100 for cents in accumulate(cents for _, cents in hours)]
