"""Listings as tables, and the progress of reads, in notebooks."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from rocketmq_py import Admin, Message, Producer
from rocketmq_py.admin.message_values import MessageTrack, TrackListing, TrackType
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.errors import ProtocolError
from rocketmq_py.notebooks import MOST_ROWS, ReadProgress, html_table


def track(group: str) -> MessageTrack:
    return MessageTrack(group=group, track_type=TrackType.PULL)


def test_columns_that_are_empty_in_all_rows_are_left_out() -> None:
    table = html_table([track("billing"), track("mail")], {})
    assert re.findall("<th>(.*?)</th>", table) == ["group", "track_type", "is_past"]
    assert re.findall("<td>(.*?)</td>", table) == ["billing", "PULL", "False", "mail", "PULL", "False"]


def test_texts_of_others_are_escaped() -> None:
    table = html_table([track("<script>alert(1)</script>")], {"<b>": ProtocolError("<i>late</i>")})
    assert "<td>&lt;script&gt;alert(1)&lt;/script&gt;</td>" in table
    assert "<li>&lt;b&gt;: &lt;i&gt;late&lt;/i&gt;</li>" in table


def test_long_tables_end_with_the_number_of_rows() -> None:
    table = html_table([track(f"{number}") for number in range(MOST_ROWS + 2)], {})
    assert table.count("<tr>") == 1 + MOST_ROWS
    assert table.endswith(f"<p>{MOST_ROWS + 2} in all, 2 of them not shown</p>")


def test_an_empty_listing_still_shows_the_brokers_that_failed() -> None:
    listing = TrackListing(tracks=(), failures={"broker-b": ProtocolError("no answer")})
    assert listing._repr_html_() == "<p>none</p><p>Failed:</p><ul><li>broker-b: no answer</li></ul>"


@pytest.mark.usefixtures("jumping_clock")
async def test_found_messages_show_their_place_time_and_body() -> None:
    async with (
        EmbeddedBroker() as broker,
        Admin(broker.name_server_address) as admin,
        Producer(broker.name_server_address, group="p") as producer,
    ):
        sent = await producer.send(Message("Orders", b"\xff" + b"<b>" * 50, tags="paid", keys="o-1"))
        found = await admin.messages.find("Orders", key="o-1")
    names, cells = (re.findall(f"<{kind}>(.*?)</{kind}>", found._repr_html_()) for kind in ("th", "td"))
    row = dict(zip(names, cells, strict=True))
    assert (row["topic"], row["tags"], row["keys"]) == ("Orders", "paid", "o-1")
    assert row["message_id"] == sent.message_id
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}\+00:00", row["store_time"])
    assert row["body"].startswith(r"\xff&lt;b&gt;")
    assert row["body"].endswith("…")


@pytest.fixture
def shown_bars(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """The id of each bar that a kernel of Jupyter shows, with its HTML."""
    pytest.importorskip("IPython")
    bars: list[tuple[int, str]] = []
    monkeypatch.setattr("IPython.get_ipython", lambda: SimpleNamespace(kernel=object()))
    monkeypatch.setattr(
        "IPython.core.display_functions.display", lambda bar, **_: bars.append((id(bar), bar._repr_html_()))
    )
    return bars


@pytest.fixture
def set_seconds(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Set the time of the clock."""

    def set_to(seconds: float) -> None:
        monkeypatch.setattr(time, "monotonic", lambda: seconds)

    set_to(0)
    return set_to


def test_a_long_read_shows_a_bar(
    shown_bars: list[tuple[int, str]], set_seconds: Callable[[float], None]
) -> None:
    progress = ReadProgress(1000)
    progress.advance(100)
    assert not shown_bars
    set_seconds(1)
    for count in (1, 99, 5, 5, 790):
        progress.advance(count)
    assert len({bar for bar, _ in shown_bars}) == 1
    values = [re.search("max='1000' value='(.*?)'", html) for _, html in shown_bars]
    assert [value and value[1] for value in values] == ["0", "101", "200", "210", "1000"]


def test_a_short_read_and_a_program_without_a_notebook_show_nothing(
    shown_bars: list[tuple[int, str]], set_seconds: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    ReadProgress(10).advance(10)
    monkeypatch.setattr("IPython.get_ipython", SimpleNamespace)  # IPython in a terminal
    progress = ReadProgress(10)
    set_seconds(5)
    progress.advance(10)
    assert not shown_bars
