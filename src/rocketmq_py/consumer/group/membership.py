"""Membership of a consumer group: join, announce subscriptions in heartbeats, and leave."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final

import trio

from rocketmq_py.client.core import ClientCore
from rocketmq_py.consumer.group.rebalancer import Rebalancer
from rocketmq_py.consumer.group.subscriptions import filter_of
from rocketmq_py.errors import ConfigurationError, RocketMQError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.names import RETRY_PREFIX
from rocketmq_py.position import Position, PositionKind
from rocketmq_py.protocol.bodies import (
    ConsumeFromWhere,
    ConsumerConnection,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from rocketmq_py.protocol.headers import GetConsumerConnectionListRequest

logger: Final = LibraryLogger("rocketmq_py.consumer")

COMMIT_SECONDS = 1.5
UNREGISTER_SECONDS = 0.75
FLUSH_SECONDS = 0.5
"""Maximum seconds to commit, to unregister from the brokers, and to send the remaining trace records."""
LEAVE_SECONDS = 3.0
"""Maximum seconds for all of them together, and for the client, which closes after the consumer."""

SETTLE_SECONDS = 2.0
"""Seconds to wait after a change in a group before subscriptions are compared. The other members may be about
to announce the same change."""

MAX_REMEMBERED_DIFFERENCES = 100
"""The number of different warnings after which a consumer logs no more. Each is logged once."""

_CONSUME_FROM_WHERE = {
    PositionKind.LATEST: ConsumeFromWhere.LAST_OFFSET,
    PositionKind.EARLIEST: ConsumeFromWhere.FIRST_OFFSET,
    PositionKind.TIME: ConsumeFromWhere.TIMESTAMP,
    PositionKind.AGO: ConsumeFromWhere.TIMESTAMP,
}


class Membership:
    """A consumer's membership of its group. Java: ``MQClientInstance.registerConsumer``.

    Args:
        client: sends the heartbeats.
        group: the consumer group.
        subscriptions: the current subscriptions by topic. Each heartbeat announces them.
        consume_type: how the consumer consumes.
        consume_from: where a new group starts.
        model: whether a message goes to one member, to every member, or to the subscribers of a lite topic.
        rebalancer: starts a round when a broker reports that the members have changed. None for consumers
            whose queues are not assigned.

    Attributes:
        joined: set while the consumer is a member.
    """

    def __init__(
        self,
        client: ClientCore,
        group: str,
        subscriptions: Mapping[str, SubscriptionData],
        consume_type: ConsumeType,
        consume_from: Position,
        *,
        model: MessageModel = MessageModel.CLUSTERING,
        rebalancer: Rebalancer | None = None,
    ) -> None:
        self._client = client
        self._group = group
        self._subscriptions = subscriptions
        self._consume_type = consume_type
        self._consume_from = consume_from
        self._model = model
        self._rebalancer = rebalancer
        self._comparison = _SubscriptionComparison(client, group)
        self._change_reported = trio.Event()
        self.joined: trio.Event = trio.Event()

    def describe(self) -> ConsumerData:
        """Return the consumer's entry in heartbeats."""
        return ConsumerData(
            group_name=self._group,
            consume_type=self._consume_type,
            message_model=self._model,
            consume_from_where=_CONSUME_FROM_WHERE[self._consume_from.kind],
            subscription_data_set=tuple(self._subscriptions.values()),
        )

    def check_sole_member(self) -> None:
        """Raise ConfigurationError if another consumer of the client is a member of the group."""
        if self._client.heartbeats.has_consumer(self._group):
            raise ConfigurationError(
                f"another consumer of this client is already a member of group {self._group!r}. "
                "Give each consumer its own client by opening it with an address"
            )

    def join(self) -> None:
        """Become a member: all heartbeats from now on announce it. Does nothing if it is a member already.

        Raises:
            ConfigurationError: another consumer of the client is a member of the group.
        """
        if self.joined.is_set():
            return
        self.check_sole_member()
        self._client.heartbeats.add_consumer(self._group, self.describe)
        self._client.watch_members(self._group, self._report_change)
        self.joined.set()

    async def keep_comparing_subscriptions(self) -> None:
        """Warn about members that subscribe differently, until cancelled.

        Queries one broker after each change of the members or of their subscriptions.
        """
        while True:
            await self._change_reported.wait()
            await trio.sleep(SETTLE_SECONDS)
            self._change_reported = trio.Event()
            await self._comparison.run(self.describe())

    def _report_change(self) -> None:
        self._change_reported.set()
        if self._rebalancer is not None:
            self._rebalancer.wake()

    async def leave(
        self,
        commit: Callable[[], Awaitable[None]] | None = None,
        *,
        commit_seconds: float = COMMIT_SECONDS,
    ) -> None:
        """Commit offsets or acknowledge messages, then unregister, so that the brokers reassign the queues.

        Shielded from cancellation. The consumer leaves even if ``commit`` takes longer than
        ``commit_seconds`` or raises. If unregistering times out it continues while the client is open.
        """
        is_member = self.joined.is_set()
        if is_member:
            self._client.watch_members(self._group, None)
        try:
            if commit is not None:
                with trio.move_on_after(commit_seconds, shield=True):
                    await commit()
        finally:
            if is_member:
                self.joined = trio.Event()
                with trio.move_on_after(UNREGISTER_SECONDS, shield=True):
                    await self._client.heartbeats.remove_consumer(self._group)


class _SubscriptionComparison:
    """Compares a member's subscriptions with those that a broker has for its group.

    A broker keeps one subscription per topic and group: the one that was announced last. Members with
    different subscriptions therefore lose messages.
    """

    def __init__(self, client: ClientCore, group: str) -> None:
        self._client = client
        self._group = group
        self._logged: set[str] = set()

    async def run(self, own: ConsumerData) -> None:
        """Query one broker, and log each difference once."""
        broker_name = self._first_broker(own)
        if broker_name is None:
            return
        try:
            address = self._client.routes.broker_address(broker_name)
            header = GetConsumerConnectionListRequest(consumer_group=self._group)
            connection = await self._client.brokers.read(address, header, ConsumerConnection.decode)
        except RocketMQError as error:
            logger.debug(
                "could not query the subscriptions of a group: group=%s broker=%s error=%s",
                self._group, broker_name, error,
            )  # fmt: skip
            return
        for difference in self._differences(own, connection):
            if difference not in self._logged and len(self._logged) < MAX_REMEMBERED_DIFFERENCES:
                self._logged.add(difference)
                logger.warning(
                    "members subscribe differently and lose messages: group=%s broker=%s: %s",
                    self._group, broker_name, difference,
                )  # fmt: skip

    def _first_broker(self, own: ConsumerData) -> str | None:
        """Return a broker of a subscribed topic. None while no route is known."""
        for subscription in own.subscription_data_set:
            route = self._client.routes.get_nowait(subscription.topic)
            if route is not None and route.brokers and not route.is_default:
                return min(route.brokers)
        return None

    def _differences(self, own: ConsumerData, connection: ConsumerConnection) -> Iterator[str]:
        """Yield the differences between this member and the broker's answer. Ignores retry topics."""
        if connection.message_model not in (None, own.message_model):
            yield f"this member is {own.message_model}, another member is {connection.message_model}"
        others = connection.subscription_table
        mine = {subscription.topic: subscription for subscription in own.subscription_data_set}
        for topic in sorted({*others, *mine}):
            if topic.startswith(RETRY_PREFIX):
                continue
            if topic not in others:
                yield f"only this member subscribes to topic {topic}, another one does not"
            elif topic not in mine:
                yield f"this member does not subscribe to topic {topic}, another one does"
            elif filter_of(others[topic]) != filter_of(mine[topic]):
                yield (
                    f"this member subscribes to topic {topic} with {mine[topic].sub_string!r}, "
                    f"another one with {others[topic].sub_string!r}"
                )
