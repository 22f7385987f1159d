"""The pull loop of one queue: pull, hold, hand over, and wait where the flow demands it."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import attrs
import trio

from rocketmq_py import properties as names
from rocketmq_py.client.retry_log import RetryLog
from rocketmq_py.consumer.config import FlowLimits
from rocketmq_py.consumer.group.queue_locks import QueueLock
from rocketmq_py.consumer.group.statistics import PullState, TopicCounters
from rocketmq_py.consumer.group.subscriptions import original_topic
from rocketmq_py.consumer.pull.flow_control import WAIT_SECONDS, flow_of
from rocketmq_py.consumer.pull.process_queue import ProcessQueue
from rocketmq_py.consumer.pull.queue_puller import Pulled, QueuePuller
from rocketmq_py.consumer.pull.retry import PullRetry
from rocketmq_py.errors import RocketMQError
from rocketmq_py.message import MessageQueue, ReceivedMessage, queue_name
from rocketmq_py.names import RETRY_PREFIX
from rocketmq_py.protocol.bodies import SubscriptionData

logger: Final = logging.getLogger("rocketmq_py.consumer")


class PullLoop:
    """Pulls one queue for as long as it is this member's. Java: ``PullRequest``, ``PullMessageService``.

    Args:
        puller: asks the broker.
        limits: gives how much of the queue may be here now.
        subscription: gives what of the topic is wanted now.
        start: looks up where to begin.
        may_commit: says whether a pull may carry the offset to commit.
        deliver: takes what has been put into the ProcessQueue.
        invalidate_route: told when an error shows that the topic's route is out of date.
        retry_log: logs failures; shared by the loops of a broker.
        lock: the right to consume the queue in order; None where there is no order to keep.
        counts: counts what is pulled, and what becomes of it.
        on_set_back: told when the broker has set the queue back: what it was told of offsets holds no more.
        on_dropped: told of a ProcessQueue that counts no more.

    Attributes:
        queue: the queue.
        asked_at: when the broker was last asked, on trio's clock; -inf if it never was.
        lock: see above.
        process_queue: what of it is here; None until it is known where to begin.
        flow: what the loop does now.
        end: the offset that the queue's next message gets, said the last answer; None before.
        carried: the offset to commit that a pull which has no answer yet took along; None if there is none.
    """

    def __init__(
        self,
        puller: QueuePuller,
        limits: Callable[[], FlowLimits],
        *,
        subscription: Callable[[], SubscriptionData],
        start: Callable[[], Awaitable[int]],
        may_commit: Callable[[], bool],
        deliver: Callable[[ProcessQueue], None],
        invalidate_route: Callable[[], None],
        retry_log: RetryLog,
        lock: QueueLock | None = None,
        counts: TopicCounters | None = None,
        on_set_back: Callable[[], None] = lambda: None,
        on_dropped: Callable[[ProcessQueue], None] | None = None,
    ) -> None:
        self.queue: MessageQueue = puller.queue
        self.lock = lock
        self.process_queue: ProcessQueue | None = None
        self.flow: PullState = PullState.STARTING
        self.end: int | None = None
        self.carried: int | None = None
        self._on_set_back = on_set_back
        self._on_dropped = on_dropped
        self._puller = puller
        self._limits = limits
        self._subscription = subscription
        self._start = start
        self._may_commit = may_commit
        self._deliver = deliver
        self._is_retry = self.queue.topic.startswith(RETRY_PREFIX)
        self._retry = PullRetry(
            self.queue,
            retry_log,
            invalidate_route,
            is_quiet=self._is_retry,  # brokers create a group's retry topic when they first hear of the group
        )
        self._paused = False
        self._counts = counts or TopicCounters()
        self._begin_at: int | None = None
        self.asked_at: float = -math.inf
        self._scope = trio.CancelScope()
        self._turn = trio.CancelScope()
        self._changed = trio.lowlevel.ParkingLot()

    async def run(self) -> None:
        """Pull until the loop is dropped or this is cancelled."""
        with self._scope:
            while True:
                with trio.CancelScope() as self._turn:  # cancelled to have it look again
                    while not self._turn.cancel_called:
                        await self._take_turn()

    async def _take_turn(self) -> None:
        """Look up where to begin, or pull once, or wait until there is a reason to pull."""
        try:
            process_queue = await self._begin() if self.process_queue is None else self.process_queue
            self.flow = flow_of(process_queue, self._limits())
            if self.flow is PullState.PULLING:
                pulled = await self._pull(process_queue)
                if process_queue is self.process_queue:
                    self.flow = self._accept(process_queue, pulled)
                self._retry.succeeded()
            else:
                await self._until_changed(process_queue)
        except RocketMQError as error:
            self.flow = self._retry.failed(error)
        pause = WAIT_SECONDS.get(self.flow)
        if pause is not None:
            await trio.sleep(pause)

    async def _begin(self) -> ProcessQueue:
        offset = await self._start()
        # It may have been told meanwhile where to go on: that counts.
        if self.process_queue is not None:
            return self.process_queue
        if self._begin_at is not None:
            offset = self._begin_at
        return self._start_at(offset)

    def begin_again(self, offset: int | None = None) -> None:
        """Forget what is here, and go on from ``offset``; None is where the group is said to have come."""
        self._drop_process_queue()
        self.process_queue = None
        self.flow = PullState.STARTING
        self._begin_at = offset
        if offset is not None and self.lock is None:  # else it begins when it has the lock
            self._start_at(offset)
        self._turn.cancel()

    def has_stalled(self, seconds: float) -> bool:
        """Tell whether an answer has been waited for longer than this: it should have timed out before."""
        return self.flow is PullState.PULLING and trio.current_time() - self.asked_at > seconds

    def pull_anew(self) -> None:
        """Wait no more for whatever is waited for, and look again at what there is to do."""
        self._turn.cancel()

    def drop(self) -> None:
        """Pull no more and hand out no more: the queue is another member's now."""
        self._scope.cancel()
        self.flow = PullState.DROPPED
        self._drop_process_queue()

    def _drop_process_queue(self) -> None:
        if self.process_queue is not None:
            self.process_queue.dropped = True
            if self._on_dropped is not None:
                self._on_dropped(self.process_queue)

    @property
    def safe_offset(self) -> int | None:
        """The offset to commit; None if there is none: it has not begun, or others may consume the queue."""
        if self.process_queue is None or (self.lock is not None and not self.lock.is_held):
            return None
        return self.process_queue.safe_offset

    @property
    def position(self) -> int | None:
        """The offset of the next message to hand out; None if it is being looked up where to begin."""
        return self._begin_at if self.process_queue is None else self.process_queue.position

    @property
    def state(self) -> PullState:
        """What the loop does now, or will do when the pull under way is answered."""
        if self.process_queue is None or self.flow in WAIT_SECONDS:
            return self.flow
        return flow_of(self.process_queue, self._limits())

    def pause(self, paused: bool) -> None:
        """Pull no more until this is taken back; what is here goes on being handled."""
        self._paused = paused
        if self.process_queue is not None:
            self.process_queue.paused = paused
        self._changed.unpark_all()

    def _start_at(self, offset: int) -> ProcessQueue:
        """Begin at ``offset`` with nothing pulled; what was pulled before counts no more."""
        self._drop_process_queue()
        self.process_queue = ProcessQueue(self.queue, offset, self.lock, self._counts)
        self._begin_at = None
        self.process_queue.paused = self._paused
        return self.process_queue

    async def _pull(self, process_queue: ProcessQueue) -> Pulled:
        self.asked_at = trio.current_time()
        # As in Java, 0 is not worth committing on the way.
        commit = (self.safe_offset or None) if self._may_commit() else None
        if commit is not None:
            self.carried = commit
        pulled = await self._puller.pull(process_queue.next_offset, self._subscription(), commit=commit)
        self.carried = None
        self.end = pulled.max_offset
        if pulled.messages:
            counts = self._counts
            counts.pulls += 1
            counts.pulled += len(pulled.messages)
            if self._is_retry:
                counts.redelivered += len(pulled.messages)
            counts.pull_seconds += trio.current_time() - self.asked_at
        return pulled

    def _accept(self, process_queue: ProcessQueue, pulled: Pulled) -> PullState:
        """Take in what a pull brought and return what the loop does next."""
        asked = process_queue.next_offset
        offset, flow = self._retry.go_on(asked, self.asked_at, pulled)
        if offset < asked:
            self._on_set_back()
            self._start_at(offset)  # the offsets that are here stand for other messages now
        elif pulled.messages and offset > asked:
            process_queue.put(self._as_sent(pulled.messages) if self._is_retry else pulled.messages, offset)
            self._deliver(process_queue)
        else:
            process_queue.put((), offset)
        return flow

    async def _until_changed(self, process_queue: ProcessQueue) -> None:
        """Wait until the queue may be pulled from again."""
        logger.debug("%s: not pulled: %s", queue_name(self.queue), self.flow.value)
        process_queue.on_space = self.look_for_space
        try:
            await self._changed.park()
        finally:
            process_queue.on_space = None

    def look_for_space(self) -> None:
        """Go on if the queue may be pulled from again: something was removed, or the limits have changed."""
        if (
            self.process_queue is not None
            and flow_of(self.process_queue, self._limits()) is PullState.PULLING
        ):
            self._changed.unpark_all()

    def _as_sent(self, messages: Iterable[ReceivedMessage]) -> list[ReceivedMessage]:
        """Return messages of a retry topic under the topic that they were sent to."""
        group, namespace = self._puller.group, self._puller.namespace
        return [
            attrs.evolve(
                message,
                topic=original_topic(
                    message.properties.get(names.RETRY_TOPIC, message.topic), group, namespace
                ),
            )
            for message in messages
        ]
