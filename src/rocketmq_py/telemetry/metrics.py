"""OpenTelemetry metrics of producers and consumers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from functools import partial

from rocketmq_py.arguments import check_integer
from rocketmq_py.client.histogram import HistogramSnapshot
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.metrics import Labels, Metric, MetricKind, MetricNames, MetricSource

try:
    from opentelemetry import metrics as api
except ImportError:
    raise ConfigurationError(
        "OpenTelemetry metrics need an extra: install rocketmq-py[opentelemetry]"
    ) from None

MAX_RECORDS_PER_SECOND = 200
"""The default bound for durations recorded in OpenTelemetry."""


class TelemetryMetrics:
    """Exports the metrics of producers and consumers of all three APIs through OpenTelemetry.

    ::

        metrics = TelemetryMetrics(producer, consumer)

    Counters and gauges are observed at each collection. A record in OpenTelemetry costs as much as a third of
    a pipelined send. So durations are counted by bucket, and recorded at each collection, with the mean of
    their bucket. If there are more than ``max_records_per_second``, that many are recorded, in proportion to
    the buckets: the distribution is right, but the counts are too low. The counters are always exact.

    Args:
        *members: producers and consumers. :meth:`add` adds further ones.
        meter_provider: creates the instruments. None for the global one.
        names: ``"rocketmq"`` for the names of the official clients, or ``"semconv"`` for those of
            OpenTelemetry's semantic conventions for messaging.
        max_records_per_second: how many durations are recorded, on average since the last collection.

    Raises:
        ConfigurationError: an argument is neither a producer nor a consumer, or an option is not valid.
    """

    def __init__(
        self,
        *members: object,
        meter_provider: api.MeterProvider | None = None,
        names: MetricNames | str = MetricNames.ROCKETMQ,
        max_records_per_second: int = MAX_RECORDS_PER_SECOND,
    ) -> None:
        self._source = MetricSource(names)
        self._max_rate = check_integer(max_records_per_second, "max_records_per_second", lowest=1)
        self._collected_at = time.monotonic()
        self._lock = threading.Lock()
        self._recorded: dict[tuple[str, Labels], HistogramSnapshot] = {}
        self._histograms: dict[str, tuple[Metric, api.Histogram]] = {}
        for member in members:
            self.add(member)
        meter = api.get_meter("rocketmq_py", meter_provider=meter_provider)
        for key, metric in self._source.metrics.items():
            self._create(meter, key, metric)

    def add(self, member: object) -> None:
        """Add a producer or consumer. Only a weak reference to it is kept.

        Raises ConfigurationError for another object.
        """
        self._source.add(member)

    def _create(self, meter: api.Meter, key: str, metric: Metric) -> None:
        observe = partial(self._observe, key)
        match metric.kind:
            case MetricKind.HISTOGRAM:
                self._histograms[key] = (
                    metric,
                    meter.create_histogram(
                        metric.name,
                        unit=metric.unit,
                        description=metric.description,
                        explicit_bucket_boundaries_advisory=[bound * metric.scale for bound in metric.bounds],
                    ),
                )
            case MetricKind.COUNTER:
                meter.create_observable_counter(
                    metric.name, [observe], unit=metric.unit, description=metric.description
                )
            case MetricKind.GAUGE:
                meter.create_observable_gauge(
                    metric.name, [observe], unit=metric.unit, description=metric.description
                )

    def _observe(self, key: str, _: api.CallbackOptions) -> Iterable[api.Observation]:
        if key == "connections":  # once in a collection, which reads histograms after all observations
            self._record_durations()
        return [api.Observation(value, dict(labels)) for labels, value in self._source.collect(key).items()]

    def _record_durations(self) -> None:
        with self._lock:
            new: list[tuple[str, Labels, HistogramSnapshot]] = []
            for key in self._histograms:
                for labels, value in self._source.collect(key).items():
                    new.append((key, labels, value - self._recorded.get((key, labels), HistogramSnapshot())))
                    self._recorded[key, labels] = value
            now, before = time.monotonic(), self._collected_at
            self._collected_at = now
        allowed = self._max_rate * max(now - before, 1.0)
        share = min(allowed / max(sum(value.count for _, _, value in new), 1), 1.0)
        for key, labels, value in new:
            metric, histogram = self._histograms[key]
            attributes = dict(labels)
            for count, total in zip(value.counts, value.sums, strict=True):
                if count:
                    mean = total / count * metric.scale
                    for _ in range(max(round(count * share), 1)):
                        histogram.record(mean, attributes)
