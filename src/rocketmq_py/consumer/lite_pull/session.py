"""The background tasks of a lite pull consumer."""

from __future__ import annotations

import trio

from rocketmq_py.client.core import ClientCore
from rocketmq_py.consumer.group.assignment_listener import AssignmentListener
from rocketmq_py.consumer.group.counters import ConsumerCounters
from rocketmq_py.consumer.group.hooks import ConsumerHooks
from rocketmq_py.consumer.group.membership import FLUSH_SECONDS, UNREGISTER_SECONDS, Membership
from rocketmq_py.consumer.group.operator_requests import OperatorRequests
from rocketmq_py.consumer.group.rebalancer import Rebalancer
from rocketmq_py.consumer.group.subscriptions import Subscriptions
from rocketmq_py.consumer.lite_pull.assignment import Assignment
from rocketmq_py.consumer.lite_pull.settings import LitePullConsumerSettings
from rocketmq_py.errors import SqlFilterRefusedError
from rocketmq_py.position import check_position
from rocketmq_py.protocol.bodies import ConsumeType
from rocketmq_py.remoting.nurseries import open_nursery


class LitePullSession:
    """Runs the background tasks of a lite pull consumer, and joins its group at the first subscription.

    Args:
        client: sends the requests.
        config: the consumer's settings.
        subscriptions: the current subscriptions by topic.
        created_ms: the time when the consumer was created, epoch milliseconds, from which ``consume_from``
            may count back.
        hooks: called around polled messages.
        listener: called when queues are assigned or revoked.
        counters: the consumer's counters.

    Attributes:
        queues: the assigned queues.
    """

    def __init__(
        self,
        client: ClientCore,
        config: LitePullConsumerSettings,
        subscriptions: Subscriptions,
        *,
        created_ms: int,
        hooks: ConsumerHooks,
        listener: AssignmentListener | None,
        counters: ConsumerCounters,
    ) -> None:
        self._client = client
        self._config = config
        self._subscriptions = subscriptions
        self.queues: Assignment = Assignment(
            client,
            config,
            subscriptions,
            consume_from=check_position(config.consume_from, "consume_from", now_ms=created_ms),
            hooks=hooks,
            listener=listener,
            counters=counters,
        )
        self._counters = counters
        self._rebalancer = Rebalancer(
            client,
            config.group,
            self.queues,
            allocate=config.allocate,
            interval=config.rebalance_interval,
        )
        self._membership = Membership(
            client,
            config.group,
            subscriptions,
            ConsumeType.PULL,
            config.consume_from,
            rebalancer=self._rebalancer,
        )
        self._stopping = trio.Event()
        self._ended: trio.Event | None = None

    def join(self) -> None:
        """Join the group. See Membership."""
        self._membership.join()

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Pull, rebalance and commit until :meth:`leave` is called or the task is cancelled.

        Joins the group first if a topic is subscribed. In the end commits the offsets and leaves the group,
        which is shielded from cancellation and takes at most ``close_timeout``.
        """
        if self._subscriptions.topics:
            self.join()
        self._ended = ended = trio.Event()
        forget_routes = self._client.watch_routes(self._rebalancer.route_changed)
        try:
            async with open_nursery() as nursery:
                self.queues.open(nursery)
                nursery.start_soon(self._rebalance)
                nursery.start_soon(self._membership.keep_comparing_subscriptions)
                nursery.start_soon(self._check_sql_filters)
                nursery.start_soon(self.queues.commit_periodically)
                nursery.start_soon(self.queues.pulled.track_progress)
                operator_requests = OperatorRequests(
                    self._client,
                    self._config.group,
                    membership=self._membership,
                    properties={
                        "pullBatchSize": str(self._config.pull_batch_size),
                        "pullThresholdForAll": str(self._config.pull_threshold_for_all),
                        "pullThresholdForQueue": str(self._config.pull_threshold_for_queue),
                        "autoCommit": "true" if self._config.auto_commit else "false",
                    },
                    counters=self._counters,
                    nursery=nursery,
                    pulled=self.queues.infos,
                )
                with operator_requests.serve():
                    task_status.started()
                    await self._stopping.wait()
                nursery.cancel_scope.cancel()
        finally:
            self._stopping.set()
            forget_routes()
            # There are no handlers to wait for, so the commits get the rest of the time.
            rest = self._config.close_timeout - UNREGISTER_SECONDS - FLUSH_SECONDS
            await self._membership.leave(self.queues.leave, commit_seconds=max(rest, 0))
            ended.set()

    @property
    def is_running(self) -> bool:
        """Whether :meth:`run` has joined the group, if a topic was subscribed, and does not end yet."""
        return self._ended is not None and not self._stopping.is_set()

    @property
    def is_member(self) -> bool:
        """Whether the consumer has joined its group."""
        return self._membership.joined.is_set()

    def subscription_changed(self, topic: str) -> None:
        """Apply a changed subscription: restart its pull requests, send a heartbeat and rebalance."""
        self.queues.pulled.restart_pull(topic)
        self._rebalancer.announce()

    async def leave(self) -> None:
        """Stop :meth:`run` if it was started, and wait until it has ended."""
        if self._ended is not None:
            self._stopping.set()
            await self._ended.wait()

    async def _rebalance(self) -> None:
        await self._membership.joined.wait()
        await self._rebalancer.run()

    async def _check_sql_filters(self) -> None:
        while True:
            try:
                await self._subscriptions.keep_checking_filters()
            except SqlFilterRefusedError:
                self.queues.buffer.wake()  # a waiting poll raises the error
