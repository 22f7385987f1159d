"""The changes of a database are merged into a table."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from examples.spark_lakehouse.change_data import COLUMNS
from integration.clusters.cluster import Cluster
from integration.clusters.plugin import COUNTED
from integration.spark_lakehouse.database import Database, Sent
from integration.spark_lakehouse.programs import KILLS, Spark
from rocketmq_py import Message, blocking

PROGRAM = "examples/spark_lakehouse/merge_changes.py"
QUEUES = 4
"""The queues of ``new_topic`` on all brokers."""
SEEDS = os.environ.get("SPARK_LAKEHOUSE_SEEDS", "1").split(",")


def send(brokers: Cluster, topic: str, messages: Sequence[Sent]) -> None:
    """Send messages to their queues, in their order."""
    with blocking.Reader(brokers.name_servers) as reader:
        queues = sorted(reader.offsets(topic))
    assert len(queues) == QUEUES
    with blocking.Producer(brokers.name_servers, group="changes", send_timeout=60.0) as producer:
        for message in messages:
            producer.send(Message(topic, message.body), queue=queues[message.queue])


def check_table(spark: Spark, table: Path, run: Path, database: Database) -> None:
    """Check that the table has the rows of the database, and that statements are stored once."""
    names = ", ".join(COLUMNS)
    rows, other = spark.sql(
        table.parent,
        f"SELECT {names} FROM delta.`{table}` WHERE NOT deleted ORDER BY id",
        f"SELECT count(*) AS rows, count(DISTINCT topic, brokerName, queueId, queueOffset) AS messages, "
        f"count(DISTINCT body) AS statements FROM delta.`{table}-other`",
        folder=run,
    )
    assert rows == [database.rows[key] for key in sorted(database.rows)]
    assert other[0]["rows"] == other[0]["messages"]
    assert other[0]["statements"] == database.others


def test_random_batches_of_random_changes_give_the_rows_of_the_database(spark: Spark, tmp_path: Path) -> None:
    output = spark.run(
        "integration/spark_lakehouse/random_changes.py", str(tmp_path / "tables"), *SEEDS, folder=tmp_path
    )
    assert output.count(" batches") == 4 * len(SEEDS)


@pytest.mark.parametrize("kind", ["canal", "debezium"])
def test_a_table_follows_the_database(
    kind: str, spark: Spark, brokers: Cluster, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    """The second start continues from the checkpoint. The third one has lost it, and merges all again."""
    topic, table, run = new_topic(), tmp_path / "table", tmp_path / "run"
    database = Database(5, QUEUES)
    change = database.canal if kind == "canal" else database.debezium
    for count, checkpoint in ((60, "checkpoint"), (60, "checkpoint"), (0, "new-checkpoint")):
        send(brokers, topic, change(count))
        paths = (str(table), str(tmp_path / checkpoint))
        spark.run(PROGRAM, kind, brokers.name_servers, topic, *paths, "--drain", folder=run)
        check_table(spark, table, run, database)


def test_kills_lose_and_repeat_no_change(
    spark: Spark,
    brokers: Cluster,
    new_topic: Callable[[], str],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    """Messages arrive while the pipeline is killed and started again."""
    topic, table, run = new_topic(), tmp_path / "table", tmp_path / "run"
    database, rng = Database(7, QUEUES), random.Random(7)
    arguments = ("canal", brokers.name_servers, topic, str(table), str(tmp_path / "checkpoint"))
    send(brokers, topic, database.canal(20))
    kills = starts = 0
    while kills < KILLS:
        starts += 1
        assert starts <= 4 * KILLS, "drivers keep failing by themselves; see their log"
        versions = _versions(table)
        waits_for_commit = rng.random() < 0.7  # the other kills hit the start of Spark or of the query
        delay = rng.uniform(0, 3)
        with spark.start(PROGRAM, *arguments, folder=run) as running:
            while running.is_running and waits_for_commit and _versions(table) == versions:
                time.sleep(0.05)
            send(brokers, topic, database.canal(20))
            time.sleep(delay)
            kills += running.is_running
    send(brokers, topic, database.canal(20))
    for _ in range(
        2
    ):  # on Spark 4.1, the first run may only finish the batch that was planned before the last kill
        spark.run(PROGRAM, *arguments, "--drain", folder=run)
    check_table(spark, table, run, database)
    record_property(COUNTED, f"{kills} kills")


def _versions(table: Path) -> int:
    """Return the number of commits of a Delta table."""
    return len(list((table / "_delta_log").glob("*.json")))
