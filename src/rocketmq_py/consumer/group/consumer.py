"""What all consumers of a group have: hooks, traces, statistics, and questions about conditions."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import trio

from rocketmq_py.client.instance import ClientInstance
from rocketmq_py.client.member import Member
from rocketmq_py.client.tracing import TraceDispatcher
from rocketmq_py.consumer.group.counters import Statistics
from rocketmq_py.consumer.group.hooks import ConsumerHook, ConsumerHooks
from rocketmq_py.consumer.group.statistics import (
    ConsumerStatistics,
    QueueStatistics,
    TopicStatistics,
)
from rocketmq_py.consumer.group.subscriptions import check_condition, subscription_of
from rocketmq_py.consumer.group.tracing import ConsumeTraceHook
from rocketmq_py.errors import ClosedError
from rocketmq_py.message import MessageQueue
from rocketmq_py.names import TRACE_TOPIC, check_topic
from rocketmq_py.protocol.subscription import ALL

FLUSH_SHARE = 0.1
"""The part of ``close_timeout`` for the trace records that have not been sent yet."""


class Consumed(Protocol):
    """The queues that a consumer has."""

    def statistics(self) -> Mapping[MessageQueue, QueueStatistics]:
        """Return how far it is in each."""

    async def lag(self) -> Mapping[MessageQueue, int]:
        """Ask the brokers how far its group is behind in each."""


class GroupConsumer(Member):
    """A consumer whose user may have it looked at, and may ask about conditions.

    Args:
        client, rng, options: as Member has them.
        group: the consumer group.
        trace: whether to trace what is consumed: True, or the topic for the records.
        consume_timeout: seconds after which a handler took too long.
    """

    _now_ms: Callable[[], int]  # what subscriptions are dated with

    def __init__(
        self,
        client: ClientInstance | str | None,
        rng: random.Random | None,
        options: dict[str, Any],
        *,
        group: str,
        trace: bool | str,
        consume_timeout: float = math.inf,
    ) -> None:
        super().__init__(client, rng, options)
        client = self.client
        self._group = group
        self._hooks = ConsumerHooks(group, client.client_id, client.now_ms, timeout=consume_timeout)
        self._statistics = Statistics()
        self._tracing: TraceDispatcher | None = None
        if trace:
            self._tracing = TraceDispatcher(client, group, TRACE_TOPIC if trace is True else trace)
            self._hooks.add(ConsumeTraceHook(self._tracing, client.unique_ids, client.now_ms))

    def add_hook(self, hook: ConsumerHook) -> Callable[[], None]:
        """Have a hook called around what is consumed from now on; returns what removes it."""
        return self._hooks.add(hook)

    @property
    def statistics(self) -> ConsumerStatistics:
        """What it has done until now, and how far it is."""
        consumed = self._consumed()
        return ConsumerStatistics(
            topics={topic: TopicStatistics.of(*both) for topic, both in self._statistics.topics().items()},
            queues={} if consumed is None else consumed.statistics(),
        )

    async def lag(self) -> Mapping[MessageQueue, int]:
        """Ask the brokers how many messages are not committed, of each of the queues that this consumer has.

        Messages that a filter leaves out count as well; so does all that there is in a queue in which the
        group has never been. Where brokers have a push consumer pop, it is what no member has come to. What
        is known without asking is in :attr:`statistics`.

        Raises:
            ClosedError: the consumer is not open, or a PushConsumer does not run.
            TopicNotFoundError, NameServerError: a topic that is popped has no route any more.
            BrokerError, NoQueueError, ConnectError, ConnectionLostError, RequestTimeoutError: a queue's
            broker does not say it.
        """
        self._check_open()
        consumed = self._consumed()
        if consumed is None:
            raise ClosedError(f"this {type(self).__name__} is not running")
        return await consumed.lag()

    async def check_sql(self, topic: str, sql: str) -> None:
        """Ask a broker of the topic whether it accepts a SQL92 condition; nothing is subscribed.

        Raises:
            ConditionRefusedError: it does not, for the reason that the error has.
            TopicNotFoundError: there is no such topic. ClosedError: the consumer is not open.
            NameServerError, BrokerError, NoQueueError, ConnectError, ConnectionLostError,
            RequestTimeoutError: nobody can tell.
        """
        self._check_open()
        subscription = subscription_of(check_topic(topic), ALL, sql, version_ms=self._now_ms())
        await check_condition(self.client, self._group, subscription)

    def _consumed(self) -> Consumed | None:
        """Return what knows the queues; None if there are none now."""
        return None

    async def _open(self) -> None:
        await super()._open()
        self.nursery.start_soon(self._statistics.keep_sampling)
        if self._tracing is not None:
            self.nursery.start_soon(self._tracing.run)

    async def _close(self) -> None:
        if self._tracing is not None:
            with trio.move_on_after(self.close_timeout * FLUSH_SHARE):
                await self._tracing.flush()
        await super()._close()
