"""Tables: layout on pipes and terminals, and listings, which declare their fields.

Tables that fit are laid out without rich, with the same result.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import attrs
import pytest

from rocketmq_py.cli.client import CLIENTS
from rocketmq_py.cli.group_tables import MEMBERS, QUEUES
from rocketmq_py.cli.table_layout import Column, folded_table, plain_table
from rocketmq_py.cli.tables import (
    Field,
    Listing,
    OutputFormat,
    Table,
    print_result,
)

COLUMNS = [Column("TOPIC"), Column("QUEUES", right=True), Column("BROKERS", wide=True)]
ROWS = [("Orders", 12_345, ("broker-a", "broker-b")), ("%RETRY%g", 1, ()), ("a", None, "x" * 30)]


def printed(capsys: pytest.CaptureFixture[str], rows: Sequence[Sequence[object]], form: OutputFormat) -> str:
    print_result(form, [], [Table(COLUMNS, rows, title="All: 3")])
    return capsys.readouterr().out


def show_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make stdout a terminal of 40 columns."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")


def test_plain_and_folded_tables_are_equal() -> None:
    cells = [["Orders", "12,345", "-"], ["%RETRY%g", "1", "a, b"], ["a", "-", "x" * 30]]
    widths = [8, 6, 30]
    for title in (None, "All: 3", "T" * 70):
        assert plain_table(title, COLUMNS, cells, widths) == folded_table(title, COLUMNS, cells, 100)


@pytest.mark.parametrize("form", [OutputFormat.TABLE, OutputFormat.WIDE])
def test_a_pipe_gets_a_line_per_row(capsys: pytest.CaptureFixture[str], form: OutputFormat) -> None:
    lines = printed(capsys, ROWS, form).splitlines()
    assert lines[:2] == ["All: 3", "TOPIC     QUEUES" + ("  BROKERS" if form is OutputFormat.WIDE else "")]
    assert [line.split()[:2] for line in lines[2:]] == [["Orders", "12,345"], ["%RETRY%g", "1"], ["a", "-"]]


@pytest.mark.parametrize("listing", [CLIENTS, MEMBERS, QUEUES])
def test_client_ids_are_not_folded(listing: Listing) -> None:
    assert [column.title for column in listing.table([]).columns if column.whole] == ["CLIENT"]


def test_a_table_without_rows_has_its_head(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, [], OutputFormat.TABLE) == "All: 3\nTOPIC  QUEUES\n"


def test_a_terminal_shows_the_head_in_bold(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    show_on_a_terminal(monkeypatch)
    assert "\x1b[1mTOPIC     QUEUES\x1b[0m\nOrders" in printed(capsys, ROWS, OutputFormat.TABLE)
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b" not in printed(capsys, ROWS, OutputFormat.TABLE)


@pytest.mark.parametrize(
    ("row", "lines"), [(("a" * 60, 1, ""), 2), (("\u8a02\u55ae" * 20, 1, ""), 3), (("a\nb", 1, ""), 1)]
)
def test_long_cells_are_folded_on_a_terminal(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    row: tuple[object, ...],
    lines: int,
) -> None:
    show_on_a_terminal(monkeypatch)
    shown = printed(capsys, [row], OutputFormat.TABLE).splitlines()
    assert len(shown) == 2 + lines


@pytest.mark.parametrize(("multiline", "cell"), [(False, r"a\u001b[2J\nb\tc"), (True, r"a\u001b[2J")])
def test_a_terminal_shows_control_characters_of_cells_and_titles_escaped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, multiline: bool, cell: str
) -> None:
    show_on_a_terminal(monkeypatch)
    monkeypatch.setenv("TERM", "dumb")
    print_result(
        OutputFormat.TABLE,
        [],
        [Table([Column("N", multiline=multiline)], [("a\x1b[2J\nb\tc",)], title="T\x9b1m\n")],
    )
    title, _, row, *_ = capsys.readouterr().out.splitlines()
    assert (title, row) == (r"T\u009b1m\n", cell)


def test_a_pipe_gets_control_characters_unescaped(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, [("a\x1b[2Jb", 1, "")], OutputFormat.TABLE).splitlines()[-1] == "a\x1b[2Jb       1"


def test_a_narrow_terminal_keeps_the_first_column() -> None:
    columns = [Column("GROUP"), *[Column(f"NUMBER {index}", right=True) for index in range(5)]]
    head, body = folded_table(None, columns, [["billing", *["1,234,567"] * 5]], 30)
    assert head == ["GROUP     NUMBER 0   NUMBER 1"]
    assert body == [
        "billing  1,234,567  1,234,567",
        "no room for NUMBER 2, NUMBER 3, NUMBER 4: widen the terminal, or pass --json",
    ]


def test_a_narrow_terminal_folds_no_id_and_leaves_details_out_first() -> None:
    columns = [
        Column("STORED"),
        Column("ID", whole=True),
        Column("BODY", detail=True),
        Column("REASON"),
    ]
    rows = [["2026-11-22 23:20:03", "7F000001127D6E632B7A7127566A0000", "b" * 60, "r" * 8]]
    assert folded_table(None, columns, rows, 70)[1] == [
        "2026-11-22    7F000001127D6E632B7A7127566A0000  bbbbbbbbbbbb  rrrrrrrr",
        "23:20:03" + " " * 40 + "b" * 12,
        *[" " * 48 + "b" * 12] * 3,
    ]
    assert folded_table(None, columns, rows, 60)[1] == [
        "2026-11-22        7F000001127D6E632B7A7127566A0000  rrrrrrrr",
        "23:20:03",
        "no room for BODY: widen the terminal, or pass --json",
    ]
    (line, *_) = folded_table(None, columns, rows, 20)[1]
    assert line.endswith("7F000001127D6E632B7A7127566A0000")


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
