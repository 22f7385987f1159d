"""Automatic instrumentation: ``opentelemetry-instrument python program.py``."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from typing import Any

from rocketmq_py.client.client import Member, member_callbacks
from rocketmq_py.consumer.group.base_consumer import BaseConsumer
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.metrics import MetricNames
from rocketmq_py.producer.base_producer import BaseProducer
from rocketmq_py.telemetry.metrics import TelemetryMetrics
from rocketmq_py.telemetry.spans import TelemetryConsumerHook, TelemetryProducerHook

try:
    from opentelemetry.instrumentation.instrumentor import BaseInstrumentor
except ImportError:
    raise ConfigurationError(
        "automatic instrumentation needs a package: install opentelemetry-instrumentation"
    ) from None

OPT_IN = "OTEL_SEMCONV_STABILITY_OPT_IN"
"""OpenTelemetry's environment variable with the conventions to follow, separated by commas."""


class RocketMQInstrumentor(BaseInstrumentor):  # type: ignore[misc]  # mypy does not find its type
    """Adds spans and metrics to each producer and consumer that is created from now on, in all three APIs.

    ``opentelemetry-instrument`` uses it. A program may call ``RocketMQInstrumentor().instrument()``.
    ``uninstrument`` affects later producers and consumers only.

    ``instrument`` takes ``tracer_provider`` and ``meter_provider``, None for the global ones, and ``names``
    as TelemetryMetrics does. By default the names are those of the semantic conventions if the environment
    variable OTEL_SEMCONV_STABILITY_OPT_IN contains ``messaging`` or ``messaging/dup`` (which here means the
    same), and those of the official clients if not.
    """

    _callback: Callable[[Member], None] | None = None

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return the packages that must be installed: none."""
        return ()

    def _instrument(self, **options: Any) -> None:
        tracer_provider = options.get("tracer_provider")
        metrics = TelemetryMetrics(
            meter_provider=options.get("meter_provider"), names=options.get("names") or _default_names()
        )

        def instrument(member: Member) -> None:
            if isinstance(member, BaseProducer):
                member.add_hook(TelemetryProducerHook(tracer_provider))
            elif isinstance(member, BaseConsumer):
                member.add_hook(TelemetryConsumerHook(tracer_provider))
            metrics.add(member)

        self._callback = instrument
        member_callbacks.append(instrument)

    def _uninstrument(self, **_: Any) -> None:
        if self._callback is not None:
            member_callbacks.remove(self._callback)
            self._callback = None


def _default_names() -> MetricNames:
    opted_in = {word.strip() for word in os.environ.get(OPT_IN, "").split(",")}
    if opted_in & {"messaging", "messaging/dup"}:
        return MetricNames.SEMCONV
    return MetricNames.ROCKETMQ
