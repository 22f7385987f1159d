"""The parts of the pipeline under examples/."""

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

from examples.spark_pipeline import job, orders, picture, progress, verify
from examples.spark_pipeline.orders import MIDNIGHT, MINUTE, Arrival, Order, Total, arrivals, truth
from rocketmq_py import Message
from rocketmq_py.blocking import Producer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FEW = 700


def test_a_day_is_the_same_for_the_same_seed_and_has_what_real_days_have() -> None:
    day = arrivals()
    assert day == arrivals()
    assert day != arrivals(seed=1)
    assert [each.at for each in day] == sorted([each.at for each in day])
    came = [each.order for each in day if each.order is not None]
    assert max(Counter([order.id for order in came]).values()) == 2, "repeated"
    assert sorted(came, key=lambda order: order.placed) != came, "late"
    assert {order.on_time for order in came} == {True, False}
    assert any(each.order is None for each in day)


def test_no_order_that_counts_can_be_dropped_by_the_watermark() -> None:
    newest = MIDNIGHT
    for each in arrivals():
        if each.order is not None and each.order.on_time:
            newest = max(newest, each.order.placed)
            assert each.order.placed > newest - orders.WATERMARK / 2


def test_the_truth_of_a_few_orders() -> None:
    def arrival(name: str, product: str, minute: int, waited: int = 1) -> Arrival:
        placed = MIDNIGHT + minute * MINUTE
        order = Order(name, product, 2, placed, placed + waited * MINUTE)
        return Arrival(order.received, order.body(), order)

    first, late = arrival("a", "chess", 1), arrival("d", "lamp", 50, waited=31)
    cut = Arrival(MIDNIGHT, b'{"id": "x', None)
    must = truth([first, arrival("b", "cards", 59), first, arrival("c", "novel", 180), cut, late, late])
    assert must.totals == {
        (MIDNIGHT, "games"): Total(orders=2, cents=2 * (2999 + 450)),
        (MIDNIGHT + timedelta(hours=3), "books"): Total(orders=1, cents=2 * 1250),
    }
    assert list(must.closed) == [(MIDNIGHT, "games")]
    assert must.rejected == {("unreadable", cut.body): 1, ("too late", late.body): 2}


def test_lag_is_told_by_topic() -> None:
    end = '{"version": 1, "offsets": {"a": {"x": {"0": 5, "1": 7}}, "b": {"y": {"0": 1}}}}'
    latest = '{"version": 1, "offsets": {"a": {"x": {"0": 9, "1": 7}}, "b": {"y": {"0": 3, "1": 4}}}}'
    assert progress.lag(end, latest) == {"a": 4, "b": 2}
    assert progress.lag(end, end) == {"a": 0, "b": 0}
    for nothing in (None, "", "null", "None"):  # as the versions of Spark say it
        assert progress.lag(end, nothing) == progress.lag(nothing, nothing) == {}


def test_a_line_tells_of_a_batch() -> None:
    end, latest = [f'{{"offsets": {{"Orders": {{"x": {{"0": {place}}}}}}}}}' for place in (5, 12_000)]
    source = SimpleNamespace(endOffset=end, latestOffset=latest)
    batch: Any = SimpleNamespace(
        name="totals", batchId=3, numInputRows=2500, batchDuration=890, sources=[source]
    )
    assert progress.line(batch) == "totals batch 3: 2,500 rows in 890 ms, Orders 11,995 behind"
    batch.sources = [SimpleNamespace(endOffset=end, latestOffset="None")]
    assert progress.line(batch) == "totals batch 3: 2,500 rows in 890 ms"


@attrs.frozen
class FakeQuery:
    """A query that runs, has ended (None), or has failed."""

    error: Exception | None = None
    isActive: bool = False  # noqa: N815 - Spark's name
    status: dict[str, str] = attrs.field(factory=lambda: {"message": "Initializing sources"})

    def exception(self) -> Exception | None:
        return self.error

    def stop(self) -> None:
        pass


@attrs.frozen
class FakeWriter:
    """Starts queries: the first ones fail."""

    failures: int
    started: list[FakeQuery] = attrs.field(factory=list)

    def start(self) -> FakeQuery:
        error = OSError("no\nnews") if len(self.started) < self.failures else None
        self.started.append(FakeQuery(error))
        return self.started[-1]


@pytest.mark.parametrize(("failures", "starts", "good"), [(0, 1, True), (2, 3, True), (99, 6, False)])
def test_a_query_that_fails_is_started_again_a_few_times(
    failures: int,
    starts: int,
    good: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    failing, other = FakeWriter(failures), FakeWriter(0)
    writers = cast(Any, {"failing": failing, "other": other})
    assert job.run(writers, stops=[]) is good
    assert (len(failing.started), len(other.started)) == (starts, 1)
    assert capsys.readouterr().out == "failing failed: no\n" * min(failures, starts)


def test_the_line_of_an_error_that_says_most() -> None:
    text = '[PYTHON_EXCEPTION] Traceback:\n  File "x.py", line 9\nbuiltins.ValueError: a: b\n SQLSTATE: 38000'
    assert job.reason(Exception(text)) == "builtins.ValueError: a: b"
    assert job.reason(Exception("Python worker failed\nError: no")) == "Python worker failed"


def test_a_comparison_sees_what_is_missing_wrong_and_there_twice() -> None:
    good = verify.compare("totals", [("x", 1), ("y", 2)], [("y", 2), ("x", 1)], again=3)
    missing = verify.compare("totals", [("x", 1), ("y", 2)], [("x", 1)])
    wrong = verify.compare("totals", [("x", 1)], [("x", 5)])
    twice = verify.compare("totals", [("x", 1)], [("x", 1), ("x", 1)])
    assert [each.good for each in (good, missing, wrong, twice)] == [True, False, False, False]
    assert [(each.missing, each.extra) for each in (missing, wrong, twice)] == [(1, 0), (1, 1), (0, 1)]
    header, line = verify.table([good]).splitlines()
    assert header.split() == ["expected", "found", "missing", "extra", "sent", "again"]
    assert line.split() == ["totals", "2", "2", "0", "0", "3"]


def test_a_picture_needs_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    said = picture.draw(tmp_path / "x.png", [], [], [])
    assert "matplotlib is not installed; pip install matplotlib" in said
    assert not (tmp_path / "x.png").exists()


def test_a_picture_of_the_running_totals(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    expected = [*truth(arrivals(FEW)).closed.items()]
    picture.draw(tmp_path / "new" / "x.svg", expected, expected[5:], [3, 9])
    drawn = (tmp_path / "new" / "x.svg").read_text()
    assert drawn.startswith("<?xml")
    hours, euros = picture.running(
        [((MIDNIGHT + timedelta(hours=n), "light"), Total(1, 150)) for n in (2, 1)], "light"
    )
    assert (hours, euros) == ([2, 3], [1.5, 3.0])


def messages(spark: SparkSession, came: list[Arrival]) -> DataFrame:
    """What the source gives, as far as the job looks at it."""
    rows = [(each.body, number % 4, number // 4) for number, each in enumerate(came)]
    return spark.createDataFrame(rows, "body BINARY, queueId INT, queueOffset BIGINT")


def test_orders_are_parsed_and_rejected_as_the_truth_says(spark: SparkSession) -> None:
    came = arrivals(3000)
    parsed = job.parse(messages(spark, came))
    good = Counter([row.id for row in job.accepted(parsed).collect()])
    aside = Counter([(row.reason, row.text.encode()) for row in job.rejected(parsed).collect()])
    assert aside == truth(came).rejected
    assert {reason for reason, _ in aside} == {"unreadable", "too late"}
    assert good == Counter([each.order.id for each in came if each.order is not None and each.order.on_time])


def test_totals_are_those_of_the_truth_whatever_the_batches(spark: SparkSession, tmp_path: Path) -> None:
    came = arrivals(FEW)
    (tmp_path / "orders").mkdir()
    for number in range(0, len(came), 300):
        bodies = [each.body for each in came[number : number + 300]]
        file = tmp_path / "orders" / f"{number:05}.txt"
        file.write_bytes(b"\n".join(bodies))
        os.utime(file, (number, number))  # the order in which Spark takes them
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
    assert dict(found) == truth(came).closed
    assert len(found) == len(truth(came).closed)


def test_verification_tells_what_the_job_did_not_write(
    spark: SparkSession,
    broker_address: str,
    new_topic: Callable[[], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    came = arrivals(FEW)
    must = truth(came)
    orders_topic, totals_topic = new_topic(), new_topic()
    monkeypatch.setattr(verify, "ORDERS_TOPIC", orders_topic)
    monkeypatch.setattr(verify, "TOTALS_TOPIC", totals_topic)
    with Producer(broker_address, group="test") as producer:
        producer.send_batch([Message(orders_topic, each.body) for each in came[1:]])
    totals = [(hour, category, each.orders, each.cents) for (hour, category), each in must.closed.items()]
    lost = spark.createDataFrame(totals[1:], verify.TOTAL)
    sink = job.as_messages(lost).write.format("rocketmq").option("nameServer", broker_address)
    for _ in range(2):  # the same job, run again
        sink.option("topic", totals_topic).option("jobId", "job").mode("append").save()
    spark.createDataFrame([*totals, totals[0]], verify.TOTAL).write.parquet(str(tmp_path / "hours"))
    job.rejected(job.parse(messages(spark, came))).write.json(str(tmp_path / "rejected"))
    comparisons = verify.verify(spark, broker_address, tmp_path, came)
    assert [(each.missing, each.extra, each.again) for each in comparisons] == [
        (1, 0, 0),
        (1, 0, len(totals) - 1),
        (0, 1, 0),
        (0, 0, 0),
    ]
