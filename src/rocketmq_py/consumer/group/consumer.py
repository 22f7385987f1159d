"""What all consumers of a group have: settings, subscriptions, hooks, traces and statistics."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import attrs
import trio

from rocketmq_py.arguments import check_instances, check_not_blank
from rocketmq_py.callables import check_callable
from rocketmq_py.client.client import Client
from rocketmq_py.client.config import ClientConfig, split_options
from rocketmq_py.client.member import Member
from rocketmq_py.client.tracing import TraceDispatcher
from rocketmq_py.consumer.group.counters import Statistics
from rocketmq_py.consumer.group.hooks import ConsumerHook, ConsumerHooks
from rocketmq_py.consumer.group.map_over_brokers import map_over_brokers
from rocketmq_py.consumer.group.statistics import (
    ConsumerStatistics,
    QueueStatistics,
    TopicStatistics,
)
from rocketmq_py.consumer.group.subscriptions import Subscriptions, check_sql_filter, subscription_of
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
    """A consumer that subscribes to topics in the name of a group.

    Args:
        kind: the class of its settings, which has at least ``group``, ``trace`` and ``close_timeout``.
        client, rng: as Member has them.
        configs, group, options: its settings, and those of a client of its own, as split_options takes them.
        now_ms: what subscriptions are dated with, epoch milliseconds.
    """

    config: Any

    def __init__(
        self,
        kind: type[attrs.AttrsInstance],
        client: str | Client | None,
        *,
        configs: Sequence[attrs.AttrsInstance],
        group: str | None,
        options: Mapping[str, Any],
        rng: random.Random | None,
        now_ms: Callable[[], int],
    ) -> None:
        check_callable(now_ms, "now_ms", awaited=False)
        own, shared = split_options(options, kind, ClientConfig, configs=configs, group=group)
        config: Any = kind(**own)
        self.config = config
        super().__init__(client, rng, shared)
        client = self.client
        self.close_timeout: float = config.close_timeout
        self._now_ms = now_ms
        self._group = group = config.group
        self._subscriptions = Subscriptions(client, group, self._subscription_changed)
        timeout = getattr(config, "consume_timeout", math.inf)
        self._hooks = ConsumerHooks(group, client.client_id, client.now_ms, timeout=timeout)
        self._statistics = Statistics()
        self._tracing: TraceDispatcher | None = None
        if trace := config.trace:
            self._tracing = TraceDispatcher(client, group, TRACE_TOPIC if trace is True else trace)
            self._hooks.add(ConsumeTraceHook(self._tracing, client.unique_ids, client.now_ms))

    def subscribe(self, topic: str, tags: str = ALL, *, sql: str | None = None) -> None:
        """Consume a topic from now on, or other messages of it than before.

        What does not match is done with for the whole group. May be called before and while the consumer is
        at work; a topic that does not exist is waited for. Brokers are asked whether they accept a SQL filter
        before it takes effect: if they do not, what consumes (:meth:`run`, :meth:`poll`, :meth:`receive`)
        raises. To know before, use :meth:`check_sql`.

        Args:
            topic: the topic.
            tags: tags with ``||`` between, or ``*`` for all messages.
            sql: a SQL filter on the messages' properties instead, which brokers evaluate if their
                ``enablePropertyFilter`` is set (``MessageSelector.bySql``).

        Raises:
            ConfigurationError: no topic can have this name, ``tags`` names no tag, ``sql`` is empty, or both
                are given; of a LitePullConsumer also: queues are assigned, or another consumer of this client
                is in the group.
        """
        subscription = subscription_of(check_topic(topic), tags, sql, version_ms=self._now_ms())
        self._before_subscribing()
        self._subscriptions.put(subscription)

    def unsubscribe(self, topic: str) -> None:
        """Consume a topic no more; nothing happens if it is not subscribed."""
        self._subscriptions.remove(check_topic(topic))

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

    async def begin_offsets(self, queues: Iterable[MessageQueue]) -> Mapping[MessageQueue, int]:
        """Ask the brokers for the offset of the oldest message of each queue (of an empty one: its end).

        The queues may be any, of this consumer or not. Java: ``MQAdmin.minOffset``.

        Raises:
            ClosedError: the consumer is not open.
            BrokerError, NoQueueError, ConnectError, ConnectionLostError, RequestTimeoutError: a queue's
                broker does not say it.
        """
        self._check_open()
        checked = check_instances(queues, "queues", MessageQueue)
        return await map_over_brokers(checked, self.client.brokers.min_offset)

    async def end_offsets(self, queues: Iterable[MessageQueue]) -> Mapping[MessageQueue, int]:
        """Ask the brokers for the offset that the next message of each queue will get.

        Otherwise as :meth:`begin_offsets`. Java: ``MQAdmin.maxOffset``.
        """
        self._check_open()
        checked = check_instances(queues, "queues", MessageQueue)
        return await map_over_brokers(checked, self.client.brokers.max_offset)

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
        """Ask a broker of the topic whether it accepts a SQL filter; nothing is subscribed.

        Raises:
            SqlFilterRefusedError: it does not, for the reason that the error has.
            TopicNotFoundError: there is no such topic. ClosedError: the consumer is not open.
            NameServerError, BrokerError, NoQueueError, ConnectError, ConnectionLostError,
            RequestTimeoutError: nobody can tell.
        """
        self._check_open()
        sql = check_not_blank(sql, "sql")
        subscription = subscription_of(check_topic(topic), ALL, sql, version_ms=self._now_ms())
        await check_sql_filter(self.client, self._group, subscription)

    def _before_subscribing(self) -> None:
        """Raise if nothing may be subscribed now."""

    def _subscription_changed(self, topic: str) -> None:
        """See to a topic of which something else is wanted now."""
        raise NotImplementedError

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
