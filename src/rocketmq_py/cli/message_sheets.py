"""Messages, and what became of them, as commands print them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rocketmq_py.cli.sheet import Column, Sheet, at

if TYPE_CHECKING:
    from rocketmq_py.admin import MessageTrack, TraceEvent
    from rocketmq_py.message import ReceivedMessage

LONGEST_BODY = 4096
"""Characters of a body that a table shows; JSON has all of it."""
LONGEST_IN_A_ROW = 60


def full_value(message: ReceivedMessage) -> dict[str, Any]:
    """Return a message as JSON has it, with what only operators want to know."""
    from rocketmq_py.cli.json_lines import message_value

    value = message_value(message)
    last = [name for name in ("body", "body_base64", "corruption") if name in value]
    body: dict[str, Any] = {name: value.pop(name) for name in last}
    return {
        **value,
        "offset_message_id": message.offset_message_id,
        "commit_log_offset": message.commit_log_offset,
        "born_host": message.born_host,
        "store_host": message.store_host,
        "store_size": message.store_size,
        "system_properties": {
            name: text for name, text in message.properties.items() if name not in message.user_properties
        },
        **body,
    }


def message_sheet(message: ReceivedMessage) -> Sheet:
    """Return the table that shows one message."""
    body = _text(message)
    shown = body if len(body) <= LONGEST_BODY else f"{body[:LONGEST_BODY]} … ({len(message.body):,} bytes)"
    system = {name: text for name, text in message.properties.items() if name not in message.user_properties}
    rows: list[tuple[str, object]] = [
        ("topic", message.topic),
        ("message id", message.message_id),
        ("offset message id", message.offset_message_id),
        ("queue", f"{message.broker_name}/{message.queue_id}"),
        ("offset", message.queue_offset),
        ("stored", f"{at(message.store_time_ms)} by {message.store_host}"),
        ("born", f"{at(message.born_time_ms)} at {message.born_host}"),
        ("tag", message.tags),
        ("keys", message.keys),
        ("reconsume times", message.reconsume_times),
        ("properties", [f"{name}={text}" for name, text in message.user_properties.items()]),
        ("RocketMQ's own", [f"{name}={text}" for name, text in system.items()]),
        ("size", f"{len(message.body):,} bytes"),
        ("body", shown),
    ]
    if message.corruption is not None:
        rows.append(("corruption", message.corruption))
    return Sheet([Column("FIELD"), Column("VALUE", lines=True)], rows)


def messages_sheet(messages: Sequence[ReceivedMessage]) -> Sheet:
    """Return the table that has a row for each message."""
    columns = [
        Column("STORED"),
        Column("MESSAGE ID"),
        Column("OFFSET MESSAGE ID", wide=True),
        Column("BROKER"),
        Column("QUEUE", right=True),
        Column("OFFSET", right=True),
        Column("TAG"),
        Column("KEYS"),
        Column("PROPERTIES", wide=True),
        Column("BODY"),
    ]
    rows = [
        (
            at(one.store_time_ms),
            one.message_id,
            one.offset_message_id,
            one.broker_name,
            one.queue_id,
            one.queue_offset,
            one.tags,
            one.keys,
            [f"{name}={text}" for name, text in one.user_properties.items()],
            first_words(one),
        )
        for one in messages
    ]
    return Sheet(columns, rows)


def first_words(message: ReceivedMessage) -> str:
    """Return the beginning of a body, as a table has it in a row."""
    text = " ".join(_text(message).split())
    return text if len(text) <= LONGEST_IN_A_ROW else f"{text[:LONGEST_IN_A_ROW]}…"


def _text(message: ReceivedMessage) -> str:
    try:
        text = message.body.decode()
    except UnicodeDecodeError:
        return repr(message.body[:LONGEST_BODY])
    return text if text.replace("\n", "").replace("\t", "").isprintable() else repr(text)


def track_value(track: MessageTrack) -> dict[str, Any]:
    """Return what a group did with a message as JSON has it."""
    return {
        "group": track.group,
        "track": track.track_type,
        "is_past": track.is_past,
        "consumer_offset": track.consumer_offset,
        "failure": None if track.failure is None else str(track.failure),
    }


def tracks_sheet(tracks: Sequence[MessageTrack]) -> Sheet:
    """Return the table of what groups did with a message."""
    columns = [Column("GROUP"), Column("TRACK"), Column("IS PAST IT"), Column("GROUP'S OFFSET", right=True)]
    return Sheet(columns, [(one.group, one.track_type, one.is_past, one.consumer_offset) for one in tracks])


def event_value(event: TraceEvent) -> dict[str, Any]:
    """Return what a client did with a message as JSON has it."""
    return {
        "kind": event.kind,
        "time_ms": event.time_ms,
        "group": event.group,
        "client": event.client,
        "cost_ms": event.cost_ms,
        "success": event.success,
        "retries": event.retries,
        "detail": event.detail,
        "broker": event.broker,
    }


def trace_sheet(events: Sequence[TraceEvent]) -> Sheet:
    """Return the table of what clients did with a message."""
    columns = [
        Column("TIME"),
        Column("KIND"),
        Column("GROUP"),
        Column("CLIENT"),
        Column("MS", right=True),
        Column("SUCCESS"),
        Column("RETRIES", right=True),
        Column("DETAIL"),
        Column("BROKER", wide=True),
    ]
    rows = [
        (
            at(one.time_ms or None),
            one.kind,
            one.group,
            one.client,
            one.cost_ms,
            one.success,
            one.retries,
            one.detail,
            one.broker,
        )
        for one in events
    ]
    return Sheet(columns, rows)
