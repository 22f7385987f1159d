"""Handles: texts in which a broker encodes what a client must send back later.

A receipt handle names one delivery of a popped message, and acknowledges it. Java: ``ExtraInfoUtil``; popped
messages carry it in the property ``POP_CK``. A recall handle names a timed message, and recalls it. Java:
``RecallMessageHandle``.
"""

from __future__ import annotations

import base64
import binascii
import enum
from collections.abc import Callable, Mapping
from typing import Self, TypeAlias, TypeVar

import attrs

from rocketmq_py.error_texts import shortened
from rocketmq_py.errors import InvalidMessageError, ProtocolError
from rocketmq_py.names import RETRY_PREFIX
from rocketmq_py.protocol.decode_errors import decoder, unreadable

ORDERED_REVIVE_QUEUE = 999
"""The revive queue id of messages popped in order. Java: ``KeyBuilder.POP_ORDER_REVIVE_QUEUE``."""

_SEPARATOR = " "
_K = TypeVar("_K")
_V = TypeVar("_V")


class TopicKind(enum.StrEnum):
    """The kind of topic that holds a popped message, as a receipt handle encodes it."""

    NORMAL = "0"
    """The requested topic."""
    RETRY = "1"
    """The group's pop retry topic for it."""
    RETRY_V2 = "2"
    """The same, under its name on brokers with enableRetryTopicV2."""

    @classmethod
    def of(cls, topic: str) -> TopicKind:
        """Return the kind of a topic, by its name."""
        if not topic.startswith(RETRY_PREFIX):
            return cls.NORMAL
        return cls.RETRY_V2 if "+" in topic else cls.RETRY

    def topic(self, topic: str, group: str) -> str:
        """Return the name of the topic of this kind that belongs to the requested ``topic`` and ``group``."""
        return topic if self is TopicKind.NORMAL else pop_retry_topic(topic, group, v2=self is self.RETRY_V2)


def pop_retry_topic(topic: str, group: str, *, v2: bool = False) -> str:
    """Return the topic with the messages that ``group`` popped from ``topic`` and did not acknowledge.

    Java: ``KeyBuilder.buildPopRetryTopic``.
    """
    return f"{RETRY_PREFIX}{group}{'+' if v2 else '_'}{topic}"


@attrs.frozen(kw_only=True)
class ReceiptHandle:
    """One delivery of a popped message. It acknowledges the delivery, or changes its invisible time.

    Attributes:
        start_offset: the first offset of the messages popped together.
        pop_time_ms: the time of the pop, epoch milliseconds.
        invisible_ms: milliseconds after the pop until the message is delivered again.
        revive_queue_id: the broker's internal queue that tracks this pop.
        topic_kind: the kind of topic that holds the message.
        broker_name: the message's broker.
        queue_id: the message's queue.
        offset: the message's offset in that queue. None only in handles of old clients.
    """

    start_offset: int
    pop_time_ms: int
    invisible_ms: int
    revive_queue_id: int
    topic_kind: TopicKind
    broker_name: str
    queue_id: int
    offset: int | None = None

    @property
    def is_ordered(self) -> bool:
        """Whether the message was popped in order."""
        return self.revive_queue_id == ORDERED_REVIVE_QUEUE

    def __str__(self) -> str:
        parts = (
            self.start_offset, self.pop_time_ms, self.invisible_ms, self.revive_queue_id, self.topic_kind,
            self.broker_name, self.queue_id, self.offset,
        )  # fmt: skip
        return _SEPARATOR.join([str(part) for part in parts if part is not None])

    @classmethod
    @decoder("a receipt handle")
    def parse(cls, text: str) -> Self:
        """Return the handle in ``text``.

        Raises:
            ProtocolError: ``text`` is not a receipt handle.
        """
        parts = text.split(_SEPARATOR)
        try:
            start, time, invisible, revive_queue, kind, broker_name, queue_id, *more = parts
            return cls(
                start_offset=int(start),
                pop_time_ms=int(time),
                invisible_ms=int(invisible),
                revive_queue_id=int(revive_queue),
                topic_kind=TopicKind(kind),
                broker_name=broker_name,
                queue_id=int(queue_id),
                offset=int(more[0]) if more else None,
            )
        except ValueError as error:
            raise ProtocolError(
                f"{shortened(repr(text))} is not a receipt handle: {shortened(str(error))}"
            ) from error


PopQueueKey: TypeAlias = tuple[TopicKind, int]
"""A queue in the answer to a pop: the kind of its topic, and its id."""


@attrs.frozen
class PoppedOffsets:
    """The offsets of the messages in the answer to a pop: three fields of ``PopMessageAnswer``.

    Attributes:
        starts: the first popped offset of each queue.
        offsets: all popped offsets of each queue.
        queue_counts: for a pop in order, how often the messages of a queue were popped before.
        counts: the same for single messages, by queue and offset. Takes precedence over ``queue_counts``.
    """

    starts: Mapping[PopQueueKey, int] = attrs.field(factory=dict)
    offsets: Mapping[PopQueueKey, tuple[int, ...]] = attrs.field(factory=dict)
    queue_counts: Mapping[PopQueueKey, int] = attrs.field(factory=dict)
    counts: Mapping[tuple[PopQueueKey, int], int] = attrs.field(factory=dict)

    @classmethod
    @decoder("the answer to a pop")
    def parse(
        cls,
        start_offset_info: str | None,
        msg_offset_info: str | None = None,
        order_count_info: str | None = None,
    ) -> Self:
        """Return the offsets in the three fields.

        Raises:
            ProtocolError: a field cannot be read, or lists a queue or message twice.
        """
        queue_counts: dict[PopQueueKey, int] = {}
        counts: dict[tuple[PopQueueKey, int], int] = {}
        for (kind, (queue_id, offset)), count in _parse_table(order_count_info, _read_counted, int).items():
            if offset is None:
                queue_counts[kind, queue_id] = count
            else:
                counts[(kind, queue_id), offset] = count
        starts = _parse_table(start_offset_info, int, int)
        return cls(starts, _parse_table(msg_offset_info, int, _read_offsets), queue_counts, counts)

    @property
    def start_offset_info(self) -> str:
        """The field ``startOffsetInfo``."""
        return ";".join([f"{kind} {queue_id} {start}" for (kind, queue_id), start in self.starts.items()])

    @property
    def msg_offset_info(self) -> str:
        """The field ``msgOffsetInfo``."""
        entries = [
            f"{kind} {queue_id} {','.join(map(str, offsets))}"
            for (kind, queue_id), offsets in self.offsets.items()
        ]
        return ";".join(entries)

    @property
    def order_count_info(self) -> str:
        """The field ``orderCountInfo``."""
        entries = []
        for queue in dict.fromkeys([*self.queue_counts, *[queue for queue, _ in self.counts]]):
            kind, queue_id = queue
            for (counted, offset), count in self.counts.items():
                if counted == queue:
                    entries.append(f"{kind} qo{queue_id}%{offset} {count}")
            if queue in self.queue_counts:
                entries.append(f"{kind} {queue_id} {self.queue_counts[queue]}")
        return ";".join(entries)

    def count(self, queue: PopQueueKey, offset: int) -> int:
        """Return how often the message at ``offset`` was popped before. 0 unless it was popped in order."""
        count = self.counts.get((queue, offset))
        return self.queue_counts.get(queue, 0) if count is None else count


def _parse_table(
    text: str | None, read_key: Callable[[str], _K], read_value: Callable[[str], _V]
) -> dict[tuple[TopicKind, _K], _V]:
    """Return the table in a text such as ``0 3 120;1 0 7``: entries of a topic kind, a key and a value."""
    table: dict[tuple[TopicKind, _K], _V] = {}
    for entry in text.split(";") if text else ():
        try:
            kind, key, value = entry.split(_SEPARATOR)
            typed_key = TopicKind(kind), read_key(key)
            if typed_key in table:
                raise ValueError(f"{key} occurs twice")
            table[typed_key] = read_value(value)
        except ValueError as error:
            raise unreadable(f"{shortened(repr(text))} in the answer to a pop", error) from error
    return table


def _read_offsets(text: str) -> tuple[int, ...]:
    return tuple([int(offset) for offset in text.split(",")])


def _read_counted(text: str) -> tuple[int, int | None]:
    """Return a queue id, and an offset if the text has one: ``3`` or ``qo3%120``."""
    if not text.startswith("qo"):
        return int(text), None
    queue_id, _, offset = text[2:].partition("%")
    return int(queue_id), int(offset)


_RECALL_VERSION = "v1"
_RECALL_PARTS = 5


@attrs.frozen
class RecallHandle:
    """The message to recall. Encoded as ``v1 topic brokerName deliverTimeMs messageId`` in URL-safe Base64.

    Attributes:
        topic: the message's topic.
        broker_name: the broker that holds the message.
        deliver_at_ms: its delivery time, epoch milliseconds, as text.
        message_id: its unique id.
    """

    topic: str
    broker_name: str
    deliver_at_ms: str
    message_id: str

    def encode(self) -> str:
        """Return the handle as a sender gets it."""
        words = (_RECALL_VERSION, self.topic, self.broker_name, self.deliver_at_ms, self.message_id)
        return base64.urlsafe_b64encode(" ".join(words).encode()).decode()

    @classmethod
    @decoder("a recall handle")
    def decode(cls, text: str) -> Self:
        """Return the handle in ``text``. Raises InvalidMessageError if it is not a recall handle."""
        try:
            words = base64.b64decode(text, altchars=b"-_", validate=True).decode().split(" ")
        except (binascii.Error, ValueError):
            words = []
        if len(words) != _RECALL_PARTS or words[0] != _RECALL_VERSION:
            raise InvalidMessageError(
                f"{text[:80]!r} is not a recall handle; pass the recall_handle of a SendResult"
            )
        return cls(*words[1:])
