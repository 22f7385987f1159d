"""Start and end positions as users write them: for all queues, or by topic, broker and queue id.

A *position* is an offset, the earliest, latest or committed offset, or the first message stored at a time.
:class:`Positions` holds the positions of one option and resolves them to offsets.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeAlias

import attrs

from rocketmq_py.errors import ConfigurationError
from rocketmq_py.message import MessageQueue
from rocketmq_py.names import check_topic
from rocketmq_py.position import MAX_VALUE, Position, PositionKind

QueueRanges: TypeAlias = Mapping[MessageQueue, tuple[int, int]]
"""By queue: the minimum offset on its broker, and the maximum offset, which the next message will get."""


class Committed(enum.Enum):
    """The offset that a consumer group has committed, or the earliest one in a queue without any."""

    COMMITTED = "committed"


COMMITTED = Committed.COMMITTED
QueuePosition: TypeAlias = Position | Committed
"""A position in one queue."""

PositionPath: TypeAlias = tuple[str | int, ...]
"""The queues of a position: (topic), (topic, broker name) or (topic, broker name, queue id)."""

# Spark's Kafka connector writes the first two as numbers in JSON.
_NAMED_POSITIONS: Mapping[object, QueuePosition] = {
    "earliest": Position.earliest,
    "latest": Position.latest,
    "committed": COMMITTED,
    -2: Position.earliest,
    -1: Position.latest,
}


@attrs.frozen
class Positions:
    """A position for every queue, including queues that are created later.

    Args:
        default: the position of queues that ``by_path`` does not match.
        by_path: positions of topics, brokers and queues. The longest matching path wins.
    """

    default: QueuePosition
    by_path: Mapping[PositionPath, QueuePosition] = attrs.field(factory=dict)

    def of(self, queue: MessageQueue) -> QueuePosition:
        """Return the position in a queue."""
        path = (queue.topic, queue.broker_name, queue.queue_id)
        for length in (3, 2, 1):
            position = self.by_path.get(path[:length])
            if position is not None:
                return position
        return self.default

    def all(self) -> Iterator[QueuePosition]:
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
        offsets_at: Callable[[set[str], Position], Mapping[MessageQueue, int]],
        committed: Callable[[Sequence[MessageQueue]], Mapping[MessageQueue, int | None]],
    ) -> dict[MessageQueue, int]:
        """Return each queue's offset. One from the user or a group may lie outside of the queue's range.

        Args:
            ranges: the queues.
            offsets_at: as ``Reader.offsets_at``. Called once per distinct time.
            committed: returns the offsets that the consumer group has committed, None in queues without any.
        """
        positions = {queue: self.of(queue) for queue in ranges}
        topics_by_time: dict[Position, set[str]] = {}
        for queue, position in positions.items():
            if isinstance(position, Position) and position.kind is PositionKind.TIME:
                topics_by_time.setdefault(position, set()).add(queue.topic)
        of_group = [queue for queue, position in positions.items() if position is COMMITTED]
        committed_offsets = committed(of_group) if of_group else {}
        found = {time: offsets_at(topics, time) for time, topics in topics_by_time.items()}
        offsets = {}
        for queue, position in positions.items():
            first, end = ranges[queue]
            match position:
                case Committed():
                    offset = committed_offsets.get(queue)
                    offsets[queue] = first if offset is None else offset
                case Position(kind=PositionKind.EARLIEST):
                    offsets[queue] = first
                case Position(kind=PositionKind.LATEST):
                    offsets[queue] = end
                case Position(kind=PositionKind.TIME):
                    # Since ``ranges`` were read, the queue may have grown beyond its end, or may be gone.
                    offsets[queue] = min(found[position].get(queue, end), end)
                case _:
                    offsets[queue] = position.value
        return offsets


_ALLOWED_OFFSETS = (
    'earliest, latest, committed or JSON such as {"topic": {"broker-a": {"0": 17, "1": "latest"}}}, '
    "where a broker or a topic may have one value for all its queues, and -2 and -1 are earliest and latest"
)
_ALLOWED_TIMES = (
    "epoch milliseconds, a time with a time zone such as 2026-01-31T08:00+01:00, or JSON such as "
    '{"topic": 1700000000000}, with brokers and queues as for offsets'
)


def parse_offsets(value: str) -> Positions | Mapping[PositionPath, QueuePosition]:
    """Parse ``startingOffsets`` or ``endingOffsets``: one position for all queues, or positions by path.

    Raises ValueError with the allowed values.
    """
    name = value.strip().lower()
    if name in ("earliest", "latest", "committed"):
        return Positions(_NAMED_POSITIONS[name])
    return _parse_tree(value, _offset_position, _ALLOWED_OFFSETS)


def parse_times(value: str) -> Positions | Mapping[PositionPath, QueuePosition]:
    """Parse ``startingTimestamp`` or ``endingTimestamp``: one time for all queues, or times by path.

    Raises ValueError with the allowed values.
    """
    text = value.strip()
    position = _timestamp_position(int(text) if text.isascii() and text.isdigit() else text)
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
    value: str, parse_leaf: Callable[[object], QueuePosition | None], allowed: str
) -> Mapping[PositionPath, QueuePosition]:
    """Parse JSON objects nested by topic, broker and queue id into positions by path."""
    positions: dict[PositionPath, QueuePosition] = {}

    def add(node: object, path: PositionPath) -> None:
        position = parse_leaf(node)
        # A plain offset makes sense for a single queue only.
        if position is not None and (len(path) == 3 or not is_offset(position)):
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


def is_offset(position: QueuePosition) -> bool:
    """Return whether a position is an offset."""
    return isinstance(position, Position) and position.kind is PositionKind.OFFSET


def _offset_position(node: object) -> QueuePosition | None:
    if isinstance(node, str):
        return _NAMED_POSITIONS.get(node.strip().lower())
    if type(node) is not int:
        return None
    return _NAMED_POSITIONS.get(node) or (Position.offset(node) if 0 <= node <= MAX_VALUE else None)


def _timestamp_position(node: object) -> QueuePosition | None:
    with suppress(ValueError, ConfigurationError):  # no time, without a time zone, or in seconds
        if isinstance(node, str):
            return Position.time(datetime.fromisoformat(node.strip()))
        if type(node) is int and node <= MAX_VALUE:
            return Position.time(node)
    return None
