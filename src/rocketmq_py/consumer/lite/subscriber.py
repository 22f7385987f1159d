"""The subscription of a client to lite topics, on every broker of their parent topic."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Set
from contextlib import contextmanager
from functools import partial
from typing import Final
from weakref import WeakKeyDictionary, WeakSet

import trio

from rocketmq_py.client.core import ClientCore
from rocketmq_py.client.features import LITE_TOPICS
from rocketmq_py.client.flow_control import ask_within
from rocketmq_py.client.proxies import unsupported_by_proxy
from rocketmq_py.client.retry_log import RetryLogs
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.consumer.group.concurrent_queries import run_for_each
from rocketmq_py.errors import ConfigurationError, RocketMQError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.protocol.bodies import (
    LiteSubscription,
    LiteSubscriptionAction,
    LiteSubscriptions,
    OffsetOption,
)
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import LiteSubscriptionRequest, NotifyUnsubscribeLiteRequest
from rocketmq_py.remoting import Connection
from rocketmq_py.remoting.answer_errors import broker_error
from rocketmq_py.remoting.nurseries import open_nursery

logger: Final = LibraryLogger("rocketmq_py.consumer")

RENEW_SECONDS: Final = 30.0
"""Seconds between two renewals of the subscription. Brokers forget it after 3 minutes without a renewal
(liteSubscriptionCheckTimeoutMills)."""


_subscribing_clients: WeakSet[ClientCore] = WeakSet()
"""The clients with an open subscriber. Brokers keep one subscription for each client."""


class LiteSubscriber:
    """Subscribes a client to lite topics on every broker of the parent topic, and renews the subscription.

    Brokers keep subscriptions in memory. They forget them when they restart, and after 3 minutes without a
    renewal. Every broker needs the subscription, because the number of queues determines the broker of a lite
    topic, and may change. Java: ``LiteSubscriptionServiceImpl`` of the gRPC client.

    Args:
        client: sends the requests.
        group: the consumer group.
        parent: the parent topic.
        check_open: raises ClosedError if the consumer is not open.

    Attributes:
        lite_topics: the lite topics.
    """

    def __init__(
        self,
        client: ClientCore,
        group: str,
        parent: str,
        *,
        check_open: Callable[[], None],
    ) -> None:
        self._client = client
        self._group = group
        self._parent = parent
        self._check_open = check_open
        self._renew_logs = RetryLogs(logger, "renewal of lite topics", "broker", group=group)
        # The connections over which lite topics were sent, with the names of their brokers. A new connection
        # may lead to a broker that has restarted.
        self._current: WeakKeyDictionary[Connection, str] = WeakKeyDictionary()
        # Brokers handle the requests of a connection in several threads, so the answer to one change must
        # arrive before the next one is sent.
        self._locks: defaultdict[str, trio.Lock] = defaultdict(trio.Lock)
        self.lite_topics: set[str] = set()
        self._is_paused = False
        # Calls of subscribe() and unsubscribe() run one after the other, so that a call that fails can undo
        # its own changes only.
        self._changing = trio.Lock()
        self._subscribing: Set[str] = frozenset()  # the lite topics of the running call of subscribe()
        # Its new lite topics, and the brokers that have not answered yet. Renewals to these brokers leave the
        # new lite topics out: they have no start position, so the broker would start elsewhere.
        self._added: Set[str] = frozenset()
        self._unanswered: set[str] = set()

    @contextmanager
    def serve(self) -> Iterator[None]:
        """Handle the notices of brokers that end a subscription, while the block runs.

        Raises:
            ConfigurationError: the client has another consumer of lite topics.
        """
        if self._client in _subscribing_clients:
            raise ConfigurationError(
                "another consumer of this client subscribes to lite topics, and brokers keep one "
                "subscription for each client. Give each its own client by opening it with an address"
            )
        _subscribing_clients.add(self._client)
        forget = self._client.add_request_handler(NotifyUnsubscribeLiteRequest, self._unsubscribed_by_broker)
        try:
            yield
        finally:
            forget()
            _subscribing_clients.discard(self._client)

    async def subscribe(self, lite_topics: Collection[str], start: OffsetOption | None) -> None:
        """Add lite topics on every broker.

        If a broker fails, raise its error after the others have answered. Then, and if cancelled, the lite
        topics are not subscribed: brokers that have added them drop them with the next renewal.
        """
        async with self._changing:
            broker_names = await self._broker_names()
            self._subscribing = frozenset(lite_topics)
            self._added = self._subscribing - self.lite_topics
            self._unanswered = set(broker_names)
            self.lite_topics |= self._added
            is_done = False

            async def add(broker_name: str) -> None:
                try:
                    await self._change(broker_name, LiteSubscriptionAction.PARTIAL_ADD, lite_topics, start)
                finally:
                    self._unanswered.discard(broker_name)

            try:
                await run_for_each(broker_names, add)
                is_done = True
            finally:
                if not is_done:
                    self.lite_topics -= self._added
                self._subscribing = self._added = frozenset()

    async def unsubscribe(self, lite_topics: Collection[str]) -> None:
        """Remove lite topics on every broker.

        If a broker fails, raise its error after the others have answered. Its renewal drops them.
        """
        self.lite_topics.difference_update(lite_topics)  # now, in case that this is cancelled
        async with self._changing:
            self.lite_topics.difference_update(lite_topics)  # a call of subscribe() may have added them
            await run_for_each(
                await self._broker_names(),
                lambda broker_name: self._change(
                    broker_name, LiteSubscriptionAction.PARTIAL_REMOVE, lite_topics
                ),
            )

    async def keep_renewing(self) -> None:
        """Renew the subscription on every broker periodically, until cancelled."""
        while True:
            await trio.sleep(RENEW_SECONDS)
            try:
                broker_names = await self._broker_names()
            except RocketMQError as error:
                self._renew_logs.failed("", error)
                continue
            async with open_nursery() as nursery:
                for broker_name in broker_names:
                    nursery.start_soon(self._renew, broker_name)

    async def ensure_current(self, broker_name: str, connection: Connection) -> None:
        """Send the subscription over a new connection, before a pop.

        Raises:
            UnsupportedByBrokerError: the broker is older than 5.5.0.
            BrokerError, and the errors of ``Connection.request``: the request failed.
        """
        check_version(connection)
        if connection in self._current or not self.lite_topics:
            return
        async with self._locks[broker_name]:
            await self._ensure_current_locked(broker_name, connection)

    async def leave(self) -> None:
        """Forget the lite topics, and remove the subscription from all brokers as :meth:`pause` does."""
        self.lite_topics.clear()
        await self.pause()

    def resume(self) -> None:
        """Subscribe again after :meth:`pause`, with the next pop or renewal."""
        self._is_paused = False

    async def pause(self) -> None:
        """Remove the subscription from all brokers with an open connection. Failures are logged.

        Brokers do not notice that a consumer has left. Without this request they would offer it messages, and
        hand them to another one only after a while.
        """
        self._is_paused = True  # so that no renewal restores the subscription
        async with open_nursery() as nursery:
            for connection, broker_name in list(self._current.items()):
                if not connection.is_closed:
                    nursery.start_soon(self._leave, broker_name, connection)

    async def _leave(self, broker_name: str, connection: Connection) -> None:
        try:
            async with self._locks[broker_name]:
                await self._remove_all(connection)
        except RocketMQError as error:
            logger.info(
                "unsubscribing from lite topics failed: group=%s parent=%s broker=%s error=%s",
                self._group, self._parent, connection.address, error,
            )  # fmt: skip

    async def _change(
        self,
        broker_name: str,
        action: LiteSubscriptionAction,
        lite_topics: Collection[str],
        start: OffsetOption | None = None,
    ) -> None:
        async with self._locks[broker_name]:
            connection = await self._connect(broker_name)
            self._check_open()  # no broker may get lite topics after leave()
            await self._ensure_current_locked(broker_name, connection)
            self._current[connection] = broker_name
            await self._send(connection, action, lite_topics, start)

    async def _renew(self, broker_name: str) -> None:
        try:
            async with self._locks[broker_name]:
                connection = await self._connect(broker_name)
                if self._is_paused:
                    return
                if self.lite_topics:
                    await self._send_all(broker_name, connection)
                elif connection in self._current:  # the broker may have lite topics of a change that failed
                    await self._remove_all(connection)
        except RocketMQError as error:
            self._renew_logs.failed(broker_name, error, retry_in=RENEW_SECONDS)
        else:
            self._renew_logs.succeeded(broker_name)

    async def _ensure_current_locked(self, broker_name: str, connection: Connection) -> None:
        if connection not in self._current:
            await self._send_all(broker_name, connection)

    async def _send_all(self, broker_name: str, connection: Connection) -> None:
        """Send the lite topics, without those that ``subscribe`` sends with their start position."""
        is_unanswered = broker_name in self._unanswered
        lite_topics = self.lite_topics - self._added if is_unanswered else self.lite_topics
        if lite_topics:
            await self._send(connection, LiteSubscriptionAction.COMPLETE_ADD, lite_topics)
            self._current[connection] = broker_name

    async def _remove_all(self, connection: Connection) -> None:
        await self._send(connection, LiteSubscriptionAction.COMPLETE_REMOVE, ())
        self._current.pop(connection, None)

    async def _broker_names(self) -> list[str]:
        route = await self._client.routes.get(self._parent)
        return sorted({queue.broker_name for queue in (*route.read_queues, *route.write_queues)})

    async def _connect(self, broker_name: str) -> Connection:
        client = self._client
        deadline = trio.current_time() + client.settings.request_timeout
        connection = await client.heartbeats.connect(client.routes.broker_address(broker_name), deadline)
        check_version(connection)
        return connection

    async def _send(
        self,
        connection: Connection,
        action: LiteSubscriptionAction,
        lite_topics: Iterable[str],
        start: OffsetOption | None = None,
    ) -> None:
        client = self._client
        subscription = LiteSubscription(
            action=action,
            client_id=client.client_id,
            group=self._group,
            topic=self._parent,
            lite_topic_set=tuple(sorted(lite_topics)),
            offset_option=start,
            version=client.now_ms(),
        )
        body = LiteSubscriptions(subscription_set=(subscription,))
        ask = partial(client.brokers.call_over, connection, LiteSubscriptionRequest(), body)
        answer = await ask_within(client.settings.request_timeout, ask)
        if answer.code != ResponseCode.SUCCESS:
            raise broker_error(answer.code, answer.remark, connection.address)

    def _unsubscribed_by_broker(
        self, connection: Connection, _: Command, header: NotifyUnsubscribeLiteRequest
    ) -> bool:
        """Drop a lite topic that another member of an exclusive group has subscribed to."""
        is_own_group = self._client.namespace.same_group(header.consumer_group, self._group)
        if header.client_id != self._client.client_id or not is_own_group:
            return False
        # Brokers 5.5.0 also send a notice to a client that subscribes again itself.
        if header.lite_topic in self.lite_topics and header.lite_topic not in self._subscribing:
            self.lite_topics.discard(header.lite_topic)
            logger.info(
                "unsubscribed by the broker: group=%s parent=%s lite_topic=%s broker=%s",
                self._group, self._parent, header.lite_topic, connection.address,
            )  # fmt: skip
        return True


def check_version(connection: Connection) -> None:
    """Raise UnsupportedByBrokerError if the broker has no lite topics."""
    if connection.peer_is_proxy:
        raise unsupported_by_proxy(connection.address, RequestCode.POP_LITE_MESSAGE)
    LITE_TOPICS.check(connection)
