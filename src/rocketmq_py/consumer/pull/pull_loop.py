"""The pull loop of one assigned queue: pull, buffer, dispatch, and wait according to flow control."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

import attrs
import trio

from rocketmq_py.client.retry_log import RetryLog
from rocketmq_py.consumer.group.counters import Arrivals, TopicCounters
from rocketmq_py.consumer.group.queue_locks import QueueLock
from rocketmq_py.consumer.group.statistics import PullState
from rocketmq_py.consumer.pull.process_queue import ProcessQueue, flow_state
from rocketmq_py.consumer.pull.queue_puller import PulledMessages, QueuePuller
from rocketmq_py.consumer.pull.retry import RETRY_DELAYS, PullRetry
from rocketmq_py.consumer.settings import FlowLimits
from rocketmq_py.errors import RocketMQError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import MessageQueue, ReceivedMessage, queue_name
from rocketmq_py.names import RETRY_PREFIX
from rocketmq_py.property_names import RETRY_TOPIC
from rocketmq_py.protocol.bodies import SubscriptionData

logger: Final = LibraryLogger("rocketmq_py.consumer")

FULL: Final = frozenset({PullState.FULL_BY_COUNT, PullState.FULL_BY_SIZE, PullState.SPAN_TOO_WIDE})
"""States in which a loop waits for space."""


class PullLoopOwner(Protocol):
    """The member of a group whose queue a loop pulls."""

    def limits_of(self, topic: str) -> FlowLimits:
        """Return the current flow-control limits of a queue of the topic."""

    def subscription_of(self, topic: str) -> SubscriptionData | None:
        """Return the current subscription to a topic. None after it has ended."""

    async def start_offset(self, loop: PullLoop) -> int:
        """Look up the offset at which a loop starts, when it may start."""

    def may_commit_by_pull(self, queue: MessageQueue) -> bool:
        """Return whether a pull may carry the offset to commit."""

    def deliver(self, process_queue: ProcessQueue) -> None:
        """Dispatch the waiting messages of a ProcessQueue."""

    def discard(self, process_queue: ProcessQueue) -> None:
        """Forget a ProcessQueue, which is not used any more."""

    def forget_committed(self, queue: MessageQueue) -> None:
        """Forget the committed offset: the broker has moved the queue to another one."""


class PullLoop:
    """Pulls one queue while it is assigned to this member. Java: ``PullRequest``, ``PullMessageService``.

    Args:
        puller: sends the pulls.
        owner: the member to which the queue is assigned.
        subscription: the subscription to the topic. Once the owner has none any more, the last one is used.
        retry_log: logs failures. The loops of a broker share it.
        lock: the queue's lock, for ordered consumers. None for all others.
        counts: the counters of the topic.
        not_before: the time on trio's clock before which the owner does not let the loop start.

    Attributes:
        queue: the queue.
        not_before: see above.
        pulled_at: the time of the last pull on trio's clock. -inf before the first one.
        lock: see above.
        process_queue: the pulled messages. None until the start offset is known.
        flow: the state of the loop.
        end: the queue's end offset according to the last answer. None before the first one.
        committing: the offset that an unanswered pull commits. None without one.
    """

    def __init__(
        self,
        puller: QueuePuller,
        owner: PullLoopOwner,
        *,
        subscription: SubscriptionData,
        retry_log: RetryLog,
        lock: QueueLock | None = None,
        counts: TopicCounters | None = None,
        not_before: float = -math.inf,
    ) -> None:
        self.queue: MessageQueue = puller.queue
        self.not_before = not_before
        self.lock = lock
        self.process_queue: ProcessQueue | None = None
        self.flow: PullState = PullState.STARTING
        self.end: int | None = None
        self.committing: int | None = None
        self.pulled_at: float = -math.inf
        self._puller = puller
        self._owner = owner
        self._subscription = subscription
        self._is_retry = self.queue.topic.startswith(RETRY_PREFIX)
        self._retry = PullRetry(
            puller.client,
            self.queue,
            retry_log,
            # Brokers create a group's retry topic when the group first contacts them.
            is_quiet=self._is_retry,
        )
        self._paused = False
        self._checks_for_reset = False  # the next pull follows even if the ProcessQueue is full
        self._counts = counts or TopicCounters()
        self._reset_offset: int | None = None
        self._scope = trio.CancelScope()
        self._step_scope = trio.CancelScope()
        self._changed = trio.lowlevel.ParkingLot()

    async def run(self) -> None:
        """Pull until the loop is dropped or cancelled."""
        with self._scope:
            while True:
                with trio.CancelScope() as self._step_scope:  # cancelled by reset() and restart_pull()
                    while not self._step_scope.cancel_called:
                        await self._step()

    async def _step(self) -> None:
        """Look up the start offset, or pull once, or wait until flow control allows a pull."""
        try:
            process_queue = await self._begin() if self.process_queue is None else self.process_queue
            self.flow = self._flow_of(process_queue)
            if self._checks_for_reset and self.flow in FULL:
                self.flow = PullState.PULLING
            if self.flow is PullState.PULLING:
                pulled = await self._pull(process_queue)
                if process_queue is self.process_queue:
                    self.flow = self._accept(process_queue, pulled)
                # An answer that had arrived before the check says nothing.
                self._checks_for_reset = self._step_scope.cancel_called
                self._retry.succeeded()
            else:
                await self._wait_for_change(process_queue)
        except RocketMQError as error:
            self.flow = self._retry.failed(error)
            if not self._is_retry:
                self._counts.note_failed_pull(error)
        if self.flow in RETRY_DELAYS:
            await self._retry.wait(self.flow)

    async def _begin(self) -> ProcessQueue:
        offset = await self._owner.start_offset(self)
        # reset() may have been called in the meantime and takes precedence.
        if self.process_queue is not None:
            return self.process_queue
        if self._reset_offset is not None:
            offset = self._reset_offset
        return self._start_at(offset)

    def reset(self, offset: int | None = None) -> None:
        """Drop the pulled messages and continue from ``offset``. None looks up the start offset again."""
        self._drop_process_queue()
        self.process_queue = None
        self.flow = PullState.STARTING
        self._reset_offset = offset
        if offset is not None and self.lock is None:  # ordered consumers start when they have the lock
            self._start_at(offset)
        self._step_scope.cancel()

    def has_stalled(self, seconds: float) -> bool:
        """Return whether a pull has been unanswered for longer than this, without timing out."""
        return self.flow is PullState.PULLING and trio.current_time() - self.pulled_at > seconds

    def restart_pull(self) -> None:
        """Cancel the current pull or wait, and continue with the current state."""
        self._step_scope.cancel()

    def check_for_reset(self) -> None:
        """Pull now, even if the ProcessQueue is full, because the broker may have reset the offset."""
        self._checks_for_reset = True
        self.restart_pull()

    def drop(self) -> None:
        """Stop pulling and dispatching, because the queue was revoked."""
        self._scope.cancel()
        self.flow = PullState.DROPPED
        self._drop_process_queue()

    def _drop_process_queue(self) -> None:
        if self.process_queue is not None:
            self.process_queue.dropped = True
            self._owner.discard(self.process_queue)

    @property
    def safe_offset(self) -> int | None:
        """The offset to commit. None before the loop has started, or if it does not hold the lock."""
        if self.process_queue is None or (self.lock is not None and not self.lock.is_held):
            return None
        return self.process_queue.safe_offset

    @property
    def position(self) -> int | None:
        """The offset of the next message to dispatch. None while the start offset is looked up."""
        return self._reset_offset if self.process_queue is None else self.process_queue.position

    @property
    def state(self) -> PullState:
        """The state of the loop, including changes that it will notice after the current pull."""
        if self.process_queue is None or self.flow in RETRY_DELAYS:
            return self.flow
        return self._flow_of(self.process_queue)

    def _flow_of(self, process_queue: ProcessQueue) -> PullState:
        return flow_state(process_queue, self._owner.limits_of(self.queue.topic))

    def pause(self, paused: bool) -> None:
        """Pause or resume pulling. Pulled messages are still processed."""
        self._paused = paused
        if self.process_queue is not None:
            self.process_queue.paused = paused
        self._changed.unpark_all()

    def _start_at(self, offset: int) -> ProcessQueue:
        """Start at ``offset`` with an empty ProcessQueue, and drop the previous one."""
        self._drop_process_queue()
        self.process_queue = ProcessQueue(self.queue, offset, self.lock, self._counts)
        self._reset_offset = None
        self.process_queue.paused = self._paused
        return self.process_queue

    async def _pull(self, process_queue: ProcessQueue) -> PulledMessages:
        self.pulled_at = trio.current_time()
        # As in Java, pulls do not commit offset 0.
        commit = (self.safe_offset or None) if self._owner.may_commit_by_pull(self.queue) else None
        if commit is not None:
            self.committing = commit
        self._subscription = self._owner.subscription_of(self.queue.topic) or self._subscription
        pulled = await self._puller.pull(process_queue.next_offset, self._subscription, commit=commit)
        self.committing = None
        self.end = pulled.max_offset
        return pulled

    def _accept(self, process_queue: ProcessQueue, pulled: PulledMessages) -> PullState:
        """Buffer and dispatch pulled messages. Return the next state."""
        requested = process_queue.next_offset
        if self._checks_for_reset and not pulled.is_reset and (full := self._flow_of(process_queue)) in FULL:
            return full  # there is no space for the messages, which are pulled again later
        offset, flow = self._retry.next_step(requested, self.pulled_at, pulled)
        if pulled.messages:
            counts = self._counts
            counts.pulls += 1
            counts.pulled += len(pulled.messages)
            if self._is_retry:
                counts.redelivered += len(pulled.messages)
            counts.pull_seconds += trio.current_time() - self.pulled_at
        if offset < requested or pulled.is_reset:
            self._owner.forget_committed(self.queue)
            # The buffered offsets belong to other messages now, or an operator skips their messages.
            self._start_at(offset)
        elif pulled.messages and offset > requested:
            messages = self._with_original_topics(pulled.messages) if self._is_retry else pulled.messages
            process_queue.put(messages, offset)
            if self._counts.meter is not None:
                self._note_arrival(process_queue, messages)
            self._owner.deliver(process_queue)
        else:
            process_queue.put((), offset)
        return flow

    def _note_arrival(self, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        assert self._counts.meter is not None
        self._counts.meter.arrived(messages)
        if process_queue.arrivals is None:
            process_queue.arrivals = Arrivals()
        process_queue.arrivals.put(messages[-1].queue_offset)

    async def _wait_for_change(self, process_queue: ProcessQueue) -> None:
        """Wait until the state may have changed."""
        logger.debug("not pulling %s: %s", queue_name(self.queue), self.flow.value)
        process_queue.on_removed = self.resume_if_space
        try:
            await self._changed.park()
        finally:
            process_queue.on_removed = None

    def resume_if_space(self) -> None:
        """Resume pulling if flow control allows it, after messages were removed or the limits changed."""
        process_queue = self.process_queue
        if process_queue is not None and self._flow_of(process_queue) is PullState.PULLING:
            self._changed.unpark_all()

    def _with_original_topics(self, messages: Iterable[ReceivedMessage]) -> list[ReceivedMessage]:
        """Return messages of a retry topic under the topics that they were first sent to."""
        group, namespace = self._puller.group, self._puller.namespace
        return [
            attrs.evolve(
                message,
                topic=namespace.original_topic(message.properties.get(RETRY_TOPIC, message.topic), group),
            )
            for message in messages
        ]
