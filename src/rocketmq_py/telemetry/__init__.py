"""OpenTelemetry: spans of sends and consumption, and metrics.

``spans`` has hooks that create spans, ``metrics`` exports metrics. ``instrumentor`` adds both to each new
producer and consumer (``opentelemetry-instrument``). Needs the extra ``opentelemetry``. The application
configures the export.
"""

from __future__ import annotations

from rocketmq_py.telemetry.metrics import TelemetryMetrics
from rocketmq_py.telemetry.spans import TelemetryConsumerHook, TelemetryProducerHook

__all__ = ["TelemetryConsumerHook", "TelemetryMetrics", "TelemetryProducerHook"]
