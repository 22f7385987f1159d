"""The store of all messages: a commit log in memory, the consume queues of each topic, counts and rates.

Java: ``DefaultMessageStore`` with ``CommitLog`` and ``ConsumeQueue``. Here the log and the queues refer to
the same ``StoredMessage`` objects, whose encoded bytes are copied into every answer.
"""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from rocketmq_py.broker.storage.consume_queue import ConsumeQueue, OffsetList, StoredMessage
from rocketmq_py.errors import InvalidMessageError
from rocketmq_py.names import lite_queue
from rocketmq_py.protocol.stored_message import encode_message

MESSAGE_OVERHEAD = 300
"""Approximate memory of a stored message in addition to its encoded form, in bytes."""


def _ignore(_: str) -> None:
    """Do nothing."""


class MessageStore:
    """The broker's messages, in memory and bounded: beyond the bound the oldest messages are dropped.

    Args:
        address: the broker's packed address, which stored messages and message ids contain.
        max_bytes: approximate memory for messages, including ``MESSAGE_OVERHEAD`` for each.
        max_message_size: maximum bytes of a message body.
        max_messages: maximum number of messages; None for no limit.
        has_lite_queues: whether messages are also stored in the queues of their lite topics.
        now_ms: the clock of store times, epoch milliseconds.

    Attributes:
        id_prefix: the beginning of all message ids. The 16 digits of the commit-log offset follow it.
        max_message_size: maximum bytes of a message body.
        log: all messages, in the order in which they were stored.
        end_offset: the commit-log offset of the next message, in bytes.
        truncations: how many times ``truncate`` was called.
        put_meter: counts stored messages.
        get_meter: counts messages delivered to consumers.
        listeners: called with each message that is stored.
        on_lite_message: called with the name of the queue of a lite topic that gets a message.
        on_lite_queue_deleted: called with the name of a deleted queue of a lite topic.
    """

    def __init__(
        self,
        address: bytes,
        *,
        max_bytes: int,
        max_message_size: int,
        now_ms: Callable[[], int],
        max_messages: int | None = None,
        has_lite_queues: bool = False,
    ) -> None:
        self._address = address
        self.id_prefix: str = address.hex().upper()
        self._max_bytes = max_bytes
        self._max_messages = sys.maxsize if max_messages is None else max_messages
        self.max_message_size = max_message_size
        self._now_ms = now_ms
        self._queues: dict[str, dict[int, ConsumeQueue]] = {}
        self.log: OffsetList[StoredMessage] = OffsetList()
        self.end_offset: int = 0
        self.truncations: int = 0
        self._used_bytes = 0
        self.put_meter: Meter = Meter(now_ms)
        self.get_meter: Meter = Meter(now_ms)
        self._put_rates = defaultdict[str, MinuteRate](lambda: MinuteRate(now_ms))
        self._get_rates = defaultdict[tuple[str, str], MinuteRate](lambda: MinuteRate(now_ms))
        self.listeners: list[Callable[[StoredMessage], None]] = []
        self.has_lite_queues = has_lite_queues
        self._lite_queues: dict[str, ConsumeQueue] = {}
        # The queues of lite topics that the message at a commit-log offset is also in.
        self._lite_queues_of: dict[int, list[ConsumeQueue]] = {}
        self.on_lite_message: Callable[[str], None] = _ignore
        self.on_lite_queue_deleted: Callable[[str], None] = _ignore

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return a queue. Creates it if it does not exist."""
        queues = self._queues.get(topic)
        if queues is None:
            queues = self._queues[topic] = {}
        queue = queues.get(queue_id)
        if queue is None:
            queue = queues[queue_id] = ConsumeQueue(topic, queue_id)
        return queue

    def find_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return a queue, or None if it does not exist."""
        queues = self._queues.get(topic)
        return None if queues is None else queues.get(queue_id)

    def lite_queue(self, name: str) -> ConsumeQueue:
        """Return the queue of a lite topic. Creates it if it does not exist."""
        queue = self._lite_queues.get(name)
        if queue is None:
            queue = self._lite_queues[name] = ConsumeQueue(name, 0)
        return queue

    def find_lite_queue(self, name: str) -> ConsumeQueue | None:
        """Return the queue of a lite topic, or None if it does not exist."""
        return self._lite_queues.get(name)

    def lite_queues(self) -> list[ConsumeQueue]:
        """Return the queues of all lite topics."""
        return list(self._lite_queues.values())

    def delete_lite_queue(self, name: str) -> None:
        """Delete the queue of a lite topic. Its messages stay in the log until they are the oldest."""
        del self._lite_queues[name]
        self.on_lite_queue_deleted(name)

    def add_to_lite_queues(self, stored: StoredMessage, queues: Sequence[ConsumeQueue]) -> None:
        """Add a stored message to the queues of its lite topics."""
        self._lite_queues_of[stored.commit_log_offset] = list(queues)
        for queue in queues:
            queue.append(replace(stored, topic=queue.topic, queue_id=0, queue_offset=queue.end))
            queue.last_store_time_ms = stored.store_time_ms
            self.on_lite_message(queue.topic)

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
        """Store a message at the end of a queue. ``encode_message`` documents the arguments.

        Raises:
            InvalidMessageError: the body or the properties are too long, or a number is out of its range.
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
        self.end_offset += len(data)
        self.put_meter.add(1, now_ms)
        self._put_rates[queue.topic].add(1, now_ms)
        self._used_bytes += len(data) + MESSAGE_OVERHEAD
        if self._used_bytes > self._max_bytes or self.log.end - self.log.start > self._max_messages:
            self._drop_oldest()
        for on_queue_append in queue.listeners:
            on_queue_append(queue, stored)
        for on_append in self.listeners:
            on_append(stored)
        return stored

    def message_at(self, commit_log_offset: int) -> StoredMessage | None:
        """Return the message at a commit-log offset, or None if no stored message begins there."""
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
        """Return the id of the message at a commit-log offset."""
        return f"{self.id_prefix}{commit_log_offset:016X}"

    def messages(self, topic: str) -> list[StoredMessage]:
        """Return the messages of a topic, in the order in which they were stored."""
        queues = self._queues.get(topic, {}).values()
        found = [message for queue in queues for message in queue.slice(queue.start, queue.end)]
        return sorted(found, key=lambda message: message.commit_log_offset)

    def message_counts(self) -> dict[str, int]:
        """Return the number of messages by topic. Topics without messages are left out."""
        counts = {
            topic: sum(queue.end - queue.start for queue in queues.values())
            for topic, queues in self._queues.items()
        }
        return {topic: count for topic, count in counts.items() if count}

    def delete_topic(self, topic: str) -> None:
        """Delete the queues of a topic and its lite topics.

        Its messages stay in the log until they are the oldest.
        """
        self._queues.pop(topic, None)
        for name in [name for name in self._lite_queues if name.startswith(lite_queue(topic, ""))]:
            self.delete_lite_queue(name)
        self._put_rates.pop(topic, None)
        for key in [key for key in self._get_rates if key[0] == topic]:
            del self._get_rates[key]

    def count_delivered(self, topic: str, group: str, count: int) -> None:
        """Count messages of a topic that were delivered to members of a group."""
        if count:
            now_ms = self._now_ms()
            self.get_meter.add(count, now_ms)
            self._get_rates[topic, group].add(count, now_ms)

    def put_rate(self, topic: str) -> float:
        """Return the stored messages of a topic per second. Java: ``tpsTopicPutNums``."""
        rate = self._put_rates.get(topic)
        return 0.0 if rate is None else rate.value()

    def get_rate(self, topic: str, group: str) -> float:
        """Return the messages of a topic delivered to a group per second. Java: ``tpsGroupGetNums``."""
        rate = self._get_rates.get((topic, group))
        return 0.0 if rate is None else rate.value()

    def truncate(self, end: int) -> None:
        """Remove the newest messages, beginning at index ``end`` of the log.

        Later messages reuse their log indexes and queue offsets, but not their commit-log offsets: a
        reference by commit-log offset to a removed message finds nothing.
        """
        while self.log.end > max(end, self.log.start):
            newest = self.log.remove_last()
            queue = self.find_queue(newest.topic, newest.queue_id)
            # The queue may be another one of the same name, if the topic was deleted and created again.
            if queue is not None and queue.start < queue.end and queue[queue.end - 1] is newest:
                queue.remove_last()
            for of_lite_topic in self._lite_queues_of.pop(newest.commit_log_offset, ()):
                of_lite_topic.remove_last()
            self._used_bytes -= len(newest.data) + MESSAGE_OVERHEAD
        self.truncations += 1

    def _drop_oldest(self) -> None:
        # The newest message always stays, so that consumers can pull it however small the bound is.
        while (count := self.log.end - self.log.start) > 1 and (
            self._used_bytes > self._max_bytes or count > self._max_messages
        ):
            oldest = self.log[self.log.start]
            self.log.remove_first()
            queue = self.find_queue(oldest.topic, oldest.queue_id)
            if queue is not None and queue.start < queue.end and queue[queue.start] is oldest:
                queue.remove_first()
            for of_lite_topic in self._lite_queues_of.pop(oldest.commit_log_offset, ()):
                of_lite_topic.remove_first()
            self._used_bytes -= len(oldest.data) + MESSAGE_OVERHEAD


# Counts and rates

_LONGEST_SECONDS = 600
_INTERVAL_MS = 10_000
_INTERVALS = 6


class Meter:
    """Counts messages, and gives the rates of the last 10, 60 and 600 seconds (Java: ``StoreStatsService``).

    Args:
        now_ms: the clock, epoch milliseconds.

    Attributes:
        total: the number of messages counted.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._seconds: deque[list[int]] = deque()  # [second, count]
        self.total: int = 0

    def add(self, count: int, now_ms: int) -> None:
        """Count messages. The caller passes the current time, which it has read already."""
        self.total += count
        second = now_ms // 1000
        seconds = self._seconds
        if seconds and seconds[-1][0] == second:
            seconds[-1][1] += count
            return
        seconds.append([second, count])
        while seconds[0][0] <= second - _LONGEST_SECONDS:
            seconds.popleft()

    def rates(self) -> str:
        """Return the three rates, separated by spaces, as Java formats them."""
        now = self._now_ms() // 1000
        spans = (10, 60, _LONGEST_SECONDS)
        counts = [sum([count for second, count in self._seconds if second > now - span]) for span in spans]
        return " ".join([str(count / span) for count, span in zip(counts, spans, strict=True)])


class MinuteRate:
    """Messages per second over the last minute, updated every 10 seconds (Java: ``StatsItem``).

    Messages of the current 10 seconds are not included. The rate is 0 until the first 10 seconds are over.

    Args:
        now_ms: the clock, epoch milliseconds.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._first = self._interval()
        self._counts: deque[list[int]] = deque()  # [interval, count]

    def add(self, count: int, now_ms: int) -> None:
        """Count messages. The caller passes the current time, which it has read already."""
        interval, counts = now_ms // _INTERVAL_MS, self._counts
        if counts and counts[-1][0] == interval:
            counts[-1][1] += count
            return
        counts.append([interval, count])
        while counts[0][0] < interval - _INTERVALS:
            counts.popleft()

    def value(self) -> float:
        """Return the rate, messages per second."""
        now = self._interval()
        first = max(self._first, now - _INTERVALS)
        if now == first:
            return 0.0
        count = sum([count for interval, count in self._counts if first <= interval < now])
        return count * 1000 / ((now - first) * _INTERVAL_MS)

    def _interval(self) -> int:
        return self._now_ms() // _INTERVAL_MS
