"""Sends what FastStream publishes: messages, batches, requests and replies."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from faststream._internal.endpoint.publisher.fake import FakePublisher
from faststream._internal.endpoint.utils import ParserComposition
from faststream._internal.parser import DefaultCodec
from faststream._internal.producer import ProducerProto
from faststream.response import Response

from rocketmq_py.aio import Producer
from rocketmq_py.errors import ClosedError, RocketMQError
from rocketmq_py.integrations.faststream.commands import RocketMQPublishCommand, RocketMQResponse, SendOptions
from rocketmq_py.integrations.faststream.messages import (
    CONTENT_TYPE,
    CORRELATION_ID_HEADER,
    REPLY_TO_HEADER,
    RocketMQParser,
)
from rocketmq_py.message import Message, ReceivedMessage, SendResult

if TYPE_CHECKING:
    from faststream._internal.parser import CodecProto
    from faststream._internal.types import CustomCallable, PublisherMiddleware
    from faststream.response import PublishCommand

NULL_BODY: Final = (b"null", "application/json")
"""The body of None, and its content type. RocketMQ has no messages without a body."""


class RocketMQProducer(ProducerProto[RocketMQPublishCommand]):
    """FastStream's producer on a ``rocketmq_py.aio.Producer``.

    Args:
        parser: the parser that was passed to the broker, or None.
        decoder: the decoder that was passed to the broker, or None.
    """

    def __init__(self, parser: CustomCallable | None, decoder: CustomCallable | None) -> None:
        default = RocketMQParser()
        # FastStream reads both to parse replies.
        self._parser: Any = ParserComposition(parser, default.parse_message)
        self._decoder: Any = ParserComposition(decoder, default.decode_message)
        self.codec: CodecProto = DefaultCodec()
        self._serializer: Any = None
        self._producer: Producer | None = None

    def connect(self, producer: Producer, serializer: Any, codec: CodecProto | None) -> None:
        """Send through this producer from now on."""
        self._producer = producer
        self.set_encoding(serializer, codec)

    def set_encoding(self, serializer: Any, codec: CodecProto | None) -> None:
        """Encode bodies with this serializer and codec from now on."""
        self._serializer = serializer
        self.codec = codec or DefaultCodec()

    def disconnect(self) -> None:
        """Send no more."""
        self._producer = None

    async def publish(self, cmd: RocketMQPublishCommand) -> SendResult:
        """Send a message, or the reply to a request. Raises as the producer's ``send`` and ``reply``.

        A reply has no tags, keys, sharding key, delay or priority.
        """
        body, properties = await self._encode_body(cmd, cmd.body)
        if cmd.request is not None:
            return await self._connected_producer.reply(
                cmd.request, body, properties=properties, timeout=cmd.timeout
            )
        message = self._build_message(cmd, cmd.options, body, properties)
        return await self._connected_producer.send(message, timeout=cmd.timeout)

    async def publish_batch(self, cmd: RocketMQPublishCommand) -> Sequence[SendResult]:
        """Send a batch. An empty one sends nothing. Raises as the producer's ``send_batch``."""
        messages = await self.encode_batch(cmd)
        return await self._connected_producer.send_batch(messages, timeout=cmd.timeout) if messages else ()

    async def request(self, cmd: RocketMQPublishCommand) -> ReceivedMessage:
        """Send a request and return its reply. Raises as the producer's ``request``."""
        return await self._connected_producer.request(await self.encode_message(cmd), timeout=cmd.timeout)

    async def encode_message(self, cmd: RocketMQPublishCommand) -> Message:
        """Return the encoded message of a command."""
        return self._build_message(cmd, cmd.options, *await self._encode_body(cmd, cmd.body))

    async def encode_batch(self, cmd: RocketMQPublishCommand) -> list[Message]:
        """Return the encoded messages of a command. A RocketMQResponse has options of its own."""
        messages = []
        for item in cmd.batch_bodies:
            response = item if isinstance(item, Response) else Response(item)
            options = cmd.options
            if isinstance(response, RocketMQResponse):
                options = response.options.or_else(options)
            body, properties = await self._encode_body(cmd, response.body, response)
            messages.append(self._build_message(cmd, options, body, properties))
        return messages

    @property
    def _connected_producer(self) -> Producer:
        if self._producer is None:
            raise ClosedError("this FastStream broker is not connected; await broker.start() first")
        return self._producer

    async def _encode_body(
        self, cmd: RocketMQPublishCommand, body: Any, response: Response | None = None
    ) -> tuple[bytes, dict[str, str]]:
        """Return the encoded body, and the properties with the headers and the content type."""
        payload, content_type = (
            await self.codec.encode(body, self._serializer) if body is not None else NULL_BODY
        )
        headers = cmd.headers | response.headers if response is not None else cmd.headers
        correlation_id = (response.correlation_id if response is not None else None) or cmd.correlation_id
        properties: dict[str, str] = {}
        if content_type:
            properties[CONTENT_TYPE] = content_type
        if correlation_id:
            properties[CORRELATION_ID_HEADER] = correlation_id
        if cmd.reply_to and cmd.request is None:
            properties[REPLY_TO_HEADER] = cmd.reply_to
        # Headers of the user replace these properties.
        return payload, properties | {name: _header_value(value) for name, value in headers.items()}

    @staticmethod
    def _build_message(
        cmd: RocketMQPublishCommand, options: SendOptions, body: bytes, properties: dict[str, str]
    ) -> Message:
        return Message(
            cmd.destination,
            body,
            tags=options.tags,
            keys=options.keys,
            properties=properties,
            sharding_key=options.sharding_key,
            delay=options.delay,
            priority=options.priority,
        )


class ReplyPublisher(FakePublisher):
    """Publishes a handler's result as the reply to a request, or to the topic that the message names.

    A reply to a request that cannot be sent is logged, and the request is acknowledged: to process it again
    would not help its sender. A publish to the topic raises.

    Args:
        producer: the broker's producer.
        topic: the topic of the reply.
        request: the request, or None if the message only names a topic.
        log: called with the level and the text of a reply that cannot be sent.
    """

    def __init__(
        self,
        *,
        producer: ProducerProto[Any],
        topic: str,
        request: ReceivedMessage | None,
        log: Callable[[int, str], None],
    ) -> None:
        super().__init__(producer=producer)
        self._topic = topic
        self._request = request
        self._log = log

    def patch_command(self, cmd: PublishCommand) -> RocketMQPublishCommand:
        """Return the command with its destination."""
        command = RocketMQPublishCommand.from_cmd(super().patch_command(cmd))
        command.destination = self._topic
        command.request = self._request
        return command

    async def _publish(
        self, cmd: PublishCommand, *, _extra_middlewares: Iterable[PublisherMiddleware]
    ) -> Any:
        try:
            return await super()._publish(cmd, _extra_middlewares=_extra_middlewares)
        except RocketMQError as error:
            if self._request is None:
                raise
            self._log(logging.WARNING, f"cannot reply to a request: {error}")


def _header_value(header: Any) -> Any:
    """Return a header's value as str. None and bytes stay as they are, so that Message refuses them."""
    return header if header is None or isinstance(header, bytes) else str(header)
