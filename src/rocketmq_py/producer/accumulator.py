"""Collects messages into batches, and decides when each batch is sent. Java: ``ProduceAccumulator``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

from rocketmq_py.errors import RocketMQError
from rocketmq_py.message import Message, MessageQueue, SendResult
from rocketmq_py.producer.hooks import HookedSend, SendContext, show_batch
from rocketmq_py.producer.pending import BatchedSend, PendingBatch, PendingSend


class ProducerBatch:
    """A batch of messages.

    Attributes:
        messages: the messages, in order.
        pending: their outcomes.
        contexts: the contexts of their hooks, by index. Empty without hooks.
        queue: the queue that the batch must go to. None for any queue of the topic.
        size: the largest size in bytes that the batch may take.
        timeout: seconds for the send, the smallest timeout of its messages. None without messages.
        deadline: the time at which the batch is sent even if it is not full.
        is_in_flight: whether it has been passed to the producer.
        outcomes: of its messages, once they are known. Hooks are called before they are set.
    """

    __slots__ = (
        "contexts",
        "deadline",
        "is_in_flight",
        "messages",
        "outcomes",
        "pending",
        "queue",
        "size",
        "timeout",
    )

    def __init__(self, queue: MessageQueue | None, deadline: float) -> None:
        self.messages: list[Message] = []
        self.pending: PendingBatch = PendingBatch()
        self.contexts: dict[int, SendContext] = {}
        self.queue: MessageQueue | None = queue
        self.size: int = 0
        self.timeout: float | None = None
        self.deadline: float = deadline
        self.is_in_flight: bool = False
        self.outcomes: Sequence[SendResult | RocketMQError] | None = None

    def show_to_hooks(self, send: HookedSend, start: int, end: int) -> None:
        """Show the hooks of some messages the request that they are sent in."""
        for index, context in self.contexts.items():
            if start <= index < end:
                show_batch(context, send, index - start)


class AccumulatorOwner(Protocol):
    """The batcher that sends the batches of an accumulator."""

    def now(self) -> float:
        """Return the time, in seconds."""

    def start(self, batch: ProducerBatch) -> None:
        """Send a batch, and call :meth:`Accumulator.finished` when it has its outcome."""

    def linger(self) -> None:
        """Call :meth:`Accumulator.send_due` again: it had returned None, and now a batch lingers."""


class Accumulator:
    """Collects messages into batches, and sends a batch when it is full or its ``linger`` time is over.

    Batches without a queue are sent concurrently. Batches for one queue are sent one after the other, in the
    order of their messages. While one is in flight, the next continues to grow.

    Args:
        owner: sends the batches.
        linger: seconds that a batch waits for more messages (batchMaxDelayMs).
        max_size: bytes of a full batch (batchMaxBytes).
        max_messages: messages of a full batch.

    Attributes:
        batches: the batches without an outcome, oldest first.
        in_flight: how many of them have been passed to the owner.
    """

    def __init__(
        self,
        owner: AccumulatorOwner,
        *,
        linger: float,
        max_size: int,
        max_messages: int,
    ) -> None:
        self._owner = owner
        self._linger = linger
        self._max_size = max_size
        self._max_messages = max_messages
        # Batches that may still grow, by destination, in the order of their deadlines.
        self._open: dict[Hashable, ProducerBatch] = {}
        # Full batches of the queues that have a batch in flight.
        self._queued: dict[MessageQueue, deque[ProducerBatch]] = {}
        self._none_lingers = True  # send_due has returned None, and no batch was started since
        self.batches: dict[ProducerBatch, None] = {}
        self.in_flight: int = 0

    def add(
        self,
        message: Message,
        size: int,
        queue: MessageQueue | None = None,
        alone: bool = False,
        timeout: float | None = None,
        on_done: Callable[[PendingSend], None] | None = None,
        context: SendContext | None = None,
    ) -> BatchedSend:
        """Add a message to a batch. Return its pending send.

        Args:
            message: the message.
            size: the largest size in bytes that it may take.
            queue: the queue that it must go to.
            alone: whether it must be sent alone.
            timeout: seconds for the send. None for the setting.
            on_done: called when the message has its outcome.
            context: the context of its hooks, if there are any.
        """
        key: Hashable = queue
        if queue is None:
            key = message.topic if message.wait_store_ok else (message.topic, False)
            if alone:
                key = object()  # a unique key
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
        if context is not None:
            batch.contexts[len(messages)] = context
        messages.append(message)
        batch.size = size = batch.size + size
        if timeout is not None and (batch.timeout is None or timeout < batch.timeout):
            batch.timeout = timeout
        if alone or size >= self._max_size or len(messages) >= self._max_messages:
            self._close(key)
        return pending

    def send_due(self, now: float) -> float | None:
        """Send the batches whose deadline has passed. Return the next deadline, or None if there is none.

        A batch for a queue with another one in flight is sent when that one has its outcome.
        """
        due = []
        deadline = None
        for key, batch in self._open.items():
            if batch.deadline > now:
                deadline = batch.deadline
                break
            if batch.queue not in self._queued:
                due.append(key)
        for key in due:
            self._close(key)
        self._none_lingers = deadline is None
        return deadline

    def send_all(self) -> None:
        """Send all batches without waiting for their deadlines. Queues keep their order."""
        for key in list(self._open):
            self._close(key)

    def finished(self, batch: ProducerBatch, now: float) -> None:
        """Remove a batch that has its outcome, and send the next batch of its queue."""
        del self.batches[batch]
        self.in_flight -= 1
        queue = batch.queue
        if queue is None:
            return
        queued = self._queued[queue]
        if queued:
            self._start(queued.popleft())
            return
        del self._queued[queue]
        following = self._open.get(queue)
        if following is not None and following.deadline <= now:
            self._close(queue)

    def abandon(self) -> list[ProducerBatch]:
        """Remove and return all batches without an outcome."""
        abandoned = list(self.batches)
        self.batches.clear()
        self._open.clear()
        self._queued.clear()
        self.in_flight = 0
        return abandoned

    def _begin(self, key: Hashable, queue: MessageQueue | None) -> ProducerBatch:
        batch = ProducerBatch(queue, self._owner.now() + self._linger)
        self.batches[batch] = None
        self._open[key] = batch
        if self._none_lingers:
            self._none_lingers = False
            self._owner.linger()
        return batch

    def _close(self, key: Hashable) -> None:
        """Send a batch, or queue it behind the batch in flight of the same queue."""
        batch = self._open.pop(key)
        if batch.queue is None:
            self._start(batch)
        elif batch.queue in self._queued:
            self._queued[batch.queue].append(batch)
        else:
            self._queued[batch.queue] = deque()
            self._start(batch)

    def _start(self, batch: ProducerBatch) -> None:
        batch.is_in_flight = True
        self.in_flight += 1
        self._owner.start(batch)
