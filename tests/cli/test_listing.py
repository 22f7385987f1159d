"""Listings: JSON and tables from one declaration of their fields."""

from __future__ import annotations

import attrs

from rocketmq_py.cli.listing import Field, Listing
from rocketmq_py.cli.tables import Column


@attrs.frozen
class Place:
    name: str


@attrs.frozen
class Item:
    place: Place
    lag: int
    hidden: str = "h"


LISTING = Listing(
    Field("place", "PLACE", "place.name"),
    Field("lag", "LAG", cell=lambda lag: f"{lag}!", right=True),
    Field("hidden"),
    Field(None, "TWICE", lambda item: 2 * item.lag, wide=True),
)
ITEMS = [Item(Place("a"), 1), Item(Place("b"), 2)]


def test_json_has_the_values_of_all_named_fields() -> None:
    assert LISTING.values(ITEMS) == [
        {"place": "a", "lag": 1, "hidden": "h"},
        {"place": "b", "lag": 2, "hidden": "h"},
    ]


def test_a_table_has_the_cells_of_all_fields_with_a_title() -> None:
    table = LISTING.table(ITEMS, title="places")
    assert table.columns == [Column("PLACE"), Column("LAG", right=True), Column("TWICE", wide=True)]
    assert (table.rows, table.title) == ([("a", "1!", 2), ("b", "2!", 4)], "places")


def test_a_table_of_groups_begins_with_their_names() -> None:
    table = LISTING.table_by("GROUP", [("g", ITEMS[:1]), ("h", ITEMS[1:])])
    assert table.columns[0] == Column("GROUP")
    assert table.rows == [("g", "a", "1!", 2), ("h", "b", "2!", 4)]
