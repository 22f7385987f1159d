"""Which messages go together, and when: decided here, sent elsewhere. Java: ``ProduceAccumulator``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable

from rocketmq_py.message import Message, MessageQueue
from rocketmq_py.producer.first_attempt import BatchAttempt
from rocketmq_py.producer.pending import BatchedSend, PendingBatch, PendingSend


class ProducerBatch:
    """Messages that go together.

    Attributes:
        messages: in their order.
        pending: what becomes of them.
        queue: the only queue that they may go to, or None for any of the topic's.
        size: how many bytes they take at most.
        timeout: seconds for sending it, the least of its messages'; None for the setting.
        deadline: when they go even if they are few.
        is_under_way: whether they have gone.
        attempt: the first attempt, while that is under way without a task.
    """

    __slots__ = ("attempt", "deadline", "is_under_way", "messages", "pending", "queue", "size", "timeout")

    def __init__(self, queue: MessageQueue | None, deadline: float) -> None:
        self.messages: list[Message] = []
        self.pending: PendingBatch = PendingBatch()
        self.queue: MessageQueue | None = queue
        self.size: int = 0
        self.timeout: float | None = None
        self.deadline: float = deadline
        self.is_under_way: bool = False
        self.attempt: BatchAttempt | None = None


class Accumulator:
    """Collects messages into batches, and has each sent when it is full, or has waited long enough.

    Batches for any queue of a topic are sent side by side. Those for one queue are sent one after the other,
    in the order of their messages, and while one is under way the next goes on growing.

    Args:
        linger: seconds that a batch waits for more (batchMaxDelayMs).
        max_size: bytes that make a batch full (batchMaxBytes).
        max_messages: messages that make a batch full.
        now: the clock, in seconds.
        send: is given each batch when it is its turn; calls :meth:`arrived` when it is there, or has failed.
        waits: is called when a batch begins to wait after :meth:`send_due` has said that none does.

    Attributes:
        batches: all that have not arrived, in the order in which they were begun.
        under_way: how many of them have gone.
    """

    def __init__(
        self,
        *,
        linger: float,
        max_size: int,
        max_messages: int,
        now: Callable[[], float],
        send: Callable[[ProducerBatch], None],
        waits: Callable[[], None],
    ) -> None:
        self._linger = linger
        self._max_size = max_size
        self._max_messages = max_messages
        self._now = now
        self._send = send
        self._waits = waits
        self._open: dict[
            Hashable, ProducerBatch
        ] = {}  # by where they go, and in the order of their deadlines
        self._behind: dict[
            MessageQueue, deque[ProducerBatch]
        ] = {}  # what is closed, of queues with one under way
        self._none_waits = True
        self.batches: dict[ProducerBatch, None] = {}
        self.under_way: int = 0

    def add(
        self,
        message: Message,
        size: int,
        queue: MessageQueue | None = None,
        alone: bool = False,
        timeout: float | None = None,
        on_done: Callable[[PendingSend], None] | None = None,
    ) -> BatchedSend:
        """Take a message. Return what becomes of it.

        Args:
            message: what is to be sent.
            size: how many bytes it takes at most.
            queue: the only queue that it may go to.
            alone: whether it cannot go together with others.
            timeout: seconds for sending it; None for the setting.
            on_done: called when its outcome is there.
        """
        key: Hashable = queue
        if queue is None:
            key = message.topic if message.wait_store_ok else (message.topic, False)
            if alone:
                key = object()  # nothing else has this one, and nothing has to wait for its sake
        batch = self._open.get(key)
        if batch is not None and (
            batch.size + size > self._max_size
            or alone
            or (queue is not None and batch.messages[0].wait_store_ok is not message.wait_store_ok)
        ):
            self._close(key)
            batch = None
        if batch is None:
            batch = self._begin(key, queue)
        messages = batch.messages
        pending = BatchedSend(batch.pending, len(messages), on_done)
        messages.append(message)
        batch.size = size = batch.size + size
        if timeout is not None and (batch.timeout is None or timeout < batch.timeout):
            batch.timeout = timeout
        if alone or size >= self._max_size or len(messages) >= self._max_messages:
            self._close(key)
        return pending

    def send_due(self, now: float) -> float | None:
        """Have sent what has waited until ``now``. Return until when the next one waits; None if none does.

        One for a queue that has another under way is sent when that has arrived.
        """
        due = []
        deadline = None
        for key, batch in self._open.items():
            if batch.deadline > now:
                deadline = batch.deadline
                break
            if batch.queue not in self._behind:
                due.append(key)
        for key in due:
            self._close(key)
        self._none_waits = deadline is None
        return deadline

    def send_all(self) -> None:
        """Have sent all that waits, each queue's in its order."""
        for key in list(self._open):
            self._close(key)

    def arrived(self, batch: ProducerBatch, now: float) -> None:
        """Note that a batch has its outcome, and have sent what waited for that."""
        del self.batches[batch]
        self.under_way -= 1
        queue = batch.queue
        if queue is None:
            return
        behind = self._behind[queue]
        if behind:
            self._ship(behind.popleft())
            return
        del self._behind[queue]
        following = self._open.get(queue)
        if following is not None and following.deadline <= now:
            self._close(queue)

    def abandon(self) -> list[ProducerBatch]:
        """Forget everything, and return what has not arrived."""
        left = list(self.batches)
        self.batches.clear()
        self._open.clear()
        self._behind.clear()
        self.under_way = 0
        return left

    def _begin(self, key: Hashable, queue: MessageQueue | None) -> ProducerBatch:
        batch = ProducerBatch(queue, self._now() + self._linger)
        self.batches[batch] = None
        self._open[key] = batch
        if self._none_waits:
            self._none_waits = False
            self._waits()
        return batch

    def _close(self, key: Hashable) -> None:
        batch = self._open.pop(key)
        if batch.queue is None:
            self._ship(batch)
        elif batch.queue in self._behind:
            self._behind[batch.queue].append(batch)
        else:
            self._behind[batch.queue] = deque()
            self._ship(batch)

    def _ship(self, batch: ProducerBatch) -> None:
        batch.is_under_way = True
        self.under_way += 1
        self._send(batch)
