"""What has been popped and is not done with."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, cast

import trio

from rocketmq_py.consumer.group.statistics import TopicCounters
from rocketmq_py.consumer.pop.messages import PoppedMessage
from rocketmq_py.consumer.pull.message_buffer import MessageBuffer
from rocketmq_py.message import MessageQueue, ReceivedMessage

logger: Final = logging.getLogger("rocketmq_py.consumer")


class PoppedQueue(MessageBuffer):
    """Popped messages between the pop and the end of their handling. Java: ``PopProcessQueue``.

    Each is this member's for a time. When that is over it comes again, to any member: then it is not handed
    out here any more and, if it is being handled, what comes of that does not count.

    Args:
        queue: what is popped from; with ALL_QUEUES for its number, all queues of a broker.
        counts: counts what becomes of the messages.
        done: tells the broker that a message was handled.
    """

    __slots__ = ("_done", "_until")

    may_wait = False  # here it can be seen when their time is over

    def __init__(
        self, queue: MessageQueue, counts: TopicCounters, done: Callable[[PoppedMessage], None]
    ) -> None:
        super().__init__(queue, counts)
        self._done = done
        # Until when each is this member's, on trio's clock. Offsets mean nothing here: they are of several
        # queues, and of the retry topic's as well.
        self._until: dict[ReceivedMessage, float] = {}

    def __len__(self) -> int:
        return len(self._until)

    @property
    def size(self) -> int:
        """Bytes of the bodies that are held."""
        return sum(len(message.body) for message in self._until)

    def put(self, messages: Sequence[PoppedMessage], until: float) -> None:
        """Hold what a pop brought, which is this member's until then, on trio's clock."""
        self._until.update(dict.fromkeys(messages, until))
        self.line.extend(messages)

    def take(self) -> ReceivedMessage | None:
        """Return the next message to handle, or None if none is waiting that is this member's still."""
        while self.line:
            message = self.line.popleft()
            if self.holds(message):
                return message
        return None

    def take_several(self, count: int) -> list[ReceivedMessage]:
        """Return the next messages to handle, ``count`` at the most."""
        taken: list[ReceivedMessage] = []
        while len(taken) < count and (message := self.take()) is not None:
            taken.append(message)
        return taken

    def put_back(self, message: ReceivedMessage) -> None:
        """Have a message that was taken and not removed handed out again, behind those that wait."""
        if self.holds(message):
            self.line.append(message)

    def remove(self, message: ReceivedMessage) -> None:
        """Be done with a message: it was handled."""
        if self.holds(message):
            self.counts.done += 1
            self._done(cast("PoppedMessage", message))
            self._forget(message)

    def remove_all(self, messages: Iterable[ReceivedMessage]) -> None:
        """Be done with several messages: they were handled."""
        for message in messages:
            self.remove(message)

    def release(self, message: ReceivedMessage) -> None:
        """Be done with a message that was not handled: the broker sees to it."""
        if message in self._until:
            self.counts.sent_back += 1
            self._forget(message)

    def holds(self, message: ReceivedMessage) -> bool:
        """Tell whether a message is this member's still, and not done with; forget it if its time is over."""
        until = self._until.get(message)
        if until is None:
            return False
        if trio.current_time() < until:
            return True
        logger.warning(
            "message %s of topic %s is not done with in time: it comes again",
            message.message_id,
            message.topic,
        )
        self._forget(message)
        return False

    def _forget(self, message: ReceivedMessage) -> None:
        del self._until[message]
        if self.on_space is not None:
            self.on_space()
