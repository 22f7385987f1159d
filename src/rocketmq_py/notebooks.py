"""Output for Jupyter notebooks: listings as tables, and bars that show the progress of long reads."""

from __future__ import annotations

import enum
import sys
import time
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
_LONG: Final = 1.0
"""Seconds after which a read is long, so that a notebook shows its progress."""
_STEPS: Final = 100
"""The bar of a read moves at most this often."""


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


class ReadProgress:
    """The progress of a read: a bar in a notebook, if the read is long. Elsewhere nothing is shown.

    Args:
        total: the number of messages to read.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._read = 0
        self._shown = 0
        self._bar: Any = None
        self._shows_at = time.monotonic() + _LONG if _is_notebook() else None

    def advance(self, count: int) -> None:
        """Count messages that were read, and move the bar."""
        self._read += count
        if self._shows_at is None or time.monotonic() < self._shows_at:
            return
        if self._bar is None:
            from IPython.display import ProgressBar

            self._bar = ProgressBar(self._total)  # type: ignore[no-untyped-call]
            self._bar.display()
        if self._read == self._total or (self._read - self._shown) * _STEPS >= self._total:
            self._bar.progress = self._shown = self._read


def _is_notebook() -> bool:
    """Return whether a kernel of Jupyter runs this program. IPython in a terminal has none."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")
