"""Read the results back, work out what they must be, and compare.

python -m examples.spark_pipeline.verify NAMESRV DIRECTORY [--orders N] [--plot FILE]

It ends with 0 if nothing is missing, wrong or there more than once, else with 1. ``--plot`` draws the day's
running totals.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Hashable, Iterable
from datetime import UTC, datetime
from pathlib import Path

import attrs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from examples.spark_pipeline.orders import (
    COUNT,
    ORDERS_TOPIC,
    TOTALS_TOPIC,
    Arrival,
    Hour,
    Total,
    arrivals,
    truth,
)
from examples.spark_pipeline.picture import draw
from examples.spark_pipeline.session import start_spark
from rocketmq_py.spark import deduplicate

GOOD = "Nothing is missing, and everything is there once."
TOTAL = "hour TIMESTAMP, category STRING, orders BIGINT, cents BIGINT"


@attrs.frozen
class Comparison:
    """One line of the table.

    Attributes:
        what: was compared.
        expected, found: how many there should be, and are.
        missing: how many of the expected are not there.
        extra: how many are there that are not expected: wrong ones, and those that are there more than once.
        again: how many were there more than once before they were told apart by their stamps.
    """

    what: str
    expected: int
    found: int
    missing: int
    extra: int
    again: int = 0

    @property
    def good(self) -> bool:
        """Whether all is there, each once."""
        return not self.missing and not self.extra


def compare(
    what: str, expected: Iterable[Hashable], found: Iterable[Hashable], *, again: int = 0
) -> Comparison:
    """Compare what should be there with what is, each as often as it comes."""
    wanted, there = Counter(expected), Counter(found)
    missing, extra = (wanted - there).total(), (there - wanted).total()
    return Comparison(what, wanted.total(), there.total(), missing, extra, again)


def parse(messages: DataFrame) -> DataFrame:
    """Return the totals that messages hold, with the time of storing."""
    total = f.from_json(f.col("body").cast("string"), TOTAL).alias("total")
    return messages.select(total, "storeTimestamp").select("total.*", "storeTimestamp")


def read_topic(spark: SparkSession, address: str, topic: str) -> DataFrame:
    """Return all that a topic holds now."""
    return spark.read.format("rocketmq").option("nameServer", address).option("topic", topic).load()


def rows(totals: DataFrame) -> list[tuple[Hour, Total]]:
    """Return the rows of a table of totals."""
    return [
        ((datetime.fromtimestamp(row.second, UTC), row.category), Total(row.orders, row.cents))
        for row in totals.withColumn("second", f.unix_seconds("hour")).collect()
    ]


def verify(spark: SparkSession, address: str, directory: Path, came: list[Arrival]) -> list[Comparison]:
    """Compare all that the job has written with what must become of these messages."""
    must = truth(came)
    orders = read_topic(spark, address, ORDERS_TOPIC).select("body").collect()
    messages = read_topic(spark, address, TOTALS_TOPIC)
    sent = rows(parse(deduplicate(messages)))
    files = rows(spark.read.parquet(str(directory / "hours")))
    aside = spark.read.json(str(directory / "rejected"), schema="reason STRING, text STRING").collect()
    rejected = [(row.reason, row.text.encode()) for row in aside]
    return [
        compare(
            f"messages in {ORDERS_TOPIC}", [each.body for each in came], [bytes(row.body) for row in orders]
        ),
        compare(f"totals in {TOTALS_TOPIC}", must.closed.items(), sent, again=messages.count() - len(sent)),
        compare("totals in hours/*.parquet", must.closed.items(), files),
        compare("messages in rejected/*.json", must.rejected.elements(), rejected),
    ]


def restarts(sent: DataFrame, directory: Path) -> list[int]:
    """Return from which hours of the day on the totals were sent by a job that was started again."""
    starts = [datetime.fromisoformat(line) for line in (directory / "starts").read_text().splitlines()]
    rows = sent.select(
        f.unix_millis("storeTimestamp").alias("stored"), f.hour("hour").alias("hour")
    ).collect()
    later = [[row.hour for row in rows if row.stored >= start.timestamp() * 1000] for start in starts[1:]]
    return [min(hours) for hours in later if hours]


def table(comparisons: list[Comparison]) -> str:
    """Return the comparisons as a table."""
    width = max(len(each.what) for each in comparisons)
    lines = [f"{'':{width}} {'expected':>9} {'found':>9} {'missing':>9} {'extra':>9} {'sent again':>11}"]
    for each in comparisons:
        counts = f"{each.expected:>9,} {each.found:>9,} {each.missing:>9,} {each.extra:>9,} {each.again:>11,}"
        lines.append(f"{each.what:{width}} {counts}")
    return "\n".join(lines)


def main() -> int:
    """Compare, print, draw; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="examples.spark_pipeline.verify", description=__doc__.split("\n")[0]
    )
    parser.add_argument("address", help="name servers, host:port;host:port")
    parser.add_argument("directory", type=Path, help="where the job's files are")
    parser.add_argument(
        "--orders", type=int, default=COUNT, metavar="N", help="of the day, as sent (%(default)s)"
    )
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw the running totals: .png, .svg or .pdf"
    )
    arguments = parser.parse_args()

    came = arrivals(arguments.orders)
    spark = start_spark("verify", arguments.directory)
    comparisons = verify(spark, arguments.address, arguments.directory, came)
    print(table(comparisons))
    if arguments.plot is not None:
        sent = parse(deduplicate(read_topic(spark, arguments.address, TOTALS_TOPIC)))
        expected = list(truth(came).closed.items())
        print(draw(arguments.plot, expected, rows(sent), restarts(sent, arguments.directory)))
    spark.stop()
    bad = [each.what for each in comparisons if not each.good]
    print(f"NOT AS IT MUST BE: {', '.join(bad)}." if bad else GOOD)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
