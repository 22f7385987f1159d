"""All pipelines run in one driver that is killed at random moments, while orders arrive.

SPARK_LAKEHOUSE_KILLS is the number of kills.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from integration.clusters.cluster import Cluster
from integration.clusters.plugin import COUNTED
from integration.spark_clusters.standalone import wait_for
from integration.spark_lakehouse.all_pipelines import RUNNING
from integration.spark_lakehouse.orders import order, send, sent
from integration.spark_lakehouse.programs import KILLS, Running, Spark
from integration.spark_lakehouse.test_pipelines import COUNTS

PORTION = 50
"""Orders that arrive at a time."""
PROGRAM = "integration/spark_lakehouse/all_pipelines.py"


class Arriving:
    """Sends orders until the block ends."""

    def __init__(self, brokers: Cluster, topic: str) -> None:
        self._brokers = brokers
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self.count = 0

    def __enter__(self) -> Arriving:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _send(self) -> None:
        while not self._stop.wait(0.5):
            send(self._brokers, self._topic, [order(self.count + number) for number in range(PORTION)])
            self.count += PORTION


def test_kills_neither_lose_nor_repeat_rows(
    spark: Spark,
    brokers: Cluster,
    new_topic: Callable[[], str],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    """The delays are the same in each run, as fractions of the longest one. The state they hit is not."""
    rng = random.Random(48)
    orders, changes, rows, folder = new_topic(), new_topic(), new_topic(), tmp_path / "run"
    arguments = (brokers.name_servers, orders, changes, rows, str(tmp_path))

    def start() -> Running:
        return spark.start(PROGRAM, *arguments, folder=folder)

    while_running = 0
    with Arriving(brokers, orders) as arriving:
        began = time.monotonic()
        with start() as driver:
            wait_for(lambda: _is_running(driver), "batch of each pipeline", 600)
        longest = 1.5 * (time.monotonic() - began)
        for _ in range(KILLS - 1):
            moment = time.monotonic() + rng.uniform(0, longest)
            with start() as driver:
                wait_for(partial(_is_over, driver, moment), "moment of the kill", longest + 60)
                while_running += RUNNING in driver.output()
    spark.run(PROGRAM, *arguments, "--drain", folder=folder)

    count = arriving.count
    expected = {"rows": count, "orders": count, "ids": count, "positions": count}
    tables = (f"delta.`{tmp_path / 'table'}`", "lake.shop.orders")
    counts = spark.sql(tmp_path / "warehouse", *[COUNTS.format(table) for table in tables], folder=folder)
    assert counts == [[expected], [expected]]
    repeats = [_check_topic(brokers, topic, count) for topic in (changes, rows)]
    record_property(
        COUNTED,
        f"{KILLS} kills, {while_running + 1} of them while all pipelines ran; {count} orders once in each "
        f"table; {repeats[0]} repeated changes and {repeats[1]} repeated rows in topics, with known stamps",
    )


def _is_running(driver: Running) -> bool:
    assert driver.is_running, driver.output()[-8000:]
    return RUNNING in driver.output()


def _is_over(driver: Running, moment: float) -> bool:
    assert driver.is_running, driver.output()[-8000:]
    return time.monotonic() >= moment


def _check_topic(brokers: Cluster, topic: str, count: int) -> int:
    """Check that each order was sent, with one stamp. Return the number of repeats."""
    messages = sent(brokers, topic)
    stamps = {message.stamp: message.fields["id"] for message in messages}
    assert set(stamps.values()) == {f"order-{number}" for number in range(count)}
    assert len(stamps) == count
    assert set(Counter(stamps.values()).values()) == {1}
    return len(messages) - count
