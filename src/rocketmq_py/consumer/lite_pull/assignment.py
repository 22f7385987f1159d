"""The queues of a lite pull consumer: pull, pause and seek them, and commit their offsets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import trio

from rocketmq_py.client.core import ClientCore
from rocketmq_py.consumer.group.assignment_listener import AssignmentListener
from rocketmq_py.consumer.group.concurrent_queries import query_lag
from rocketmq_py.consumer.group.counters import CachedMessages, ConsumerCounters
from rocketmq_py.consumer.group.hooks import ConsumerHooks
from rocketmq_py.consumer.group.offset_commits import RemoteOffsetStore, StartingOffsets
from rocketmq_py.consumer.group.statistics import QueueStatistics
from rocketmq_py.consumer.group.subscriptions import Subscriptions, filter_of
from rocketmq_py.consumer.lite_pull.poll_buffer import PollBuffer
from rocketmq_py.consumer.lite_pull.settings import LitePullConsumerSettings
from rocketmq_py.consumer.pull.assigned_queues import AssignedQueues
from rocketmq_py.consumer.pull.process_queue import ProcessQueue
from rocketmq_py.consumer.pull.pull_loop import PullLoop
from rocketmq_py.consumer.pull.running_info import RunningInfo
from rocketmq_py.consumer.settings import FlowLimits
from rocketmq_py.errors import ConfigurationError, NotAssignedError
from rocketmq_py.message import MessageQueue, ReceivedMessage, queue_name
from rocketmq_py.position import Position
from rocketmq_py.protocol.bodies import SubscriptionData

NO_SPACE = -1
"""A limit on the number of messages that even an empty queue exceeds."""


class LitePullOffsetStore(RemoteOffsetStore):
    """Commits the offsets of a lite pull consumer, which are those of acknowledged messages.

    Pull requests do not commit offsets, so that ``commit()`` and the commit interval alone decide when an
    offset is committed.

    Args:
        client: sends the requests.
        group: the consumer group.
        auto_commit: whether periodic commits include acknowledged messages. If False, only
            :meth:`commit_offsets` commits.
    """

    def __init__(self, client: ClientCore, group: str, *, auto_commit: bool) -> None:
        super().__init__(client, group)
        self._auto_commit = auto_commit

    def update(self, queue: MessageQueue, offset: int) -> None:
        """Set the offset that the next periodic commit sends. Does nothing without ``auto_commit``."""
        if self._auto_commit:
            super().update(queue, offset)

    def may_commit_by_pull(self, queue: MessageQueue) -> bool:
        """Return False."""
        return False

    async def commit_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit these offsets and await the responses. Raises the first error if a commit fails."""
        for queue, offset in offsets.items():
            super().update(queue, offset)
        for error in (await self.commit_and_wait(offsets)).values():
            raise error


class Assignment:
    """The assigned queues, the buffer that they fill, and the limit on the messages of all queues together.

    Java: ``AssignedMessageQueue``.

    Args:
        client: sends the requests.
        config: the settings of the consumer.
        subscriptions: the consumer's subscriptions.
        consume_from: where a new group starts, not of the kind AGO.
        hooks: called around polled messages.
        listener: called when queues are assigned or revoked.
        counters: counts pulled and acknowledged messages.

    Attributes:
        buffer: the messages that wait to be polled.
        pulled: the assigned queues.
        infos: the state of the queues for operators.
    """

    def __init__(
        self,
        client: ClientCore,
        config: LitePullConsumerSettings,
        subscriptions: Subscriptions,
        *,
        consume_from: Position,
        hooks: ConsumerHooks,
        listener: AssignmentListener | None,
        counters: ConsumerCounters,
    ) -> None:
        self._client = client
        self._config = config
        self._subscriptions = subscriptions
        self._offsets = LitePullOffsetStore(client, config.group, auto_commit=config.auto_commit)
        self._starts = StartingOffsets(client, self._offsets, consume_from)
        self.buffer: PollBuffer = PollBuffer(hooks)
        self.pulled: AssignedQueues = AssignedQueues(
            client,
            config,
            subscriptions,
            self._offsets,
            self,
            starts=self._starts,
            counters=counters,
            listener=listener,
        )
        self._is_over_total = False
        self._is_replacing = False
        self._is_polling = False
        self.infos: RunningInfo = RunningInfo(client, self.pulled)

    def open(self, nursery: trio.Nursery) -> None:
        """Run the pull loops in ``nursery``."""
        self.pulled.open(nursery)

    def assignment(self) -> list[MessageQueue]:
        """Return the assigned queues, sorted."""
        return sorted(loop.queue for loop in self.pulled)

    async def assign(self, topic: str, queues: Collection[MessageQueue]) -> None:
        """Change the assigned queues of a topic. Offsets of revoked queues are committed."""
        await self.pulled.assign(topic, queues)

    async def replace(
        self, queues: Mapping[str, Collection[MessageQueue]], subscriptions: Collection[SubscriptionData]
    ) -> None:
        """Replace all assigned queues and their filters, and acknowledge all polled messages.

        Queues that stay assigned continue at their position. If their filter has changed, their
        unacknowledged messages are pulled again.

        Raises:
            ConfigurationError: another call is running.
        """
        if self._is_replacing:
            raise ConfigurationError("assign() is already running; call it again after it has returned")
        self.acknowledge()
        before = dict(self._subscriptions)
        self._subscriptions.replace(subscriptions)
        for subscription in subscriptions:
            previous = before.get(subscription.topic)
            if previous is None or filter_of(previous) != filter_of(subscription):
                self._pull_again(subscription.topic)
        self._is_replacing = True
        try:
            for topic in {*self.pulled.topics(), *queues}:
                await self.assign(topic, queues.get(topic, ()))
        finally:
            self._is_replacing = False

    @property
    def is_leaving(self) -> bool:
        """Whether the consumer is closing and its AssignmentListener is being called."""
        return self.pulled.is_leaving

    def check_assigned(self, queue: MessageQueue) -> None:
        """Raise NotAssignedError unless the queue is assigned."""
        self._loop_of(queue)

    def pause(self, queues: Iterable[MessageQueue] | None, paused: bool) -> None:
        """Pause or resume pulling and polling these queues (None for all). Ignores unassigned queues."""
        loops = list(self.pulled) if queues is None else list(map(self.pulled.find, set(queues)))
        for loop in loops:
            if loop is not None:
                loop.pause(paused)
                if loop.process_queue is not None:
                    self.buffer.add(loop.process_queue)
        self._resume_if_below_total()

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue a queue at ``offset``, and drop its cached messages. Raises NotAssignedError."""
        self._loop_of(queue).reset(offset)
        self._starts.moved(queue, offset)

    async def seek_within_range(self, queue: MessageQueue, offset: int) -> None:
        """Ask the broker for the queue's offsets, then :meth:`seek`.

        Raises ConfigurationError if the queue does not contain the offset.
        """
        brokers = self._client.brokers
        first, end = await brokers.min_offset(queue), await brokers.max_offset(queue)
        if not first <= offset <= end:
            raise ConfigurationError(
                f"cannot seek to offset {offset} of {queue_name(queue)}: its offsets are {first} to {end}"
            )
        self.seek(queue, offset)

    async def position(self, queue: MessageQueue) -> int:
        """Return the offset of the next message to poll from a queue. Raises NotAssignedError."""
        await trio.lowlevel.checkpoint()
        position = self._loop_of(queue).position
        return await self._starts.of(queue) if position is None else position

    async def poll(
        self, max_messages: int, wait: float, check: Callable[[], None], *, yields: bool = True
    ) -> list[ReceivedMessage]:
        """Acknowledge the messages of the previous poll, and return the next ones, or none after ``wait``.

        Args:
            max_messages: maximum number of messages.
            wait: seconds to wait for the first message.
            check: called after each wait. It raises an error if no messages can come.
            yields: whether to let other tasks run first.

        Raises ConfigurationError if another task or thread is polling. When cancelled, no message is lost.
        """
        if self._is_polling:
            raise ConfigurationError(
                "another task or thread is polling this consumer. Only one may at a time, since each poll "
                "acknowledges the messages of the previous one"
            )
        self._is_polling = True
        try:
            self.acknowledge()
            if yields:
                await trio.lowlevel.checkpoint()
                check()  # a change during the checkpoint woke no poll
            else:
                await trio.lowlevel.checkpoint_if_cancelled()
            return await self.buffer.poll(max_messages, wait, check)
        finally:
            self._is_polling = False

    def acknowledge(self) -> None:
        """Acknowledge all polled messages."""
        if self.buffer.acknowledge():
            self._resume_if_below_total()

    async def commit(self, offsets: Mapping[MessageQueue, int] | None) -> None:
        """Commit these offsets, or (None) acknowledge and commit all polled messages.

        Raises the first error if a commit fails.
        """
        if offsets is None:
            self.acknowledge()
            safe = {loop.queue: loop.safe_offset for loop in self.pulled}
            offsets = {queue: offset for queue, offset in safe.items() if offset is not None}
        await self._offsets.commit_offsets(offsets)

    async def commit_periodically(self) -> None:
        """Commit acknowledged messages every ``commit_interval`` seconds, until cancelled."""
        await self._offsets.open()
        while True:
            await trio.sleep(self._config.commit_interval)
            self.pulled.record_offsets()
            await self._offsets.commit()

    def statistics(self) -> dict[MessageQueue, QueueStatistics]:
        """Return the statistics of each assigned queue."""
        return self.pulled.statistics()

    def cached(self) -> Iterator[CachedMessages]:
        """Yield the unacknowledged messages in memory of each queue. Any thread may call this."""
        return self.pulled.cached()

    async def lag(self) -> Mapping[MessageQueue, int]:
        """Ask the brokers for the group's lag in each assigned queue."""
        return await query_lag(self._client, self.assignment(), self._offsets.query_committed)

    async def leave(self) -> None:
        """Drop all queues. With ``auto_commit``, acknowledged messages are committed."""
        await self.pulled.leave()

    def _pull_again(self, topic: str) -> None:
        """Restart the queues of a topic at their first unacknowledged message."""
        for queue in self.pulled.of_topic(topic):
            loop = self.pulled.find(queue)
            if loop is not None and loop.safe_offset is not None:
                loop.reset(loop.safe_offset)

    def _loop_of(self, queue: MessageQueue) -> PullLoop:
        loop = self.pulled.find(queue)
        if loop is None:
            raise NotAssignedError(
                f"{queue_name(queue)} is not assigned to this consumer of group {self._config.group!r}"
            )
        return loop

    # The owner of the assigned queues and of the rebalancer

    def subscribed_topics(self) -> Collection[str]:
        """Return the topics subscribed now."""
        return self._subscriptions.keys()

    def assigned_topics(self) -> Collection[str]:
        """Return the topics of which this member has queues now."""
        return self.pulled.topics()

    def deliver(self, process_queue: ProcessQueue) -> None:
        """Let polls return the waiting messages of a queue."""
        self.buffer.add(process_queue)

    def discard(self, process_queue: ProcessQueue) -> None:
        """Count the messages of a queue no more, because it was revoked or has moved."""
        self.buffer.recount(process_queue)
        self._resume_if_below_total()

    def new_lock(self, queue: MessageQueue) -> None:
        """Return None: the program polls the messages, so that no queue has a lock."""

    def flow_limits(self, queues: int) -> FlowLimits:
        """Return the limits of one queue of a topic of which this many queues are assigned."""
        limits = self._config.flow_limits(queues)
        if self.buffer.total <= self._config.pull_threshold_for_all:
            return limits
        self._is_over_total = True
        return FlowLimits(NO_SPACE, limits.size, limits.span)

    def _resume_if_below_total(self) -> None:
        """Resume the pull loops that paused because all queues together exceeded their limit."""
        if self._is_over_total and self.buffer.total <= self._config.pull_threshold_for_all:
            self._is_over_total = False
            for loop in self.pulled:
                loop.resume_if_space()
