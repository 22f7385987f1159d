"""What of one queue is here and is not done with: what all who hold messages have in common."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from rocketmq_py.consumer.group.statistics import TopicCounters
from rocketmq_py.message import MessageQueue, ReceivedMessage


class MessageBuffer:
    """Messages between their arrival and the end of their handling: each is first waiting, then taken.

    Args:
        queue: where they come from.
        counts: counts what becomes of them; None for counts of its own.

    Attributes:
        queue: see above.
        dropped: nothing is handed out any more: the queue is another member's now.
        paused: nothing more shall be fetched for the time being.
        line: the messages that wait to be taken, in their order.
        offered: it stands in the line of those that have something waiting, or is being served from there.
        counts: see above.
        may_wait: whether its messages may be handed over some time before they are handled.
        on_space: called after each removal, for who waits for space; else None.
    """

    __slots__ = ("counts", "dropped", "line", "offered", "on_space", "paused", "queue")

    may_wait = True

    def __init__(self, queue: MessageQueue, counts: TopicCounters | None = None) -> None:
        self.queue: MessageQueue = queue
        self.counts: TopicCounters = counts or TopicCounters()
        self.dropped: bool = False
        self.paused: bool = False
        self.offered: bool = False
        self.on_space: Callable[[], None] | None = None
        self.line: deque[ReceivedMessage] = deque()

    def __len__(self) -> int:
        """Return how many messages are held."""
        raise NotImplementedError

    @property
    def waiting(self) -> int:
        """How many messages wait to be taken."""
        return len(self.line)

    def take(self) -> ReceivedMessage | None:
        """Return the next message to handle, or None if none is waiting or the queue is dropped."""
        if self.line and not self.dropped:
            return self.line.popleft()
        return None

    def take_several(self, count: int) -> list[ReceivedMessage]:
        """Return the next messages to handle, ``count`` at the most; none if the queue is dropped."""
        line = self.line
        if self.dropped:
            return []
        if len(line) <= count:  # as with what one pull brought
            messages = list(line)
            line.clear()
            return messages
        return [line.popleft() for _ in range(count)]

    def put_back(self, message: ReceivedMessage) -> None:
        """Have a message that was taken and not removed handed out again, behind those that wait."""
        raise NotImplementedError

    def remove(self, message: ReceivedMessage) -> None:
        """Be done with a message: it was handled."""
        raise NotImplementedError

    def remove_all(self, messages: Iterable[ReceivedMessage]) -> None:
        """Be done with several messages: they were handled."""
        raise NotImplementedError

    def release(self, message: ReceivedMessage) -> None:
        """Be done with a message that was not handled: others see to it."""
        raise NotImplementedError

    def holds(self, message: ReceivedMessage) -> bool:
        """Tell whether a message that was taken is not done with."""
        raise NotImplementedError
