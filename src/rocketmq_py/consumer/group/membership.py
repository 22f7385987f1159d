"""Joining a consumer group, and leaving it whatever happens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import trio

from rocketmq_py.client.client import Client
from rocketmq_py.consumer.config import ConsumeFrom
from rocketmq_py.consumer.group.subscription_check import SubscriptionCheck
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.protocol.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)

DRAIN_SHARE = 0.5
COMMIT_SHARE = 0.3
UNREGISTER_SHARE = 0.15
"""Parts of ``close_timeout``: for the handlers that are running, for commits, and for telling the brokers.
What is left is for trace records, and for the client, which closes after the consumer."""

SETTLE_SECONDS = 2.0
"""From a change in a group to a look at it: the other members hear of theirs at the same time."""

_WHERE = {
    ConsumeFrom.LAST: ConsumeFromWhere.LAST_OFFSET,
    ConsumeFrom.FIRST: ConsumeFromWhere.FIRST_OFFSET,
    ConsumeFrom.TIMESTAMP: ConsumeFromWhere.TIMESTAMP,
}


class Membership:
    """What makes a consumer a member of its group. Java: ``registerConsumer`` of ``MQClientInstance``.

    Args:
        client: what the consumer talks through.
        group: the group.
        subscriptions: what is subscribed, by topic; may change. Each heartbeat says what it is then.
        consume_type: how it consumes.
        consume_from: where a new group begins.
        broadcasting: whether every member gets every message.
        members_changed: called when a broker says that members have come or gone; None for nobody.
    """

    def __init__(
        self,
        client: Client,
        group: str,
        subscriptions: Mapping[str, SubscriptionData],
        consume_type: ConsumeType,
        consume_from: ConsumeFrom,
        *,
        broadcasting: bool = False,
        members_changed: Callable[[], None] | None = None,
    ) -> None:
        self._client = client
        self._group = group
        self._subscriptions = subscriptions
        self._consume_type = consume_type
        self._consume_from = consume_from
        self._model = MessageModel.BROADCASTING if broadcasting else MessageModel.CLUSTERING
        self._members_changed = members_changed
        self._check = SubscriptionCheck(client, group, self.describe)
        self._noticed = trio.Event()
        self.joined: trio.Event = trio.Event()

    def describe(self) -> ConsumerData:
        """Return what heartbeats say of this consumer."""
        return ConsumerData(
            group_name=self._group,
            consume_type=self._consume_type,
            message_model=self._model,
            consume_from_where=_WHERE[self._consume_from],
            subscription_data_set=tuple(self._subscriptions.values()),
        )

    def check_free(self) -> None:
        """Raise ConfigurationError if another consumer of the client is in the group."""
        if self._client.heartbeats.has_consumer(self._group):
            raise ConfigurationError(
                f"a consumer of this client is in group {self._group!r} already: "
                "give each its own client, by opening it with an address"
            )

    def join(self) -> None:
        """Be announced as a member by every heartbeat from now on; nothing happens if it is one.

        Raises:
            ConfigurationError: another consumer of the client is.
        """
        if self.joined.is_set():
            return
        self.check_free()
        self._client.heartbeats.add_consumer(self._group, self.describe)
        self._client.on_members_changed(self._group, self._notice)
        self.joined.set()

    async def keep_checking(self) -> None:
        """Warn of members that subscribe differently, until cancelled.

        One broker is asked when members or their subscriptions have changed, and once they have settled.
        """
        while True:
            await self._noticed.wait()
            await trio.sleep(SETTLE_SECONDS)
            self._noticed = trio.Event()
            await self._check.look()

    def _notice(self) -> None:
        self._noticed.set()
        if self._members_changed is not None:
            self._members_changed()

    async def leave(
        self,
        close_timeout: float,
        finish: Callable[[], Awaitable[None]] | None = None,
        *,
        finish_share: float = COMMIT_SHARE,
    ) -> None:
        """Have ``finish`` commit, then tell the brokers, who share the queues out to others.

        Shielded from cancellations, and bounded by shares of ``close_timeout``. When the commits take longer
        or fail the group is left all the same: brokers hear of it, if late, as long as the client is open.
        """
        is_member = self.joined.is_set()
        if is_member:
            self._client.on_members_changed(self._group, None)
        try:
            if finish is not None:
                with trio.move_on_after(close_timeout * finish_share, shield=True):
                    await finish()
        finally:
            if is_member:
                self.joined = trio.Event()
                with trio.move_on_after(close_timeout * UNREGISTER_SHARE, shield=True):
                    await self._client.heartbeats.remove_consumer(self._group)
