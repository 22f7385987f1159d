"""Where reading begins and ends, as users write it."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from rocketmq_py.errors import ConfigurationError
from rocketmq_py.message import MessageQueue
from rocketmq_py.spark.positions import (
    Edge,
    Place,
    Positions,
    StoredAt,
    parse_assignment,
    parse_offsets,
    parse_times,
)
from tests.spark.clusters import queue


def never(topics: set[str], time_ms: int) -> Mapping[MessageQueue, int]:
    raise AssertionError("no time is named")


def named(text: str, default: Place = Edge.LATEST) -> Positions:
    found = parse_offsets(text)
    assert not isinstance(found, Positions)
    return Positions(default, found)


def test_one_word_for_all() -> None:
    assert parse_offsets(" Earliest ") == Positions(Edge.EARLIEST)
    assert parse_offsets("latest") == Positions(Edge.LATEST)


def test_the_longest_name_that_fits_counts_and_the_rest_is_at_the_default() -> None:
    text = {
        "orders": {"broker-a": {"0": 17, "1": -2, "2": "LATEST"}, "broker-b": "earliest"},
        "payments": -1,
    }
    positions = named(json.dumps(text), default=StoredAt(5))
    places = [
        (queue(queue_id=0), 17),
        (queue(queue_id=1), Edge.EARLIEST),
        (queue(queue_id=2), Edge.LATEST),
        (queue(queue_id=3), StoredAt(5)),
        (queue(broker="broker-b", queue_id=9), Edge.EARLIEST),
        (queue(broker="broker-c"), StoredAt(5)),
        (queue("payments"), Edge.LATEST),
        (queue("others"), StoredAt(5)),
    ]
    assert [(each, positions.of(each)) for each, _ in places] == places


def test_places_become_offsets() -> None:
    ranges = {queue(queue_id=number): (10, 20) for number in range(5)}
    positions = Positions(
        StoredAt(1000),
        {
            ("orders", "broker-a", 0): 15,
            ("orders", "broker-a", 1): Edge.EARLIEST,
            ("orders", "broker-a", 2): Edge.LATEST,
        },
    )
    asked = []

    def offsets_at(topics: set[str], time_ms: int) -> Mapping[MessageQueue, int]:
        asked.append((topics, time_ms))
        return {queue(queue_id=3): 13}

    # Of the last queue nobody knows a time: it came after the question.
    assert list(positions.resolve(ranges, offsets_at).values()) == [15, 10, 20, 13, 20]
    assert asked == [({"orders"}, 1000)]


def test_no_time_is_asked_for_if_none_is_named() -> None:
    assert Positions(Edge.EARLIEST).resolve({queue(): (3, 9)}, never) == {queue(): 3}


def test_each_time_is_asked_for_once_for_all_its_topics() -> None:
    times = parse_times('{"orders": 7, "payments": 7, "others": {"broker-a": {"0": 8}}}')
    assert not isinstance(times, Positions)
    asked = []

    def offsets_at(topics: set[str], time_ms: int) -> Mapping[MessageQueue, int]:
        asked.append((sorted(topics), time_ms))
        return {}

    ranges = {queue(topic): (0, 1) for topic in ("orders", "payments", "others", "more")}
    Positions(Edge.LATEST, times).resolve(ranges, offsets_at)
    assert sorted(asked) == [(["orders", "payments"], 7), (["others"], 8)]


def test_names_that_fit_nothing_are_found() -> None:
    positions = named('{"orders": {"broker-a": {"0": 1, "7": 1}, "broker-x": "latest"}, "none": "latest"}')
    absent = [("none",), ("orders", "broker-a", 7), ("orders", "broker-x")]
    assert sorted(positions.absent([queue(), queue("others")]), key=str) == sorted(absent, key=str)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "middle",
        "17",
        "[]",
        "{}",
        '{"orders": 17}',
        '{"orders": {"broker-a": 17}}',
        '{"orders": {"broker-a": {"x": 17}}}',
        '{"orders": {"broker-a": {"-1": 17}}}',
        '{"orders": {"broker-a": {"0": -3}}}',
        '{"orders": {"broker-a": {"0": 1.5}}}',
        '{"orders": {"broker-a": {"0": true}}}',
        '{"orders": {"broker-a": {"0": null}}}',
        '{"orders": {"broker-a": {"0": {}}}}',
        '{"orders": "earliest", "orders": "latest"}',
        '{"orders": {"broker-a": {"0": 17}}',
        '{"orders": {"broker-a": {"0": 9223372036854775808}}}',
        "[" * 100_000,
    ],
)
def test_what_is_no_position(text: str) -> None:
    with pytest.raises(ValueError, match="earliest, latest or JSON such as"):
        parse_offsets(text)


def test_a_name_that_no_topic_can_have() -> None:
    with pytest.raises(ConfigurationError, match="topic 'a b' may hold only"):
        parse_offsets('{"a b": "earliest"}')


@pytest.mark.parametrize(
    "text", ["", "-1", "earliest", '{"orders": "earliest"}', '{"orders": -1}', "1.5", "9" * 19]
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="epoch milliseconds or JSON"):
        parse_times(text)


def test_times() -> None:
    assert parse_times(" 1700000000000 ") == Positions(StoredAt(1700000000000))
    assert parse_times('{"orders": {"broker-a": 5}}') == {("orders", "broker-a"): StoredAt(5)}


def test_an_assignment_is_sorted_and_each_queue_is_in_it_once() -> None:
    text = '{"payments": {"broker-b": [0]}, "orders": {"broker-b": [1], "broker-a": [3, 0, 3]}}'
    assert parse_assignment(text) == (
        queue(),
        queue(queue_id=3),
        queue(broker="broker-b", queue_id=1),
        queue("payments", broker="broker-b"),
    )


@pytest.mark.parametrize(
    "text", ["orders", "{}", '{"orders": [0]}', '{"orders": {"broker-a": 0}}', '{"orders": {"broker-a": []}}',
             '{"orders": {"broker-a": [-1]}}', '{"orders": {"broker-a": ["0"]}}', '{"orders": {"b": [true]}}']
)  # fmt: skip
def test_what_is_no_assignment(text: str) -> None:
    with pytest.raises(ValueError, match="JSON such as"):
        parse_assignment(text)
