"""The pop loop of a push consumer's queue: pop, buffer, dispatch, and wait while the buffer is full."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import trio

from rocketmq_py.client.retry_log import RetryLog
from rocketmq_py.consumer.group.counters import TopicCounters
from rocketmq_py.consumer.group.statistics import PullState
from rocketmq_py.consumer.pop.acknowledger import PopAcknowledger
from rocketmq_py.consumer.pop.messages import PoppedMessage, classify, count_popped
from rocketmq_py.consumer.pop.requests import PopRequests, PopSpec
from rocketmq_py.consumer.pull.retry import PullRetry, state_after_empty
from rocketmq_py.errors import RocketMQError
from rocketmq_py.message import MessageQueue


class PopBuffer(Protocol):
    """The unacknowledged messages that a pop loop has popped.

    Attributes:
        queue: the queue on the broker, or ALL_QUEUES of a topic there.
        counts: the counters of the topic.
        paused: whether the loop is paused.
        on_removed: called after messages were removed.
    """

    queue: MessageQueue
    counts: TopicCounters
    paused: bool
    on_removed: Callable[[], None] | None

    def __len__(self) -> int:
        """Return the number of unacknowledged messages."""

    def put(self, messages: Sequence[PoppedMessage], until: float) -> None:
        """Add popped messages that are invisible until a time on trio's clock."""


Buffer = TypeVar("Buffer", bound=PopBuffer)
DeliveredBuffer = TypeVar("DeliveredBuffer", bound=PopBuffer, contravariant=True)


class PopLoopOwner(Protocol[DeliveredBuffer]):
    """The member of a group to which the popped queue is assigned."""

    def spec_of(self, topic: str) -> PopSpec | None:
        """Return the current parameters of a pop. None after the subscription has ended."""

    def deliver(self, process_queue: DeliveredBuffer) -> None:
        """Dispatch the waiting messages of a buffer."""


class PopLoop(Generic[Buffer]):
    """Pops from a queue, or from all queues of a broker, while they are assigned. Java: ``PopRequest``.

    Args:
        process_queue: the buffer for popped messages.
        requests: sends the pops.
        owner: the member.
        spec: the parameters of a pop. Once the owner has none any more, the last ones are used.
        hold: seconds that the broker may hold a pop until messages arrive.
        threshold: the number of unacknowledged messages above which the loop waits.
        max_reconsume_times: redeliveries after which a message becomes a dead letter.
        acknowledger: acknowledges the messages that are not dispatched.
        retry_log: logs failures. The loops of a broker share it.

    Attributes:
        queue: the queue. The queue id ALL_QUEUES stands for all queues of the broker.
        pulled_at: the time of the last pop on trio's clock. -inf before the first one.
        process_queue: see above.
        dropped: whether the loop was dropped.
    """

    def __init__(
        self,
        process_queue: Buffer,
        requests: PopRequests,
        owner: PopLoopOwner[Buffer],
        *,
        spec: PopSpec,
        hold: float,
        threshold: int,
        max_reconsume_times: int,
        acknowledger: PopAcknowledger,
        retry_log: RetryLog,
    ) -> None:
        self.queue: MessageQueue = process_queue.queue
        self.process_queue: Buffer = process_queue
        self.pulled_at: float = -math.inf
        self.dropped: bool = False
        self._requests = requests
        self._owner = owner
        self._spec = spec
        self._hold = hold
        self._threshold = threshold
        self._max_reconsume_times = max_reconsume_times
        self._acknowledger = acknowledger
        self._retry = PullRetry(requests.client, self.queue, retry_log)
        self._changed = trio.lowlevel.ParkingLot()
        self._pause = trio.CancelScope()

    async def run(self) -> None:
        """Pop until the loop is dropped or cancelled."""
        self.process_queue.on_removed = self._resume_if_space
        while not self.dropped:
            if not self._may_pop:
                await self._changed.park()
                continue
            state = await self._pop()
            with trio.CancelScope() as self._pause:
                await self._retry.wait(state)

    def pause(self, paused: bool) -> None:
        """Pause or resume popping. Popped messages are still processed."""
        self.process_queue.paused = paused
        self._changed.unpark_all()

    def drop(self) -> None:
        """Stop popping. Popped messages, and those of a pop in progress, are still processed here."""
        self.dropped = True
        self._pause.cancel()
        self._changed.unpark_all()

    @property
    def state(self) -> PullState:
        """The state of the loop, including changes that it will notice after the current pop."""
        if self.process_queue.paused:
            return PullState.PAUSED
        return PullState.FULL_BY_COUNT if len(self.process_queue) > self._threshold else PullState.PULLING

    @property
    def _may_pop(self) -> bool:
        return self.state is PullState.PULLING

    def _resume_if_space(self) -> None:
        if self._may_pop:
            self._changed.unpark_all()

    async def _pop(self) -> PullState:
        """Pop once. Return the state that decides when the next pop follows."""
        spec = self._spec = self._owner.spec_of(self.queue.topic) or self._spec
        self.pulled_at = trio.current_time()
        try:
            popped = await self._requests.pop_or_release(
                self.queue.broker_name, spec, hold=self._hold, queue_id=self.queue.queue_id
            )
        except RocketMQError as error:
            self.process_queue.counts.note_failed_pull(error)
            return self._retry.failed(error)
        self._retry.succeeded()
        if popped:
            now = trio.current_time()
            count_popped(self.process_queue.counts, popped, now - self.pulled_at)
            self._accept(popped, spec, now + spec.invisible)
            return PullState.PULLING
        return state_after_empty(self.pulled_at)

    def _accept(self, popped: list[PoppedMessage], spec: PopSpec, until: float) -> None:
        """Dispatch popped messages, except those that are filtered out or were delivered too often."""
        classified = classify(popped, spec.subscription, self._max_reconsume_times)
        for message in classified.filtered_out:
            self._acknowledger.acknowledge(message)
        for message in classified.exhausted:
            self._acknowledger.give_up(message)
        if classified.deliverable:
            self.process_queue.put(classified.deliverable, until)
            self._owner.deliver(self.process_queue)
