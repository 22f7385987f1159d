"""The queues that a lite pull consumer has, and what has been pulled of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, KeysView, Mapping
from typing import Final

import trio

from rocketmq_py.client.client import Client
from rocketmq_py.consumer.config import FlowLimits
from rocketmq_py.consumer.group.assignment_listener import AssignmentListener
from rocketmq_py.consumer.group.counters import Statistics
from rocketmq_py.consumer.group.lag import ask_lag
from rocketmq_py.consumer.group.offset_store import starting_offset
from rocketmq_py.consumer.lite_pull.config import LitePullConsumerConfig
from rocketmq_py.consumer.lite_pull.offsets import PolledOffsets
from rocketmq_py.consumer.lite_pull.poll_buffer import PollBuffer
from rocketmq_py.consumer.pull.assigned_queues import AssignedQueues
from rocketmq_py.consumer.pull.pull_loop import PullLoop
from rocketmq_py.consumer.pull.running_info import RunningInfo
from rocketmq_py.errors import NotAssignedError
from rocketmq_py.message import MessageQueue, queue_name
from rocketmq_py.protocol.bodies import SubscriptionData

NO_SPACE = -1
"""The bound for one queue's messages that not even an empty queue keeps to."""


class Assignment:
    """Queues, each with its pull loop, that a user polls. Java: ``AssignedMessageQueue``.

    Args:
        client: what the consumer talks through.
        config: its settings.
        subscriptions: what is wanted of each topic; may change.
        timestamp_ms: the time of ConsumeFrom.TIMESTAMP.
        listener: told of queues that are acquired and revoked; None for nobody.
        statistics: counts what is pulled and polled.

    Attributes:
        buffer: what waits to be polled.
        topics: gives the topics of which there are queues now.
        restart_pull: has a topic's queues pulled anew.
        infos: what operators see of the queues.
        track_progress, statistics: as Queues has them.
    """

    def __init__(
        self,
        client: Client,
        config: LitePullConsumerConfig,
        subscriptions: Mapping[str, SubscriptionData],
        *,
        timestamp_ms: int,
        listener: AssignmentListener | None,
        statistics: Statistics,
    ) -> None:
        self._client = client
        self._config = config
        self._pulling = config.pulling()
        self._timestamp_ms = timestamp_ms
        self._offsets = PolledOffsets(client, config.group, auto_commit=config.auto_commit)
        self.buffer: PollBuffer = PollBuffer()
        self._queues = AssignedQueues(
            client,
            self._pulling,
            subscriptions,
            self._offsets,
            starting_offset=self._begin_at,
            limits=self._limits,
            statistics=statistics,
            on_dropped=self.buffer.count,
            listener=listener,
        )
        self._is_crowded = False
        self.topics: Callable[[], KeysView[str]] = self._queues.topics
        self.restart_pull: Final = self._queues.restart_pull
        self.track_progress: Final = self._queues.track_progress
        self.statistics: Final = self._queues.statistics
        self.infos: RunningInfo = RunningInfo(client, self._queues)

    def open(self, nursery: trio.Nursery) -> None:
        """Have the pull loops run in ``nursery``."""
        self._queues.open(nursery, self.buffer.offer)

    def assignment(self) -> list[MessageQueue]:
        """Return the queues that there are now, sorted."""
        return sorted(loop.queue for loop in self._queues)

    async def assign(self, topic: str, queues: Collection[MessageQueue]) -> None:
        """Have these queues of the topic and no other; of those that are lost, the offsets are committed."""
        await self._queues.assign(topic, queues)
        self._look_for_space()

    @property
    def is_leaving(self) -> bool:
        """Whether the listener is told of the queues that there are at the end."""
        return self._queues.is_leaving

    def check_assigned(self, queue: MessageQueue) -> None:
        """Raise NotAssignedError unless the queue is there."""
        self._loop_of(queue)

    def pause(self, queues: Iterable[MessageQueue] | None, paused: bool) -> None:
        """Pull and hand out nothing of these queues (None for all), or go on; pass over those of others."""
        loops = list(self._queues) if queues is None else list(map(self._queues.find, set(queues)))
        for loop in loops:
            if loop is not None:
                loop.pause(paused)
                if loop.process_queue is not None:
                    self.buffer.offer(loop.process_queue)
        self._look_for_space()

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on from ``offset`` in a queue. Raises NotAssignedError."""
        self._loop_of(queue).reset(offset)
        self._look_for_space()

    async def position(self, queue: MessageQueue) -> int:
        """Return where a queue goes on after what was polled. Raises NotAssignedError."""
        await trio.lowlevel.checkpoint()
        position = self._loop_of(queue).position
        return await self._begin_at(queue) if position is None else position

    def settle(self) -> None:
        """Be done with everything that was polled."""
        if self.buffer.settle():
            self._look_for_space()

    def refilter(self, topic: str) -> None:
        """Have a topic's queues, of which other messages are wanted now, go on where they are."""
        for queue in self._queues.of_topic(topic):
            loop = self._queues.find(queue)
            if loop is not None and loop.safe_offset is not None:
                loop.reset(loop.safe_offset)

    async def commit(self, offsets: Mapping[MessageQueue, int] | None) -> None:
        """Commit now: these offsets, or (None) everything that was polled. Raises the first error."""
        if offsets is None:
            self.settle()
            safe = {loop.queue: loop.safe_offset for loop in self._queues}
            offsets = {queue: offset for queue, offset in safe.items() if offset is not None}
        await self._offsets.commit(offsets)

    async def commit_now_and_then(self) -> None:
        """Commit what is done with every ``auto_commit_interval`` seconds, until cancelled."""
        await self._offsets.open()
        while True:
            await trio.sleep(self._config.auto_commit_interval)
            self._queues.record_offsets()
            await self._offsets.write()

    async def lag(self) -> Mapping[MessageQueue, int]:
        """Ask the brokers how far the group is behind in each queue."""
        return await ask_lag(self._client, self.assignment(), self._offsets.committed)

    async def leave(self) -> None:
        """Leave all queues; what is done with is committed, unless that is left to the user."""
        await self._queues.leave()

    def _loop_of(self, queue: MessageQueue) -> PullLoop:
        loop = self._queues.find(queue)
        if loop is None:
            raise NotAssignedError(
                f"{queue_name(queue)} is not assigned to this consumer of group {self._config.group!r} (now)"
            )
        return loop

    async def _begin_at(self, queue: MessageQueue) -> int:
        config = self._config
        return await starting_offset(
            self._client, self._offsets, queue, config.consume_from, self._timestamp_ms
        )

    def _limits(self, queues: int) -> FlowLimits:
        limits = self._pulling.flow_limits(queues)
        if self.buffer.total <= self._config.pull_threshold_for_all:
            return limits
        self._is_crowded = True
        return FlowLimits(NO_SPACE, limits.size, limits.span)

    def _look_for_space(self) -> None:
        """Have all loops go on that wait because there was too much in all queues together."""
        if self._is_crowded and self.buffer.total <= self._config.pull_threshold_for_all:
            self._is_crowded = False
            for loop in self._queues:
                loop.resume_if_space()
