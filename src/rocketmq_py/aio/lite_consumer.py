"""Consumers of lite topics, for asyncio."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Unpack

from rocketmq_py import consumer
from rocketmq_py.aio.consumer import HandlerConsumer, ReceivingConsumer
from rocketmq_py.aio.generated_methods import LiteConsumerMethods, LitePushConsumerMethods
from rocketmq_py.client.config import ClientConfig
from rocketmq_py.consumer import (
    LiteConsumerConfig,
    LiteConsumerOptions,
    LitePushConsumerConfig,
    LitePushConsumerOptions,
    PoppedMessage,
)
from rocketmq_py.consumer.pop.receiver import MAX_MESSAGES
from rocketmq_py.handoff.undelivered_messages import Undelivered

if TYPE_CHECKING:
    from rocketmq_py.aio.client import Client


class LiteConsumer(LiteConsumerMethods, ReceivingConsumer[consumer.LiteConsumer]):
    """``rocketmq_py.LiteConsumer`` for asyncio: receives messages of lite topics on request (5.5).

    Options, errors and guarantees are those of the trio LiteConsumer. A cancelled ``receive`` loses no
    messages: the next one returns them.

    Args:
        client: name servers as ``host:port;host:port``, or None for NAMESRV_ADDR or 127.0.0.1:9876, or
            an open ``rocketmq_py.aio.Client`` to share.
        *configs: a LiteConsumerConfig, and a ClientConfig unless a client is shared. Single fields may be
            given as keywords instead, or in addition.
        group: the consumer group. Its attribute ``lite.bind.topic`` must name the parent topic.
        rng: the source of randomness, for reproducible tests.
        **options: the fields of LiteConsumerConfig, of which ``parent`` is required, and those of
            ClientConfig unless a client is shared.

    Raises:
        ConfigurationError: an option is unknown, missing or not valid.
    """

    def __init__(
        self,
        client: str | Client | None = None,
        *configs: LiteConsumerConfig | ClientConfig,
        group: str | None = None,
        rng: random.Random | None = None,
        **options: Unpack[LiteConsumerOptions],
    ) -> None:
        shared, parent = self._shared_client(client)
        self._undelivered: Undelivered[PoppedMessage] = Undelivered(self._check_open)
        super().__init__(consumer.LiteConsumer(shared, *configs, group=group, rng=rng, **options), parent)

    @property
    def config(self) -> LiteConsumerConfig:
        """The settings."""
        return self._target.config

    @property
    def lite_topics(self) -> frozenset[str]:
        """The subscribed lite topics."""
        lite_topics: frozenset[str] = self._get("lite_topics")
        return lite_topics

    async def receive(
        self, *, max_messages: int = MAX_MESSAGES, invisible: float = 60.0, wait: float = 15.0
    ) -> list[PoppedMessage]:
        """Receive messages of the subscribed lite topics as soon as there are any.

        Arguments and errors are those of the trio LiteConsumer's ``receive``. When cancelled, no message is
        lost: the next call returns it.
        """
        receive = partial(self._target.receive, max_messages=max_messages, invisible=invisible, wait=wait)
        return self._undelivered.take(max_messages) or await self._fetch(self._undelivered, receive)


class LitePushConsumer(LitePushConsumerMethods, HandlerConsumer[consumer.LitePushConsumer]):
    """``rocketmq_py.LitePushConsumer`` for asyncio: the loop calls the handler (5.5).

    ::

        async with LitePushConsumer("127.0.0.1:9876", group="agents", parent="Sessions") as consumer:
            await consumer.subscribe_lite("session-42")
            await consumer.run(handle)  # async def handle(message); raise = handle again

    Options, errors and guarantees are those of the trio LitePushConsumer.

    Args:
        client: name servers as ``host:port;host:port``, or None for NAMESRV_ADDR or 127.0.0.1:9876, or
            an open ``rocketmq_py.aio.Client`` to share.
        *configs: a LitePushConsumerConfig, and a ClientConfig unless a client is shared. Single fields may be
            given as keywords instead, or in addition.
        group: the consumer group. Its attribute ``lite.bind.topic`` must name the parent topic.
        rng: the source of randomness, for reproducible tests.
        **options: the fields of LitePushConsumerConfig, of which ``parent`` is required, and those of
            ClientConfig unless a client is shared.

    Raises:
        ConfigurationError: an option is unknown, missing or not valid.
    """

    def __init__(
        self,
        client: str | Client | None = None,
        *configs: LitePushConsumerConfig | ClientConfig,
        group: str | None = None,
        rng: random.Random | None = None,
        **options: Unpack[LitePushConsumerOptions],
    ) -> None:
        shared, parent = self._shared_client(client)
        super().__init__(consumer.LitePushConsumer(shared, *configs, group=group, rng=rng, **options), parent)

    @property
    def config(self) -> LitePushConsumerConfig:
        """The settings."""
        return self._target.config

    @property
    def lite_topics(self) -> frozenset[str]:
        """The subscribed lite topics."""
        lite_topics: frozenset[str] = self._get("lite_topics")
        return lite_topics
