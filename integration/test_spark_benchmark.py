"""The benchmark of the Spark source's reading: that it runs, and finds every message each time."""

from __future__ import annotations

from collections.abc import Callable

from integration.benchmarks.spark_source import run
from integration.clusters.cluster import Cluster
from rocketmq_py.spark import connections


def test_all_works_are_measured(real_cluster: Callable[[str], Cluster]) -> None:
    try:
        figures = run(real_cluster("5.5.0"), count=500, size=10, rounds=2)
    finally:
        connections.close_all()
    assert {name: len(rounds) for name, rounds in figures.items()} == {
        "pull": 2, "columns": 2, "decode": 2, "source": 2,
    }  # fmt: skip
    assert all(figure.rate > 0 for rounds in figures.values() for figure in rounds)
