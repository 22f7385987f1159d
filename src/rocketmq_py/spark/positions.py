"""Start and end positions as users write them: for all queues, or by topic, broker and queue id.

A *position* is an offset, the earliest, latest or committed offset, or the first message stored at a time.
:class:`Positions` holds the positions of one option and resolves them to offsets.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import attrs

from rocketmq_py.message import MessageQueue
from rocketmq_py.names import check_topic

QueueRanges: TypeAlias = Mapping[MessageQueue, tuple[int, int]]
"""By queue: the minimum offset on its broker, and the maximum offset, which the next message will get."""


class NamedPosition(enum.Enum):
    """A position with a name. Spark's Kafka connector writes the first two as numbers in JSON.

    COMMITTED is the offset that a consumer group has committed, or the earliest one in a queue without any.
    """

    EARLIEST = -2
    LATEST = -1
    COMMITTED = "committed"


@attrs.frozen
class TimestampPosition:
    """The first message stored at or after a time in epoch milliseconds, or the queue's end without one."""

    time_ms: int


Position: TypeAlias = NamedPosition | TimestampPosition | int
"""A position in one queue. A number is an offset."""

PositionPath: TypeAlias = tuple[str | int, ...]
"""The queues of a position: (topic), (topic, broker name) or (topic, broker name, queue id)."""

_NAMED_POSITIONS: Mapping[object, NamedPosition] = {
    "earliest": NamedPosition.EARLIEST,
    "latest": NamedPosition.LATEST,
    "committed": NamedPosition.COMMITTED,
    **{position.value: position for position in NamedPosition},
}


@attrs.frozen
class Positions:
    """A position for every queue, including queues that are created later.

    Args:
        default: the position of queues that ``by_path`` does not match.
        by_path: positions of topics, brokers and queues. The longest matching path wins.
    """

    default: Position
    by_path: Mapping[PositionPath, Position] = attrs.field(factory=dict)

    def of(self, queue: MessageQueue) -> Position:
        """Return the position in a queue."""
        path = (queue.topic, queue.broker_name, queue.queue_id)
        for length in (3, 2, 1):
            position = self.by_path.get(path[:length])
            if position is not None:
                return position
        return self.default

    def all(self) -> Iterator[Position]:
        """Return the default and all other positions."""
        yield self.default
        yield from self.by_path.values()

    def topics(self) -> set[str]:
        """Return the topics of all paths."""
        return {str(path[0]) for path in self.by_path}

    def unmatched(self, queues: Iterable[MessageQueue]) -> list[PositionPath]:
        """Return the paths that match none of these queues, sorted."""
        existing = {
            path[:length]
            for queue in queues
            for path in [(queue.topic, queue.broker_name, queue.queue_id)]
            for length in (1, 2, 3)
        }
        return sorted([path for path in self.by_path if path not in existing], key=str)

    def resolve(
        self,
        ranges: QueueRanges,
        offsets_at: Callable[[set[str], int], Mapping[MessageQueue, int]],
        committed: Callable[[Sequence[MessageQueue]], Mapping[MessageQueue, int | None]],
    ) -> dict[MessageQueue, int]:
        """Return each queue's offset. One from the user or a group may lie outside of the queue's range.

        Args:
            ranges: the queues.
            offsets_at: returns, for all queues of some topics, the offset of the first message stored at or
                after a time. Called once per distinct time.
            committed: returns the offsets that the consumer group has committed, None in queues without any.
        """
        positions = {queue: self.of(queue) for queue in ranges}
        topics_by_time: dict[int, set[str]] = {}
        for queue, position in positions.items():
            if isinstance(position, TimestampPosition):
                topics_by_time.setdefault(position.time_ms, set()).add(queue.topic)
        of_group = [queue for queue, position in positions.items() if position is NamedPosition.COMMITTED]
        committed_offsets = committed(of_group) if of_group else {}
        found = {time_ms: offsets_at(topics, time_ms) for time_ms, topics in topics_by_time.items()}
        offsets = {}
        for queue, position in positions.items():
            first, end = ranges[queue]
            if position is NamedPosition.EARLIEST:
                offsets[queue] = first
            elif position is NamedPosition.LATEST:
                offsets[queue] = end
            elif position is NamedPosition.COMMITTED:
                offset = committed_offsets.get(queue)
                offsets[queue] = first if offset is None else offset
            elif isinstance(position, TimestampPosition):
                # Since ``ranges`` were read, the queue may have grown beyond its end, or may be gone.
                offsets[queue] = min(found[position.time_ms].get(queue, end), end)
            else:
                assert isinstance(position, int)
                offsets[queue] = position
        return offsets


_MAX_INT64 = 2**63 - 1
_ALLOWED_OFFSETS = (
    'earliest, latest, committed or JSON such as {"topic": {"broker-a": {"0": 17, "1": "latest"}}}, '
    "where a broker or a topic may have one value for all its queues, and -2 and -1 are earliest and latest"
)
_ALLOWED_TIMES = (
    'epoch milliseconds or JSON such as {"topic": 1700000000000}, with brokers and queues as for offsets'
)


def parse_offsets(value: str) -> Positions | Mapping[PositionPath, Position]:
    """Parse ``startingOffsets`` or ``endingOffsets``: one position for all queues, or positions by path.

    Raises ValueError with the allowed values.
    """
    name = value.strip().lower()
    if name in ("earliest", "latest", "committed"):
        return Positions(_NAMED_POSITIONS[name])
    return _parse_tree(value, _offset_position, _ALLOWED_OFFSETS)


def parse_times(value: str) -> Positions | Mapping[PositionPath, Position]:
    """Parse ``startingTimestamp`` or ``endingTimestamp``: one time for all queues, or times by path.

    Raises ValueError with the allowed values.
    """
    digits = value.strip()
    position = _timestamp_position(int(digits)) if digits.isascii() and digits.isdigit() else None
    if position is None:
        return _parse_tree(value, _timestamp_position, _ALLOWED_TIMES)
    return Positions(position)


def parse_assignment(value: str) -> tuple[MessageQueue, ...]:
    """Parse ``assign``, JSON with lists of queue ids by topic and broker. Return the queues, sorted.

    Raises ValueError with the allowed values.
    """
    allowed = 'JSON such as {"topic": {"broker-a": [0, 1]}}, with at least one queue'
    queues = set()
    for topic, brokers in _items(_parse_json(value, allowed), allowed):
        check_topic(topic)
        for broker, ids in _items(brokers, allowed):
            if not isinstance(ids, list) or not all(type(each) is int and each >= 0 for each in ids):
                raise ValueError(allowed)
            queues |= {MessageQueue(topic, broker, queue_id) for queue_id in ids}
    if not queues:
        raise ValueError(allowed)
    return tuple(sorted(queues))


def _parse_tree(
    value: str, parse_leaf: Callable[[object], Position | None], allowed: str
) -> Mapping[PositionPath, Position]:
    """Parse JSON objects nested by topic, broker and queue id into positions by path."""
    positions: dict[PositionPath, Position] = {}

    def add(node: object, path: PositionPath) -> None:
        position = parse_leaf(node)
        # A plain offset makes sense for a single queue only.
        if position is not None and (len(path) == 3 or not isinstance(position, int)):
            positions[path] = position
        elif len(path) == 3:
            raise ValueError(allowed)
        else:
            for name, child in _items(node, allowed):
                add(child, (*path, name if len(path) < 2 else _queue_id(name, allowed)))

    for topic, node in _items(_parse_json(value, allowed), allowed):
        add(node, (check_topic(topic),))
    if not positions:
        raise ValueError(allowed)
    return positions


def _parse_json(value: str, allowed: str) -> object:
    """Parse JSON. Raises ValueError with the allowed values if it is invalid or has a duplicate name."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError(f"{allowed}; without duplicate names")
        return dict(pairs)

    try:
        return json.loads(value, object_pairs_hook=unique)
    except (json.JSONDecodeError, RecursionError):
        raise ValueError(allowed) from None


def _items(node: object, allowed: str) -> Iterable[tuple[str, object]]:
    if not isinstance(node, dict):
        raise ValueError(allowed)
    return node.items()


def _queue_id(name: str, allowed: str) -> int:
    if not (name.isascii() and name.isdigit()):
        raise ValueError(allowed)
    return int(name)


def _offset_position(node: object) -> Position | None:
    if isinstance(node, str):
        return _NAMED_POSITIONS.get(node.strip().lower())
    if type(node) is not int:
        return None
    return _NAMED_POSITIONS.get(node) or (node if 0 <= node <= _MAX_INT64 else None)


def _timestamp_position(node: object) -> Position | None:
    return TimestampPosition(node) if type(node) is int and 0 <= node <= _MAX_INT64 else None
