"""Received messages as FastStream's handlers get them, and the outcomes of their deliveries.

Bodies that cannot be decoded become dead letters, because another delivery would fail in the same way. These
are bodies that the decoder refuses, and values that do not fit the handler's parameters. Errors that a
handler raises itself are failures like others, also if they are validation errors.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import wraps
from typing import Any, Final, TypeAlias

from faststream.message import StreamMessage, decode_message

from rocketmq_py.arguments import Duration
from rocketmq_py.codecs import describe_validation_error
from rocketmq_py.consumer import ConsumeLater, ConsumeResult, Suspend
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.message import ReceivedMessage
from rocketmq_py.names import reply_topic
from rocketmq_py.property_names import (
    CLUSTER,
    CORRELATION_ID,
    MESSAGE_TYPE,
    REPLY_MESSAGE_TYPE,
    REPLY_TO_CLIENT,
)

RawMessage: TypeAlias = ReceivedMessage | tuple[ReceivedMessage, ...]
"""A received message, or the messages of a batch."""

CONTENT_TYPE: Final = "contentType"
"""The property with the content type of the body. Spring's RocketMQ template uses the same name."""
CORRELATION_ID_HEADER: Final = "correlation_id"
REPLY_TO_HEADER: Final = "reply_to"
"""The names of both properties are those of the headers of FastStream's Kafka brokers."""
DEAD_LETTER: Final = -1
"""The delay level that moves a message to the dead letters of its group."""


class Delivery:
    """The outcome of one delivery. The first acknowledgement, retry or rejection counts.

    Args:
        orderly: whether the subscriber processes each queue in order.

    Attributes:
        has_started: whether a handler was called.
        undecoded: the decoder's errors, by the index of the message.
        unreadable: the reasons of messages that no other delivery could decode either, by their index.
    """

    def __init__(self, *, orderly: bool = False) -> None:
        self.has_started: bool = False
        self.undecoded: dict[int, Exception] = {}
        self.unreadable: Mapping[int, str] = {}
        self._orderly = orderly
        self._is_settled = False
        self._result: ConsumeResult | None = None

    @property
    def result(self) -> ConsumeResult | None:
        """The result for the consumer. An unsettled delivery is retried."""
        if self._is_settled:
            return self._result
        return Suspend() if self._orderly else ConsumeLater()

    @property
    def is_retried(self) -> bool:
        """Whether the messages are to be delivered again."""
        return isinstance(self.result, Suspend | ConsumeLater) and self.result != ConsumeLater(DEAD_LETTER)

    def acknowledge(self) -> None:
        """Acknowledge the messages: they are not delivered again."""
        self._settle(None)

    def retry(self, delay_level: int | None, seconds: Duration | None) -> None:
        """Deliver the messages again.

        Raises:
            ConfigurationError: the delay is out of range, or does not apply: ``seconds`` is for ordered
                subscribers, ``delay_level`` for others.
        """
        if self._orderly:
            if delay_level is not None:
                raise ConfigurationError(
                    "nack(delay_level=...) does not apply to an ordered subscriber; pass seconds"
                )
            self._settle(Suspend(seconds))
        else:
            if seconds is not None:
                raise ConfigurationError("nack(seconds=...) needs orderly=True; pass delay_level")
            self._settle(ConsumeLater(delay_level or 0))

    def reject(self) -> None:
        """Move the messages to the dead letters. An ordered subscriber drops them."""
        self._settle(None if self._orderly else ConsumeLater(DEAD_LETTER))

    def _settle(self, result: ConsumeResult | None) -> None:
        if not self._is_settled:
            self._is_settled = True
            self._result = result


current_delivery: ContextVar[Delivery] = ContextVar("rocketmq_py.faststream.delivery")
"""The delivery that the running handler processes."""


class RocketMQMessage(StreamMessage[RawMessage]):
    """A message in FastStream's terms. ``raw_message`` is the ReceivedMessage, or the tuple of a batch.

    Acknowledgements take effect when the handler returns.

    Args:
        raw_message: the message, or the messages of a batch.
        body: the encoded body, or a list of them.
        delivery: receives the outcome. None for a message whose outcome has no effect.
        **fields: the other arguments of FastStream's StreamMessage.
    """

    def __init__(
        self, raw_message: RawMessage, body: Any, *, delivery: Delivery | None = None, **fields: Any
    ) -> None:
        super().__init__(raw_message, body, **fields)
        self._delivery = delivery or Delivery()

    @property
    def received(self) -> tuple[ReceivedMessage, ...]:
        """The received message, or the messages of the batch."""
        return received_messages(self)

    async def decode(self) -> Any:
        """Return the decoded body. Raises the decoder's errors."""
        try:
            return await super().decode()
        except ValueError as error:  # also JSONDecodeError, UnicodeDecodeError and pydantic's
            if isinstance(self.raw_message, ReceivedMessage):
                self._delivery.undecoded = {0: error}
            raise

    async def ack(self) -> None:
        """Acknowledge the message."""
        if self.committed is None:
            self._delivery.acknowledge()
        await super().ack()

    async def nack(self, *, delay_level: int | None = None, seconds: Duration | None = None) -> None:
        """Have the message delivered again.

        Args:
            delay_level: the delay, 1 to 18, or 0 for one that grows with the failures of the message.
            seconds: the pause of the queue instead, for an ordered subscriber.

        Raises:
            ConfigurationError: the delay is out of range, or does not apply: ``seconds`` is for ordered
                subscribers, ``delay_level`` for others.
        """
        if self.committed is None:
            self._delivery.retry(delay_level, seconds)
        await super().nack()

    async def reject(self) -> None:
        """Move the message to the dead letters of its group. An ordered subscriber drops it."""
        if self.committed is None:
            self._delivery.reject()
        await super().reject()


class RocketMQParser:
    """FastStream's default parser and decoder of RocketMQ's messages."""

    async def parse_message(self, message: ReceivedMessage) -> RocketMQMessage:
        """Return a message in FastStream's terms. Its headers are the sender's own properties."""
        headers = dict(message.user_properties)
        correlation_id = headers.get(CORRELATION_ID_HEADER) or message.properties.get(CORRELATION_ID)
        return RocketMQMessage(
            message,
            message.body,
            delivery=current_delivery.get(None),
            headers=headers,
            reply_to=_reply_topic(message) or headers.get(REPLY_TO_HEADER, ""),
            content_type=headers.get(CONTENT_TYPE),
            correlation_id=correlation_id,
            message_id=message.message_id,
        )

    async def parse_batch(self, messages: Sequence[ReceivedMessage]) -> RocketMQMessage:
        """Return a batch in FastStream's terms, with the headers of its first message and no reply topic."""
        batch_headers = [dict(message.user_properties) for message in messages]
        first = batch_headers[0]
        return RocketMQMessage(
            tuple(messages),
            [message.body for message in messages],
            delivery=current_delivery.get(None),
            headers=first,
            batch_headers=batch_headers,
            content_type=first.get(CONTENT_TYPE),
            correlation_id=first.get(CORRELATION_ID_HEADER),
            message_id=f"{messages[0].message_id}-{messages[-1].message_id}",
        )

    async def decode_message(self, message: StreamMessage[Any]) -> Any:
        """Decode a body by its content type: JSON, or text, or else bytes."""
        return decode_message(message)

    async def decode_batch(self, message: StreamMessage[Any]) -> list[Any]:
        """Decode the bodies of a batch, each by its content type. Raises the first error, after all."""
        bodies: list[Any] = []
        undecoded: dict[int, Exception] = {}
        for index, raw in enumerate(message.raw_message):
            try:
                bodies.append(decode_message(await self.parse_message(raw)))
            except ValueError as error:
                undecoded[index] = error
        if undecoded:
            if isinstance(message, RocketMQMessage):
                message._delivery.undecoded = undecoded
            raise next(iter(undecoded.values()))
        return bodies


def received_messages(message: StreamMessage[RawMessage]) -> tuple[ReceivedMessage, ...]:
    """Return the received message, or the messages of the batch."""
    raw = message.raw_message
    return (raw,) if isinstance(raw, ReceivedMessage) else raw


def is_request(message: ReceivedMessage) -> bool:
    """Return whether the sender waits for a reply (``Producer.request``)."""
    properties = message.properties
    return bool(properties.get(REPLY_TO_CLIENT)) and (properties.get(MESSAGE_TYPE) != REPLY_MESSAGE_TYPE)


def _reply_topic(message: ReceivedMessage) -> str:
    """Return the topic through which the broker sends the reply to a request, or an empty text."""
    cluster = message.properties.get(CLUSTER)
    return reply_topic(cluster) if cluster and is_request(message) else ""


# Bodies that cannot be decoded

_VALIDATION_ERRORS: Final = frozenset(
    {
        ("fast_depends", "ValidationError"),
        ("fastapi", "RequestValidationError"),
        ("msgspec", "ValidationError"),
        ("pydantic_core", "ValidationError"),
    }
)
"""The packages, which need not be installed, and the classes of errors for values that do not fit."""


def note_start(handler: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a handler, so that its delivery knows that it was called."""

    @wraps(handler)
    def call(*arguments: Any, **keywords: Any) -> Any:
        if (delivery := current_delivery.get(None)) is not None:
            delivery.has_started = True
        return handler(*arguments, **keywords)

    if not inspect.iscoroutinefunction(handler):
        return call

    @wraps(handler)
    async def call_async(*arguments: Any, **keywords: Any) -> Any:
        return await call(*arguments, **keywords)

    return call_async


def unreadable_bodies(delivery: Delivery, error: Exception, *, in_lists: bool) -> Mapping[int, str]:
    """Return the reason of each message that an error shows to be unreadable, by its index in the delivery.

    It is empty for other errors, and for those of a list that do not say which of its items is wrong.
    """
    if delivery.has_started:
        return {}
    if delivery.undecoded:
        return {index: _reason(cause) for index, cause in delivery.undecoded.items()}
    if not _is_validation_error(error):
        return {}
    if not in_lists:
        return {0: _reason(error)}
    cause: Any = getattr(error, "original_error", error)
    reasons: dict[int, str] = {}
    for one in cause.errors() if hasattr(cause, "errors") else ():
        index = next((part for part in one["loc"] if isinstance(part, int)), None)
        if index is None:
            return {}
        reasons[index] = _reason(error)
    return reasons


def _is_validation_error(error: Exception) -> bool:
    return any(
        (kind.__module__.partition(".")[0], kind.__name__) in _VALIDATION_ERRORS
        for kind in type(error).__mro__
    )


def _reason(error: Exception) -> str:
    return f"its body cannot be decoded: {describe_validation_error(getattr(error, 'original_error', error))}"
