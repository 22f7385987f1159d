"""Fixtures for tests of the streaming source: a fake client, a clock, and helpers to plan batches."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from rocketmq_py.environment import MonotonicClock
from rocketmq_py.message import MessageQueue
from rocketmq_py.spark.batch_plan import RangesPartition
from rocketmq_py.spark.offsets import StreamOffset
from rocketmq_py.spark.source import StreamSource
from tests.spark.fake_clients import FakeOffsetClient, queue, stream_options

Q0, Q1, Q2 = (queue(queue_id=number) for number in range(3))
OTHER_BROKER = queue(broker="broker-b")


class Clock(MonotonicClock):
    """A clock that a test sets. ``delays`` has the seconds of each sleep, which takes no time."""

    def __init__(self) -> None:
        self.time = 0.0
        self.delays: list[float] = []

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.delays.append(seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def client() -> FakeOffsetClient:
    return FakeOffsetClient({Q0: (0, 10), Q1: (5, 30)})


Start = Callable[..., StreamSource]


@pytest.fixture
def start(client: FakeOffsetClient, clock: Clock) -> Start:
    """Return a function that creates a source, as a start or restart of the query does."""

    def run(**options: str) -> StreamSource:
        return StreamSource(
            stream_options(**options),
            lambda _: client,
            clock,
            has_master=lambda _, broker: broker not in client.without_master,
        )

    return run


def offsets_of(offset: dict[str, Any]) -> dict[MessageQueue, int]:
    """Return the offsets in the JSON of a stream offset."""
    return dict(StreamOffset.from_json(json.loads(json.dumps(offset))).offsets)


def planned(source: StreamSource, begin: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int, int]]:
    """Return the queue ids and ranges that a batch reads."""
    ranges = []
    for partition in source.partitions(begin, end):
        assert isinstance(partition, RangesPartition)
        ranges += [(one.queue.queue_id, one.start, one.end) for one in partition.ranges]
    return ranges
