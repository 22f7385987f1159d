"""Retried tasks and replayed batches, from the source to the sink: every row keeps its stamp."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rocketmq_py.blocking import Client
from rocketmq_py.message import Message, MessageQueue
from rocketmq_py.spark.stamps import STAMP, Stamp
from tests.cli.command import ENVIRONMENT
from tests.spark import copy_program
from tests.spark.session import java_or_skip

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def client(broker_address: str) -> Iterator[Client]:
    with Client(broker_address) as client:
        yield client


@pytest.fixture
def source(new_topic: Callable[[], str]) -> str:
    return new_topic()


@pytest.fixture
def target(new_topic: Callable[[], str]) -> str:
    return new_topic()


def send(client: Client, topic: str, numbers: Iterable[int]) -> None:
    """Send numbers, each to the queue of its remainder by four."""
    with client.producer("spark_tests") as producer:
        for number in numbers:
            queue = MessageQueue(topic, "broker-a", number % 4) if number else None
            producer.send(Message(topic, b"%d" % number), queue=queue)


def copies(client: Client, topic: str) -> dict[Stamp, list[int]]:
    """Return the numbers of the messages of each stamp."""
    found: defaultdict[Stamp, list[int]] = defaultdict(list)
    with client.reader() as reader:
        for queue in reader.offsets(topic):
            for message in reader.range(queue):
                found[Stamp.parse(message.properties[STAMP])].append(int(message.body))
    return found


def check_stamps(found: dict[Stamp, list[int]], count: int) -> None:
    """Check that one message of each stamp gives each number once."""
    assert all(len(set(numbers)) == 1 for numbers in found.values())
    assert sorted([numbers[0] for numbers in found.values()]) == list(range(count))


@pytest.mark.xdist_group("spark")  # one JVM after the other
def test_retried_task_writes_the_same_stamps(
    broker_address: str, client: Client, source: str, target: str
) -> None:
    java = java_or_skip()
    send(client, source, range(160))
    process = subprocess.run(
        [sys.executable, "-m", copy_program.__name__, broker_address, source, target],
        capture_output=True,
        text=True,
        check=False,
        env={**ENVIRONMENT, "JAVA_HOME": str(java)},
    )
    assert process.returncode == 0, process.stderr
    found = copies(client, target)
    check_stamps(found, 160)
    repeated = {(stamp.batch_id, stamp.partition) for stamp, numbers in found.items() if len(numbers) > 1}
    assert repeated == {(0, 1), (1, 1)}


def is_late_while(flag: str, body: bytes) -> bool:
    """Return whether a message is among the last of batch 1, and the flag file exists."""
    return int(body) in range(116, 120) and Path(flag).exists()


def test_replayed_batch_writes_the_same_stamps(
    spark: SparkSession, broker_address: str, client: Client, source: str, target: str, tmp_path: Path
) -> None:
    copy = functools.partial(
        copy_program.copy,
        spark,
        broker_address,
        source,
        target,
        tmp_path / "checkpoint",
        functools.partial(is_late_while, str(tmp_path / "flag")),
    )
    send(client, source, range(60))
    copy()
    send(client, source, range(60, 120))
    (tmp_path / "flag").touch()
    with pytest.raises(Exception, match="rows were not acknowledged"):
        copy()
    stored = [stamp for stamp in copies(client, target) if stamp.batch_id == 1]
    assert stored
    send(client, source, range(120, 150))  # new messages before the replay
    (tmp_path / "flag").unlink()
    for _ in range(2):  # a run of Spark 4.1 reads one batch
        copy()
    found = copies(client, target)
    check_stamps(found, 150)
    assert {stamp: found[stamp] for stamp in stored} == {stamp: 2 * found[stamp][:1] for stamp in stored}
    sizes = [sum(stamp.batch_id == batch for stamp in found) for batch in range(3)]
    assert sizes == [60, 60, 30]
