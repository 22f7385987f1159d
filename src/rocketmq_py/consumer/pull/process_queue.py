"""What has been pulled of one queue and is not done with."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from rocketmq_py.consumer.group.queue_locks import QueueLock
from rocketmq_py.consumer.group.statistics import TopicCounters
from rocketmq_py.consumer.pull.message_buffer import MessageBuffer
from rocketmq_py.message import MessageQueue, ReceivedMessage


class ProcessQueue(MessageBuffer):
    """The messages of one queue between the pull and the end of their handling. Java: ``ProcessQueue``.

    They are held in the order of their offsets from :meth:`put` to their removal. In between each is
    first waiting, then taken. Everything before ``safe_offset`` is done with.

    Args:
        queue: the queue on the broker; for a retried message another one than its ``queue`` property says.
        next_offset: where consumption begins.
        lock: the right to consume it in order; None where there is no order to keep.
        counts: counts what becomes of its messages; None for counts of its own.

    Attributes:
        next_offset: where the next pull begins: everything before it is held here, or done with.
        size: bytes of the bodies that are held.
        lock: see above.
        uncommitted: what was handed out and waits for the handler's Commit, in its order.
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
        # Ascending; what has been removed from _messages leaves it only when it comes to one of the ends.
        self._offsets: deque[int] = deque()

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def span(self) -> int:
        """The distance between the offsets of the first and the last message held; 0 if there is none."""
        offsets, messages = self._offsets, self._messages
        if not messages:
            return 0
        while offsets[-1] not in messages:
            offsets.pop()
        return offsets[-1] - self._first()

    @property
    def safe_offset(self) -> int:
        """The offset to commit: the first message that is not done with, else where the next pull begins."""
        return self._first() if self._messages else self.next_offset

    @property
    def position(self) -> int:
        """The offset of the next message to hand out, or of the next to pull if none waits."""
        return self.line[0].queue_offset if self.line else self.next_offset

    def put(self, messages: Sequence[ReceivedMessage], next_offset: int) -> None:
        """Hold what a pull brought.

        Args:
            messages: in the order of their offsets. Those from before the pull's beginning are passed over.
            next_offset: where the broker says that the next pull begins.
        """
        expected, size = self.next_offset, self.size
        by_offset, offsets, waiting = self._messages, self._offsets, self.line
        if not by_offset:  # as nearly always where handlers are quick: then none has to be looked at
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

    def put_back(self, message: ReceivedMessage) -> None:
        """Have a message that was taken and not removed handed out again, behind those that wait."""
        offset = message.queue_offset
        if offset in self._messages:
            self._messages[offset] = message
            self.line.append(message)

    def put_back_first(self, messages: Sequence[ReceivedMessage]) -> None:
        """Have messages that were taken and not removed handed out again, before those that wait."""
        for message in reversed(messages):
            self._messages[message.queue_offset] = message
            self.line.appendleft(message)

    def remove(self, message: ReceivedMessage) -> None:
        """Be done with a message: it was handled."""
        removed = self._messages.pop(message.queue_offset, None)
        if removed is not None:
            self.size -= len(removed.body)
            self.counts.done += 1
            if self.on_space is not None:
                self.on_space()

    def release(self, message: ReceivedMessage) -> None:
        """Be done with a message that was not handled: others see to it."""
        if message.queue_offset in self._messages:
            self.counts.done -= 1
            self.counts.sent_back += 1
            self.remove(message)

    def remove_all(self, messages: Iterable[ReceivedMessage]) -> None:
        """Be done with several messages: they were handled."""
        pop, before, size = self._messages.pop, len(self._messages), 0
        for message in messages:
            if pop(message.queue_offset, None) is not None:
                size += len(message.body)
        self.size -= size
        self.counts.done += before - len(self._messages)
        if self.on_space is not None:
            self.on_space()

    def holds(self, message: ReceivedMessage) -> bool:
        """Tell whether a message that was taken is not done with."""
        return message.queue_offset in self._messages

    def _first(self) -> int:
        offsets, messages = self._offsets, self._messages
        while offsets[0] not in messages:
            offsets.popleft()
        return offsets[0]
