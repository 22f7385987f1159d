"""Messages, queues, topics and brokers that go, and that come, while Spark queries read: on real brokers.

Each row has a number that was sent once: sorted numbers show what is missing, and what came twice.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from integration.clusters.cluster import Cluster
from integration.clusters.plugin import start_own_cluster
from integration.clusters.provider import VERSIONS
from integration.operating import EXPIRING, Operator, until
from integration.spark_reads import Reads, Session, until_failed
from rocketmq_py.message import MessageQueue
from tests.behaviours.conftest import unique
from tests.spark.session import java_or_skip, stop_spark

if TYPE_CHECKING:
    pass

__all__ = ["unique"]  # a fixture

A, B = "broker-a", "broker-b"
ADVICE = "; set failOnDataLoss to false to go on without them"
GOES_ON = "; reading goes on without them"
EXPIRED = "the broker does not have them any more"
LOGS: dict[str, Any] = {"failOnDataLoss": "false"}


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


def of(topic: str, broker: str, queue: int, offsets: str, cause: str) -> str:
    """Return what a user reads about offsets that are not there."""
    return (
        f"offsets {offsets} of queue {queue} of topic '{topic}' on broker '{broker}' are not there: {cause}"
    )


def at(topic: str, offset: int) -> str:
    return json.dumps({topic: {A: {"0": offset}}})


# --- batches, and where streams begin


def test_batches_whose_range_is_not_there(
    reads: Reads, operator: Operator, session: Session, unique: str
) -> None:
    operator.create(unique, [A], queues=2)
    assert reads.batch() == []
    operator.send(MessageQueue(unique, A, 0), range(5))
    operator.send(MessageQueue(unique, A, 1), range(5, 8))
    beyond = {"endingOffsets": at(unique, 9)}
    loss = of(unique, A, 0, "5 to 8", "the queue ends at 5")
    assert reads.failure_of_batch(**beyond) == loss + ADVICE
    assert reads.batch(**beyond, **LOGS) == list(range(8))
    behind = {"startingOffsets": at(unique, 7)}
    another = of(unique, A, 0, "from 7 on", "the queue ends at 5")
    assert reads.failure_of_batch(**behind) == another + ADVICE
    assert reads.batch(**behind, **LOGS) == [5, 6, 7]
    session.wait_for_warnings(unique, loss + GOES_ON, another + GOES_ON)
    with pytest.raises(
        Exception, match=f"reading of {unique} {A} 0 would begin at offset 3 and end at 2, which"
    ):
        reads.batch(startingOffsets=at(unique, 3), endingOffsets=at(unique, 2))
    assert reads.batch(startingOffsets=at(unique, 3), endingOffsets=at(unique, 3)) == [5, 6, 7]


def test_a_stream_that_starts_behind_the_end(
    reads: Reads, operator: Operator, session: Session, unique: str
) -> None:
    operator.create(unique, [A], queues=1)
    operator.send(MessageQueue(unique, A, 0), range(3))
    loss = of(unique, A, 0, "from 9 on", "the queue ends at 3, before startingOffsets")
    assert reads.failure(startingOffsets=at(unique, 9)) == loss + ADVICE
    assert reads.run(startingOffsets=at(unique, 9), **LOGS) == [0, 1, 2]
    session.wait_for_warnings(unique, loss + GOES_ON)


# --- topics that go


def test_a_topic_that_is_deleted_and_made_anew_between_two_runs(
    reads: Reads, operator: Operator, session: Session, unique: str
) -> None:
    queue = MessageQueue(unique, A, 0)
    operator.create(unique, [A], queues=1)
    operator.send(queue, range(10))
    assert reads.run() == list(range(10))

    operator.delete(unique)
    gone = of(unique, A, 0, "from 10 on", "its topic was deleted, or its broker is away")
    assert reads.failure() == gone + ADVICE
    assert reads.run(**LOGS) == []

    operator.create(unique, [A], queues=1)
    operator.send(queue, range(10, 13))
    cause = "the queue ends at 3 now: its topic was deleted or made anew, or messages were lost"
    back = of(unique, A, 0, "3 to 9", cause)
    assert reads.failure() == back + ADVICE
    assert reads.run(**LOGS) == [10, 11, 12]
    session.wait_for_warnings(unique, gone + GOES_ON, back + GOES_ON)
    operator.send(queue, [13])
    assert reads.run() == [13]


def test_a_topic_that_is_deleted_while_streams_run(
    reads: Reads, operator: Operator, session: Session, cluster: Cluster, unique: str
) -> None:
    queue = MessageQueue(unique, A, 0)
    operator.create(unique, [A], queues=1)
    operator.send(queue, range(10))
    with tempfile.TemporaryDirectory() as directory:
        others = Reads(session, cluster, unique, Path(directory))
        query, other = reads.start(), others.start(**LOGS)
        reads.until(query, 10)
        others.until(other, 10)
        operator.delete(unique)
        cause = "the queue ends at 0 now: its topic was deleted or made anew, or messages were lost"
        loss = of(unique, A, 0, "0 to 9", cause)
        assert until_failed(query) == loss + ADVICE
        until(lambda: loss + GOES_ON in session.logged(unique), "a warning")
        operator.create(unique, [A], queues=1)
        operator.send(queue, range(10, 15))
        others.until(other, 15)
        other.stop()
        assert others.numbers == list(range(15))


# --- queues and brokers that come and go


def test_queues_and_brokers_that_come_while_a_stream_runs(
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


def test_a_queue_that_may_no_longer_be_read(
    reads: Reads, operator: Operator, session: Session, unique: str
) -> None:
    first, second = (MessageQueue(unique, A, number) for number in range(2))
    operator.create(unique, [A], queues=2)
    operator.send(second, range(5))
    assert reads.run() == list(range(5))
    operator.send(second, range(5, 7))
    operator.create(unique, [A], queues=1, writable=2)
    operator.send(first, range(7, 9))
    loss = of(unique, A, 1, "from 5 on", "the queue was deleted, or may no longer be read")
    assert reads.failure() == loss + ADVICE
    assert reads.run(**LOGS) == [7, 8]
    session.wait_for_warnings(unique, loss + GOES_ON)
    operator.create(unique, [A], queues=2)
    assert reads.run() == [5, 6]  # its place was kept


def test_a_queue_that_may_no_longer_be_read_while_a_stream_runs(
    reads: Reads, operator: Operator, session: Session, unique: str
) -> None:
    first, second = (MessageQueue(unique, A, number) for number in range(2))
    operator.create(unique, [A], queues=2)
    operator.send(second, range(5))
    query = reads.start(**LOGS)
    reads.until(query, 5)
    operator.create(unique, [A], queues=1, writable=2)
    operator.send(first, range(5, 9))
    reads.until(query, 9)
    query.stop()
    assert reads.numbers == list(range(9))
    assert session.logged(unique) == []  # all that was there had been read


# --- messages that have expired; on the broker that no test starts again


def test_messages_that_have_expired(reads: Reads, operator: Operator, session: Session, unique: str) -> None:
    queue = MessageQueue(unique, A, 0)
    operator.create(unique, [A], queues=2)
    operator.send(queue, range(10))
    assert reads.run() == list(range(10))
    operator.send(queue, range(10, 15))
    operator.fill(A)
    operator.send(queue, range(15, 20))
    operator.expire(queue, 15)

    loss = of(unique, A, 0, "10 to 14", EXPIRED)
    assert reads.failure() == loss + ADVICE
    assert reads.run(**LOGS) == list(range(15, 20))
    older = {"startingOffsets": at(unique, 3)}
    another = of(unique, A, 0, "3 to 14", EXPIRED)
    assert reads.failure_of_batch(**older) == another + ADVICE
    assert reads.batch(**older, **LOGS) == reads.batch() == list(range(15, 20))
    session.wait_for_warnings(unique, loss + GOES_ON, another + GOES_ON)


def test_messages_that_expire_before_their_batch_runs_again(
    reads: Reads, operator: Operator, session: Session, unique: str
) -> None:
    """Spark reads the offsets again that it has planned, and asks nobody whether they are there."""
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
    loss = of(unique, A, 0, "0 to 9", EXPIRED)
    assert reads.failure() == loss + ADVICE
    assert reads.run(**LOGS) == list(range(10, 15))
    session.wait_for_warnings(unique, f"{loss}; reading goes on without them")


def test_a_queue_whose_messages_have_all_expired(reads: Reads, operator: Operator, unique: str) -> None:
    """Brokers of 4.x go on naming such a queue's old beginning: a query must not begin there, and fail."""
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


# --- brokers that are killed


def test_a_broker_that_is_killed_and_started_again_while_a_stream_runs(
    reads: Reads, operator: Operator, cluster: Cluster, unique: str
) -> None:
    operator.create(unique, queues=2)
    operator.send(MessageQueue(unique, A, 0), range(10))
    operator.send(MessageQueue(unique, B, 1), range(10, 20))
    query = reads.start()
    reads.until(query, 20)
    cluster.kill(B)
    operator.send(MessageQueue(unique, A, 0), range(20, 30))
    reads.until(query, 30)  # without those of the other one
    cluster.restart(B)
    operator.send(MessageQueue(unique, B, 1), range(30, 40))
    reads.until(query, 40)
    query.stop()
    assert reads.numbers == list(range(40))


def test_a_broker_that_stays_away(
    reads: Reads, operator: Operator, cluster: Cluster, session: Session, unique: str
) -> None:
    operator.create(unique, queues=1)
    operator.send(MessageQueue(unique, A, 0), range(5))
    operator.send(MessageQueue(unique, B, 0), range(5, 10))
    assert reads.run() == list(range(10))
    operator.send(MessageQueue(unique, A, 0), range(10, 15))
    operator.send(MessageQueue(unique, B, 0), range(15, 20))
    cluster.kill(B)
    loss = of(unique, B, 0, "from 5 on", "its topic was deleted, or its broker is away")
    assert reads.failure() == loss + ADVICE
    assert reads.run(**LOGS) == list(range(10, 15))
    session.wait_for_warnings(unique, loss + GOES_ON)
    cluster.restart(B)
    assert reads.run() == list(range(15, 20))  # its place was kept
