"""Output of ``rocketmq-py message``: messages, tracks and traces as JSON values and tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from rocketmq_py.cli.message_formats import message_value
from rocketmq_py.cli.table_layout import Column
from rocketmq_py.cli.tables import Field, Listing, Table, format_time

if TYPE_CHECKING:
    from rocketmq_py.message import ReceivedMessage

MAX_BODY_LENGTH = 4096
"""Characters of a body that the table of one message shows. JSON has the whole body."""
MAX_SUMMARY_LENGTH = 60
"""Characters of a body that a row of a table shows."""
TRACKS: Final = Listing(
    Field("group", "GROUP"),
    Field("track_type", "TRACK"),
    Field("is_past", "PAST"),
    Field("committed", "COMMITTED", right=True),
    Field("failure", get=lambda track: None if track.failure is None else str(track.failure)),
)
EVENTS: Final = Listing(
    Field("time_ms", "TIME", cell=lambda time_ms: format_time(time_ms or None)),
    Field("kind", "KIND"),
    Field("group", "GROUP"),
    Field("client_address", "CLIENT"),
    Field("cost_ms", "MS", right=True),
    Field("success", "SUCCESS"),
    Field("reconsume_times", "RECONSUME TIMES", right=True),
    Field("detail", "DETAIL"),
    Field("broker_address", "BROKER", wide=True),
)


def full_value(message: ReceivedMessage) -> dict[str, Any]:
    """Return a message as a JSON object: the fields of ``tail --json`` and those for operators."""
    value = message_value(message)
    body_fields = [name for name in ("body", "body_base64", "corruption") if name in value]
    body: dict[str, Any] = {name: value.pop(name) for name in body_fields}
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


def message_table(message: ReceivedMessage) -> Table:
    """Return a table with the fields of one message."""
    body = _text(message)
    shown = (
        body if len(body) <= MAX_BODY_LENGTH else f"{body[:MAX_BODY_LENGTH]} … ({len(message.body):,} bytes)"
    )
    system = {name: text for name, text in message.properties.items() if name not in message.user_properties}
    rows: list[tuple[str, object]] = [
        ("topic", message.topic),
        ("message id", message.message_id),
        ("offset message id", message.offset_message_id),
        ("queue", f"{message.broker_name}/{message.queue_id}"),
        ("offset", message.queue_offset),
        ("stored", f"{format_time(message.store_time_ms)} by {message.store_host}"),
        ("born", f"{format_time(message.born_time_ms)} at {message.born_host}"),
        ("tags", message.tags),
        ("keys", message.keys),
        ("reconsume times", message.reconsume_times),
        ("properties", [f"{name}={text}" for name, text in message.user_properties.items()]),
        ("system properties", [f"{name}={text}" for name, text in system.items()]),
        ("size", f"{len(message.body):,} bytes"),
        ("body", shown),
    ]
    if message.corruption is not None:
        rows.append(("corruption", message.corruption))
    return Table([Column("FIELD"), Column("VALUE", multiline=True)], rows)


def messages_table(messages: Sequence[ReceivedMessage]) -> Table:
    """Return a table with a row per message."""
    columns = [
        Column("STORED"),
        Column("MESSAGE ID", whole=True),
        Column("OFFSET MESSAGE ID", wide=True, whole=True),
        Column("BROKER"),
        Column("QUEUE", right=True),
        Column("OFFSET", right=True),
        Column("TAGS"),
        Column("KEYS"),
        Column("PROPERTIES", wide=True),
        Column("BODY", detail=True),
    ]
    rows = [
        (
            format_time(one.store_time_ms),
            one.message_id,
            one.offset_message_id,
            one.broker_name,
            one.queue_id,
            one.queue_offset,
            one.tags,
            one.keys,
            [f"{name}={text}" for name, text in one.user_properties.items()],
            body_summary(one),
        )
        for one in messages
    ]
    return Table(columns, rows)


def body_summary(message: ReceivedMessage) -> str:
    """Return the start of a body on one line, for a row of a table."""
    text = " ".join(_text(message).split())
    return text if len(text) <= MAX_SUMMARY_LENGTH else f"{text[:MAX_SUMMARY_LENGTH]}…"


def _text(message: ReceivedMessage) -> str:
    try:
        text = message.body.decode()
    except UnicodeDecodeError:
        return repr(message.body[:MAX_BODY_LENGTH])
    return text if text.replace("\n", "").replace("\t", "").isprintable() else repr(text)
