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

Function = TypeVar("Function", bound=Callable[..., Any])


WATCH = "rocketmq_py.watch"
"""In the meta of click's context: after how many seconds a command does it all again."""
BEFORE = "rocketmq_py.before"
"""There too: what is written before the next table, once."""
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
    """

    title: str
    right: bool = False
    wide: bool = False


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
    if form is Form.JSON:
        text = _json(value, indent=2) + "\n"
    elif form is Form.JSONL:
        lines = value if isinstance(value, list) else [value]
        text = "".join(_json(line, indent=0) + "\n" for line in lines)
    else:
        wide = form is Form.WIDE
        shown = [sheet for sheet in sheets if wide or not all(column.wide for column in sheet.columns)]
        text = "\n".join(_table(sheet, wide=wide) for sheet in shown)
    context = click.get_current_context(silent=True)
    before = context.meta.pop(BEFORE, "") if context is not None else ""
    click.echo(f"{before}{text}", nl=False)


def _json(value: Any, *, indent: int) -> str:
    import msgspec

    data = msgspec.json.encode(value)
    return (msgspec.json.format(data, indent=indent) if indent else data).decode()


def _table(sheet: Sheet, *, wide: bool) -> str:
    chosen = [index for index, column in enumerate(sheet.columns) if wide or not column.wide]
    columns = [sheet.columns[index] for index in chosen]
    rows = [[_cell(row[index]) for index in chosen] for row in sheet.rows]
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    # Who reads a pipe wants a line for each row, however long it is.
    width = shutil.get_terminal_size().columns if is_terminal else _ENDLESS
    titles = [column.title for column in columns]
    text = "".join(itertools.chain(titles, *rows, [sheet.title or ""]))
    if text.isascii() and text.isprintable():
        widths = [max(map(len, cells)) for cells in zip(titles, *rows, strict=True)]
        if max(sum(widths) + len(_GAP) * len(widths), len(sheet.title or "")) <= width:
            return plain_table(
                sheet.title, columns, rows, widths, bold=is_terminal and os.environ.get("TERM") not in _DUMB
            )
    return folded_table(sheet.title, columns, rows, width, is_terminal=is_terminal)


def plain_table(
    title: str | None,
    columns: Sequence[Column],
    rows: Iterable[Sequence[str]],
    widths: Sequence[int],
    *,
    bold: bool,
) -> str:
    """Return a table that fits, whose characters are all of one width: rich takes milliseconds for a row."""
    form = _GAP.join(
        f"{{:{'>' if column.right else '<'}{width}}}" for column, width in zip(columns, widths, strict=True)
    ).format
    head = [title] if title is not None else []
    head.append(form(*[column.title for column in columns]).rstrip())
    if bold:
        head = [f"\x1b[1m{line}\x1b[0m" for line in head]
    return "".join(f"{line}\n" for line in (*head, *[form(*row).rstrip() for row in rows]))


def folded_table(
    title: str | None,
    columns: Sequence[Column],
    rows: Iterable[Sequence[str]],
    width: int,
    *,
    is_terminal: bool,
) -> str:
    """Return a table whose cells may be of any characters, and are folded to fit the width."""
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
    lines = io.StringIO()
    console = Console(
        file=lines,
        force_terminal=is_terminal,
        no_color=bool(os.environ.get("NO_COLOR")),
        width=width,
    )
    if title is not None:
        console.print(Text(title, style="bold"))
    console.print(table)
    return "".join(line.rstrip() + "\n" for line in lines.getvalue().splitlines())


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
