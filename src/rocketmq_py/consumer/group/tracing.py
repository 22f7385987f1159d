"""Trace records of consumed messages. Java: ``ConsumeMessageTraceHookImpl``."""

from __future__ import annotations

from collections.abc import Callable

from rocketmq_py.client.tracing import TraceDispatcher
from rocketmq_py.consumer.group.hooks import ConsumeContext, ConsumeOperation, ConsumerHook
from rocketmq_py.message import ReceivedMessage
from rocketmq_py.property_names import MESSAGE_REGION, TRACE_SWITCH
from rocketmq_py.protocol.message_id import UniqueIdGenerator
from rocketmq_py.protocol.trace import ConsumeEndTrace, ConsumeStartTrace

_NO_REGION = "null"
"""The region that Java writes if the broker did not report one, as 4.x brokers do not."""


class ConsumeTraceHook(ConsumerHook):
    """Sends two trace records for each message, before and after it is handled.

    Messages for which the broker has disabled tracing are left out. As in Java, both records of a polled
    message are sent when the poll returns it, with a duration of 0.

    Args:
        dispatcher: sends the records.
        unique_ids: generates the request ids that link the two records.
        now_ms: the wall clock, epoch milliseconds.
    """

    def __init__(
        self, dispatcher: TraceDispatcher, unique_ids: UniqueIdGenerator, now_ms: Callable[[], int]
    ) -> None:
        self._dispatcher = dispatcher
        self._unique_ids = unique_ids
        self._now_ms = now_ms

    def before_consume(self, context: ConsumeContext) -> None:
        """Send the records for the start of the call."""
        traced = [
            message
            for message in context.messages
            if message.properties.get(TRACE_SWITCH) != "false"
            and not self._dispatcher.is_trace_topic(message.topic)
        ]
        request_id = self._unique_ids.next()
        context.state[self] = request_id, traced
        now_ms = self._now_ms()
        for message in traced:
            region = message.properties.get(MESSAGE_REGION)
            self._dispatcher.append(
                ConsumeStartTrace(
                    timestamp_ms=now_ms,
                    region=region or _NO_REGION,
                    group=context.consumer_group,
                    request_id=request_id,
                    message_id=message.message_id,
                    retries=message.reconsume_times,
                    keys=_keys_of(message),
                ),
                region,
            )

    def after_consume(self, context: ConsumeContext) -> None:
        """Send the records for the outcome of the call."""
        request_id, traced = context.state.pop(self)
        seconds = context.seconds if context.operation is ConsumeOperation.PROCESS else 0.0
        cost_ms = int(seconds * 1000) // max(len(context.messages), 1)
        now_ms = self._now_ms()
        for message in traced:
            self._dispatcher.append(
                ConsumeEndTrace(
                    request_id=request_id,
                    message_id=message.message_id,
                    cost_ms=cost_ms,
                    success=context.success,
                    keys=_keys_of(message),
                    returned=context.returned,
                    timestamp_ms=now_ms,
                    group=context.consumer_group,
                ),
                message.properties.get(MESSAGE_REGION),
            )


def _keys_of(message: ReceivedMessage) -> str:
    return " ".join(message.keys)
