"""FastStream's test broker, its AsyncAPI documents and its middlewares, with RocketMQ brokers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("faststream", reason="the extra faststream is not installed")

from faststream import BaseMiddleware, Depends
from faststream.exceptions import SubscriberNotFound
from faststream.security import BaseSecurity
from faststream.specification import AsyncAPI
from pydantic import BaseModel

from rocketmq_py import ReceivedMessage
from rocketmq_py.errors import InvalidMessageError
from rocketmq_py.integrations.faststream import (
    RocketMQAsyncAPI,
    RocketMQBroker,
    RocketMQMessage,
    RocketMQPublisher,
    RocketMQResponse,
    RocketMQRoute,
    RocketMQRouter,
    TestRocketMQBroker,
)
from rocketmq_py.integrations.faststream.annotations import RocketMQMessage as CurrentMessage
from tests.integrations.test_faststream import Received, asyncio_test, broker_of


class Order(BaseModel):
    number: int


# The test broker


@asyncio_test
async def test_the_test_broker_calls_handlers_in_memory() -> None:
    broker = broker_of("127.0.0.1:1")

    @broker.subscriber("Orders", group="billing", tags="A || B")
    @broker.publisher("Bills", tags="new")
    async def bill(order: Order) -> dict[str, int]:
        return {"bill": order.number}

    @broker.subscriber("Bills", group="archive")
    async def archive(body: dict[str, int], message: CurrentMessage) -> None:
        assert message.received[0].tags == "new"

    publisher = broker.publisher("Elsewhere")

    async with TestRocketMQBroker(broker) as test_broker:
        result = await test_broker.publish(
            Order(number=7), "Orders", tags="A", keys="k", headers={"shop": "3"}
        )
        assert result.queue.topic == "Orders"
        await test_broker.publish(Order(number=8), "Orders", tags="C")
        bill.mock.assert_called_once_with({"number": 7})
        await bill.assert_called_once_with({"number": 7}, headers={"shop": "3"})
        archive.mock.assert_called_once_with({"bill": 7})
        await publisher.publish("hello", sharding_key="s", priority=None)
        publisher.mock.assert_called_once_with("hello")
        assert await test_broker.ping()


@asyncio_test
async def test_the_test_broker_delivers_to_each_group_once() -> None:
    broker, other = broker_of("127.0.0.1:1"), broker_of("127.0.0.1:1")
    received = Received()

    def subscribe(to: RocketMQBroker, group: str, name: str) -> Any:
        async def handle(body: str) -> None:
            received.add(name)

        return to.subscriber("Orders", group=group)(handle)

    handlers = [subscribe(broker, "one", "1"), subscribe(other, "one", "2"), subscribe(other, "two", "3")]
    async with TestRocketMQBroker(broker, other) as (first, _):
        await first.publish("hello", "Orders", priority=1)
    assert len(handlers) == 3
    assert len(received.values) == 2
    assert "3" in received.values


@asyncio_test
async def test_the_test_broker_answers_requests() -> None:
    broker = broker_of("127.0.0.1:1")

    @broker.subscriber("Questions", group="answers")
    async def answer(text: str) -> RocketMQResponse:
        return RocketMQResponse(text.upper(), tags="T", keys="k", headers={"language": "en"})

    @broker.subscriber("Batches", group="batches", batch=True)
    async def count(texts: list[str]) -> int:
        return len(texts)

    @broker.subscriber("Slow", group="slow")
    async def hang(text: str) -> None:
        await asyncio.Event().wait()

    async with TestRocketMQBroker(broker) as test_broker:
        reply = await test_broker.request("hello", "Questions", correlation_id="c")
        assert (await reply.decode(), reply.headers["language"], reply.correlation_id) == ("HELLO", "en", "c")
        received = reply.raw_message
        assert isinstance(received, ReceivedMessage)
        assert (received.tags, received.keys) == ("", ())  # as on real brokers
        assert await (await test_broker.request("hello", "Batches")).decode() == 1
        with pytest.raises(TimeoutError):
            await test_broker.request("hello", "Slow", timeout=0.01)
        with pytest.raises(SubscriberNotFound, match="Nowhere"):
            await test_broker.request("hello", "Nowhere")


@asyncio_test
async def test_the_test_broker_delivers_batches() -> None:
    broker = broker_of("127.0.0.1:1")

    @broker.subscriber("Orders", group="batches", batch=True, tags="A")
    @broker.publisher("Copies", batch=True)
    async def batch(numbers: list[int]) -> list[int]:
        return [-number for number in numbers]

    @broker.subscriber("Orders", group="singles", tags="*")
    async def single(number: int) -> None: ...

    publisher = broker.publisher("Copies", batch=True)
    async with TestRocketMQBroker(broker) as test_broker:
        await test_broker.publish_batch(1, 2, RocketMQResponse(3, tags="B"), topic="Orders", tags="A")
        batch.mock.assert_called_once_with([1, 2])
        assert [call.args for call in single.mock.call_args_list] == [(1,), (2,), (3,)]
        publisher.mock.assert_called_with([-1, -2])
        assert await test_broker.publish_batch(topic="Orders") == ()


@asyncio_test
async def test_items_of_a_batch_may_be_none() -> None:
    broker = broker_of("127.0.0.1:1")

    @broker.subscriber("Orders", group="batches", batch=True)
    @broker.publisher("Copies", batch=True)
    async def batch(values: list[Any]) -> list[Any] | None:
        return values if len(values) > 1 else None

    @broker.subscriber("Copies", group="copies", batch=True)
    async def collect(values: list[Any]) -> None: ...

    async with TestRocketMQBroker(broker) as test_broker:
        assert len(await test_broker.publish_batch(None, 5, topic="Orders")) == 2
        assert len(await test_broker.publish_batch(None, topic="Orders")) == 1
        assert [call.args for call in batch.mock.call_args_list] == [([None, 5],), ([None],)]
        collect.mock.assert_called_once_with([None, 5])


@asyncio_test
async def test_the_test_broker_raises_the_errors_of_handlers_and_of_messages() -> None:
    broker = broker_of("127.0.0.1:1")

    @broker.subscriber("Orders", group="billing")
    async def fail(body: str) -> None:
        raise ValueError("no")

    async with TestRocketMQBroker(broker) as test_broker:
        with pytest.raises(ValueError, match="no"):
            await test_broker.publish("hello", "Orders")
        with pytest.raises(InvalidMessageError, match="the body is empty"):
            await test_broker.publish(b"", "Orders")


@asyncio_test
async def test_parsers_decoders_filters_and_dependencies() -> None:
    async def parse(message: Any, original: Callable[[Any], Any]) -> RocketMQMessage:
        parsed: RocketMQMessage = await original(message)
        parsed.headers["parsed"] = "yes"
        return parsed

    async def decode(message: RocketMQMessage, original: Callable[[Any], Any]) -> Any:
        return {"decoded": await original(message)}

    broker = broker_of("127.0.0.1:1", parser=parse, decoder=decode)
    subscriber = broker.subscriber("Orders", group="billing", dependencies=[Depends(lambda: 1)])

    @subscriber(filter=lambda message: message.content_type == "text/plain")
    async def text(body: dict[str, Any]) -> None: ...

    @subscriber
    async def other(body: dict[str, Any]) -> None: ...

    async with TestRocketMQBroker(broker) as test_broker:
        await test_broker.publish("hello", "Orders")
        await test_broker.publish({"a": 1}, "Orders")
        text.mock.assert_called_once_with({"decoded": "hello"})
        await text.assert_called_once_with(headers={"parsed": "yes"})
        other.mock.assert_called_once_with({"decoded": {"a": 1}})


@asyncio_test
async def test_routes_of_a_router() -> None:
    async def bill(order: Order) -> str:
        return f"bill {order.number}"

    received: list[str] = []

    async def archive(body: str) -> None:
        received.append(body)

    class Marking(BaseMiddleware):
        async def publish_scope(self, call_next: Any, cmd: Any) -> Any:
            cmd.body = f"{cmd.body}, marked"
            return await call_next(cmd)

    routes = [
        RocketMQRoute(bill, "Orders", group="billing", publishers=[RocketMQPublisher("Bills", tags="new")]),
        RocketMQRoute(archive, "Bills", group="archive", tags="new"),
    ]
    broker = broker_of("127.0.0.1:1")
    broker.include_router(RocketMQRouter("shop-", handlers=routes, middlewares=[Marking]))
    async with TestRocketMQBroker(broker) as test_broker:
        await test_broker.publish(Order(number=7), "shop-Orders")
    assert received == ["bill 7, marked"]


# AsyncAPI documents


@pytest.mark.parametrize("version", ["3.0.0", "2.6.0"])
def test_documents_have_channels_and_bindings(version: Any) -> None:
    router = RocketMQRouter("shop-")
    publisher = router.publisher("Audit", tags="all", schema=int)

    @router.subscriber("Orders", "Refunds", group="billing", tags="A || B", orderly=True)
    @router.publisher("Bills")
    async def bill(order: Order) -> str:
        """Bill an order."""
        return ""

    @router.subscriber("Logs", group="logs", sql="level > 1", batch=True, broadcasting=True, title="Logs")
    async def log(lines: list[str]) -> None: ...

    @router.subscriber("Hidden", group="hidden", include_in_schema=False)
    async def hide(body: str) -> None: ...

    broker = RocketMQBroker(
        "10.0.0.1:9876;10.0.0.2:9876", logger=None, routers=[router], description="all orders"
    )
    factory = RocketMQAsyncAPI(broker, title="Shop", schema_version=version)
    document = json.loads(factory.to_specification().to_json())
    assert publisher.topic == "shop-Audit"
    bindings = {key: channel["bindings"]["x-rocketmq"] for key, channel in document["channels"].items()}
    ordered = {"group": "billing", "tags": "A || B", "orderly": True}
    assert bindings == {
        "shop-Orders:Bill": {"topic": "shop-Orders", **ordered},
        "shop-Refunds:Bill": {"topic": "shop-Refunds", **ordered},
        "Logs": {
            "topic": "shop-Logs", "group": "logs", "sql": "level > 1", "broadcasting": True, "batch": True
        },
        "shop-Bills:Publisher": {"topic": "shop-Bills"},
        "shop-Audit:Publisher": {"topic": "shop-Audit", "tags": "all"},
    }  # fmt: skip
    [server, _] = document["servers"].values()
    assert server["protocol"] == "rocketmq"
    assert "10.0.0.1:9876" in (server.get("host"), server.get("url"))
    assert document["components"]["schemas"]["Order"]["properties"]["number"]["type"] == "integer"


def test_faststreams_own_documents_have_the_channels() -> None:
    broker = RocketMQBroker(logger=None, specification_url="rocketmq://shop:9876", security=BaseSecurity())

    @broker.subscriber("Orders", group="billing")
    async def bill(order: Order) -> None: ...

    document = json.loads(AsyncAPI(broker).to_specification().to_json())
    assert document["channels"]["Orders:Bill"]["address"] == "Orders"
    assert document["servers"]["development"]["host"] == "shop:9876"


def test_documents_name_a_url_for_name_servers() -> None:
    broker = RocketMQBroker("http://10.0.0.1:8080/rocketmq/nsaddr", logger=None)
    assert broker.specification.url == ["http://10.0.0.1:8080/rocketmq/nsaddr"]


# Middlewares


@asyncio_test
async def test_spans_and_metrics_of_opentelemetry() -> None:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from rocketmq_py.integrations.faststream.opentelemetry import RocketMQTelemetryMiddleware

    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    middleware = RocketMQTelemetryMiddleware(
        tracer_provider=tracers, meter_provider=MeterProvider(metric_readers=[reader])
    )
    broker = broker_of("127.0.0.1:1", middlewares=[middleware])

    @broker.subscriber("Orders", group="billing")
    async def bill(body: str) -> None: ...

    @broker.subscriber("Batches", group="batches", batch=True)
    async def batch(bodies: list[str]) -> None: ...

    async with TestRocketMQBroker(broker) as test_broker:
        await test_broker.publish("hello", "Orders", tags="A", keys="k1 k2")
        await test_broker.publish_batch("one", "two", topic="Batches")
    spans: dict[str, Any] = {span.name: span for span in exporter.get_finished_spans()}
    steps = ("create", "publish", "process")
    assert set(spans) == {f"{topic} {step}" for topic in ("Orders", "Batches") for step in steps}
    published, processed = spans["Orders publish"], spans["Orders process"]
    assert published.context.trace_id == processed.context.trace_id
    for span in (published, processed):
        assert span.attributes["messaging.system"] == "rocketmq"
        assert span.attributes["messaging.rocketmq.message.tag"] == "A"
        assert span.attributes["messaging.rocketmq.message.keys"] == ("k1", "k2")
    assert processed.attributes["messaging.message.payload_size_bytes"] == 5
    assert spans["Batches process"].attributes["messaging.batch.message_count"] == 2
    data: Any = reader.get_metrics_data()
    names = {metric.name for metric in data.resource_metrics[0].scope_metrics[0].metrics}
    assert {"messaging.publish.messages", "messaging.process.duration"} <= names


@asyncio_test
async def test_metrics_of_prometheus() -> None:
    prometheus = pytest.importorskip("prometheus_client")

    from rocketmq_py.integrations.faststream.prometheus import RocketMQPrometheusMiddleware

    registry = prometheus.CollectorRegistry()
    middleware = RocketMQPrometheusMiddleware(registry=registry, app_name="shop")
    broker = broker_of("127.0.0.1:1", middlewares=[middleware])

    @broker.subscriber("Orders", group="billing")
    async def bill(body: str) -> None: ...

    @broker.subscriber("Batches", group="batches", batch=True)
    async def batch(bodies: list[str]) -> None: ...

    async with TestRocketMQBroker(broker) as test_broker:
        await test_broker.publish("hello", "Orders")
        await test_broker.publish_batch("one", "two", topic="Batches")

    def value(name: str, **labels: str) -> float | None:
        found: float | None = registry.get_sample_value(
            f"faststream_{name}", {"app_name": "shop", "broker": "rocketmq"} | labels
        )
        return found

    assert value("received_messages_total", handler="Orders") == 1
    assert value("received_messages_total", handler="Batches") == 2
    assert value("received_messages_size_bytes_sum", handler="Batches") == 6
    assert value("published_messages_total", destination="Orders", status="success") == 1
