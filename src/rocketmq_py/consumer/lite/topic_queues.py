"""The popped messages of lite topics, while a push consumer handles them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final, cast

import trio

from rocketmq_py.consumer.group.counters import TopicCounters
from rocketmq_py.consumer.group.queue_locks import QueueLock
from rocketmq_py.consumer.pop.acknowledger import PopAcknowledger
from rocketmq_py.consumer.pop.messages import PoppedMessage
from rocketmq_py.consumer.pull.process_queue import ProcessQueue
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import MessageQueue, ReceivedMessage

logger: Final = LibraryLogger("rocketmq_py.consumer")


class LiteTopicQueue(ProcessQueue):
    """The messages of one lite topic that one pop has returned, until they are acknowledged.

    Args:
        queue: the queue on the broker.
        messages: the messages, in order.
        lock: prevents two handler calls for the lite topic at once.
        counts: the counters of the parent topic.
        acknowledger: acknowledges processed messages.

    Attributes:
        lite_topic: the lite topic.
        visible_at: when the broker redelivers the messages unless their invisible time is renewed, on trio's
            clock.
        is_renewing: whether a renewal is in progress.
        change_lock: held during a request that changes the invisible time. A renewal that the broker gets
            after a request to suspend the lite topic would undo it.
    """

    __slots__ = ("_acknowledger", "change_lock", "is_renewing", "lite_topic", "visible_at")

    def __init__(
        self,
        queue: MessageQueue,
        messages: Sequence[PoppedMessage],
        lock: QueueLock,
        counts: TopicCounters,
        *,
        visible_at: float,
        acknowledger: PopAcknowledger,
    ) -> None:
        super().__init__(queue, messages[0].queue_offset, lock, counts)
        self.lite_topic: str = messages[0].lite_topic
        self.visible_at: float = visible_at
        self.is_renewing: bool = False
        self.change_lock: trio.Lock = trio.Lock()
        self._acknowledger = acknowledger
        self.put(messages, messages[-1].queue_offset + 1)

    @property
    def popped(self) -> list[PoppedMessage]:
        """The unacknowledged messages."""
        return [cast("PoppedMessage", message) for message in self._messages.values()]

    def take_batch(self, count: int) -> list[ReceivedMessage]:
        """Take up to ``count`` waiting messages. If their invisible time is over, drop them instead.

        The broker redelivers them then, to any member, which must not handle them at the same time.
        """
        if self.waiting_messages and trio.current_time() >= self.visible_at:
            logger.warning(
                "not processed within the invisible time: message=%s topic=%s: the broker redelivers it",
                self.waiting_messages[0].message_id, self.queue.topic,
            )  # fmt: skip
            self.drop()
        return super().take_batch(count)

    def remove(self, message: ReceivedMessage) -> None:
        """Remove and acknowledge a processed message."""
        if message in self:
            self._acknowledger.acknowledge(cast("PoppedMessage", message))
            super().remove(message)

    def remove_all(self, messages: Iterable[ReceivedMessage]) -> None:
        """Remove and acknowledge processed messages."""
        for message in messages:
            self.remove(message)

    def remove_sent_back(self, message: ReceivedMessage) -> None:
        """Remove a message that became a dead letter, which has acknowledged it."""
        if message in self:
            self.counts.sent_back += 1
            self.counts.handled -= 1
            super().remove(message)

    def drop(self) -> None:
        """Forget the messages, which the broker redelivers."""
        self.dropped = True
        self.waiting_messages.clear()
        self._messages.clear()
        self.size = 0
        if self.on_removed is not None:
            self.on_removed()


class LiteTopicQueues:
    """The popped messages of a broker, in one LiteTopicQueue for each lite topic.

    A pop loop fills it. Brokers deliver no more messages of a lite topic until the delivered ones are
    acknowledged or visible again. So if a pop returns more of them, the earlier ones are out of date, and are
    replaced.

    Args:
        queue: the parent topic on a broker, with ALL_QUEUES as its queue id.
        counts: the counters of the parent topic.
        acknowledger: acknowledges processed messages.

    Attributes:
        queue, counts: see above.
        paused: whether the pop loop is paused.
        on_removed: called after messages were removed. None if no loop waits for space.
    """

    def __init__(self, queue: MessageQueue, counts: TopicCounters, acknowledger: PopAcknowledger) -> None:
        self.queue = queue
        self.counts = counts
        self.paused: bool = False
        self.on_removed: Callable[[], None] | None = None
        self._acknowledger = acknowledger
        self._queues: dict[str, LiteTopicQueue] = {}
        self._new: list[LiteTopicQueue] = []

    def __len__(self) -> int:
        """Return the number of unacknowledged messages."""
        return sum(map(len, self._queues.values()))

    def put(self, messages: Sequence[PoppedMessage], until: float) -> None:
        """Add popped messages that are invisible until a time on trio's clock."""
        by_lite_topic: dict[str, list[PoppedMessage]] = {}
        for message in messages:
            by_lite_topic.setdefault(message.lite_topic, []).append(message)
        for lite_topic, of_topic in by_lite_topic.items():
            self._new.append(self._replace(lite_topic, of_topic, until))

    def take_new(self) -> list[LiteTopicQueue]:
        """Return the queues that were added since the last call, and can be dispatched."""
        new, self._new = self._new, []
        return new

    def due_before(self, time: float) -> list[LiteTopicQueue]:
        """Return the queues to renew: their messages become visible before a time on trio's clock."""
        return [queue for queue in self._queues.values() if queue.visible_at < time and not queue.is_renewing]

    def without_handler(self) -> list[LiteTopicQueue]:
        """Return the queues with messages whose handler does not run."""
        return [queue for queue in self._queues.values() if queue.lock is not None and not queue.lock.busy]

    def _replace(self, lite_topic: str, messages: list[PoppedMessage], until: float) -> LiteTopicQueue:
        replaced = self._queues.pop(lite_topic, None)
        parent = self.queue
        queue = MessageQueue(parent.topic, parent.broker_name, 0)
        lock = QueueLock(queue, held_until=math.inf) if replaced is None else replaced.lock
        assert lock is not None
        added = LiteTopicQueue(
            queue, messages, lock, self.counts, visible_at=until, acknowledger=self._acknowledger
        )
        if replaced is not None:
            replaced.drop()
        added.on_removed = lambda: self._forget_if_empty(added)
        self._queues[lite_topic] = added
        return added

    def _forget_if_empty(self, queue: LiteTopicQueue) -> None:
        if not len(queue) and self._queues.get(queue.lite_topic) is queue:
            del self._queues[queue.lite_topic]
        if self.on_removed is not None:
            self.on_removed()
