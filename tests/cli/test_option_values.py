from __future__ import annotations

import re

import pytest

from rocketmq_py.cli.cluster_access import DEFAULT_ADDRESS
from rocketmq_py.cli.option_values import Offset, Position, check_addresses, parse_offset, parse_property
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
