"""Orders in several formats are stored, and other bodies become dead letters with their position."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from integration.clusters.cluster import Cluster
from integration.spark_lakehouse.programs import Spark
from integration.spark_lakehouse.test_backfill import body
from rocketmq_py import Message, blocking

PROGRAM = "examples/spark_lakehouse/bodies_to_delta.py"
COUNT = 100
"""Orders in each format."""
PLACED_MICROS = int(datetime(2026, 3, 1, 8, tzinfo=UTC).timestamp()) * 1_000_000
AVRO, JSON = "application/avro", "application/json"


def avro(number: int) -> bytes:
    """Return the body of an order in Avro: strings with their lengths, and numbers as varints."""
    return _text(f"avro-{number}") + _text("lamp") + _varint(2) + _varint(PLACED_MICROS)


def _text(value: str) -> bytes:
    return _varint(len(value)) + value.encode()


def _varint(value: int) -> bytes:
    rest, encoded = value * 2, b""  # zigzag of a number that is not negative
    while rest > 127:
        encoded += bytes([rest & 127 | 128])
        rest >>= 7
    return encoded + bytes([rest])


BAD = {
    (JSON, b"no JSON"): "no order in application/json",
    (JSON, b'{"id": "1", "product": "book", "quantity": 1}'): "missing or invalid: placed",
    (
        JSON,
        b'{"id": "1", "product": "book", "quantity": "x", "placed": "2026-03-01"}',
    ): "missing or invalid: quantity",
    (AVRO, avro(1)[:-12]): "no order in application/avro",
    (AVRO, b"\xff" * 12): "no order in application/avro",
    ("text/csv", b"1,book,1"): "unknown contentType text/csv",
}
"""Bodies that are no orders, with the reasons."""


def test_each_message_is_stored_in_one_table(
    spark: Spark, brokers: Cluster, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    """The last commit of the checkpoint is removed, so that the second start repeats the batch."""
    topic, run, checkpoint = new_topic(), tmp_path / "run", tmp_path / "checkpoint"
    orders, dead_letters = tmp_path / "orders", tmp_path / "dead_letters"
    with blocking.Producer(brokers.name_servers, group="orders", send_timeout=60.0) as producer:
        for number in range(COUNT):
            producer.send(Message(topic, body(number)))
            producer.send(Message(topic, avro(number), properties={"contentType": AVRO}))
        results = {
            bad: producer.send(Message(topic, bad[1], properties={"contentType": bad[0]})) for bad in BAD
        }
    for _ in range(2):
        arguments = (brokers.name_servers, topic, str(orders), str(dead_letters), str(checkpoint), "--drain")
        spark.run(PROGRAM, *arguments, folder=run)
        counts, ids, letters = spark.sql(
            tmp_path,
            f"SELECT count(*) AS rows, count(DISTINCT topic, brokerName, queueId, queueOffset) AS messages, "
            f"count(DISTINCT placed) AS times, CAST(min(unix_micros(placed)) AS STRING) AS placed "
            f"FROM delta.`{orders}`",
            f"SELECT id, product, quantity FROM delta.`{orders}`",
            f"SELECT hex(body) AS body, * EXCEPT (body) FROM delta.`{dead_letters}` ORDER BY ALL",
            folder=run,
        )
        assert counts == [
            {"rows": 2 * COUNT, "messages": 2 * COUNT, "times": 1, "placed": str(PLACED_MICROS)}
        ]
        assert {(row["id"], row["product"], row["quantity"]) for row in ids} == {
            *[(str(number), "book", 1) for number in range(COUNT)],
            *[(f"avro-{number}", "lamp", 2) for number in range(COUNT)],
        }
        expected = [
            {
                "body": bad[1].hex().upper(),
                "topic": topic,
                "brokerName": result.queue.broker_name,
                "queueId": result.queue.queue_id,
                "queueOffset": result.queue_offset,
                "reason": BAD[bad],
            }
            for bad, result in results.items()
        ]
        assert sorted(letters, key=repr) == sorted(expected, key=repr)
        (checkpoint / "commits" / "0").unlink()
        (checkpoint / "commits" / ".0.crc").unlink(missing_ok=True)
