"""The queues that a member of a group has: acquired, consumed, and revoked."""

from __future__ import annotations

import functools
import logging
import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterator, KeysView, Mapping
from functools import partial
from typing import Final
from weakref import WeakKeyDictionary

import trio

from rocketmq_py.client.client import Client
from rocketmq_py.client.retry_log import RetryLogs
from rocketmq_py.consumer.config import FlowLimits, PushConsumerConfig
from rocketmq_py.consumer.group.assignment_listener import AssignmentListener, notify_listener
from rocketmq_py.consumer.group.offset_commits import OffsetStore
from rocketmq_py.consumer.group.queue_locks import QueueLock, QueueLocks
from rocketmq_py.consumer.group.statistics import SAMPLE_SECONDS, ConsumerCounters, QueueStatistics, epoch_ms
from rocketmq_py.consumer.pull.loop_table import LoopTable, start
from rocketmq_py.consumer.pull.process_queue import ProcessQueue
from rocketmq_py.consumer.pull.pull_loop import PullLoop
from rocketmq_py.consumer.pull.queue_puller import QueuePuller
from rocketmq_py.message import MessageQueue, queue_name
from rocketmq_py.protocol.bodies import SubscriptionData
from rocketmq_py.remoting.running import open_nursery

logger: Final = logging.getLogger("rocketmq_py.consumer")

OVERTAKING_SECONDS = 0.1
"""How long after it was sent a pull may still overtake, in its broker, a commit that was sent later."""


class AssignedQueues:
    """A pull loop for each queue that a member has. Java: ``RebalancePushImpl``.

    Args:
        client: what the member talks through.
        config: its settings.
        subscriptions: what is subscribed, by topic; may change.
        offsets: where the group goes on in each queue.
        begin_at: looks up where to begin in a queue.
        limits: gives how much of a queue may be here, where there are so many queues of its topic; None
            takes what the settings say.
        statistics: what counts the messages of each topic; None for one of its own.
        on_dropped: told of ProcessQueues that count no more.
        listener: told of queues that are acquired and revoked; None for nobody.

    Attributes:
        is_leaving: whether the listener is told of the queues that there are at the end.
        topics: gives the topics of which there are queues now.
        pause: stops pulling some queues or all, or goes on, as LoopTable has it.
        find: returns the loop of a queue; None if it is not this member's.
        keep_locks: keeps the locks of queues that are consumed in order, until cancelled.
    """

    def __init__(
        self,
        client: Client,
        config: PushConsumerConfig,
        subscriptions: Mapping[str, SubscriptionData],
        offsets: OffsetStore,
        *,
        begin_at: Callable[[MessageQueue], Awaitable[int]],
        limits: Callable[[int], FlowLimits] | None = None,
        statistics: ConsumerCounters | None = None,
        on_dropped: Callable[[ProcessQueue], None] | None = None,
        listener: AssignmentListener | None = None,
    ) -> None:
        self._client = client
        self._config = config
        self._subscriptions = subscriptions
        self._offsets = offsets
        self._statistics = statistics or ConsumerCounters()
        self._begin_at = begin_at
        self._on_dropped = on_dropped
        self._listener = listener
        self._limits = limits or functools.cache(config.flow_limits)  # asked for each pull
        self._nursery: trio.Nursery
        self._deliver: Callable[[ProcessQueue], None]
        self._loops: LoopTable[PullLoop] = LoopTable()
        self._retry_logs = RetryLogs(logger, "pull", "broker", group=config.group)
        # How much of each queue was done with at the last look, and when that had become more.
        self._progress: WeakKeyDictionary[PullLoop, tuple[int, float]] = WeakKeyDictionary()
        self._locks = QueueLocks(client, config.group)
        # Those of queues that are another member's already, while their last call is under way here.
        self._releasing: dict[MessageQueue, PullLoop] = {}
        self._released = trio.lowlevel.ParkingLot()
        self.is_leaving: bool = False
        self.topics: Callable[[], KeysView[str]] = self._loops.topics
        self.pause: Final = self._loops.pause
        self.find: Final = self._loops.find
        self.keep_locks: Final = self._locks.run

    def open(self, nursery: trio.Nursery, deliver: Callable[[ProcessQueue], None]) -> None:
        """Have loops run in ``nursery``; ``deliver`` sees to what they put into their ProcessQueues."""
        self._nursery = nursery
        self._deliver = deliver

    def __iter__(self) -> Iterator[PullLoop]:
        return iter(self._loops)

    def pull_anew(self, topic: str) -> None:
        """Have a topic's queues pulled anew: the pulls under way ask for what is wanted no more."""
        for loop in self._loops.of_topic(topic):
            loop.pull_anew()

    def note_offsets(self) -> None:
        """Have the offset store know how far all queues have been handled."""
        for loop in [*self, *self._releasing.values()]:
            offset = loop.safe_offset
            if offset is not None:
                self._offsets.update(loop.queue, offset)
            elif loop.lock is not None:  # another member may have it: what was noted before is out of date
                self._offsets.forget(loop.queue)

    def of_topic(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic that this member has."""
        return [loop.queue for loop in self._loops.of_topic(topic)]

    async def go_on_from(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on from these offsets, and commit them, in those of the queues that this member has."""
        moved = []
        for queue, offset in offsets.items():
            loop = self.find(queue)
            if loop is not None:
                may_commit = loop.lock is None or loop.lock.is_held
                loop.begin_again(offset)
                if may_commit:
                    self._offsets.update(queue, offset)
                    moved.append(queue)
        await self._offsets.commit_and_wait(moved)

    async def look_for_progress(self) -> None:
        """Note every now and then which queues are being got on with, until cancelled."""
        while True:
            await trio.sleep(SAMPLE_SECONDS)
            for loop in self:
                self.consumed_at(loop)

    def statistics(self) -> dict[MessageQueue, QueueStatistics]:
        """Return how far this member is in each queue, for users."""
        now_ms = self._client.now_ms()
        return {loop.queue: self._of_queue(loop, now_ms) for loop in self._loops.in_order()}

    def _of_queue(self, loop: PullLoop, now_ms: int) -> QueueStatistics:
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
            pulled_ms=epoch_ms(loop.asked_at, now_ms),
            handled_ms=epoch_ms(self.consumed_at(loop), now_ms),
        )

    def consumed_at(self, loop: PullLoop) -> float:
        """Return when a message of a queue was last seen to be done with, or the queue first looked at."""
        done, at = self._progress.get(loop, (-1, -math.inf))
        if loop.process_queue is not None:
            now_done = loop.process_queue.next_offset - len(loop.process_queue)
            if now_done != done:
                at = trio.current_time()
                self._progress[loop] = now_done, at
        return at

    async def assign(self, topic: str, queues: Collection[MessageQueue]) -> None:
        """Have these queues of the topic and no other.

        The listener is told before the offsets of those that are revoked are committed, and before those that
        are acquired are pulled. When cancelled meanwhile, it has the revoked ones until it leaves.
        """
        # The topic may have been unsubscribed while the round was under way.
        wanted = set(queues) if topic in self._subscriptions else set()
        revoked = [loop for loop in self._loops.of_topic(topic) if loop.queue not in wanted]
        for loop in revoked:
            loop.drop()
        if self._listener is not None:
            lost = [loop.queue for loop in revoked]
            await notify_listener(self._listener.on_revoked, self._config.group, lost)
        self._loops.remove(revoked)
        kept = self._loops.of_topic(topic)
        acquired = self._loops.add(topic, wanted, self._make_loop)
        for loop in kept:
            self._look_after(loop, limits_change=bool(revoked or acquired))
        if not revoked and not acquired:
            return
        logger.info(
            "group %s: topic %s: %d queues, of which %d are new; %d revoked",
            self._config.group, topic, len(kept) + len(acquired), len(acquired), len(revoked),
        )  # fmt: skip
        async with open_nursery() as nursery:  # a slow broker shall not hold up the queues of the others
            nursery.start_soon(self._commit_revoked, revoked)
            if self._listener is not None:
                new = [loop.queue for loop in acquired]
                await notify_listener(self._listener.on_assigned, self._config.group, new)
            start(acquired, self._nursery)

    async def leave(self) -> None:
        """Leave all queues: what was handled is committed, and then others may lock them."""
        loops = [*self, *self._releasing.values()]
        for loop in loops:
            loop.drop()
        if self._listener is not None:
            await self._tell_at_the_end(self._listener)
        self.note_offsets()
        overtaking = [
            loop.asked_at for loop in loops if loop.carried is not None and loop.carried != loop.safe_offset
        ]
        if overtaking:
            # Brokers serve pulls and commits in different threads: the older offset might come last.
            await trio.sleep_until(max(overtaking) + OVERTAKING_SECONDS)
        if self._config.orderly:
            by_broker: defaultdict[str, list[PullLoop]] = defaultdict(list)
            for loop in loops:
                by_broker[loop.queue.broker_name].append(loop)
            async with open_nursery() as nursery:  # a broker that is slow shall not hold up the others
                for of_broker in by_broker.values():
                    nursery.start_soon(self._leave_in_order, of_broker)
        else:
            await self._offsets.commit_and_wait()

    async def _tell_at_the_end(self, listener: AssignmentListener) -> None:
        """Tell the listener that there are no queues any more; the other half of the time is the commits'."""
        self.is_leaving = True
        try:
            with trio.move_on_at((trio.current_time() + trio.current_effective_deadline()) / 2) as scope:
                await notify_listener(listener.on_revoked, self._config.group, [loop.queue for loop in self])
        finally:
            self.is_leaving = False
        if scope.cancelled_caught:
            logger.warning("group %s: on_revoked was cancelled: it took too long", self._config.group)

    async def _leave_in_order(self, loops: Collection[PullLoop]) -> None:
        # First the offsets: whoever gets the locks begins there.
        await self._offsets.commit_and_wait([loop.queue for loop in loops])
        await self._locks.release(
            [loop.lock for loop in loops if loop.lock is not None and not loop.lock.busy]
        )

    def _look_after(self, loop: PullLoop, *, limits_change: bool) -> None:
        if loop.has_stalled(self._config.pull_max_idle_time):
            logger.warning(  # a user can mend nothing: this process was stopped, or its clock jumped
                "%s has not been pulled from for %g s: it is pulled anew",
                queue_name(loop.queue), self._config.pull_max_idle_time,
            )  # fmt: skip
            loop.pull_anew()
        elif limits_change:
            loop.look_for_space()

    def _limits_of(self, topic: str) -> FlowLimits:
        return self._limits(self._loops.count_of(topic) or 1)

    async def _commit_revoked(self, loops: Collection[PullLoop]) -> None:
        for loop in loops:
            if loop.lock is not None:
                # One that came back, and has waited since for the call that is under way, never was here.
                if loop.queue not in self._releasing:
                    self._releasing[loop.queue] = loop
                    self._nursery.start_soon(self._release_in_order, loop, loop.lock)
            elif (offset := loop.safe_offset) is not None:
                self._offsets.update(loop.queue, offset)
        out_of_order = [loop.queue for loop in loops if loop.lock is None]
        await self._offsets.commit(out_of_order)
        for queue in out_of_order:
            self._offsets.forget(queue)

    async def _release_in_order(self, loop: PullLoop, lock: QueueLock) -> None:
        """Release the lock of a queue when what is being handled of it is done with, and committed."""
        await self._locks.wait_until_idle(lock)
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
        subscribed = self._subscriptions[queue.topic]
        lock: QueueLock | None = None
        begin: Callable[[], Awaitable[int]] = partial(self._begin_at, queue)
        if config.orderly and config.broadcasting:
            lock = QueueLock(queue, held_until=math.inf)  # it only keeps calls one after the other
        elif config.orderly:
            lock = QueueLock(queue, interval=config.lock_interval, max_live_time=config.lock_max_live_time)
            begin = partial(self._begin_in_order, lock)
        loop = PullLoop(
            QueuePuller(
                client,
                config.group,
                queue,
                batch_size=config.pull_batch_size,
                hold=config.pull_hold,
                timeout=config.pull_timeout,
            ),
            partial(self._limits_of, queue.topic),
            subscription=lambda: self._subscriptions.get(queue.topic, subscribed),
            start=begin,
            may_commit=partial(self._offsets.may_commit_by_pull, queue),
            deliver=self._deliver,
            invalidate_route=partial(client.routes.invalidate, queue.topic),
            retry_log=self._retry_logs.of(queue.broker_name),
            lock=lock,
            counts=self._statistics.of(queue.topic),
            on_set_back=partial(self._offsets.forget, queue),
            on_dropped=self._on_dropped,
        )
        if lock is not None:
            lock.on_lost = partial(self._begin_again, loop)
            lock.on_acquired = partial(self._deliver_process_queue, loop)
        return loop

    async def _begin_in_order(self, lock: QueueLock) -> int:
        while lock.queue in self._releasing:
            await self._released.park()
        await self._locks.acquire(lock)
        return await self._begin_at(lock.queue)

    def _begin_again(self, loop: PullLoop) -> None:
        """Forget how far a queue has been handled: another member may have come further since."""
        self._offsets.forget(loop.queue)
        loop.begin_again()

    def _deliver_process_queue(self, loop: PullLoop) -> None:
        if loop.process_queue is not None:
            self._deliver(loop.process_queue)
