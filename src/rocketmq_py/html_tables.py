"""Listings as tables of HTML, which Jupyter shows in notebooks instead of the ``repr``."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from inspect import getmembers
from typing import Any, Final

import attrs

from rocketmq_py.errors import RocketMQError
from rocketmq_py.message import ReceivedMessage

MOST_ROWS: Final = 200
"""Rows of a table. A line below it counts the others."""
_LONGEST_TEXT: Final = 120
"""Characters of a cell."""
_MESSAGE_COLUMNS: Final = (
    "topic", "broker_name", "queue_id", "queue_offset", "store_time", "message_id", "tags", "keys", "body",
)  # fmt: skip


def html_table(items: Sequence[object], failures: Mapping[str, RocketMQError]) -> str:
    """Return the items as a table of their attributes, followed by the errors of brokers.

    All texts are escaped: topics, keys and bodies may come from anyone who can send. Columns that are empty
    in all rows are left out.
    """
    shown = [_cells(item) for item in items[:MOST_ROWS]]
    names = [name for name in (shown[0] if shown else ()) if any(cells.get(name) for cells in shown)]
    head = "".join([f"<th>{escape(name)}</th>" for name in names])
    rows = [
        "<tr>" + "".join([f"<td>{escape(cells.get(name, ''))}</td>" for name in names]) + "</tr>"
        for cells in shown
    ]
    more = len(items) - len(shown)
    counted = f"<p>{len(items)} in all, {more} of them not shown</p>" if more else ""
    errors = [f"<li>{escape(name)}: {escape(str(error))}</li>" for name, error in failures.items()]
    failed = f"<p>Failed:</p><ul>{''.join(errors)}</ul>" if errors else ""
    if not items:
        return f"<p>none</p>{failed}"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>{counted}{failed}"


def _cells(item: object) -> dict[str, str]:
    """Return the texts of an item's attributes by name."""
    if isinstance(item, ReceivedMessage):
        time = datetime.fromtimestamp(item.store_time_ms / 1000, UTC)
        return {
            name: _text(time if name == "store_time" else getattr(item, name)) for name in _MESSAGE_COLUMNS
        }
    kind: type[Any] = type(item)
    fields = [field.name for field in attrs.fields(kind)]
    properties = [name for name, _ in getmembers(kind, lambda value: isinstance(value, property))]
    public = [name for name in (*fields, *properties) if not name.startswith("_")]
    return {name: _text(getattr(item, name)) for name in public}


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bytes):
        text = value.decode(errors="backslashreplace")
    elif isinstance(value, datetime):
        text = value.isoformat(sep=" ", timespec="milliseconds")
    elif isinstance(value, enum.Enum):
        text = str(value.value)
    elif isinstance(value, (tuple, list, frozenset)):
        text = ", ".join([_text(one) for one in value])
    elif isinstance(value, Mapping):
        text = ", ".join([f"{name}: {_text(one)}" for name, one in value.items()])
    else:
        text = str(value)
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"
