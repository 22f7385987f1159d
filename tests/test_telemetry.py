from __future__ import annotations

import subprocess
import sys

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import BrokerError
from rocketmq_py.message import Message
from rocketmq_py.producer import EndTransactionContext, Producer, SendMode
from rocketmq_py.properties import decode_properties
from rocketmq_py.protocol.send_body import decode_batch
from rocketmq_py.telemetry import TelemetryProducerHook
from tests.producer.test_ways_of_sending import store_batch
from tests.scripted import refuse, scripted_cluster, store


class Spans:
    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def finished(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.mark.parametrize("mode", SendMode)
async def test_a_send_is_a_span_whose_context_travels_along(spans: Spans, mode: SendMode) -> None:
    message = Message("T", b"12345", tags="A", keys="k1 k2", properties={"mine": "1"})
    async with scripted_cluster(store) as cluster:
        async with Producer(cluster.address) as producer:
            producer.add_hook(TelemetryProducerHook(spans.provider))
            parent = spans.provider.get_tracer("test").start_span("parent")
            with trace.use_span(parent, end_on_exit=True):
                if mode is SendMode.AWAITED:
                    await producer.send(message)
                elif mode is SendMode.PIPELINED:
                    await (await producer.send_soon(message))
                else:
                    await producer.send_oneway(message)
            client_id = producer.client.client_id
        broker = cluster.brokers["broker-a"]
        (request,) = broker.asked(RequestCode.SEND_MESSAGE_V2)
    (span,) = (one for one in spans.finished() if one.name == "send T")
    assert span.kind is trace.SpanKind.PRODUCER
    assert span.parent is not None
    assert span.parent.span_id == parent.get_span_context().span_id
    properties = decode_properties(request.fields["i"])
    context = span.get_span_context()
    assert context is not None
    assert properties["traceparent"].startswith(f"00-{context.trace_id:032x}-{context.span_id:016x}-")
    assert properties["mine"] == "1"
    assert span.attributes is not None
    assert dict(span.attributes) == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "send_oneway" if mode is SendMode.ONEWAY else "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "T",
        "messaging.destination.partition.id": request.fields["e"],
        "messaging.client.id": client_id,
        "messaging.message.id": properties["UNIQ_KEY"],
        "messaging.message.body.size": 5,
        "messaging.rocketmq.message.type": "normal",
        "messaging.rocketmq.message.tag": "A",
        "messaging.rocketmq.message.keys": ("k1", "k2"),
        "server.address": broker.address,
    }


async def test_a_failed_send_is_an_error(spans: Spans) -> None:
    answer = refuse(ResponseCode.MESSAGE_ILLEGAL, "no")
    async with scripted_cluster(answer) as cluster, Producer(cluster.address) as producer:
        producer.add_hook(TelemetryProducerHook(spans.provider))
        with pytest.raises(BrokerError):
            await producer.send(Message("T", b"x", delay_level=3))
    (span,) = spans.finished()
    assert span.status.status_code is trace.StatusCode.ERROR
    assert span.attributes is not None
    assert span.attributes["error.type"] == "MessageRefusedError"
    assert span.attributes["messaging.rocketmq.message.delay_time_level"] == 3


async def test_a_list_is_one_span_whose_context_is_in_each_message(spans: Spans) -> None:
    async with scripted_cluster(store_batch) as cluster, Producer(cluster.address) as producer:
        producer.add_hook(TelemetryProducerHook(spans.provider))
        await producer.send_batch([Message("T", b"1"), Message("T", b"2")])
        (request,) = cluster.brokers["broker-a"].asked(RequestCode.SEND_BATCH_MESSAGE)
    (span,) = spans.finished()
    assert span.attributes is not None
    assert span.attributes["messaging.batch.message_count"] == 2
    context = span.get_span_context()
    assert context is not None
    for message in decode_batch(request.body):
        parent = decode_properties(message.properties.decode())["traceparent"]
        assert parent.split("-")[1:3] == [f"{context.trace_id:032x}", f"{context.span_id:016x}"]


def test_the_end_of_a_transaction_is_a_span(spans: Spans) -> None:
    hook = TelemetryProducerHook(spans.provider)
    hook.after_end_transaction(
        EndTransactionContext(
            producer_group="g",
            client_id="c",
            topic="T",
            message_id="ID",
            transaction_id="TX",
            state="commit",
            from_check=False,
            broker_address="h:1",
        )
    )
    (span,) = spans.finished()
    assert span.name == "settle T"
    assert span.attributes is not None
    assert span.attributes["messaging.operation.name"] == "commit"


def test_without_the_extra_the_error_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "try:\n    import rocketmq_py.telemetry\nexcept Exception as error:\n    print(error)"
    )
    result = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert "install rocketmq-py[opentelemetry]" in result.stdout
