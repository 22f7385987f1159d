"""Consumers send trace records of the messages that they handle or return."""

from __future__ import annotations

import logging

import pytest
import trio
import trio.testing

from rocketmq_py import Client
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.client import core_of
from rocketmq_py.client.tracing import TraceDispatcher
from rocketmq_py.codes import RequestCode
from rocketmq_py.consumer import ConsumeContext, ConsumeLater, ConsumeOperation, Reader
from rocketmq_py.consumer.group.tracing import ConsumeTraceHook
from rocketmq_py.message import Message, ReceivedMessage
from rocketmq_py.producer import Producer
from rocketmq_py.protocol.trace import ConsumeReturnType, TraceRecord, read_records
from tests.consumer.conftest import Fill
from tests.consumer.lite_pull.test_consumer import consumer_of as lite_pull_consumer_of
from tests.consumer.pop.test_consumer import consumer_of as pop_consumer_of
from tests.consumer.pop_broker import message, pop_brokers
from tests.consumer.push_consumers import RecordingHandler, consumer_of
from tests.consumer.received import QUEUE, received
from tests.scripted import scripted_cluster, store


class Records(TraceDispatcher):
    """A dispatcher that collects records instead of sending them."""

    def __init__(self, client: Client) -> None:
        super().__init__(core_of(client), "g", "traces")
        self.records: list[TraceRecord] = []

    def append(self, record: TraceRecord, region: str | None = None) -> None:
        self.records.append(record)

    def fields(self) -> list[list[str]]:
        return [[str(field) for field in record.fields()] for record in self.records]


def context_of(
    *messages: ReceivedMessage, operation: ConsumeOperation = ConsumeOperation.PROCESS
) -> ConsumeContext:
    return ConsumeContext(
        consumer_group="g",
        client_id="c",
        operation=operation,
        queue=QUEUE,
        messages=list(messages),
        started_ms=1,
    )


def hook_of(client: Client) -> tuple[ConsumeTraceHook, Records]:
    records = Records(client)
    return ConsumeTraceHook(records, core_of(client).unique_ids, iter(range(1000, 2000)).__next__), records


async def test_a_handler_call_has_two_records_per_message(client: Client) -> None:
    hook, records = hook_of(client)
    context = context_of(
        received(0, UNIQ_KEY="ID0", KEYS="k1 k2", MSG_REGION="R", TRACE_ON="true"),
        received(1, UNIQ_KEY="ID1", reconsume_times=2),
    )
    hook.before_consume(context)
    context.seconds = 0.25
    hook.after_consume(context)
    request_id = records.fields()[0][4]
    assert len(request_id) == 32
    assert records.fields() == [
        ["SubBefore", "1000", "R", "g", request_id, "ID0", "0", "k1 k2"],
        ["SubBefore", "1000", "null", "g", request_id, "ID1", "2", "null"],
        ["SubAfter", request_id, "ID0", "125", "true", "k1 k2", "0", "1001", "g"],
        ["SubAfter", request_id, "ID1", "125", "true", "null", "0", "1001", "g"],
    ]


async def test_the_record_contains_how_a_call_failed(client: Client) -> None:
    hook, records = hook_of(client)
    context = context_of(received(0))
    hook.before_consume(context)
    context.result, context.returned = ConsumeLater(), ConsumeReturnType.FAILED
    hook.after_consume(context)
    assert records.fields()[1][4:7] == ["false", "null", "4"]


async def test_messages_with_tracing_disabled_are_not_traced(client: Client) -> None:
    hook, records = hook_of(client)
    context = context_of(received(0, TRACE_ON="false"), received(1, topic="traces"))
    hook.before_consume(context)
    hook.after_consume(context)
    assert records.records == []


async def test_records_of_a_cloud_go_to_the_topic_of_the_region_of_the_message(
    caplog: pytest.LogCaptureFixture,
) -> None:
    topics = [f"rmq_sys_TRACE_DATA_{region}" for region in ("east", "west")]
    context = context_of(
        received(0, UNIQ_KEY="ID0", MSG_REGION="east"),
        received(1, UNIQ_KEY="ID1", MSG_REGION="west"),
        received(2, UNIQ_KEY="ID2", MSG_REGION="west", TRACE_ON="false"),
        received(3, UNIQ_KEY="ID3"),
        received(4, UNIQ_KEY="ID4", MSG_REGION="west", topic=topics[1]),
    )
    async with scripted_cluster(store, topics=topics) as cluster, Client(cluster.address) as client:
        dispatcher = TraceDispatcher(core_of(client), "g", "cloud")
        hook = ConsumeTraceHook(dispatcher, core_of(client).unique_ids, iter(range(1000, 2000)).__next__)
        hook.before_consume(context)
        hook.after_consume(context)
        await dispatcher.flush()
        sends = cluster.brokers["broker-a"].asked(RequestCode.SEND_MESSAGE_V2)
    for send, topic, message_id in zip(sends, topics, ("ID0", "ID1"), strict=True):
        before, after = read_records(send.body)
        assert send.fields["b"] == topic
        assert (before[0], before[5], after[0], after[2]) == ("SubBefore", message_id, "SubAfter", message_id)
        assert after[6:] == ["0", ""], "no time and no group, as in Java"
    assert dispatcher.dropped == 2
    assert "trace records lost: group=g topic=rmq_sys_TRACE_DATA_ lost=1 error=the message has no region" in (
        caplog.text
    )


async def test_polled_messages_have_a_duration_of_zero(client: Client) -> None:
    hook, records = hook_of(client)
    context = context_of(received(0), operation=ConsumeOperation.RECEIVE)
    context.seconds = 3
    hook.before_consume(context)
    hook.after_consume(context)
    assert records.fields()[1][3] == "0"


async def read_traces(client: Client, topic: str) -> list[list[str]]:
    async with (
        Reader(client) as reader,
        reader.open(topic, start="earliest", stop_at_end=True) as traces,
    ):
        return [fields async for trace in traces for fields in read_records(trace.body)]


async def test_closing_a_consumer_sends_its_records(
    broker: EmbeddedBroker, client: Client, fill: Fill
) -> None:
    await core_of(client).brokers.create_topic(broker.broker_address, "traces", queues=1)
    await fill("T", 3)
    kept = RecordingHandler()
    async with (
        consumer_of(broker.name_server_address, trace="traces") as consumer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(consumer.run, kept)
        await kept.until(3)
        nursery.cancel_scope.cancel()
    traces = await read_traces(client, "traces")
    assert sorted(fields[0] for fields in traces) == ["SubAfter"] * 3 + ["SubBefore"] * 3
    async with lite_pull_consumer_of(client, "polling", trace="traces") as polling:
        await polling.assign(await polling.queues("T"))
        polled = 0
        while polled < 3:
            polled += len(await polling.poll())
    traces = await read_traces(client, "traces")
    assert sum(fields[3] == "polling" for fields in traces) == 3
    assert sum(fields[-1] == "polling" for fields in traces) == 3


async def test_a_missing_trace_topic_does_not_delay_closing(
    caplog: pytest.LogCaptureFixture, jumping_clock: trio.testing.MockClock
) -> None:
    async with (
        pop_brokers() as (cluster, [broker]),
        pop_consumer_of(cluster.address, trace="missing") as consumer,
    ):
        broker.put(message(0))
        await consumer.receive()
        started = trio.current_time()
        await consumer.aclose()
        assert trio.current_time() - started < consumer.settings.close_timeout
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "trace records lost: group=g topic=missing lost=2" in warning.message


async def test_consuming_the_trace_topic_is_not_traced(broker: EmbeddedBroker, client: Client) -> None:
    await core_of(client).brokers.create_topic(broker.broker_address, "T", queues=1)
    async with Producer(client) as producer:
        await producer.send(Message("T", b"1"))
    async with lite_pull_consumer_of(client, trace="T") as consumer:
        await consumer.assign(await consumer.queues("T"))
        assert len(await consumer.poll()) == 1
    async with Reader(client) as reader:
        assert [end for _, end in (await reader.offsets("T")).values()] == [1]
