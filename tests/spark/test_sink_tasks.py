"""What a sink's tasks and its driver do, task by task: no Spark runs here."""

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

from rocketmq_py.errors import ConfigurationError
from rocketmq_py.message import Message, MessageQueue, SendResult, SendStatus
from rocketmq_py.spark import connections
from rocketmq_py.spark.options import ConnectionOptions
from rocketmq_py.spark.rows import Destination
from rocketmq_py.spark.sink import BatchSink, StreamSink, TaskWritten, batch_sink
from rocketmq_py.spark.sink_options import SinkOptions
from rocketmq_py.spark.stamps import STAMP, Stamp
from rocketmq_py.spark.writing import Outcome, Written

PLACES = {"body": 0}
SCHEMA = StructType([StructField("body", BinaryType())])
OPTIONS = SinkOptions(connection=ConnectionOptions(name_server="ns:9876"), topic="T")
RESULT = SendResult(SendStatus.SEND_OK, "id", "offset id", MessageQueue("T", "a", 0), 0)


@attrs.define
class Broker:
    """Stands for the producer and its brokers: they acknowledge when they may."""

    stored: list[Message] = attrs.field(factory=list)
    asked: threading.Event = attrs.field(factory=threading.Event)
    may_answer: threading.Event = attrs.field(factory=threading.Event)

    def send_all(
        self, messages: Sequence[Message], *, queues: Sequence[Destination] | None = None
    ) -> Sequence[Outcome]:
        self.asked.set()
        self.may_answer.wait()
        self.stored += messages
        return [RESULT for _ in messages]

    def stamps(self) -> list[str]:
        return [message.properties[STAMP] for message in self.stored]


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    broker = Broker()
    monkeypatch.setattr(connections, "producer_for", lambda _: broker)
    return broker


@pytest.fixture
def run_as(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Be a task from now on: of a partition, for the so many-th time."""

    def run(*, partition: int = 3, attempt: int = 0) -> None:
        of_query = {"sql.streaming.queryId": "query", "streaming.sql.batchId": "7"}
        task = SimpleNamespace(
            partitionId=lambda: partition, attemptNumber=lambda: attempt, getLocalProperty=of_query.get
        )
        monkeypatch.setattr(pyspark.TaskContext, "get", lambda: task)

    run()
    return run


def batches(*sizes: int) -> Iterator[pa.RecordBatch]:
    for size in sizes:
        yield pa.record_batch([pa.array([b"body"] * size)], names=["body"])


def test_a_task_ends_when_its_rows_are_acknowledged(broker: Broker, run_as: Callable[..., None]) -> None:
    with ThreadPoolExecutor(1) as worker:
        task = worker.submit(StreamSink(PLACES, OPTIONS).write, batches(2, 3))
        try:
            broker.asked.wait()
            # It would not end however long one waited.
            assert wait([task], timeout=0.05).not_done
        finally:
            broker.may_answer.set()
        assert task.result().written.rows == len(broker.stored) == 5


def test_a_task_that_runs_again_stamps_its_rows_alike(broker: Broker, run_as: Callable[..., None]) -> None:
    broker.may_answer.set()
    sink = StreamSink(PLACES, OPTIONS)
    run_as(partition=3, attempt=0)
    sink.write(batches(2, 3))
    first = broker.stamps()
    assert first == [f"query/7/3/{row}" for row in range(5)]
    broker.stored.clear()
    run_as(partition=3, attempt=1)
    pickle.loads(pickle.dumps(sink)).write(batches(4, 1))  # Spark may cut the same rows otherwise
    assert broker.stamps() == first


def test_a_job_that_runs_again_stamps_its_rows_alike(broker: Broker, run_as: Callable[..., None]) -> None:
    broker.may_answer.set()
    BatchSink(PLACES, OPTIONS, "job").write(batches(1, 1))
    assert broker.stamps() == ["job/0/3/0", "job/0/3/1"]


def test_a_job_has_the_id_that_it_is_given(broker: Broker, run_as: Callable[..., None]) -> None:
    broker.may_answer.set()
    for job_id in ("job", None, None):
        batch_sink(SCHEMA, attrs.evolve(OPTIONS, job_id=job_id), overwrite=False).write(batches(1))
    given, one, other = [Stamp.parse(stamp).query_id for stamp in broker.stamps()]
    assert given == "job"
    assert one != other


def test_a_topic_cannot_be_overwritten() -> None:
    with pytest.raises(ConfigurationError, match="a topic cannot be overwritten; use mode append"):
        batch_sink(SCHEMA, OPTIONS, overwrite=True)


def test_what_a_task_returns_travels_to_the_driver(broker: Broker, run_as: Callable[..., None]) -> None:
    broker.may_answer.set()
    for sink in (StreamSink(PLACES, OPTIONS), BatchSink(PLACES, OPTIONS, "job")):
        told = pickle.loads(pickle.dumps(sink.write(batches(2))))
        assert isinstance(told, TaskWritten)
        assert (told.partition, told.written.rows, told.written.body_bytes) == (3, 2, 8)


def test_what_was_sent_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Of a task that did not end, as of one that was stopped, Spark has nothing to hand over."""
    stream, batch = StreamSink(PLACES, OPTIONS), BatchSink(PLACES, OPTIONS, "job")
    one = TaskWritten(0, Written(5, 40, resent=1, seconds=0.5, slowest=0.25))
    other = TaskWritten(2, Written(2, 10, resent=0, seconds=0.5, slowest=0.5))
    with caplog.at_level(logging.INFO, "rocketmq_py.spark"):
        stream.commit([one, other], 7)
        batch.commit([one, other])
        stream.abort([one, None, other], 7)
        batch.abort([None, None])
    whole, part = (
        "7 rows (50 bytes) sent by 2 tasks, 1 of them",
        "2 tasks, and 1 tasks that did not end, 1 of",
    )
    nothing = "0 rows (0 bytes) sent by 0 tasks, and 2 tasks that did not end, 0 of them"
    for record, (level, begin, end) in zip(
        caplog.records,
        [
            ("INFO", "batch 7: ", whole),
            ("INFO", "job job: ", whole),
            ("WARNING", "batch 7 is aborted: 7 rows (50 bytes) sent by ", part),
            ("WARNING", "job job is aborted: ", nothing),
        ],
        strict=True,
    ):
        assert record.levelname == level
        assert record.getMessage().startswith(begin + end), record.getMessage()
