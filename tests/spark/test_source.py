"""The source in a Spark session, with the embedded broker: batches, streams and restarts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rocketmq_py.blocking import Client, Producer
from rocketmq_py.consumer import OffsetRange
from rocketmq_py.message import Message, MessageQueue
from rocketmq_py.spark.pyspark_version import check_pyspark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Send = Callable[..., None]

IS_SPARK_4_1 = check_pyspark() < (4, 2)
"""Spark 4.1 does not announce Trigger.AvailableNow to sources, and does not call ``reportLatestOffset``."""


@pytest.fixture(scope="module")
def client(broker_address: str) -> Iterator[Client]:
    with Client(broker_address) as client:
        yield client


@pytest.fixture(scope="module")
def producer(client: Client) -> Iterator[Producer]:
    with client.producer("spark_tests") as producer:
        yield producer


@pytest.fixture
def send(producer: Producer, topic: str) -> Send:
    """Return a function that sends a range of numbers, each to the queue of its remainder by four."""

    def run(first: int, end: int, tags: str = "") -> None:
        for number in range(first, end):
            queue = MessageQueue(topic, "broker-a", number % 4)
            producer.send(Message(topic, str(number).encode(), tags=tags), queue=queue if first else None)

    return run


class Stream:
    """A query over a topic that collects its rows by batch and can be restarted from its checkpoint."""

    def __init__(self, spark: SparkSession, address: str, topic: str, directory: Path) -> None:
        self.spark = spark
        self.options = {"nameServer": address, "topic": topic}
        self.checkpoint = directory
        self.progress: list[dict[str, Any]] = []
        self.batches: dict[int, list[int]] = {}
        self.after_batch: Callable[[], None] = lambda: None

    def available_now(self, **options: str) -> list[int]:
        """Read all existing messages, and return the numbers of all runs so far.

        Spark 4.1 reads one batch per run, so the query is run until a run has no batch.
        """
        self.progress = []
        while self.run(**options) and IS_SPARK_4_1:
            pass
        return sorted([number for batch in self.batches.values() for number in batch])

    def run(self, **options: str) -> bool:
        """Run the query once, and return whether it had a batch."""
        known = len(self.batches)
        rows = self.spark.readStream.format("rocketmq").options(**self.options | options).load()
        writer = rows.writeStream.foreachBatch(self._collect)
        writer = writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True)
        query = writer.start()
        query.awaitTermination()
        if len(self.batches) == known:
            return False
        self.progress += [json.loads(each.json) for each in query.recentProgress]
        return True

    def _collect(self, rows: DataFrame, number: int) -> None:
        self.batches[number] = numbers(rows)
        self.after_batch()

    def offsets_of_batch(self, number: int) -> dict[str, Any]:
        text = (self.checkpoint / "offsets" / str(number)).read_text()
        found = json.loads(text.splitlines()[-1])
        assert isinstance(found, dict)
        return found

    def remove_commit_of_batch(self, number: int) -> None:
        """Change the checkpoint to the state that a driver leaves when it is killed during the batch."""
        for name in (f"{number}", f".{number}.crc"):
            (self.checkpoint / "commits" / name).unlink()


@pytest.fixture
def stream(spark: SparkSession, broker_address: str, topic: str, tmp_path: Path) -> Stream:
    return Stream(spark, broker_address, topic, tmp_path)


def table(spark: SparkSession, address: str, topic: str, **options: str) -> DataFrame:
    found = spark.read.format("rocketmq").option("nameServer", address).option("topic", topic)
    return found.options(**options).load()


def numbers(rows: DataFrame) -> list[int]:
    return sorted([int(row.body) for row in rows.select("body").collect()])


def test_batch_reads_each_message_once_in_many_partitions(
    spark: SparkSession, broker_address: str, topic: str, send: Send
) -> None:
    send(0, 100)
    rows = table(spark, broker_address, topic, minPartitions="7")
    assert rows.rdd.getNumPartitions() == 7
    assert numbers(rows) == list(range(100))


def test_batch_between_offsets_and_with_tags(
    spark: SparkSession, broker_address: str, topic: str, send: Send, client: Client
) -> None:
    send(0, 4)
    with client.reader() as reader:
        ends = {str(queue.queue_id): end for queue, (_, end) in reader.offsets(topic).items()}
    send(4, 24, tags="A")
    send(24, 44, tags="B")
    begin = json.dumps({topic: {"broker-a": ends}})
    end = json.dumps({topic: {"broker-a": {"0": ends["0"] + 7, "1": "latest"}}})
    rows = table(spark, broker_address, topic, startingOffsets=begin, endingOffsets=end)
    assert numbers(rows) == [number for number in range(4, 44) if number % 4 or number < 32]
    rows = table(spark, broker_address, topic, startingOffsets=begin, tags="B || C")
    assert numbers(rows) == list(range(24, 44))


def test_option_columns_leaves_columns_out(
    spark: SparkSession, broker_address: str, topic: str, send: Send
) -> None:
    send(0, 3, tags="A")
    rows = table(spark, broker_address, topic, Columns="tags, body")
    assert rows.columns == ["body", "tags"]
    assert sorted([(bytes(row.body), row.tags) for row in rows.collect()]) == [
        (b"0", "A"), (b"1", "A"), (b"2", "A"),
    ]  # fmt: skip


def test_batch_without_messages_is_an_empty_table(
    spark: SparkSession, broker_address: str, topic: str, send: Send
) -> None:
    send(0, 4)
    year_5138 = "99999999999999"
    assert numbers(table(spark, broker_address, topic, startingTimestamp=year_5138)) == []


def test_batch_commits_the_offsets_of_its_group(
    spark: SparkSession, broker_address: str, topic: str, send: Send, client: Client
) -> None:
    send(0, 20)
    assert (
        table(spark, broker_address, topic, consumerGroup=f"{topic}_group", minPartitions="9").count() == 20
    )
    with client.reader() as reader:
        ends = {queue: end for queue, (_, end) in reader.offsets(topic).items()}
        assert reader.committed(f"{topic}_group", ends) == ends


def test_all_mistakes_in_options_are_listed(spark: SparkSession, broker_address: str, topic: str) -> None:
    with pytest.raises(Exception, match="3 invalid options") as raised:
        table(
            spark, broker_address, topic, maxOffsetPerTrigger="x", failOnDataLoss="maybe", stamp="true"
        ).count()
    text = str(raised.value)
    # Spark passes the names in lower case.
    assert "maxoffsetpertrigger: unknown option; did you mean maxOffsetsPerTrigger" in text
    assert "stamp is an option of a sink" in text


def test_error_of_a_stream_lists_mistakes_in_options(
    spark: SparkSession, broker_address: str, topic: str, tmp_path: Path
) -> None:
    invalid = {"endingOffsets": "latest", "maxOffsetsPerTrigger": "0"}
    rows = spark.readStream.format("rocketmq").option("nameServer", broker_address).option("topic", topic)
    writer = (
        rows.options(**invalid).load().writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    )
    query = writer.trigger(availableNow=True).start()
    with pytest.raises(Exception, match="rocketmq streaming source: 2 invalid options") as raised:
        query.awaitTermination()
    assert "UnboundLocalError" not in str(raised.value)


def test_stream_keeps_its_limit_and_commits_its_last_batch(
    stream: Stream, send: Send, topic: str, client: Client
) -> None:
    send(0, 40)
    group = f"{topic}_group"
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "15", "consumerGroup": group}
    assert stream.available_now(**options) == list(range(40))
    assert [each["numInputRows"] for each in stream.progress] == [15, 15, 10]
    latest = [each["sources"][0]["latestOffset"] for each in stream.progress]
    if IS_SPARK_4_1:
        assert latest == [each["sources"][0]["endOffset"] for each in stream.progress]
    else:
        assert [each["lag"] for each in latest] == [{topic: 25}, {topic: 10}, {topic: 0}]
    with client.reader() as reader:
        ends = {queue: end for queue, (_, end) in reader.offsets(topic).items()}
        assert reader.committed(group, ends) == ends
    # The second run continues where the first one ended.
    send(40, 60)
    assert stream.available_now(**options) == list(range(60))
    assert [each["numInputRows"] for each in stream.progress] == [15, 5]
    with client.reader() as reader:
        ends = {queue: end for queue, (_, end) in reader.offsets(topic).items()}
        assert reader.committed(group, ends) == ends


def test_stream_keeps_its_limit_of_bytes(stream: Stream, send: Send, topic: str, client: Client) -> None:
    send(100, 140)
    with client.reader() as reader:
        ranges = [OffsetRange(queue, *ends) for queue, ends in reader.offsets(topic).items()]
        with reader.pull(ranges) as results:
            total = sum([len(result.body) for result in results])
    options = {"startingOffsets": "earliest", "maxBytesPerTrigger": str(total * 3 // 8)}
    assert stream.available_now(**options) == list(range(100, 140))
    assert [each["numInputRows"] for each in stream.progress] == [15, 15, 10]


@pytest.mark.skipif(IS_SPARK_4_1, reason="Spark 4.1 does not announce Trigger.AvailableNow to sources")
def test_available_now_ends_although_more_messages_arrive(stream: Stream, send: Send) -> None:
    send(0, 40)

    def send_more() -> None:
        if len(stream.batches) < 5:  # so that a failing run ends too
            send(100 * len(stream.batches), 100 * len(stream.batches) + 20)

    stream.after_batch = send_more
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "15"}
    assert stream.available_now(**options) == list(range(40))
    assert len(stream.batches) == 3
    stream.after_batch = lambda: None
    later = [number for hundred in (100, 200, 300) for number in range(hundred, hundred + 20)]
    assert stream.available_now(**options) == [*range(40), *later]


@pytest.mark.skipif(not IS_SPARK_4_1, reason="Spark 4.2 and later announce Trigger.AvailableNow to sources")
def test_run_of_spark_4_1_with_a_limit_has_one_batch_that_the_next_run_commits(
    stream: Stream, send: Send, topic: str, client: Client
) -> None:
    send(0, 40)
    group = f"{topic}_group"
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "15", "consumerGroup": group}
    committed = []
    with client.reader() as reader:
        queues = list(reader.offsets(topic))
        for _ in range(4):
            stream.run(**options)
            offsets = reader.committed(group, queues).values()
            committed.append(sum([offset for offset in offsets if offset is not None]))
    assert [each["numInputRows"] for each in stream.progress] == [15, 15, 10]
    assert committed == [0, 15, 30, 40]


def test_replayed_batches_read_the_same(stream: Stream, send: Send) -> None:
    send(0, 8)
    assert stream.available_now(startingOffsets="latest") == []
    stream.remove_commit_of_batch(0)
    send(8, 16)  # now the latest offset lies beyond the end of batch 0
    stream.batches.clear()
    assert stream.available_now(startingOffsets="latest") == list(range(8, 16))
    assert stream.batches == {0: [], 1: list(range(8, 16))}
    stream.remove_commit_of_batch(1)
    send(16, 24)
    stream.batches.clear()
    stream.available_now(startingOffsets="latest")
    assert stream.batches == {1: list(range(8, 16)), 2: list(range(16, 24))}


def test_new_topics_of_a_pattern_start_at_their_first_message(
    stream: Stream, send: Send, producer: Producer, topic: str
) -> None:
    stream.options = {"nameServer": stream.options["nameServer"], "topicPattern": f"{topic}.*"}
    send(0, 4)
    assert stream.available_now(startingOffsets="latest") == []
    for number in range(100, 105):
        producer.send(Message(f"{topic}_other", str(number).encode()))
    assert stream.available_now(startingOffsets="latest") == list(range(100, 105))
    assert set(stream.offsets_of_batch(1)["offsets"]) == {topic, f"{topic}_other"}
