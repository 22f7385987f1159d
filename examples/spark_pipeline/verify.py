"""Read the job's results and compare them with the expected results.

python -m examples.spark_pipeline.verify NAMESRV DIRECTORY [--orders N] [--plot FILE]

It exits with 1 if results are missing, wrong or duplicated. ``--plot`` plots the day's running totals.
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
    HourlyKey,
    Total,
    arrivals,
    expected_results,
)
from examples.spark_pipeline.plot import draw
from examples.spark_pipeline.session import start_spark
from rocketmq_py.spark import deduplicate

SUCCESS = "All results are complete and correct."
TOTAL = "hour TIMESTAMP, category STRING, orders BIGINT, cents BIGINT"


@attrs.frozen
class Comparison:
    """One line of the table.

    Attributes:
        name: the kind of results.
        expected, found: the numbers of expected and found results.
        missing: the number of expected results that were not found.
        extra: the number of found results that were not expected: wrong results and duplicates.
        resent: the number of duplicates that were dropped by their stamps.
    """

    name: str
    expected: int
    found: int
    missing: int
    extra: int
    resent: int = 0

    @property
    def is_equal(self) -> bool:
        """Whether each expected result was found once, and no other."""
        return not self.missing and not self.extra


def compare(
    name: str, expected: Iterable[Hashable], found: Iterable[Hashable], *, resent: int = 0
) -> Comparison:
    """Compare the expected results with those found, including their number."""
    expected_counts, found_counts = Counter(expected), Counter(found)
    missing, extra = (expected_counts - found_counts).total(), (found_counts - expected_counts).total()
    return Comparison(name, expected_counts.total(), found_counts.total(), missing, extra, resent)


def parse(messages: DataFrame) -> DataFrame:
    """Return the totals in messages, with their store time."""
    total = f.from_json(f.col("body").cast("string"), TOTAL).alias("total")
    return messages.select(total, "storeTimestamp").select("total.*", "storeTimestamp")


def read_topic(spark: SparkSession, address: str, topic: str) -> DataFrame:
    """Return all messages of a topic."""
    return spark.read.format("rocketmq").option("nameServer", address).option("topic", topic).load()


def rows(totals: DataFrame) -> list[tuple[HourlyKey, Total]]:
    """Return the rows of a table of totals."""
    return [
        ((datetime.fromtimestamp(row.second, UTC), row.category), Total(row.orders, row.cents))
        for row in totals.withColumn("second", f.unix_seconds("hour")).collect()
    ]


def verify(spark: SparkSession, address: str, directory: Path, sent: list[Arrival]) -> list[Comparison]:
    """Compare all results of the job with the expected results of the messages that were sent."""
    expected = expected_results(sent)
    orders = read_topic(spark, address, ORDERS_TOPIC).select("body").collect()
    messages = read_topic(spark, address, TOTALS_TOPIC)
    totals = rows(parse(deduplicate(messages)))
    files = rows(spark.read.parquet(str(directory / "hours")))
    json_rows = spark.read.json(str(directory / "rejected"), schema="reason STRING, text STRING").collect()
    rejected = [(row.reason, row.text.encode()) for row in json_rows]
    resent = messages.count() - len(totals)
    return [
        compare(
            f"messages in {ORDERS_TOPIC}", [each.body for each in sent], [bytes(row.body) for row in orders]
        ),
        compare(f"totals in {TOTALS_TOPIC}", expected.closed.items(), totals, resent=resent),
        compare("totals in hours/*.parquet", expected.closed.items(), files),
        compare("messages in rejected/*.json", expected.rejected.elements(), rejected),
    ]


def restarts(sent: DataFrame, directory: Path) -> list[int]:
    """Return the first hour of the day that each restarted job has sent."""
    starts = [datetime.fromisoformat(line) for line in (directory / "starts").read_text().splitlines()]
    rows = sent.select(
        f.unix_millis("storeTimestamp").alias("stored"), f.hour("hour").alias("hour")
    ).collect()
    later = [[row.hour for row in rows if row.stored >= start.timestamp() * 1000] for start in starts[1:]]
    return [min(hours) for hours in later if hours]


def table(comparisons: list[Comparison]) -> str:
    """Return the comparisons as a table."""
    width = max(len(each.name) for each in comparisons)
    lines = [f"{'':{width}} {'expected':>9} {'found':>9} {'missing':>9} {'extra':>9} {'sent again':>11}"]
    for each in comparisons:
        counts = (
            f"{each.expected:>9,} {each.found:>9,} {each.missing:>9,} {each.extra:>9,} {each.resent:>11,}"
        )
        lines.append(f"{each.name:{width}} {counts}")
    return "\n".join(lines)


def main() -> int:
    """Verify, print the table, plot, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="examples.spark_pipeline.verify", description=__doc__.split("\n")[0]
    )
    parser.add_argument("address", help="name servers, host:port;host:port")
    parser.add_argument("directory", type=Path, help="directory of the job's files")
    parser.add_argument(
        "--orders", type=int, default=COUNT, metavar="N", help="orders per day, as sent (%(default)s)"
    )
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="plot the running totals: .png, .svg or .pdf"
    )
    arguments = parser.parse_args()

    messages = arrivals(arguments.orders)
    spark = start_spark("verify", arguments.directory)
    comparisons = verify(spark, arguments.address, arguments.directory, messages)
    print(table(comparisons))
    if arguments.plot is not None:
        sent = parse(deduplicate(read_topic(spark, arguments.address, TOTALS_TOPIC)))
        expected = list(expected_results(messages).closed.items())
        print(draw(arguments.plot, expected, rows(sent), restarts(sent, arguments.directory)))
    spark.stop()
    wrong = [each.name for each in comparisons if not each.is_equal]
    print(f"WRONG RESULTS: {', '.join(wrong)}." if wrong else SUCCESS)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
