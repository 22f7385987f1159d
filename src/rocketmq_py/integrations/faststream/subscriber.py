"""Subscribers: ``@broker.subscriber(...)``, for single messages and for batches."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs
from faststream._internal.configs import SubscriberSpecificationConfig, SubscriberUsecaseConfig
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.subscriber import SubscriberSpecification, SubscriberUsecase
from faststream._internal.endpoint.utils import process_msg
from faststream.middlewares import AckPolicy
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message, Operation, SubscriberSpec

from rocketmq_py.aio import Client, LitePullConsumer, PushConsumer
from rocketmq_py.arguments import Duration
from rocketmq_py.client.settings import field_names
from rocketmq_py.consumer import ConsumeResult
from rocketmq_py.consumer.group.handler_results import SplitResult
from rocketmq_py.consumer.group.subscriptions import subscription_of
from rocketmq_py.consumer.lite_pull.settings import LitePullConsumerSettings
from rocketmq_py.errors import ClosedError, ConfigurationError, RocketMQError
from rocketmq_py.integrations.faststream.messages import (
    Delivery,
    RawMessage,
    RocketMQMessage,
    RocketMQParser,
    current_delivery,
    is_request,
    received_messages,
    unreadable_bodies,
)
from rocketmq_py.integrations.faststream.producing import ReplyPublisher
from rocketmq_py.message import ReceivedMessage
from rocketmq_py.names import check_topic
from rocketmq_py.position import Position
from rocketmq_py.protocol.bodies import SubscriptionData
from rocketmq_py.protocol.subscription import ALL

if TYPE_CHECKING:
    from faststream._internal.endpoint.publisher import PublisherProto
    from faststream._internal.endpoint.subscriber.call_item import CallsCollection
    from faststream.message import StreamMessage
    from faststream.response import Response

RETRY_SECONDS: Final = 5.0
"""Seconds before a consumer that has failed runs again."""


@attrs.frozen(kw_only=True)
class Subscription:
    """The topics, the group and the filter of a subscriber, as ``broker.subscriber`` explains them."""

    topics: tuple[str, ...]
    group: str
    tags: str
    sql: str | None
    orderly: bool
    broadcasting: bool
    batch: bool
    consume_from: Position | str

    def filter(self, topic: str) -> SubscriptionData:
        """Return the filter of a topic. Raises ConfigurationError if the topic or the filter is not valid."""
        return subscription_of(check_topic(topic), self.tags, self.sql, version_ms=0)

    @property
    def binding(self) -> dict[str, Any]:
        """The group and the filter in terms of the RocketMQ binding of AsyncAPI documents."""
        binding: dict[str, Any] = {"group": self.group}
        if self.sql is not None:
            binding["sql"] = self.sql
        elif self.tags != ALL:
            binding["tags"] = self.tags
        flags = {"orderly": self.orderly, "broadcasting": self.broadcasting, "batch": self.batch}
        return binding | {name: True for name, is_set in flags.items() if is_set}


@dataclass(kw_only=True)
class SubscriberConfig(SubscriberUsecaseConfig):
    """The settings of a subscriber."""

    subscription: Subscription
    consumer_options: Mapping[str, Any]

    @property
    def ack_policy(self) -> AckPolicy:
        """The policy of the subscriber, else of the broker, else NACK_ON_ERROR."""
        for policy in (self._ack_policy, self._outer_config.ack_policy):
            if policy is not EMPTY:
                return policy
        return AckPolicy.NACK_ON_ERROR


@dataclass(kw_only=True)
class RocketMQSubscriberSpecificationConfig(SubscriberSpecificationConfig):
    """The settings of a subscriber's AsyncAPI documentation."""

    subscription: Subscription


class RocketMQSubscriberSpecification(SubscriberSpecification[Any, RocketMQSubscriberSpecificationConfig]):
    """The AsyncAPI documentation of a subscriber."""

    @property
    def topics(self) -> list[str]:
        """The topics, with the prefixes of routers."""
        prefix = self._outer_config.prefix
        return [f"{prefix}{topic}" for topic in self.config.subscription.topics]

    @property
    def channel_labels(self) -> list[str]:
        """The topics, each of which is a channel."""
        return self.topics

    @property
    def bindings(self) -> dict[str, dict[str, Any]]:
        """The RocketMQ binding of each channel, by the channel's key."""
        return {key: {"topic": topic} | self.config.subscription.binding for key, topic in self._channels()}

    def get_schema(self) -> dict[str, SubscriberSpec]:
        """Return a channel for each topic. RocketMQAsyncAPI adds the bindings."""
        payloads = self.get_payloads()
        return {
            key: SubscriberSpec(
                address=topic,
                description=self.description,
                operation=Operation(
                    message=Message(title=f"{key}:Message", payload=resolve_payloads(payloads)),
                    bindings=None,
                ),
                bindings=None,
            )
            for key, topic in self._channels()
        }

    def _channels(self) -> list[tuple[str, str]]:
        topics = self.topics
        return [(self._channel_key(topic, split=len(topics) > 1), topic) for topic in topics]


class RocketMQSubscriber(SubscriberUsecase[RawMessage]):
    """Consumes topics as a member of a group. ``broker.subscriber`` returns it.

    A subscriber without a handler returns messages from :meth:`get_one` and as an async iterator. It uses a
    LitePullConsumer, with the ``consumer_options`` that it has.

    Args:
        config: the settings.
        specification: the AsyncAPI documentation.
        calls: the handlers.
    """

    def __init__(
        self,
        config: SubscriberConfig,
        specification: RocketMQSubscriberSpecification,
        calls: CallsCollection[RawMessage],
    ) -> None:
        parser = RocketMQParser()
        batch = config.subscription.batch
        config.parser = parser.parse_batch if batch else parser.parse_message
        config.decoder = parser.decode_batch if batch else parser.decode_message
        super().__init__(config, specification, calls)  # type: ignore[arg-type]  # a parameter is invariant
        self.subscription: Subscription = config.subscription
        self._consumer_options = config.consumer_options
        self._consumer: PushConsumer | None = None
        self._consuming: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._stopped: PushConsumer | None = None
        self._closing: asyncio.Task[None] | None = None
        self._puller: LitePullConsumer | None = None
        self._opening = asyncio.Lock()  # of the puller

    @property
    def topics(self) -> list[str]:
        """The topics, with the prefixes of routers."""
        return [f"{self._outer_config.prefix}{topic}" for topic in self.subscription.topics]

    @property
    def _client(self) -> Client:
        config: Any = self._outer_config  # a composition of the settings of routers and of the broker
        client: Client = config.client
        return client

    async def start(self) -> None:
        """Join the group and start to consume. Does nothing more if it has started already."""
        await super().start()
        self._post_start()
        if self.calls and self._consumer is None:
            options = dict(self._consumer_options)
            if graceful_timeout := self._outer_config.graceful_timeout:
                options.setdefault("close_timeout", graceful_timeout)
            consumer = self._client.push_consumer(self.subscription.group, **options)
            self._subscribe(consumer)  # before it starts, so that an error leaves nothing open
            await consumer.start()
            self._stopping.clear()
            self._consumer = consumer
            self._consuming = asyncio.create_task(self._consume(consumer))

    async def stop(self) -> None:
        """Start no more handler calls, wait for the running ones, and leave the group.

        They have the broker's ``graceful_timeout`` to end. Then they are cancelled, and their messages are
        delivered again. A cancellation of this method does not wait for them any longer. A handler that stops
        its own subscriber does not wait for itself.
        """
        consumer, self._consumer = self._consumer, None
        if consumer is not None and self._consuming is not None:
            self._stopping.set()
            consumer.stop()
            self._stopped = consumer
            self._closing = asyncio.create_task(_close(consumer, self._consuming))
        if self._closing is not None and current_delivery.get(None) is None:
            try:
                await asyncio.shield(self._closing)  # goes on if this call is cancelled
            except asyncio.CancelledError:
                if self._stopped is not None:
                    self._stopped.stop()  # the second call ends the wait for handlers
                raise
        await super().stop()
        async with self._opening:  # after a get_one that opens the puller now
            puller, self._puller = self._puller, None
        if puller is not None:
            await puller.aclose()

    async def get_one(self, *, timeout: Duration = 5.0) -> RocketMQMessage | None:
        """Return the next message, or None after ``timeout`` seconds.

        The next call acknowledges it. ``ack``, ``nack`` and ``reject`` have no effect. One task at a time can
        call this.

        Raises:
            ConfigurationError: the subscriber has a handler, or is broadcasting.
            ClosedError: the subscriber is not started.
            RocketMQError: as ``LitePullConsumer.poll``.
        """
        puller = await self._open_puller()
        messages = await puller.poll(max_messages=1, wait=timeout)
        return await self._parse(messages[0]) if messages else None

    async def __aiter__(self) -> AsyncIterator[RocketMQMessage]:
        """Yield messages, each of which acknowledges the one before."""
        puller = await self._open_puller()
        async for message in puller:
            yield await self._parse(message)

    def get_log_context(self, message: StreamMessage[RawMessage] | None) -> dict[str, str]:
        """Return the fields of log records."""
        topic = ",".join(self.topics)
        if message is not None:
            topic = received_messages(message)[0].topic
        return log_context(message, topic=topic, group=self.subscription.group)

    async def _consume(self, consumer: PushConsumer) -> None:
        """Run the consumer until it is stopped. If it fails, run it again after RETRY_SECONDS."""
        while not self._stopping.is_set():
            try:
                await consumer.run(self._handle_batch if self.subscription.batch else self._handle)
            except ClosedError:
                return
            except RocketMQError as error:
                self._log(
                    logging.ERROR,
                    f"cannot consume, trying again in {RETRY_SECONDS:g} s: {error}",
                    extra=self.get_log_context(None),
                )
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), RETRY_SECONDS)
            else:
                return

    async def process_message(self, msg: RawMessage) -> Response:
        """Process a message. Its delivery learns whether a body cannot be decoded."""
        try:
            return await super().process_message(msg)
        except Exception as error:
            if (delivery := current_delivery.get(None)) is not None:
                in_lists = self.subscription.batch
                delivery.unreadable = unreadable_bodies(delivery, error, in_lists=in_lists)
            raise

    async def _handle(self, message: ReceivedMessage) -> ConsumeResult | None:
        """Process a message with FastStream. Return the handler's outcome for the consumer."""
        delivery = await self._deliver(message)
        if delivery.unreadable and delivery.is_retried:
            return SplitResult(delivery.unreadable)
        return delivery.result

    async def _handle_batch(self, messages: list[ReceivedMessage]) -> ConsumeResult | None:
        """Process a batch. Without the messages that cannot be decoded, if there are any, it starts again."""
        indexes, reasons, result = list(range(len(messages))), dict[int, str](), None
        while indexes:
            delivery = await self._deliver(tuple([messages[index] for index in indexes]))
            result = delivery.result
            if not (delivery.unreadable and delivery.is_retried):
                break
            unreadable = {indexes[position]: reason for position, reason in delivery.unreadable.items()}
            indexes = [index for index in indexes if index not in unreadable]
            reasons |= unreadable
        if not reasons:
            return result
        return SplitResult(reasons, result=result if indexes else None)

    async def _deliver(self, message: RawMessage) -> Delivery:
        delivery = Delivery(orderly=self.subscription.orderly)
        token = current_delivery.set(delivery)
        try:
            await self.consume(message)
        finally:
            current_delivery.reset(token)
        return delivery

    def _make_response_publisher(self, message: StreamMessage[RawMessage]) -> Sequence[PublisherProto]:
        raw = message.raw_message
        request = raw if isinstance(raw, ReceivedMessage) and is_request(raw) else None
        return (
            ReplyPublisher(
                producer=self._outer_config.producer,
                topic=message.reply_to,
                request=request,
                log=partial(self._log, extra=self.get_log_context(message)),
            ),
        )

    async def _open_puller(self) -> LitePullConsumer:
        if self.calls:
            raise ConfigurationError(
                f"the subscriber of {','.join(self.topics)} has a handler, which receives its messages; use "
                "a subscriber without one"
            )
        if self.subscription.broadcasting:
            raise ConfigurationError(
                f"the subscriber of {','.join(self.topics)} has broadcasting=True, which needs a handler; "
                "without one, the members of the group share the messages"
            )
        if not self.running:
            raise ClosedError("this subscriber is not started; await subscriber.start() first")
        async with self._opening:
            if self._puller is None:
                options = {
                    name: option
                    for name, option in self._consumer_options.items()
                    if name in field_names(LitePullConsumerSettings)
                }
                puller = self._client.lite_pull_consumer(self.subscription.group, **options)
                self._subscribe(puller)
                await puller.start()
                self._puller = puller
            return self._puller

    def _subscribe(self, consumer: PushConsumer | LitePullConsumer) -> None:
        for topic in self.topics:
            consumer.subscribe(topic, self.subscription.tags, sql=self.subscription.sql)

    async def _parse(self, raw: ReceivedMessage) -> RocketMQMessage:
        message: RawMessage = (raw,) if self.subscription.batch else raw
        parser, decoder = self._get_parser_and_decoder()
        context = self._outer_config.context
        parsed: Any = await process_msg(
            message,
            middlewares=(make(message, context=context) for make in self._broker_middlewares),
            parser=parser,
            decoder=decoder,
        )
        return parsed  # type: ignore[no-any-return]


def log_context(message: StreamMessage[Any] | None, *, topic: str, group: str) -> dict[str, str]:
    """Return the fields of log records."""
    return {"topic": topic, "group": group, "message_id": getattr(message, "message_id", "")}


async def _close(consumer: PushConsumer, consuming: asyncio.Task[None]) -> None:
    """Wait until the running handlers of a stopped consumer have ended, and close it."""
    await asyncio.wait([consuming])
    await consumer.aclose()
