"""One stay of a push consumer in its group: from the first heartbeat to the leave-taking."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Mapping
from functools import partial

import trio

from rocketmq_py.client.instance import ClientInstance
from rocketmq_py.consumer.config import ConsumeFrom, PushConsumerConfig
from rocketmq_py.consumer.handling import Handler, Handling
from rocketmq_py.consumer.offsets import RemoteOffsets, starting_offset
from rocketmq_py.consumer.pull_loop import PullLoop
from rocketmq_py.consumer.pulling import QueuePuller
from rocketmq_py.consumer.rebalancing import Rebalancer
from rocketmq_py.consumer.streak import Streak
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.protocol.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)

logger = logging.getLogger("rocketmq_py.consumer")

DRAIN_SHARE = 0.5
LEAVE_SHARE = 0.3
"""Parts of ``close_timeout``: for the handlers that are running, and for commits and leave-taking. What
is left is for the client, which closes after the consumer."""

FIRST_COMMIT_SECONDS = 1.0

_CONSUME_FROM_WHERE = {
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
        self._offsets = RemoteOffsets(client, config.group)
        self._loops: dict[str, dict[MessageQueue, PullLoop]] = {}
        self._streaks: defaultdict[str, Streak] = defaultdict(Streak)
        self._handling: Handling | None = None
        self._paused = False
        self._stopping = trio.Event()
        self.ended = trio.Event()
        self.rebalancer = Rebalancer(
            client,
            config.group,
            allocate=config.allocate,
            interval=config.rebalance_interval,
            topics=subscriptions.keys,
            assigned=self._loops.keys,
            assign=self._assign,
        )

    async def run(self) -> None:
        """Consume until :meth:`stop`, or until cancelled; then commit what was handled, and leave the group.

        When cancelled, the handlers are cancelled too, and their messages delivered again. The leaving is
        shielded from the cancellation and takes part of ``close_timeout`` at the most.
        """
        client, group = self._client, self._config.group
        client.heartbeats.add_consumer(group, self._describe)
        client.on_members_changed(group, self.rebalancer.wake)
        forget_routes = client.on_route(self.rebalancer.route_changed)
        try:
            await self._consume()
        finally:
            forget_routes()
            client.on_members_changed(group, None)
            try:
                with trio.move_on_after(self._config.close_timeout * LEAVE_SHARE, shield=True):
                    await self._leave()
            finally:
                self.ended.set()

    def stop(self) -> None:
        """Pull no more; :meth:`run` returns when the handlers that are running have ended."""
        self._stopping.set()
        if self._handling is not None:
            self._handling.close()

    def pause(self, paused: bool) -> None:
        """Stop pulling for the time being, or go on."""
        self._paused = paused
        for loop in self._all_loops():
            loop.pause(paused)

    def queues(self) -> list[MessageQueue]:
        """Return the queues that this member has now, sorted."""
        return sorted(loop.queue for loop in self._all_loops())

    async def _consume(self) -> None:
        async with trio.open_nursery() as handlers:
            handling = Handling(handlers, self._handle, self._config.concurrency, self._send_back)
            self._handling = handling
            async with trio.open_nursery() as self._background:
                self._background.start_soon(self.rebalancer.run)
                self._background.start_soon(self._commit_now_and_then)
                await self._stopping.wait()
                self._background.cancel_scope.cancel()
            with trio.move_on_after(self._config.close_timeout * DRAIN_SHARE):
                await handling.drain()
            handlers.cancel_scope.cancel()

    async def _leave(self) -> None:
        self._note_offsets()
        for loop in self._all_loops():
            loop.drop()
        # First the offsets: whoever gets the queues begins there.
        await self._offsets.confirm_all()
        await self._client.heartbeats.remove_consumer(self._config.group)

    def _all_loops(self) -> list[PullLoop]:
        return [loop for loops in self._loops.values() for loop in loops.values()]

    def _describe(self) -> ConsumerData:
        return ConsumerData(
            group_name=self._config.group,
            consume_type=ConsumeType.PUSH,
            message_model=MessageModel.CLUSTERING,
            consume_from_where=_CONSUME_FROM_WHERE[self._config.consume_from],
            subscription_data_set=tuple(self._subscriptions.values()),
        )

    # Queues

    async def _assign(self, topic: str, queues: Collection[MessageQueue]) -> None:
        """Have these queues of the topic and no other."""
        loops = self._loops.setdefault(topic, {})
        # The topic may have been unsubscribed while the round was under way.
        wanted = set(queues) if topic in self._subscriptions else set()
        given_up = [queue for queue in loops if queue not in wanted]
        for queue in given_up:
            offset = loops.pop(queue).drop()
            if offset is not None:
                self._offsets.update(queue, offset)
        taken_up = sorted(wanted.difference(loops))
        for queue in taken_up:
            loops[queue] = self._start_loop(queue)
        if not loops:
            del self._loops[topic]
        if given_up or taken_up:
            logger.info(
                "group %s: topic %s: %d queues, of which %d are new; %d given up",
                self._config.group, topic, len(loops), len(taken_up), len(given_up),
            )  # fmt: skip
        await self._offsets.write(given_up)
        for queue in given_up:
            self._offsets.forget(queue)

    def _start_loop(self, queue: MessageQueue) -> PullLoop:
        config, client = self._config, self._client
        assert self._handling is not None
        subscribed = self._subscriptions[queue.topic]
        puller = QueuePuller(
            client,
            config.group,
            queue,
            batch_size=config.pull_batch_size,
            hold=config.pull_hold,
            timeout=config.pull_timeout,
        )
        loop = PullLoop(
            puller,
            config.flow_limits,
            subscription=lambda: self._subscriptions.get(queue.topic, subscribed),
            start=partial(
                starting_offset, client, self._offsets, queue, config.consume_from, self._timestamp_ms
            ),
            may_commit=partial(self._offsets.has_entry, queue),
            deliver=self._handling.offer,
            spoil_route=partial(client.routes.spoil, queue.topic),
            streak=self._streaks[queue.broker_name],
        )
        loop.pause(self._paused)
        self._background.start_soon(loop.run)
        return loop

    # Messages and offsets

    async def _send_back(self, message: ReceivedMessage) -> None:
        await self._client.brokers.send_back(
            message,
            self._config.group,
            delay_level=0,
            max_reconsume_times=self._config.max_reconsume_times,
        )

    async def _commit_now_and_then(self) -> None:
        # The first commits make room on the brokers for those that the pulls carry: they come early.
        pause = min(FIRST_COMMIT_SECONDS, self._config.commit_interval)
        while True:
            await trio.sleep(pause)
            self._note_offsets()
            await self._offsets.write()
            pause = self._config.commit_interval

    def _note_offsets(self) -> None:
        for loop in self._all_loops():
            if loop.held is not None:
                self._offsets.update(loop.queue, loop.held.safe_offset)
