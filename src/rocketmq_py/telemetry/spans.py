"""OpenTelemetry spans for sends and consumption. The messages' properties propagate the trace context.

Span names and attributes follow OpenTelemetry's semantic conventions for messaging and for RocketMQ.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import attrs

from rocketmq_py.address import split_address
from rocketmq_py.callables import NeverBlocks
from rocketmq_py.consumer import ConsumeContext, ConsumeOperation, ConsumerHook
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.message import Message, ReceivedMessage
from rocketmq_py.producer import EndTransactionContext, ProducerHook, SendContext, SendMode
from rocketmq_py.property_names import SHARDING_KEY

try:
    from opentelemetry import context as otel_context
    from opentelemetry import propagate, trace
except ImportError:
    raise ConfigurationError(
        "OpenTelemetry spans need an extra: install rocketmq-py[opentelemetry]"
    ) from None


class TelemetryProducerHook(NeverBlocks, ProducerHook):
    """Creates a span of kind PRODUCER for each send, and one of kind CLIENT for each end of a transaction.

    ::

        producer.add_hook(TelemetryProducerHook())

    One span covers all attempts of a send. The messages' properties carry its context to consumers
    (``traceparent``, and everything else that the application's propagators write). Properties of those names
    are overwritten.

    Args:
        tracer_provider: creates the spans. None for the global one.
    """

    def __init__(self, tracer_provider: trace.TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("rocketmq_py", tracer_provider=tracer_provider)

    def before_send(self, context: SendContext) -> None:
        """Start a span, and inject its context into the messages."""
        message = context.messages[0]
        span = self._tracer.start_span(
            f"{_send_operation(context)} {message.topic}",
            kind=trace.SpanKind.PRODUCER,
            attributes=_send_attributes(context),
        )
        context.state[self] = span
        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(span))
        if carrier:
            context.messages = [
                attrs.evolve(one, properties={**one.properties, **carrier}) for one in context.messages
            ]

    def after_send(self, context: SendContext) -> None:
        """End the span with the outcome of the send."""
        span: trace.Span | None = context.state.pop(self, None)
        if span is None:
            return
        if len(context.message_ids) == 1:
            span.set_attribute("messaging.message.id", context.message_ids[0])
        if context.queue is not None:
            span.set_attribute("messaging.destination.partition.id", str(context.queue.queue_id))
            span.set_attributes(_server_attributes(context.broker_address))
        _end(span, context.error)

    def after_end_transaction(self, context: EndTransactionContext) -> None:
        """Create a span, without a duration, for the end of a transaction."""
        span = self._tracer.start_span(
            f"{context.transaction_state} {context.topic}",
            kind=trace.SpanKind.CLIENT,
            attributes={
                "messaging.system": "rocketmq",
                "messaging.operation.name": context.transaction_state,
                "messaging.operation.type": "settle",
                "messaging.destination.name": context.topic,
                "messaging.client.id": context.client_id,
                "messaging.message.id": context.message_id,
                **_server_attributes(context.broker_address),
            },
        )
        _end(span, context.error)


class TelemetryConsumerHook(NeverBlocks, ConsumerHook):
    """Creates a span for each call of a handler, or for the messages of each queue that a poll returns.

    ::

        consumer.add_hook(TelemetryConsumerHook())

    Its kind is CONSUMER for a handler call, and CLIENT for a poll. The span of a handler call is the current
    one while the handler runs, as a task or in a thread, so that spans of the handler are its children. Each
    span has links to the spans in the messages' contexts, such as those of a TelemetryProducerHook. A handler
    call with a single message is also a child of that message's span and has its baggage. An exception of the
    handler is recorded. The span's status is an error after an exception, and after a result with which the
    messages are delivered again.

    Args:
        tracer_provider: creates the spans. None for the global one.
    """

    def __init__(self, tracer_provider: trace.TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("rocketmq_py", tracer_provider=tracer_provider)

    def before_consume(self, context: ConsumeContext) -> None:
        """Start a span, and make it the current one for the handler."""
        message_contexts = [
            propagate.extract(one.properties, otel_context.Context()) for one in context.messages
        ]
        sender_spans = [trace.get_current_span(one).get_span_context() for one in message_contexts]
        is_process = context.operation is ConsumeOperation.PROCESS
        parent = otel_context.get_current()
        if is_process and len(sender_spans) == 1 and sender_spans[0].is_valid:
            parent = message_contexts[0]
        operation = "process" if is_process else "receive"
        span = self._tracer.start_span(
            f"{operation} {context.messages[0].topic}",
            parent,
            kind=trace.SpanKind.CONSUMER if is_process else trace.SpanKind.CLIENT,
            attributes=_consume_attributes(context, operation),
            links=[trace.Link(sender) for sender in sender_spans if sender.is_valid],
            # A poll is over when its hook is called. For a handler call, which begins now, seconds is 0.
            start_time=time.time_ns() - round(context.seconds * 1e9),
        )
        token = otel_context.attach(trace.set_span_in_context(span, parent)) if is_process else None
        context.state[self] = span, token

    def after_consume(self, context: ConsumeContext) -> None:
        """End the span with the outcome of the consumption."""
        span, token = context.state.pop(self, (None, None))
        if span is None:
            return
        if token is not None:
            otel_context.detach(token)
        if context.error is not None:
            span.record_exception(context.error)
        elif not context.success:
            span.set_attribute("error.type", type(context.result).__qualname__)
            span.set_status(trace.Status(trace.StatusCode.ERROR, repr(context.result)))
        _end(span, context.error)


def _consume_attributes(context: ConsumeContext, operation: str) -> dict[str, str | int | Sequence[str]]:
    messages = context.messages
    first: ReceivedMessage = messages[0]
    attributes: dict[str, str | int | Sequence[str]] = {
        "messaging.system": "rocketmq",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": first.topic,
        "messaging.destination.partition.id": str(context.queue.queue_id),
        "messaging.consumer.group.name": context.consumer_group,
        "messaging.client.id": context.client_id,
        "messaging.message.body.size": sum(len(one.body) for one in messages),
        **_server_attributes(first.store_host),
    }
    if len(messages) > 1:
        attributes["messaging.batch.message_count"] = len(messages)
    else:
        attributes["messaging.message.id"] = first.message_id
        if first.tags:
            attributes["messaging.rocketmq.message.tag"] = first.tags
    keys = [key for one in messages for key in one.keys]
    if keys:
        attributes["messaging.rocketmq.message.keys"] = keys
    return attributes


def _send_attributes(context: SendContext) -> dict[str, str | int | list[str]]:
    message = context.messages[0]
    message_type = _message_type(message, is_half=context.is_half)
    attributes: dict[str, str | int | list[str]] = {
        "messaging.system": "rocketmq",
        "messaging.operation.name": _send_operation(context),
        "messaging.operation.type": "send",
        "messaging.destination.name": message.topic,
        "messaging.client.id": context.client_id,
        "messaging.message.body.size": sum(len(one.body) for one in context.messages),
        "messaging.rocketmq.message.type": message_type,
    }
    if message_type == "fifo":
        attributes["messaging.rocketmq.message.group"] = _sharding_key(message)
    if len(context.messages) > 1:
        attributes["messaging.batch.message_count"] = len(context.messages)
    elif message.tags:
        attributes["messaging.rocketmq.message.tag"] = message.tags
    keys = [key for one in context.messages for key in one.keys]
    if keys:
        attributes["messaging.rocketmq.message.keys"] = keys
    if message.delay_level:
        attributes["messaging.rocketmq.message.delay_time_level"] = message.delay_level
    if message.deliver_at_ms:
        attributes["messaging.rocketmq.message.delivery_timestamp"] = message.deliver_at_ms
    return attributes


def _send_operation(context: SendContext) -> str:
    return "send_oneway" if context.mode is SendMode.ONEWAY else "send"


def _message_type(message: Message, *, is_half: bool) -> str:
    if is_half:
        return "transaction"
    if message.delay_level or message.is_timed:
        return "delay"
    return "fifo" if _sharding_key(message) else "normal"


def _sharding_key(message: Message) -> str:
    return message.sharding_key or message.properties.get(SHARDING_KEY, "")


def _server_attributes(address: str) -> dict[str, str | int]:
    """Return the host and port of a broker. Empty if its address is unknown or malformed."""
    try:
        host, port = split_address(address)
    except ConfigurationError:
        return {}
    return {"server.address": host, "server.port": port}


def _end(span: trace.Span, error: BaseException | None) -> None:
    if error is not None:
        span.set_attribute("error.type", type(error).__qualname__)
        span.set_status(trace.Status(trace.StatusCode.ERROR, str(error)))
    span.end()
