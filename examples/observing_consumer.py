"""Observe a consumer: hooks, statistics, RocketMQ message traces and OpenTelemetry spans.

    pip install "./rocketmq-py[opentelemetry]" opentelemetry-sdk
    python examples/observing_consumer.py [NAMESRV]

NAMESRV is ``host:port`` of a name server. Without it, NAMESRV_ADDR is read from the environment, else
127.0.0.1:9876.
"""

from __future__ import annotations

import sys

import trio
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from rocketmq_py import Client, Message, ReceivedMessage, Suspend
from rocketmq_py.hooks import ConsumeContext, ConsumerHook
from rocketmq_py.telemetry import TelemetryConsumerHook, TelemetryProducerHook

TOPIC = "ObservedTest"


class Audit(ConsumerHook):
    """A custom hook that observes each handler call and its result."""

    def after_consume(self, context: ConsumeContext) -> None:
        """Print the result of a handler call."""
        (message,) = context.messages
        print(f"{message.body.decode()}: {context.returned.name}")


async def main(address: str | None) -> None:
    """Send two messages, and observe their consumption in every way."""
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    async with Client(address) as client:
        async with client.producer("examples") as producer:
            producer.add_hook(TelemetryProducerHook(provider))
            await producer.send(Message(TOPIC, b"a good one"), queue=lambda queues, _: queues[0])
            await producer.send(Message(TOPIC, b"a bad one"), queue=lambda queues, _: queues[0])

        async def handle(message: ReceivedMessage) -> Suspend | None:
            with provider.get_tracer("application").start_as_current_span("work"):
                if message.body == b"a bad one":
                    consumer.stop()
                    return Suspend()
            return None

        async with client.push_consumer(
            "examples-observed", orderly=True, consume_from="earliest", trace=True
        ) as consumer:
            consumer.add_hook(TelemetryConsumerHook(provider))
            consumer.add_hook(Audit())
            consumer.subscribe(TOPIC)
            await consumer.run(handle)
            statistics = consumer.statistics
            print(f"handled {statistics.handled}, failed {statistics.failed}")
            print(statistics)
    traces = {f"{span.context.trace_id:032x}" for span in spans.get_finished_spans() if span.context}
    print(f"{len(spans.get_finished_spans())} spans in {len(traces)} traces: send, process, work")


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else None)
