"""The sink in a Spark session, with the embedded broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rocketmq_py.blocking import Client
from rocketmq_py.message import ReceivedMessage
from rocketmq_py.spark import STAMP
from rocketmq_py.spark.stamps import Stamp
from tests.blocking.conftest import BrokerThread
from tests.spark import token_service

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ReadAll = Callable[[str], list[ReceivedMessage]]


@pytest.fixture(scope="module")
def client(broker_address: str) -> Iterator[Client]:
    with Client(broker_address) as client:
        yield client


@pytest.fixture
def read_all(client: Client) -> Iterator[ReadAll]:
    """Return a function that returns the messages of a topic, by queue and offset."""
    with client.reader() as reader:

        def read(topic: str) -> list[ReceivedMessage]:
            offsets = reader.offsets(topic)
            return [
                message
                for queue, (first, end) in sorted(offsets.items())
                for message in reader.range(queue, first, end)
            ]

        yield read


def write(rows: DataFrame, address: str, **options: str) -> None:
    rows.write.format("rocketmq").mode("append").option("nameServer", address).options(**options).save()


def test_batch_writes_all_rows(
    spark: SparkSession, broker_address: str, topic: str, read_all: ReadAll
) -> None:
    rows = spark.range(0, 1000, 1, 3).selectExpr(
        "cast(id as string) body", "'A' tags", "concat('k', id) keys", "map('colour', 'red') properties"
    )
    write(rows, broker_address, topic=topic)
    messages = read_all(topic)
    assert sorted([int(message.body) for message in messages]) == list(range(1000))
    assert {message.tags for message in messages} == {"A"}
    assert all(message.keys == (f"k{int(message.body)}",) for message in messages)
    assert {message.properties["colour"] for message in messages} == {"red"}
    stamps = [Stamp.parse(message.properties[STAMP]) for message in messages]
    assert len(set(stamps)) == 1000
    assert len({stamp.query_id for stamp in stamps}) == 1
    assert {stamp.partition for stamp in stamps} == {0, 1, 2}


def test_column_types_and_nulls(
    spark: SparkSession, broker_address: str, topic: str, read_all: ReadAll
) -> None:
    rows = spark.sql(
        """
        select * from values (binary('a'), array('k1', 'k2'), 7, 'r1'), (binary('b'), array('k3'), null, null)
        as (Body, Keys, Flag, RowId)
        """
    ).selectExpr("*", f"'{topic}' topic")
    write(rows, broker_address)
    messages = {message.body: message for message in read_all(topic)}
    assert messages[b"a"].keys == ("k1", "k2")
    assert (messages[b"a"].flag, messages[b"b"].flag) == (7, 0)
    assert Stamp.parse(messages[b"a"].properties[STAMP]).row == "r1"
    assert Stamp.parse(messages[b"b"].properties[STAMP]).partition is not None


def test_sharding_key_and_queue_choose_the_queue(
    spark: SparkSession, broker_address: str, topic: str, read_all: ReadAll
) -> None:
    rows = spark.range(40).selectExpr("cast(id as string) body", "concat('order', id % 4) shardingKey")
    write(rows, broker_address, topic=topic)
    queues_by_key: dict[int, set[int]] = {}
    for message in read_all(topic):
        queues_by_key.setdefault(int(message.body) % 4, set()).add(message.queue_id)
    assert sorted([len(queues) for queues in queues_by_key.values()]) == [1, 1, 1, 1]

    rows = spark.sql("select 'direct' body, struct('broker-a' brokerName, 3 queueId) queue")
    write(rows, broker_address, topic=topic)
    (direct,) = [message for message in read_all(topic) if message.body == b"direct"]
    assert direct.queue_id == 3


def test_rows_of_a_source_can_be_written_as_read(
    spark: SparkSession, broker_address: str, new_topic: Callable[[], str], read_all: ReadAll
) -> None:
    first_topic, second_topic = new_topic(), new_topic()
    rows = spark.range(10).selectExpr(
        "cast(id as string) body", "'A' tags", "map('colour', 'red') properties"
    )
    write(rows, broker_address, topic=first_topic)
    source = spark.read.format("rocketmq").options(nameServer=broker_address, topic=first_topic).load()
    write(source, broker_address, topic=second_topic)
    before, after = read_all(first_topic), read_all(second_topic)
    assert sorted([message.body for message in after]) == sorted([message.body for message in before])
    assert {message.tags for message in after} == {"A"}
    assert {message.properties["colour"] for message in after} == {"red"}
    assert not {m.message_id for m in before} & {m.message_id for m in after}
    assert not {m.properties[STAMP] for m in before} & {m.properties[STAMP] for m in after}


def test_mistakes_are_reported_before_a_job_runs(
    spark: SparkSession, broker_address: str, topic: str
) -> None:
    rows = spark.range(3).selectExpr("id value", "'A' tag", "1 keys")
    with pytest.raises(Exception, match="5 invalid columns") as caught:
        write(rows, broker_address)
    text = str(caught.value)
    assert "value: unknown column; did you mean body?" in text
    with pytest.raises(Exception, match="a topic cannot be overwritten; use the save mode append"):
        spark.sql("select 'x' body").write.format("rocketmq").mode("overwrite").options(
            nameServer=broker_address, topic=topic
        ).save()
    with pytest.raises(Exception, match="unknown option; did you mean producerGroup"):
        write(spark.sql("select 'x' body"), broker_address, topic=topic, producerGrup="g")


def test_invalid_or_refused_row_fails_its_task(
    spark: SparkSession, broker_address: str, topic: str, read_all: ReadAll
) -> None:
    rows = spark.range(0, 10, 1, 1).selectExpr(
        "if(id = 7, null, cast(id as string)) body", "concat('k', id) keys"
    )
    with pytest.raises(Exception, match=r"row 7 \(topic .*, keys .k7.\): its body is null; no row was sent"):
        write(rows, broker_address, topic=topic)
    rows = spark.range(0, 10, 1, 1).selectExpr("repeat('x', 100 + 100 * cast(id as int)) body")
    with pytest.raises(
        Exception, match=r"1 of 10 rows were not acknowledged; row 9 .*maxMessageSize is 950"
    ) as caught:
        write(rows, broker_address, topic=topic, maxMessageSize="950", maxBatchBytes="900")
    assert "the other rows from 0 to 9 are stored" in str(caught.value)
    assert len(read_all(topic)) == 9


def test_workers_fetch_their_credentials(spark: SparkSession) -> None:
    broker = BrokerThread(access_keys={token_service.ACCESS_KEY: token_service.SECRET_KEY})
    address = broker.start()
    try:
        options = {"nameServer": address, "topic": "Guarded"}
        provider = {"credentialsProvider": "tests.spark.token_service:credentials"}
        write(spark.sql("select 'x' body"), address, **options, **provider)
        assert spark.read.format("rocketmq").options(**options, **provider).load().count() == 1
        with pytest.raises(Exception, match="denies access"):
            spark.read.format("rocketmq").options(**options).load().count()
    finally:
        broker.stop()


def test_intervals_and_priorities(
    spark: SparkSession, broker_address: str, topic: str, read_all: ReadAll
) -> None:
    rows = spark.sql(
        """
        select * from values
            ('delayed', interval '1' millisecond, null), ('urgent', null, 3), ('plain', null, null)
        as (body, delay, priority)
        """
    )
    write(rows, broker_address, topic=topic)
    while len(messages := read_all(topic)) < 3:
        pass
    properties = {message.body: message.properties for message in messages}
    assert properties[b"urgent"]["_SYS_MSG_PRIORITY_"] == "3"
    assert [body for body, names in properties.items() if "TIMER_OUT_MS" in names] == [b"delayed"]


class Files:
    """A directory that a query reads, one file per batch."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark = spark
        self.directory = directory
        self.files = directory / "files"
        self.files.mkdir()

    def add(self, name: str, *lines: str) -> None:
        (self.files / name).write_text("".join([f"{line}\n" for line in lines]))

    def run(self, address: str, **options: str) -> list[int]:
        """Run the query from its checkpoint until it has processed all files.

        Returns the number of rows written by each batch, as its progress reports it.
        """
        rows = self.spark.readStream.option("maxFilesPerTrigger", 1).text(str(self.files)).toDF("body")
        query = (
            rows.writeStream.format("rocketmq")
            .option("nameServer", address)
            .option("checkpointLocation", str(self.directory / "checkpoint"))
            .options(**options)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [each.sink.numOutputRows for each in query.recentProgress]


def test_stream_stamps_rows_with_their_batch(
    spark: SparkSession, broker_address: str, topic: str, read_all: ReadAll, tmp_path: Path
) -> None:
    files = Files(spark, tmp_path)
    files.add("1", "a", "b", "c")
    assert files.run(broker_address, topic=topic) == [3]
    files.add("2", "d", "e")
    assert files.run(broker_address, topic=topic) == [2]
    stamps = {message.body.decode(): Stamp.parse(message.properties[STAMP]) for message in read_all(topic)}
    assert {body: (stamp.batch_id, stamp.row) for body, stamp in stamps.items()} == {
        "a": (0, "0"), "b": (0, "1"), "c": (0, "2"),
        "d": (1, "0"), "e": (1, "1"),
    }  # fmt: skip
    assert len({stamp.query_id for stamp in stamps.values()}) == 1


def test_replayed_batch_writes_the_same_stamps(
    spark: SparkSession, broker_address: str, topic: str, read_all: ReadAll, tmp_path: Path
) -> None:
    files = Files(spark, tmp_path)
    files.add("1", "a", "b", "c" * 100, "d")
    with pytest.raises(Exception, match=r"row 2 .*maxMessageSize is 99"):
        files.run(broker_address, topic=topic, maxMessageSize="99", maxBatchBytes="99")
    stored = [message.body for message in read_all(topic)]
    assert sorted(stored) == [b"a", b"b", b"d"]
    files.run(broker_address, topic=topic)
    messages = sorted(read_all(topic), key=attrgetter("body"))
    assert [message.body[:1] for message in messages] == [b"a", b"a", b"b", b"b", b"c", b"d", b"d"]
    assert len({message.properties[STAMP] for message in messages}) == 4
