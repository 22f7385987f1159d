"""FastStream's OpenTelemetry middleware for RocketMQ.

Needs ``faststream[otel]``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faststream.opentelemetry import TelemetrySettingsProvider
from faststream.opentelemetry.consts import MESSAGING_DESTINATION_PUBLISH_NAME
from faststream.opentelemetry.middleware import TelemetryMiddleware
from opentelemetry.semconv.trace import SpanAttributes

from rocketmq_py.integrations.faststream.commands import RocketMQPublishCommand
from rocketmq_py.integrations.faststream.messages import RawMessage, received_messages
from rocketmq_py.message import ReceivedMessage

if TYPE_CHECKING:
    from faststream.message import StreamMessage
    from opentelemetry.metrics import Meter, MeterProvider
    from opentelemetry.trace import TracerProvider

__all__ = ["RocketMQTelemetryMiddleware"]


class RocketMQTelemetryMiddleware(TelemetryMiddleware[RocketMQPublishCommand]):
    """Spans and metrics of published and processed messages, for ``RocketMQBroker(middlewares=[...])``.

    The context of a trace travels in the header ``traceparent``.

    Args:
        tracer_provider: makes the spans. None for the global one.
        meter_provider: makes the metrics. None for the global one.
        meter: makes the metrics, instead of the provider's.
        include_messages_counters: whether messages are counted.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        meter: Meter | None = None,
        include_messages_counters: bool = True,
    ) -> None:
        super().__init__(
            settings_provider_factory=lambda _: RocketMQTelemetrySettings(),
            tracer_provider=tracer_provider,
            meter_provider=meter_provider,
            meter=meter,
            include_messages_counters=include_messages_counters,
        )


class RocketMQTelemetrySettings(TelemetrySettingsProvider[RawMessage, RocketMQPublishCommand]):
    """The attributes of spans, in the semantic conventions of OpenTelemetry."""

    messaging_system: str = "rocketmq"

    def get_consume_attrs_from_message(self, msg: StreamMessage[RawMessage]) -> dict[str, Any]:
        """Return the attributes of a processed message or batch."""
        messages = received_messages(msg)
        attributes: dict[str, Any] = {
            SpanAttributes.MESSAGING_SYSTEM: self.messaging_system,
            SpanAttributes.MESSAGING_MESSAGE_ID: msg.message_id,
            SpanAttributes.MESSAGING_MESSAGE_CONVERSATION_ID: msg.correlation_id,
            SpanAttributes.MESSAGING_MESSAGE_PAYLOAD_SIZE_BYTES: sum(len(one.body) for one in messages),
            MESSAGING_DESTINATION_PUBLISH_NAME: messages[0].topic,
        }
        if not isinstance(msg.raw_message, ReceivedMessage):
            attributes[SpanAttributes.MESSAGING_BATCH_MESSAGE_COUNT] = len(messages)
            return attributes
        return attributes | message_attributes(messages[0].tags, messages[0].keys)

    def get_consume_destination_name(self, msg: StreamMessage[RawMessage]) -> str:
        """Return the topic of a processed message or batch."""
        return received_messages(msg)[0].topic

    def get_publish_attrs_from_cmd(self, cmd: RocketMQPublishCommand) -> dict[str, Any]:
        """Return the attributes of a message to publish."""
        return {
            SpanAttributes.MESSAGING_SYSTEM: self.messaging_system,
            SpanAttributes.MESSAGING_DESTINATION_NAME: cmd.destination,
            SpanAttributes.MESSAGING_MESSAGE_CONVERSATION_ID: cmd.correlation_id or "",
        } | message_attributes(cmd.options.tags, cmd.options.keys)

    def get_publish_destination_name(self, cmd: RocketMQPublishCommand) -> str:
        """Return the topic of a message to publish."""
        return cmd.destination


def message_attributes(tags: str, keys: tuple[str, ...]) -> dict[str, Any]:
    """Return the attributes with a message's tag and keys, if it has any."""
    attributes: dict[str, Any] = {}
    if tags:
        attributes[SpanAttributes.MESSAGING_ROCKETMQ_MESSAGE_TAG] = tags
    if keys:
        attributes[SpanAttributes.MESSAGING_ROCKETMQ_MESSAGE_KEYS] = keys
    return attributes
