"""The session of a push consumer: its membership of the group, from joining to leaving."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Set
from pathlib import Path
from typing import Any

import trio

from rocketmq_py.client.core import ClientCore
from rocketmq_py.consumer.group.assignment_listener import AssignmentListener
from rocketmq_py.consumer.group.concurrent_queries import query_lag
from rocketmq_py.consumer.group.counters import CachedMessages, ConsumerCounters
from rocketmq_py.consumer.group.hooks import ConsumerHooks
from rocketmq_py.consumer.group.local_offset_commits import LocalOffsetStore, default_folder, offsets_path
from rocketmq_py.consumer.group.membership import Membership
from rocketmq_py.consumer.group.offset_commits import RemoteOffsetStore, StartingOffsets
from rocketmq_py.consumer.group.operator_requests import OperatorRequests
from rocketmq_py.consumer.group.queue_locks import QueueLock
from rocketmq_py.consumer.group.rebalancer import Rebalancer
from rocketmq_py.consumer.group.statistics import QueueStatistics
from rocketmq_py.consumer.group.subscriptions import Subscriptions
from rocketmq_py.consumer.pop.assigned_queues import PopAssignedQueues
from rocketmq_py.consumer.pull.assigned_queues import AssignedQueues
from rocketmq_py.consumer.pull.message_buffer import MessageBuffer
from rocketmq_py.consumer.pull.running_info import RunningInfo
from rocketmq_py.consumer.push.base_dispatch import Dispatch
from rocketmq_py.consumer.push.concurrent_dispatch import ConcurrentDispatch
from rocketmq_py.consumer.push.direct_consumption import DirectConsumption
from rocketmq_py.consumer.push.handler import Handler
from rocketmq_py.consumer.push.handler_failures import FailedMessages
from rocketmq_py.consumer.push.orderly_dispatch import OrderlyDispatch
from rocketmq_py.consumer.push.queue_moves import TAKEOVER_SECONDS, QueueMoves
from rocketmq_py.consumer.push.send_back import DroppedMessages, SendBack, SendBackOrPopLater
from rocketmq_py.consumer.read.queue_range import exact_offset_of
from rocketmq_py.consumer.settings import FlowLimits, PushConsumerSettings
from rocketmq_py.errors import NoQueueError
from rocketmq_py.message import MessageQueue, queue_name
from rocketmq_py.names import RETRY_PREFIX
from rocketmq_py.position import Position
from rocketmq_py.protocol.bodies import ConsumeType, MessageModel
from rocketmq_py.protocol.subscription import make_subscription
from rocketmq_py.remoting.nurseries import open_nursery

FIRST_COMMIT_SECONDS = 1.0
"""Delay of the first commit, if ``commit_interval`` is longer."""


class Session:
    """One run of a push consumer. Java: ``DefaultMQPushConsumerImpl`` between start and shutdown.

    Args:
        client: the client that sends the requests.
        config: the consumer's settings.
        subscriptions: the subscriptions by topic. They may change while the session runs.
        consume_from: where a new group starts, not of the kind AGO.
        handle: the user's handler.
        hooks: called around each handler call.
        counters: the consumer's counters.
        listener: called when queues are assigned or revoked. None for no listener.

    Attributes:
        rebalancer: assigns queues to this member.
        stopping: set by :meth:`stop`.
        ended: set when :meth:`run` has returned.
    """

    def __init__(
        self,
        client: ClientCore,
        config: PushConsumerSettings,
        subscriptions: Subscriptions,
        consume_from: Position,
        handle: Handler,
        *,
        hooks: ConsumerHooks,
        counters: ConsumerCounters,
        listener: AssignmentListener | None,
    ) -> None:
        self._client = client
        self._config = config
        self._subscriptions = subscriptions
        self._handle = handle
        self._hooks = hooks
        self._offsets = _offset_store(client, config)
        self._counters = counters
        moves = None if config.orderly or config.broadcasting else QueueMoves(client, config.group, counters)
        self._moves = moves
        self._queues = AssignedQueues(
            client,
            config,
            subscriptions,
            self._offsets,
            self,
            starts=StartingOffsets(client, self._offsets, consume_from),
            counters=self._counters,
            listener=listener,
            moves=moves,
        )
        self._popped = PopAssignedQueues(client, config, subscriptions, counters, self)
        self._dispatch: Dispatch[Any] | None = None
        self.rebalancer: Rebalancer = Rebalancer(
            client,
            config.group,
            self,
            allocate=None if config.broadcasting else config.allocate,
            interval=config.rebalance_interval,
            # Ordered consumers never pop: Java's client pops messages then and dispatches none of them.
            popping=None if config.orderly else self,
        )
        self._membership = Membership(
            client,
            config.group,
            subscriptions,
            ConsumeType.PUSH,
            consume_from,
            model=MessageModel.BROADCASTING if config.broadcasting else MessageModel.CLUSTERING,
            rebalancer=self.rebalancer,
        )
        self.stopping: trio.Event = trio.Event()
        self._checking = trio.CancelScope()
        self.ended: trio.Event = trio.Event()

    async def run(self) -> None:
        """Consume until :meth:`stop` or until cancelled. Then commit offsets and leave the group.

        When cancelled, the handlers are cancelled too, and their messages are delivered again. Leaving is
        shielded from the cancellation and takes at most 3 seconds.
        """
        try:
            self._membership.check_sole_member()
            with self._checking:
                await self._subscriptions.check_filters()
            await self._offsets.open()
            try:
                await self._run_as_member()
            finally:
                self._offsets.close()
        finally:
            self.ended.set()

    async def _run_as_member(self) -> None:
        self._membership.join()
        forget_routes = self._client.watch_routes(self.rebalancer.route_changed)
        try:
            await self._consume()
        finally:
            forget_routes()
            await self._membership.leave(self._commit_all)

    def stop(self) -> None:
        """Stop pulling, and let :meth:`run` return when the running handlers have ended."""
        self.stopping.set()
        self._checking.cancel()
        if self._dispatch is not None:
            self._dispatch.close()

    def cut_off(self) -> None:
        """Wait for the running handlers no longer, after :meth:`stop`."""
        if self._dispatch is not None:
            self._dispatch.cut_off()

    def subscription_changed(self, topic: str) -> None:
        """Send the changed subscription to the brokers, and restart the pulls of the topic."""
        self._queues.restart_pull(topic)
        self.rebalancer.announce()

    def pause(self, paused: bool, queues: Set[MessageQueue] | None = None) -> None:
        """Pause or resume pulling these queues. None stands for all queues."""
        self._queues.pause(paused, queues)
        self._popped.pause(paused, queues)

    def assignment(self) -> list[MessageQueue]:
        """Return the queues assigned to this member, sorted."""
        return sorted([*self._pulled(), *[loop.queue for loop in self._popped]])

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the committed offset of a queue, or None."""
        return await self._offsets.query_committed(queue)

    def statistics(self) -> dict[MessageQueue, QueueStatistics]:
        """Return the statistics of each assigned queue."""
        return {**self._queues.statistics(), **self._popped.statistics()}

    def cached(self) -> Iterator[CachedMessages]:
        """Yield the unacknowledged messages in memory of each queue."""
        yield from self._queues.cached()
        yield from self._popped.cached()

    async def lag(self) -> Mapping[MessageQueue, int]:
        """Ask the brokers for the group's lag in each assigned queue."""
        queues = {*self._pulled(), *await self._popped.read_queues()}
        return await query_lag(self._client, queues, self._offsets.query_committed)

    async def seek(self, queue: MessageQueue, position: Position) -> None:
        """Continue an assigned queue at a position, not of the kind AGO."""
        self._check_pulled(queue)
        offset = await exact_offset_of(self._client, self._config.group, queue, position)
        self._check_pulled(queue)  # it may have been revoked in the meantime
        await self._queues.seek({queue: offset})

    def _check_pulled(self, queue: MessageQueue) -> None:
        if self._queues.find(queue) is None:
            raise NoQueueError(
                f"cannot seek: {queue_name(queue)} is not assigned to this consumer, or it is popped"
            )

    def _pulled(self) -> list[MessageQueue]:
        return sorted(loop.queue for loop in self._queues)

    async def _consume(self) -> None:
        config = self._config
        async with open_nursery() as handlers:
            dispatch = self._dispatch = self._open_dispatch(handlers)
            handlers.start_soon(self._queues.keep_locks)
            async with open_nursery() as background:
                self._queues.open(background)
                self._popped.open(background, handlers)
                background.start_soon(self.rebalancer.run)
                background.start_soon(self._membership.keep_comparing_subscriptions)
                background.start_soon(self._subscriptions.keep_checking_filters)
                background.start_soon(self._commit_periodically)
                background.start_soon(self._queues.track_progress)
                operator_requests = OperatorRequests(
                    self._client,
                    config.group,
                    membership=self._membership,
                    properties=_properties(config),
                    counters=self._counters,
                    nursery=handlers,
                    pulled=RunningInfo(self._client, self._queues),
                    popped=self._popped,
                    handler=DirectConsumption(dispatch.executor, config),
                )
                with operator_requests.serve():
                    await self.stopping.wait()
                background.cancel_scope.cancel()
            handlers.start_soon(self._hand_over, handlers)
            await dispatch.drain_within(config.close_timeout, config.group)
            handlers.cancel_scope.cancel()

    def _open_dispatch(self, nursery: trio.Nursery) -> Dispatch[Any]:
        config = self._config
        send_back = SendBack(
            self._client, config.group, self._counters, max_reconsume_times=config.reconsume_limit
        )
        failed_messages: FailedMessages = SendBackOrPopLater(send_back, self._popped.acknowledger)
        if config.broadcasting:
            failed_messages = DroppedMessages(config.group)
        if config.orderly:
            return OrderlyDispatch(
                nursery, self._handle, config, dead_letter_queue=failed_messages, hooks=self._hooks
            )
        dispatch = ConcurrentDispatch(
            nursery, self._handle, config, failed_messages=failed_messages, hooks=self._hooks
        )
        if self._moves is not None:
            self._moves.dispatch = dispatch
        return dispatch

    # The owner of the assigned queues and of the rebalancer

    def flow_limits(self, queues: int) -> FlowLimits:
        """Return the limits of one queue of a topic of which this many queues are assigned."""
        return self._config.flow_limits(queues)

    def new_lock(self, queue: MessageQueue) -> QueueLock | None:
        """Return a new lock of a queue that is consumed in order. None for a queue without a lock."""
        config = self._config
        if not config.orderly:
            return None
        return QueueLock(
            queue,
            # Broadcasting only serializes the calls, without a lock on the broker.
            held_until=math.inf if config.broadcasting else -math.inf,
            interval=config.lock_interval,
            max_live_time=config.lock_max_live_time,
        )

    def deliver(self, process_queue: MessageBuffer) -> None:
        """Dispatch the waiting messages of a queue."""
        assert self._dispatch is not None
        self._dispatch.offer(process_queue)

    def discard(self, process_queue: MessageBuffer) -> None:
        """Do nothing: handlers drop a revoked queue themselves."""

    def subscribed_topics(self) -> Collection[str]:
        """Return the topics subscribed now."""
        return self._subscriptions.keys()

    def assigned_topics(self) -> Collection[str]:
        """Return the topics of which this member has queues now."""
        return {*self._queues.topics(), *self._popped.topics()}

    async def assign(self, topic: str, queues: Collection[MessageQueue]) -> None:
        """Change the pulled queues of a topic to these."""
        if self._moves is not None and not self.rebalancer.is_alone:
            self._queues.takeover_seconds = TAKEOVER_SECONDS
        await self._queues.assign(topic, queues)

    async def _hand_over(self, nursery: trio.Nursery) -> None:
        """Leave the group while handlers still run, so that other members get the queues.

        Without locks this repeats the messages of the running handlers. So if there is no other member, the
        queues are kept until the handlers have ended. Popped messages have no such restriction.
        """
        nursery.start_soon(self._popped.hand_over)
        if self._config.orderly or not self.rebalancer.is_alone:
            await self._queues.hand_over(nursery)
            await self._membership.leave()

    def assign_popped(self, topic: str, queues: Collection[MessageQueue]) -> None:
        """Pop from these queues. If there are none, pull the topic's pop retry topic."""
        if not topic.startswith(RETRY_PREFIX):
            retries = self._client.namespace.popped_topic(topic, self._config.group)
            if queues:
                self._subscriptions.remove(retries)
            elif topic in self._subscriptions and retries not in self._subscriptions:
                self._subscriptions.put(make_subscription(retries, version_ms=self._client.now_ms()))
        self._popped.assign(topic, queues)

    async def _commit_all(self) -> None:
        async with open_nursery() as nursery:
            nursery.start_soon(self._popped.leave)
            nursery.start_soon(self._queues.leave)

    async def _commit_periodically(self) -> None:
        # Pulls carry offsets only after a first commit has created the group's entry on the broker.
        pause = min(FIRST_COMMIT_SECONDS, self._config.commit_interval)
        while True:
            await trio.sleep(pause)
            self._queues.record_offsets()
            await self._offsets.commit()
            pause = self._config.commit_interval


def _properties(config: PushConsumerSettings) -> dict[str, str]:
    return {
        "consumeThreadMax": str(config.concurrency),
        "consumeMessageBatchMaxSize": str(config.batch_size or 1),
        "pullBatchSize": str(config.pull_batch_size),
        "pullThresholdForQueue": str(config.pull_threshold_for_queue),
        "popInvisibleTime": str(round(config.invisible * 1000)),
        "popBatchNums": str(config.pop_batch_nums),
        "popThresholdForQueue": str(config.pop_threshold),
        "maxReconsumeTimes": str(config.reconsume_limit),
        "consumeTimeout": str(config.consume_timeout / 60),
        "PROP_CONSUMEORDERLY": "true" if config.orderly else "false",
        "PROP_THREADPOOL_CORE_SIZE": str(config.concurrency),
    }


def _offset_store(client: ClientCore, config: PushConsumerSettings) -> RemoteOffsetStore | LocalOffsetStore:
    if not config.broadcasting:
        return RemoteOffsetStore(client, config.group)
    folder = default_folder() if config.local_offsets is None else Path(config.local_offsets)
    path = offsets_path(folder, client, config.group)
    return LocalOffsetStore(client, config.group, path, interval=config.commit_interval)
