"""Spark queries while messages expire and queues, topics and brokers disappear or appear, on real brokers.

Each message has a unique number, so the sorted numbers of the rows show missing messages and duplicates.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.clusters.cluster import Cluster
from integration.clusters.plugin import start_own_cluster
from integration.clusters.provider import VERSIONS
from integration.operating import EXPIRING, Operator, until
from integration.spark_reads import Reads, Session, until_failed
from rocketmq_py.message import MessageQueue
from tests.behaviours.conftest import unique
from tests.spark.session import java_or_skip, stop_spark

__all__ = ["unique"]  # a fixture

A, B = "broker-a", "broker-b"
ADVICE = "; set failOnDataLoss to false to continue without them"
CONTINUES = "; continuing without them"
EXPIRED = "the broker does not have them any more"
RECREATED = "the queue ends at {end} now: its topic was deleted or recreated, or lost messages"
LOG_ONLY: dict[str, Any] = {"failOnDataLoss": "false"}


@pytest.fixture(scope="module", params=VERSIONS)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with start_own_cluster(request.param, brokers=2, settings=EXPIRING) as cluster:
        yield cluster


@pytest.fixture
def operator(cluster: Cluster) -> Operator:
    return Operator(cluster)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    java_or_skip()
    session = Session(tmp_path_factory.mktemp("spark"))
    yield session
    stop_spark(session.spark)


@pytest.fixture
def reads(session: Session, cluster: Cluster, unique: str, tmp_path: Path) -> Iterator[Reads]:
    yield Reads(session, cluster, unique, tmp_path)
    for query in session.spark.streams.active:
        query.stop()


def loss_text(topic: str, broker: str, queue: int, offsets: str, cause: str) -> str:
    """Return the description of lost offsets in errors and warnings."""
    return (
        f"offsets {offsets} of queue {queue} of topic '{topic}' on broker '{broker}' are not there: {cause}"
    )


def position(topic: str, offset: int) -> str:
    return json.dumps({topic: {A: {"0": offset}}})


# --- batches, and the start of streams


def test_batch_beyond_the_end_of_a_queue(
    reads: Reads, operator: Operator, session: Session, unique: str
) -> None:
    operator.create(unique, [A], queues=2)
    assert reads.batch() == []
    operator.send(MessageQueue(unique, A, 0), range(5))
    operator.send(MessageQueue(unique, A, 1), range(5, 8))
    end_beyond = {"endingOffsets": position(unique, 9)}
    lost_end = loss_text(unique, A, 0, "5 to 8", "the queue ends at 5")
    assert reads.failure_of_batch(**end_beyond) == lost_end + ADVICE
    assert reads.batch(**end_beyond, **LOG_ONLY) == list(range(8))
    start_beyond = {"startingOffsets": position(unique, 7)}
    lost_start = loss_text(unique, A, 0, "from 7 on", "the queue ends at 5")
    assert reads.failure_of_batch(**start_beyond) == lost_start + ADVICE
    assert reads.batch(**start_beyond, **LOG_ONLY) == [5, 6, 7]
    session.wait_for_warnings(unique, lost_end + CONTINUES, lost_start + CONTINUES)
    with pytest.raises(
        Exception, match=f"the range of {unique} {A} 0 ends at offset 2, before it starts at 3"
    ):
        reads.batch(startingOffsets=position(unique, 3), endingOffsets=position(unique, 2))
    assert reads.batch(startingOffsets=position(unique, 3), endingOffsets=position(unique, 3)) == [5, 6, 7]


def test_stream_that_starts_beyond_the_end_of_a_queue(
    reads: Reads, operator: Operator, session: Session, unique: str
) -> None:
    operator.create(unique, [A], queues=1)
    operator.send(MessageQueue(unique, A, 0), range(3))
    loss = loss_text(unique, A, 0, "from 9 on", "the queue ends at 3, before the starting offset")
    assert reads.failure(startingOffsets=position(unique, 9)) == loss + ADVICE
    assert reads.run(startingOffsets=position(unique, 9), **LOG_ONLY) == [0, 1, 2]
    session.wait_for_warnings(unique, loss + CONTINUES)


# --- deleted topics


def test_topic_is_deleted_and_recreated_between_two_runs(
    reads: Reads, operator: Operator, session: Session, unique: str
) -> None:
    queue = MessageQueue(unique, A, 0)
    operator.create(unique, [A], queues=1)
    operator.send(queue, range(10))
    assert reads.run() == list(range(10))

    operator.delete(unique)
    deleted = loss_text(unique, A, 0, "from 10 on", "its topic was deleted, or its broker is away")
    assert reads.failure() == deleted + ADVICE
    assert reads.run(**LOG_ONLY) == []

    operator.create(unique, [A], queues=1)
    operator.send(queue, range(10, 13))
    recreated = loss_text(unique, A, 0, "3 to 9", RECREATED.format(end=3))
    assert reads.failure() == recreated + ADVICE
    assert reads.run(**LOG_ONLY) == [10, 11, 12]
    session.wait_for_warnings(unique, deleted + CONTINUES, recreated + CONTINUES)
    operator.send(queue, [13])
    assert reads.run() == [13]


def test_topic_is_deleted_while_streams_run(
    reads: Reads, operator: Operator, session: Session, cluster: Cluster, unique: str
) -> None:
    queue = MessageQueue(unique, A, 0)
    operator.create(unique, [A], queues=1)
    operator.send(queue, range(10))
    with tempfile.TemporaryDirectory() as directory:
        others = Reads(session, cluster, unique, Path(directory))
        query, other = reads.start(), others.start(**LOG_ONLY)
        reads.until(query, 10)
        others.until(other, 10)
        operator.delete(unique)
        loss = loss_text(unique, A, 0, "0 to 9", RECREATED.format(end=0))
        assert until_failed(query) == loss + ADVICE
        until(lambda: loss + CONTINUES in session.logged(unique), "a warning")
        operator.create(unique, [A], queues=1)
        operator.send(queue, range(10, 15))
        others.until(other, 15)
        other.stop()
        assert others.numbers == list(range(15))


# --- new and removed queues and brokers


def test_queues_and_brokers_are_added_while_a_stream_runs(
    reads: Reads, operator: Operator, unique: str
) -> None:
    operator.create(unique, [A], queues=1)
    operator.send(MessageQueue(unique, A, 0), range(5))
    query = reads.start()
    reads.until(query, 5)
    operator.create(unique, [A], queues=3)
    operator.send(MessageQueue(unique, A, 2), range(5, 10))
    operator.create(unique, [B], queues=2)
    operator.send(MessageQueue(unique, B, 1), range(10, 15))
    operator.send(MessageQueue(unique, A, 0), range(15, 20))
    reads.until(query, 20)
    query.stop()
    assert reads.numbers == list(range(20))


def test_queue_becomes_unreadable_between_two_runs(
    reads: Reads, operator: Operator, session: Session, unique: str
) -> None:
    first, second = (MessageQueue(unique, A, number) for number in range(2))
    operator.create(unique, [A], queues=2)
    operator.send(second, range(5))
    assert reads.run() == list(range(5))
    operator.send(second, range(5, 7))
    operator.create(unique, [A], queues=1, writable=2)
    operator.send(first, range(7, 9))
    loss = loss_text(unique, A, 1, "from 5 on", "the queue was deleted, or is no longer readable")
    assert reads.failure() == loss + ADVICE
    assert reads.run(**LOG_ONLY) == [7, 8]
    session.wait_for_warnings(unique, loss + CONTINUES)
    operator.send(first, [9])
    assert reads.run() == [9]  # the loss was accepted
    operator.create(unique, [A], queues=2)
    assert reads.run() == [5, 6]  # the stream kept its offset


def test_queue_becomes_unreadable_while_a_stream_runs(
    reads: Reads, operator: Operator, session: Session, unique: str
) -> None:
    first, second = (MessageQueue(unique, A, number) for number in range(2))
    operator.create(unique, [A], queues=2)
    operator.send(second, range(5))
    query = reads.start(**LOG_ONLY)
    reads.until(query, 5)
    operator.create(unique, [A], queues=1, writable=2)
    operator.send(first, range(5, 9))
    reads.until(query, 9)
    query.stop()
    assert reads.numbers == list(range(9))
    assert session.logged(unique) == []  # all of its messages had been read


# --- expired messages, on the broker that no test restarts


def test_messages_expire_between_two_runs(
    reads: Reads, operator: Operator, session: Session, unique: str
) -> None:
    queue = MessageQueue(unique, A, 0)
    operator.create(unique, [A], queues=2)
    operator.send(queue, range(10))
    assert reads.run() == list(range(10))
    operator.send(queue, range(10, 15))
    operator.fill(A)
    operator.send(queue, range(15, 20))
    operator.expire(queue, 15)

    of_stream = loss_text(unique, A, 0, "10 to 14", EXPIRED)
    assert reads.failure() == of_stream + ADVICE
    assert reads.run(**LOG_ONLY) == list(range(15, 20))
    older = {"startingOffsets": position(unique, 3)}
    of_batch = loss_text(unique, A, 0, "3 to 14", EXPIRED)
    assert reads.failure_of_batch(**older) == of_batch + ADVICE
    assert reads.batch(**older, **LOG_ONLY) == reads.batch() == list(range(15, 20))
    session.wait_for_warnings(unique, of_stream + CONTINUES, of_batch + CONTINUES)


def test_messages_expire_before_their_batch_is_replayed(
    reads: Reads, operator: Operator, session: Session, unique: str
) -> None:
    """Spark replays the planned offsets without asking the source whether they still exist."""
    queue = MessageQueue(unique, A, 0)
    operator.create(unique, [A], queues=1)
    operator.send(queue, range(10))
    operator.fill(A)
    operator.send(queue, range(10, 15))
    reads.broken = True
    with pytest.raises(Exception, match="the sink is broken"):
        reads.run()
    reads.broken = False
    operator.expire(queue, 10)
    loss = loss_text(unique, A, 0, "0 to 9", EXPIRED)
    assert reads.failure() == loss + ADVICE
    assert reads.run(**LOG_ONLY) == list(range(10, 15))
    session.wait_for_warnings(unique, loss + CONTINUES)


def test_all_messages_of_a_queue_expire(reads: Reads, operator: Operator, unique: str) -> None:
    """4.x brokers still report the queue's old minimum offset. A query that starts there must not fail."""
    queue, idle = (MessageQueue(unique, A, number) for number in range(2))
    operator.create(unique, [A], queues=2)
    operator.send(queue, range(5))
    operator.send(idle, range(5, 10))
    operator.fill(A)
    operator.send(queue, range(10, 15))
    operator.expire(queue, 5)
    assert reads.batch() == list(range(10, 15))
    assert reads.run() == list(range(10, 15))
    operator.send(idle, range(15, 20))
    assert reads.run() == list(range(15, 20))
    assert reads.batch() == list(range(10, 20))


# --- killed brokers


def test_broker_is_killed_and_restarted_while_a_stream_runs(
    reads: Reads, operator: Operator, cluster: Cluster, unique: str
) -> None:
    operator.create(unique, queues=2)
    operator.send(MessageQueue(unique, A, 0), range(10))
    operator.send(MessageQueue(unique, B, 1), range(10, 20))
    query = reads.start()
    reads.until(query, 20)
    cluster.kill(B)
    operator.send(MessageQueue(unique, A, 0), range(20, 30))
    reads.until(query, 30)  # only the other broker's messages
    cluster.restart(B)
    operator.send(MessageQueue(unique, B, 1), range(30, 40))
    reads.until(query, 40)
    query.stop()
    assert reads.numbers == list(range(40))


def test_broker_stays_away_between_two_runs(
    reads: Reads, operator: Operator, cluster: Cluster, session: Session, unique: str
) -> None:
    operator.create(unique, queues=1)
    operator.send(MessageQueue(unique, A, 0), range(5))
    operator.send(MessageQueue(unique, B, 0), range(5, 10))
    assert reads.run() == list(range(10))
    operator.send(MessageQueue(unique, A, 0), range(10, 15))
    operator.send(MessageQueue(unique, B, 0), range(15, 20))
    cluster.kill(B)
    loss = loss_text(unique, B, 0, "from 5 on", "its topic was deleted, or its broker is away")
    assert reads.failure() == loss + ADVICE
    assert reads.run(**LOG_ONLY) == list(range(10, 15))
    session.wait_for_warnings(unique, loss + CONTINUES)
    cluster.restart(B)
    assert reads.run() == list(range(15, 20))  # the stream kept its offset
