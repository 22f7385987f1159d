"""Metrics of producers and consumers, as exporters need them.

``rocketmq_py.telemetry`` exports them through OpenTelemetry, ``rocketmq_py.integrations.prometheus`` through
prometheus-client. Counters and gauges are read when they are exported. Durations are counted by bucket, from
the addition of a producer or consumer to a :class:`MetricSource` on.
"""

from __future__ import annotations

import enum
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

import attrs

from rocketmq_py.arguments import wrong_type
from rocketmq_py.client.client import Member, core_of
from rocketmq_py.client.core import ClientCore
from rocketmq_py.client.histogram import BOUNDS, HistogramSnapshot, metrics_of
from rocketmq_py.consumer.group.base_consumer import BaseConsumer, cached_messages, metered_counters
from rocketmq_py.consumer.group.counters import CachedMessages, ConsumerCounters, TopicCounters
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.handoff.hosted import Hosted, target_of
from rocketmq_py.producer.base_producer import BaseProducer, bytes_in_flight, metered_sends
from rocketmq_py.producer.statistics import Counters, SendMeter

Labels: TypeAlias = tuple[tuple[str, str], ...]
"""Names and values of the labels of one sample."""


class MetricKind(enum.Enum):
    """The kind of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@attrs.frozen
class Metric:
    """The description of a metric.

    Attributes:
        name: its name.
        kind: its kind.
        description: one sentence.
        unit: the unit in OpenTelemetry's notation. Empty for names that contain no unit.
        bounds: the upper bounds of a histogram's buckets, in seconds.
        scale: the factor from seconds to the unit of a histogram.
    """

    name: str
    kind: MetricKind
    description: str
    unit: str = ""
    bounds: tuple[float, ...] = ()
    scale: float = 1.0


class MetricNames(enum.Enum):
    """The names of metrics and labels."""

    ROCKETMQ = "rocketmq"
    """Those of the official clients, such as ``rocketmq_send_cost_time``."""
    SEMCONV = "semconv"
    """Those of OpenTelemetry's semantic conventions for messaging, where these have one."""

    @classmethod
    def of(cls, value: MetricNames | str) -> MetricNames:
        """Return the member for its value. Raises ConfigurationError."""
        try:
            return cls(value)
        except ValueError:
            raise ConfigurationError(f"names is {value!r}; it must be 'rocketmq' or 'semconv'") from None


def _milliseconds(name: str, description: str, *bounds: int) -> Metric:
    seconds = tuple(bound / 1000 for bound in bounds)
    assert set(seconds) <= set(BOUNDS)
    return Metric(name, MetricKind.HISTOGRAM, description, bounds=seconds, scale=1000)


def _seconds(name: str, description: str) -> Metric:
    bounds = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
    return Metric(name, MetricKind.HISTOGRAM, description, unit="s", bounds=bounds)


def _declared(kind: MetricKind, values: type[object]) -> dict[str, Metric]:
    return {one.key: Metric(one.name, kind, one.description) for one in metrics_of(values).values()}


def _gauge(name: str, description: str) -> Metric:
    return Metric(name, MetricKind.GAUGE, description)


_SEND = "Time of an attempt to send, until the broker's answer or the error"
_PROCESS = "Time of a handler call"
ROCKETMQ_METRICS: Final[Mapping[str, Metric]] = {
    "send": _milliseconds("rocketmq_send_cost_time", _SEND, 1, 5, 10, 20, 50, 200, 500),
    "delivery": _milliseconds(
        "rocketmq_delivery_latency",
        "Time from the store time of messages to their arrival", 1, 5, 10, 20, 50, 200, 500,
    ),
    "wait": _milliseconds(
        "rocketmq_await_time",
        "Time from the arrival of messages to their handler call or poll", 1, 5, 20, 100, 1000, 5000, 10000,
    ),
    "process": _milliseconds("rocketmq_process_time", _PROCESS, 1, 5, 10, 100, 1000, 10000, 60000),
    **_declared(MetricKind.GAUGE, CachedMessages),
    **_declared(MetricKind.COUNTER, Counters),
    "in_flight": _gauge("rocketmq_client_in_flight_messages", "Pipelined sends without an outcome"),
    "in_flight_bytes": _gauge("rocketmq_client_in_flight_bytes", "Size of their bodies"),
    **_declared(MetricKind.COUNTER, TopicCounters),
    "connections": _gauge("rocketmq_client_connections", "Open connections to name servers and brokers"),
}  # fmt: skip
"""The metrics with the names of the official clients and, with ``rocketmq_client``, our own."""
SEMCONV_METRICS: Final[Mapping[str, Metric]] = {
    **ROCKETMQ_METRICS,
    "send": _seconds("messaging.client.operation.duration", _SEND),
    "process": _seconds("messaging.process.duration", _PROCESS),
    "sent": attrs.evolve(ROCKETMQ_METRICS["sent"], name="messaging.client.sent.messages", unit="{message}"),
    "pulled": attrs.evolve(
        ROCKETMQ_METRICS["pulled"], name="messaging.client.consumed.messages", unit="{message}"
    ),
}
"""The same with the names of OpenTelemetry's semantic conventions."""

_SEMCONV_LABELS = {
    "topic": "messaging.destination.name",
    "consumer_group": "messaging.consumer.group.name",
}
_HAS_OUTCOME = {"send", "process"}
"""The metrics whose samples are labelled with success or failure."""
_OPERATIONS = {"send": "send", "sent": "send", "process": "process", "pulled": "receive"}
"""The operation of each metric that has a name in the semantic conventions."""


_PRODUCER_COUNTERS = {one.key: attribute for attribute, one in metrics_of(Counters).items()}
_TOPIC_COUNTERS = {one.key: attribute for attribute, one in metrics_of(TopicCounters).items()}
_CACHED_GAUGES = {one.key: attribute for attribute, one in metrics_of(CachedMessages).items()}
"""The attributes of counters and gauges by the keys of their metrics."""
_NOTHING = (0, HistogramSnapshot())
"""The values of counters and histograms that have counted nothing."""

_Samples: TypeAlias = Iterable[tuple[dict[str, str], Any]]
"""Labels, each with a number or a HistogramSnapshot."""


@attrs.frozen(eq=False)
class _MeteredMember:
    """The counters of a producer or consumer, which itself is referenced weakly.

    Attributes:
        member: a weak reference to it.
        counts: returns the samples of a counter or histogram. Needs only the counters, not the member.
    """

    member: weakref.ref[Member]
    counts: Callable[[str], _Samples]


class MetricSource:
    """Reads the metrics of producers and consumers of all three APIs.

    Producers and consumers of a process may share labels: their samples are added. So that counters do not
    fall, the counts of a producer or consumer that was garbage-collected stay in the samples, as one sum for
    each set of labels. The id of a client is no label. It is a new one at each start, so that each start
    would make new series.

    Args:
        names: the names of metrics and labels.

    Attributes:
        metrics: the metrics by key.
    """

    def __init__(self, names: MetricNames | str = MetricNames.ROCKETMQ) -> None:
        self._names = MetricNames.of(names)
        # Reentrant, because a signal handler or a finalizer may create a producer during a collection.
        self._lock = threading.RLock()
        self._members: list[_MeteredMember] = []
        self._ended: dict[str, dict[Labels, Any]] = {}
        """The counts of members that were garbage-collected, by key."""
        self.metrics: Mapping[str, Metric] = (
            SEMCONV_METRICS if self._names is MetricNames.SEMCONV else ROCKETMQ_METRICS
        )

    def add(self, member: object) -> None:
        """Add a producer or consumer. Only a weak reference to it is kept.

        Raises ConfigurationError for another object.
        """
        target: object = target_of(member) if isinstance(member, Hosted) else member
        if not isinstance(target, BaseProducer | BaseConsumer):
            raise wrong_type("member", "a producer or consumer of rocketmq_py", member)
        counts: Callable[[str], _Samples]
        if isinstance(target, BaseProducer):
            counts = partial(_producer_counts, target.settings.group, *metered_sends(target))
        else:
            counts = partial(_consumer_counts, target.settings.group, metered_counters(target))
        with self._lock:
            self._sum_ended()
            if all(one.member() is not target for one in self._members):
                self._members.append(_MeteredMember(weakref.ref(target), counts))

    def collect(self, key: str) -> dict[Labels, Any]:
        """Return the samples of a metric: numbers, or HistogramSnapshots, by their labels.

        Samples with the same labels, for example of two producers of one group, are added. Any thread may
        call this.
        """
        found: dict[Labels, Any] = {}
        with self._lock:
            self._sum_ended()
            members = list(self._members)
            found.update(self._ended.get(key, {}))
        if key == "connections":
            self._add(found, key, _connections({core_of(m) for one in members if (m := one.member())}))
        elif self.metrics[key].kind is not MetricKind.GAUGE:
            for one in members:
                self._add(found, key, one.counts(key))
        else:
            for one in members:
                member = one.member()
                if isinstance(member, BaseProducer):
                    self._add(found, key, _producer_gauges(member, key))
                elif isinstance(member, BaseConsumer):
                    self._add(found, key, _consumer_gauges(member, key))
        return found

    def _sum_ended(self) -> None:
        """Replace members that were garbage-collected by the sums of their counts."""
        for one in [one for one in self._members if one.member() is None]:
            self._members.remove(one)
            counts = {
                key: list(one.counts(key))
                for key, metric in self.metrics.items()
                if metric.kind is not MetricKind.GAUGE
            }
            if any(value not in _NOTHING for samples in counts.values() for _, value in samples):
                for key, samples in counts.items():
                    self._add(self._ended.setdefault(key, {}), key, samples)

    def _add(self, found: dict[Labels, Any], key: str, samples: _Samples) -> None:
        """Add samples to those in ``found``, by the labels of the chosen convention."""
        for labels, value in samples:
            named = self._named(key, labels)
            found[named] = found[named] + value if named in found else value

    def _named(self, key: str, labels: Mapping[str, str]) -> Labels:
        """Return the labels of a sample in the chosen convention."""
        named = dict(labels)
        outcome = named.pop("outcome", "")
        if self._names is MetricNames.ROCKETMQ or self.metrics[key] is ROCKETMQ_METRICS[key]:
            if key in _HAS_OUTCOME:
                named["invocation_status"] = "failure" if outcome else "success"
            return tuple(sorted(named.items()))
        named = {_SEMCONV_LABELS.get(name, name): value for name, value in named.items()}
        named["messaging.system"] = "rocketmq"
        named["messaging.operation.name"] = named["messaging.operation.type"] = _OPERATIONS[key]
        if outcome:
            named["error.type"] = outcome
        return tuple(sorted(named.items()))


def _producer_counts(group: str, counters: Counters, meter: SendMeter, key: str) -> _Samples:
    if key == "send":
        return _by_outcome(meter.attempts.snapshots())
    if key in _PRODUCER_COUNTERS:
        return [({"producer_group": group}, getattr(counters, _PRODUCER_COUNTERS[key]))]
    return []


def _producer_gauges(producer: BaseProducer, key: str) -> _Samples:
    labels = {"producer_group": producer.settings.group}
    match key:
        case "in_flight":
            return [(labels, producer.in_flight)]
        case "in_flight_bytes":
            return [(labels, bytes_in_flight(producer))]
    return []


def _consumer_counts(group: str, counters: ConsumerCounters, key: str) -> _Samples:
    for topic, counted in counters.totals():
        labels, meter = {"consumer_group": group, "topic": topic}, counted.meter
        if key in _TOPIC_COUNTERS:
            yield labels, getattr(counted, _TOPIC_COUNTERS[key])
        elif meter is not None and key == "delivery":
            yield labels, meter.deliveries.snapshot()
        elif meter is not None and key == "wait":
            yield labels, meter.waits.snapshot()
        elif meter is not None and key == "process":
            for found, value in _by_outcome(meter.calls.snapshots()):
                yield {"consumer_group": group, **found}, value


def _consumer_gauges(consumer: BaseConsumer, key: str) -> _Samples:
    if key in _CACHED_GAUGES and consumer.is_open:
        for cached in cached_messages(consumer):
            labels = {"consumer_group": consumer.settings.group, "topic": cached.topic}
            yield labels, getattr(cached, _CACHED_GAUGES[key])


def _by_outcome(
    snapshots: Iterator[tuple[str, str, HistogramSnapshot]],
) -> Iterator[tuple[dict[str, str], HistogramSnapshot]]:
    for topic, outcome, snapshot in snapshots:
        yield {"topic": topic, "outcome": outcome}, snapshot


def _connections(clients: set[ClientCore]) -> _Samples:
    """Return the number of open connections of clients, each of which members may share."""
    counts = [len(client.connections.open_connections()) for client in clients if client.is_open]
    return [({}, sum(counts))] if counts else []
