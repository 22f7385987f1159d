"""Messages for Spark to copy, and checks of the copies."""

from __future__ import annotations

import itertools
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from subprocess import Popen

import attrs
import trio

from integration.clusters.cluster import Cluster
from integration.spark_copying import MARK
from rocketmq_py import Client, Credentials, Message, blocking
from rocketmq_py.spark.stamps import STAMP
from tests.behaviours.conftest import create_topic

QUEUES = 2
"""Queues of each topic on each broker. Few, because the start of a task takes longer than its copying."""
_PORTION = 10_000


def create_topics(cluster: Cluster, *topics: str, credentials: Credentials | None = None) -> None:
    """Create topics with QUEUES queues on every broker."""

    async def create() -> None:
        async with Client(cluster.name_servers, credentials=credentials) as client:
            for topic in topics:
                await create_topic(client, topic, queues=QUEUES)

    trio.run(create)


def fill(
    cluster: Cluster,
    topics: Sequence[str],
    count: int,
    credentials: Credentials | None = None,
    *,
    first: int = 0,
) -> None:
    """Send messages with the bodies from ``first`` on, spread over topics that were created."""
    next_topic = itertools.cycle(topics)
    # A long timeout, because a send that is repeated after a timeout may be stored twice. Many retries,
    # because a broker on a busy machine refuses messages. It has not stored them then.
    with blocking.Producer(
        cluster.name_servers,
        group="filling",
        send_timeout=60.0,
        retries=50,
        linger=0.005,
        credentials=credentials,
    ) as producer:
        for begin in range(first, first + count, _PORTION):
            portion = range(begin, min(begin + _PORTION, first + count))
            messages = [Message(next(next_topic), b"%d" % number, keys=f"k{number}") for number in portion]
            for outcome in producer.send_all(messages):
                if isinstance(outcome, Exception):
                    raise outcome


def start_copying(
    cluster: Cluster, mode: str, sources: Sequence[str], target: str, directory: Path, *, most: int
) -> Popen[bytes]:
    """Start a driver that copies. It exits with 0 once everything is copied."""
    command = [
        sys.executable, "-m", "integration.spark_copying", mode, "--address", cluster.name_servers,
        "--sources", ",".join(sources), "--target", target, "--directory", str(directory),
        "--most", str(most),
    ]  # fmt: skip
    return Popen(command, start_new_session=True)


@attrs.frozen
class Copies:
    """The contents of a topic of copies.

    Attributes:
        messages: the number of messages.
        numbers: the number of copies of each original.
        numbers_of_stamp: by stamp, the originals of its messages.
        stamps_of_number: by original, the stamps of its copies.
    """

    messages: int
    numbers: Counter[int]
    numbers_of_stamp: dict[str, set[int]]
    stamps_of_number: dict[int, set[str]]


def read_copies(cluster: Cluster, target: str, credentials: Credentials | None = None) -> Copies:
    """Read all copies with the client, not with Spark."""
    numbers: Counter[int] = Counter()
    numbers_of_stamp: defaultdict[str, set[int]] = defaultdict(set)
    stamps_of_number: defaultdict[int, set[str]] = defaultdict(set)
    messages = 0
    with blocking.Reader(cluster.name_servers, credentials=credentials) as reader:
        for queue in reader.offsets(target):
            for message in reader.range(queue):
                number = int(message.body.decode().removeprefix(MARK))
                assert message.keys == (f"k{number}",)
                stamp = message.properties[STAMP]
                messages += 1
                numbers[number] += 1
                numbers_of_stamp[stamp].add(number)
                stamps_of_number[number].add(stamp)
    return Copies(messages, numbers, numbers_of_stamp, stamps_of_number)
