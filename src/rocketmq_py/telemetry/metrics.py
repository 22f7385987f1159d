"""OpenTelemetry metrics of producers and consumers."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterable
from functools import partial

import attrs

from rocketmq_py.arguments import check_integer
from rocketmq_py.client.histogram import HistogramSnapshot
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.metrics import (
    ROCKETMQ_METRICS,
    SEMCONV_METRICS,
    Labels,
    Metric,
    MetricKind,
    MetricNames,
    MetricSource,
)

try:
    from opentelemetry import metrics as otel_metrics
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
    their bucket. If there are more than ``max_records_per_second``, about that many are recorded, in
    proportion to the buckets: the distribution is right, but the counts are too low. The counters are always
    exact.

    Objects with the same meter provider share its instruments. A producer or consumer that is added to
    several of them counts once. Set the global meter provider before creating the first object that uses it.

    Args:
        *members: producers and consumers. :meth:`add` adds further ones.
        meter_provider: creates the instruments. None for the global one.
        names: ``"rocketmq"`` for the names of the official clients, or ``"semconv"`` for those of
            OpenTelemetry's semantic conventions for messaging.
        max_records_per_second: the maximum number of durations recorded per second, on average since the last
            collection. The latest object of a meter provider sets it for all.

    Raises:
        ConfigurationError: an argument is neither a producer nor a consumer, or an option is not valid.
    """

    def __init__(
        self,
        *members: object,
        meter_provider: otel_metrics.MeterProvider | None = None,
        names: MetricNames | str = MetricNames.ROCKETMQ,
        max_records_per_second: int = MAX_RECORDS_PER_SECOND,
    ) -> None:
        self._names = MetricNames.of(names)
        max_rate = check_integer(max_records_per_second, "max_records_per_second", lowest=1)
        provider = meter_provider or otel_metrics.get_meter_provider()
        with _export_lock:
            if provider not in _exports:
                _exports[provider] = _Export()
            self._export = _exports[provider]
            meter = otel_metrics.get_meter("rocketmq_py", meter_provider=provider)
            self._export.create_instruments(meter, self._names)
        self._export.max_rate = max_rate
        for member in members:
            self.add(member)

    def add(self, member: object) -> None:
        """Add a producer or consumer. Only a weak reference to it is kept.

        Raises ConfigurationError for another object.
        """
        self._export.add(member, self._names)


@attrs.frozen
class _Durations:
    """A histogram of OpenTelemetry, and the source of its durations."""

    source: MetricSource
    key: str
    metric: Metric
    histogram: otel_metrics.Histogram

    def record(self, labels: Labels, durations: HistogramSnapshot, share: float) -> None:
        """Record a share of the durations, and at least one of each bucket that has any."""
        attributes = dict(labels)
        for count, total in zip(durations.counts, durations.sums, strict=True):
            if count:
                mean = total / count * self.metric.scale
                for _ in range(max(round(count * share), 1)):
                    self.histogram.record(mean, attributes)


class _Export:
    """The instruments of a meter provider.

    There is one for each provider, because OpenTelemetry's SDK returns the existing instrument for a known
    name, and ignores the new callbacks.

    Attributes:
        max_rate: the maximum number of durations recorded per second.
    """

    def __init__(self) -> None:
        self.max_rate: int = MAX_RECORDS_PER_SECOND
        self._all = MetricSource()
        """All producers and consumers, for the metrics with the same name in both sets of names."""
        self._sources: dict[MetricNames, MetricSource] = {}
        self._names: set[str] = set()
        self._lock = threading.Lock()
        self._collected_at = time.monotonic()
        self._durations: dict[str, _Durations] = {}
        self._recorded: dict[tuple[str, Labels], HistogramSnapshot] = {}

    def add(self, member: object, names: MetricNames) -> None:
        """Add a producer or consumer. Raises ConfigurationError for another object."""
        self._sources[names].add(member)
        self._all.add(member)

    def create_instruments(self, meter: otel_metrics.Meter, names: MetricNames) -> None:
        """Create the instruments with these names that do not exist yet."""
        own = self._sources.setdefault(names, MetricSource(names))
        for key, metric in own.metrics.items():
            if metric.name not in self._names:
                self._names.add(metric.name)
                is_common = ROCKETMQ_METRICS[key] is SEMCONV_METRICS[key]
                self._create_instrument(meter, key, metric, self._all if is_common else own)

    def _create_instrument(
        self, meter: otel_metrics.Meter, key: str, metric: Metric, source: MetricSource
    ) -> None:
        observe = partial(self._observe, source, key)
        match metric.kind:
            case MetricKind.HISTOGRAM:
                histogram = meter.create_histogram(
                    metric.name,
                    unit=metric.unit,
                    description=metric.description,
                    explicit_bucket_boundaries_advisory=[bound * metric.scale for bound in metric.bounds],
                )
                self._durations[metric.name] = _Durations(source, key, metric, histogram)
            case MetricKind.COUNTER:
                meter.create_observable_counter(
                    metric.name, [observe], unit=metric.unit, description=metric.description
                )
            case MetricKind.GAUGE:
                # One callback records the durations. The SDK reads histograms after all callbacks.
                callbacks: list[Callable[[otel_metrics.CallbackOptions], Iterable[otel_metrics.Observation]]]
                callbacks = [self._record_durations, observe] if key == "connections" else [observe]
                meter.create_observable_gauge(
                    metric.name, callbacks, unit=metric.unit, description=metric.description
                )

    def _observe(
        self, source: MetricSource, key: str, _: otel_metrics.CallbackOptions
    ) -> list[otel_metrics.Observation]:
        return [
            otel_metrics.Observation(value, dict(labels)) for labels, value in source.collect(key).items()
        ]

    def _record_durations(self, _: otel_metrics.CallbackOptions) -> list[otel_metrics.Observation]:
        with self._lock:
            new = self._new_durations()
            now, before = time.monotonic(), self._collected_at
            self._collected_at = now
        allowed = self.max_rate * max(now - before, 1.0)
        share = min(allowed / max(sum(value.count for _, _, value in new), 1), 1.0)
        for durations, labels, value in new:
            durations.record(labels, value, share)
        return []

    def _new_durations(self) -> list[tuple[_Durations, Labels, HistogramSnapshot]]:
        """Return the durations since the last call."""
        new = []
        recorded = {}
        for name, durations in self._durations.items():
            for labels, value in durations.source.collect(durations.key).items():
                new.append(
                    (durations, labels, value - self._recorded.get((name, labels), HistogramSnapshot()))
                )
                recorded[name, labels] = value
        self._recorded = recorded
        return new


_exports: weakref.WeakKeyDictionary[otel_metrics.MeterProvider, _Export] = weakref.WeakKeyDictionary()
_export_lock = threading.Lock()
