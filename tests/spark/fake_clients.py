"""A fake of the client that planning uses, and options to plan with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rocketmq_py import Position
from rocketmq_py.consumer.read.offset_ranges import OffsetRange, PullResult
from rocketmq_py.errors import RocketMQError, TopicNotFoundError
from rocketmq_py.message import MessageQueue
from rocketmq_py.spark.options import Role
from rocketmq_py.spark.source_options import SourceOptions
from tests.spark.stored_messages import stored


def queue(topic: str = "orders", queue_id: int = 0, broker: str = "broker-a") -> MessageQueue:
    return MessageQueue(topic, broker, queue_id)


def stream_options(**options: str) -> SourceOptions:
    return SourceOptions.parse({"nameServer": "ns:9876", "topic": "orders", **options}, Role.STREAM_SOURCE)


def batch_options(**options: str) -> SourceOptions:
    return SourceOptions.parse({"nameServer": "ns:9876", "topic": "orders", **options}, Role.BATCH_SOURCE)


class FakeOffsetClient:
    """An OffsetClient whose queues and failures the tests set.

    Attributes:
        ranges: the minimum and maximum offset of each queue.
        expired: queues in which no message exists any more.
        without_master: names of brokers whose replica answers.
        times: by timestamp, the offset of each queue.
        failures: errors that the next calls raise.
        commits: the calls of ``commit``.
        committed_offsets: by group, the offsets that it had committed before.
        size_of: returns the size of the message at an offset.
        stored_at: by queue, the store time of its messages, whose stored form is pulled then.
        pulls: the ranges of each call of ``pull``.
        range_calls: the number of calls of ``offsets``.
        closed: the number of calls of ``close``.
    """

    def __init__(self, ranges: Mapping[MessageQueue, tuple[int, int]]) -> None:
        self.ranges = dict(ranges)
        self.expired: set[MessageQueue] = set()
        self.without_master: set[str] = set()
        self.times: dict[int, dict[MessageQueue, int]] = {}
        self.failures: list[RocketMQError] = []
        self.commits: list[tuple[str, dict[MessageQueue, int]]] = []
        self.committed_offsets: dict[str, dict[MessageQueue, int]] = {}
        self.size_of: Callable[[MessageQueue, int], int] = lambda _, __: 100
        self.stored_at: dict[MessageQueue, int] = {}
        self.pulls: list[Sequence[OffsetRange]] = []
        self.range_calls = 0
        self.closed = 0

    def topics(self) -> list[str]:
        return sorted({each.topic for each in self.ranges})

    def offsets(
        self, topics: Iterable[str], *, present: bool = False
    ) -> Mapping[MessageQueue, tuple[int, int]]:
        self.range_calls += 1
        if self.failures:
            raise self.failures.pop(0)
        found: dict[MessageQueue, tuple[int, int]] = {}
        for topic in topics:
            of_topic = {
                each: (end, end) if present and each in self.expired else (first, end)
                for each, (first, end) in self.ranges.items()
                if each.topic == topic
            }
            found |= of_topic
            if not of_topic:
                raise TopicNotFoundError(topic, "ns:9876")
        return found

    def offsets_at(self, topics: Iterable[str], position: Position) -> Mapping[MessageQueue, int]:
        wanted = set(topics)
        return {each: at for each, at in self.times[position.value].items() if each.topic in wanted}

    def committed(self, group: str, queues: Iterable[MessageQueue]) -> Mapping[MessageQueue, int | None]:
        offsets = self.committed_offsets.get(group, {})
        return {each: offsets.get(each) for each in queues}

    def commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        if self.failures:
            raise self.failures.pop(0)
        missing = [each.topic for each in offsets if each not in self.ranges]
        if missing:
            raise TopicNotFoundError(missing[0], "ns:9876")
        self.commits.append((group, dict(offsets)))

    @contextmanager
    def pull(
        self, ranges: Sequence[OffsetRange], *, parallel: int = 1, retry_timeout: float = 0.0
    ) -> Iterator[Iterable[PullResult]]:
        assert parallel == len(ranges)
        assert retry_timeout > 0
        self.pulls.append(ranges)
        yield map(self._result, ranges)

    def _result(self, span: OffsetRange) -> PullResult:
        if span.queue in self.expired:
            return PullResult(span, b"", span.start, span.end, lost=(span.start, span.end))
        if (time := self.stored_at.get(span.queue)) is not None:
            return PullResult(span, stored(span.start, store_time_ms=time), span.start, span.end)
        return PullResult(span, bytes(self._size(span)), span.start, span.end)

    def _size(self, span: OffsetRange) -> int:
        return sum([self.size_of(span.queue, offset) for offset in range(span.start, span.end)])

    def close(self) -> None:
        self.closed += 1
