"""The base of all buffers for the unacknowledged messages of a queue."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from rocketmq_py.consumer.group.counters import Arrivals, TopicCounters
from rocketmq_py.message import MessageQueue, ReceivedMessage


class MessageBuffer:
    """Messages of a queue from their arrival until they are acknowledged or sent back.

    A message first waits, then it is taken for a handler call, and finally it is removed.

    Args:
        queue: the queue.
        counts: the counters of the topic. None for own counters.

    Attributes:
        queue: see above.
        dropped: whether the queue was revoked. Its messages are not dispatched any more.
        paused: whether the queue is paused. No more messages are fetched.
        waiting_messages: the messages that wait for a handler call, in order.
        is_ready: whether the queue is in the dispatch's list of queues with waiting messages.
        counts: see above.
        allows_prefetch: whether messages may be handed to an executor before a handler is free.
        arrivals: the arrival times of the waiting messages. None without metrics.
        on_removed: called after messages were removed. None if no loop waits for space.
    """

    __slots__ = (
        "arrivals", "counts", "dropped", "is_ready", "on_removed", "paused", "queue", "waiting_messages",
    )  # fmt: skip

    allows_prefetch = True

    def __init__(self, queue: MessageQueue, counts: TopicCounters | None = None) -> None:
        self.queue: MessageQueue = queue
        self.counts: TopicCounters = counts or TopicCounters()
        self.dropped: bool = False
        self.paused: bool = False
        self.is_ready: bool = False
        self.arrivals: Arrivals | None = None
        self.on_removed: Callable[[], None] | None = None
        self.waiting_messages: deque[ReceivedMessage] = deque()

    def __len__(self) -> int:
        """Return the number of unacknowledged messages, waiting and taken."""
        raise NotImplementedError

    def __contains__(self, message: ReceivedMessage) -> bool:
        """Return whether a message is unacknowledged."""
        raise NotImplementedError

    def wait_of_next(self) -> float | None:
        """Return the seconds that the first waiting message has waited. None if unknown."""
        if self.arrivals is None or not self.waiting_messages:
            return None
        return self.arrivals.wait_of(self.waiting_messages[0].queue_offset)

    @property
    def waiting(self) -> int:
        """The number of waiting messages."""
        return len(self.waiting_messages)

    def take_batch(self, count: int) -> list[ReceivedMessage]:
        """Take up to ``count`` waiting messages. Return none if the queue is dropped."""
        if self.dropped:
            return []
        waiting = self.waiting_messages
        return [waiting.popleft() for _ in range(min(count, len(waiting)))]

    def put_back(self, messages: Sequence[ReceivedMessage]) -> None:
        """Put taken messages that no handler has got before the waiting ones."""
        self.waiting_messages.extendleft(reversed(messages))

    def requeue(self, message: ReceivedMessage) -> None:
        """Put a taken message behind the waiting ones, if it was not removed."""
        raise NotImplementedError

    def remove(self, message: ReceivedMessage) -> None:
        """Remove a processed message."""
        raise NotImplementedError

    def remove_all(self, messages: Iterable[ReceivedMessage]) -> None:
        """Remove processed messages."""
        raise NotImplementedError

    def remove_sent_back(self, message: ReceivedMessage) -> None:
        """Remove a message that failed and was sent back to the broker."""
        raise NotImplementedError
