"""What names one delivery of a popped message, and what of an answer to a pop it is made of.

Java: ``ExtraInfoUtil``; the name of the popped message's property that holds it is ``POP_CK``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Self, TypeAlias, TypeVar

import attrs

from rocketmq_py.errors import ProtocolError
from rocketmq_py.names import RETRY_PREFIX
from rocketmq_py.protocol.decoding import decoder, shown, unreadable

ORDERED_REVIVE_QUEUE = 999
"""Stands for the revive queue of what was popped in order. Java: ``KeyBuilder.POP_ORDER_REVIVE_QUEUE``."""

_SEPARATOR = " "
_K = TypeVar("_K")
_V = TypeVar("_V")


class TopicMark(enum.StrEnum):
    """What stands for a popped message's topic in a receipt handle."""

    NORMAL = "0"
    """The topic that was asked for."""
    RETRY = "1"
    """The group's retry topic for it."""
    RETRY_V2 = "2"
    """The same under the name that it has where enableRetryTopicV2 is set."""

    @classmethod
    def of(cls, topic: str) -> TopicMark:
        """Return the mark of a topic's name."""
        if not topic.startswith(RETRY_PREFIX):
            return cls.NORMAL
        return cls.RETRY_V2 if "+" in topic else cls.RETRY

    def topic(self, topic: str, group: str) -> str:
        """Return the topic that this stands for where ``topic`` was asked for by ``group``."""
        return topic if self is TopicMark.NORMAL else pop_retry_topic(topic, group, v2=self is self.RETRY_V2)


def pop_retry_topic(topic: str, group: str, *, v2: bool = False) -> str:
    """Return the topic of the messages that ``group`` popped from ``topic`` and did not acknowledge.

    Java: ``KeyBuilder.buildPopRetryTopic``.
    """
    return f"{RETRY_PREFIX}{group}{'+' if v2 else '_'}{topic}"


@attrs.frozen(kw_only=True)
class ReceiptHandle:
    """One delivery of a popped message: what acknowledges it, or changes when it comes again.

    Attributes:
        start_offset: the first offset of what was taken together with it.
        pop_time_ms: when it was taken, epoch milliseconds.
        invisible_ms: milliseconds from then on until it is delivered again.
        revive_queue_id: the queue in which the broker keeps that.
        mark: the kind of topic that it is in.
        broker_name: its broker.
        queue_id: its queue.
        offset: its offset there; None only in what old clients write.
    """

    start_offset: int
    pop_time_ms: int
    invisible_ms: int
    revive_queue_id: int
    mark: TopicMark
    broker_name: str
    queue_id: int
    offset: int | None = None

    @property
    def is_ordered(self) -> bool:
        """Whether it was popped in order."""
        return self.revive_queue_id == ORDERED_REVIVE_QUEUE

    def __str__(self) -> str:
        parts = (
            self.start_offset, self.pop_time_ms, self.invisible_ms, self.revive_queue_id, self.mark,
            self.broker_name, self.queue_id, self.offset,
        )  # fmt: skip
        return _SEPARATOR.join([str(part) for part in parts if part is not None])

    @classmethod
    @decoder("a receipt handle")
    def parse(cls, text: str) -> Self:
        """Return the handle that ``text`` holds.

        Raises:
            ProtocolError: it holds none.
        """
        parts = text.split(_SEPARATOR)
        try:
            start, time, invisible, revive_queue, mark, broker_name, queue_id, *more = parts
            return cls(
                start_offset=int(start),
                pop_time_ms=int(time),
                invisible_ms=int(invisible),
                revive_queue_id=int(revive_queue),
                mark=TopicMark(mark),
                broker_name=broker_name,
                queue_id=int(queue_id),
                offset=int(more[0]) if more else None,
            )
        except ValueError as error:
            raise ProtocolError(f"{shown(repr(text))} is no receipt handle: {shown(str(error))}") from error


QueueMark: TypeAlias = tuple[TopicMark, int]
"""A queue in the answer to a pop: the mark of its topic, and its number."""


@attrs.frozen
class PoppedOffsets:
    """Where the messages in the answer to a pop come from: three fields of ``PopMessageAnswer``.

    Attributes:
        starts: for each queue, the first offset of what was taken.
        offsets: for each queue, the offsets of the messages that were taken.
        queue_counts: with a pop in order, how often the messages of a queue were taken before.
        counts: the same for single messages, by queue and offset; these count more.
    """

    starts: Mapping[QueueMark, int] = attrs.field(factory=dict)
    offsets: Mapping[QueueMark, tuple[int, ...]] = attrs.field(factory=dict)
    queue_counts: Mapping[QueueMark, int] = attrs.field(factory=dict)
    counts: Mapping[tuple[QueueMark, int], int] = attrs.field(factory=dict)

    @classmethod
    @decoder("the answer to a pop")
    def parse(
        cls,
        start_offset_info: str | None,
        msg_offset_info: str | None = None,
        order_count_info: str | None = None,
    ) -> Self:
        """Return what the three fields say.

        Raises:
            ProtocolError: one of them cannot be read, or names a queue or message twice.
        """
        queue_counts: dict[QueueMark, int] = {}
        counts: dict[tuple[QueueMark, int], int] = {}
        for (mark, (queue_id, offset)), count in _parse(order_count_info, _read_counted, int).items():
            if offset is None:
                queue_counts[mark, queue_id] = count
            else:
                counts[(mark, queue_id), offset] = count
        starts = _parse(start_offset_info, int, int)
        return cls(starts, _parse(msg_offset_info, int, _read_offsets), queue_counts, counts)

    @property
    def start_offset_info(self) -> str:
        """The field of that name."""
        return ";".join([f"{mark} {queue_id} {start}" for (mark, queue_id), start in self.starts.items()])

    @property
    def msg_offset_info(self) -> str:
        """The field of that name."""
        entries = [
            f"{mark} {queue_id} {','.join(map(str, offsets))}"
            for (mark, queue_id), offsets in self.offsets.items()
        ]
        return ";".join(entries)

    @property
    def order_count_info(self) -> str:
        """The field of that name."""
        entries = []
        for queue in dict.fromkeys([*self.queue_counts, *[queue for queue, _ in self.counts]]):
            mark, queue_id = queue
            for (counted, offset), count in self.counts.items():
                if counted == queue:
                    entries.append(f"{mark} qo{queue_id}%{offset} {count}")
            if queue in self.queue_counts:
                entries.append(f"{mark} {queue_id} {self.queue_counts[queue]}")
        return ";".join(entries)

    def count(self, queue: QueueMark, offset: int) -> int:
        """Return how often the message at ``offset`` was taken before; 0 unless it was popped in order."""
        count = self.counts.get((queue, offset))
        return self.queue_counts.get(queue, 0) if count is None else count


def _parse(
    text: str | None, read_key: Callable[[str], _K], read_value: Callable[[str], _V]
) -> dict[tuple[TopicMark, _K], _V]:
    table: dict[tuple[TopicMark, _K], _V] = {}
    for entry in text.split(";") if text else ():
        try:
            mark, key, value = entry.split(_SEPARATOR)
            place = TopicMark(mark), read_key(key)
            if place in table:
                raise ValueError(f"{key} is there twice")
            table[place] = read_value(value)
        except ValueError as error:
            raise unreadable(f"{shown(repr(text))} in the answer to a pop", error) from error
    return table


def _read_offsets(text: str) -> tuple[int, ...]:
    return tuple([int(offset) for offset in text.split(",")])


def _read_counted(text: str) -> tuple[int, int | None]:
    """Return a queue and perhaps an offset: ``3`` or ``qo3%120``."""
    if not text.startswith("qo"):
        return int(text), None
    queue_id, _, offset = text[2:].partition("%")
    return int(queue_id), int(offset)
