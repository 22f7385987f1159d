"""The output of commands: tables for people, JSON for programs.

A :class:`Listing` declares each field once, from which the JSON and the table of a command follow.
"""

from __future__ import annotations

import datetime
import enum
import functools
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs
import click

from rocketmq_py.cli.console import BOLD, NORMAL, complain, escape, escape_line, is_terminal, write_parts
from rocketmq_py.cli.option_values import checked, parse_interval
from rocketmq_py.cli.table_layout import Column, lay_out

if TYPE_CHECKING:
    from rocketmq_py.message import MessageQueue

Function = TypeVar("Function", bound=Callable[..., Any])


WATCH_INTERVAL = "rocketmq_py.watch_interval"
"""Key in the meta of click's context: seconds between two runs of a command with ``--watch``."""
NEXT_PREFIX = "rocketmq_py.next_prefix"
"""Key in the meta of click's context: parts that ``--watch`` prints once, before the next result."""
_UNLIMITED_WIDTH = 10_000
_DUMB_TERMINALS = {"dumb", "unknown"}


class OutputFormat(enum.StrEnum):
    """How a result is printed. Options select all but the table."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    JSONL = "jsonl"


json_option: Final = click.option("-J", "--json", "as_json", is_flag=True, help="Print JSON.")
_FORMAT_OPTIONS: Final = (
    json_option,
    click.option("--jsonl", "as_jsonl", is_flag=True, help="Print a JSON object per line."),
    click.option("--wide", is_flag=True, help="Print a table with all columns."),
)


def output_option(function: Function) -> Function:
    """Add the options ``--json``, ``--jsonl`` and ``--wide`` to a command, which receives an ``output``."""

    @functools.wraps(function)
    def command(*args: Any, as_json: bool, as_jsonl: bool, wide: bool, **options: Any) -> Any:
        if as_json + as_jsonl + wide > 1:
            raise click.UsageError("give one of --json, --jsonl and --wide")
        output = (
            OutputFormat.JSON if as_json
            else OutputFormat.JSONL if as_jsonl
            else OutputFormat.WIDE if wide
            else OutputFormat.TABLE
        )  # fmt: skip
        return function(*args, output=output, **options)

    wrapped: Any = command
    for option in reversed(_FORMAT_OPTIONS):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[no-any-return]


def watch_option(function: Function) -> Function:
    """Add the option ``--watch`` to a command. :func:`admin_runner.run_admin` reads it."""

    def store(context: click.Context, parameter: click.Parameter, text: str | None) -> None:
        context.meta[WATCH_INTERVAL] = checked(parse_interval)(context, parameter, text)

    option = click.option(
        "--watch", metavar="TIME", expose_value=False, callback=store,
        help="Refresh every TIME until Ctrl-C: 2 (seconds), 500ms, 1m.",
    )  # fmt: skip
    return option(function)


@attrs.frozen
class Table:
    """A table.

    Attributes:
        columns: the columns.
        rows: the values of each row. None is shown as ``-``.
        title: a line above the table. None for no line.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[object]]
    title: str | None = None


def print_result(output: OutputFormat, value: Any, tables: Sequence[Table]) -> None:
    """Print a result in the chosen format: ``value`` as JSON, or ``tables``."""
    parts: list[str | bytes]
    if output is OutputFormat.JSON:
        parts = [_json(value, indent=2), "\n"]
    elif output is OutputFormat.JSONL:
        lines = value if isinstance(value, list) else [value]
        parts = [_json(line, indent=0) + "\n" for line in lines]
    else:
        wide = output is OutputFormat.WIDE
        shown = [table for table in tables if wide or not all(column.wide for column in table.columns)]
        parts = []
        for number, table in enumerate(shown):
            parts += ["\n"] if number else []
            parts += _table_parts(table, wide=wide)
    context = click.get_current_context(silent=True)
    prefix = context.meta.pop(NEXT_PREFIX, []) if context is not None else []
    write_parts(sys.stdout, [*prefix, *parts])


def print_change(output: OutputFormat, kind: str, name: str, change: str, brokers: Sequence[str]) -> None:
    """Print the brokers where a change was made: ``topic Orders: created on broker-a``.

    Args:
        output: the output format.
        kind: the kind of the resource: ``topic``, ``group`` or ``user``.
        name: the name of the resource.
        change: the change: ``created``.
        brokers: the names of the brokers.
    """
    if output in (OutputFormat.JSON, OutputFormat.JSONL):
        print_result(output, {kind: name, "brokers": list(brokers)}, [])
    else:
        write_parts(sys.stdout, [f"{kind} {name}: {change} on {', '.join(brokers)}\n"])


def print_creation(output: OutputFormat, kind: str, name: str, brokers: Sequence[str]) -> None:
    """Print the brokers where a resource was created, as :func:`print_change` does. There may be none."""
    if brokers or output in (OutputFormat.JSON, OutputFormat.JSONL):
        print_change(output, kind, name, "created", brokers)
    else:
        write_parts(sys.stdout, [f"{kind} {name}: exists already with these settings\n"])


def warn_of_unread_queues(queues: Iterable[MessageQueue]) -> None:
    """Warn of each topic and broker with queues that producers write, but consumers do not read."""
    by_broker: dict[tuple[str, str], list[int]] = {}
    for queue in queues:
        by_broker.setdefault((queue.topic, queue.broker_name), []).append(queue.queue_id)
    for (topic, broker), ids in by_broker.items():
        numbers = f"queue {ids[0]}" if len(ids) == 1 else f"queues {ids[0]} to {ids[-1]}"
        complain(
            f"topic {topic} has {ids[-1] + 1} write queues and {ids[0]} read queues on {broker}: consumers "
            f"do not read the messages in {numbers}. To take queues away, reduce the write queues, wait "
            "until the messages are consumed, then reduce the read queues"
        )


def _json(value: Any, *, indent: int) -> str:
    import msgspec

    data = msgspec.json.encode(value)
    return (msgspec.json.format(data, indent=indent) if indent else data).decode()


def _table_parts(table: Table, *, wide: bool) -> list[str | bytes]:
    """Return the parts of a table. On a terminal they are escaped, folded to its width, with a bold head."""
    visible = [index for index, column in enumerate(table.columns) if wide or not column.wide]
    columns = [table.columns[index] for index in visible]
    rows = [[_cell(row[index]) for index in visible] for row in table.rows]
    title = table.title
    on_terminal = is_terminal(sys.stdout)
    if on_terminal:
        # Escaping makes cells longer, so it comes before the widths are computed.
        title = title and escape_line(title)
        rows = [
            [
                escape(cell) if column.multiline else escape_line(cell)
                for column, cell in zip(columns, row, strict=True)
            ]
            for row in rows
        ]
    # Cells are not folded for a pipe, so that programs such as grep find a row in one line.
    width = shutil.get_terminal_size().columns if on_terminal else _UNLIMITED_WIDTH
    head, body = lay_out(title, columns, rows, width)
    bold = on_terminal and os.environ.get("TERM") not in _DUMB_TERMINALS
    parts: list[str | bytes] = []
    for line in head:
        parts += [BOLD, line, NORMAL, "\n"] if bold else [line, "\n"]
    return [*parts, *[f"{line}\n" for line in body]]


def _cell(value: object) -> str:
    """Return the text of a cell."""
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


def format_time(time_ms: int | None) -> str | None:
    """Return a time of epoch milliseconds in this machine's time zone. None stays None."""
    if time_ms is None:
        return None
    return datetime.datetime.fromtimestamp(time_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def attribute_cells(attributes: Mapping[str, str] | None) -> list[str]:
    """Return the attributes of a topic or group for a cell: ``name=value``."""
    return [f"{name}={value}" for name, value in (attributes or {}).items()]


# Listings


class Field:
    """A field of the items of a listing: a key of JSON objects, a column of tables, or both.

    Args:
        name: the key in JSON. None for a column only.
        title: the title of the column. None for JSON only.
        get: the attribute with the value, such as ``queue.broker_name``, or a function that returns the value
            of an item. The default is the attribute ``name``.
        cell: returns the text for a cell from the value. The default is the value.
        right: whether cells are aligned to the right, as numbers are.
        wide: whether only ``--wide`` shows the column.
        whole: whether a narrow terminal neither folds the cells nor leaves the column out, as for ids.
    """

    def __init__(
        self,
        name: str | None,
        title: str | None = None,
        get: str | Callable[[Any], object] | None = None,
        *,
        cell: Callable[[Any], object] | None = None,
        right: bool = False,
        wide: bool = False,
        whole: bool = False,
    ) -> None:
        self.name: Final = name
        self.title: Final = title
        self.right: Final = right
        self.wide: Final = wide
        self.whole: Final = whole
        self._cell = cell
        found = get or name or ""
        self.value: Callable[[Any], object] = attrgetter(found) if isinstance(found, str) else found

    def cell(self, item: Any) -> object:
        """Return the value of an item as the table shows it."""
        value = self.value(item)
        return value if self._cell is None else self._cell(value)


class Listing:
    """The fields of items that a command lists."""

    def __init__(self, *fields: Field) -> None:
        self._fields = fields
        self._named = [(field.name, field) for field in fields if field.name is not None]
        self._shown = [field for field in fields if field.title is not None]
        self._columns = [
            Column(field.title or "", field.right, field.wide, whole=field.whole) for field in self._shown
        ]

    def value(self, item: Any) -> dict[str, Any]:
        """Return the JSON object of an item."""
        return {name: field.value(item) for name, field in self._named}

    def values(self, items: Iterable[Any]) -> list[dict[str, Any]]:
        """Return the JSON objects of items."""
        return [self.value(item) for item in items]

    def fields(self, item: Any) -> list[tuple[str, object]]:
        """Return the names of all fields of an item in words, and their cells, for a table of one item."""
        return [
            ((field.title or (field.name or "").replace("_", " ")).lower(), field.cell(item))
            for field in self._fields
        ]

    def row(self, item: Any) -> tuple[object, ...]:
        """Return the cells of an item."""
        return tuple([field.cell(item) for field in self._shown])

    def table(self, items: Iterable[Any], title: str | None = None) -> Table:
        """Return a table with a row per item."""
        return Table(self._columns, [self.row(item) for item in items], title)

    def table_by(
        self,
        group: str,
        groups: Iterable[tuple[str, Iterable[Any]]],
        title: str | None = None,
        *,
        whole: bool = False,
    ) -> Table:
        """Return a table of the items of several groups. The first column has the name of each group.

        Args:
            group: the title of the first column.
            groups: the names of the groups, and their items.
            title: a line above the table. None for no line.
            whole: whether the names of groups are never folded.
        """
        rows = [(name, *self.row(item)) for name, items in groups for item in items]
        return Table([Column(group, whole=whole), *self._columns], rows, title)


MESSAGE_QUEUES: Final = Listing(Field("topic"), Field("broker_name"), Field("queue_id"))
"""Queues in JSON."""
