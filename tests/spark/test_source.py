"""The source in Spark, on the embedded broker: planned, read, stopped and gone on with."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rocketmq_py.blocking import Client, Producer
from rocketmq_py.message import Message, MessageQueue
from rocketmq_py.spark.registration import check_pyspark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Send = Callable[..., None]

IS_OLD = check_pyspark() < (4, 2)
"""Whether Spark tells sources nothing of Trigger.AvailableNow, and asks for no latest offset to report."""


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
    """Send numbers to queues of the topic, one after the other; the queue is the number modulo four."""

    def run(first: int, end: int, tags: str = "") -> None:
        for number in range(first, end):
            queue = MessageQueue(topic, "broker-a", number % 4)
            producer.send(Message(topic, str(number).encode(), tags=tags), queue=queue if first else None)

    return run


class Stream:
    """A query over a topic that collects its rows by batch, and can be started again from its checkpoint."""

    def __init__(self, spark: SparkSession, address: str, topic: str, directory: Path) -> None:
        self.spark = spark
        self.options = {"nameServer": address, "topic": topic}
        self.checkpoint = directory
        self.progress: list[dict[str, Any]] = []
        self.batches: dict[int, list[int]] = {}
        self.after_batch: Callable[[], None] = lambda: None

    def available_now(self, **options: str) -> list[int]:
        """Run until all is read that is there, and return what all runs have read so far.

        It is one run, but with Spark 4.1, which has one batch a run: there it is one more than there are
        batches.
        """
        self.progress = []
        while self.run(**options) and IS_OLD:
            pass
        return sorted([number for batch in self.batches.values() for number in batch])

    def run(self, **options: str) -> bool:
        """Run once; tell whether there was a batch."""
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

    def forget_end_of_batch(self, number: int) -> None:
        """Leave the checkpoint as a driver does that is killed while the batch runs."""
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


def test_a_batch_reads_each_message_once_however_it_is_split(
    spark: SparkSession, broker_address: str, topic: str, send: Send
) -> None:
    send(0, 100)
    rows = table(spark, broker_address, topic, minPartitions="7")
    assert rows.rdd.getNumPartitions() == 7
    assert numbers(rows) == list(range(100))


def test_a_batch_between_named_places_and_of_a_tag(
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


def test_a_batch_of_nothing_is_an_empty_table(
    spark: SparkSession, broker_address: str, topic: str, send: Send
) -> None:
    send(0, 4)
    year_5138 = "99999999999999"
    assert numbers(table(spark, broker_address, topic, startingTimestamp=year_5138)) == []


def test_a_batch_reports_its_groups_progress(
    spark: SparkSession, broker_address: str, topic: str, send: Send, client: Client
) -> None:
    send(0, 20)
    assert (
        table(spark, broker_address, topic, consumerGroup=f"{topic}_group", minPartitions="9").count() == 20
    )
    with client.reader() as reader:
        ends = {queue: end for queue, (_, end) in reader.offsets(topic).items()}
        assert reader.committed(f"{topic}_group", ends) == ends


def test_mistakes_in_options_are_told_all_at_once(
    spark: SparkSession, broker_address: str, topic: str
) -> None:
    with pytest.raises(Exception, match="3 options are wrong") as raised:
        table(
            spark, broker_address, topic, maxOffsetPerTrigger="x", failOnDataLoss="maybe", stamp="true"
        ).count()
    # Spark hands the names over in lower case.
    assert "maxoffsetpertrigger: there is no such option; did you mean maxOffsetsPerTrigger" in str(
        raised.value
    )
    assert "stamp is an option of a sink" in str(raised.value)


def test_mistakes_in_options_of_a_stream_are_the_last_word(
    spark: SparkSession, broker_address: str, topic: str, tmp_path: Path
) -> None:
    wrong = {"endingOffsets": "latest", "maxOffsetsPerTrigger": "0"}
    rows = spark.readStream.format("rocketmq").option("nameServer", broker_address).option("topic", topic)
    writer = (
        rows.options(**wrong).load().writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    )
    query = writer.trigger(availableNow=True).start()
    with pytest.raises(Exception, match="rocketmq as a streaming source: 2 options are wrong") as raised:
        query.awaitTermination()
    assert "UnboundLocalError" not in str(raised.value)


def test_a_stream_reads_within_its_limit_and_reports_its_last_batch_too(
    stream: Stream, send: Send, topic: str, client: Client
) -> None:
    send(0, 40)
    group = f"{topic}_group"
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "15", "consumerGroup": group}
    assert stream.available_now(**options) == list(range(40))
    assert [each["numInputRows"] for each in stream.progress] == [15, 15, 10]
    latest = [each["sources"][0]["latestOffset"] for each in stream.progress]
    if IS_OLD:
        assert latest == [each["sources"][0]["endOffset"] for each in stream.progress]
    else:
        assert [each["lag"] for each in latest] == [{topic: 25}, {topic: 10}, {topic: 0}]
    with client.reader() as reader:
        ends = {queue: end for queue, (_, end) in reader.offsets(topic).items()}
        assert reader.committed(group, ends) == ends
    # And a second run goes on where the first one was.
    send(40, 60)
    assert stream.available_now(**options) == list(range(60))
    assert [each["numInputRows"] for each in stream.progress] == [15, 5]
    with client.reader() as reader:
        ends = {queue: end for queue, (_, end) in reader.offsets(topic).items()}
        assert reader.committed(group, ends) == ends


@pytest.mark.skipif(IS_OLD, reason="Spark 4.1 tells a source nothing of Trigger.AvailableNow")
def test_a_run_ends_with_what_was_there_though_more_is_sent(stream: Stream, send: Send) -> None:
    send(0, 40)

    def send_more() -> None:
        if len(stream.batches) < 5:  # a run that never ended would be no test
            send(100 * len(stream.batches), 100 * len(stream.batches) + 20)

    stream.after_batch = send_more
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "15"}
    assert stream.available_now(**options) == list(range(40))
    assert len(stream.batches) == 3
    stream.after_batch = lambda: None
    later = [number for hundred in (100, 200, 300) for number in range(hundred, hundred + 20)]
    assert stream.available_now(**options) == [*range(40), *later]


@pytest.mark.skipif(not IS_OLD, reason="Spark 4.2 and later tell a source of Trigger.AvailableNow")
def test_a_run_of_spark_4_1_within_a_limit_is_one_batch_that_the_next_run_reports(
    stream: Stream, send: Send, topic: str, client: Client
) -> None:
    send(0, 40)
    group = f"{topic}_group"
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "15", "consumerGroup": group}
    reported = []
    with client.reader() as reader:
        queues = list(reader.offsets(topic))
        for _ in range(4):
            stream.run(**options)
            places = reader.committed(group, queues).values()
            reported.append(sum([place for place in places if place is not None]))
    assert [each["numInputRows"] for each in stream.progress] == [15, 15, 10]
    assert reported == [0, 15, 30, 40]


def test_a_first_batch_that_runs_again_reads_the_same(stream: Stream, send: Send) -> None:
    send(0, 8)
    assert stream.available_now(startingOffsets="latest") == []
    stream.forget_end_of_batch(0)
    send(8, 16)  # what is the latest now is behind the end of batch 0
    stream.batches.clear()
    assert stream.available_now(startingOffsets="latest") == list(range(8, 16))
    assert stream.batches == {0: [], 1: list(range(8, 16))}
    stream.forget_end_of_batch(1)
    send(16, 24)
    stream.batches.clear()
    stream.available_now(startingOffsets="latest")
    assert stream.batches == {1: list(range(8, 16)), 2: list(range(16, 24))}


def test_new_topics_of_a_pattern_begin_with_their_first_message(
    stream: Stream, send: Send, producer: Producer, topic: str
) -> None:
    stream.options = {"nameServer": stream.options["nameServer"], "topicPattern": f"{topic}.*"}
    send(0, 4)
    assert stream.available_now(startingOffsets="latest") == []
    for number in range(100, 105):
        producer.send(Message(f"{topic}_other", str(number).encode()))
    assert stream.available_now(startingOffsets="latest") == list(range(100, 105))
    assert set(stream.offsets_of_batch(1)["offsets"]) == {topic, f"{topic}_other"}
