"""Publishers: ``@broker.publisher(...)``, for single messages and for batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from faststream._internal.configs import PublisherSpecificationConfig, PublisherUsecaseConfig
from faststream._internal.endpoint.publisher import PublisherSpecification, PublisherUsecase
from faststream.response import PublishType
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message, Operation, PublisherSpec

from rocketmq_py.arguments import Duration
from rocketmq_py.integrations.faststream.commands import RocketMQPublishCommand, SendOptions
from rocketmq_py.integrations.faststream.messages import RocketMQMessage
from rocketmq_py.message import SendResult

if TYPE_CHECKING:
    from faststream._internal.types import PublisherMiddleware
    from faststream.response import PublishCommand


@dataclass(kw_only=True)
class PublisherConfig(PublisherUsecaseConfig):
    """The settings of a publisher. The arguments of ``broker.publisher`` explain them."""

    topic: str
    options: SendOptions
    headers: dict[str, Any]
    reply_to: str


@dataclass(kw_only=True)
class RocketMQPublisherSpecificationConfig(PublisherSpecificationConfig):
    """The settings of a publisher's AsyncAPI documentation."""

    topic: str
    options: SendOptions


class RocketMQPublisherSpecification(PublisherSpecification[Any, RocketMQPublisherSpecificationConfig]):
    """The AsyncAPI documentation of a publisher."""

    @property
    def topic(self) -> str:
        """The topic, with the prefixes of routers."""
        return f"{self._outer_config.prefix}{self.config.topic}"

    @property
    def name(self) -> str:
        """The key of the channel."""
        return self.config.title_ or f"{self.topic}:Publisher"

    @property
    def binding(self) -> dict[str, Any]:
        """The RocketMQ binding of the channel."""
        binding = {"topic": self.topic}
        return binding | ({"tags": self.config.options.tags} if self.config.options.tags else {})

    def get_schema(self) -> dict[str, PublisherSpec]:
        """Return the channel. RocketMQAsyncAPI adds the binding."""
        payload = resolve_payloads(self.get_payloads(), "Publisher")
        message = Message(title=f"{self.name}:Message", payload=payload)
        return {
            self.name: PublisherSpec(
                address=self.topic,
                description=self.config.description_,
                operation=Operation(message=message, bindings=None),
                bindings=None,
            )
        }


class PublisherOptions(TypedDict, total=False):
    """The keyword arguments of ``broker.publisher`` except ``batch``."""

    tags: str
    keys: str | Iterable[str]
    sharding_key: str
    delay: Duration
    priority: int | None
    headers: Mapping[str, Any] | None
    reply_to: str
    persistent: bool
    title: str | None
    description: str | None
    schema: Any | None
    include_in_schema: bool


class DefaultPublisher(PublisherUsecase):
    """Publishes messages to a topic. ``broker.publisher`` returns it.

    Args:
        config: the settings.
        specification: the AsyncAPI documentation.
    """

    batch: bool = False

    def __init__(self, config: PublisherConfig, specification: RocketMQPublisherSpecification) -> None:
        super().__init__(config, specification)  # type: ignore[arg-type]  # its parameter is invariant
        self._topic = config.topic
        self._options = config.options
        self._headers = config.headers
        self._reply_to = config.reply_to

    @property
    def topic(self) -> str:
        """The topic, with the prefixes of routers."""
        return f"{self._outer_config.prefix}{self._topic}"

    async def publish(
        self,
        message: Any,
        /,
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
        """Publish a message. Arguments left out are those of the publisher. Raises as ``broker.publish``."""
        options = SendOptions(tags=tags, keys=keys, sharding_key=sharding_key, delay=delay, priority=priority)
        command = self._command(
            message,
            topic=topic,
            options=options,
            headers=headers,
            correlation_id=correlation_id,
            reply_to=reply_to,
            timeout=timeout,
            publish_type=PublishType.PUBLISH,
        )
        result: SendResult = await self._basic_publish(
            command, producer=self._outer_config.producer, _extra_middlewares=()
        )
        return result

    async def request(
        self,
        message: Any,
        /,
        topic: str = "",
        *,
        tags: str = "",
        keys: str | Iterable[str] = (),
        headers: Mapping[str, Any] | None = None,
        correlation_id: str | None = None,
        timeout: Duration | None = None,
    ) -> RocketMQMessage:
        """Publish a request and return its reply. Raises as ``broker.request``."""
        command = self._command(
            message,
            topic=topic,
            options=SendOptions(tags=tags, keys=keys),
            headers=headers,
            correlation_id=correlation_id,
            timeout=timeout,
            publish_type=PublishType.REQUEST,
        )
        reply: RocketMQMessage = await self._basic_request(command, producer=self._outer_config.producer)
        return reply

    async def _publish(
        self, cmd: PublishCommand, *, _extra_middlewares: Iterable[PublisherMiddleware]
    ) -> Any:
        """Publish a handler's result."""
        await self._basic_publish(
            self._with_defaults(RocketMQPublishCommand.from_cmd(cmd)),
            producer=self._outer_config.producer,
            _extra_middlewares=_extra_middlewares,
        )

    def _command(
        self,
        *messages: Any,
        topic: str,
        options: SendOptions,
        headers: Mapping[str, Any] | None,
        correlation_id: str | None,
        publish_type: PublishType,
        reply_to: str = "",
        timeout: Duration | None = None,
    ) -> RocketMQPublishCommand:
        return RocketMQPublishCommand(
            *messages,
            topic=topic or self.topic,
            options=options.or_else(self._options),
            headers=self._headers | dict(headers or {}),
            correlation_id=correlation_id or self._outer_config.id_generator(),
            # A request has its reply sent to this client.
            reply_to="" if publish_type is PublishType.REQUEST else reply_to or self._reply_to,
            timeout=timeout,
            _publish_type=publish_type,
        )

    def _with_defaults(self, command: RocketMQPublishCommand) -> RocketMQPublishCommand:
        """Return the command of a handler's result, with this publisher's topic and options."""
        command.destination = self.topic
        command.options = command.options.or_else(self._options)
        command.add_headers(self._headers, override=False)
        command.reply_to = command.reply_to or self._reply_to
        return command


class BatchPublisher(DefaultPublisher):
    """Publishes batches to a topic. ``broker.publisher(batch=True)`` returns it."""

    batch: bool = True

    async def publish(  # type: ignore[override]
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
        """Publish a batch. Arguments left out are those of the publisher.

        Returns the result of each message. Raises as ``broker.publish_batch``.
        """
        command = self._command(
            *messages,
            topic=topic,
            options=SendOptions(tags=tags, keys=keys, sharding_key=sharding_key),
            headers=headers,
            correlation_id=correlation_id,
            reply_to=reply_to,
            timeout=timeout,
            publish_type=PublishType.PUBLISH,
        )
        results: Sequence[SendResult] = await self._basic_publish_batch(
            command, producer=self._outer_config.producer, _extra_middlewares=()
        )
        return results

    async def _publish(
        self, cmd: PublishCommand, *, _extra_middlewares: Iterable[PublisherMiddleware]
    ) -> Any:
        """Publish a handler's result, a list of messages."""
        await self._basic_publish_batch(
            self._with_defaults(RocketMQPublishCommand.from_cmd(cmd, batch=True)),
            producer=self._outer_config.producer,
            _extra_middlewares=_extra_middlewares,
        )
