from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import trio
from opentelemetry import baggage, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from rocketmq_py.client import core_of
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.consumer import ConsumeContext, ConsumeLater, ConsumeOperation
from rocketmq_py.consumer.group.hooks import ConsumerHooks
from rocketmq_py.consumer.push.handler import open_executor
from rocketmq_py.errors import BrokerError
from rocketmq_py.message import Message, ReceivedMessage
from rocketmq_py.producer import EndTransactionContext, Producer, SendMode
from rocketmq_py.properties import decode_properties
from rocketmq_py.property_names import SHARDING_KEY
from rocketmq_py.protocol.batch import decode_batch
from rocketmq_py.telemetry import TelemetryConsumerHook, TelemetryProducerHook
from tests.consumer.received import QUEUE, received
from tests.producer.test_send_options import store_batch
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
                    await (await producer.submit(message))
                else:
                    await producer.send_oneway(message)
            client_id = core_of(producer).client_id
        broker = cluster.brokers["broker-a"]
        (request,) = broker.asked(RequestCode.SEND_MESSAGE_V2)
    operation = "send_oneway" if mode is SendMode.ONEWAY else "send"
    (span,) = (one for one in spans.finished() if one.name == f"{operation} T")
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
        "messaging.operation.name": operation,
        "messaging.operation.type": "send",
        "messaging.destination.name": "T",
        "messaging.destination.partition.id": request.fields["e"],
        "messaging.client.id": client_id,
        "messaging.message.id": properties["UNIQ_KEY"],
        "messaging.message.body.size": 5,
        "messaging.rocketmq.message.type": "normal",
        "messaging.rocketmq.message.tag": "A",
        "messaging.rocketmq.message.keys": ("k1", "k2"),
        "server.address": "127.0.0.1",
        "server.port": int(broker.address.removeprefix("127.0.0.1:")),
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


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({}, "normal"),
        ({"sharding_key": "k"}, "fifo"),
        ({"properties": {SHARDING_KEY: "k"}}, "fifo"),
        ({"delay_level": 3}, "delay"),
        ({"deliver_at_ms": 2**40}, "delay"),
        ({"sharding_key": "k", "delay_level": 3}, "delay"),
    ],
)
async def test_the_span_of_a_send_names_the_type_of_the_message(
    spans: Spans, options: dict[str, Any], kind: str
) -> None:
    async with scripted_cluster(store) as cluster, Producer(cluster.address) as producer:
        producer.add_hook(TelemetryProducerHook(spans.provider))
        await producer.send(Message("T", b"x", **options))
    (span,) = spans.finished()
    assert span.attributes is not None
    assert span.attributes["messaging.rocketmq.message.type"] == kind
    assert span.attributes.get("messaging.rocketmq.message.group") == ("k" if kind == "fifo" else None)


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


@pytest.mark.parametrize("linger", [None, 0.005])
async def test_the_span_of_a_message_is_a_child_of_its_own_senders(
    spans: Spans, linger: float | None
) -> None:
    async def send(producer: Producer, number: int) -> None:
        with spans.provider.get_tracer("test").start_as_current_span(f"sender {number}"):
            await producer.send(Message("T", b"x", keys=str(number)))

    async with scripted_cluster(store_batch) as cluster, Producer(cluster.address, linger=linger) as producer:
        producer.add_hook(TelemetryProducerHook(spans.provider))
        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(send, producer, number)
    senders = {span.context.span_id: span.name for span in spans.finished() if span.context is not None}
    seen, ids = {}, set()
    for span in spans.finished():
        if span.name == "send T":
            assert span.attributes is not None
            assert span.parent is not None
            seen[span.attributes["messaging.rocketmq.message.keys"]] = senders[span.parent.span_id]
            ids.add(span.attributes["messaging.message.id"])
    assert seen == {(str(number),): f"sender {number}" for number in range(3)}
    assert len(ids) == 3


@pytest.mark.parametrize(
    ("address", "server"),
    [
        ("[::1]:1", {"server.address": "::1", "server.port": 1}),
        ("broker.example:10911", {"server.address": "broker.example", "server.port": 10911}),
        ("", {}),
        ("10.0.0.1:0", {}),
    ],
)
def test_the_end_of_a_transaction_is_a_span(spans: Spans, address: str, server: dict[str, Any]) -> None:
    hook = TelemetryProducerHook(spans.provider)
    hook.after_end_transaction(
        EndTransactionContext(
            producer_group="g",
            client_id="c",
            topic="T",
            message_id="ID",
            transaction_id="TX",
            transaction_state="commit",
            from_check=False,
            broker_address=address,
        )
    )
    (span,) = spans.finished()
    assert span.name == "commit T"
    assert span.attributes is not None
    assert span.attributes["messaging.operation.name"] == "commit"
    found = {name: value for name, value in span.attributes.items() if name.startswith("server.")}
    assert found == server


# Consumption


def hooks_of(spans: Spans, *, count: int = 1) -> ConsumerHooks:
    hooks = ConsumerHooks("g", "client", lambda: 0)
    for _ in range(count):
        hooks.add(TelemetryConsumerHook(spans.provider))
    return hooks


def id_of(span: trace.Span | ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id


def sent_in(span: trace.Span, offset: int = 0, **properties: str) -> ReceivedMessage:
    parent = f"00-{span.get_span_context().trace_id:032x}-{id_of(span):016x}-01"
    return received(
        offset,
        traceparent=parent,
        UNIQ_KEY=f"ID{offset}",
        **properties,  # type: ignore[arg-type]  # a message's properties
    )


def nothing_is_current() -> bool:
    return not trace.get_current_span().get_span_context().is_valid


async def do_nothing(item: object) -> None:
    pass


@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_handlers_call_is_a_span_below_that_of_the_send(
    spans: Spans, in_thread: bool, nursery: trio.Nursery
) -> None:
    tracer = spans.provider.get_tracer("test")
    sending = tracer.start_span("send T")
    seen: list[object] = []

    def handle(message: ReceivedMessage) -> None:
        tracer.start_span("inner").end()
        seen.append(baggage.get_baggage("who"))

    async def handle_here(message: ReceivedMessage) -> None:
        handle(message)

    executor = open_executor(handle if in_thread else handle_here, 1, nursery)
    message = sent_in(sending, TAGS="A", KEYS="k1 k2", baggage="who=me")
    await hooks_of(spans).call(executor.call, QUEUE, message)
    executor.abandon()
    inner, span = spans.finished()
    assert span.name == "process T"
    assert span.kind is trace.SpanKind.CONSUMER
    assert span.parent is not None
    assert span.parent.span_id == id_of(sending)
    assert [link.context.span_id for link in span.links] == [id_of(sending)]
    assert inner.parent is not None
    assert inner.parent.span_id == id_of(span)
    assert seen == ["me"]
    assert nothing_is_current()
    assert span.status.status_code is trace.StatusCode.UNSET
    assert span.attributes is not None
    assert dict(span.attributes) == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "T",
        "messaging.destination.partition.id": "0",
        "messaging.consumer.group.name": "g",
        "messaging.client.id": "client",
        "messaging.message.id": "ID0",
        "messaging.message.body.size": 4,
        "messaging.rocketmq.message.tag": "A",
        "messaging.rocketmq.message.keys": ("k1", "k2"),
        "server.address": "127.0.0.1",
        "server.port": 10911,
    }


async def test_a_list_is_one_span_with_a_link_to_each_send(spans: Spans) -> None:
    tracer = spans.provider.get_tracer("test")
    sends = [tracer.start_span("send T") for _ in range(2)]
    messages = [*(sent_in(span, number) for number, span in enumerate(sends)), received(2)]
    await hooks_of(spans).call(do_nothing, QUEUE, messages)
    (span,) = spans.finished()
    assert span.parent is None
    assert [link.context.span_id for link in span.links] == [id_of(send) for send in sends]
    assert span.attributes is not None
    assert span.attributes["messaging.batch.message_count"] == 3
    assert "messaging.message.id" not in span.attributes


async def test_handler_exception_is_recorded(spans: Spans) -> None:
    async def handle(message: ReceivedMessage) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await hooks_of(spans).call(handle, QUEUE, received(0))
    (span,) = spans.finished()
    assert span.status.status_code is trace.StatusCode.ERROR
    assert span.attributes is not None
    assert span.attributes["error.type"] == "ValueError"
    (event,) = span.events
    assert event.name == "exception"
    assert nothing_is_current()


async def test_a_result_that_has_it_delivered_again_is_an_error(spans: Spans) -> None:
    async def handle(message: ReceivedMessage) -> ConsumeLater:
        return ConsumeLater(delay_level=3)

    await hooks_of(spans).call(handle, QUEUE, received(0))
    (span,) = spans.finished()
    assert span.status.status_code is trace.StatusCode.ERROR
    assert span.status.description == "ConsumeLater(delay_level=3, done=0)"
    assert span.attributes is not None
    assert span.attributes["error.type"] == "ConsumeLater"


async def test_receive_span_covers_the_wait_and_links_the_messages(spans: Spans) -> None:
    tracer = spans.provider.get_tracer("test")
    sending = tracer.start_span("send T")
    with tracer.start_as_current_span("around") as around:
        await hooks_of(spans).call_for_received([sent_in(sending), received(1)], [QUEUE, QUEUE], 2.0)
        assert trace.get_current_span() is around
    span, _ = spans.finished()
    assert span.name == "receive T"
    assert span.kind is trace.SpanKind.CLIENT
    assert span.parent is not None
    assert span.parent.span_id == id_of(around)
    assert [link.context.span_id for link in span.links] == [id_of(sending)]
    assert span.start_time is not None
    assert span.end_time is not None
    assert span.end_time - span.start_time >= 2e9


async def test_several_hooks_nest(spans: Spans) -> None:
    await hooks_of(spans, count=2).call(do_nothing, QUEUE, received(0))
    inner, outer = spans.finished()
    assert inner.parent is not None
    assert inner.parent.span_id == id_of(outer)
    assert nothing_is_current()


def test_an_end_without_a_beginning_is_passed_over(spans: Spans) -> None:
    TelemetryConsumerHook(spans.provider).after_consume(
        ConsumeContext(
            consumer_group="g",
            client_id="c",
            operation=ConsumeOperation.PROCESS,
            queue=QUEUE,
            messages=[received(0)],
            started_ms=0,
        )
    )
    assert spans.finished() == ()


def test_missing_extra_error_names_the_package_to_install() -> None:
    program = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "try:\n    import rocketmq_py.telemetry\nexcept Exception as error:\n    print(error)"
    )
    result = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert "install rocketmq-py[opentelemetry]" in result.stdout
