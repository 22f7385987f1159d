"""The background tasks of a lite pull consumer, from its beginning to its end."""

from __future__ import annotations

from typing import Final

import trio

from rocketmq_py.client.client import Client
from rocketmq_py.consumer.group.broker_requests import BrokerRequests
from rocketmq_py.consumer.group.counters import Statistics
from rocketmq_py.consumer.group.membership import COMMIT_SHARE, DRAIN_SHARE, Membership
from rocketmq_py.consumer.group.rebalancer import Rebalancer
from rocketmq_py.consumer.group.subscriptions import Subscriptions
from rocketmq_py.consumer.lite_pull.assignment import Assignment
from rocketmq_py.consumer.lite_pull.config import LitePullConsumerConfig
from rocketmq_py.errors import SqlFilterRefusedError
from rocketmq_py.protocol.bodies import ConsumeType
from rocketmq_py.remoting.running import open_nursery


class LitePullSession:
    """Has the background tasks of a lite pull consumer, and joins its group when something is subscribed.

    Args:
        client: what it talks through.
        config: the consumer's settings.
        subscriptions: what is subscribed, by topic; may change.
        queues: what is shared out.
        statistics: how it is doing.

    Attributes:
        join: makes it a member of the group, as Membership has it.
    """

    def __init__(
        self,
        client: Client,
        config: LitePullConsumerConfig,
        subscriptions: Subscriptions,
        queues: Assignment,
        statistics: Statistics,
    ) -> None:
        self._client = client
        self._config = config
        self._subscriptions = subscriptions
        self._queues = queues
        self._statistics = statistics
        self._rebalancer = Rebalancer(
            client,
            config.group,
            allocate=config.allocate,
            interval=config.rebalance_interval,
            topics=subscriptions.keys,
            assigned=queues.topics,
            assign=queues.assign,
        )
        self._membership = Membership(
            client,
            config.group,
            subscriptions,
            ConsumeType.PULL,
            config.consume_from,
            members_changed=self._rebalancer.wake,
        )
        self.join: Final = self._membership.join
        self._stopping = trio.Event()
        self._ended: trio.Event | None = None

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Pull, share out and commit until :meth:`leave`, or until cancelled; then commit and leave.

        The leaving is shielded from a cancellation and takes part of ``close_timeout`` at the most.
        """
        self._ended = ended = trio.Event()
        forget_routes = self._client.on_route(self._rebalancer.route_changed)
        try:
            async with open_nursery() as nursery:
                self._queues.open(nursery)
                nursery.start_soon(self._share_out)
                nursery.start_soon(self._membership.keep_checking)
                nursery.start_soon(self._check_sql_filters)
                nursery.start_soon(self._queues.commit_now_and_then)
                nursery.start_soon(self._queues.track_progress)
                broker_requests = BrokerRequests(
                    self._client,
                    self._config.group,
                    describe=self._membership.describe,
                    properties={
                        "pullBatchSize": str(self._config.pull_batch_size),
                        "pullThresholdForAll": str(self._config.pull_threshold_for_all),
                        "pullThresholdForQueue": str(self._config.pull_threshold_for_queue),
                        "autoCommit": "true" if self._config.auto_commit else "false",
                    },
                    statistics=self._statistics,
                    nursery=nursery,
                    queues=self._queues.infos.infos,
                    offsets=self._queues.infos.offsets,
                )
                with broker_requests.answers():
                    task_status.started()
                    await self._stopping.wait()
                nursery.cancel_scope.cancel()
        finally:
            forget_routes()
            # No handlers have to end: commits have their time as well.
            await self._membership.leave(
                self._config.close_timeout, self._queues.leave, finish_share=DRAIN_SHARE + COMMIT_SHARE
            )
            ended.set()

    def subscription_changed(self, topic: str) -> None:
        """Have brokers told, and queues shared out, at once: the topic is subscribed otherwise."""
        self._queues.restart_pull(topic)
        self._rebalancer.announce()

    async def leave(self) -> None:
        """End :meth:`run` if it has begun, and return when it has ended."""
        if self._ended is not None:
            self._stopping.set()
            await self._ended.wait()

    async def _share_out(self) -> None:
        await self._membership.joined.wait()
        await self._rebalancer.run()

    async def _check_sql_filters(self) -> None:
        while True:
            try:
                await self._subscriptions.keep_checked()
            except SqlFilterRefusedError:
                self._queues.buffer.wake()  # whoever polls is told
