"""The broker: RocketMQ for FastStream applications."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

from fast_depends import Provider, dependency_provider
from faststream._internal.broker import BrokerUsecase
from faststream._internal.constants import EMPTY
from faststream._internal.context.repository import ContextRepo
from faststream._internal.di import FastDependsConfig
from faststream._internal.logger import make_logger_state
from faststream.exceptions import SetupError
from faststream.message import gen_cor_id
from faststream.response import PublishType
from faststream.specification.schema import BrokerSpec

from rocketmq_py import client as core
from rocketmq_py.aio import Client
from rocketmq_py.arguments import Duration, seconds, seconds_or_none
from rocketmq_py.client.settings import ClientSettings, name_servers, split_options
from rocketmq_py.consumer.settings import CLOSE_SECONDS
from rocketmq_py.errors import RocketMQError
from rocketmq_py.integrations.faststream.commands import RocketMQPublishCommand, SendOptions
from rocketmq_py.integrations.faststream.config import (
    LoggerStorage,
    RocketMQBrokerConfig,
    client_options,
)
from rocketmq_py.integrations.faststream.messages import RawMessage, RocketMQMessage, note_start
from rocketmq_py.integrations.faststream.producing import RocketMQProducer
from rocketmq_py.integrations.faststream.registrator import RocketMQRegistrator
from rocketmq_py.integrations.faststream.subscriber import RocketMQSubscriber, log_context
from rocketmq_py.message import SendResult
from rocketmq_py.producer import ProducerOptions
from rocketmq_py.producer.settings import ProducerSettings

if TYPE_CHECKING:
    from fast_depends.library.serializer import SerializerProto
    from faststream._internal.basic_types import LoggerProto
    from faststream._internal.parser import CodecProto
    from faststream._internal.types import BrokerMiddleware, CustomCallable, IdGenerator
    from faststream.middlewares import AckPolicy
    from faststream.security import BaseSecurity
    from faststream.specification.schema.extra import Tag, TagDict

PROTOCOL = "rocketmq"
PING_SECONDS = 5.0
"""The default timeout of a ping."""


class RocketMQBroker(RocketMQRegistrator, BrokerUsecase[RawMessage, Client, Any]):
    """RocketMQ for FastStream.

    ::

        broker = RocketMQBroker("127.0.0.1:9876")
        app = FastStream(broker)

        @broker.subscriber("Orders", group="billing", tags="A || B")
        @broker.publisher("Bills")
        async def bill(order: Order) -> Bill: ...

    Args:
        address: name servers as ``host:port;host:port``. None reads NAMESRV_ADDR, else 127.0.0.1:9876.
        group: the producer group.
        graceful_timeout: seconds that running handlers have to end when the broker stops. 25 by default. None
            for the ``close_timeout`` of the subscriber.
        ack_policy: the acknowledgement policy of subscribers without one of their own. By default an
            exception has the message delivered again (NACK_ON_ERROR).
        decoder: a decoder of bodies.
        parser: a parser of messages.
        codec: a codec of bodies, instead of the decoder.
        dependencies: FastStream's dependencies of all handlers.
        middlewares: the middlewares of all subscribers and publishers.
        routers: the routers to include.
        id_generator: makes correlation ids.
        security: FastStream's SASLPlaintext(access_key, secret_key), or BaseSecurity(use_ssl=True), instead
            of the options ``credentials`` and ``tls``.
        specification_url: the server in AsyncAPI documents. None for the name servers.
        protocol: the protocol in AsyncAPI documents.
        protocol_version: its version.
        description: the server's description.
        tags: the server's tags.
        logger: the logger. None for no logs.
        log_level: the level of the default logger.
        apply_types: whether handlers get converted arguments and dependencies.
        serializer: the serializer of bodies, pydantic's or msgspec's.
        provider: the provider of FastStream's dependencies.
        context: FastStream's context.
        **options: the settings of a Client and of a Producer.

    Raises:
        ConfigurationError: an option is unknown or out of range.
        SetupError: RocketMQ does not have this kind of security.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        group: str = "faststream",
        graceful_timeout: Duration | None = CLOSE_SECONDS,
        ack_policy: AckPolicy = EMPTY,
        decoder: CustomCallable | None = None,
        parser: CustomCallable | None = None,
        codec: CodecProto | None = None,
        dependencies: Sequence[Any] = (),
        middlewares: Sequence[BrokerMiddleware[Any, Any]] = (),
        routers: Iterable[RocketMQRegistrator] = (),
        id_generator: IdGenerator = gen_cor_id,
        security: BaseSecurity | None = None,
        specification_url: str | Sequence[str] | None = None,
        protocol: str | None = None,
        protocol_version: str | None = None,
        description: str | None = None,
        tags: Iterable[Tag | TagDict] = (),
        logger: LoggerProto | None = EMPTY,
        log_level: int = logging.INFO,
        apply_types: bool = True,
        serializer: SerializerProto | None = EMPTY,
        provider: Provider | None = None,
        context: ContextRepo | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        all_options = {**client_options(security), **options}
        self._producer_options, self._client_options = split_options(
            all_options, ProducerSettings, ClientSettings, group=group
        )
        ProducerSettings(**self._producer_options)
        self._address = address
        core.ClientCore(address, **self._client_options)  # never opened: it checks the options
        if isinstance(specification_url, str):
            specification_url = [specification_url]
        super().__init__(
            routers=routers,
            config=RocketMQBrokerConfig(
                producer=RocketMQProducer(parser, decoder),
                broker_middlewares=middlewares,
                broker_parser=parser,
                broker_decoder=decoder,
                broker_codec=codec,
                broker_dependencies=dependencies,
                graceful_timeout=seconds_or_none(graceful_timeout),
                ack_policy=ack_policy,
                id_generator=id_generator,
                extra_context={"broker": self},
                logger=make_logger_state(
                    logger=logger, log_level=log_level, default_storage_cls=LoggerStorage
                ),
                fd_config=FastDependsConfig(
                    use_fastdepends=apply_types,
                    serializer=serializer,
                    provider=provider or dependency_provider,
                    context=context or ContextRepo(),
                    call_decorators=(note_start,),
                ),
            ),
            specification=BrokerSpec(
                url=list(specification_url or server_urls(address)),
                protocol=protocol or PROTOCOL,
                protocol_version=protocol_version,
                description=description,
                tags=tags,
                security=security,
            ),
        )

    async def start(self) -> None:
        """Connect, and start the subscribers.

        Returns without waiting for brokers: subscribers wait for them, and for topics that do not exist yet.

        Raises:
            SetupError: two subscribers are in the same group.
        """
        self._check_groups()
        await self.connect()
        self.config.logger.log("connected", extra=log_context(None, topic="", group=""))
        await super().start()

    async def stop(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> None:
        """Stop the subscribers, and disconnect when their running handlers have ended."""
        try:
            await super().stop(exc_type, exc_val, exc_tb)
        finally:
            client, self._connection = self._connection, None
            self.config.disconnect()
            if client is not None:
                await client.aclose()

    async def ping(self, timeout: Duration | None = None) -> bool:
        """Return whether a name server lists the brokers within ``timeout`` seconds (5 by default)."""
        if self._connection is None:
            return False
        try:
            async with (
                asyncio.timeout(PING_SECONDS if timeout is None else seconds(timeout)),
                self._connection.admin() as admin,
            ):
                await admin.brokers.list()
        except (RocketMQError, TimeoutError):
            return False
        return True

    async def publish(
        self,
        message: Any = None,
        topic: str = "",
        *,
        tags: str = "",
        keys: str | Iterable[str] = (),
        sharding_key: str = "",
        delay: Duration = 0.0,
        priority: int | None = None,
        headers: Mapping[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        timeout: Duration | None = None,
    ) -> SendResult:
        """Publish a message, and return when a RocketMQ broker has stored it.

        Args:
            message: the body: bytes, text, or a value that FastStream's serializer encodes as JSON.
            topic: the topic.
            tags: the tag by which consumers filter.
            keys: business keys. A str is split at blanks.
            sharding_key: messages with the same key go to the same queue.
            delay: seconds until delivery.
            priority: the priority, for topics of type PRIORITY.
            headers: the message's own properties. Values are converted to text, and must not be empty.
            correlation_id: the correlation id. None for a new one.
            reply_to: a topic for the result of the handler that receives it.
            timeout: seconds for all attempts together. None for the option ``send_timeout``.

        Raises:
            ClosedError: the broker is not started.
            InvalidMessageError: the topic, the body, a header or an option is not valid.
            RocketMQError: as ``Producer.send``.
        """
        command = RocketMQPublishCommand(
            message,
            topic=topic,
            options=SendOptions(
                tags=tags, keys=keys, sharding_key=sharding_key, delay=delay, priority=priority
            ),
            headers=headers,
            correlation_id=correlation_id or self.config.id_generator(),
            reply_to=reply_to,
            timeout=timeout,
            _publish_type=PublishType.PUBLISH,
        )
        result: SendResult = await self._basic_publish(command, producer=self._producer)
        return result

    async def publish_batch(  # type: ignore[override]
        self,
        *messages: Any,
        topic: str = "",
        tags: str = "",
        keys: str | Iterable[str] = (),
        sharding_key: str = "",
        headers: Mapping[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        timeout: Duration | None = None,
    ) -> Sequence[SendResult]:
        """Publish messages of one topic in a batch, and return the result of each.

        A RocketMQResponse among the messages has its own headers and options. The other arguments are those
        of :meth:`publish`. Raises as ``Producer.send_batch``.
        """
        command = RocketMQPublishCommand(
            *messages,
            topic=topic,
            options=SendOptions(tags=tags, keys=keys, sharding_key=sharding_key),
            headers=headers,
            correlation_id=correlation_id or self.config.id_generator(),
            reply_to=reply_to,
            timeout=timeout,
            _publish_type=PublishType.PUBLISH,
        )
        results: Sequence[SendResult] = await self._basic_publish_batch(command, producer=self._producer)
        return results

    async def request(  # type: ignore[override]
        self,
        message: Any = None,
        topic: str = "",
        *,
        tags: str = "",
        keys: str | Iterable[str] = (),
        headers: Mapping[str, Any] | None = None,
        correlation_id: str | None = None,
        timeout: Duration | None = None,
    ) -> RocketMQMessage:
        """Publish a request, and return the reply: the result of the handler that receives it.

        Arguments are those of :meth:`publish`. The timeout includes the reply.

        Raises:
            ReplyTimeoutError: no reply came in time.
            RocketMQError: as ``Producer.request``.
        """
        command = RocketMQPublishCommand(
            message,
            topic=topic,
            options=SendOptions(tags=tags, keys=keys),
            headers=headers,
            correlation_id=correlation_id or self.config.id_generator(),
            timeout=timeout,
            _publish_type=PublishType.REQUEST,
        )
        reply: RocketMQMessage = await self._basic_request(command, producer=self._producer)
        return reply

    async def _connect(self) -> Client:
        client = Client(self._address, **self._client_options)
        await client.start()
        try:
            producer = client.producer(**self._producer_options)
            await producer.start()
        except BaseException:  # also if cancelled: stop() does not know the client yet
            await client.aclose()
            raise
        self.config.connect(client, producer)
        return client

    def _check_groups(self) -> None:
        """Raise SetupError if two subscribers with handlers are in one group, whose members must be alike."""
        seen: dict[str, RocketMQSubscriber] = {}
        for subscriber in self.subscribers:
            if not isinstance(subscriber, RocketMQSubscriber) or not subscriber.calls:
                continue
            group = subscriber.subscription.group
            if group in seen:
                topics = " and ".join([",".join(one.topics) for one in (seen[group], subscriber)])
                raise SetupError(
                    f"two subscribers, of {topics}, are in the group {group!r}, whose members must have the "
                    "same subscriptions; give each a group of its own, or one of them all topics"
                )
            seen[group] = subscriber


def server_urls(address: str | None) -> list[str]:
    """Return the servers of AsyncAPI documents: the name servers, or the URL that returns them."""
    servers = name_servers(address, ClientSettings())
    return list(servers) if isinstance(servers, tuple) else [address or ""]
