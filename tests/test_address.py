from __future__ import annotations

import pytest

from rocketmq_py.address import (
    announced_address,
    format_address,
    https_addresses,
    java_address,
    normal_address,
    pack_address,
    parse_addresses,
    split_address,
    unpack_address,
    vip_address,
)
from rocketmq_py.errors import ConfigurationError


def test_several_addresses_in_order_each_once() -> None:
    assert parse_addresses("b:2; a:1,b:2 c:3") == ("b:2", "a:1", "c:3")


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("http://a:1", ("a:1",)),
        (" HTTPS://a:1/ ", ("a:1",)),
        ("http://a:1;https://b:2/,c:3/ http://d:4//", ("a:1", "b:2", "c:3", "d:4")),
        ("http://[::1]:1", ("[::1]:1",)),
        (
            "http://MQ_INST_13_BbXb.cn-hangzhou.mq-internal.aliyuncs.com:8080",
            ("MQ_INST_13_BbXb.cn-hangzhou.mq-internal.aliyuncs.com:8080",),
        ),
    ],
)
def test_a_scheme_before_an_address_has_no_effect(text: str, addresses: tuple[str, ...]) -> None:
    assert parse_addresses(text) == addresses


def test_addresses_with_https_are_known() -> None:
    assert https_addresses("a:1;https://b:2/;HTTPS://c:3;http://d:4") == {"b:2", "c:3"}


@pytest.mark.parametrize("text", ["http://", "http://a", "https://a/", "http://a:1/path", "a:1/b"])
def test_an_endpoint_that_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is not host:port"):
        parse_addresses(text)


@pytest.mark.parametrize("text", ["http://1.mqrest.cn-x.aliyuncs.com", "http://1.MQREST.cn-x.example:80/"])
def test_an_endpoint_of_the_http_product_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"an endpoint for HTTP clients \(mqrest\); use the TCP "):
        parse_addresses(text)


def test_one_ipv6_address_in_several_forms_is_one() -> None:
    assert parse_addresses("::1:9876;[::1]:9876;0:0:0:0:0:0:0:1:9876") == ("[::1]:9876",)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("localhost:9876", ("localhost", 9876)),
        ("[::1]:80", ("::1", 80)),
        ("::1:80", ("::1", 80)),
        ("0:0:0:0:0:0:0:1:80", ("::1", 80)),
        ("[2001:DB8:0:0::7]:80", ("2001:db8::7", 80)),
        ("2001:db8::7:80", ("2001:db8::7", 80)),
        (":::80", ("::", 80)),
        ("fe80::1%eth0:80", ("fe80::1%eth0", 80)),
        ("[fe80::1%eth0]:80", ("fe80::1%eth0", 80)),
        ("10.0.0.1:65535", ("10.0.0.1", 65535)),
    ],
)
def test_the_port_follows_the_last_colon(text: str, parts: tuple[str, int]) -> None:
    assert split_address(text) == parts


@pytest.mark.parametrize(
    "text",
    ["", "localhost", "localhost:", ":9876", "a:b", "a:0", "a:65536", "a:-1", "a:\uff11", "::1", "[::1]"],
)
def test_a_text_without_host_or_port_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="address"):
        parse_addresses(text)


@pytest.mark.parametrize("host", ["a..b", ".a", "a" * 64, "h\u00fc" * 40, "\ud800"], ids=ascii)
def test_a_host_name_that_cannot_exist_is_refused(host: str) -> None:
    with pytest.raises(ConfigurationError, match="' is not a host name: "):
        parse_addresses(f"10.0.0.1:9876;{host}:9876")


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("2001:db8::9876", "2001:db8:"),
        ("broker:a:9876", "broker:a"),
        ("[broker]:9876", "[broker]"),
        ("[127.0.0.1]:9876", "[127.0.0.1]"),
        ("[::1:9876", "[::1"),
        ("::1]:9876", "::1]"),
        ("[[::1]]:9876", "[[::1]]"),
    ],
)
def test_a_host_with_colons_or_brackets_that_is_no_ipv6_address_is_refused(text: str, host: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        split_address(text)
    assert str(caught.value) == (
        f"address {text!r}: {host!r} is not an IPv6 address; write host:port or [IPv6 address]:port"
    )


@pytest.mark.parametrize("port", ["9" * 4301, "\u00b2", "065536", "-1", ""])
def test_a_port_that_is_not_a_number_is_refused(port: str) -> None:
    for read in (split_address, vip_address):
        with pytest.raises(ConfigurationError, match="is not host:port") as caught:
            read(f"host:{port}")
        assert len(str(caught.value)) < 800


def test_format_writes_brackets_around_an_ipv6_host() -> None:
    assert format_address(("127.0.0.1", 80)) == "127.0.0.1:80"
    assert format_address(("::1", 80, 0, 0)) == "[::1]:80"
    assert format_address(("0:0:0:0:0:0:0:1", 80)) == "[::1]:80"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.1:10911", "10.0.0.1:10911"),
        ("::1:10911", "[::1]:10911"),
        ("/[0:0:0:0:0:0:0:1]:10911", "[::1]:10911"),
        ("/0:0:0:0:0:0:0:1%0:10911", "[::1%0]:10911"),
        ("broker-a/10.0.0.1:10911", "10.0.0.1:10911"),
    ],
)
def test_an_address_of_a_peer_is_read_in_every_form_that_java_writes(text: str, address: str) -> None:
    assert normal_address(text) == address


@pytest.mark.parametrize("text", ["", "broker-a", "a:b", "::1"])
def test_a_text_of_a_peer_that_is_not_an_address_is_kept_for_the_error(text: str) -> None:
    assert normal_address(text) == text


def test_servers_announce_an_ipv6_host_without_brackets() -> None:
    assert announced_address("[::1]:10911") == "::1:10911"
    assert announced_address("10.0.0.1:10911") == "10.0.0.1:10911"


def test_servers_write_all_groups_of_the_ipv6_host_of_a_socket() -> None:
    assert java_address("[2001:db8::1]:4711") == "[2001:db8:0:0:0:0:0:1]:4711"
    assert java_address("[fe80::1%eth0]:4711") == "[fe80:0:0:0:0:0:0:1%eth0]:4711"
    assert java_address("10.0.0.1:4711") == "10.0.0.1:4711"


def test_pack_and_unpack() -> None:
    for address, packed in [
        ("127.0.0.1:10911", bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])),
        ("[::1]:1", bytes(15) + b"\x01" + bytes([0, 0, 0, 1])),
    ]:
        assert pack_address(address) == packed
        assert unpack_address(packed) == address
    assert pack_address("fe80::1%eth0:1") == pack_address("[fe80::1]:1")
    with pytest.raises(ConfigurationError, match="numeric"):
        pack_address("localhost:1")


def test_vip_address_is_two_ports_below() -> None:
    assert vip_address("10.0.0.1:10911") == "10.0.0.1:10909"
    assert vip_address("[::1]:10911") == "[::1]:10909"
    assert vip_address("::1:10911") == "[::1]:10909"
