"""What the broker keeps of messages: one log of all of them, and for each queue the list of its own.

Java: ``DefaultMessageStore`` with ``CommitLog`` and ``ConsumeQueue``. Here both hold references to the same
stored messages, each with its encoded bytes, which every later answer copies as they are.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from rocketmq_py.broker.meter import Meter, MinuteRate
from rocketmq_py.errors import InvalidMessageError
from rocketmq_py.protocol.stored_message import encode_message

_T = TypeVar("_T")
_SHRINK_AT = 1024

OVERHEAD = 300
"""Bytes that a message takes beside its stored form: about, and the reason why tiny ones are not free."""


# The garbage collector does not look at it, as it refers to plain values only: walking through all that is
# stored, again and again while more comes, would take longer than to store it.
class StoredMessage(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One message in the store.

    Attributes:
        commit_log_offset: its place in the log, in bytes.
        data: its stored form, as PULL_MESSAGE and VIEW_MESSAGE_BY_ID answer it.
        tags_code: the hash of its tag, 0 without one.
        store_time_ms: when it was stored, epoch milliseconds.
        topic: where it is.
        queue_id: its queue.
        queue_offset: its place in the queue.
    """

    commit_log_offset: int
    data: bytes
    tags_code: int
    store_time_ms: int
    topic: str
    queue_id: int
    queue_offset: int


class Window(Generic[_T]):
    """A list that forgets from its front: places keep their numbers, and all its operations are O(1).

    Attributes:
        start: the number of the first place that is still there.
        end: the number of the next place.
    """

    __slots__ = ("_forgotten", "_items", "end", "start")

    def __init__(self) -> None:
        self._items: list[Any] = []  # of _T, and None where one is forgotten
        self._forgotten = 0
        self.start: int = 0
        self.end: int = 0

    def append(self, item: _T) -> None:
        """Add ``item`` at the place ``end``."""
        self._items.append(item)
        self.end += 1

    def __getitem__(self, place: int) -> _T:
        """Return the item at a place from ``start`` to before ``end``."""
        item: _T = self._items[place - self.start + self._forgotten]
        return item

    def slice(self, start: int, end: int) -> list[_T]:
        """Return the items from ``start``, which must be there, to before ``end``."""
        shift = self._forgotten - self.start
        return self._items[start + shift : end + shift]

    def forget_first(self) -> None:
        """Forget the first item."""
        self._items[self._forgotten] = None
        self._forgotten += 1
        self.start += 1
        if self._forgotten >= _SHRINK_AT and self._forgotten * 2 >= len(self._items):
            del self._items[: self._forgotten]
            self._forgotten = 0

    def forget_last(self) -> _T:
        """Forget the last item, which must be there, and return it: its place will be another one's."""
        self.end -= 1
        item: _T = self._items.pop()
        return item


class ConsumeQueue(Window[StoredMessage]):
    """One queue of a topic: ``start`` is its smallest offset, ``end`` the one of the next message."""

    __slots__ = ("queue_id", "topic", "watchers")

    def __init__(self, topic: str, queue_id: int) -> None:
        super().__init__()
        self.topic: str = topic
        self.queue_id: int = queue_id
        self.watchers: list[Callable[[ConsumeQueue, StoredMessage], None]] = []
        """Called with this queue for each message that is stored here."""

    def __repr__(self) -> str:
        return f"<ConsumeQueue {self.topic}-{self.queue_id} {self.start}..{self.end}>"

    def search(self, time_ms: int, *, upper: bool = False) -> int:
        """Return the offset for a store time. Java: ``getOffsetInQueueByTime``.

        The lower boundary is the first message that was stored at ``time_ms`` or later, or the end; the
        upper one is the last that was stored at ``time_ms`` or before, or 0 if there is none.
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


class MessageStore:
    """The broker's messages, in memory and bounded: beyond the bound the oldest are dropped.

    Args:
        address: the broker's own, packed, as stored messages and message ids have it.
        max_bytes: about how much memory the messages may take, the store's own part in it included.
        max_message_size: bytes of a message's body.
        max_messages: how many there may be; None for as many as there is memory for.
        now_ms: the time for store timestamps, epoch milliseconds.
    """

    def __init__(
        self,
        address: bytes,
        *,
        max_bytes: int,
        max_message_size: int,
        now_ms: Callable[[], int],
        max_messages: int | None = None,
    ) -> None:
        self._address = address
        self.id_prefix: str = address.hex().upper()
        """What the ids of its messages begin with, before the 16 digits of the place in the log."""
        self._max_bytes = max_bytes
        self._max_messages = sys.maxsize if max_messages is None else max_messages
        self.max_message_size = max_message_size
        """Bytes of a message's body."""
        self._now_ms = now_ms
        self._queues: dict[str, dict[int, ConsumeQueue]] = {}
        self.log: Window[StoredMessage] = Window()
        """All messages, in the order in which they were stored."""
        self.end_offset: int = 0
        """The commit-log offset of the next message."""
        self.truncations: int = 0
        """How often its end was lost."""
        self._held_bytes = 0
        self.stored: Meter = Meter(now_ms)
        """How many messages were stored."""
        self.handed_out: Meter = Meter(now_ms)
        """How many messages were given to consumers."""
        self._stored_in: dict[str, MinuteRate] = {}
        self._handed_to: dict[tuple[str, str], MinuteRate] = {}  # topic and group
        self.watchers: list[Callable[[StoredMessage], None]] = []
        """Called for each message that is stored."""

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return a queue, made if nobody asked for it before."""
        queues = self._queues.get(topic)
        if queues is None:
            queues = self._queues[topic] = {}
        queue = queues.get(queue_id)
        if queue is None:
            queue = queues[queue_id] = ConsumeQueue(topic, queue_id)
        return queue

    def find_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return a queue, None if nobody asked for it before."""
        queues = self._queues.get(topic)
        return None if queues is None else queues.get(queue_id)

    def append(
        self,
        queue: ConsumeQueue,
        body: bytes,
        properties: bytes,
        tags_code: int,
        flag: int,
        system_flag: int,
        born_time_ms: int,
        born_address: bytes,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
    ) -> StoredMessage:
        """Store a message at the end of a queue; see ``encode_message`` for its parts.

        Raises:
            InvalidMessageError: the body or the properties are too long, or a number does not fit.
        """
        if len(body) > self.max_message_size:
            raise InvalidMessageError(f"the body has {len(body)} bytes; {self.max_message_size} are allowed")
        now_ms = self._now_ms()
        data = encode_message(
            topic=queue.topic,
            body=body,
            properties=properties,
            queue_id=queue.queue_id,
            queue_offset=queue.end,
            commit_log_offset=self.end_offset,
            flag=flag,
            system_flag=system_flag,
            born_time_ms=born_time_ms,
            born_address=born_address,
            store_time_ms=now_ms,
            store_address=self._address,
            reconsume_times=reconsume_times,
            prepared_transaction_offset=prepared_transaction_offset,
        )
        stored = StoredMessage(
            self.end_offset, data, tags_code, now_ms, queue.topic, queue.queue_id, queue.end
        )
        self.log.append(stored)
        queue.append(stored)
        size = len(data)
        self.end_offset += size
        self.stored.add(1, now_ms)
        rate = self._stored_in.get(queue.topic)
        if rate is None:
            rate = self._stored_in[queue.topic] = MinuteRate(self._now_ms)
        rate.add(1, now_ms)
        self._held_bytes += size + OVERHEAD
        if self._held_bytes > self._max_bytes or self.log.end - self.log.start > self._max_messages:
            self._drop_oldest()
        for watch_queue in queue.watchers:
            watch_queue(queue, stored)
        for watch in self.watchers:
            watch(stored)
        return stored

    def at(self, commit_log_offset: int) -> StoredMessage | None:
        """Return the message that begins at this place in the log, None if none does (any more)."""
        low, high = self.log.start, self.log.end
        while low < high:
            middle = (low + high) // 2
            if self.log[middle].commit_log_offset < commit_log_offset:
                low = middle + 1
            else:
                high = middle
        if low == self.log.end or self.log[low].commit_log_offset != commit_log_offset:
            return None
        return self.log[low]

    def message_id(self, commit_log_offset: int) -> str:
        """Return the broker's id for the message at this place in the log."""
        return f"{self.id_prefix}{commit_log_offset:016X}"

    def messages(self, topic: str) -> list[StoredMessage]:
        """Return the messages of a topic, in the order in which they were stored."""
        queues = self._queues.get(topic, {}).values()
        found = [message for queue in queues for message in queue.slice(queue.start, queue.end)]
        return sorted(found, key=lambda message: message.commit_log_offset)

    def counts(self) -> dict[str, int]:
        """Return how many messages each topic has that has any."""
        counts = {
            topic: sum(queue.end - queue.start for queue in queues.values())
            for topic, queues in self._queues.items()
        }
        return {topic: count for topic, count in counts.items() if count}

    def forget_topic(self, topic: str) -> None:
        """Forget a topic's queues. Its messages stay in the log until they are the oldest."""
        self._queues.pop(topic, None)
        self._stored_in.pop(topic, None)
        for key in [key for key in self._handed_to if key[0] == topic]:
            del self._handed_to[key]

    def hand_out(self, topic: str, group: str, count: int) -> None:
        """Note that so many messages of a topic were given to members of a group."""
        if not count:
            return
        now_ms = self._now_ms()
        self.handed_out.add(count, now_ms)
        rate = self._handed_to.get((topic, group))
        if rate is None:
            rate = self._handed_to[topic, group] = MinuteRate(self._now_ms)
        rate.add(count, now_ms)

    def put_rate(self, topic: str) -> float:
        """Return how many messages of a topic are stored a second. Java: ``tpsTopicPutNums``."""
        rate = self._stored_in.get(topic)
        return 0.0 if rate is None else rate.value()

    def get_rate(self, topic: str, group: str) -> float:
        """Return how many messages of a topic a group gets a second. Java: ``tpsGroupGetNums``."""
        rate = self._handed_to.get((topic, group))
        return 0.0 if rate is None else rate.value()

    def truncate(self, end: int) -> None:
        """Forget the newest messages, those from the place ``end`` in the log on.

        Their places and their queue offsets are given again; their commit-log offsets are not, so that what
        refers to them by these finds nothing.
        """
        while self.log.end > max(end, self.log.start):
            newest = self.log.forget_last()
            queue = self.find_queue(newest.topic, newest.queue_id)
            # Not one of a topic that was deleted, and made anew since.
            if queue is not None and queue.start < queue.end and queue[queue.end - 1] is newest:
                queue.forget_last()
            self._held_bytes -= len(newest.data) + OVERHEAD
        self.truncations += 1

    def _drop_oldest(self) -> None:
        # The newest always stays: what was just stored can be pulled, however small the bound is.
        while (held := self.log.end - self.log.start) > 1 and (
            self._held_bytes > self._max_bytes or held > self._max_messages
        ):
            oldest = self.log[self.log.start]
            self.log.forget_first()
            queue = self.find_queue(oldest.topic, oldest.queue_id)
            if queue is not None and queue.start < queue.end and queue[queue.start] is oldest:
                queue.forget_first()
            self._held_bytes -= len(oldest.data) + OVERHEAD
