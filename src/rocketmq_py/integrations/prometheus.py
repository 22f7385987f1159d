"""A collector for prometheus-client: metrics of producers and consumers, without OpenTelemetry.

::

    collector = RocketMQCollector(producer, consumer)
    REGISTRY.register(collector)

Needs the extra ``prometheus``.
"""

from __future__ import annotations

from collections.abc import Iterator

from rocketmq_py.client.histogram import HistogramSnapshot
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.metrics import Metric, MetricKind, MetricNames, MetricSource

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.core import Metric as MetricFamily
    from prometheus_client.registry import Collector
except ImportError:
    raise ConfigurationError(
        "the Prometheus collector needs an extra: install rocketmq-py[prometheus]"
    ) from None

__all__ = ["RocketMQCollector"]


class RocketMQCollector(Collector):
    """Collects the metrics of producers and consumers of all three APIs.

    Register it with a ``prometheus_client.CollectorRegistry``. Values are read when they are scraped, without
    waiting for a broker or for another thread.

    Args:
        *members: producers and consumers. :meth:`add` adds further ones.
        names: ``"rocketmq"`` for the names of the official clients, or ``"semconv"`` for those of
            OpenTelemetry's semantic conventions, with underscores.

    Raises:
        ConfigurationError: an argument is neither a producer nor a consumer, or ``names`` is unknown.
    """

    def __init__(self, *members: object, names: MetricNames | str = MetricNames.ROCKETMQ) -> None:
        self._source = MetricSource(names)
        for member in members:
            self.add(member)

    def add(self, member: object) -> None:
        """Add a producer or consumer. Only a weak reference to it is kept.

        Raises ConfigurationError for another object.
        """
        self._source.add(member)

    def describe(self) -> Iterator[MetricFamily]:
        """Yield the metrics without samples, so that registering it collects nothing."""
        for metric in self._source.metrics.values():
            yield _family(metric, [])

    def collect(self) -> Iterator[MetricFamily]:
        """Yield the metrics that have samples."""
        for key, metric in self._source.metrics.items():
            samples = self._source.collect(key)
            if not samples:
                continue
            names = sorted({name for labels in samples for name, _ in labels})
            family = _family(metric, [_underscored(name) for name in names])
            for labels, value in samples.items():
                values = [dict(labels).get(name, "") for name in names]
                if isinstance(family, HistogramMetricFamily):
                    family.add_metric(values, _buckets(metric, value), value.sum * metric.scale)
                else:
                    family.add_metric(values, value)
            yield family


def _family(
    metric: Metric, labels: list[str]
) -> CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily:
    name = _underscored(metric.name)
    match metric.kind:
        case MetricKind.COUNTER:
            return CounterMetricFamily(name, metric.description, labels=labels)
        case MetricKind.GAUGE:
            return GaugeMetricFamily(name, metric.description, labels=labels)
    unit = {"s": "seconds"}.get(metric.unit, "")
    return HistogramMetricFamily(name, metric.description, labels=labels, unit=unit)


def _underscored(name: str) -> str:
    return name.replace(".", "_")


def _buckets(metric: Metric, value: HistogramSnapshot) -> list[tuple[str, float]]:
    total = 0
    buckets: list[tuple[str, float]] = []
    bounds = [*[str(bound * metric.scale) for bound in metric.bounds], "+Inf"]
    for bound, count in zip(bounds, value.merged(metric.bounds), strict=True):
        total += count
        buckets.append((bound, total))
    return buckets
