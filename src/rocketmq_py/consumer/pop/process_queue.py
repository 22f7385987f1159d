"""The popped messages of a push consumer that are not acknowledged yet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, cast

import trio

from rocketmq_py.consumer.group.counters import TopicCounters
from rocketmq_py.consumer.pop.acknowledger import PopAcknowledger
from rocketmq_py.consumer.pop.messages import PoppedMessage
from rocketmq_py.consumer.pull.message_buffer import MessageBuffer
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import MessageQueue, ReceivedMessage

logger: Final = LibraryLogger("rocketmq_py.consumer")


class PopProcessQueue(MessageBuffer):
    """Popped messages until they are acknowledged or sent back. Java: ``PopProcessQueue``.

    A message is invisible to other members for a time. After that the broker delivers it again. Then it is
    not dispatched here any more, and the outcome of a running handler call is ignored.

    Args:
        queue: the popped queue. The queue id ALL_QUEUES stands for all queues of a broker.
        counts: the counters of the topic.
        acknowledger: acknowledges processed messages.
    """

    __slots__ = ("_acknowledger", "_invisible_until")

    # A message may become visible again while it waits in an executor, where nothing checks its time.
    allows_prefetch = False

    def __init__(self, queue: MessageQueue, counts: TopicCounters, acknowledger: PopAcknowledger) -> None:
        super().__init__(queue, counts)
        self._acknowledger = acknowledger
        # On trio's clock. Keyed by message, because offsets are not unique: the messages come from several
        # queues and from the retry topic.
        self._invisible_until: dict[ReceivedMessage, float] = {}

    def __len__(self) -> int:
        return len(self._invisible_until)

    def __contains__(self, message: ReceivedMessage) -> bool:
        """Return whether a message is unacknowledged and invisible. Remove it if it is visible again."""
        until = self._invisible_until.get(message)
        if until is None:
            return False
        if trio.current_time() < until:
            return True
        logger.warning(
            "not processed within the invisible time: message=%s topic=%s: the broker redelivers it",
            message.message_id, message.topic,
        )  # fmt: skip
        self._discard(message)
        return False

    @property
    def size(self) -> int:
        """The total size of the message bodies, in bytes. Any thread may read it."""
        return sum([len(message.body) for message in list(self._invisible_until)])

    def put(self, messages: Sequence[PoppedMessage], until: float) -> None:
        """Add popped messages that are invisible until a time on trio's clock."""
        self._invisible_until.update(dict.fromkeys(messages, until))
        self.waiting_messages.extend(messages)

    def take(self) -> ReceivedMessage | None:
        """Take the next waiting message that is still invisible, or return None."""
        while self.waiting_messages:
            message = self.waiting_messages.popleft()
            if message in self:
                return message
        return None

    def take_batch(self, count: int) -> list[ReceivedMessage]:
        """Take up to ``count`` waiting messages that are still invisible."""
        batch: list[ReceivedMessage] = []
        while len(batch) < count and (message := self.take()) is not None:
            batch.append(message)
        return batch

    def requeue(self, message: ReceivedMessage) -> None:
        """Put a taken message behind the waiting ones, if it was not removed."""
        if message in self:
            self.waiting_messages.append(message)

    def remove(self, message: ReceivedMessage) -> None:
        """Remove and acknowledge a processed message."""
        if message in self:
            self.counts.handled += 1
            self._acknowledger.acknowledge(cast("PoppedMessage", message))
            self._discard(message)

    def remove_all(self, messages: Iterable[ReceivedMessage]) -> None:
        """Remove and acknowledge processed messages."""
        for message in messages:
            self.remove(message)

    def remove_sent_back(self, message: ReceivedMessage) -> None:
        """Remove a message that failed and whose redelivery the broker has scheduled."""
        if message in self._invisible_until:
            self.counts.sent_back += 1
            self._discard(message)

    def take_to_release(self, *, waiting_only: bool) -> list[PoppedMessage]:
        """Remove and return the unacknowledged messages, or only those that wait for a handler."""
        unacknowledged = self.waiting_messages if waiting_only else self._invisible_until
        messages = [message for message in list(unacknowledged) if message in self]
        self.waiting_messages.clear()
        for message in messages:
            self._discard(message)
        return cast("list[PoppedMessage]", messages)

    def _discard(self, message: ReceivedMessage) -> None:
        del self._invisible_until[message]
        if self.on_removed is not None:
            self.on_removed()
