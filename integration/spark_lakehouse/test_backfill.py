"""A batch job stores the history of a topic, and a stream the rest, each message once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import trio

from integration.clusters.cluster import Cluster
from integration.spark_lakehouse.programs import Spark
from rocketmq_py import Client, Message, blocking
from tests.behaviours.conftest import create_topic

PROGRAM = "examples/spark_lakehouse/backfill_and_live.py"
HISTORY = 2_000
PLACED = "2026-03-01T08:00:00Z"


def body(number: int) -> bytes:
    """Return the body of an order."""
    return b'{"id": "%d", "product": "book", "quantity": 1, "placed": "%s"}' % (number, PLACED.encode())


def send(brokers: Cluster, topic: str, numbers: range) -> None:
    """Send orders. Batches (``linger``) keep busy brokers from refusing some."""
    with blocking.Producer(brokers.name_servers, group="orders", send_timeout=60.0, linger=0.005) as producer:
        for outcome in producer.send_all([Message(topic, body(number)) for number in numbers]):
            assert not isinstance(outcome, Exception), outcome


@contextmanager
def sending(brokers: Cluster, topic: str, begin: int) -> Iterator[list[int]]:
    """Send orders with increasing numbers during the block. Yield a list with the number of the next one."""
    following, stop = [begin], threading.Event()

    def send_until_stopped() -> None:
        with blocking.Producer(brokers.name_servers, group="orders", send_timeout=60.0) as producer:
            while not stop.wait(0.02):
                producer.send(Message(topic, body(following[0])))
                following[0] += 1

    thread = threading.Thread(target=send_until_stopped)
    thread.start()
    try:
        yield following
    finally:
        stop.set()
        thread.join()


def test_each_message_is_stored_once(
    spark: Spark, brokers: Cluster, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    """Messages arrive all the time, the backfill is killed, and queues are added before the stream starts."""
    topic, directory, run = new_topic(), tmp_path / "orders", tmp_path / "run"
    arguments = (brokers.name_servers, topic, str(directory), "--drain")
    send(brokers, topic, range(HISTORY))
    with sending(brokers, topic, HISTORY) as following:
        with spark.start(PROGRAM, *arguments, folder=run) as running:
            while running.is_running and not (directory / "boundary.json").exists():
                threading.Event().wait(0.02)
        trio.run(_grow, brokers, topic)
        sent_before = following[0]
        spark.run(PROGRAM, *arguments, folder=run)
    spark.run(PROGRAM, *arguments, folder=run)
    counts, backfilled = spark.sql(
        tmp_path,
        f"SELECT count(*) AS rows, count(DISTINCT id) AS orders, "
        f"count(DISTINCT topic, brokerName, queueId, queueOffset) AS messages FROM delta.`{directory}/table`",
        f"SELECT count(*) AS rows FROM delta.`{directory}/table` VERSION AS OF 0",
        folder=run,
    )
    count = following[0]
    assert counts == [{"rows": count, "orders": count, "messages": count}]
    assert HISTORY <= backfilled[0]["rows"] < sent_before


async def _grow(brokers: Cluster, topic: str) -> None:
    """Double the queues of a topic."""
    async with Client(brokers.name_servers) as client:
        await create_topic(client, topic, queues=4)
