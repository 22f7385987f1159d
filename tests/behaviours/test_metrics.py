"""The metrics of producers and consumers, and their export through OpenTelemetry."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import Histogram, HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider

from rocketmq_py import (
    Client,
    ConsumeLater,
    Message,
    Producer,
    PushConsumer,
    aio,
    blocking,
)
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.client import core_of
from rocketmq_py.client.client import member_callbacks
from rocketmq_py.client.features import POP
from rocketmq_py.codes import ResponseCode
from rocketmq_py.errors import BrokerError, ConfigurationError
from rocketmq_py.message import ReceivedMessage
from rocketmq_py.metrics import MetricNames, MetricSource
from rocketmq_py.producer.base_producer import metered_sends
from rocketmq_py.protocol.bodies import RequestMode
from rocketmq_py.telemetry import TelemetryMetrics
from rocketmq_py.telemetry.instrumentor import OPT_IN, RocketMQInstrumentor
from rocketmq_py.testing import run_broker
from tests.behaviours.conftest import ClusterUnderTest
from tests.behaviours.test_push_popping import PopScenario
from tests.scripted import refuse, scripted_cluster, store


def values(source: MetricSource, key: str) -> list[tuple[dict[str, str], Any]]:
    return [(dict(labels), value) for labels, value in source.collect(key).items()]


def handled(source: MetricSource) -> int:
    """Return the number of acknowledged messages."""
    return sum(value for _, value in values(source, "handled"))


async def consume(
    consumer: PushConsumer, handle: Callable[[Any], Any], until: Callable[[], bool], *, count: int = 3
) -> None:
    """Send messages to topic T, and consume until a condition holds."""
    async with consumer, trio.open_nursery() as nursery:
        consumer.subscribe("T")
        async with Producer(core_of(consumer).name_servers.addresses) as producer:
            for _ in range(count):
                await producer.send(Message("T", b"12345"))
        nursery.start_soon(consumer.run, handle)
        with trio.fail_after(600):
            while not until():
                await trio.sleep(0.1)
        consumer.stop()


async def test_sends_are_counted_by_topic_and_outcome(jumping_clock: trio.testing.MockClock) -> None:
    async with scripted_cluster(store) as cluster, Producer(cluster.address, group="shop") as producer:
        source = MetricSource()
        source.add(producer)
        await producer.send(Message("T", b"1"))
        await (await producer.submit(Message("T", b"1")))
        await producer.send_oneway(Message("T", b"1"))
        cluster.brokers["broker-a"].answer = refuse(ResponseCode.MESSAGE_ILLEGAL)
        with pytest.raises(BrokerError):
            await producer.send(Message("T", b"1"))
        (succeeded, good), (failed, bad) = values(source, "send")
        assert succeeded == {"topic": "T", "invocation_status": "success"}
        assert failed == {**succeeded, "invocation_status": "failure"}
        assert (good.count, bad.count) == (2, 1)
        group = {"producer_group": "shop"}
        numbers = {
            key: values(source, key) for key in ("sent", "send_failed", "oneway", "retries", "in_flight")
        }
        assert numbers == {
            "sent": [(group, 2)],
            "send_failed": [(group, 1)],
            "oneway": [(group, 1)],
            "retries": [(group, 0)],
            "in_flight": [(group, 0)],
        }
        assert values(source, "in_flight_bytes") == [(group, 0)]
        assert values(source, "connections") == [({}, 2)]
    assert values(source, "connections") == []


async def test_producers_of_one_client_and_topic_share_a_sample(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_cluster(store) as cluster, Client(cluster.address) as client:
        source = MetricSource()
        async with client.producer("shop") as first, client.producer("shop", linger=0.005) as second:
            source.add(first)
            source.add(second)
            source.add(second)
            await first.send(Message("T", b"1"))
            await (await second.submit(Message("T", b"1")))
            ((_, sends),) = values(source, "send")
            assert sends.count == 2
            assert [value for _, value in values(source, "connections")] == [2]


async def test_a_forgotten_producer_has_no_samples(jumping_clock: trio.testing.MockClock) -> None:
    source = MetricSource()
    source.add(Producer("127.0.0.1:1", group="g"))
    gc.collect()
    assert source.collect("sent") == {}


async def test_counts_of_a_producer_outlast_it_and_its_client() -> None:
    client = Client("127.0.0.1:1")
    source = MetricSource()
    for _ in range(2):
        producer = Producer(client, group="g")
        source.add(producer)
        producer._sender.counters.sent += 3
        metered_sends(producer)[1].answered("T", 0.003)
    ((_, sent),) = values(source, "sent")
    assert sent == 6
    del producer
    gc.collect()
    for _ in range(2):
        ((_, sent),), ((_, attempts),) = values(source, "sent"), values(source, "send")
        assert (sent, attempts.count) == (6, 2)
    assert values(source, "in_flight") == [], "a gauge has no value without a producer"
    later = Producer(client, group="g")
    source.add(later)
    later._sender.counters.sent += 1
    assert [value for _, value in values(source, "sent")] == [7]
    del client, later
    gc.collect()
    assert values(source, "sent") == [({"producer_group": "g"}, 7)]


async def test_bytes_in_flight_include_messages_that_wait_for_a_batch() -> None:
    source = MetricSource()
    async with scripted_cluster(store) as cluster, Producer(cluster.address, linger=60) as producer:
        source.add(producer)
        await producer.submit(Message("T", b"12345"))
        ((_, messages),), ((_, size),) = values(source, "in_flight"), values(source, "in_flight_bytes")
        assert (messages, size) == (1, producer.statistics.in_flight_bytes)
        assert size >= 5


def test_forgotten_producers_leave_one_sum() -> None:
    source = MetricSource()
    producers = [counted(Producer("127.0.0.1:1", group="g"), sent=1) for _ in range(100)]
    for producer in producers:
        source.add(producer)
    references = [weakref.ref(metered_sends(each)[1]) for each in producers]
    del producer
    producers.clear()
    gc.collect()
    assert values(source, "sent") == [({"producer_group": "g"}, 100)]
    assert [reference() for reference in references] == [None] * 100


async def test_counts_of_a_consumer_outlast_it(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with EmbeddedBroker() as broker, Client(broker.name_server_address) as client:
        source = MetricSource()
        consumer = PushConsumer(client, group="g", consume_from="earliest")
        source.add(consumer)
        await consume(consumer, lambda message: None, lambda: handled(source) == 3)
        reference = weakref.ref(consumer)
        del consumer
        gc.collect()
        assert reference() is None
        assert handled(source) == 3
        ((_, calls),) = values(source, "process")
        assert calls.count == 3


async def test_a_forgotten_consumer_and_its_client_are_not_kept_alive() -> None:
    source = MetricSource()
    consumer = PushConsumer("127.0.0.1:1", group="g")
    consumer._counters.of("T").handled += 1
    references = weakref.ref(consumer), weakref.ref(core_of(consumer))
    source.add(consumer)
    del consumer
    gc.collect()
    source.collect("handled")
    gc.collect()
    assert [reference() for reference in references] == [None, None]
    assert values(source, "handled") == [({"consumer_group": "g", "topic": "T"}, 1)]


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"member must be a producer or consumer .*, not str"):
        MetricSource().add("producer")
    with pytest.raises(ConfigurationError, match="names is 'otel'; it must be 'rocketmq' or 'semconv'"):
        MetricSource("otel")


async def fail_first_delivery(message: ReceivedMessage) -> object:
    await trio.sleep(2)
    if message.reconsume_times:
        return None
    if message.queue_offset:
        return ConsumeLater()
    raise ValueError


@pytest.mark.parametrize("orderly", [False, True])
async def test_handler_calls_are_counted_by_outcome(
    orderly: bool, jumping_clock: trio.testing.MockClock
) -> None:
    async with EmbeddedBroker(message_delay_level="1s " * 18) as broker:
        consumer = PushConsumer(
            broker.name_server_address, group="g", consume_from="earliest", orderly=orderly,
            suspend_current_queue=0.1,
        )  # fmt: skip
        source = MetricSource()
        source.add(consumer)
        await consume(consumer, fail_first_delivery, lambda: handled(source) == 3)
        labels = {"consumer_group": "g"}
        calls = {(one["topic"], one["invocation_status"]): value for one, value in values(source, "process")}
        retries = "T" if orderly else "%RETRY%g"
        assert calls["T", "failure"].count == 3
        assert calls[retries, "success"].count == 3
        assert calls[retries, "success"].sum == pytest.approx(6, abs=0.5)
        deliveries = {one["topic"]: value.count for one, value in values(source, "delivery")}
        assert deliveries == {"T": 3, "%RETRY%g": 0 if orderly else 3}
        waits = {one["topic"]: value for one, value in values(source, "wait")}
        assert waits["T"].count == (6 if orderly else 3)
        assert ({**labels, "topic": "T"}, 3) in values(source, "pulled")
        assert sum(value for _, value in values(source, "handle_failed")) == 3


@pytest.mark.parametrize("orderly", [False, True])
async def test_dead_letters_are_counted_for_their_topic(
    orderly: bool, jumping_clock: trio.testing.MockClock
) -> None:
    async def fail(_: ReceivedMessage) -> None:
        raise ValueError

    async with EmbeddedBroker(message_delay_level="1s " * 18) as broker:
        consumer = PushConsumer(
            broker.name_server_address, group="g", consume_from="earliest", orderly=orderly,
            suspend_current_queue=0.1, max_reconsume_times=1,
        )  # fmt: skip
        source = MetricSource()
        source.add(consumer)

        def dead() -> int:
            return sum(value for _, value in values(source, "dead_letters"))

        await consume(consumer, fail, lambda: dead() == 3)
        assert ({"consumer_group": "g", "topic": "T"}, 3) in values(source, "dead_letters")


@pytest.mark.parametrize("batch_size", [None, 4])
def test_calls_in_threads_are_counted(batch_size: int | None) -> None:
    ended = threading.Event()
    left = 8

    def handle(messages: Any) -> None:
        nonlocal left
        left -= len(messages) if batch_size else 1
        if not left:
            ended.set()
        if batch_size is None and messages.body == b"bad" and not messages.reconsume_times:
            raise ValueError

    with run_broker(message_delay_level="1s " * 18) as broker:
        address = broker.name_server_address
        with blocking.Producer(address) as producer:
            producer.send_batch([Message("T", b"12345")] * 7)
            producer.send(Message("T", b"bad"))
        with blocking.PushConsumer(
            address, group="g", consume_from="earliest", concurrency=1, batch_size=batch_size
        ) as consumer:
            source = MetricSource()
            source.add(consumer)
            consumer.subscribe("T")
            with ThreadPoolExecutor() as pool:
                running = pool.submit(consumer.run, handle)
                assert ended.wait(60)
                consumer.stop()
                running.result(60)
            calls = {labels["invocation_status"] for labels, _ in values(source, "process")}
            assert "success" in calls
            assert sum(value.count for labels, value in values(source, "wait") if labels["topic"] == "T") >= 2


def test_calls_on_an_event_loop_are_counted() -> None:
    async def main(address: str) -> None:
        left = 100

        async def handle(_: ReceivedMessage) -> None:
            nonlocal left
            left -= 1
            if not left:
                consumer.stop()

        async with (
            aio.Producer(address) as producer,
            aio.PushConsumer(address, group="g", consume_from="earliest") as consumer,
        ):
            await producer.send_batch([Message("T", b"12345")] * 100)
            source = MetricSource()
            source.add(consumer)
            consumer.subscribe("T")
            await asyncio.wait_for(consumer.run(handle), 60)
            ((labels, calls),) = values(source, "process")
            assert labels["invocation_status"] == "success"
            assert 1 <= calls.count <= 100

    with run_broker() as broker:
        asyncio.run(main(broker.name_server_address))


async def test_pops_of_a_push_consumer_have_deliveries_and_caches(
    client: Client, cluster: ClusterUnderTest, topic: str, unique: str
) -> None:
    cluster.needs(POP)
    source = MetricSource()
    held = trio.Event()

    async def answer(_: ReceivedMessage) -> None:
        await held.wait()

    popping = PopScenario(client, cluster.address, topic, unique, answer=answer)
    await popping.set_mode(RequestMode.POP)
    async with popping.member() as consumer:
        source.add(consumer)
        await popping.send(b"1", b"2")
        await popping.until(b"1", b"2")
        assert sum(value for _, value in values(source, "cached_messages")) == 2
        assert sum(value for _, value in values(source, "cached_bytes")) == 2
        assert sum(value.count for _, value in values(source, "delivery")) == 2
        held.set()


@pytest.mark.parametrize("batch_size", [None, 32])
async def test_fast_calls_count_each(batch_size: int | None, jumping_clock: trio.testing.MockClock) -> None:
    async def handle(messages: Any) -> None:
        pass

    async with EmbeddedBroker() as broker:
        consumer = PushConsumer(
            broker.name_server_address, group="g", consume_from="earliest", batch_size=batch_size
        )
        source = MetricSource()
        source.add(consumer)
        await consume(consumer, handle, lambda: handled(source) == 40, count=40)
        ((labels, calls),) = values(source, "process")
        assert labels["invocation_status"] == "success"
        assert calls.count == 40 if batch_size is None else calls.count < 40


async def test_polls_and_pops_have_deliveries_and_caches(jumping_clock: trio.testing.MockClock) -> None:
    async with EmbeddedBroker() as broker, Client(broker.name_server_address) as client:
        async with client.producer("shop") as producer:
            for _ in range(8):
                await producer.send(Message("T", b"12345"))
        source = MetricSource()
        async with (
            client.lite_pull_consumer("lite", consume_from="earliest") as lite,
            client.pop_consumer("pop", consume_from="earliest") as pop,
        ):
            for consumer in (lite, pop):
                source.add(consumer)
                consumer.subscribe("T")
            polled, popped = 0, 0
            while polled < 8:
                polled += len(await lite.poll())
            while popped < 8:
                popped += len(await pop.receive())
            deliveries = {
                labels["consumer_group"]: value.count for labels, value in values(source, "delivery")
            }
            assert deliveries == {"lite": 8, "pop": 8}
            waits = {labels["consumer_group"]: value.count for labels, value in values(source, "wait")}
            assert waits == {"lite": 8, "pop": 0}
            labels = {"consumer_group": "lite", "topic": "T"}
            assert sum(value for _, value in values(source, "cached_messages")) <= 8
            assert {tuple(one.items()) for one, _ in values(source, "lag")} <= {tuple(sorted(labels.items()))}


@attrs.frozen
class Exported:
    """The metrics of one collection by name."""

    metrics: dict[str, Any]

    def points(self, name: str) -> list[Any]:
        return list(self.metrics[name].data.data_points)


@pytest.fixture
def reader() -> InMemoryMetricReader:
    return InMemoryMetricReader()


@pytest.fixture
def provider(reader: InMemoryMetricReader) -> Iterator[MeterProvider]:
    provider = MeterProvider(metric_readers=[reader])
    yield provider
    provider.shutdown()


def collected(reader: InMemoryMetricReader) -> Exported:
    data = reader.get_metrics_data()
    assert data is not None
    return Exported(
        {
            one.name: one
            for part in data.resource_metrics
            for scope in part.scope_metrics
            for one in scope.metrics
        }
    )


async def test_opentelemetry_histograms_are_those_of_the_official_clients(
    reader: InMemoryMetricReader, provider: MeterProvider, jumping_clock: trio.testing.MockClock
) -> None:
    async with scripted_cluster(store) as cluster, Producer(cluster.address, group="shop") as producer:
        TelemetryMetrics(producer, meter_provider=provider)
        for _ in range(5):
            await producer.send(Message("T", b"1"))
        for count in (5, 6):
            exported = collected(reader)
            (point,) = exported.points("rocketmq_send_cost_time")
            assert isinstance(point, HistogramDataPoint)
            assert point.count == count
            assert list(point.explicit_bounds) == [1, 5, 10, 20, 50, 200, 500]
            assert point.attributes == {"topic": "T", "invocation_status": "success"}
            (sent,) = exported.points("rocketmq_client_sent_messages")
            assert sent.value == count
            await producer.send(Message("T", b"1"))


async def test_opentelemetry_gets_a_share_of_many_durations(
    reader: InMemoryMetricReader,
    provider: MeterProvider,
    monkeypatch: pytest.MonkeyPatch,
    jumping_clock: trio.testing.MockClock,
) -> None:
    monkeypatch.setattr("rocketmq_py.telemetry.metrics.time", SimpleNamespace(monotonic=lambda: 7.0))
    async with scripted_cluster(store) as cluster, Producer(cluster.address) as producer:
        TelemetryMetrics(producer, meter_provider=provider, max_records_per_second=10)
        meter = metered_sends(producer)[1]
        for _ in range(900):
            meter.answered("T", 0.003)
        for _ in range(90):
            meter.answered("T", 0.015)
        meter.answered("T", 0.3)
        (point,) = collected(reader).points("rocketmq_send_cost_time")
        assert point.bucket_counts == (0, 9, 0, 1, 0, 0, 1, 0), "a bucket with durations gets one at least"


def counted(producer: Producer, *, sent: int) -> Producer:
    """Return the producer after it has counted messages and one attempt for each."""
    producer._sender.counters.sent += sent
    for _ in range(sent):
        metered_sends(producer)[1].answered("T", 0.003)
    return producer


def test_telemetry_metrics_of_one_meter_provider_share_its_instruments(
    reader: InMemoryMetricReader, provider: MeterProvider
) -> None:
    client = Client("127.0.0.1:1")
    first, second = counted(Producer(client, group="g"), sent=2), Producer(client, group="g")
    other = Producer("127.0.0.1:1", group="other")
    TelemetryMetrics(first, meter_provider=provider)
    TelemetryMetrics(first, second, other, meter_provider=provider)
    counted(first, sent=1)
    counted(second, sent=4)
    counted(other, sent=8)
    exported = collected(reader)
    sent = {
        one.attributes["producer_group"]: one.value
        for one in exported.points("rocketmq_client_sent_messages")
    }
    assert sent == {"g": 7, "other": 8}
    assert [one.count for one in exported.points("rocketmq_send_cost_time")] == [15]


def test_telemetry_metrics_with_different_names_share_the_common_instruments(
    reader: InMemoryMetricReader, provider: MeterProvider
) -> None:
    official, semconv, both = (Producer("127.0.0.1:1", group=group) for group in ("a", "b", "c"))
    TelemetryMetrics(official, both, meter_provider=provider)
    TelemetryMetrics(semconv, both, meter_provider=provider, names="semconv")
    for producer in (official, semconv, both):
        counted(producer, sent=1)
    exported = collected(reader)
    groups = {
        name: sorted(one.attributes["producer_group"] for one in exported.points(name))
        for name in (
            "rocketmq_client_sent_messages",
            "messaging.client.sent.messages",
            "rocketmq_client_send_retries",
        )
    }
    assert groups == {
        "rocketmq_client_sent_messages": ["a", "c"],
        "rocketmq_client_send_retries": ["a", "b", "c"],
        "messaging.client.sent.messages": ["b", "c"],
    }
    assert [one.count for one in exported.points("rocketmq_send_cost_time")] == [2]
    assert [one.count for one in exported.points("messaging.client.operation.duration")] == [2]


def test_the_latest_limit_of_recorded_durations_applies(
    reader: InMemoryMetricReader, provider: MeterProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketmq_py.telemetry.metrics.time", SimpleNamespace(monotonic=lambda: 7.0))
    producer = Producer("127.0.0.1:1")
    TelemetryMetrics(producer, meter_provider=provider)
    TelemetryMetrics(meter_provider=provider, max_records_per_second=10)
    counted(producer, sent=100)
    (point,) = collected(reader).points("rocketmq_send_cost_time")
    assert point.count == 10


def test_opentelemetry_counts_do_not_fall_when_a_producer_ends(
    reader: InMemoryMetricReader, provider: MeterProvider
) -> None:
    client = Client("127.0.0.1:1")
    metrics = TelemetryMetrics(meter_provider=provider)
    producers = [counted(Producer(client, group="g"), sent=5) for _ in range(2)]
    for producer in producers:
        metrics.add(producer)
        counted(producer, sent=5)
    kept = producers.pop()
    del producer
    for count in (10, 11):
        exported = collected(reader)
        (point,) = exported.points("rocketmq_send_cost_time")
        (sent,) = exported.points("rocketmq_client_sent_messages")
        assert (point.count, sent.value) == (count + 10, count + 10)
        producers.clear()
        gc.collect()
        counted(kept, sent=1)


def test_metrics_are_exported_after_instrumenting_again(
    reader: InMemoryMetricReader, provider: MeterProvider
) -> None:
    instrumentor = RocketMQInstrumentor()
    producers = []
    for _ in range(2):
        instrumentor.instrument(meter_provider=provider, tracer_provider=TracerProvider(), names="rocketmq")
        try:
            producers.append(counted(Producer("127.0.0.1:1"), sent=1))
        finally:
            instrumentor.uninstrument()
    assert [one.value for one in collected(reader).points("rocketmq_client_sent_messages")] == [2]


def test_a_meter_provider_is_not_kept_alive() -> None:
    provider = NoOpMeterProvider()
    TelemetryMetrics(meter_provider=provider)
    reference = weakref.ref(provider)
    del provider
    gc.collect()
    assert reference() is None


async def test_opentelemetry_metrics_of_the_semantic_conventions(
    reader: InMemoryMetricReader, provider: MeterProvider, jumping_clock: trio.testing.MockClock
) -> None:
    async with scripted_cluster(store) as cluster, Producer(cluster.address, group="shop") as producer:
        TelemetryMetrics(producer, meter_provider=provider, names="semconv")
        await producer.send(Message("T", b"1"))
        cluster.brokers["broker-a"].answer = refuse(ResponseCode.MESSAGE_ILLEGAL)
        with pytest.raises(BrokerError) as caught:
            await producer.send(Message("T", b"1"))
        exported = collected(reader)
        good, bad = exported.points("messaging.client.operation.duration")
        assert isinstance(exported.metrics["messaging.client.operation.duration"].data, Histogram)
        assert exported.metrics["messaging.client.operation.duration"].unit == "s"
        assert good.attributes == {
            "messaging.system": "rocketmq",
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            "messaging.destination.name": "T",
        }
        assert bad.attributes == {**good.attributes, "error.type": type(caught.value).__name__}
        assert good.explicit_bounds[0] == 0.005
        assert exported.points("messaging.client.sent.messages")[0].value == 1


async def test_the_instrumentor_adds_spans_and_metrics_to_new_producers_and_consumers(
    reader: InMemoryMetricReader,
    provider: MeterProvider,
    monkeypatch: pytest.MonkeyPatch,
    jumping_clock: trio.testing.MockClock,
) -> None:
    monkeypatch.setenv(OPT_IN, "http, messaging")
    instrumentor = RocketMQInstrumentor()
    assert instrumentor.instrumentation_dependencies() == ()
    instrumentor.instrument(meter_provider=provider, tracer_provider=TracerProvider())
    try:
        async with (
            scripted_cluster(store) as cluster,
            Client(cluster.address) as client,
            client.pop_consumer("g") as consumer,
            Producer(client, linger=0.005) as producer,
        ):
            await (await producer.submit(Message("T", b"1")))
            (request,) = [one for one in cluster.brokers["broker-a"].requests if one.fields.get("i")]
            assert "traceparent" in request.fields["i"]
            assert "messaging.client.sent.messages" in collected(reader).metrics
            assert consumer._hooks.all
    finally:
        instrumentor.uninstrument()
    assert member_callbacks == []
    assert Producer("127.0.0.1:1")._hooks.all == []


async def test_consumers_of_lite_topics_are_instrumented(
    provider: MeterProvider, jumping_clock: trio.testing.MockClock
) -> None:
    instrumentor = RocketMQInstrumentor()
    instrumentor.instrument(meter_provider=provider, tracer_provider=TracerProvider())
    try:
        async with scripted_cluster(store) as cluster, Client(cluster.address) as client:
            async with client.lite_topic_consumer("g", parent="Sessions") as receiving:
                assert receiving._hooks.all
            async with client.lite_topic_push_consumer("g", parent="Sessions") as pushing:
                assert pushing._hooks.all
    finally:
        instrumentor.uninstrument()


def test_names_may_be_members() -> None:
    assert MetricSource(MetricNames.SEMCONV).metrics["sent"].name == "messaging.client.sent.messages"
