"""Consumers of lite topics, for asyncio."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Unpack

from rocketmq_py import consumer
from rocketmq_py.aio.consumer import HandlerConsumer, ReceivingConsumer
from rocketmq_py.aio.generated_methods import LiteTopicConsumerMethods, LiteTopicPushConsumerMethods
from rocketmq_py.arguments import Duration
from rocketmq_py.client.settings import ClientSettings
from rocketmq_py.client.shown_settings import takes_settings
from rocketmq_py.consumer import LiteTopicConsumerOptions, LiteTopicPushConsumerOptions, PoppedMessage
from rocketmq_py.consumer.lite.settings import LiteTopicConsumerSettings, LiteTopicPushConsumerSettings
from rocketmq_py.consumer.pop.receiver import MAX_MESSAGES
from rocketmq_py.handoff.hosted import with_sections_of
from rocketmq_py.handoff.undelivered_messages import Undelivered

if TYPE_CHECKING:
    from rocketmq_py.aio.client import Client


@takes_settings(LiteTopicConsumerSettings, ClientSettings)
class LiteTopicConsumer(LiteTopicConsumerMethods, ReceivingConsumer[consumer.LiteTopicConsumer]):
    """``rocketmq_py.LiteTopicConsumer`` for asyncio: receives messages of lite topics on request (5.5).

    Options, errors and guarantees are those of the trio LiteTopicConsumer. A cancelled ``receive`` loses no
    messages: the next one returns them.

    Args:
        client: name servers as ``host:port;host:port``, or None for NAMESRV_ADDR or 127.0.0.1:9876, or
            an open ``rocketmq_py.aio.Client`` to share.
        group: the consumer group. Its attribute ``lite.bind.topic`` must name the parent topic.
        **options: the settings of a LiteTopicConsumer, of which ``parent`` is required, and those of a Client
            unless one is shared.

    Raises:
        ConfigurationError: an option is unknown, missing or not valid.
    """

    def __init__(
        self,
        client: str | Client | None = None,
        *,
        group: str | None = None,
        **options: Unpack[LiteTopicConsumerOptions],
    ) -> None:
        shared, parent = self._shared_client(client)
        self._undelivered: Undelivered[PoppedMessage] = Undelivered(self._check_open)
        super().__init__(consumer.LiteTopicConsumer(shared, group=group, **options), parent)

    @property
    def settings(self) -> LiteTopicConsumerSettings:
        """The settings."""
        return self._target.settings

    @property
    def lite_topics(self) -> frozenset[str]:
        """The subscribed lite topics."""
        lite_topics: frozenset[str] = self._get("lite_topics")
        return lite_topics

    @with_sections_of(consumer.LiteTopicConsumer.receive)
    async def receive(
        self, *, max_messages: int = MAX_MESSAGES, invisible: Duration = 60.0, wait: Duration = 15.0
    ) -> list[PoppedMessage]:
        """Receive messages of the subscribed lite topics as soon as there are any.

        When cancelled, no message is lost: the next call returns it.
        """
        receive = partial(self._target.receive, max_messages=max_messages, invisible=invisible, wait=wait)
        return self._undelivered.take(max_messages) or await self._fetch(self._undelivered, receive)


@takes_settings(LiteTopicPushConsumerSettings, ClientSettings)
class LiteTopicPushConsumer(LiteTopicPushConsumerMethods, HandlerConsumer[consumer.LiteTopicPushConsumer]):
    """``rocketmq_py.LiteTopicPushConsumer`` for asyncio: the loop calls the handler (5.5).

    ::

        async with LiteTopicPushConsumer("127.0.0.1:9876", group="agents", parent="Sessions") as consumer:
            await consumer.subscribe_lite("session-42")
            await consumer.run(handle)  # async def handle(message); raise = handle again

    Options, errors and guarantees are those of the trio LiteTopicPushConsumer.

    Args:
        client: name servers as ``host:port;host:port``, or None for NAMESRV_ADDR or 127.0.0.1:9876, or
            an open ``rocketmq_py.aio.Client`` to share.
        group: the consumer group. Its attribute ``lite.bind.topic`` must name the parent topic.
        **options: the settings of a LiteTopicPushConsumer, of which ``parent`` is required, and those of a
            Client unless one is shared.

    Raises:
        ConfigurationError: an option is unknown, missing or not valid.
    """

    def __init__(
        self,
        client: str | Client | None = None,
        *,
        group: str | None = None,
        **options: Unpack[LiteTopicPushConsumerOptions],
    ) -> None:
        shared, parent = self._shared_client(client)
        super().__init__(consumer.LiteTopicPushConsumer(shared, group=group, **options), parent)

    @property
    def settings(self) -> LiteTopicPushConsumerSettings:
        """The settings."""
        return self._target.settings

    @property
    def lite_topics(self) -> frozenset[str]:
        """The subscribed lite topics."""
        lite_topics: frozenset[str] = self._get("lite_topics")
        return lite_topics
