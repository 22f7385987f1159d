"""The base class of the consumers of a group: settings, subscriptions, hooks, traces and statistics."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import attrs
import trio

from rocketmq_py.arguments import check_not_blank
from rocketmq_py.client.client import Client, Member, core_of
from rocketmq_py.client.lifespan import from_any_thread
from rocketmq_py.client.settings import ClientSettings, split_options
from rocketmq_py.client.tracing import TraceDispatcher
from rocketmq_py.consumer.group.counters import CachedMessages, ConsumerCounters
from rocketmq_py.consumer.group.health import ConsumerHealth, health_of
from rocketmq_py.consumer.group.hooks import ConsumerHook, ConsumerHooks
from rocketmq_py.consumer.group.membership import FLUSH_SECONDS
from rocketmq_py.consumer.group.statistics import ConsumerStatistics, QueueStatistics, topic_statistics
from rocketmq_py.consumer.group.subscriptions import Subscriptions, check_sql_filter, subscription_of
from rocketmq_py.consumer.group.tracing import ConsumeTraceHook
from rocketmq_py.errors import ClosedError
from rocketmq_py.message import MessageQueue
from rocketmq_py.names import check_topic
from rocketmq_py.protocol.subscription import ALL


class ConsumerQueues(Protocol):
    """The queues of a consumer, as BaseConsumer and GroupConsumer need them."""

    def statistics(self) -> Mapping[MessageQueue, QueueStatistics]:
        """Return the statistics of each queue."""

    def cached(self) -> Iterator[CachedMessages]:
        """Yield the unacknowledged messages in memory of each queue. Any thread may call this."""

    async def lag(self) -> Mapping[MessageQueue, int]:
        """Ask the brokers for the group's lag in each queue."""


class BaseConsumer(Member):
    """The settings, hooks, traces and statistics of a consumer.

    Args:
        settings_class: the class of the settings. It has at least the fields ``group``, ``trace`` and
            ``close_timeout``.
        client: see Member.
        group: the consumer group.
        options: the settings, and those of a client of its own.
    """

    _settings: Any

    def __init__(
        self,
        settings_class: type[attrs.AttrsInstance],
        client: str | Client | None,
        *,
        group: str | None,
        options: Mapping[str, Any],
    ) -> None:
        own, shared = split_options(options, settings_class, ClientSettings, group=group)
        self._settings = settings = settings_class(**own)
        super().__init__(client, shared)
        self._close_timeout: float = self._settings.close_timeout
        self._group = group = self._settings.group
        timeout = getattr(settings, "consume_timeout", math.inf)
        self._hooks = ConsumerHooks(group, self._client.client_id, self._client.now_ms, timeout=timeout)
        self._counters = ConsumerCounters()
        self._final_statistics: ConsumerStatistics | None = None
        self._tracing: TraceDispatcher | None = None
        if trace := self._settings.trace:
            self._tracing = TraceDispatcher(self._client, group, trace)
            self._hooks.add(ConsumeTraceHook(self._tracing, self._client.unique_ids, self._client.now_ms))
        self._announce()

    @property
    def settings(self) -> Any:
        """The settings, of the class that each kind of consumer has."""

    @from_any_thread
    def add_hook(self, hook: ConsumerHook) -> Callable[[], None]:
        """Add a hook around the messages consumed from now on. Returns a function that removes it.

        Raises ConfigurationError if the hook lacks a method of ConsumerHook.
        """
        return self._hooks.add(hook)

    @property
    @from_any_thread
    def statistics(self) -> ConsumerStatistics:
        """A snapshot of the consumer's counters and of its progress in each queue.

        After the consumer was closed, the last snapshot. It can be read outside of ``trio.run``, too.
        """
        if self._final_statistics is not None:
            return self._final_statistics
        queues = self._consumer_queues()
        return ConsumerStatistics(
            topics={topic: topic_statistics(*values) for topic, values in self._counters.topics().items()},
            queues={} if queues is None else queues.statistics(),
        )

    @from_any_thread
    def health(self) -> ConsumerHealth:
        """Return whether it can consume. For readiness probes. Does not wait, see :meth:`Client.health`.

        A consumer that is not open or not running is unhealthy.
        """
        client = self._client.health()
        if not self.is_open:
            return ConsumerHealth(reasons=(str(self._not_open()),), client=client)
        queues = self._consumer_queues()
        return health_of(
            client,
            {} if queues is None else queues.statistics(),
            self._counters.last_error(),
            self._reasons_not_to_consume(),
        )

    def _reasons_not_to_consume(self) -> list[str]:
        """Return why the consumer is not ready, apart from its brokers."""
        return []

    def _consumer_queues(self) -> ConsumerQueues | None:
        """Return the queues of the consumer. None if it has none now."""
        return None

    async def _open(self) -> None:
        await super()._open()
        self._nursery.start_soon(self._counters.keep_sampling)
        if self._tracing is not None:
            self._nursery.start_soon(self._tracing.run)

    async def _close(self) -> None:
        if self._tracing is not None:
            with trio.move_on_after(FLUSH_SECONDS):
                await self._tracing.flush()
        await super()._close()

    def _abandon(self) -> None:
        self._final_statistics = self.statistics
        super()._abandon()


def metered_counters(consumer: BaseConsumer) -> ConsumerCounters:
    """Return the counters of a consumer, whose meters record from the first call of this function on."""
    consumer._counters.start_metering(core_of(consumer).now_ms)
    return consumer._counters


def cached_messages(consumer: BaseConsumer) -> list[CachedMessages]:
    """Return the unacknowledged messages in memory of each queue of a consumer. Any thread may call this."""
    queues = consumer._consumer_queues()
    return [] if queues is None else list(queues.cached())


class GroupConsumer(BaseConsumer):
    """A consumer that subscribes to topics as a member of a group.

    Args:
        settings_class, client, group, options: see BaseConsumer.
    """

    def __init__(
        self,
        settings_class: type[attrs.AttrsInstance],
        client: str | Client | None,
        *,
        group: str | None,
        options: Mapping[str, Any],
    ) -> None:
        super().__init__(settings_class, client, group=group, options=options)
        self._subscriptions = Subscriptions(self._client, self._group, self._subscription_changed)

    @from_any_thread
    def subscribe(self, topic: str, tags: str = ALL, *, sql: str | None = None) -> None:
        """Subscribe to a topic, or replace the filter of a subscription.

        Messages that do not match the filter are skipped for the whole group. Can be called before and while
        the consumer runs. If the topic does not exist yet the consumer waits for it. A SQL filter takes
        effect once a broker has accepted it. If a broker refuses it, the consuming method (:meth:`run`,
        :meth:`poll`, :meth:`receive`) raises SqlFilterRefusedError. Use :meth:`check_sql` to test a filter
        beforehand.

        Args:
            topic: the topic.
            tags: tags separated by ``||``, or ``*`` for all messages.
            sql: a SQL filter on message properties, instead of tags. Brokers evaluate it if their
                ``enablePropertyFilter`` is set (``MessageSelector.bySql``).

        Raises:
            ConfigurationError: the topic's name is invalid, ``tags`` contains no tag, ``sql`` is empty, or
                both are given. For a LitePullConsumer also: queues are assigned, or another consumer of the
                client is a member of the group.
        """
        subscription = subscription_of(check_topic(topic), tags, sql, version_ms=self._client.now_ms())
        self._before_subscribing()
        self._subscriptions.put(subscription)

    @from_any_thread
    def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from a topic. Does nothing if it is not subscribed."""
        self._subscriptions.remove(check_topic(topic))

    async def lag(self) -> Mapping[MessageQueue, int]:
        """Ask the brokers for the number of uncommitted messages in each queue of this consumer.

        Messages that a filter excludes count too. If the group has never consumed a queue, all its messages
        count. For queues that a push consumer pops from, the lag is the number of messages that have not been
        popped by any member. :attr:`statistics` has the last known lag without a request.

        Raises:
            ClosedError: the consumer is not open, or a PushConsumer is not running.
            TopicNotFoundError, NameServerError: a popped topic no longer has a route.
            BrokerError, NoQueueError, ConnectError, ConnectionLostError, RequestTimeoutError: a query failed.
        """
        self._check_open()
        queues = self._consumer_queues()
        if queues is None:
            raise ClosedError(f"this {type(self).__name__} is not running")
        return await queues.lag()

    async def check_sql(self, topic: str, sql: str) -> None:
        """Ask a broker of the topic whether it accepts a SQL filter, without subscribing.

        Raises:
            SqlFilterRefusedError: the broker refuses the filter. The error has its reason.
            TopicNotFoundError: the topic does not exist.
            ClosedError: the consumer is not open.
            NameServerError, BrokerError, NoQueueError, ConnectError, ConnectionLostError,
                RequestTimeoutError: no broker could be asked.
        """
        self._check_open()
        sql = check_not_blank(sql, "sql")
        subscription = subscription_of(check_topic(topic), ALL, sql, version_ms=self._client.now_ms())
        await check_sql_filter(self._client, self._group, subscription)

    def _reasons_not_to_consume(self) -> list[str]:
        return [] if self._subscriptions.topics else ["no topic is subscribed"]

    def _before_subscribing(self) -> None:
        """Prepare for a new subscription. Raise an error if the consumer cannot subscribe now."""

    def _subscription_changed(self, topic: str) -> None:
        """Apply a changed or removed subscription."""
        raise NotImplementedError
