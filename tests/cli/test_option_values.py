from __future__ import annotations

import errno
import io
import re
import sys
from collections.abc import Callable
from functools import partial
from typing import IO

import click
import pytest

from rocketmq_py.cli.clusters import DEFAULT_ADDRESS
from rocketmq_py.cli.option_values import (
    POSITIONS,
    InputFile,
    check_addresses,
    parse_future_time,
    parse_interval,
    parse_past_time,
    parse_position,
    parse_property,
    read_file,
    read_offsets,
)
from rocketmq_py.client.settings import DEFAULT_ADDRESS as CLIENT_DEFAULT
from rocketmq_py.position import Position


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", Position.earliest),
        ("Latest", Position.latest),
        ("0", Position.offset(0)),
        ("17", Position.offset(17)),
        ("-10", Position.last(10)),
        ("@1700000000000", Position.time(1_700_000_000_000)),
        ("@0", Position.time(0)),
    ],
)
def test_parse_position(text: str, expected: Position) -> None:
    assert parse_position(text) == expected


@pytest.mark.parametrize(
    "text", ["", "start", "-", "@", "-0", "--1", "@-1", "1.5", "+1", " 1", "1\n", "٣", "end", str(2**63)]
)
def test_invalid_positions_are_rejected(text: str) -> None:
    with pytest.raises(
        ValueError,
        match=re.escape(f"{text!r} is none of {POSITIONS}"),
    ):
        parse_position(text)


@pytest.mark.parametrize(("text", "seconds"), [("10m", 600), ("90", 90), ("1.5h", 5400), ("250ms", 0.25)])
def test_durations_are_times_before_or_after_now(
    monkeypatch: pytest.MonkeyPatch, text: str, seconds: float
) -> None:
    monkeypatch.setattr("time.time", lambda: 1_700_000_000.0)
    assert parse_past_time(text) == (1_700_000_000 - seconds) * 1000
    assert parse_future_time(text) == (1_700_000_000 + seconds) * 1000


@pytest.mark.parametrize(
    "text", ["2023-11-14T22:13:20.5+00:00", "2023-11-14 23:13:20.5+01:00", "@1700000000500"]
)
def test_every_command_takes_the_same_times(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    time_ms = 1_700_000_000_500
    assert parse_past_time(text) == parse_future_time(text) == time_ms
    assert parse_position(text) == Position.time(time_ms)
    monkeypatch.setattr("time.time", lambda: 1_700_000_060.5)
    assert parse_position("1m") == Position.time(time_ms)


def test_a_number_is_an_offset_where_offsets_are_possible() -> None:
    assert parse_position("20260131") == Position.offset(20260131)
    for wrong in ("1.5", "-1.5", "+7"):
        with pytest.raises(ValueError, match="none of"):
            parse_position(wrong)


def test_intervals_are_durations_of_at_least_a_tenth_of_a_second() -> None:
    assert [parse_interval(text) for text in ("2", "0.1", "500ms", "1m")] == [2, 0.1, 0.5, 60]
    with pytest.raises(ValueError, match=r"'99ms' is below 0\.1 s"):
        parse_interval("99ms")


def test_parse_property() -> None:
    assert parse_property("name=value") == ("name", "value")
    assert parse_property("name=a=b") == ("name", "a=b")
    assert parse_property("name=") == ("name", "")
    for wrong in ("name", "=value", ""):
        with pytest.raises(ValueError, match="is not NAME=VALUE"):
            parse_property(wrong)


def test_name_servers_are_addresses_or_a_url() -> None:
    for right in ("a:1", "a:1;b:2", "http://10.0.0.1:8080/rocketmq/nsaddr"):
        assert check_addresses(right) == right
    for wrong in ("a", "ftp://10.0.0.1/x", "http://"):
        with pytest.raises(ValueError, match=re.escape(wrong)):
            check_addresses(wrong)


def test_the_default_address_equals_the_clients() -> None:
    assert DEFAULT_ADDRESS == CLIENT_DEFAULT


def test_a_closed_standard_input_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(click.BadParameter, match="standard input is closed"):
        InputFile().convert("-", None, None)


def test_a_file_that_cannot_be_read_is_a_usage_error_with_its_name() -> None:
    class Unreadable(io.BytesIO):
        name = "offsets.jsonl"

        def read(self, _: int | None = -1) -> bytes:
            raise OSError(errno.EIO, "Input/output error")

    reads: tuple[Callable[[IO[bytes]], object], ...] = (read_file, partial(read_offsets, topic="T"))
    for read in reads:
        with pytest.raises(click.UsageError, match=r"cannot read offsets\.jsonl: Input/output error"):
            read(Unreadable())
