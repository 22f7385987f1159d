"""Start and end positions: parsing, matching and resolving to offsets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pytest

from rocketmq_py.errors import ConfigurationError
from rocketmq_py.message import MessageQueue
from rocketmq_py.position import Position, PositionKind
from rocketmq_py.spark.positions import (
    COMMITTED,
    Positions,
    parse_assignment,
    parse_offsets,
    parse_times,
)
from tests.spark.fake_clients import queue


def fail_committed(_: object) -> dict[MessageQueue, int | None]:
    raise AssertionError("no committed offset is needed")


def fail_offsets_at(topics: set[str], position: Position) -> Mapping[MessageQueue, int]:
    raise AssertionError("no position is a timestamp")


def positions_of(text: str, default: Position = Position.latest) -> Positions:
    by_path = parse_offsets(text)
    assert not isinstance(by_path, Positions)
    return Positions(default, by_path)


def test_one_position_for_all_queues() -> None:
    assert parse_offsets(" Earliest ") == Positions(Position.earliest)
    assert parse_offsets("latest") == Positions(Position.latest)


def test_longest_matching_path_wins_over_the_default() -> None:
    text = {
        "orders": {"broker-a": {"0": 17, "1": -2, "2": "LATEST"}, "broker-b": "earliest"},
        "payments": -1,
    }
    positions = positions_of(json.dumps(text), default=Position(PositionKind.TIME, 5))
    expected = [
        (queue(queue_id=0), Position.offset(17)),
        (queue(queue_id=1), Position.earliest),
        (queue(queue_id=2), Position.latest),
        (queue(queue_id=3), Position(PositionKind.TIME, 5)),
        (queue(broker="broker-b", queue_id=9), Position.earliest),
        (queue(broker="broker-c"), Position(PositionKind.TIME, 5)),
        (queue("payments"), Position.latest),
        (queue("others"), Position(PositionKind.TIME, 5)),
    ]
    assert [(each, positions.of(each)) for each, _ in expected] == expected


def test_positions_resolve_to_offsets() -> None:
    ranges = {queue(queue_id=number): (10, 20) for number in range(5)}
    positions = Positions(
        Position(PositionKind.TIME, 1000),
        {
            ("orders", "broker-a", 0): Position.offset(15),
            ("orders", "broker-a", 1): Position.earliest,
            ("orders", "broker-a", 2): Position.latest,
        },
    )
    calls = []

    def offsets_at(topics: set[str], position: Position) -> Mapping[MessageQueue, int]:
        calls.append((topics, position))
        return {queue(queue_id=3): 13}

    # The last queue is gone when the offsets of the time are asked for.
    assert list(positions.resolve(ranges, offsets_at, fail_committed).values()) == [15, 10, 20, 13, 20]
    assert calls == [({"orders"}, Position(PositionKind.TIME, 1000))]


def test_no_timestamp_lookup_without_timestamps() -> None:
    assert Positions(Position.earliest).resolve({queue(): (3, 9)}, fail_offsets_at, fail_committed) == {
        queue(): 3
    }


def test_each_timestamp_is_looked_up_once_for_all_its_topics() -> None:
    times = parse_times(
        '{"orders": 1700000000007, "payments": 1700000000007, "others": {"broker-a": {"0": 1700000000008}}}'
    )
    assert not isinstance(times, Positions)
    calls = []

    def offsets_at(topics: set[str], position: Position) -> Mapping[MessageQueue, int]:
        calls.append((sorted(topics), position.value))
        return {}

    ranges = {queue(topic): (0, 1) for topic in ("orders", "payments", "others", "more")}
    Positions(Position.latest, times).resolve(ranges, offsets_at, fail_committed)
    assert sorted(calls) == [(["orders", "payments"], 1700000000007), (["others"], 1700000000008)]


def test_committed_offsets_are_asked_once_for_their_queues() -> None:
    queues = [queue(queue_id=number) for number in range(3)]
    asked: list[Sequence[MessageQueue]] = []

    def committed(of: Sequence[MessageQueue]) -> dict[MessageQueue, int | None]:
        asked.append(of)
        return {queues[0]: 7, queues[1]: None}

    positions = Positions(COMMITTED, {("orders", "broker-a", 2): Position.offset(5)})
    ranges = dict.fromkeys(queues, (3, 9))
    assert list(positions.resolve(ranges, fail_offsets_at, committed).values()) == [7, 3, 5]
    assert asked == [queues[:2]]


def test_unmatched_paths() -> None:
    text = '{"orders": {"broker-a": {"0": 1, "7": 1}, "broker-x": "latest"}, "none": "latest"}'
    unmatched = [("none",), ("orders", "broker-a", 7), ("orders", "broker-x")]
    found = positions_of(text).unmatched([queue(), queue("others")])
    assert sorted(found, key=str) == sorted(unmatched, key=str)


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
def test_invalid_offsets_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="earliest, latest, committed or JSON such as"):
        parse_offsets(text)


def test_invalid_topic_names_are_rejected() -> None:
    with pytest.raises(ConfigurationError, match="topic 'a b' may hold only"):
        parse_offsets('{"a b": "earliest"}')


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-1",
        "earliest",
        '{"orders": "earliest"}',
        '{"orders": -1}',
        "1.5",
        "1700000000",
        "9" * 19,
        "2026-01-31T08:00",
    ],
)
def test_invalid_timestamps_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="epoch milliseconds, a time with a time zone such as"):
        parse_times(text)


def test_timestamps_for_all_queues_or_by_path() -> None:
    assert parse_times(" 1700000000000 ") == Positions(Position.time(1700000000000))
    assert parse_times('{"orders": {"broker-a": 1700000000005}}') == {
        ("orders", "broker-a"): Position.time(1700000000005)
    }
    assert parse_times("2023-11-14T23:13:20+01:00") == Positions(Position.time(1700000000000))
    assert parse_times('{"orders": "2023-11-14T22:13:20Z"}') == {("orders",): Position.time(1700000000000)}


def test_assigned_queues_are_sorted_and_unique() -> None:
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
def test_invalid_assignments_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="JSON such as"):
        parse_assignment(text)
