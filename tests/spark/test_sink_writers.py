"""The sinks as Spark calls them, in tasks and in the driver, without a running Spark."""

from __future__ import annotations

import logging
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from types import SimpleNamespace

import attrs
import pyarrow as pa
import pyspark
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from rocketmq_py.errors import ConfigurationError, RocketMQError
from rocketmq_py.message import MessageQueue
from rocketmq_py.properties import decode_properties
from rocketmq_py.protocol.batch import BatchedMessage, decode_batch
from rocketmq_py.spark import connections
from rocketmq_py.spark.batch_encoder import PreparedBatch
from rocketmq_py.spark.options import ConnectionOptions
from rocketmq_py.spark.piece_sender import WriteSummary
from rocketmq_py.spark.sink import BatchSink, StreamSink, TaskCommitMessage, batch_sink
from rocketmq_py.spark.sink_options import SinkOptions
from rocketmq_py.spark.stamps import STAMP, Stamp

COLUMN_INDEXES = {"body": 0}
SCHEMA = StructType([StructField("body", BinaryType())])
OPTIONS = SinkOptions(connection=ConnectionOptions(name_server="ns:9876"), topic="T")
JOB_OPTIONS = attrs.evolve(OPTIONS, job_id="job")


@attrs.define
class FakeBroker:
    """A fake of the sender and its broker. It acknowledges batches once ``may_answer`` is set."""

    stored: list[BatchedMessage] = attrs.field(factory=list)
    was_called: threading.Event = attrs.field(factory=threading.Event)
    may_answer: threading.Event = attrs.field(factory=threading.Event)

    def send_batches(self, batches: Sequence[PreparedBatch]) -> Sequence[RocketMQError | None]:
        self.was_called.set()
        self.may_answer.wait()
        for batch in batches:
            self.stored += decode_batch(batch.body)
        return [None] * len(batches)

    def new_unique_ids(self, count: int) -> Sequence[str]:
        return [f"{number:032X}" for number in range(count)]

    def queues(self, topic: str) -> Sequence[MessageQueue]:
        return [MessageQueue(topic, "a", 0)]

    def stamps(self) -> list[str]:
        return [decode_properties(message.properties.decode())[STAMP] for message in self.stored]


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> FakeBroker:
    broker = FakeBroker()
    monkeypatch.setattr(connections, "sender_for", lambda _: broker)
    return broker


@pytest.fixture
def set_task(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that makes the test's thread a Spark task. The fixture calls it once."""

    def set_task(*, partition: int = 3, attempt: int = 0) -> None:
        properties = {"sql.streaming.queryId": "query", "streaming.sql.batchId": "7"}
        context = SimpleNamespace(
            partitionId=lambda: partition, attemptNumber=lambda: attempt, getLocalProperty=properties.get
        )
        monkeypatch.setattr(pyspark.TaskContext, "get", lambda: context)

    set_task()
    return set_task


def batches(*sizes: int) -> Iterator[pa.RecordBatch]:
    for size in sizes:
        yield pa.record_batch([pa.array([b"body"] * size)], names=["body"])


def test_task_ends_once_its_rows_are_acknowledged(broker: FakeBroker, set_task: Callable[..., None]) -> None:
    with ThreadPoolExecutor(1) as worker:
        task = worker.submit(StreamSink(COLUMN_INDEXES, OPTIONS).write, batches(2, 3))
        try:
            broker.was_called.wait()
            assert wait([task], timeout=0.05).not_done
        finally:
            broker.may_answer.set()
        assert task.result().summary.rows == len(broker.stored) == 5


def test_retried_task_writes_the_same_stamps(broker: FakeBroker, set_task: Callable[..., None]) -> None:
    broker.may_answer.set()
    sink = StreamSink(COLUMN_INDEXES, OPTIONS)
    set_task(partition=3, attempt=0)
    sink.write(batches(2, 3))
    first = broker.stamps()
    assert first == [f"query/7/3/{row}" for row in range(5)]
    broker.stored.clear()
    set_task(partition=3, attempt=1)
    # Spark may divide the same rows into other Arrow batches.
    pickle.loads(pickle.dumps(sink)).write(batches(4, 1))
    assert broker.stamps() == first


def test_job_stamps_rows_across_arrow_batches(broker: FakeBroker, set_task: Callable[..., None]) -> None:
    broker.may_answer.set()
    BatchSink(COLUMN_INDEXES, JOB_OPTIONS).write(batches(1, 1))
    assert broker.stamps() == ["job/0/3/0", "job/0/3/1"]


def test_job_without_an_id_gets_a_random_one(broker: FakeBroker, set_task: Callable[..., None]) -> None:
    broker.may_answer.set()
    for options in (JOB_OPTIONS, OPTIONS, OPTIONS):
        BatchSink(COLUMN_INDEXES, options).write(batches(1))
    set_id, first_random, second_random = [Stamp.parse(stamp).query_id for stamp in broker.stamps()]
    assert set_id == "job"
    assert first_random != second_random


def test_save_mode_overwrite_is_rejected() -> None:
    options = {"nameServer": "ns:9876", "topic": "T"}
    with pytest.raises(ConfigurationError, match="a topic cannot be overwritten; use the save mode append"):
        batch_sink(SCHEMA, options, overwrite=True)
    assert isinstance(batch_sink(SCHEMA, options, overwrite=False), BatchSink)


def test_commit_message_survives_pickling(broker: FakeBroker, set_task: Callable[..., None]) -> None:
    broker.may_answer.set()
    for sink in (StreamSink(COLUMN_INDEXES, OPTIONS), BatchSink(COLUMN_INDEXES, JOB_OPTIONS)):
        message = pickle.loads(pickle.dumps(sink.write(batches(2))))
        assert isinstance(message, TaskCommitMessage)
        assert (message.partition, message.summary.rows, message.summary.body_bytes) == (3, 2, 8)


def test_commit_and_abort_log_the_counts(caplog: pytest.LogCaptureFixture) -> None:
    """Spark passes None for tasks that did not finish."""
    stream, batch = StreamSink(COLUMN_INDEXES, OPTIONS), BatchSink(COLUMN_INDEXES, JOB_OPTIONS)
    one = TaskCommitMessage(0, WriteSummary(5, 40, resent=1, seconds=0.5, slowest=0.25, dead_letters=1))
    other = TaskCommitMessage(2, WriteSummary(2, 10, resent=0, seconds=0.5, slowest=0.5, dead_letters=2))
    with caplog.at_level(logging.INFO, "rocketmq_py.spark"):
        stream.commit([one, other], 7)
        batch.commit([one, other])
        stream.abort([one, None, other], 7)
        batch.abort([None, None])
    both = "rows=7 bytes=50 resent=1 dead_letters=3 tasks=2 unfinished_tasks="
    none = "rows=0 bytes=0 resent=0 dead_letters=0 tasks=0 unfinished_tasks=2"
    for record, (level, text) in zip(
        caplog.records,
        [
            ("INFO", f"wrote batch=7: {both}0"),
            ("INFO", f"wrote job=job: {both}0"),
            ("WARNING", f"aborted batch=7: {both}1"),
            ("WARNING", f"aborted job=job: {none}"),
        ],
        strict=True,
    ):
        assert record.levelname == level
        assert record.getMessage().startswith(f"{text} "), record.getMessage()
