"""The options of the source."""

from __future__ import annotations

import pickle
from collections.abc import Mapping

import pytest

from rocketmq_py.errors import ConfigurationError
from rocketmq_py.spark.options import Use
from rocketmq_py.spark.positions import Edge, Positions, StoredAt
from rocketmq_py.spark.sink_options import SINK_OPTIONS
from rocketmq_py.spark.source_options import SOURCE_OPTIONS, SourceOptions
from tests.spark.clusters import batch_options, queue, stream_options

ADDRESS = {"nameServer": "ns:9876"}


def mistakes(options: Mapping[str, str], use: Use = Use.READ_STREAM) -> str:
    with pytest.raises(ConfigurationError) as raised:
        SourceOptions.read({**ADDRESS, **options}, use, others=SINK_OPTIONS)
    return str(raised.value)


def test_a_stream_begins_at_the_latest_and_a_batch_at_the_earliest() -> None:
    assert stream_options().starting == Positions(Edge.LATEST)
    assert batch_options().starting == Positions(Edge.EARLIEST)
    assert batch_options().ending == Positions(Edge.LATEST)


@pytest.mark.parametrize(
    ("starting", "ending", "mistake"),
    [
        (
            {"startingOffsets": '{"t": {"a": {"0": 7, "1": 7}}}'},
            {"endingOffsets": '{"t": {"a": {"0": 7, "1": 6}}}'},
            "reading of t a 1 would begin at offset 7 and end at 6, which lies before it",
        ),
        (
            {"startingTimestamp": "2001"},
            {"endingTimestamp": "2000"},
            "reading would begin at time 2001 and end at 2000, which lies before it",
        ),
    ],
)
def test_a_range_that_ends_before_it_begins(
    starting: dict[str, str], ending: dict[str, str], mistake: str
) -> None:
    assert mistakes({"topic": "t", **starting, **ending}, Use.READ).count("would begin") == 1
    assert mistake in mistakes({"topic": "t", **starting, **ending}, Use.READ)


def test_every_option_has_its_place() -> None:
    options = stream_options(
        topic=" orders, payments ,orders",
        startingTimestamp='{"orders": 5}',
        maxOffsetsPerTrigger="1000",
        minOffsetsPerTrigger="10",
        maxTriggerDelay="30s",
        minPartitions="8",
        maxRecordsPerPartition="99",
        failOnDataLoss="False",
        consumerGroup="spark",
        tags=" A || B ",
        maxBufferedBytes="1m",
        namespace="tenant",
    )
    assert options == SourceOptions(
        connection=options.connection,
        topics=("orders", "payments"),
        starting=Positions(Edge.LATEST, {("orders",): StoredAt(5)}),
        max_offsets_per_trigger=1000,
        min_offsets_per_trigger=10,
        max_trigger_delay=30.0,
        min_partitions=8,
        max_records_per_partition=99,
        fail_on_data_loss=False,
        consumer_group="spark",
        tags="A || B",
        max_buffered_bytes=1024 * 1024,
    )
    assert options.connection.namespace == "tenant"
    assert pickle.loads(pickle.dumps(options)) == options


def test_every_option_is_told_about() -> None:
    assert SourceOptions.__doc__ is not None
    for option in SOURCE_OPTIONS:
        assert option.name in SourceOptions.__doc__ or option.field in SourceOptions.__doc__, option.name


def test_queues_can_be_assigned() -> None:
    options = SourceOptions.read({**ADDRESS, "assign": '{"orders": {"broker-a": [1, 0]}}'}, Use.READ)
    assert options.assign == (queue(), queue(queue_id=1))


def test_topics_by_pattern_and_a_sql_filter() -> None:
    options = SourceOptions.read({**ADDRESS, "topicPattern": "or.*", "sql": "a > 1"}, Use.READ)
    assert (options.topic_pattern, options.sql, options.tags) == ("or.*", "a > 1", "*")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "what to read is missing: give topic, topicPattern or assign"),
        ({"topic": "a", "topicPattern": "b"}, "topic and topicPattern are given; give exactly one"),
        ({"topic": " , "}, "topic is ' , '; allowed is a topic, or several with commas between"),
        ({"topic": "a b"}, "topic: topic 'a b' may hold only"),
        ({"topicPattern": "("}, "topicPattern is '('; allowed is a regular expression (missing )"),
        ({"topic": "a", "tags": "||"}, "tags: subscription '||'"),
        ({"topic": "a", "tags": "A", "sql": "a > 1"}, "tags and sql are both given"),
        ({"topic": "a", "consumerGroup": "a b"}, "consumerGroup: group 'a b' may hold only"),
        ({"topic": "a", "startingOffsets": "latest", "startingTimestamp": "1"}, "are both given"),
        ({"topic": "a", "startingOffsets": '{"b": "latest"}'}, "startingOffsets names b, which is not among"),
        ({"topicPattern": "a.*", "startingTimestamp": '{"b": 1}'}, "startingTimestamp names b, which is not"),
        ({"assign": '{"a": {"b": [0]}}', "startingOffsets": '{"b": -1}'}, "startingOffsets names b"),
        ({"topic": "a", "endingOffsets": "latest"}, "endingOffsets is an option of a batch source"),
        ({"topic": "a", "producerGroup": "g"}, "producerGroup is an option of a sink"),
        ({"topic": "a", "maxTriggerDelay": "1m"}, "maxTriggerDelay needs minOffsetsPerTrigger"),
        (
            {"topic": "a", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            "minOffsetsPerTrigger is 9, which is above maxOffsetsPerTrigger, 8",
        ),
    ],
)
def test_mistakes(options: dict[str, str], said: str) -> None:
    assert said in mistakes(options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets holds latest: a batch would read nothing there"),
        ({"startingOffsets": '{"a": {"b": {"0": -1}}}'}, "startingOffsets holds latest"),
        ({"endingOffsets": "earliest"}, "endingOffsets holds earliest"),
        ({"maxOffsetsPerTrigger": "1"}, "maxOffsetsPerTrigger is an option of a streaming source"),
        (
            {"maxTriggerDelay": "1m"},
            "maxTriggerDelay is an option of a streaming source; this is a batch source",
        ),
        ({"endingTimestamp": '{"b": 1}'}, "endingTimestamp names b"),
    ],
)
def test_mistakes_in_a_batch(options: dict[str, str], said: str) -> None:
    text = mistakes({"topic": "a", **options}, Use.READ)
    assert said in text
    assert "an option is wrong:" in text


def test_a_wrong_topic_is_not_called_missing_as_well() -> None:
    assert "missing" not in mistakes({"topic": "a b"})


@pytest.mark.parametrize(
    ("option", "value", "named"),
    [
        ("topic", "orders,payments", {"orders": True, "payments": True, "orders2": False}),
        ("topicPattern", "ord.*s", {"orders": True, "payments": False, "orders2": False}),
    ],
)
def test_which_topics_are_named(option: str, value: str, named: Mapping[str, bool]) -> None:
    options = SourceOptions.read({**ADDRESS, option: value}, Use.READ_STREAM)
    assert {topic: options.name(queue(topic)) for topic in named} == named


def test_which_queues_are_named() -> None:
    options = SourceOptions.read({**ADDRESS, "assign": '{"orders": {"broker-a": [1]}}'}, Use.READ_STREAM)
    assert [options.name(queue(queue_id=number)) for number in range(3)] == [False, True, False]
