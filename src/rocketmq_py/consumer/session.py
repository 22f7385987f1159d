"""One stay of a push consumer in its group: from the first heartbeat to the leave-taking."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import trio

from rocketmq_py.client.instance import ClientInstance
from rocketmq_py.consumer.answering import Answering
from rocketmq_py.consumer.calling import Caller, Handler
from rocketmq_py.consumer.config import ConsumeFrom, PushConsumerConfig
from rocketmq_py.consumer.giving_back import GivingBack
from rocketmq_py.consumer.handling import Handling
from rocketmq_py.consumer.local_offsets import LocalOffsets, default_folder, offsets_path
from rocketmq_py.consumer.offsets import RemoteOffsets, starting_offset
from rocketmq_py.consumer.orderly import OrderlyHandling
from rocketmq_py.consumer.pulling import queue_name
from rocketmq_py.consumer.queues import Queues
from rocketmq_py.consumer.rebalancing import Rebalancer
from rocketmq_py.consumer.results import DEAD_LETTER
from rocketmq_py.consumer.statistics import SAMPLE_SECONDS, Statistics
from rocketmq_py.consumer.workers import Workers
from rocketmq_py.errors import NoQueueError
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)

DRAIN_SHARE = 0.5
LEAVE_SHARE = 0.3
"""Parts of ``close_timeout``: for the handlers that are running, and for commits and leave-taking. What
is left is for the client, which closes after the consumer."""

FIRST_COMMIT_SECONDS = 1.0

CONSUME_FROM_WHERE = {
    ConsumeFrom.LAST: ConsumeFromWhere.LAST_OFFSET,
    ConsumeFrom.FIRST: ConsumeFromWhere.FIRST_OFFSET,
    ConsumeFrom.TIMESTAMP: ConsumeFromWhere.TIMESTAMP,
}


class Session:
    """A member of a group at work. Java: ``DefaultMQPushConsumerImpl`` between start and shutdown.

    Args:
        client: what it talks through.
        config: the consumer's settings.
        subscriptions: what is subscribed, by topic; may change while it runs.
        timestamp_ms: the time of ConsumeFrom.TIMESTAMP.
        handle: the user's handler.
    """

    def __init__(
        self,
        client: ClientInstance,
        config: PushConsumerConfig,
        subscriptions: Mapping[str, SubscriptionData],
        timestamp_ms: int,
        handle: Handler,
    ) -> None:
        self._client = client
        self._config = config
        self._subscriptions = subscriptions
        self._timestamp_ms = timestamp_ms
        self._handle = handle
        self._offsets = _offset_store(client, config)
        self._statistics = Statistics()
        self._queues = Queues(
            client, config, subscriptions, self._offsets, begin_at=self._begin_at, statistics=self._statistics
        )
        self._handling: Workers | None = None
        self._stopping = trio.Event()
        self.ended = trio.Event()
        self.rebalancer = Rebalancer(
            client,
            config.group,
            allocate=None if config.broadcasting else config.allocate,
            interval=config.rebalance_interval,
            topics=subscriptions.keys,
            assigned=self._queues.topics,
            assign=self._queues.assign,
        )

    async def run(self) -> None:
        """Consume until :meth:`stop`, or until cancelled; then commit what was handled, and leave the group.

        When cancelled, the handlers are cancelled too, and their messages delivered again. The leaving is
        shielded from the cancellation and takes part of ``close_timeout`` at the most.
        """
        try:
            await self._offsets.open()
            try:
                await self._be_member()
            finally:
                self._offsets.close()
        finally:
            self.ended.set()

    async def _be_member(self) -> None:
        client, group = self._client, self._config.group
        client.heartbeats.add_consumer(group, self._describe)
        client.on_members_changed(group, self.rebalancer.wake)
        forget_routes = client.on_route(self.rebalancer.route_changed)
        try:
            await self._consume()
        finally:
            forget_routes()
            client.on_members_changed(group, None)
            with trio.move_on_after(self._config.close_timeout * LEAVE_SHARE, shield=True):
                await self._leave()

    def stop(self) -> None:
        """Pull no more; :meth:`run` returns when the handlers that are running have ended."""
        self._stopping.set()
        if self._handling is not None:
            self._handling.close()

    def pause(self, paused: bool) -> None:
        """Stop pulling for the time being, or go on."""
        self._queues.pause(paused)

    def queues(self) -> list[MessageQueue]:
        """Return the queues that this member has now, sorted."""
        return sorted(loop.queue for loop in self._queues)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return where the group goes on in a queue, as it was last written."""
        return await self._offsets.committed(queue)

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on from ``offset`` in a queue that this member has."""
        if self._queues.find(queue) is None:
            raise NoQueueError(f"{queue_name(queue)} is not one of this member's queues now")
        await self._queues.go_on_from({queue: offset})

    async def _consume(self) -> None:
        config = self._config
        close_timeout = config.close_timeout
        async with trio.open_nursery() as handlers:
            caller = Caller(self._handle, config.concurrency, in_lists=config.batch_size is not None)
            handling = self._handling = self._open_handling(handlers, caller)
            handling.thread_grace = close_timeout * DRAIN_SHARE
            handlers.start_soon(self._queues.keep_locks)
            async with trio.open_nursery() as background:
                self._queues.open(background, handling.offer)
                background.start_soon(self.rebalancer.run)
                background.start_soon(self._commit_now_and_then)
                background.start_soon(self._look_now_and_then)
                answering = Answering(
                    self._client,
                    config,
                    describe=self._describe,
                    started_ms=self._client.now_ms(),
                    queues=self._queues,
                    statistics=self._statistics,
                    caller=caller,
                    nursery=handlers,
                )
                with answering.answers():
                    await self._stopping.wait()
                background.cancel_scope.cancel()
            with trio.move_on_after(close_timeout * DRAIN_SHARE):
                await handling.drain()
            handling.thread_grace = 0
            handlers.cancel_scope.cancel()

    def _open_handling(self, nursery: trio.Nursery, caller: Caller) -> Workers:
        config = self._config
        giving = GivingBack(self._client, config.group, max_reconsume_times=config.reconsume_limit)
        if config.orderly:
            return OrderlyHandling(
                nursery,
                caller,
                concurrency=config.concurrency,
                batch_size=config.batch_size,
                auto_commit=config.auto_commit,
                suspend=config.suspend_current_queue,
                max_reconsume_times=config.reconsume_limit,
                give_up=partial(giving.send_copy, delay_level=DEAD_LETTER),
            )
        return Handling(
            nursery,
            caller,
            concurrency=config.concurrency,
            batch_size=config.batch_size,
            timeout=config.consume_timeout,
            give_back=giving.drop if config.broadcasting else giving.give_back,
        )

    async def _leave(self) -> None:
        try:
            await self._queues.leave()
        finally:
            await self._client.heartbeats.remove_consumer(self._config.group)

    def _describe(self) -> ConsumerData:
        return ConsumerData(
            group_name=self._config.group,
            consume_type=ConsumeType.PUSH,
            message_model=MessageModel.BROADCASTING if self._config.broadcasting else MessageModel.CLUSTERING,
            consume_from_where=CONSUME_FROM_WHERE[self._config.consume_from],
            subscription_data_set=tuple(self._subscriptions.values()),
        )

    async def _begin_at(self, queue: MessageQueue) -> int:
        return await starting_offset(
            self._client, self._offsets, queue, self._config.consume_from, self._timestamp_ms
        )

    async def _commit_now_and_then(self) -> None:
        # The first commits make room on the brokers for those that the pulls carry: they come early.
        pause = min(FIRST_COMMIT_SECONDS, self._config.commit_interval)
        while True:
            await trio.sleep(pause)
            self._queues.note_offsets()
            await self._offsets.write()
            pause = self._config.commit_interval

    async def _look_now_and_then(self) -> None:
        while True:
            await trio.sleep(SAMPLE_SECONDS)
            self._statistics.sample()
            self._queues.look_for_progress()


def _offset_store(client: ClientInstance, config: PushConsumerConfig) -> RemoteOffsets | LocalOffsets:
    if not config.broadcasting:
        return RemoteOffsets(client, config.group)
    folder = default_folder() if config.local_offsets is None else Path(config.local_offsets)
    path = offsets_path(folder, client, config.group)
    return LocalOffsets(client, config.group, path, interval=config.commit_interval)
