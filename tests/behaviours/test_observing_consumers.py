"""Observability of consumers: hooks, trace records, OpenTelemetry spans and statistics."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from rocketmq_py import Client, Message, PushConsumer, ReceivedMessage
from rocketmq_py.client.features import POP
from rocketmq_py.hooks import ConsumeContext, ConsumeOperation, ConsumeReturnType, ConsumerHook
from rocketmq_py.protocol.bodies import RequestMode
from rocketmq_py.protocol.trace import read_records
from rocketmq_py.statistics import PullState
from rocketmq_py.telemetry import TelemetryConsumerHook, TelemetryProducerHook
from tests.behaviours.conftest import ClusterUnderTest, create_topic
from tests.behaviours.reading import read_all, until_readable
from tests.behaviours.test_push_popping import PopScenario

pytestmark = pytest.mark.apis

PATIENCE = 60


@asynccontextmanager
async def running(
    consumer: PushConsumer, topic: str, handle: Callable[[Any], Any]
) -> AsyncIterator[PushConsumer]:
    async with consumer, trio.open_nursery() as nursery:
        consumer.subscribe(topic)
        nursery.start_soon(consumer.run, handle)
        yield consumer
        nursery.cancel_scope.cancel()


async def send(client: Client, topic: str, count: int) -> None:
    async with client.producer("senders") as producer:
        for number in range(count):
            await producer.send(Message(topic, b"%d" % number, keys=f"order-{number}"))
    await until_readable(client, topic, count=count)


async def wait_until(condition: Callable[[], object]) -> None:
    """Poll a condition until it holds."""
    with trio.fail_after(PATIENCE):
        while not condition():
            await trio.sleep(0.02)


class RecordingHook(ConsumerHook):
    """A hook that records the contexts of calls."""

    def __init__(self) -> None:
        self.contexts: list[ConsumeContext] = []

    async def before_consume(self, context: ConsumeContext) -> None:
        await trio.lowlevel.checkpoint()

    def after_consume(self, context: ConsumeContext) -> None:
        self.contexts.append(context)


async def fail_first_delivery(message: ReceivedMessage) -> None:
    if not message.reconsume_times:
        raise ValueError("the first delivery fails")


@pytest.mark.parametrize("kind", ["concurrent", "orderly"])
async def test_hooks_see_each_delivery(client: Client, topic: str, unique: str, kind: str) -> None:
    await send(client, topic, 8)
    consumer = client.push_consumer(
        unique,
        consume_from="earliest",
        rebalance_interval=1,
        orderly=kind == "orderly",
        suspend_current_queue=0.1,
    )
    consumer.add_hook(hook := RecordingHook())
    async with running(consumer, topic, fail_first_delivery):
        await wait_until(lambda: len(hook.contexts) == 16)
    assert {(context.operation, context.consumer_group) for context in hook.contexts} == {
        (ConsumeOperation.PROCESS, unique)
    }
    first = [context for context in hook.contexts if not context.messages[0].reconsume_times]
    retried = [context for context in hook.contexts if context.messages[0].reconsume_times]
    assert {context.returned for context in first} == {ConsumeReturnType.EXCEPTION}
    assert {context.returned for context in retried} == {ConsumeReturnType.SUCCESS}
    assert {context.queue.topic for context in retried} == {
        topic if kind == "orderly" else f"%RETRY%{unique}"
    }
    assert {context.messages[0].topic for context in hook.contexts} == {topic}


async def test_hooks_see_broadcast_messages(client: Client, topic: str, unique: str, tmp_path: Path) -> None:
    await send(client, topic, 4)
    consumer = client.push_consumer(
        unique, broadcasting=True, local_offsets=tmp_path, consume_from="earliest", batch_size=4
    )
    consumer.add_hook(hook := RecordingHook())
    async with running(consumer, topic, lambda messages: None):
        await wait_until(lambda: sum(len(context.messages) for context in hook.contexts) == 4)
    assert all(context.success for context in hook.contexts)


async def test_hooks_see_polled_messages(client: Client, topic: str, unique: str) -> None:
    await send(client, topic, 8)
    async with client.lite_pull_consumer(unique, consume_from="earliest") as consumer:
        consumer.add_hook(hook := RecordingHook())
        consumer.subscribe(topic)
        polled: list[ReceivedMessage] = []
        with trio.fail_after(PATIENCE):
            while len(polled) < 8:
                polled += await consumer.poll()
    assert [message for context in hook.contexts for message in context.messages] == polled
    for context in hook.contexts:
        assert context.operation is ConsumeOperation.RECEIVE
        assert {message.queue for message in context.messages} == {context.queue}


async def test_trace_records_are_in_the_trace_topic(
    cluster: ClusterUnderTest, client: Client, topic: str, unique: str
) -> None:
    traces = f"{unique}-traces"
    await create_topic(client, traces, queues=1)
    await send(client, topic, 1)
    consumer = client.push_consumer(unique, trace=traces, consume_from="earliest", rebalance_interval=1)
    consumer.add_hook(hook := RecordingHook())
    async with running(consumer, topic, fail_first_delivery):
        await wait_until(lambda: len(hook.contexts) == 2)
    received = await read_all(client, traces, count=1)
    records = [fields for message in received for fields in read_records(message.body)]
    message_id = hook.contexts[0].messages[0].message_id
    region = "DefaultRegion" if cluster.is_at_least("5.0.0") else "null"
    starts = [fields for fields in records if fields[0] == "SubBefore"]
    ends = [fields for fields in records if fields[0] == "SubAfter"]
    assert [fields[2:4] + fields[5:] for fields in starts] == [
        [region, unique, message_id, "0", "order-0"],
        [region, unique, message_id, "1", "order-0"],
    ]
    assert [fields[1] for fields in ends] == [fields[4] for fields in starts], (
        "the request id links both records"
    )
    assert [(fields[2], fields[4], fields[5], fields[6], fields[8]) for fields in ends] == [
        (message_id, "false", "order-0", "2", unique),
        (message_id, "true", "order-0", "0", unique),
    ]
    assert {message_id, "order-0"} == set(received[0].keys)


@pytest.mark.parametrize("in_thread", [False, True])
async def test_send_process_and_handler_spans_form_one_trace(
    client: Client, topic: str, unique: str, in_thread: bool
) -> None:
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))

    def handle(message: ReceivedMessage) -> None:
        provider.get_tracer("application").start_span("work").end()

    async def handle_async(message: ReceivedMessage) -> None:
        handle(message)

    async with client.producer("senders") as producer:
        producer.add_hook(TelemetryProducerHook(provider))
        await producer.send(Message(topic, b"x"))
    consumer = client.push_consumer(unique, consume_from="earliest")
    consumer.add_hook(TelemetryConsumerHook(provider))
    async with running(consumer, topic, handle if in_thread else handle_async):
        await wait_until(lambda: len(spans.get_finished_spans()) == 3)
    sending, work, processing = spans.get_finished_spans()
    assert [sending.name, work.name, processing.name] == [f"send {topic}", "work", f"process {topic}"]
    assert sending.context is not None
    assert processing.context is not None
    assert processing.parent is not None
    assert processing.parent.span_id == sending.context.span_id
    assert work.parent is not None
    assert work.parent.span_id == processing.context.span_id
    assert {span.context and span.context.trace_id for span in (sending, work, processing)} == {
        sending.context.trace_id
    }


@pytest.mark.sockets
@pytest.mark.parametrize("kind", ["concurrent", "orderly", "broadcasting"])
async def test_statistics_report_the_progress_of_a_push_consumer(
    client: Client, topic: str, unique: str, kind: str, tmp_path: Path
) -> None:
    await send(client, topic, 8)
    resume = trio.Event()

    async def handle(message: ReceivedMessage) -> None:
        if message.body == b"0":
            await resume.wait()

    consumer = client.push_consumer(
        unique,
        consume_from="earliest",
        orderly=kind == "orderly",
        broadcasting=kind == "broadcasting",
        local_offsets=tmp_path,
        commit_interval=0.5,
    )
    async with running(consumer, topic, handle):
        await wait_until(lambda: consumer.statistics.pulled == 8 and consumer.statistics.in_flight == 1)
        statistics = consumer.statistics
        in_flight = [queue for queue, each in statistics.queues.items() if each.in_flight]
        queue_statistics = statistics.queues[in_flight[0]]
        assert (queue_statistics.handled_to, queue_statistics.state) == (0, PullState.PULLING)
        assert queue_statistics.locked is (True if kind == "orderly" else None)
        resume.set()
        await wait_until(lambda: consumer.statistics.handled == 8)
        with trio.fail_after(PATIENCE):
            while sum((await consumer.lag()).values()):
                await trio.sleep(0.05)
        await wait_until(lambda: consumer.statistics.lag == 0)
        statistics = consumer.statistics
        assert (statistics.in_flight, statistics.failed, statistics.sent_back) == (0, 0, 0)
        assert sum(each.end or 0 for queue, each in statistics.queues.items() if queue.topic == topic) == 8
        assert statistics.topics[topic].pull_seconds > 0
        assert f"{topic}: pulled 8" in str(statistics)


async def test_the_lag_of_a_lite_pull_consumer_counts_uncommitted_messages(
    client: Client, topic: str, unique: str
) -> None:
    await send(client, topic, 8)
    async with client.lite_pull_consumer(unique, consume_from="earliest", auto_commit=False) as consumer:
        await consumer.assign(await consumer.queues(topic))
        assert sum((await consumer.lag()).values()) == 8
        polled = 0
        with trio.fail_after(PATIENCE):
            while polled < 8:
                polled += len(await consumer.poll())
        assert sum((await consumer.lag()).values()) == 8, "nothing is committed yet"
        await consumer.commit()
        assert sum((await consumer.lag()).values()) == 0
        assert (consumer.statistics.pulled, consumer.statistics.handled, consumer.statistics.lag) == (8, 8, 0)


async def test_hooks_traces_and_statistics_of_a_pop_consumer(
    cluster: ClusterUnderTest, client: Client, topic: str, unique: str
) -> None:
    cluster.needs(POP)
    traces = f"{unique}-traces"
    await create_topic(client, traces, queues=1)
    await send(client, topic, 8)
    async with client.pop_consumer(unique, consume_from="earliest", trace=traces) as consumer:
        consumer.subscribe(topic)
        consumer.add_hook(hook := RecordingHook())
        assert sum((await consumer.lag()).values()) == 8
        received = 0
        with trio.fail_after(PATIENCE):
            while received < 8:
                messages = await consumer.receive(wait=1)
                received += len(messages)
                await consumer.ack(*messages)
            assert (consumer.statistics.pulled, consumer.statistics.handled) == (8, 8)
            while sum((await consumer.lag()).values()):  # brokers commit acknowledged messages a little later
                await trio.sleep(0.05)
    assert {context.operation for context in hook.contexts} == {ConsumeOperation.RECEIVE}
    assert sum(len(context.messages) for context in hook.contexts) == 8
    records = [
        fields for message in await read_all(client, traces, count=1) for fields in read_records(message.body)
    ]
    assert sorted({fields[0] for fields in records}) == ["SubAfter", "SubBefore"]


async def test_hooks_and_statistics_of_a_push_consumer_that_pops(
    cluster: ClusterUnderTest, client: Client, topic: str, unique: str
) -> None:
    cluster.needs(POP)
    popping = PopScenario(client, cluster.address, topic, unique)
    await popping.set_mode(RequestMode.POP)
    resume = trio.Event()

    async def wait(message: ReceivedMessage) -> None:
        if message.body == b"0":
            await resume.wait()

    popping.answer = wait
    async with popping.member(invisible=60.0) as consumer:
        consumer.add_hook(hook := RecordingHook())
        await wait_until(lambda: any(queue.queue_id < 0 for queue in consumer.assignment))
        await send(client, topic, 8)
        await wait_until(lambda: len(hook.contexts) == 7)
        (queue,) = popping.queues(consumer)
        queue_statistics = consumer.statistics.queues[queue]
        assert (queue_statistics.cached, queue_statistics.cached_bytes, queue_statistics.in_flight) == (
            1,
            1,
            1,
        )
        assert (queue_statistics.state, queue_statistics.lag) == (PullState.PULLING, None)
        resume.set()
        await wait_until(lambda: consumer.statistics.handled == 8)
        with trio.fail_after(PATIENCE):
            while sum((await consumer.lag()).values()):
                await trio.sleep(0.05)
        assert (consumer.statistics.pulled, consumer.statistics.in_flight) == (8, 0)
    assert {(context.operation, context.returned) for context in hook.contexts} == {
        (ConsumeOperation.PROCESS, ConsumeReturnType.SUCCESS)
    }
