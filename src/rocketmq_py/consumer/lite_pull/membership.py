"""A lite pull consumer's part in its group: from the first heartbeat to the leave-taking."""

from __future__ import annotations

import trio

from rocketmq_py.client.instance import ClientInstance
from rocketmq_py.consumer.group.rebalancer import Rebalancer
from rocketmq_py.consumer.group.subscriptions import Subscriptions
from rocketmq_py.consumer.lite_pull.assignment import PolledQueues
from rocketmq_py.consumer.lite_pull.config import LitePullConsumerConfig
from rocketmq_py.consumer.push.session import CONSUME_FROM_WHERE
from rocketmq_py.errors import ConditionRefusedError, ConfigurationError
from rocketmq_py.protocol.bodies import ConsumerData, ConsumeType, MessageModel

LEAVE_SHARE = 0.8
"""The part of ``close_timeout`` for commits and leave-taking. What is left is for the client."""


class LitePullMembership:
    """Has the background tasks of a lite pull consumer, and joins its group when something is subscribed.

    Args:
        client: what it talks through.
        config: the consumer's settings.
        subscriptions: what is subscribed, by topic; may change.
        queues: what is shared out.
    """

    def __init__(
        self,
        client: ClientInstance,
        config: LitePullConsumerConfig,
        subscriptions: Subscriptions,
        queues: PolledQueues,
    ) -> None:
        self._client = client
        self._config = config
        self._subscriptions = subscriptions
        self._queues = queues
        self._rebalancer = Rebalancer(
            client,
            config.group,
            allocate=config.allocate,
            interval=config.rebalance_interval,
            topics=subscriptions.keys,
            assigned=queues.topics,
            assign=queues.assign,
        )
        self._joined = trio.Event()
        self._stopping = trio.Event()
        self._ended: trio.Event | None = None

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Pull, share out and commit until :meth:`leave`, or until cancelled; then commit and leave.

        The leaving is shielded from a cancellation and takes part of ``close_timeout`` at the most.
        """
        self._ended = ended = trio.Event()
        forget_routes = self._client.on_route(self._rebalancer.route_changed)
        try:
            async with trio.open_nursery() as nursery:
                self._queues.open(nursery)
                nursery.start_soon(self._share_out)
                nursery.start_soon(self._check_conditions)
                nursery.start_soon(self._queues.commit_now_and_then)
                nursery.start_soon(self._queues.look_for_progress)
                task_status.started()
                await self._stopping.wait()
                nursery.cancel_scope.cancel()
        finally:
            forget_routes()
            with trio.move_on_after(self._config.close_timeout * LEAVE_SHARE, shield=True):
                await self._leave()
            ended.set()

    def join(self) -> None:
        """Become a member of the group, unless it is one.

        Raises:
            ConfigurationError: another consumer of the client is.
        """
        if self._joined.is_set():
            return
        heartbeats, group = self._client.heartbeats, self._config.group
        if heartbeats.has_consumer(group):
            raise ConfigurationError(
                f"a consumer of this client is in group {group!r} already: "
                "give each its own client, by opening it with an address"
            )
        heartbeats.add_consumer(group, self._describe)
        self._client.on_members_changed(group, self._rebalancer.wake)
        self._joined.set()

    def subscription_changed(self, topic: str) -> None:
        """Have brokers told, and queues shared out, at once: the topic is subscribed otherwise."""
        self._queues.pull_anew(topic)
        self._rebalancer.announce()

    async def leave(self) -> None:
        """End :meth:`run` if it has begun, and return when it has ended."""
        if self._ended is not None:
            self._stopping.set()
            await self._ended.wait()

    async def _share_out(self) -> None:
        await self._joined.wait()
        await self._rebalancer.run()

    async def _check_conditions(self) -> None:
        while True:
            try:
                await self._subscriptions.keep_checked()
            except ConditionRefusedError:
                self._queues.line.wake()  # whoever polls is told

    async def _leave(self) -> None:
        if self._joined.is_set():
            self._client.on_members_changed(self._config.group, None)
        await self._queues.leave()
        if self._joined.is_set():
            await self._client.heartbeats.remove_consumer(self._config.group)

    def _describe(self) -> ConsumerData:
        return ConsumerData(
            group_name=self._config.group,
            consume_type=ConsumeType.PULL,
            message_model=MessageModel.CLUSTERING,
            consume_from_where=CONSUME_FROM_WHERE[self._config.consume_from],
            subscription_data_set=tuple(self._subscriptions.values()),
        )
