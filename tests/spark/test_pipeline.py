"""The parts of the example pipeline."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import attrs
import pytest

from examples.spark_pipeline import job, orders, plot, progress, verify
from examples.spark_pipeline.orders import (
    MIDNIGHT,
    MINUTE,
    Arrival,
    Order,
    Total,
    arrivals,
    expected_results,
)
from rocketmq_py import Message
from rocketmq_py.blocking import Producer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FEW = 700


def test_generated_day_is_reproducible_and_has_late_and_repeated_orders() -> None:
    day = arrivals()
    assert day == arrivals()
    assert day != arrivals(seed=1)
    assert [each.at for each in day] == sorted([each.at for each in day])
    day_orders = [each.order for each in day if each.order is not None]
    assert max(Counter([order.id for order in day_orders]).values()) == 2, "repeated"
    assert sorted(day_orders, key=lambda order: order.placed) != day_orders, "late"
    assert {order.on_time for order in day_orders} == {True, False}
    assert any(each.order is None for each in day)


def test_watermark_never_drops_an_order_that_is_on_time() -> None:
    newest = MIDNIGHT
    for each in arrivals():
        if each.order is not None and each.order.on_time:
            newest = max(newest, each.order.placed)
            assert each.order.placed > newest - orders.WATERMARK / 2


def test_expected_results_of_a_few_orders() -> None:
    def arrival(name: str, product: str, minute: int, delay: int = 1) -> Arrival:
        placed = MIDNIGHT + minute * MINUTE
        order = Order(name, product, 2, placed, placed + delay * MINUTE)
        return Arrival(order.received, order.body(), order)

    first, late = arrival("a", "chess", 1), arrival("d", "lamp", 50, delay=31)
    truncated = Arrival(MIDNIGHT, b'{"id": "x', None)
    expected = expected_results(
        [first, arrival("b", "cards", 59), first, arrival("c", "novel", 180), truncated, late, late]
    )
    assert expected.totals == {
        (MIDNIGHT, "games"): Total(orders=2, cents=2 * (2999 + 450)),
        (MIDNIGHT + timedelta(hours=3), "books"): Total(orders=1, cents=2 * 1250),
    }
    assert list(expected.closed) == [(MIDNIGHT, "games")]
    assert expected.rejected == {("unreadable", truncated.body): 1, ("too late", late.body): 2}


def test_lag_by_topic() -> None:
    end = '{"version": 1, "offsets": {"a": {"x": {"0": 5, "1": 7}}, "b": {"y": {"0": 1}}}}'
    latest = '{"version": 1, "offsets": {"a": {"x": {"0": 9, "1": 7}}, "b": {"y": {"0": 3, "1": 4}}}}'
    assert progress.lag(end, latest) == {"a": 4, "b": 2}
    assert progress.lag(end, end) == {"a": 0, "b": 0}
    for missing in (None, "", "null", "None"):  # the values of different versions of Spark
        assert progress.lag(end, missing) == progress.lag(missing, missing) == {}


def test_line_of_a_batch() -> None:
    end, latest = [f'{{"offsets": {{"Orders": {{"x": {{"0": {offset}}}}}}}}}' for offset in (5, 12_000)]
    source = SimpleNamespace(endOffset=end, latestOffset=latest)
    batch: Any = SimpleNamespace(
        name="totals", batchId=3, numInputRows=2500, batchDuration=890, sources=[source]
    )
    assert progress.line(batch) == "totals batch 3: 2,500 rows in 890 ms, Orders 11,995 behind"
    batch.sources = [SimpleNamespace(endOffset=end, latestOffset="None")]
    assert progress.line(batch) == "totals batch 3: 2,500 rows in 890 ms"


@attrs.frozen
class FakeQuery:
    """A query that has ended, or failed with ``error``."""

    error: Exception | None = None
    isActive: bool = False  # noqa: N815 - Spark's name
    status: dict[str, str] = attrs.field(factory=lambda: {"message": "Initializing sources"})

    def exception(self) -> Exception | None:
        return self.error

    def stop(self) -> None:
        pass


@attrs.frozen
class FakeWriter:
    """Starts queries, the first ``failures`` of which fail."""

    failures: int
    started: list[FakeQuery] = attrs.field(factory=list)

    def start(self) -> FakeQuery:
        error = OSError("no\nnews") if len(self.started) < self.failures else None
        self.started.append(FakeQuery(error))
        return self.started[-1]


@pytest.mark.parametrize(("failures", "starts", "succeeds"), [(0, 1, True), (2, 3, True), (99, 6, False)])
def test_failed_query_is_restarted_a_few_times(
    failures: int,
    starts: int,
    succeeds: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    failing, other = FakeWriter(failures), FakeWriter(0)
    writers = cast(Any, {"failing": failing, "other": other})
    assert job.run(writers, stops=[]) is succeeds
    assert (len(failing.started), len(other.started)) == (starts, 1)
    assert capsys.readouterr().out == "failing failed: no\n" * min(failures, starts)


def test_reason_is_the_most_useful_line_of_an_error() -> None:
    text = '[PYTHON_EXCEPTION] Traceback:\n  File "x.py", line 9\nbuiltins.ValueError: a: b\n SQLSTATE: 38000'
    assert job.reason(Exception(text)) == "builtins.ValueError: a: b"
    assert job.reason(Exception("Python worker failed\nError: no")) == "Python worker failed"


def test_comparison_detects_missing_wrong_and_duplicate_results() -> None:
    equal = verify.compare("totals", [("x", 1), ("y", 2)], [("y", 2), ("x", 1)], resent=3)
    missing = verify.compare("totals", [("x", 1), ("y", 2)], [("x", 1)])
    wrong = verify.compare("totals", [("x", 1)], [("x", 5)])
    twice = verify.compare("totals", [("x", 1)], [("x", 1), ("x", 1)])
    assert [each.is_equal for each in (equal, missing, wrong, twice)] == [True, False, False, False]
    assert [(each.missing, each.extra) for each in (missing, wrong, twice)] == [(1, 0), (1, 1), (0, 1)]
    header, line = verify.table([equal]).splitlines()
    assert header.split() == ["expected", "found", "missing", "extra", "sent", "again"]
    assert line.split() == ["totals", "2", "2", "0", "0", "3"]


def test_a_picture_needs_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    text = plot.draw(tmp_path / "x.png", [], [], [])
    assert "matplotlib is not installed. Run: pip install matplotlib" in text
    assert not (tmp_path / "x.png").exists()


def test_plot_of_the_running_totals(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    expected = [*expected_results(arrivals(FEW)).closed.items()]
    plot.draw(tmp_path / "new" / "x.svg", expected, expected[5:], [3, 9])
    svg = (tmp_path / "new" / "x.svg").read_text()
    assert svg.startswith("<?xml")
    hours, euros = plot.running(
        [((MIDNIGHT + timedelta(hours=n), "light"), Total(1, 150)) for n in (2, 1)], "light"
    )
    assert (hours, euros) == ([2, 3], [1.5, 3.0])


def messages(spark: SparkSession, day: list[Arrival]) -> DataFrame:
    """Return the messages with the columns of the source that the job uses."""
    rows = [(each.body, number % 4, number // 4) for number, each in enumerate(day)]
    return spark.createDataFrame(rows, "body BINARY, queueId INT, queueOffset BIGINT")


def test_job_accepts_and_rejects_the_expected_orders(spark: SparkSession) -> None:
    day = arrivals(3000)
    parsed = job.parse(messages(spark, day))
    accepted = Counter([row.id for row in job.accepted(parsed).collect()])
    rejected = Counter([(row.reason, row.text.encode()) for row in job.rejected(parsed).collect()])
    assert rejected == expected_results(day).rejected
    assert {reason for reason, _ in rejected} == {"unreadable", "too late"}
    on_time = [each.order.id for each in day if each.order is not None and each.order.on_time]
    assert accepted == Counter(on_time)


def test_totals_do_not_depend_on_the_batches(spark: SparkSession, tmp_path: Path) -> None:
    day = arrivals(FEW)
    (tmp_path / "orders").mkdir()
    for number in range(0, len(day), 300):
        bodies = [each.body for each in day[number : number + 300]]
        file = tmp_path / "orders" / f"{number:05}.txt"
        file.write_bytes(b"\n".join(bodies))
        os.utime(file, (number, number))  # Spark reads the files by age
    source = spark.readStream.option("maxFilesPerTrigger", 1).text(str(tmp_path / "orders"))
    parsed = job.parse(source.selectExpr("CAST(value AS BINARY) body", "0 queueId", "0L queueOffset"))
    products = spark.read.csv(
        str(orders.PRODUCTS), header=True, schema="product STRING, category STRING, cents BIGINT"
    )
    totals = job.totals_by_hour(job.accepted(parsed), products)
    query = (
        totals.writeStream.format("memory")
        .queryName("pipeline_totals")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = verify.rows(spark.table("pipeline_totals"))
    spark.catalog.dropTempView("pipeline_totals")
    assert dict(found) == expected_results(day).closed
    assert len(found) == len(expected_results(day).closed)


def test_verification_detects_missing_and_duplicate_results(
    spark: SparkSession,
    broker_address: str,
    new_topic: Callable[[], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    day = arrivals(FEW)
    expected = expected_results(day)
    orders_topic, totals_topic = new_topic(), new_topic()
    monkeypatch.setattr(verify, "ORDERS_TOPIC", orders_topic)
    monkeypatch.setattr(verify, "TOTALS_TOPIC", totals_topic)
    with Producer(broker_address, group="test") as producer:
        producer.send_batch([Message(orders_topic, each.body) for each in day[1:]])
    totals = [(hour, category, each.orders, each.cents) for (hour, category), each in expected.closed.items()]
    without_first = spark.createDataFrame(totals[1:], verify.TOTAL)
    sink = job.as_messages(without_first).write.format("rocketmq").option("nameServer", broker_address)
    for _ in range(2):  # run the same job twice
        sink.option("topic", totals_topic).option("jobId", "job").mode("append").save()
    spark.createDataFrame([*totals, totals[0]], verify.TOTAL).write.parquet(str(tmp_path / "hours"))
    job.rejected(job.parse(messages(spark, day))).write.json(str(tmp_path / "rejected"))
    comparisons = verify.verify(spark, broker_address, tmp_path, day)
    assert [(each.missing, each.extra, each.resent) for each in comparisons] == [
        (1, 0, 0),
        (1, 0, len(totals) - 1),
        (0, 1, 0),
        (0, 0, 0),
    ]
