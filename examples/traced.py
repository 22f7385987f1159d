"""Trace sent messages: RocketMQ message traces and OpenTelemetry spans.

    pip install "./rocketmq-py[opentelemetry]" opentelemetry-sdk
    python examples/traced.py [NAMESRV]

RocketMQ's console and ``mqadmin queryMsgTraceById`` show message traces. The application's OpenTelemetry
configuration exports the spans. Here it keeps them in memory.

NAMESRV is ``host:port`` of a name server. Without it, NAMESRV_ADDR is read from the environment, else
127.0.0.1:9876.
"""

from __future__ import annotations

import sys

import trio
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from rocketmq_py import Message, Producer
from rocketmq_py.hooks import ProducerHook, SendContext
from rocketmq_py.telemetry import TelemetryProducerHook

TOPIC = "TracedTest"


class Audit(ProducerHook):
    """A custom hook that can forbid a send and observes its result."""

    async def check_forbidden(self, context: SendContext) -> None:
        """Raise to forbid a send."""
        if b"secret" in context.messages[0].body:
            raise PermissionError("no secrets in messages")

    def after_send(self, context: SendContext) -> None:
        """Print the result of a send."""
        print(f"{context.mode.value} to queue {context.queue.queue_id}" if context.queue else "not sent")


async def main(address: str | None) -> None:
    """Send a message that is traced in both ways."""
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    async with Producer(address, group="examples", trace=True) as producer:
        producer.add_hook(TelemetryProducerHook(provider))
        producer.add_hook(Audit())
        result = await producer.send(
            Message(TOPIC, b"traced", keys="order-1"), queue=lambda queues, _: queues[0]
        )
        print(f"look it up: mqadmin queryMsgTraceById -i {result.message_id}")
        statistics = producer.statistics
        print(f"sent {statistics.sent}, failed {statistics.failed}, retried {statistics.retried}")
    for span in spans.get_finished_spans():
        print(f"span: {span.name}")


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else None)
