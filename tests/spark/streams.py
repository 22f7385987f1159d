"""A streaming source beside a driver, over queues of plain values."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from rocketmq_py.message import MessageQueue
from rocketmq_py.spark.offsets import StreamOffset
from rocketmq_py.spark.partitions import SpansPartition
from rocketmq_py.spark.stream_source import StreamSource
from tests.spark.clusters import PlainCluster, queue, stream_options

Q0, Q1, Q2 = (queue(queue_id=number) for number in range(3))
OTHER = queue(broker="broker-b")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cluster() -> PlainCluster:
    return PlainCluster({Q0: (0, 10), Q1: (5, 30)})


Start = Callable[..., StreamSource]


@pytest.fixture
def start(cluster: PlainCluster, clock: Clock) -> Start:
    """Start the process that Spark has beside its driver, anew every time."""

    def run(**options: str) -> StreamSource:
        return StreamSource(stream_options(**options), lambda _: cluster, clock=clock, sleep=lambda _: None)

    return run


def at(offset: dict[str, Any]) -> dict[MessageQueue, int]:
    return dict(StreamOffset.of_json(json.loads(json.dumps(offset))).offsets)


def planned(source: StreamSource, begin: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int, int]]:
    found = []
    for partition in source.partitions(begin, end):
        assert isinstance(partition, SpansPartition)
        found += [(span.queue.queue_id, span.start, span.end) for span in partition.spans]
    return found
