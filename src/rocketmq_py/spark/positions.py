"""Where reading begins or ends, as users write it: for all queues, a topic, a broker or one queue."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import attrs

from rocketmq_py.message import MessageQueue
from rocketmq_py.names import check_topic

Ranges = Mapping[MessageQueue, tuple[int, int]]
"""Of each queue, the first offset that its broker has, and the one that its next message will get."""


class Edge(enum.Enum):
    """An end of a queue; the value is what Kafka's connector calls it inside of JSON."""

    EARLIEST = -2
    LATEST = -1


@attrs.frozen
class StoredAt:
    """The first message stored at a time or later, epoch milliseconds; where there is none, the end."""

    time_ms: int


Place = Edge | StoredAt | int
"""Where in a queue; a number is an offset."""

EDGES: Mapping[object, Edge] = {
    "earliest": Edge.EARLIEST,
    "latest": Edge.LATEST,
    **{edge.value: edge for edge in Edge},
}


@attrs.frozen
class Positions:
    """A place for every queue there is or may come.

    Args:
        default: for what the rest says nothing of.
        places: by topic; by topic and broker; by topic, broker and queue id. The longest that fits counts.
    """

    default: Place
    places: Mapping[tuple[str | int, ...], Place] = attrs.field(factory=dict)

    def of(self, queue: MessageQueue) -> Place:
        """Return the place in a queue."""
        names = (queue.topic, queue.broker_name, queue.queue_id)
        for length in (3, 2, 1):
            place = self.places.get(names[:length])
            if place is not None:
                return place
        return self.default

    def all(self) -> Iterator[Place]:
        """Return all places that are named, and the default."""
        yield self.default
        yield from self.places.values()

    def topics(self) -> set[str]:
        """Return the topics that are named."""
        return {str(names[0]) for names in self.places}

    def absent(self, queues: Iterable[MessageQueue]) -> list[tuple[str | int, ...]]:
        """Return what is named and fits none of these queues."""
        present = {
            names[:length]
            for queue in queues
            for names in [(queue.topic, queue.broker_name, queue.queue_id)]
            for length in (1, 2, 3)
        }
        return sorted([names for names in self.places if names not in present], key=str)

    def resolve(
        self, ranges: Ranges, offsets_at: Callable[[set[str], int], Mapping[MessageQueue, int]]
    ) -> dict[MessageQueue, int]:
        """Return the offset of each queue, as written: it may be outside of the queue's range.

        Args:
            ranges: the queues.
            offsets_at: tells the offset of the first message stored at a time or later, of all queues of
                some topics. Asked once for each time that is named, if at all.
        """
        places = {queue: self.of(queue) for queue in ranges}
        topics_of_time: dict[int, set[str]] = {}
        for queue, place in places.items():
            if isinstance(place, StoredAt):
                topics_of_time.setdefault(place.time_ms, set()).add(queue.topic)
        found = {time_ms: offsets_at(topics, time_ms) for time_ms, topics in topics_of_time.items()}
        offsets = {}
        for queue, place in places.items():
            first, end = ranges[queue]
            if place is Edge.EARLIEST:
                offsets[queue] = first
            elif place is Edge.LATEST:
                offsets[queue] = end
            elif isinstance(place, StoredAt):
                # A queue that came in between has nothing yet.
                offsets[queue] = found[place.time_ms].get(queue, end)
            else:
                assert isinstance(place, int)
                offsets[queue] = place
        return offsets


_MOST = 2**63 - 1
"""Brokers count offsets and times in 64 bits."""
_OFFSETS = (
    'earliest, latest or JSON such as {"topic": {"broker-a": {"0": 17, "1": "latest"}}}, '
    "where a broker or a topic may have one value for all its queues, and -2 and -1 are earliest and latest"
)
_TIMES = 'epoch milliseconds or JSON such as {"topic": 1700000000000}, with brokers and queues as for offsets'


def parse_offsets(value: str) -> Positions | Mapping[tuple[str | int, ...], Place]:
    """Take ``startingOffsets`` or ``endingOffsets``: one place for all, or places by name.

    Raises ValueError with what is allowed.
    """
    word = value.strip().lower()
    if word in ("earliest", "latest"):
        return Positions(EDGES[word])
    return _parse_tree(value, _offset, _OFFSETS)


def parse_times(value: str) -> Positions | Mapping[tuple[str | int, ...], Place]:
    """Take ``startingTimestamp`` or ``endingTimestamp``: one time for all, or times by name.

    Raises ValueError with what is allowed.
    """
    time = _time(int(value)) if value.strip().isascii() and value.strip().isdigit() else None
    return _parse_tree(value, _time, _TIMES) if time is None else Positions(time)


def parse_assignment(value: str) -> tuple[MessageQueue, ...]:
    """Take ``assign``: JSON of topics, their brokers, and lists of queue ids. Return the queues, sorted.

    Raises ValueError with what is allowed.
    """
    allowed = 'JSON such as {"topic": {"broker-a": [0, 1]}}, with a queue at least'
    tree = parse_json(value, allowed)
    queues = set()
    for topic, brokers in _items(tree, allowed):
        check_topic(topic)
        for broker, ids in _items(brokers, allowed):
            if not isinstance(ids, list) or not all(type(each) is int and each >= 0 for each in ids):
                raise ValueError(allowed)
            queues |= {MessageQueue(topic, broker, queue_id) for queue_id in ids}
    if not queues:
        raise ValueError(allowed)
    return tuple(sorted(queues))


def _parse_tree(
    value: str, leaf: Callable[[object], Place | None], allowed: str
) -> Mapping[tuple[str | int, ...], Place]:
    places: dict[tuple[str | int, ...], Place] = {}

    def walk(node: object, names: tuple[str | int, ...]) -> None:
        place = leaf(node)
        if place is not None and (len(names) == 3 or not isinstance(place, int)):
            places[names] = place
        elif len(names) == 3:
            raise ValueError(allowed)
        else:
            for name, child in _items(node, allowed):
                walk(child, (*names, name if len(names) < 2 else _queue_id(name, allowed)))

    for topic, node in _items(parse_json(value, allowed), allowed):
        walk(node, (check_topic(topic),))
    if not places:
        raise ValueError(allowed)
    return places


def parse_json(value: str, allowed: str) -> object:
    """Return what JSON says. Raises ValueError with what is allowed if it is none, or names a thing twice."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError(f"{allowed}; and nothing is named twice")
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


def _offset(node: object) -> Place | None:
    if isinstance(node, str):
        return EDGES.get(node.strip().lower())
    if type(node) is not int:
        return None
    return EDGES.get(node) or (node if 0 <= node <= _MOST else None)


def _time(node: object) -> Place | None:
    return StoredAt(node) if type(node) is int and 0 <= node <= _MOST else None
