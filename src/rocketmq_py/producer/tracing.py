"""Trace records of sends, recalls and ended transactions. Java: ``SendMessageTraceHookImpl`` and others."""

from __future__ import annotations

from collections.abc import Callable

from rocketmq_py.client.core import ClientCore
from rocketmq_py.client.tracing import TraceDispatcher
from rocketmq_py.message import Message, SendStatus
from rocketmq_py.producer.hooks import EndTransactionContext, Hooks, ProducerHook, SendContext
from rocketmq_py.producer.settings import ProducerSettings
from rocketmq_py.property_names import KEY_SEPARATOR, START_DELIVER_TIME
from rocketmq_py.protocol.handles import RecallHandle
from rocketmq_py.protocol.trace import (
    DEFAULT_REGION,
    EndTransactionTrace,
    PublishTrace,
    RecallTrace,
    TracedType,
)

_STATES = {"commit": "COMMIT_MESSAGE", "rollback": "ROLLBACK_MESSAGE", "unknown": "UNKNOW"}


class TraceHook(ProducerHook):
    """Writes a trace record for each acknowledged message, also for each message of a batch.

    As in Java, failed and oneway sends have no record. Only the broker's answer says whether the broker wants
    a message to be traced.
    """

    def __init__(self, dispatcher: TraceDispatcher, now_ms: Callable[[], int]) -> None:
        self._dispatcher = dispatcher
        self._now_ms = now_ms

    def after_send(self, context: SendContext) -> None:
        """Write the records of a send."""
        # As in Java, the messages of a batch share its time.
        cost_ms = round(context.seconds * 1000) // max(len(context.messages), 1)
        for message, result in zip(context.messages, context.results, strict=False):
            if not result.trace_on or self._dispatcher.is_trace_topic(message.topic):
                continue
            self._dispatcher.append(
                PublishTrace(
                    timestamp_ms=context.started_ms,
                    region=result.region,
                    group=context.producer_group,
                    topic=message.topic,
                    message_id=result.message_id,
                    tags=message.tags,
                    keys=KEY_SEPARATOR.join(message.keys),
                    store_host=context.broker_address,
                    body_size=len(message.body),
                    cost_ms=cost_ms,
                    traced_type=_type_of(message, is_half=context.is_half),
                    offset_message_id=result.offset_message_id,
                    success=result.status is SendStatus.SEND_OK,
                ),
                result.region,
            )

    def after_end_transaction(self, context: EndTransactionContext) -> None:
        """Write the record of an ended transaction."""
        message, region = context.message, context.region
        if context.error is None and region is not None:
            self._dispatcher.append(
                EndTransactionTrace(
                    timestamp_ms=self._now_ms(),
                    region=region,
                    group=context.producer_group,
                    topic=context.topic,
                    message_id=context.message_id,
                    tags=message.tags if message else "",
                    keys=KEY_SEPARATOR.join(message.keys) if message else "",
                    store_host=context.broker_address,
                    transaction_id=context.transaction_id or "",
                    state=_STATES[context.transaction_state],
                    from_check=context.from_check,
                ),
                region,
            )


def recall_record(
    topic: str, handle: RecallHandle, group: str, *, region: str | None, success: bool, now_ms: int
) -> RecallTrace:
    """Return the record of a recall that a broker has answered. Java: ``DefaultRecallMessageTraceHook``.

    ``topic`` is the topic without the namespace, unlike the topic in the handle.
    """
    return RecallTrace(
        timestamp_ms=now_ms,
        region=region or DEFAULT_REGION,
        group=group,
        topic=topic,
        message_id=handle.message_id,
        success=success,
    )


def trace_sends(config: ProducerSettings, client: ClientCore, hooks: Hooks) -> TraceDispatcher | None:
    """Add a trace hook if the setting ``trace`` is on. Returns the dispatcher, which the producer runs."""
    if not config.trace:
        return None
    dispatcher = TraceDispatcher(client, config.group, config.trace)
    hooks.add(TraceHook(dispatcher, client.now_ms))
    return dispatcher


def _type_of(message: Message, *, is_half: bool) -> TracedType:
    if is_half:
        return TracedType.TRANSACTION_HALF
    if message.delay_level or message.is_timed or START_DELIVER_TIME in message.properties:
        return TracedType.DELAY
    return TracedType.NORMAL
