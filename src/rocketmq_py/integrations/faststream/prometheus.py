"""FastStream's Prometheus middleware for RocketMQ.

Needs ``faststream[prometheus]``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from faststream._internal.constants import EMPTY
from faststream.prometheus import ConsumeAttrs, MetricsSettingsProvider
from faststream.prometheus.middleware import PrometheusMiddleware

from rocketmq_py.integrations.faststream.commands import RocketMQPublishCommand
from rocketmq_py.integrations.faststream.messages import RawMessage, received_messages

if TYPE_CHECKING:
    from faststream.message import StreamMessage
    from faststream.response import PublishCommand
    from prometheus_client import CollectorRegistry

__all__ = ["RocketMQPrometheusMiddleware"]


class RocketMQPrometheusMiddleware(PrometheusMiddleware[RawMessage, RocketMQPublishCommand]):
    """Metrics of published and processed messages, for ``RocketMQBroker(middlewares=[...])``.

    Args:
        registry: collects the metrics.
        app_name: the value of the label ``app_name``. By default the prefix.
        metrics_prefix: precedes the names of metrics.
        received_messages_size_buckets: the buckets of message sizes, in bytes.
        custom_labels: further labels, with values or functions of a message.
    """

    def __init__(
        self,
        *,
        registry: CollectorRegistry,
        app_name: str = EMPTY,
        metrics_prefix: str = "faststream",
        received_messages_size_buckets: Sequence[float] | None = None,
        custom_labels: dict[str, str | Callable[[Any], str]] | None = None,
    ) -> None:
        super().__init__(
            settings_provider_factory=lambda _: RocketMQMetricsSettings(),
            registry=registry,
            app_name=app_name,
            metrics_prefix=metrics_prefix,
            received_messages_size_buckets=received_messages_size_buckets,
            custom_labels=custom_labels,
        )


class RocketMQMetricsSettings(MetricsSettingsProvider[RawMessage]):
    """The labels and values of metrics."""

    messaging_system: str = "rocketmq"

    def get_consume_attrs_from_message(self, msg: StreamMessage[RawMessage]) -> ConsumeAttrs:
        """Return the topic, the size and the number of processed messages."""
        messages = received_messages(msg)
        return {
            "destination_name": messages[0].topic,
            "message_size": sum(len(message.body) for message in messages),
            "messages_count": len(messages),
        }

    def get_publish_destination_name_from_cmd(self, cmd: PublishCommand) -> str:
        """Return the topic of a message to publish."""
        return cmd.destination
