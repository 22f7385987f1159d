"""The base class of the consumers of lite topics."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from typing import Any

import attrs
import trio

from rocketmq_py.client.client import Client
from rocketmq_py.consumer.config import ConsumeFrom
from rocketmq_py.consumer.group.base_consumer import BaseConsumer
from rocketmq_py.consumer.group.membership import UNREGISTER_SHARE, Membership
from rocketmq_py.consumer.lite.requests import LiteRequests
from rocketmq_py.consumer.lite.start_position import LiteStart
from rocketmq_py.consumer.lite.subscriber import LiteSubscriber
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.names import check_lite_topic
from rocketmq_py.protocol.bodies import ConsumeType, MessageModel, SubscriptionData
from rocketmq_py.protocol.subscription import ALL, make_subscription


class BaseLiteConsumer(BaseConsumer):
    """A member of a group that subscribes to lite topics of one parent topic.

    Args:
        kind, client, configs, group, options, rng: see BaseConsumer.
    """

    def __init__(
        self,
        kind: type[attrs.AttrsInstance],
        client: str | Client | None,
        *,
        configs: Sequence[attrs.AttrsInstance],
        group: str | None,
        options: dict[str, Any],
        rng: random.Random | None,
    ) -> None:
        if "parent" not in options and not any(hasattr(config, "parent") for config in configs):
            raise ConfigurationError("parent is missing; it names the topic of type LITE")
        super().__init__(kind, client, configs=configs, group=group, options=options, rng=rng)
        config = self.config
        self._parent_subscription: SubscriptionData = make_subscription(
            config.parent, ALL, version_ms=self.client.now_ms()
        )
        self._subscriber = LiteSubscriber(
            self.client,
            self._group,
            config.parent,
            renew_interval=config.renew_interval,
            check_open=self._check_open,
        )
        self._requests = LiteRequests(self.client, self._group, self._subscriber)
        self._membership = Membership(
            self.client,
            self._group,
            {config.parent: self._parent_subscription},
            ConsumeType.POP,
            ConsumeFrom.LAST,
            model=MessageModel.LITE_SELECTIVE,
        )
        self._stopping = trio.Event()
        self._left = trio.Event()

    async def subscribe_lite(self, *lite_topics: str, start: LiteStart | str | None = None) -> None:
        """Subscribe to lite topics of the parent topic, on every broker. They need not exist yet.

        The subscription is renewed in the background, and repeated when a broker has restarted. In a group of
        the model Exclusive, the members that subscribed to the lite topics before lose them.

        Args:
            *lite_topics: the lite topics, for example of sessions or devices.
            start: where the group starts in them: ``"first"``, ``"end"`` or a LiteStart. None continues where
                the group has stopped. A new group then starts at the end or, as long as the broker still has
                the first message, at the first message.

        Raises:
            ConfigurationError: a name or ``start`` is not valid.
            ClosedError: the consumer is not open.
            LiteQuotaError: a broker accepts no more subscriptions.
            UnsupportedByBrokerError: a broker is older than 5.5.0.
            BrokerError: a broker refused, for example because the group is not allowed to consume.
            TopicNotFoundError, NoQueueError, NameServerError, ConnectError, ConnectionLostError,
            RequestTimeoutError: a broker could not be reached.

        After an error or a cancellation the lite topics are not subscribed. Brokers that have added them drop
        them with the next renewal.
        """
        self._check_open()
        position = None if start is None else LiteStart.of(start)
        await self._subscriber.subscribe(_checked(lite_topics), position)

    async def unsubscribe_lite(self, *lite_topics: str) -> None:
        """Unsubscribe from lite topics, on every broker.

        Raises the errors of :meth:`subscribe_lite`. After an error or a cancellation the lite topics are
        unsubscribed here, and brokers drop them with the next renewal.
        """
        self._check_open()
        await self._subscriber.unsubscribe(_checked(lite_topics))

    @property
    def lite_topics(self) -> frozenset[str]:
        """The subscribed lite topics, without those that a member of an exclusive group has taken over."""
        return frozenset(self._subscriber.lite_topics)

    async def _open(self) -> None:
        await super()._open()
        await self.nursery.start(self._run_subscriber)

    async def _run_subscriber(self, *, task_status: trio.TaskStatus[None]) -> None:
        try:
            with self._subscriber.serve():
                self.nursery.start_soon(self._subscriber.keep_renewing)
                task_status.started()
                await self._stopping.wait()
                with trio.move_on_after(self.close_timeout * UNREGISTER_SHARE, shield=True):
                    await self._subscriber.leave()
        finally:
            self._left.set()

    async def _close(self) -> None:
        self._stopping.set()
        await self._left.wait()
        await super()._close()


def _checked(lite_topics: Collection[str]) -> tuple[str, ...]:
    if not lite_topics:
        raise ConfigurationError("no lite topic was given")
    return tuple([check_lite_topic(lite_topic) for lite_topic in lite_topics])
