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

from rocketmq_py.cli.cluster_access import DEFAULT_ADDRESS
from rocketmq_py.cli.option_values import (
    InputFile,
    Offset,
    Position,
    check_addresses,
    parse_offset,
    parse_property,
    read_file,
    read_offsets,
)
from rocketmq_py.client.config import DEFAULT_ADDRESS as CLIENT_DEFAULT
from rocketmq_py.consumer import StartPosition


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("beginning", Offset(Position.BEGINNING)),
        ("end", Offset(Position.END)),
        ("0", Offset(Position.OFFSET, 0)),
        ("17", Offset(Position.OFFSET, 17)),
        ("-10", Offset(Position.LAST, 10)),
        ("@1700000000000", Offset(Position.TIMESTAMP, 1_700_000_000_000)),
        ("@0", Offset(Position.TIMESTAMP, 0)),
    ],
)
def test_parse_offset(text: str, expected: Offset) -> None:
    assert parse_offset(text) == expected


def test_offsets_become_start_positions() -> None:
    starts = {
        "beginning": StartPosition.BEGINNING,
        "end": StartPosition.END,
        "17": StartPosition.offset(17),
        "-10": StartPosition.last(10),
        "@1700000000000": StartPosition.at(1_700_000_000_000),
    }
    assert {text: parse_offset(text).start() for text in starts} == starts


@pytest.mark.parametrize(
    "text", ["", "start", "-", "@", "-0", "--1", "@-1", "1.5", "+1", " 1", "1\n", "٣", "End", str(2**63)]
)
def test_invalid_offsets_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="none of beginning, end, N, -N, @TIMESTAMP_MS and"):
        parse_offset(text)


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
