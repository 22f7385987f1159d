"""Each example runs as the page on pipelines describes it, and its results are counted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from integration.clusters.cluster import Cluster
from integration.spark_lakehouse.orders import BROKEN, DAYS, order, send, sent
from integration.spark_lakehouse.programs import Spark

COUNT = 600
EXAMPLES = "examples/spark_lakehouse"
COUNTS = (
    "SELECT count(*) AS rows, count(id) AS orders, count(DISTINCT id) AS ids, "
    "count(DISTINCT topic, brokerName, queueId, queueOffset) AS positions FROM {}"
)
FILES_OF_DAYS = 3 + 1
"""Files of a compacted table: one of each day of orders, and one of the day on which invalid bodies came."""


def fill_in_two_parts(brokers: Cluster, topic: str, drain: Callable[[], object]) -> None:
    """Send COUNT orders and BROKEN, and drain the topic after each half."""
    bodies = [order(number) for number in range(COUNT)]
    for part in (bodies[: COUNT // 2], [*bodies[COUNT // 2 :], *BROKEN]):
        send(brokers, topic, part)
        drain()


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
        f"SELECT invalid FROM {table} WHERE id IS NULL",
        f"DESCRIBE DETAIL {table}",
        f"UPDATE {table} SET quantity = 1000 WHERE id = 'order-1'",
        f"DELETE FROM {table} WHERE id = 'order-2'",
        folder=folder,
    )
    total = COUNT + len(BROKEN)
    assert counts == {"rows": total, "orders": COUNT, "ids": COUNT, "positions": total}
    assert [day["day"] for day in days] == ["2026-03-01", "2026-03-02", "2026-03-03"]
    assert {day["rows"] for day in days} == {COUNT // DAYS}
    assert {row["invalid"] for row in invalid} == {body.decode(errors="replace") for body in BROKEN}
    assert detail["numFiles"] == FILES_OF_DAYS

    program = f"{EXAMPLES}/delta_changes_to_topic.py"
    spark.run(program, address, str(path), changes, str(tmp_path / "out"), "--drain", folder=folder)
    of_key = defaultdict(list)
    for message in sent(brokers, changes):
        of_key[message.fields["id"]].append(message)
    assert of_key.keys() == {f"order-{number}" for number in range(COUNT)}
    kinds = {key: [message.change for message in messages] for key, messages in of_key.items()}
    assert kinds.pop("order-1") == ["insert", "update_postimage"]
    assert kinds.pop("order-2") == ["insert", "delete"]
    assert set(map(tuple, kinds.values())) == {("insert",)}
    assert [message.fields["quantity"] for message in of_key["order-1"]] == [1, 1000]


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
    [counts], days, invalid, snapshots = spark.sql(
        Path(warehouse),
        COUNTS.format(table),
        f"SELECT count(*) AS rows FROM {table} WHERE id IS NOT NULL GROUP BY date(placed)",
        f"SELECT invalid FROM {table} WHERE id IS NULL",
        f"SELECT operation FROM {table}.snapshots ORDER BY committed_at",
        folder=folder,
    )
    total = COUNT + len(BROKEN)
    assert counts == {"rows": total, "orders": COUNT, "ids": COUNT, "positions": total}
    assert [day["rows"] for day in days] == [COUNT // DAYS] * DAYS
    assert {row["invalid"] for row in invalid} == {body.decode(errors="replace") for body in BROKEN}
    assert [snapshot["operation"] for snapshot in snapshots][:2] == ["append", "append"]

    program = f"{EXAMPLES}/iceberg_rows_to_topic.py"
    spark.run(program, address, warehouse, rows, str(tmp_path / "out"), "--drain", folder=folder)
    messages = sent(brokers, rows)
    assert sorted(str(message.fields["id"]) for message in messages) == sorted(
        f"order-{number}" for number in range(COUNT)
    )
    assert len({message.stamp for message in messages}) == COUNT
