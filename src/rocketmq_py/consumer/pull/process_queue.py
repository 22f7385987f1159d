"""The unacknowledged messages of a pulled queue, the offset to commit for it, and its flow control."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from rocketmq_py.consumer.group.counters import TopicCounters
from rocketmq_py.consumer.group.queue_locks import QueueLock
from rocketmq_py.consumer.group.statistics import PullState
from rocketmq_py.consumer.pull.message_buffer import MessageBuffer
from rocketmq_py.consumer.settings import FlowLimits
from rocketmq_py.message import MessageQueue, ReceivedMessage


class ProcessQueue(MessageBuffer):
    """The pulled messages of one queue that are not acknowledged yet. Java: ``ProcessQueue``.

    Args:
        queue: the queue on the broker. The ``queue`` of a retried message is another one.
        next_offset: the offset at which consumption starts.
        lock: the queue's lock, for ordered consumers. None for all others.
        counts: the counters of the topic. None for own counters.

    Attributes:
        next_offset: the offset of the next pull. All messages before it are in this ProcessQueue or
            acknowledged.
        size: the total size of the message bodies, in bytes.
        lock: see above.
        uncommitted: messages whose handler has returned without committing them, in order (only with
            ``auto_commit=False``).
    """

    __slots__ = ("_messages", "_offsets", "lock", "next_offset", "size", "uncommitted")

    def __init__(
        self,
        queue: MessageQueue,
        next_offset: int,
        lock: QueueLock | None = None,
        counts: TopicCounters | None = None,
    ) -> None:
        super().__init__(queue, counts)
        self.lock: QueueLock | None = lock
        self.uncommitted: list[ReceivedMessage] = []
        self.next_offset: int = next_offset
        self.size: int = 0
        self._messages: dict[int, ReceivedMessage] = {}
        # The offsets of _messages, ascending. An offset that was removed from _messages stays here until it
        # is the first or the last one.
        self._offsets: deque[int] = deque()

    def __len__(self) -> int:
        return len(self._messages)

    def __contains__(self, message: ReceivedMessage) -> bool:
        return message.queue_offset in self._messages

    @property
    def span(self) -> int:
        """The distance between the first and the last offset. 0 without messages."""
        offsets, messages = self._offsets, self._messages
        if not messages:
            return 0
        while offsets[-1] not in messages:
            offsets.pop()
        return offsets[-1] - self._first_offset()

    @property
    def safe_offset(self) -> int:
        """The offset to commit: that of the first unacknowledged message, or ``next_offset`` without any."""
        return self._first_offset() if self._messages else self.next_offset

    @property
    def position(self) -> int:
        """The offset of the next waiting message, or of the next pull if none waits."""
        return self.waiting_messages[0].queue_offset if self.waiting_messages else self.next_offset

    def put(self, messages: Sequence[ReceivedMessage], next_offset: int) -> None:
        """Add pulled messages.

        Args:
            messages: in the order of their offsets. Those before :attr:`next_offset` are ignored.
            next_offset: the offset of the next pull, according to the broker.
        """
        expected, size = self.next_offset, self.size
        by_offset, offsets, waiting = self._messages, self._offsets, self.waiting_messages
        if not by_offset:
            offsets.clear()
        for message in messages:
            offset = message.queue_offset
            if offset >= expected:
                expected = offset + 1
                by_offset[offset] = message
                offsets.append(offset)
                waiting.append(message)
                size += len(message.body)
        self.size = size
        self.next_offset = max(expected, next_offset)

    def requeue(self, message: ReceivedMessage) -> None:
        """Put a taken message behind the waiting ones, if it was not removed."""
        offset = message.queue_offset
        if offset in self._messages:
            self._messages[offset] = message
            self.waiting_messages.append(message)

    def requeue_first(self, messages: Sequence[ReceivedMessage]) -> None:
        """Put taken messages before the waiting ones."""
        for message in reversed(messages):
            self._messages[message.queue_offset] = message
            self.waiting_messages.appendleft(message)

    def remove(self, message: ReceivedMessage) -> None:
        """Remove a processed message."""
        removed = self._messages.pop(message.queue_offset, None)
        if removed is not None:
            self.size -= len(removed.body)
            self.counts.handled += 1
            if self.on_removed is not None:
                self.on_removed()

    def remove_sent_back(self, message: ReceivedMessage) -> None:
        """Remove a message that failed and was sent back to the broker."""
        if message in self:
            self.counts.handled -= 1
            self.counts.sent_back += 1
            self.remove(message)

    def remove_all(self, messages: Iterable[ReceivedMessage]) -> None:
        """Remove processed messages."""
        pop, before, size = self._messages.pop, len(self._messages), 0
        for message in messages:
            if pop(message.queue_offset, None) is not None:
                size += len(message.body)
        self.size -= size
        self.counts.handled += before - len(self._messages)
        if self.on_removed is not None:
            self.on_removed()

    def _first_offset(self) -> int:
        offsets, messages = self._offsets, self._messages
        while offsets[0] not in messages:
            offsets.popleft()
        return offsets[0]


def flow_state(process_queue: ProcessQueue, limits: FlowLimits) -> PullState:
    """Return the state of a loop according to its ProcessQueue. The first condition that applies decides.

    The loop waits in each state but PULLING until the ProcessQueue changes. Java polls every 50 ms or 1 s
    instead.
    """
    if process_queue.dropped:
        return PullState.DROPPED
    if process_queue.paused:
        return PullState.PAUSED
    count = len(process_queue)
    if count > limits.count:
        return PullState.FULL_BY_COUNT
    if process_queue.size > limits.size:
        return PullState.FULL_BY_SIZE
    if count and process_queue.span > limits.span:
        return PullState.SPAN_TOO_WIDE
    return PullState.PULLING
