"""Filters that Spark pushes, compared with the rows that the same filters select without push-down."""

from __future__ import annotations

import datetime
import pickle
import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from rocketmq_py.blocking import Client
from rocketmq_py.message import Message, MessageQueue
from rocketmq_py.position import Position, PositionKind
from rocketmq_py.spark.batch_plan import RangesPartition
from rocketmq_py.spark.pushed_filters import push_all
from rocketmq_py.spark.source import FilteringBatchSource
from tests.spark.fake_clients import FakeOffsetClient, batch_options, queue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row: TypeAlias = Mapping[str, Any]

# --- compared with a plain evaluation, on random rows and filters

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
START_MS = 1_700_000_000_000
QUEUES = [
    queue(topic, number, broker) for topic in ("T", "U") for broker in ("a", "b") for number in range(2)
]


def time_of(milliseconds: float) -> datetime.datetime:
    return EPOCH + datetime.timedelta(milliseconds=milliseconds)


@st.composite
def row_lists(draw: st.DrawFn) -> dict[MessageQueue, list[Row]]:
    """Return the rows of each queue. Store times increase, several minutes at a time."""
    rows: dict[MessageQueue, list[Row]] = {}
    for each in draw(st.sets(st.sampled_from(QUEUES), min_size=1)):
        first = draw(st.integers(0, 3))
        steps = draw(st.lists(st.integers(0, 300_000), max_size=6))
        rows[each] = [
            {
                "topic": each.topic,
                "brokerName": each.broker_name,
                "queueId": each.queue_id,
                "queueOffset": first + number,
                "storeTimestamp": time_of(START_MS + sum(steps[: number + 1])),
                "tags": draw(st.sampled_from([None, "A", "B", "*", " A", "A || B"])),
                "keys": None,
            }
            for number in range(len(steps))
        ]
    return rows


COMPARISONS = [EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]


def filters_of(column: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Filter]:
    comparisons = st.sampled_from(
        [EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]
    )
    lists = st.lists(values | st.none(), min_size=1, max_size=3).map(tuple)
    return (
        st.builds(lambda kind, value: kind((column,), value), comparisons, values)
        | st.builds(lambda value: In((column,), value), lists)
        | st.sampled_from([IsNotNull((column,)), IsNull((column,)), EqualNullSafe((column,), None)])
        | st.builds(lambda value: Not(EqualTo((column,), value)), values)
    )


TIMES = st.floats(-100_000, 2_000_000).map(lambda after: time_of(round(START_MS + after, 3)))
FILTERS = st.lists(
    filters_of("topic", st.sampled_from(["T", "U", "V"]))
    | filters_of("brokerName", st.sampled_from(["a", "b", "c"]))
    | filters_of("queueId", st.integers(-1, 2))
    | filters_of("queueOffset", st.integers(-1, 10))
    | filters_of("storeTimestamp", TIMES)
    | filters_of("tags", st.sampled_from(["A", "B", "C", "*", " A", "A || B", ""]))
    | filters_of("keys", st.sampled_from(["k"]))
    | st.just(StringStartsWith(("tags",), "A")),
    max_size=4,
)


def holds(each: Filter, row: Row) -> bool:
    """Evaluate a filter as Spark does. A comparison with null does not hold."""
    if isinstance(each, Not):
        assert isinstance(each.child, EqualTo)
        value = row[each.child.attribute[0]]
        return value is not None and value != each.child.value
    value = row[each.attribute[0]]  # type: ignore[attr-defined]
    match each:
        case IsNull():
            return value is None
        case IsNotNull():
            return value is not None
        case EqualNullSafe():
            return bool(value == each.value)
    wanted = each.value  # type: ignore[attr-defined]
    if value is None:
        return False
    tests: dict[type[Filter], Callable[[], bool]] = {
        EqualTo: lambda: value == wanted,
        In: lambda: value in wanted,
        GreaterThan: lambda: value > wanted,
        GreaterThanOrEqual: lambda: value >= wanted,
        LessThan: lambda: value < wanted,
        LessThanOrEqual: lambda: value <= wanted,
        StringStartsWith: lambda: value.startswith(wanted),
    }
    return tests[type(each)]()


@given(row_lists(), FILTERS, st.booleans())
def test_pushed_filters_select_the_same_rows(
    rows: dict[MessageQueue, list[Row]], filters: list[Filter], may_filter_tags: bool
) -> None:
    def offsets_at(topics: set[str], position: Position) -> dict[MessageQueue, int]:
        assert position.kind is PositionKind.TIME
        found = {}
        for each, of_queue in rows.items():
            later = [
                row["queueOffset"] for row in of_queue if row["storeTimestamp"] >= time_of(position.value)
            ]
            if each.topic in topics:
                found[each] = min(later, default=ends[each])
        return found

    starts = {each: of_queue[0]["queueOffset"] if of_queue else 0 for each, of_queue in rows.items()}
    ends = {each: starts[each] + len(of_queue) for each, of_queue in rows.items()}
    pushed, left = push_all(filters, may_filter_tags=may_filter_tags)
    narrow_starts, narrow_ends = pushed.narrow(starts, ends, offsets_at)
    read = [
        row
        for each, of_queue in rows.items()
        for row in of_queue
        if narrow_starts.get(each, 0) <= row["queueOffset"] < narrow_ends.get(each, 0)
        and (pushed.tags is None or row["tags"] in pushed.tags)
    ]
    selected = [row for row in read if all(holds(each, row) for each in left)]
    assert selected == [
        row for of_queue in rows.values() for row in of_queue if all(holds(each, row) for each in filters)
    ]
    assert may_filter_tags or pushed.tags is None


# --- the batch source

Q0, Q1 = queue(queue_id=0), queue(queue_id=1)


@pytest.fixture
def client() -> FakeOffsetClient:
    return FakeOffsetClient({Q0: (0, 10), Q1: (5, 30)})


def push(
    client: FakeOffsetClient, *filters: Filter, **options: str
) -> tuple[FilteringBatchSource, list[Filter]]:
    source = FilteringBatchSource(batch_options(**options), lambda _: client)
    return source, list(source.pushFilters(list(filters)))


def ranges(source: FilteringBatchSource) -> list[tuple[int, int, int]]:
    partitions = [each for each in source.partitions() if isinstance(each, RangesPartition)]
    return [(each.queue.queue_id, each.start, each.end) for one in partitions for each in one.ranges]


def test_filters_choose_queues_and_cut_spans(client: FakeOffsetClient) -> None:
    source, left = push(client, EqualTo(("queueId",), 1), GreaterThan(("queueOffset",), 7))
    assert (ranges(source), left) == ([(1, 8, 30)], [])


def test_times_become_offsets_with_a_margin_and_stay_with_spark(client: FakeOffsetClient) -> None:
    client.times = {START_MS - 60_000: {Q0: 2, Q1: 6}, START_MS + 60_001: {Q0: 5, Q1: 30}}
    filters = [
        GreaterThanOrEqual(("storeTimestamp",), time_of(START_MS)),
        LessThanOrEqual(("storeTimestamp",), time_of(START_MS)),
    ]
    source, left = push(client, *filters)
    assert (ranges(source), left) == ([(0, 2, 5), (1, 6, 30)], filters)


def test_tags_become_the_filter_of_the_brokers(client: FakeOffsetClient) -> None:
    tags = In(("tags",), ("B", "A"))
    source, left = push(client, tags)
    assert (left, source._options.tags) == ([], "A || B")
    for options in ({"tags": "A"}, {"sql": "a = 1"}):
        source, left = push(client, tags, **options)
        assert (left, source._options.tags) == ([tags], options.get("tags", "*"))


def test_filters_survive_pickling() -> None:
    source = FilteringBatchSource(batch_options())
    source.pushFilters([EqualTo(("tags",), "A"), EqualTo(("queueId",), 1)])
    copy = pickle.loads(pickle.dumps(source))
    assert (copy._options, copy._pushed) == (source._options, source._pushed)
    assert copy._options.tags == "A"


def test_filters_that_exclude_all_rows_plan_no_task(client: FakeOffsetClient) -> None:
    for filters in (
        [EqualTo(("topic",), "other")],
        [EqualTo(("tags",), "A"), EqualTo(("tags",), "B")],
        [LessThan(("queueOffset",), 0)],
    ):
        source, left = push(client, *filters)
        assert (ranges(source), left) == ([], [])


def test_consumer_group_takes_no_filter(client: FakeOffsetClient) -> None:
    source, left = push(client, EqualTo(("queueId",), 1), consumerGroup="G")
    assert (len(left), len(ranges(source))) == (1, 2)


# --- in Spark

CONDITIONS = [
    "tags = 'A'",
    "tags IN ('A', 'C') AND queueId < 2",
    "queueId IN (1, 3) AND queueOffset BETWEEN 2 AND 7",
    "topic = '{topic}' AND brokerName = 'broker-a' AND queueOffset > 5",
    "topic = 'other'",
    "storeTimestamp >= timestamp'{time}' AND tags <=> 'B'",
    "storeTimestamp < timestamp'{time}' AND array_contains(keys, 'k3')",
    "queueId = 1 OR tags = 'A'",
]
SETTING = "spark.sql.python.filterPushdown.enabled"


def test_queries_give_the_same_rows_with_and_without_push_down(
    spark: SparkSession, broker_address: str, topic: str
) -> None:
    rng = random.Random(3)
    with Client(broker_address) as client, client.producer("g") as producer:
        for number in range(60):
            tags = rng.choice(("A", "B", "C", ""))
            producer.send(Message(topic, b"%d" % number, tags=tags, keys=f"k{number}"))
    source = spark.read.format("rocketmq").options(nameServer=broker_address, topic=topic).load()
    times = sorted([row.storeTimestamp for row in source.select("storeTimestamp").collect()])
    before = str(spark.conf.get(SETTING))
    try:
        for condition in CONDITIONS:
            rows = source.where(condition.format(topic=topic, time=times[30])).select("body")
            found = {}
            for is_on in (True, False):
                spark.conf.set(SETTING, is_on)
                # A new DataFrame, because Spark keeps the plan of an executed one.
                found[is_on] = sorted([bytes(row.body) for row in rows.where("true").collect()])
            assert found[True] == found[False], condition
    finally:
        spark.conf.set(SETTING, before)


def test_pushed_filter_reads_fewer_queues(spark: SparkSession, broker_address: str, topic: str) -> None:
    with Client(broker_address) as client, client.producer("g") as producer:
        for number in range(16):
            producer.send(Message(topic, b"%d" % number))
    before = str(spark.conf.get(SETTING))
    spark.conf.set(SETTING, True)
    try:
        source = spark.read.format("rocketmq").options(nameServer=broker_address, topic=topic).load()
        assert source.where("queueId = 2").rdd.getNumPartitions() == 1
        assert source.where("body = X'31'").rdd.getNumPartitions() == 4
    finally:
        spark.conf.set(SETTING, before)
