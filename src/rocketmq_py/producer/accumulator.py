"""Which messages go together, and when: decided here, sent elsewhere. Java: ``ProduceAccumulator``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable

from rocketmq_py.message import Message, MessageQueue
from rocketmq_py.producer.pending import PendingSend


class Parcel:
    """Messages that go together.

    Attributes:
        messages: in their order.
        pendings: what gets the outcome of each.
        queue: the only queue that they may go to, or None for any of the topic's.
        size: how many bytes they take at most.
        deadline: when they go even if they are few.
        is_under_way: whether they have gone.
    """

    __slots__ = ("deadline", "is_under_way", "messages", "pendings", "queue", "size")

    def __init__(self, queue: MessageQueue | None, deadline: float) -> None:
        self.messages: list[Message] = []
        self.pendings: list[PendingSend] = []
        self.queue = queue
        self.size = 0
        self.deadline = deadline
        self.is_under_way = False


class Accumulator:
    """Collects messages into parcels, and has each sent when it is full, or has waited long enough.

    Parcels for any queue of a topic are sent side by side. Those for one queue are sent one after the other,
    in the order of their messages, and while one is under way the next goes on growing.

    Args:
        linger: seconds that a parcel waits for more (batchMaxDelayMs).
        max_size: bytes that make a parcel full (batchMaxBytes).
        max_messages: messages that make a parcel full.
        now: the clock, in seconds.
        send: is given each parcel when it is its turn; calls :meth:`arrived` when it is there, or has failed.
        waits: is called when a parcel begins to wait after :meth:`send_due` has said that none does.

    Attributes:
        parcels: all that have not arrived, in the order in which they were begun.
        under_way: how many of them have gone.
    """

    def __init__(
        self,
        *,
        linger: float,
        max_size: int,
        max_messages: int,
        now: Callable[[], float],
        send: Callable[[Parcel], None],
        waits: Callable[[], None],
    ) -> None:
        self._linger = linger
        self._max_size = max_size
        self._max_messages = max_messages
        self._now = now
        self._send = send
        self._waits = waits
        self._open: dict[Hashable, Parcel] = {}  # by where they go, and in the order of their deadlines
        self._behind: dict[MessageQueue, deque[Parcel]] = {}  # what is closed, of queues with one under way
        self._none_waits = True
        self.parcels: dict[Parcel, None] = {}
        self.under_way = 0

    def add(
        self, message: Message, pending: PendingSend, size: int, queue: MessageQueue | None, *, alone: bool
    ) -> None:
        """Take a message.

        Args:
            message: what is to be sent.
            pending: what gets its outcome.
            size: how many bytes it takes at most.
            queue: the only queue that it may go to.
            alone: whether it cannot go together with others.
        """
        key: Hashable = queue or (message.topic, message.wait_store_ok)
        if alone and queue is None:
            key = pending  # nothing else has this one, and nothing has to wait for its sake
        parcel = self._open.get(key)
        if parcel is not None and (
            alone
            or parcel.size + size > self._max_size
            or (queue and parcel.messages[0].wait_store_ok is not message.wait_store_ok)
        ):
            self._close(key)
            parcel = None
        if parcel is None:
            parcel = self._begin(key, queue)
        parcel.messages.append(message)
        parcel.pendings.append(pending)
        parcel.size = size = parcel.size + size
        if alone or size >= self._max_size or len(parcel.messages) >= self._max_messages:
            self._close(key)

    def send_due(self, now: float) -> float | None:
        """Have sent what has waited until ``now``. Return until when the next one waits; None if none does.

        One for a queue that has another under way is sent when that has arrived.
        """
        due = []
        deadline = None
        for key, parcel in self._open.items():
            if parcel.deadline > now:
                deadline = parcel.deadline
                break
            if parcel.queue not in self._behind:
                due.append(key)
        for key in due:
            self._close(key)
        self._none_waits = deadline is None
        return deadline

    def send_all(self) -> None:
        """Have sent all that waits, each queue's in its order."""
        for key in list(self._open):
            self._close(key)

    def arrived(self, parcel: Parcel, now: float) -> None:
        """Note that a parcel has its outcome, and have sent what waited for that."""
        del self.parcels[parcel]
        self.under_way -= 1
        queue = parcel.queue
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

    def abandon(self) -> list[Parcel]:
        """Forget everything, and return what has not arrived."""
        left = list(self.parcels)
        self.parcels.clear()
        self._open.clear()
        self._behind.clear()
        self.under_way = 0
        return left

    def _begin(self, key: Hashable, queue: MessageQueue | None) -> Parcel:
        parcel = Parcel(queue, self._now() + self._linger)
        self.parcels[parcel] = None
        self._open[key] = parcel
        if self._none_waits:
            self._none_waits = False
            self._waits()
        return parcel

    def _close(self, key: Hashable) -> None:
        parcel = self._open.pop(key)
        if parcel.queue is None:
            self._ship(parcel)
        elif parcel.queue in self._behind:
            self._behind[parcel.queue].append(parcel)
        else:
            self._behind[parcel.queue] = deque()
            self._ship(parcel)

    def _ship(self, parcel: Parcel) -> None:
        parcel.is_under_way = True
        self.under_way += 1
        self._send(parcel)
