"""Stored messages, the queues that hold them, and reads from a queue (Java: ``ConsumeQueue``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.codes import ResponseCode

FILTERED_MESSAGES = 800
"""Messages that a filter examines for one read (maxFilterMessageSize, divided by 20 bytes per entry)."""
MAX_FILTERED_MESSAGES = 10_000
"""The same for a read that asks for more messages than that."""

_T = TypeVar("_T")
_COMPACT_AT = 1024


# Fast path: gc=False. The fields refer to plain values only, and the garbage collector's passes over all
# stored messages would take longer than storing them.
class StoredMessage(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A message in the store.

    Attributes:
        commit_log_offset: its position in the commit log, in bytes.
        data: its encoded form. Answers to PULL_MESSAGE and VIEW_MESSAGE_BY_ID contain it unchanged.
        tags_code: the hash of its tag; 0 without a tag.
        store_time_ms: the store time, epoch milliseconds.
        topic: the topic.
        queue_id: the queue.
        queue_offset: the offset in the queue.
    """

    commit_log_offset: int
    data: bytes
    tags_code: int
    store_time_ms: int
    topic: str
    queue_id: int
    queue_offset: int


MessageFilter: TypeAlias = Callable[[StoredMessage], bool] | None
"""Returns whether a message passes. None passes all messages."""


class OffsetList(Generic[_T]):
    """A list that keeps the offsets of its items when items are removed from its front.

    Appending, reading and removing take constant time.

    Attributes:
        start: the offset of the first item.
        end: the offset of the next item to be appended.
    """

    __slots__ = ("_items", "_removed", "end", "start")

    def __init__(self) -> None:
        self._items: list[Any] = []  # removed items, as None, and then the items
        self._removed = 0
        self.start: int = 0
        self.end: int = 0

    def append(self, item: _T) -> None:
        """Add an item at offset ``end``."""
        self._items.append(item)
        self.end += 1

    def __getitem__(self, offset: int) -> _T:
        """Return the item at an offset from ``start`` up to, but not including, ``end``."""
        item: _T = self._items[offset - self.start + self._removed]
        return item

    def slice(self, start: int, end: int) -> list[_T]:
        """Return the items from ``start``, which must exist, up to, but not including, ``end``."""
        shift = self._removed - self.start
        return self._items[start + shift : end + shift]

    def remove_first(self) -> None:
        """Remove the first item."""
        self._items[self._removed] = None
        self._removed += 1
        self.start += 1
        if self._removed >= _COMPACT_AT and self._removed * 2 >= len(self._items):
            del self._items[: self._removed]
            self._removed = 0

    def remove_last(self) -> _T:
        """Remove and return the last item, which must exist. The next item reuses its offset."""
        self.end -= 1
        item: _T = self._items.pop()
        return item


class ConsumeQueue(OffsetList[StoredMessage]):
    """The messages of one queue: ``start`` is the minimum offset, ``end`` the maximum offset.

    Attributes:
        topic: the topic.
        queue_id: the queue.
        listeners: called with this queue and the message for each message that is stored in it.
        last_store_time_ms: for lite topics, the store time of the last message, epoch milliseconds, even if
            it was dropped. 0 without a message.
    """

    __slots__ = ("last_store_time_ms", "listeners", "queue_id", "topic")

    def __init__(self, topic: str, queue_id: int) -> None:
        super().__init__()
        self.topic: str = topic
        self.queue_id: int = queue_id
        self.listeners: list[Callable[[ConsumeQueue, StoredMessage], None]] = []
        self.last_store_time_ms: int = 0

    def __repr__(self) -> str:
        return f"<ConsumeQueue {self.topic}-{self.queue_id} {self.start}..{self.end}>"

    def search(self, time_ms: int, *, upper: bool = False) -> int:
        """Return the offset for a store time. Java: ``getOffsetInQueueByTime``.

        The lower boundary is the first message stored at ``time_ms`` or later, or ``end`` if there is none.
        The upper boundary is the last message stored at ``time_ms`` or earlier, or 0 if there is none.
        """
        low, high = self.start, self.end
        while low < high:
            middle = (low + high) // 2
            stored = self[middle].store_time_ms
            if stored < time_ms or (upper and stored == time_ms):
                low = middle + 1
            else:
                high = middle
        if not upper:
            return low
        return 0 if low == self.start else low - 1


class ReadResult(NamedTuple):
    """The result of a read from a queue. Java: ``GetMessageResult``.

    Attributes:
        code: the response code of the answer.
        status: the remark of the answer, a name of Java's ``GetMessageStatus``.
        next_offset: the offset to read from next.
        messages: the messages that were found.
    """

    code: int
    status: str
    next_offset: int
    messages: list[StoredMessage]


def read_messages(
    queue: ConsumeQueue, offset: int, max_count: int, message_filter: MessageFilter, config: BrokerConfig
) -> ReadResult:
    """Read messages from a queue. Java: ``DefaultMessageStore.getMessage``.

    Args:
        queue: the queue.
        offset: the offset of the first message.
        max_count: the maximum number of messages. At least one message is returned if there is any.
        message_filter: selects messages.
        config: limits the count and size of the result.
    """
    start, end = queue.start, queue.end
    if end == 0:
        code = ResponseCode.PULL_NOT_FOUND if offset == 0 else ResponseCode.PULL_OFFSET_MOVED
        return ReadResult(code, "NO_MESSAGE_IN_QUEUE", 0, [])
    if offset < start:
        return ReadResult(ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", start, [])
    if offset == end:
        return ReadResult(ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", offset, [])
    if offset > end:
        return ReadResult(ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", end, [])
    count = max(1, min(max_count, config.max_transfer_count_on_message_in_memory))
    examined = (
        count if message_filter is None else max(FILTERED_MESSAGES, min(max_count, MAX_FILTERED_MESSAGES))
    )
    size = 0
    messages: list[StoredMessage] = []
    for message in queue.slice(offset, min(end, offset + examined)):
        size += len(message.data)
        if messages and (len(messages) == count or size > config.max_transfer_bytes_on_message_in_memory):
            break
        offset += 1
        if message_filter is None or message_filter(message):
            messages.append(message)
        else:
            size -= len(message.data)
    if messages:
        return ReadResult(ResponseCode.SUCCESS, "FOUND", offset, messages)
    return ReadResult(ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE", offset, [])
