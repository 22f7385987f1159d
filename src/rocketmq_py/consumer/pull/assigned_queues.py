"""The assigned queues of a consumer: starts pull loops for new queues, commits and stops revoked ones."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, KeysView, Mapping, Set
from functools import partial
from typing import Final, Protocol
from weakref import WeakKeyDictionary

import trio

from rocketmq_py.client.core import ClientCore
from rocketmq_py.client.retry_log import RetryLogs
from rocketmq_py.consumer.group.assignment_listener import AssignmentListener, notify_listener
from rocketmq_py.consumer.group.counters import SAMPLE_SECONDS, CachedMessages, ConsumerCounters
from rocketmq_py.consumer.group.offset_commits import OffsetStore, StartingOffsets
from rocketmq_py.consumer.group.queue_locks import QueueLock, QueueLocks
from rocketmq_py.consumer.group.statistics import QueueStatistics, epoch_ms
from rocketmq_py.consumer.pull.loop_table import LoopTable, start_loops
from rocketmq_py.consumer.pull.process_queue import ProcessQueue
from rocketmq_py.consumer.pull.pull_loop import PullLoop
from rocketmq_py.consumer.pull.queue_puller import QueuePuller
from rocketmq_py.consumer.settings import FlowLimits, PullSettings
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import MessageQueue, queue_name
from rocketmq_py.protocol.bodies import SubscriptionData
from rocketmq_py.remoting.nurseries import open_nursery

logger: Final = LibraryLogger("rocketmq_py.consumer")


class AssignedQueuesOwner(Protocol):
    """The consumer that processes the messages of the assigned queues."""

    def flow_limits(self, queues: int) -> FlowLimits:
        """Return the limits of one queue of a topic of which this many queues are assigned."""

    def new_lock(self, queue: MessageQueue) -> QueueLock | None:
        """Return a new lock of a queue that is consumed in order. None for a queue without a lock."""

    def deliver(self, process_queue: ProcessQueue) -> None:
        """Dispatch the waiting messages of a ProcessQueue."""

    def discard(self, process_queue: ProcessQueue) -> None:
        """Forget a ProcessQueue, which is not used any more."""


class QueueMoves(Protocol):
    """Finishes with revoked queues. Only for queues without locks."""

    async def settle(self, loops: Collection[PullLoop]) -> None:
        """Finish with revoked queues, before their offsets are committed."""


OVERTAKING_SECONDS = 0.1
"""Seconds after a pull in which a broker might process it after a commit that was sent later."""


class AssignedQueues:
    """The pull loops of a member, one for each assigned queue. Java: ``RebalancePushImpl``.

    Args:
        client: the client that sends the requests.
        config: the consumer's settings.
        subscriptions: the subscriptions by topic. They may change.
        offsets: the offset store.
        owner: processes the messages.
        starts: looks up the offset at which to start in a queue.
        counters: the counters of the topics. None for own counters.
        listener: called when queues are assigned or revoked. None for no listener.
        moves: finishes with revoked queues that have no locks. None commits them at once.

    Attributes:
        takeover_seconds: how long a new loop waits for the commits of the queue's previous owner.
        is_leaving: whether :meth:`leave` is calling the listener.
    """

    def __init__(
        self,
        client: ClientCore,
        config: PullSettings,
        subscriptions: Mapping[str, SubscriptionData],
        offsets: OffsetStore,
        owner: AssignedQueuesOwner,
        *,
        starts: StartingOffsets,
        counters: ConsumerCounters | None = None,
        listener: AssignmentListener | None = None,
        moves: QueueMoves | None = None,
    ) -> None:
        self._client = client
        self._config = config
        self._subscriptions = subscriptions
        self._offsets = offsets
        self._counters = counters or ConsumerCounters()
        self._starts = starts
        self._owner = owner
        self._listener = listener
        self._moves = moves
        self.takeover_seconds: float = 0.0
        self._nursery: trio.Nursery
        self._loops: LoopTable[PullLoop] = LoopTable()
        self._retry_logs = RetryLogs(logger, "pull", "broker", group=config.group)
        # The number of processed messages of each loop at the last sample, and when it last changed.
        self._progress: WeakKeyDictionary[PullLoop, tuple[int, float]] = WeakKeyDictionary()
        self._locks = QueueLocks(client, config.group)
        # The loops of revoked queues that are not committed yet, because handler calls are still running.
        self._releasing: dict[MessageQueue, PullLoop] = {}
        self._released = trio.lowlevel.ParkingLot()
        self.is_leaving: bool = False

    def open(self, nursery: trio.Nursery) -> None:
        """Run loops in ``nursery``."""
        self._nursery = nursery

    async def keep_locks(self) -> None:
        """Renew the locks of ordered queues, until cancelled."""
        await self._locks.run()

    def __iter__(self) -> Iterator[PullLoop]:
        return iter(self._loops)

    def topics(self) -> KeysView[str]:
        """Return the topics that have assigned queues."""
        return self._loops.topics()

    def find(self, queue: MessageQueue) -> PullLoop | None:
        """Return the loop of a queue, or None if the queue is not assigned."""
        return self._loops.find(queue)

    def pause(self, paused: bool, queues: Set[MessageQueue] | None = None) -> None:
        """Pause or resume pulling these queues, or with None all queues, including those assigned later."""
        self._loops.pause(paused, queues)

    def restart_pull(self, topic: str) -> None:
        """Restart the pulls of a topic, because they carry an outdated subscription."""
        for loop in self._loops.of_topic(topic):
            loop.restart_pull()

    def check_for_resets(self, topic: str) -> None:
        """Pull all queues of a topic now, because the broker may have reset their offsets."""
        for loop in self._loops.of_topic(topic):
            loop.check_for_reset()

    def record_offsets(self) -> None:
        """Pass the offsets to commit of all queues to the offset store."""
        for loop in [*self, *self._releasing.values()]:
            offset = loop.safe_offset
            if offset is not None:
                self._offsets.update(loop.queue, offset)
            elif loop.lock is not None:
                # Another member may hold the lock, so the recorded offset is out of date.
                self._offsets.forget(loop.queue)

    def of_topic(self, topic: str) -> list[MessageQueue]:
        """Return the assigned queues of a topic."""
        return [loop.queue for loop in self._loops.of_topic(topic)]

    async def seek(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue from these offsets and commit them. Queues that are not assigned are ignored."""
        moved = []
        for queue, offset in offsets.items():
            loop = self.find(queue)
            if loop is not None:
                may_commit = loop.lock is None or loop.lock.is_held
                loop.reset(offset)
                self._starts.moved(queue, offset)
                if may_commit:
                    self._offsets.update(queue, offset)
                    moved.append(queue)
        await self._offsets.commit_and_wait(moved)

    async def track_progress(self) -> None:
        """Sample the progress of all queues periodically, until cancelled."""
        while True:
            await trio.sleep(SAMPLE_SECONDS)
            for loop in self:
                self.processed_at(loop)

    def cached(self) -> Iterator[CachedMessages]:
        """Yield the unacknowledged messages in memory of each queue. Any thread may call this."""
        for loop in self:
            buffer = loop.process_queue
            if buffer is not None:
                lag = 0 if loop.end is None else max(loop.end - buffer.next_offset, 0) + len(buffer)
                yield CachedMessages(loop.queue.topic, len(buffer), buffer.size, lag)

    def statistics(self) -> dict[MessageQueue, QueueStatistics]:
        """Return the statistics of each assigned queue."""
        now_ms = self._client.now_ms()
        return {loop.queue: self._statistics_of(loop, now_ms) for loop in self._loops.sorted_by_queue()}

    def _statistics_of(self, loop: PullLoop, now_ms: int) -> QueueStatistics:
        process_queue, lock = loop.process_queue, loop.lock
        return QueueStatistics(
            state=loop.state,
            committed=self._offsets.last_committed(loop.queue),
            handled_to=None if process_queue is None else process_queue.safe_offset,
            pulled_to=None if process_queue is None else process_queue.next_offset,
            end=loop.end,
            cached=0 if process_queue is None else len(process_queue),
            cached_bytes=0 if process_queue is None else process_queue.size,
            in_flight=0 if process_queue is None else len(process_queue) - process_queue.waiting,
            locked=None if lock is None else lock.is_held,
            pulled_ms=epoch_ms(loop.pulled_at, now_ms),
            handled_ms=epoch_ms(self.processed_at(loop), now_ms),
        )

    def processed_at(self, loop: PullLoop) -> float:
        """Return when a message of a queue was last acknowledged, or the time of the queue's first sample.

        -inf before the first sample. On trio's clock.
        """
        processed, at = self._progress.get(loop, (-1, -math.inf))
        if loop.process_queue is not None:
            processed_now = loop.process_queue.next_offset - len(loop.process_queue)
            if processed_now != processed:
                at = trio.current_time()
                self._progress[loop] = processed_now, at
        return at

    async def assign(self, topic: str, queues: Collection[MessageQueue]) -> None:
        """Set the assigned queues of a topic: start loops for new queues and revoke the others.

        The listener is called before the offsets of revoked queues are committed, and before new queues are
        pulled. If cancelled during this call of the listener, the revoked queues have stopped, and
        :meth:`leave` commits their offsets.

        Calls must not overlap.
        """
        # The topic may have been unsubscribed since the rebalance started.
        wanted = set(queues) if topic in self._subscriptions else set()
        revoked = [loop for loop in self._loops.of_topic(topic) if loop.queue not in wanted]
        for loop in revoked:
            loop.drop()
        if self._listener is not None:
            revoked_queues = [loop.queue for loop in revoked]
            await notify_listener(self._listener.on_revoked, self._config.group, revoked_queues)
        self._loops.remove(revoked)
        unchanged = self._loops.of_topic(topic)
        assigned = self._loops.add(topic, wanted, self._make_loop)
        for loop in unchanged:
            self._resume_or_restart(loop, limits_change=bool(revoked or assigned))
        if not revoked and not assigned:
            return
        logger.info(
            "rebalanced group=%s topic=%s assigned=%d (+%d, -%d)",
            self._config.group, topic, len(unchanged) + len(assigned), len(assigned), len(revoked),
        )  # fmt: skip
        async with open_nursery() as nursery:  # a slow broker must not delay the queues of others
            nursery.start_soon(self._commit_or_release, revoked)
            if self._listener is not None:
                await notify_listener(
                    self._listener.on_assigned, self._config.group, [loop.queue for loop in assigned]
                )
            start_loops(assigned, self._nursery)

    async def hand_over(self, nursery: trio.Nursery) -> None:
        """Revoke all queues while handlers still run, so that other members can have them.

        Args:
            nursery: releases the lock of each ordered queue when its handler call has ended.
        """
        self._nursery = nursery
        for topic in list(self.topics()):
            await self.assign(topic, ())

    async def leave(self) -> None:
        """Stop all loops, commit their offsets, and then release their locks."""
        loops = [*self, *self._releasing.values()]
        for loop in loops:
            loop.drop()
        if self._listener is not None:
            await self._call_on_revoked_when_leaving(self._listener)
        self.record_offsets()
        await _until_pulls_are_processed(loops)
        if any(loop.lock is not None for loop in loops):
            by_broker: defaultdict[str, list[PullLoop]] = defaultdict(list)
            for loop in loops:
                by_broker[loop.queue.broker_name].append(loop)
            async with open_nursery() as nursery:  # a slow broker must not delay the others
                for of_broker in by_broker.values():
                    nursery.start_soon(self._commit_and_unlock, of_broker)
        else:
            await self._offsets.commit_and_wait()

    async def _call_on_revoked_when_leaving(self, listener: AssignmentListener) -> None:
        """Call on_revoked within half of the remaining time. The commits have the other half."""
        self.is_leaving = True
        try:
            with trio.move_on_at((trio.current_time() + trio.current_effective_deadline()) / 2) as scope:
                await notify_listener(listener.on_revoked, self._config.group, [loop.queue for loop in self])
        finally:
            self.is_leaving = False
        if scope.cancelled_caught:
            logger.warning("on_revoked timed out and was cancelled: group=%s", self._config.group)

    async def _commit_and_unlock(self, loops: Collection[PullLoop]) -> None:
        # Commit first: the next owner of the lock starts at the committed offset.
        await self._offsets.commit_and_wait([loop.queue for loop in loops])
        await self._locks.release(
            [loop.lock for loop in loops if loop.lock is not None and not loop.lock.busy]
        )

    def _resume_or_restart(self, loop: PullLoop, *, limits_change: bool) -> None:
        """Restart the pull of an unchanged queue if it has stalled, or resume it if the limits allow it."""
        if loop.has_stalled(self._config.pull_max_idle_time):
            # The process was suspended, or its clock jumped.
            logger.warning(
                "pull stalled for more than %g s, restarting it: %s",
                self._config.pull_max_idle_time, queue_name(loop.queue),
            )  # fmt: skip
            loop.restart_pull()
        elif limits_change:
            loop.resume_if_space()

    async def _commit_or_release(self, loops: Collection[PullLoop]) -> None:
        """Commit the offsets of revoked queues. Ordered queues follow in the background, with their locks."""
        for loop in loops:
            # While an earlier loop of the queue waits for its last call, a later loop has not started.
            if loop.lock is not None and loop.queue not in self._releasing:
                self._releasing[loop.queue] = loop
                self._nursery.start_soon(self._release_lock, loop, loop.lock)
        unlocked = {loop.queue: loop for loop in loops if loop.lock is None}
        self._releasing.update(unlocked)  # if this is cancelled, leave() commits them
        if self._moves is not None:
            await self._moves.settle(unlocked.values())
        await _until_pulls_are_processed(unlocked.values())
        for queue, loop in unlocked.items():
            if (offset := loop.safe_offset) is not None:
                self._offsets.update(queue, offset)
        # The next owner reads the offsets soon, and brokers may process its request before a oneway commit.
        await self._offsets.commit_and_wait(unlocked)
        for queue in unlocked:
            self._offsets.forget(queue)
            del self._releasing[queue]

    async def _release_lock(self, loop: PullLoop, lock: QueueLock) -> None:
        """Release the lock of a queue after its last handler call has ended and its offset is committed."""
        await self._locks.wait_until_idle(lock)
        await _until_pulls_are_processed([loop])
        offset = loop.safe_offset
        if offset is not None:
            self._offsets.update(loop.queue, offset)
            await self._offsets.commit_and_wait([loop.queue])
        await self._locks.release([lock])
        self._offsets.forget(loop.queue)
        del self._releasing[loop.queue]
        self._released.unpark_all()

    def _make_loop(self, queue: MessageQueue) -> PullLoop:
        config, client = self._config, self._client
        lock = self._owner.new_lock(queue)
        loop = PullLoop(
            QueuePuller(
                client,
                config.group,
                queue,
                batch_size=config.pull_batch_size,
                hold=config.pull_hold,
                timeout=config.pull_timeout,
            ),
            self,
            subscription=self._subscriptions[queue.topic],
            retry_log=self._retry_logs.of(queue.broker_name),
            lock=lock,
            counts=self._counters.of(queue.topic),
            not_before=trio.current_time() + self.takeover_seconds,
        )
        if lock is not None:
            lock.on_lost = partial(self._on_lock_lost, loop)
            lock.on_acquired = partial(self._on_lock_acquired, loop)
        return loop

    # The owner of the pull loops

    def limits_of(self, topic: str) -> FlowLimits:
        """Return the current flow-control limits of a queue of the topic."""
        return self._owner.flow_limits(self._loops.count_of(topic) or 1)

    def subscription_of(self, topic: str) -> SubscriptionData | None:
        """Return the current subscription to a topic. None after it has ended."""
        return self._subscriptions.get(topic)

    async def start_offset(self, loop: PullLoop) -> int:
        """Return the first offset of a loop, when the previous owner of its queue has committed.

        An ordered queue waits for its lock, and for the last call of an earlier loop.
        """
        lock = loop.lock
        if lock is None:
            await trio.sleep_until(loop.not_before)
        else:
            while lock.queue in self._releasing:
                await self._released.park()
            if not lock.is_held:
                await self._locks.acquire(lock)
        return await self._starts.of(loop.queue)

    def may_commit_by_pull(self, queue: MessageQueue) -> bool:
        """Return whether a pull may carry the offset to commit."""
        return self._offsets.may_commit_by_pull(queue)

    def deliver(self, process_queue: ProcessQueue) -> None:
        """Dispatch the waiting messages of a ProcessQueue."""
        self._owner.deliver(process_queue)

    def discard(self, process_queue: ProcessQueue) -> None:
        """Forget a ProcessQueue, which is not used any more."""
        self._owner.discard(process_queue)

    def forget_committed(self, queue: MessageQueue) -> None:
        """Forget the committed offset: the broker has moved the queue to another one."""
        self._offsets.forget(queue)

    def _on_lock_lost(self, loop: PullLoop) -> None:
        """Drop the pulled messages and the recorded offset: another member may have committed since."""
        self._offsets.forget(loop.queue)
        # A seek() that came before the lock is still to be done.
        loop.reset(loop.position if loop.process_queue is None else None)

    def _on_lock_acquired(self, loop: PullLoop) -> None:
        if loop.process_queue is not None:
            self._owner.deliver(loop.process_queue)


async def _until_pulls_are_processed(loops: Collection[PullLoop]) -> None:
    """Wait before the last commit for the processing of the pulls that carry older offsets.

    Brokers process pulls and commits in different threads, so an unanswered pull might overwrite the commit.
    """
    pull_times = [
        loop.pulled_at
        for loop in loops
        if loop.committing is not None and loop.committing != loop.safe_offset
    ]
    if pull_times:
        await trio.sleep_until(max(pull_times) + OVERTAKING_SECONDS)
