"""Each example runs as the page on pipelines describes it, and its results are counted."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from integration.clusters.cluster import Cluster
from integration.spark_lakehouse.orders import (
    BROKEN,
    DAYS,
    REVISED,
    Sent,
    order,
    send,
    send_revisions,
    sent,
)
from integration.spark_lakehouse.programs import Spark

COUNT = 600
REVISIONS = 12
"""Orders with the id REVISED. All are placed on the first day."""
ORDERS = COUNT + REVISIONS
IDS = {f"order-{number}" for number in range(COUNT)} | {REVISED}
ROWS_OF_DAYS = [COUNT // DAYS + REVISIONS, *[COUNT // DAYS] * (DAYS - 1)]
EXPECTED = {
    "rows": ORDERS + len(BROKEN),
    "orders": ORDERS,
    "ids": len(IDS),
    "positions": ORDERS + len(BROKEN),
}
"""The result of COUNTS for a table that has each message once."""
INVALID = sorted(body.decode(errors="replace") for body in BROKEN)
EXAMPLES = "examples/spark_lakehouse"
COUNTS = (
    "SELECT count(*) AS rows, count(id) AS orders, count(DISTINCT id) AS ids, "
    "count(DISTINCT topic, brokerName, queueId, queueOffset) AS positions FROM {}"
)
FILES_OF_DAYS = DAYS + 1
"""Files of a compacted Delta table: one of each day of orders, and one of the day on which BROKEN came."""


def fill_in_two_parts(brokers: Cluster, topic: str, drain: Callable[[], object]) -> None:
    """Send COUNT orders, REVISIONS and BROKEN, and drain the topic after each half."""
    bodies = [order(number) for number in range(COUNT)]
    half, middle = COUNT // 2, REVISIONS // 2
    send(brokers, topic, bodies[:half])
    send_revisions(brokers, topic, range(middle))
    drain()
    send(brokers, topic, [*bodies[half:], *BROKEN])
    send_revisions(brokers, topic, range(middle, REVISIONS))
    drain()


def by_key(messages: Sequence[Sent]) -> Mapping[str, list[Sent]]:
    """Return the messages of each order. Check that they have its key and are in one queue."""
    found: dict[str, list[Sent]] = defaultdict(list)
    for message in messages:
        found[str(message.fields["id"])].append(message)
    for key, of_key in found.items():
        assert {message.keys for message in of_key} == {(key,)}
        assert len({message.queue for message in of_key}) == 1
    return found


def check_contents(messages: Sequence[Sent]) -> None:
    """Check that the bodies hold the fields of the order that was sent."""
    for message in messages:
        key = str(message.fields["id"])
        if key != REVISED:
            expected = json.loads(order(int(key.removeprefix("order-"))))
            placed = str(message.fields["placed"])
            assert datetime.fromisoformat(placed) == datetime.fromisoformat(expected.pop("placed"))
            assert message.fields | expected == message.fields


def check_repeats(first: Sequence[Sent], both: Sequence[Sent]) -> None:
    """Check that a second run has sent each message once more, recognisable by its stamp."""
    contents = {message.stamp: message for message in first}
    assert len(contents) == len(first)
    assert len(both) == 2 * len(first)
    assert Counter(message.stamp for message in both) == dict.fromkeys(contents, 2)
    assert all(message == contents[message.stamp] for message in both)


def test_orders_into_delta_and_changes_out_of_it(
    spark: Spark, brokers: Cluster, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    orders, changes, path, folder = new_topic(), new_topic(), tmp_path / "table", tmp_path / "run"
    address, table = brokers.name_servers, f"delta.`{path}`"

    def drain() -> None:
        checkpoint = str(tmp_path / "in")
        program = f"{EXAMPLES}/orders_to_delta.py"
        spark.run(program, address, orders, str(path), checkpoint, "--drain", folder=folder)

    fill_in_two_parts(brokers, orders, drain)
    spark.run(f"{EXAMPLES}/compact.py", "delta", str(path), folder=folder)
    [counts], days, invalid, [detail], *_ = spark.sql(
        tmp_path,
        COUNTS.format(table),
        f"SELECT day, count(*) AS rows FROM {table} WHERE id IS NOT NULL GROUP BY day ORDER BY day",
        f"SELECT invalid FROM {table} WHERE id IS NULL ORDER BY invalid",
        f"DESCRIBE DETAIL {table}",
        f"UPDATE {table} SET quantity = 1000 WHERE id = 'order-1'",
        f"DELETE FROM {table} WHERE id = 'order-2'",
        folder=folder,
    )
    assert counts == EXPECTED
    assert [day["day"] for day in days] == ["2026-03-01", "2026-03-02", "2026-03-03"]
    assert [day["rows"] for day in days] == ROWS_OF_DAYS
    assert sorted(row["invalid"] for row in invalid) == INVALID
    assert detail["numFiles"] == FILES_OF_DAYS

    program = f"{EXAMPLES}/delta_changes_to_topic.py"
    spark.run(program, address, str(path), changes, str(tmp_path / "out"), "--drain", folder=folder)
    first = sent(brokers, changes)
    of_key = dict(by_key(first))
    assert of_key.keys() == IDS
    check_contents([message for message in first if message.change == "insert"])
    revisions = of_key.pop(REVISED)
    assert [message.fields["quantity"] for message in revisions] == list(range(REVISIONS))
    assert [message.fields["quantity"] for message in of_key["order-1"]] == [1, 1000]
    for messages in (revisions, *of_key.values()):
        versions = [message.version for message in messages if message.version is not None]
        assert len(versions) == len(messages)
        assert versions == sorted(versions)
    kinds = {key: [message.change for message in messages] for key, messages in of_key.items()}
    assert kinds.pop("order-1") == ["insert", "update_postimage"]
    assert kinds.pop("order-2") == ["insert", "delete"]
    assert set(map(tuple, kinds.values())) == {("insert",)}

    spark.run(program, address, str(path), changes, str(tmp_path / "again"), "--drain", folder=folder)
    check_repeats(first, sent(brokers, changes))


def test_orders_into_iceberg_and_rows_out_of_it(
    spark: Spark, brokers: Cluster, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    orders, rows, folder = new_topic(), new_topic(), tmp_path / "run"
    address, table, warehouse = brokers.name_servers, "lake.shop.orders", str(tmp_path / "warehouse")

    def drain() -> None:
        checkpoint = str(tmp_path / "in")
        program = f"{EXAMPLES}/orders_to_iceberg.py"
        spark.run(program, address, orders, warehouse, checkpoint, "--drain", folder=folder)

    fill_in_two_parts(brokers, orders, drain)
    spark.run(f"{EXAMPLES}/compact.py", "iceberg", warehouse, folder=folder)
    [counts], days, invalid, files, snapshots = spark.sql(
        Path(warehouse),
        COUNTS.format(table),
        f"SELECT date(placed) AS day, count(*) AS rows FROM {table} WHERE id IS NOT NULL "
        "GROUP BY day ORDER BY day",
        f"SELECT invalid FROM {table} WHERE id IS NULL ORDER BY invalid",
        f"SELECT partition.placed_day AS day, record_count FROM {table}.files "
        "WHERE partition.placed_day IS NOT NULL ORDER BY day",
        f"SELECT operation FROM {table}.snapshots ORDER BY committed_at",
        folder=folder,
    )
    assert counts == EXPECTED
    assert [day["day"] for day in days] == ["2026-03-01", "2026-03-02", "2026-03-03"]
    assert [day["rows"] for day in days] == ROWS_OF_DAYS
    assert sorted(row["invalid"] for row in invalid) == INVALID
    assert [file["record_count"] for file in files] == ROWS_OF_DAYS
    operations = [snapshot["operation"] for snapshot in snapshots]
    assert operations[:2] == ["append", "append"]
    assert operations[-1] == "replace"

    program = f"{EXAMPLES}/iceberg_rows_to_topic.py"
    spark.run(program, address, warehouse, rows, str(tmp_path / "out"), "--drain", folder=folder)
    first = sent(brokers, rows)
    of_key = by_key(first)
    assert of_key.keys() == IDS
    assert len(first) == ORDERS
    check_contents(first)
    assert [message.fields["quantity"] for message in of_key[REVISED]] == list(range(REVISIONS))

    spark.run(program, address, warehouse, rows, str(tmp_path / "again"), "--drain", folder=folder)
    check_repeats(first, sent(brokers, rows))
