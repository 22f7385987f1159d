"""Observability of producers: hooks, traces, spans and statistics. Also transparent compression."""

from __future__ import annotations

import random

import attrs
import pytest
import trio
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from rocketmq_py import Client, Compression, CompressionType, Message, SendResult
from rocketmq_py.errors import SendForbiddenError
from rocketmq_py.hooks import ProducerHook, RpcContext, RpcHook, SendContext
from rocketmq_py.producer import LatencyFaultPolicy
from rocketmq_py.protocol.trace import read_records
from rocketmq_py.telemetry import TelemetryProducerHook
from tests.behaviours.conftest import create_topic
from tests.behaviours.reading import read_all

PATIENCE = 60

pytestmark = pytest.mark.apis


async def test_hooks_see_sends_and_may_forbid_them(client: Client, topic: str) -> None:
    seen: list[SendContext] = []

    class NoSecrets(ProducerHook):
        async def check_forbidden(self, context: SendContext) -> None:
            await trio.lowlevel.checkpoint()
            if b"secret" in context.messages[0].body:
                raise PermissionError("no secrets")

        def after_send(self, context: SendContext) -> None:
            seen.append(context)

    class Requests(RpcHook):
        def before_request(self, context: RpcContext) -> None:
            codes.append(context.code)

    codes: list[int] = []
    async with client.producer("senders") as producer:
        client.add_rpc_hook(Requests())
        producer.add_hook(NoSecrets())
        with pytest.raises(SendForbiddenError, match="NoSecrets forbids the send: no secrets"):
            await producer.send(Message(topic, b"secret"))
        result = await producer.send(Message(topic, b"public"))
        pending = await producer.submit(Message(topic, b"public"))
        await pending
        await producer.send_batch([Message(topic, b"public"), Message(topic, b"public")])
    assert [len(context.results) for context in seen] == [1, 1, 2]
    assert seen[0].results == (result,)
    assert seen[0].queue == result.queue
    assert {310, 320} <= set(codes)
    assert {message.body for message in await read_all(client, topic, count=4)} == {b"public"}


@pytest.mark.parametrize("linger", [None, 0.005])
async def test_hooks_see_each_message_and_its_own_result(
    client: Client, topic: str, linger: float | None
) -> None:
    ended: dict[bytes, SendContext] = {}

    class Stamp(ProducerHook):
        def check_forbidden(self, context: SendContext) -> None:
            (message,) = context.messages
            if message.tags == "secret":
                raise PermissionError("no secrets")

        def before_send(self, context: SendContext) -> None:
            (message,) = context.messages
            properties = {**message.properties, "stamp": message.body.decode()}
            context.messages = [attrs.evolve(message, properties=properties)]

        def after_send(self, context: SendContext) -> None:
            (message,) = context.messages
            ended[message.body] = context

    bodies = [b"%d" % number for number in range(10)]
    messages = [Message(topic, body) for body in bodies]
    messages.insert(5, Message(topic, b"x", tags="secret"))
    async with client.producer("senders", linger=linger) as producer:
        producer.add_hook(Stamp())
        outcomes = await producer.send_all(messages)
        with pytest.raises(SendForbiddenError, match="no secrets"):
            await producer.send(messages[5])
        assert producer.statistics.sent == 10
    assert isinstance(outcomes.pop(5), SendForbiddenError)
    for body, result in zip(bodies, outcomes, strict=True):
        assert isinstance(result, SendResult)
        assert ended[body].results == (result,)
        assert ended[body].message_ids == [result.message_id]
        assert ended[body].queue == result.queue
    received = await read_all(client, topic, count=10)
    assert {(message.body, message.user_properties["stamp"]) for message in received} == {
        (body, body.decode()) for body in bodies
    }


async def test_trace_records_are_in_the_trace_topic(client: Client, topic: str, unique: str) -> None:
    trace_topic = f"{unique}-trace"
    await create_topic(client, trace_topic, queues=1)
    async with client.producer("traced", trace=trace_topic) as producer:
        result = await producer.send(Message(topic, b"12345", tags="A", keys="k1 k2"))
        await producer.send_batch([Message(topic, b"1"), Message(topic, b"2")])
    (message,) = await read_all(client, trace_topic, count=1)
    first, *others = read_records(message.body)
    assert first[3:8] == ["traced", topic, result.message_id, "A", "k1 k2"]
    assert first[12:] == [result.offset_message_id, "true"]
    assert len(others) == 2
    assert {result.message_id, "k1", "k2"} < set(message.keys)


async def test_trace_records_of_a_cloud_are_in_the_topic_of_the_region_that_the_broker_names(
    client: Client, topic: str, unique: str
) -> None:
    """Brokers create the topic automatically here, which managed services do not."""
    async with client.producer(unique, trace="cloud") as producer:
        sent = await producer.send(Message(topic, b"12345"))
    async with (
        client.reader() as reader,
        reader.open(f"rmq_sys_TRACE_DATA_{sent.region}", start="earliest") as traces,
    ):
        with trio.fail_after(PATIENCE):
            async for message in traces:
                records = read_records(message.body)
                if sent.message_id in message.keys:
                    break
    assert [record[2:6] for record in records] == [[sent.region, unique, topic, sent.message_id]]


async def test_the_context_of_a_span_arrives_with_the_message(client: Client, topic: str) -> None:
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    async with client.producer("traced") as producer:
        producer.add_hook(TelemetryProducerHook(provider))
        await producer.send(Message(topic, b"x", properties={"mine": "1"}))
    (received,) = await read_all(client, topic, count=1)
    (span,) = spans.get_finished_spans()
    context = span.get_span_context()
    assert context is not None
    assert span.kind is trace.SpanKind.PRODUCER
    parent = received.user_properties["traceparent"].split("-")
    assert parent[1:3] == [f"{context.trace_id:032x}", f"{context.span_id:016x}"]
    assert received.user_properties["mine"] == "1"


@pytest.mark.sockets
async def test_statistics_count_sends(client: Client, topic: str) -> None:
    async with client.producer("senders", latency_faults=LatencyFaultPolicy.JAVA_5) as producer:
        await producer.send(Message(topic, b"1"))
        for _ in range(10):
            await producer.submit(Message(topic, b"2"))
        await producer.send_oneway(Message(topic, b"3"))
        await producer.send_batch([Message(topic, b"4"), Message(topic, b"5")])
        with trio.fail_after(PATIENCE):
            while producer.in_flight:
                await trio.sleep(0.01)
        statistics = producer.statistics
        assert (statistics.sent, statistics.failed, statistics.oneway) == (13, 0, 1)
        assert statistics.latency.count == 12
        assert 0 < statistics.latency.quantile(0.5) <= statistics.latency.longest
        await read_all(client, topic, count=14)


@pytest.mark.parametrize("kind", CompressionType)
async def test_a_compressed_body_is_stored_small_and_read_whole(
    client: Client, topic: str, kind: CompressionType
) -> None:
    if kind is not CompressionType.ZLIB:
        extra = {CompressionType.LZ4: "lz4", CompressionType.ZSTD: "zstandard"}[kind]
        pytest.importorskip(extra, reason=f"the extra of {kind.name} is not installed")
    bodies = [b"compressible " * 1000, random.Random(1).randbytes(10_000), b"short"]
    async with client.producer("senders", compression=Compression(kind=kind)) as producer:
        for body in bodies:
            await producer.send(Message(topic, body))
            await (await producer.submit(Message(topic, body)))
    received = await read_all(client, topic, count=6)
    assert sorted(message.body for message in received) == sorted(bodies * 2)
    for message in received:
        assert not message.system_flag & 0x701
        if message.body == bodies[0]:
            assert message.store_size < 1000
