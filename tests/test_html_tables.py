"""Listings as tables in notebooks."""

from __future__ import annotations

import re

import pytest

from rocketmq_py import Admin, Message, Producer
from rocketmq_py.admin.message_values import MessageTrack, TrackListing, TrackType
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.errors import ProtocolError
from rocketmq_py.html_tables import MOST_ROWS, html_table


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
