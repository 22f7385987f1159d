"""What commands print: tables for people, JSON for programs."""

from __future__ import annotations

import datetime
import enum
import io
import itertools
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import attrs
import click

from rocketmq_py.cli.console import BOLD, NORMAL, escape, escape_line, is_terminal, write_parts

Function = TypeVar("Function", bound=Callable[..., Any])


WATCH = "rocketmq_py.watch"
"""In the meta of click's context: after how many seconds a command does it all again."""
BEFORE = "rocketmq_py.before"
"""There too: the parts that are printed before the next table, once."""
_GAP = "  "
_ENDLESS = 10_000
_DUMB = {"dumb", "unknown"}


class Form(enum.StrEnum):
    """How a command prints what it found."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    JSONL = "jsonl"


def takes_form(function: Function) -> Function:
    """Give a command the option ``-o``; it gets it as ``form``."""
    option = click.option(
        "-o", "form", type=click.Choice([form.value for form in Form]), default=Form.TABLE.value,
        show_default=True, callback=lambda _, __, value: Form(value),
        help="Tables (wide ones have all columns), or JSON: one document, or a line for each.",
    )  # fmt: skip
    return option(function)


def takes_watch(function: Function) -> Function:
    """Give a command the option ``--watch``, which :func:`administering.administer` reads."""

    def keep(context: click.Context, _: click.Parameter, seconds: float | None) -> None:
        context.meta[WATCH] = seconds

    option = click.option(
        "--watch", metavar="SECONDS", type=click.FloatRange(min=0.1), expose_value=False, callback=keep,
        help="Ask and print again and again, so many seconds later, until Ctrl-C.",
    )  # fmt: skip
    return option(function)


@attrs.frozen
class Column:
    """A column of a table.

    Attributes:
        title: what stands above it.
        right: whether it holds numbers.
        wide: whether it is left out of a plain table.
        lines: whether its cells may be of several lines, also on a terminal.
    """

    title: str
    right: bool = False
    wide: bool = False
    lines: bool = False


@attrs.frozen
class Sheet:
    """A table.

    Attributes:
        columns: its columns.
        rows: their values; None is shown as ``-``.
        title: what stands above it, if anything.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[object]]
    title: str | None = None


def show(form: Form, value: Any, sheets: Sequence[Sheet]) -> None:
    """Print ``value`` as JSON, or the tables that show the same."""
    parts: list[str | bytes]
    if form is Form.JSON:
        parts = [_json(value, indent=2), "\n"]
    elif form is Form.JSONL:
        lines = value if isinstance(value, list) else [value]
        parts = [_json(line, indent=0) + "\n" for line in lines]
    else:
        wide = form is Form.WIDE
        shown = [sheet for sheet in sheets if wide or not all(column.wide for column in sheet.columns)]
        parts = []
        for number, sheet in enumerate(shown):
            parts += ["\n"] if number else []
            parts += _parts(sheet, wide=wide)
    context = click.get_current_context(silent=True)
    before = context.meta.pop(BEFORE, []) if context is not None else []
    write_parts(sys.stdout, [*before, *parts])


def _json(value: Any, *, indent: int) -> str:
    import msgspec

    data = msgspec.json.encode(value)
    return (msgspec.json.format(data, indent=indent) if indent else data).decode()


def _parts(sheet: Sheet, *, wide: bool) -> list[str | bytes]:
    """Return a table as it is printed: on a terminal escaped, with a bold head and folded to the width."""
    chosen = [index for index, column in enumerate(sheet.columns) if wide or not column.wide]
    columns = [sheet.columns[index] for index in chosen]
    rows = [[_cell(row[index]) for index in chosen] for row in sheet.rows]
    title = sheet.title
    on_terminal = is_terminal(sys.stdout)
    if on_terminal:
        # Escaped before the widths are known. Only a column of texts may have cells of several lines.
        title = title and escape_line(title)
        rows = [
            [
                escape(cell) if column.lines else escape_line(cell)
                for column, cell in zip(columns, row, strict=True)
            ]
            for row in rows
        ]
    # A pipe gets one line a row, however long it is.
    width = shutil.get_terminal_size().columns if on_terminal else _ENDLESS
    head, body = lay_out(title, columns, rows, width)
    bold = on_terminal and os.environ.get("TERM") not in _DUMB
    parts: list[str | bytes] = []
    for line in head:
        parts += [BOLD, line, NORMAL, "\n"] if bold else [line, "\n"]
    return [*parts, *[f"{line}\n" for line in body]]


def lay_out(
    title: str | None, columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int
) -> tuple[list[str], list[str]]:
    """Return the lines of a table's head and of its body, at most ``width`` columns wide."""
    titles = [column.title for column in columns]
    text = "".join(itertools.chain(titles, *rows, [title or ""]))
    if text.isascii() and text.isprintable():
        widths = [max(map(len, cells)) for cells in zip(titles, *rows, strict=True)]
        if max(sum(widths) + len(_GAP) * len(widths), len(title or "")) <= width:
            return plain_table(title, columns, rows, widths)
    return folded_table(title, columns, rows, width)


def plain_table(
    title: str | None, columns: Sequence[Column], rows: Iterable[Sequence[str]], widths: Sequence[int]
) -> tuple[list[str], list[str]]:
    """Return a table of ASCII characters that fits. Without rich, which takes milliseconds for a row."""
    form = _GAP.join(
        f"{{:{'>' if column.right else '<'}{width}}}" for column, width in zip(columns, widths, strict=True)
    ).format
    head = [] if title is None else [title]
    head.append(form(*[column.title for column in columns]).rstrip())
    return head, [form(*row).rstrip() for row in rows]


def folded_table(
    title: str | None, columns: Sequence[Column], rows: Iterable[Sequence[str]], width: int
) -> tuple[list[str], list[str]]:
    """Return a table whose cells may hold any characters, and are folded to fit the width."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, len(_GAP), 0, 0))
    for column in columns:
        table.add_column(
            column.title, justify="right" if column.right else "left", overflow="fold", no_wrap=column.right
        )
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console(file=io.StringIO(), width=width)
    head = [] if title is None else [line.plain for line in Text(title).wrap(console, width)]
    body: list[str] = []
    for segments in console.render_lines(table, pad=False):
        line = "".join(segment.text for segment in segments).rstrip()
        is_head = any(segment.style is not None and segment.style.bold for segment in segments)
        (head if is_head else body).append(line)
    return head, body


def _cell(value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, tuple | list):
        return ", ".join(str(one) for one in value) or "-"
    return str(value)


def at(time_ms: int | None) -> str | None:
    """Return a time of epoch milliseconds as people here write it."""
    if time_ms is None:
        return None
    return datetime.datetime.fromtimestamp(time_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S")
