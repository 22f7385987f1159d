"""From the records that clients trace to what they did with one message."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from rocketmq_py.address import normal_address
from rocketmq_py.admin.message_values import TraceEvent, TraceKind
from rocketmq_py.message import ReceivedMessage
from rocketmq_py.protocol.trace import (
    ConsumeEndTrace,
    ConsumeStartTrace,
    EndTransactionTrace,
    PublishTrace,
    decode_records,
)


def events_of(message_id: str, traced: Iterable[ReceivedMessage]) -> tuple[TraceEvent, ...]:
    """Return what messages of a trace topic tell of one message, by time."""
    events: list[TraceEvent] = []
    begun: dict[str, ConsumeStartTrace] = {}
    clients: dict[str, str] = {}
    ended: dict[str, ConsumeEndTrace] = {}
    for message in traced:
        client = message.born_host
        for record in decode_records(message.body):
            if record.message_id != message_id:
                continue
            match record:
                case PublishTrace() | EndTransactionTrace():
                    events.append(_of_producer(record, client))
                case ConsumeStartTrace():
                    begun[record.request_id] = record
                    clients[record.request_id] = client
                case ConsumeEndTrace():
                    ended[record.request_id] = record
                    clients.setdefault(record.request_id, client)
    events += [
        _consumed(begun.get(request_id), ended.get(request_id), client)
        for request_id, client in clients.items()
    ]
    return tuple(sorted(events, key=lambda event: event.time_ms))


def _of_producer(record: PublishTrace | EndTransactionTrace, client: str) -> TraceEvent:
    event = TraceEvent(
        kind=TraceKind.SENT,
        time_ms=record.timestamp_ms,
        group=record.group,
        client=client,
        broker=normal_address(record.store_host) or None,
    )
    if isinstance(record, PublishTrace):
        return attrs.evolve(event, cost_ms=record.cost_ms, success=record.success)
    return attrs.evolve(event, kind=TraceKind.TRANSACTION, success=True, detail=record.state)


def _consumed(begun: ConsumeStartTrace | None, ended: ConsumeEndTrace | None, client: str) -> TraceEvent:
    event = TraceEvent(
        kind=TraceKind.CONSUMED,
        time_ms=begun.timestamp_ms if begun else ended.timestamp_ms if ended else 0,
        group=(begun.group if begun else "") or (ended.group if ended else ""),
        client=client,
        retries=begun.retries if begun else 0,
    )
    if ended is None:
        return event
    return attrs.evolve(event, cost_ms=ended.cost_ms, success=ended.success, detail=ended.returned.name)
