"""The Spark benchmarks run and read every message each time."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from integration.benchmarks import spark, spark_fixed_costs, spark_planning, spark_source
from integration.benchmarks.plain_pulls import PlainPulls
from integration.benchmarks.ready_rows import columns_of_pulled, decode_spans, encode_spans, ready_for_pulled
from integration.benchmarks.spark import Figure
from integration.benchmarks.spark_works import Work
from integration.clusters.cluster import Cluster
from rocketmq_py import blocking
from rocketmq_py.consumer.read.offset_ranges import OffsetRange
from rocketmq_py.spark import connections
from rocketmq_py.spark.record_batches import MAX_BATCH_ROWS
from tests.spark.session import java_or_skip


def test_workloads_without_spark_are_measured(real_cluster: Callable[[str], Cluster]) -> None:
    try:
        figures = spark_source.run(real_cluster("5.5.0"), count=500, size=10, rounds=2)
    finally:
        connections.close_all()
    assert {name: len(rounds) for name, rounds in figures.items()} == {
        "pull": 2, "columns": 2, "decode": 2, "source": 2,
    }  # fmt: skip
    assert all(figure.rate > 0 for rounds in figures.values() for figure in rounds)


def test_plain_socket_baselines_read_every_message(
    real_cluster: Callable[[str], Cluster],
) -> None:
    cluster, topic, count = real_cluster("5.5.0"), f"plain-pulls-{uuid.uuid4().hex}", MAX_BATCH_ROWS + 1000
    trio.run(spark_source.fill, cluster, topic, count, 10, 1)
    with blocking.Reader(cluster.name_servers) as reader:
        ((queue, ends),) = reader.offsets(topic).items()
    for first in (0, 5, 1000):
        span = OffsetRange(queue, first, ends[1])
        addressed = decode_spans(encode_spans([(cluster.brokers[queue.broker_name], span)]))
        assert addressed == [(cluster.brokers[queue.broker_name], span)]
        assert sum(chunk.next - chunk.first for chunk in PlainPulls(*addressed[0])) == count - first
        columns = columns_of_pulled(*addressed[0])
        offsets = [offset for batch in columns for offset in batch["queueOffset"].to_pylist()]
        assert sorted(offsets) == [*range(first, ends[1])], "in the order of the answers"
        rows = [batch.num_rows for batch in ready_for_pulled(*addressed[0], 10)]
        assert rows == (
            [MAX_BATCH_ROWS, count - first - MAX_BATCH_ROWS] if first < 1000 else [MAX_BATCH_ROWS]
        )
    with pytest.raises(RuntimeError, match="brought"):
        list(PlainPulls(addressed[0][0], OffsetRange(queue, 0, ends[1] + 1)))


def test_workloads_with_spark_are_measured(
    real_cluster: Callable[[str], Cluster], capsys: pytest.CaptureFixture[str]
) -> None:
    java_or_skip()
    few = ["--count", "1000", "--size", "10", "--rounds", "1", "--cold", "--backlog", "500", "--queues", "40"]
    results = spark.run(real_cluster("5.5.0"), spark.parse(few))
    assert len(results.figures) == 19
    assert all(figure.rate > 0 for (figure,) in results.figures.values())
    assert [reading.rows for reading in results.readings] == [500, 500, 40, 40]
    for batch, stream in zip(results.readings[::2], results.readings[1::2], strict=True):
        assert len(batch.planning) == 1
        assert len(stream.planning) > 1
        assert {"driver", "tasks", "planning of batches"} <= batch.peaks.keys()
        assert {"driver", "tasks", "planning of streams"} <= stream.peaks.keys()
    table = capsys.readouterr().out
    assert all(f"| {work.title} |" in table for work in results.figures)


def test_ratios_are_medians_of_ratios_within_rounds() -> None:
    def rounds(*rates: float) -> list[Figure]:
        return [Figure(rate, 1.0, 2.0, 3.0) for rate in rates]

    pull, read = Work("pull", 1, lambda: 1), Work("read", 1, lambda: 1, compared_with="pull")
    table = spark.table({pull: rounds(100, 1000, 10), read: rounds(50, 4000, 20)})
    assert table.splitlines()[2:] == [
        "| pull | 100 | - | - | 1.00 | 2.00 | 3.00 |",
        "| read | 50 | 2.00 | pull | 1.00 | 2.00 | 3.00 |",
    ]


@pytest.mark.parametrize("words", [["--count", "1"], ["--version", "1.0"], ["--rounds", "x"]])
def test_invalid_arguments_are_rejected(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        spark.parse(words)
    assert "error: " in capsys.readouterr().err


def test_tasks_are_profiled(real_cluster: Callable[[str], Cluster], tmp_path: Path) -> None:
    pytest.importorskip("pyinstrument", reason="pyinstrument is not installed: `make bench` does that")
    words = ["--count", "10000", "--rounds", "0", "--profile", str(tmp_path)]
    spark.run(real_cluster("5.5.0"), spark.parse(words))
    profiles = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert "read_ranges" in profiles["spark-source-task.html"]
    assert "pull" in profiles["spark-source-trio.html"]
    assert "RowWriter" in profiles["spark-sink-task.html"]
    assert "trio_thread" in profiles["spark-sink-trio.html"]


def test_planning_is_measured_on_scripted_brokers() -> None:
    readings = spark_planning.run([8, 40], backlog=1_000_000)
    assert [(reading.queues, reading.tasks) for reading in readings] == [(8, 8), (40, 40)]
    assert all(reading.first_batch > 0 and reading.memory > reading.growth for reading in readings)
    assert len(spark_planning.table(readings).splitlines()) == 4


def test_fixed_costs_of_streams_are_measured(real_cluster: Callable[[str], Cluster]) -> None:
    java_or_skip()
    figures = spark_fixed_costs.run(real_cluster("5.5.0"), [1, 2], rounds=1, batches=2)
    sources = (spark_fixed_costs.OWN, spark_fixed_costs.READY, spark_fixed_costs.RATE)
    assert set(figures) == {(source, topics) for source in sources for topics in (1, 2)}
    assert all(costs.first > 0 and costs.each > 0 for (costs,) in figures.values())
    assert len(spark_fixed_costs.table(figures).splitlines()) == 2 + len(figures)
