"""The base class of the consumers of lite topics."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import attrs
import trio

from rocketmq_py.arguments import check_integer
from rocketmq_py.client.client import Client
from rocketmq_py.client.lifespan import from_any_thread
from rocketmq_py.consumer.group.base_consumer import BaseConsumer
from rocketmq_py.consumer.group.membership import UNREGISTER_SECONDS, Membership
from rocketmq_py.consumer.lite.requests import LiteRequests
from rocketmq_py.consumer.lite.subscriber import LiteSubscriber
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.names import check_lite_topic
from rocketmq_py.position import Position, PositionKind, check_position
from rocketmq_py.protocol.bodies import (
    ConsumeType,
    MessageModel,
    OffsetOption,
    OffsetOptionType,
    SubscriptionData,
)
from rocketmq_py.protocol.subscription import ALL, make_subscription

_START_KINDS = frozenset({PositionKind.EARLIEST, PositionKind.LATEST, PositionKind.OFFSET})
_FIRST_MESSAGE, _END = 1, 2
"""Java: ``OffsetOption.POLICY_MIN_VALUE``, ``POLICY_MAX_VALUE``."""


class BaseLiteTopicConsumer(BaseConsumer):
    """A member of a group that subscribes to lite topics of one parent topic.

    Args:
        settings_class, client, group, options: see BaseConsumer.
    """

    def __init__(
        self,
        settings_class: type[attrs.AttrsInstance],
        client: str | Client | None,
        *,
        group: str | None,
        options: dict[str, Any],
    ) -> None:
        super().__init__(settings_class, client, group=group, options=options)
        config = self._settings
        self._parent_subscription: SubscriptionData = make_subscription(
            config.parent, ALL, version_ms=self._client.now_ms()
        )
        self._subscriber = LiteSubscriber(
            self._client,
            self._group,
            config.parent,
            check_open=self._check_open,
        )
        self._requests = LiteRequests(self._client, self._group, self._counters, self._subscriber)
        self._membership = Membership(
            self._client,
            self._group,
            {config.parent: self._parent_subscription},
            ConsumeType.POP,
            Position.latest,
            model=MessageModel.LITE_SELECTIVE,
        )
        self._stopping = trio.Event()
        self._left = trio.Event()

    async def subscribe_lite(
        self, *lite_topics: str, start: Position | str | None = None, rewind: int = 0
    ) -> None:
        """Subscribe to lite topics of the parent topic, on every broker. They need not exist yet.

        The subscription is renewed in the background, and repeated when a broker has restarted. In a group of
        the model Exclusive, the members that subscribed to the lite topics before lose them.

        Args:
            *lite_topics: the lite topics, for example of sessions or devices.
            start: where the group starts in them: ``"earliest"``, ``"latest"`` or ``Position.offset(...)``.
                None continues where the group has stopped. A new group then starts at the end or, as long as
                the broker still has the first message, at the first message.
            rewind: instead of ``start``: the number of messages to go back from where the group has stopped.
                Has no effect for a new group.

        Raises:
            ConfigurationError: a name, ``start`` or ``rewind`` is not valid, or both are given.
            ClosedError: the consumer is not open.
            UnsupportedByBrokerError: a broker is older than 5.5.0.
            BrokerError: a broker refused, for example because it accepts no more subscriptions (the code is
                LITE_SUBSCRIPTION_QUOTA_EXCEEDED), or because the group is not allowed to consume.
            TopicNotFoundError, NoQueueError, NameServerError, ConnectError, ConnectionLostError,
            RequestTimeoutError: a broker could not be reached.

        After an error or a cancellation the lite topics are not subscribed. Brokers that have added them drop
        them with the next renewal.
        """
        self._check_open()
        await self._subscriber.subscribe(_checked(lite_topics), _offset_option(start, rewind))

    async def unsubscribe_lite(self, *lite_topics: str) -> None:
        """Unsubscribe from lite topics, on every broker.

        Raises the errors of :meth:`subscribe_lite`. After an error or a cancellation the lite topics are
        unsubscribed here, and brokers drop them with the next renewal.
        """
        self._check_open()
        await self._subscriber.unsubscribe(_checked(lite_topics))

    @property
    @from_any_thread
    def lite_topics(self) -> frozenset[str]:
        """The subscribed lite topics, without those that a member of an exclusive group has taken over."""
        return frozenset(self._subscriber.lite_topics)

    async def _open(self) -> None:
        await super()._open()
        await self._nursery.start(self._run_subscriber)

    async def _run_subscriber(self, *, task_status: trio.TaskStatus[None]) -> None:
        try:
            with self._subscriber.serve():
                self._nursery.start_soon(self._subscriber.keep_renewing)
                task_status.started()
                await self._stopping.wait()
                with trio.move_on_after(UNREGISTER_SECONDS, shield=True):
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


def _offset_option(start: Position | str | None, rewind: int) -> OffsetOption | None:
    """Return the start of a subscription as it goes on the wire. None continues where the group stopped."""
    rewind = check_integer(rewind, "rewind", lowest=0)
    if start is None:
        return OffsetOption(type=OffsetOptionType.TAIL_N, value=rewind) if rewind else None
    if rewind:
        raise ConfigurationError("start and rewind exclude each other: give one")
    position = check_position(start, "start", _START_KINDS)
    if position.kind is PositionKind.OFFSET:
        return OffsetOption(type=OffsetOptionType.OFFSET, value=position.value)
    policy = _FIRST_MESSAGE if position.kind is PositionKind.EARLIEST else _END
    return OffsetOption(type=OffsetOptionType.POLICY, value=policy)
