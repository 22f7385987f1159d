"""Listings: one declaration for each field, from which the JSON and the table of a command follow."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, Final

from rocketmq_py.cli.tables import Column, Table


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
    ) -> None:
        self.name: Final = name
        self.title: Final = title
        self.right: Final = right
        self.wide: Final = wide
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
        self._named = [(field.name, field) for field in fields if field.name is not None]
        self._shown = [field for field in fields if field.title is not None]
        self._columns = [Column(field.title or "", field.right, field.wide) for field in self._shown]

    def value(self, item: Any) -> dict[str, Any]:
        """Return the JSON object of an item."""
        return {name: field.value(item) for name, field in self._named}

    def values(self, items: Iterable[Any]) -> list[dict[str, Any]]:
        """Return the JSON objects of items."""
        return [self.value(item) for item in items]

    def row(self, item: Any) -> tuple[object, ...]:
        """Return the cells of an item."""
        return tuple([field.cell(item) for field in self._shown])

    def table(self, items: Iterable[Any], title: str | None = None) -> Table:
        """Return a table with a row per item."""
        return Table(self._columns, [self.row(item) for item in items], title)

    def table_by(
        self, group: str, groups: Iterable[tuple[str, Iterable[Any]]], title: str | None = None
    ) -> Table:
        """Return a table of the items of several groups. The first column has the name of each group.

        Args:
            group: the title of the first column.
            groups: the names of the groups, and their items.
            title: a line above the table. None for no line.
        """
        rows = [(name, *self.row(item)) for name, items in groups for item in items]
        return Table([Column(group), *self._columns], rows, title)
