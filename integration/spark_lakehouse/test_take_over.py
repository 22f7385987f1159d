"""A stream takes over from an application in Java."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import trio

from integration.clusters.cluster import Cluster
from integration.java.peer import client_for, java_peer
from integration.peers import PeerError
from integration.spark_clusters.standalone import wait_for
from integration.spark_lakehouse.programs import Spark
from integration.spark_lakehouse.test_backfill import body, send

PROGRAM = "examples/spark_lakehouse/take_over.py"
COUNT = 200
"""The messages sent before the application stops, and after it."""


async def consume_in_java(
    brokers: Cluster, topic: str, group: str, count: int, *options: str, before_end: Callable[[], None]
) -> set[bytes]:
    """Consume with a group in Java until ``count`` messages were delivered, and shut it down.

    Return the bodies that it processed, and did not fail.
    """
    deliveries: Counter[bytes] = Counter()
    fails = 1 if "--fail-first" in options else 0

    def note(line: dict[str, Any]) -> None:
        if "body" in line:
            deliveries[base64.b64decode(line["body"])] += 1

    async with java_peer(
        client_for(brokers.version), "Consume", "--namesrv", brokers.name_servers, "--topic", topic,
        "--group", group, *options,
    ) as peer:  # fmt: skip
        with trio.fail_after(600):
            while len(deliveries) < count:
                note(await peer.next_line())
            await trio.to_thread.run_sync(before_end)
            await peer.leave()
            with suppress(PeerError):  # its output ends
                while True:
                    note(await peer.next_line())
    return {each for each, times in deliveries.items() if times > fails}


def stored_ids(spark: Spark, table: Path, run: Path) -> list[str]:
    """Return the ids of the table's orders."""
    (rows,) = spark.sql(table.parent, f"SELECT id FROM delta.`{table}`", folder=run)
    return [row["id"] for row in rows]


def test_the_stream_reads_exactly_the_messages_that_java_left(
    spark: Spark, brokers: Cluster, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    topic, group, table, run = new_topic(), f"group-{tmp_path.name}", tmp_path / "table", tmp_path / "run"
    arguments = (brokers.name_servers, topic, group, str(table), str(tmp_path / "checkpoint"), "--drain")

    def is_refused() -> None:
        """The application runs, so that the program must not start."""
        with spark.start(PROGRAM, *arguments, folder=run) as running:
            assert running.process.wait(600) == 1
            assert f"group {group} still has members" in running.output()
            assert not table.exists()

    send(brokers, topic, range(COUNT))
    processed = trio.run(partial(consume_in_java, brokers, topic, group, COUNT, before_end=is_refused))
    assert processed == {body(number) for number in range(COUNT)}
    send(brokers, topic, range(COUNT, 2 * COUNT))
    for _ in range(2):  # the second start continues from the checkpoint
        spark.run(PROGRAM, *arguments, folder=run)
        assert sorted(map(int, stored_ids(spark, table, run))) == list(range(COUNT, 2 * COUNT))


def test_the_stream_reads_the_messages_that_java_could_not_process(
    spark: Spark, brokers: Cluster, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    """Java fails the first delivery of each message, so that the brokers move it to the retry topic."""
    topic, group, table, run = new_topic(), f"group-{tmp_path.name}", tmp_path / "table", tmp_path / "run"
    arguments = (brokers.name_servers, topic, group, str(table), str(tmp_path / "checkpoint"), "--drain")
    send(brokers, topic, range(COUNT))
    consume = partial(consume_in_java, brokers, topic, group, COUNT, "--fail-first", before_end=lambda: None)
    processed = trio.run(consume)

    def stored() -> list[str]:
        spark.run(PROGRAM, *arguments, folder=run)
        return stored_ids(spark, table, run)

    # Messages that wait for their retry arrive in the retry topic up to a second later.
    left = {str(number) for number in range(COUNT) if body(number) not in processed}
    assert left
    found = wait_for(lambda: ids if left <= set(ids := stored()) else [], "stored retries")
    assert len(found) == len(set(found))
