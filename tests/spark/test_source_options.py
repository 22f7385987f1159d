"""The options of the source."""

from __future__ import annotations

import pickle
from collections.abc import Mapping

import pytest

from rocketmq_py.errors import ConfigurationError
from rocketmq_py.position import Position
from rocketmq_py.spark.arrow_schema import SOURCE_COLUMNS
from rocketmq_py.spark.options import Role
from rocketmq_py.spark.positions import COMMITTED, Positions
from rocketmq_py.spark.sink_options import SINK_OPTIONS
from rocketmq_py.spark.source_options import SOURCE_OPTIONS, SourceOptions
from tests.spark.fake_clients import batch_options, queue, stream_options

ADDRESS = {"nameServer": "ns:9876"}


def error_text(options: Mapping[str, str], role: Role = Role.STREAM_SOURCE) -> str:
    """Return the text of the error that lists all mistakes."""
    with pytest.raises(ConfigurationError) as raised:
        SourceOptions.parse({**ADDRESS, **options}, role, others=SINK_OPTIONS)
    return str(raised.value)


def test_columns() -> None:
    assert batch_options().columns == SOURCE_COLUMNS
    assert batch_options(columns=" KEYS , body,body ").columns == ("body", "keys")
    assert "columns: invalid value 'value'; allowed: columns of the source" in error_text(
        {"columns": "value"}
    )
    assert "columns: invalid value ' '" in error_text({"columns": " "})


def test_committed_offsets_need_a_group_and_are_a_start() -> None:
    options = stream_options(startingOffsets=" Committed", consumerGroup="G")
    assert options.starting == Positions(COMMITTED)
    by_topic = batch_options(startingOffsets='{"orders": "committed"}', consumerGroup="G").starting
    assert by_topic == Positions(Position.earliest, {("orders",): COMMITTED})
    text = error_text({"topic": "T", "startingOffsets": "committed"})
    assert "startingOffsets contains committed, which needs consumerGroup" in text
    text = error_text({"topic": "T", "endingOffsets": "committed"}, Role.BATCH_SOURCE)
    assert "endingOffsets contains committed, which only startingOffsets may contain" in text


def test_default_positions_of_streams_and_batches() -> None:
    assert stream_options().starting == Positions(Position.latest)
    assert batch_options().starting == Positions(Position.earliest)
    assert batch_options().ending == Positions(Position.latest)


@pytest.mark.parametrize(
    ("starting", "ending", "mistake"),
    [
        (
            {"startingOffsets": '{"t": {"a": {"0": 7, "1": 7}}}'},
            {"endingOffsets": '{"t": {"a": {"0": 7, "1": 6}}}'},
            "the range of t a 1 ends at offset 6, before it starts at 7",
        ),
        (
            {"startingTimestamp": "1700000002001"},
            {"endingTimestamp": "1700000002000"},
            "the range ends at time 1700000002000, before it starts at 1700000002001",
        ),
    ],
)
def test_range_that_ends_before_it_starts_is_rejected(
    starting: dict[str, str], ending: dict[str, str], mistake: str
) -> None:
    assert error_text({"topic": "t", **starting, **ending}, Role.BATCH_SOURCE).count("before it starts") == 1
    assert mistake in error_text({"topic": "t", **starting, **ending}, Role.BATCH_SOURCE)


def test_all_options_of_a_stream() -> None:
    options = stream_options(
        topic=" orders, payments ,orders",
        startingTimestamp='{"orders": 1700000000005}',
        maxOffsetsPerTrigger="1000",
        maxBytesPerTrigger="64m",
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
        starting=Positions(Position.latest, {("orders",): Position.time(1700000000005)}),
        max_offsets_per_trigger=1000,
        max_bytes_per_trigger=64 * 1024 * 1024,
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


def test_docstring_describes_every_option() -> None:
    assert SourceOptions.__doc__ is not None
    for option in SOURCE_OPTIONS:
        assert option.name in SourceOptions.__doc__ or option.field in SourceOptions.__doc__, option.name


def test_assigned_queues() -> None:
    options = SourceOptions.parse(
        {**ADDRESS, "assign": '{"orders": {"broker-a": [1, 0]}}'}, Role.BATCH_SOURCE
    )
    assert options.assign == (queue(), queue(queue_id=1))


def test_topic_pattern_and_sql_filter() -> None:
    options = SourceOptions.parse({**ADDRESS, "topicPattern": "or.*", "sql": "a > 1"}, Role.BATCH_SOURCE)
    assert (options.topic_pattern, options.sql, options.tags) == ("or.*", "a > 1", "*")


@pytest.mark.parametrize(
    ("options", "mistake"),
    [
        ({}, "the topics to read are missing; set topic, topicPattern or assign"),
        ({"topic": "a", "topicPattern": "b"}, "topic and topicPattern are set; set exactly one"),
        ({"topic": " , "}, "topic: invalid value ' , '; allowed: one topic, or several separated by commas"),
        ({"topic": "a b"}, "topic: topic 'a b' may hold only"),
        ({"topicPattern": "("}, "topicPattern: invalid value '('; allowed: a regular expression (missing )"),
        ({"topic": "a", "tags": "||"}, "tags: subscription '||'"),
        ({"topic": "a", "tags": "A", "sql": "a > 1"}, "tags and sql are both set"),
        ({"topic": "a", "consumerGroup": "a b"}, "consumerGroup: group 'a b' may hold only"),
        ({"topic": "a", "startingOffsets": "latest", "startingTimestamp": "1700000000000"}, "are both set"),
        ({"topic": "a", "startingOffsets": '{"b": "latest"}'}, "names b, which the options do not select"),
        (
            {"topicPattern": "a.*", "startingTimestamp": '{"b": 1700000000000}'},
            "startingTimestamp names b, which the",
        ),
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
def test_mistakes_of_a_stream(options: dict[str, str], mistake: str) -> None:
    assert mistake in error_text(options)


@pytest.mark.parametrize(
    ("options", "mistake"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets contains latest: a batch would read nothing"),
        ({"startingOffsets": '{"a": {"b": {"0": -1}}}'}, "startingOffsets contains latest"),
        ({"endingOffsets": "earliest"}, "endingOffsets contains earliest"),
        ({"maxOffsetsPerTrigger": "1"}, "maxOffsetsPerTrigger is an option of a streaming source"),
        ({"maxBytesPerTrigger": "1"}, "maxBytesPerTrigger is an option of a streaming source"),
        (
            {"maxTriggerDelay": "1m"},
            "maxTriggerDelay is an option of a streaming source; this is a batch source",
        ),
        ({"endingTimestamp": '{"b": 1700000000000}'}, "endingTimestamp names b"),
    ],
)
def test_mistakes_of_a_batch(options: dict[str, str], mistake: str) -> None:
    text = error_text({"topic": "a", **options}, Role.BATCH_SOURCE)
    assert mistake in text
    assert "1 invalid option:" in text


def test_invalid_topic_is_not_reported_as_missing() -> None:
    assert "missing" not in error_text({"topic": "a b"})


@pytest.mark.parametrize(
    ("option", "value", "selected"),
    [
        ("topic", "orders,payments", {"orders": True, "payments": True, "orders2": False}),
        ("topicPattern", "ord.*s", {"orders": True, "payments": False, "orders2": False}),
    ],
)
def test_selected_topics(option: str, value: str, selected: Mapping[str, bool]) -> None:
    options = SourceOptions.parse({**ADDRESS, option: value}, Role.STREAM_SOURCE)
    assert {topic: options.selects(queue(topic)) for topic in selected} == selected


def test_selected_queues() -> None:
    options = SourceOptions.parse({**ADDRESS, "assign": '{"orders": {"broker-a": [1]}}'}, Role.STREAM_SOURCE)
    assert [options.selects(queue(queue_id=number)) for number in range(3)] == [False, True, False]
