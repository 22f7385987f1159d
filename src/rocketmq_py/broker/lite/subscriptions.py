"""The subscriptions of clients to lite topics (Java: ``LiteSubscriptionRegistryImpl``)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

import attrs
import trio

from rocketmq_py.broker.state import BrokerState
from rocketmq_py.names import split_lite_queue
from rocketmq_py.protocol.bodies import ClientGroup, OffsetOption, OffsetOptionType
from rocketmq_py.protocol.headers import NotifyUnsubscribeLiteRequest
from rocketmq_py.remoting import Connection

CHECK_SECONDS = 120.0
"""Seconds between two searches for forgotten subscriptions (liteSubscriptionCheckInterval)."""
FORGET_SECONDS = 180.0
"""Seconds without a renewal after which a subscription is forgotten (liteSubscriptionCheckTimeoutMills)."""

FROM_FIRST, FROM_END = 1, 2
"""Values of an OffsetOption of the type POLICY."""
_FIRST_MESSAGE = OffsetOption(type=OffsetOptionType.POLICY, value=FROM_FIRST)

BIND_TOPIC = "lite.bind.topic"
"""A group attribute: the parent topic."""
_EXCLUSIVE = ("lite.sub.model", "Exclusive")
_WILDCARD = ("lite.sub.wildcard", "true")
_RESET_WHEN_EXCLUDED = ("lite.sub.reset.offset.exclusive", "true")
_RESET_WHEN_UNSUBSCRIBED = ("lite.sub.reset.offset.unsubscribe", "true")


class QuotaExceededError(Exception):
    """All clients together have too many subscriptions."""


class WildcardGroupError(Exception):
    """The group receives all lite topics of its parent topic, and cannot subscribe to single ones."""


@attrs.define(eq=False)
class LiteSubscription:
    """The lite topics of a client.

    Attributes:
        client_id, group, parent: the client, its group and the parent topic.
        queues: the names of the queues of the lite topics.
        updated_at: the time of the last change or renewal, on trio's clock.
    """

    client_id: str
    group: str
    parent: str
    queues: dict[str, None] = attrs.field(factory=dict)
    updated_at: float = attrs.field(factory=trio.current_time)

    @property
    def subscriber(self) -> ClientGroup:
        """The client and its group."""
        return ClientGroup(client_id=self.client_id, group=self.group)


class LiteSubscriptionOwner(Protocol):
    """The processor whose subscriptions a table has."""

    def subscribed(self, group: str, queue: str) -> None:
        """Called when a client of a group has subscribed to a queue."""

    def unsubscribed(self, client_id: str) -> None:
        """Called when the whole subscription of a client was removed."""

    def reset(self, group: str, queue: str, option: OffsetOption) -> None:
        """Move a group to a position in a queue."""


class LiteSubscriptionTable:
    """The subscriptions of all clients, by client and by queue.

    Args:
        state: the broker's tables.
        owner: the processor of the subscriptions.
    """

    def __init__(self, state: BrokerState, owner: LiteSubscriptionOwner) -> None:
        self._state = state
        self._owner = owner
        self._by_client: dict[str, LiteSubscription] = {}
        self._by_queue: dict[str, dict[ClientGroup, None]] = {}
        self._connections: dict[str, Connection] = {}  # by client id, for notices

    @property
    def count(self) -> int:
        """The number of subscriptions: one for each client and lite topic."""
        return sum(map(len, self._by_queue.values()))

    def find(self, client_id: str) -> LiteSubscription | None:
        """Return the subscription of a client, or None."""
        return self._by_client.get(client_id)

    def of_group(self, group: str) -> list[LiteSubscription]:
        """Return the subscriptions of a group's clients."""
        return [one for one in self._by_client.values() if one.group == group]

    def subscribers_of(self, queue: str) -> dict[str, list[ClientGroup]]:
        """Return the subscribers of a queue by group."""
        groups: dict[str, list[ClientGroup]] = {}
        for subscriber in self._by_queue.get(queue, ()):
            groups.setdefault(subscriber.group, []).append(subscriber)
        return groups

    def connect(self, client_id: str, connection: Connection) -> None:
        """Send notices for a client over ``connection`` from now on."""
        self._connections[client_id] = connection

    def add(
        self, client_id: str, group: str, parent: str, queues: Collection[str], start: OffsetOption | None
    ) -> None:
        """Add queues to a client's subscription. In an exclusive group, other clients lose them.

        Args:
            client_id: the client.
            group: its group.
            parent: the parent topic.
            queues: the names of the queues.
            start: the position from which the group consumes the queues; None for where it stopped.

        Raises:
            QuotaExceededError: there are too many subscriptions.
            WildcardGroupError: the group does not subscribe to single lite topics.
        """
        limit = self._state.config.max_lite_subscription_count
        if self.count >= limit:
            raise QuotaExceededError(f"lite subscription quota exceeded {limit}")
        if self._has(group, _WILDCARD):
            raise WildcardGroupError("subscribe lite operation is not supported for this group")
        subscription = self._get_or_create(client_id, group, parent)
        is_exclusive = self._has(group, _EXCLUSIVE)
        for queue in queues:
            self._touch(subscription)
            subscription.queues[queue] = None
            if is_exclusive:
                self._exclude_others(group, queue)
            if start is not None:
                self._owner.reset(group, queue, start)
            self._link(subscription.subscriber, queue)

    def remove(self, client_id: str, group: str, parent: str, queues: Collection[str]) -> None:
        """Remove queues from a client's subscription."""
        subscription = self._get_or_create(client_id, group, parent)
        is_reset = self._has(group, _RESET_WHEN_UNSUBSCRIBED)
        for queue in queues:
            self._touch(subscription)
            subscription.queues.pop(queue, None)
            if self._unlink(subscription.subscriber, queue) and is_reset:
                self._owner.reset(group, queue, _FIRST_MESSAGE)

    def replace(self, client_id: str, group: str, parent: str, queues: Collection[str]) -> None:
        """Replace the queues of a client's subscription."""
        subscription = self._get_or_create(client_id, group, parent)
        for queue in [queue for queue in subscription.queues if queue not in queues]:
            self._touch(subscription)
            del subscription.queues[queue]
            self._unlink(subscription.subscriber, queue)
        for queue in queues:
            self._touch(subscription)
            subscription.queues[queue] = None
            self._link(subscription.subscriber, queue)

    def remove_client(self, client_id: str) -> None:
        """Remove the subscription of a client."""
        self._connections.pop(client_id, None)
        subscription = self._by_client.pop(client_id, None)
        if subscription is None:
            return
        for queue in subscription.queues:
            self._unlink(subscription.subscriber, queue)
        self._owner.unsubscribed(client_id)

    def remove_queue(self, queue: str) -> None:
        """Remove a queue, which was deleted, from all subscriptions."""
        for subscriber in self._by_queue.pop(queue, ()):
            subscription = self._by_client.get(subscriber.client_id)
            if subscription is not None:
                self._touch(subscription)
                subscription.queues.pop(queue, None)

    async def forget_silent_clients(self) -> None:
        """Remove subscriptions that were not renewed, until cancelled."""
        while True:
            await trio.sleep(CHECK_SECONDS)
            oldest = trio.current_time() - FORGET_SECONDS
            for subscription in list(self._by_client.values()):
                if subscription.updated_at < oldest:
                    self.remove_client(subscription.client_id)

    def shift_clock(self, seconds: float) -> None:
        """Keep the age of all subscriptions after trio's clock was advanced by ``seconds``."""
        for subscription in self._by_client.values():
            subscription.updated_at += seconds

    def _get_or_create(self, client_id: str, group: str, parent: str) -> LiteSubscription:
        subscription = self._by_client.get(client_id)
        if subscription is None:
            subscription = self._by_client[client_id] = LiteSubscription(client_id, group, parent)
        return subscription

    def _has(self, group: str, attribute: tuple[str, str]) -> bool:
        name, value = attribute
        config = self._state.subscription_groups.get_or_create(group)
        return config is not None and config.attributes.get(name) == value

    def _touch(self, subscription: LiteSubscription) -> None:
        subscription.updated_at = trio.current_time()

    def _link(self, subscriber: ClientGroup, queue: str) -> None:
        subscribers = self._by_queue.setdefault(queue, {})
        if subscriber not in subscribers:
            subscribers[subscriber] = None
            self._owner.subscribed(subscriber.group, queue)

    def _unlink(self, subscriber: ClientGroup, queue: str) -> bool:
        """Remove a subscriber of a queue. Returns whether it was one."""
        subscribers = self._by_queue.get(queue, {})
        is_linked = subscriber in subscribers
        subscribers.pop(subscriber, None)
        if not subscribers:
            self._by_queue.pop(queue, None)
        return is_linked

    def _exclude_others(self, group: str, queue: str) -> None:
        """Remove a queue from the clients of a group. As in 5.5.0, that includes the new subscriber."""
        is_reset = self._has(group, _RESET_WHEN_EXCLUDED)
        for subscriber in self.subscribers_of(queue).get(group, ()):
            subscription = self._by_client.get(subscriber.client_id)
            if subscription is not None:
                subscription.queues.pop(queue, None)
                if not subscription.queues:
                    del self._by_client[subscriber.client_id]
            self._notify(subscriber, queue)
            self._unlink(subscriber, queue)
            if is_reset:
                self._owner.reset(group, queue, _FIRST_MESSAGE)

    def _notify(self, subscriber: ClientGroup, queue: str) -> None:
        connection = self._connections.get(subscriber.client_id)
        if connection is None or connection.is_closed:
            return
        notice = NotifyUnsubscribeLiteRequest(
            lite_topic=split_lite_queue(queue)[1],
            consumer_group=subscriber.group,
            client_id=subscriber.client_id,
        )
        connection.oneway_nowait(notice.code, notice.to_fields())
