from __future__ import annotations

import pytest

from rocketmq_py.errors import ConfigurationError
from rocketmq_py.remoting.address import (
    format_address,
    pack_address,
    parse_addresses,
    split_address,
    vip_address,
)


def test_several_addresses_in_order_each_once() -> None:
    assert parse_addresses("b:2; a:1,b:2 c:3") == ("b:2", "a:1", "c:3")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("localhost:9876", ("localhost", 9876)),
        ("[::1]:80", ("::1", 80)),
        ("10.0.0.1:65535", ("10.0.0.1", 65535)),
    ],
)
def test_split(text: str, parts: tuple[str, int]) -> None:
    assert split_address(text) == parts


@pytest.mark.parametrize(
    "text", ["", "localhost", "localhost:", ":9876", "a:b", "a:0", "a:65536", "::1:80", "a:-1", "a:\uff11"]
)
def test_what_is_no_address_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ConfigurationError, match="address"):
        parse_addresses(text)


def test_format_and_pack() -> None:
    assert format_address(("127.0.0.1", 80)) == "127.0.0.1:80"
    assert format_address(("::1", 80, 0, 0)) == "[::1]:80"
    assert pack_address("127.0.0.1:10911") == bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
    assert pack_address("[::1]:1") == bytes(15) + b"\x01" + bytes([0, 0, 0, 1])
    with pytest.raises(ConfigurationError, match="numeric"):
        pack_address("localhost:1")


@pytest.mark.parametrize("port", ["9" * 4301, "\u00b2", "065536", "-1", ""])
def test_a_port_that_is_no_number_is_no_address_either(port: str) -> None:
    for read in (split_address, vip_address):
        with pytest.raises(ConfigurationError, match="is not host:port") as caught:
            read(f"host:{port}")
        assert len(str(caught.value)) < 800


def test_the_vip_channel_of_an_ipv6_address() -> None:
    assert vip_address("[::1]:10911") == "[::1]:10909"
