from __future__ import annotations

import errno
import math
import random
import socket
import typing
from functools import partial
from typing import Any

import attrs
import pytest

from rocketmq_py import Client
from rocketmq_py.arguments import check_timeout
from rocketmq_py.client import ClientConfig, ClientOptions
from rocketmq_py.client.config import field_names, name_servers, zone_of
from rocketmq_py.client.identity import new_client_id, outgoing_address
from rocketmq_py.credentials import Credentials
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.producer import (
    BatchingConfig,
    BatchingProducer,
    Producer,
    ProducerConfig,
    ProducerOptions,
    TransactionConfig,
    TransactionProducer,
    TransactionState,
)
from rocketmq_py.remoting import SocksProxy


def test_the_address_comes_from_the_environment_when_none_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    assert name_servers(None, ClientConfig()) == ("127.0.0.1:9876",)
    monkeypatch.setenv("NAMESRV_ADDR", "a:1;b:2")
    assert name_servers(None, ClientConfig()) == ("a:1", "b:2")
    assert name_servers("c:3", ClientConfig()) == ("c:3",)
    monkeypatch.setenv("NAMESRV_ADDR", "")
    assert name_servers(None, ClientConfig()) == ("127.0.0.1:9876",)


def test_a_proxy_is_a_url_or_a_value() -> None:
    proxy = SocksProxy("proxy.example", 1080, "alice", "very-secret")
    url = "socks5://alice:very-secret@proxy.example:1080"
    config = ClientConfig(proxy=url)
    assert config == ClientConfig(proxy=proxy)
    assert config.proxy == proxy
    assert "very-secret" not in repr(config)
    assert Client("127.0.0.1:9876", config).config.proxy == proxy
    wrong: Any = 1080
    with pytest.raises(ConfigurationError, match="proxy must be a str, not int"):
        ClientConfig(proxy=wrong)


def test_the_own_address_is_that_on_the_way_to_the_proxy() -> None:
    # 203.0.113.1 has another way out than 127.0.0.1, if any.
    assert Client("203.0.113.1:9876", proxy="socks5://127.0.0.1:1080").host == "127.0.0.1"


@pytest.mark.parametrize(
    ("zone", "environment", "restricted_to"),
    [
        (None, {}, ""),
        ("zone-1", {}, "zone-1"),
        (None, {"ROCKETMQ_ZONE": "zone-1"}, ""),
        (None, {"ROCKETMQ_ZONE": "zone-1", "ROCKETMQ_ZONE_MODE": "True"}, "zone-1"),
        (None, {"ROCKETMQ_ZONE": "zone-1", "ROCKETMQ_ZONE_MODE": "1"}, ""),
        (None, {"ROCKETMQ_ZONE": " ", "ROCKETMQ_ZONE_MODE": "true"}, ""),
        ("zone-2", {"ROCKETMQ_ZONE": "zone-1", "ROCKETMQ_ZONE_MODE": "true"}, "zone-2"),
        ("", {"ROCKETMQ_ZONE": "zone-1", "ROCKETMQ_ZONE_MODE": "true"}, ""),
    ],
)
def test_the_zone_of_a_client(
    monkeypatch: pytest.MonkeyPatch, zone: str | None, environment: dict[str, str], restricted_to: str
) -> None:
    for name in ("ROCKETMQ_ZONE", "ROCKETMQ_ZONE_MODE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert zone_of(ClientConfig(zone=zone)) == restricted_to


def test_a_zone_with_control_characters_is_rejected() -> None:
    with pytest.raises(ConfigurationError, match=r"zone is .*; it must not contain control characters"):
        ClientConfig(zone="a\nb")


def test_an_empty_address_is_rejected_in_spite_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "a:1")
    with pytest.raises(ConfigurationError, match="no address given"):
        name_servers("", ClientConfig())


def accepted_type(config: type[attrs.AttrsInstance], name: str) -> Any:
    """Return the type that a field accepts: the type of its converter, if it has one."""
    converter = getattr(attrs.fields(config), name).converter
    if converter is None:
        return typing.get_type_hints(config)[name]
    return next(iter(typing.get_type_hints(converter).values()))


@pytest.mark.parametrize(
    ("options", "configs"),
    [(ClientOptions, [ClientConfig]), (ProducerOptions, [ClientConfig, ProducerConfig])],
)
def test_keyword_arguments_are_the_fields_of_the_configurations(
    options: type, configs: list[type[attrs.AttrsInstance]]
) -> None:
    named = typing.get_type_hints(options)
    fields = {
        name: accepted_type(config, name)
        for config in configs
        for name in field_names(config)
        if name != "group"
    }
    assert named == fields


def test_client_ids_differ() -> None:
    rng = random.Random(1)
    ids = {new_client_id("10.0.0.1", None, rng) for _ in range(100)}
    assert len(ids) == 100
    assert all(one.startswith("10.0.0.1@") for one in ids)
    assert "@orders-1#" in new_client_id("10.0.0.1", "orders-1", rng)


def test_the_clients_address_is_the_one_on_the_route_to_the_peer() -> None:
    assert outgoing_address("127.0.0.1:9876") == "127.0.0.1"
    assert outgoing_address("a-name-for-a-resolver:9876").count(".") == 3


@pytest.mark.usefixtures("ipv6")
def test_the_clients_address_on_the_route_to_an_ipv6_peer() -> None:
    assert outgoing_address("[::1]:9876") == "::1"
    assert outgoing_address("::1:9876") == "::1"


def test_a_client_for_an_ipv6_peer_works_without_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    make_socket = socket.socket

    def without_ipv6(family: socket.AddressFamily, kind: socket.SocketKind) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return make_socket(family, kind)

    monkeypatch.setattr(socket, "socket", without_ipv6)
    assert Client("::1:9876").host.count(".") == 3


async def _async_provider() -> Credentials:
    raise NotImplementedError


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"namespace": "a%b"}, "namespace 'a%b' may hold only letters"),
        ({"instance_name": "half \ud83d"}, "instance_name is .*; it must not contain control characters"),
        ({"unit_name": "two units"}, "unit_name is 'two units'; it must not contain spaces"),
        ({"unit_name": "a\n"}, "it must not contain spaces or control characters"),
        ({"name_server_refresh_interval": 0}, "name_server_refresh_interval is 0; it must be above 0"),
        ({"request_timeout": math.nan}, "request_timeout is nan; it must be above 0"),
        ({"request_timeout": "5"}, "request_timeout is '5'; it must be a number"),
        ({"connect_timeout": True}, "connect_timeout is True; it must be a number"),
        ({"heartbeat_interval": None}, "heartbeat_interval is None; it must be a number"),
        ({"max_buffered": 1.5}, "max_buffered is 1.5; it must be a whole number"),
        ({"max_buffered": math.inf}, "max_buffered is inf; it must be a whole number"),
        (
            {"credentials": ("key", "the-secret")},
            "credentials must be .* or a function .*, not tuple",
        ),
        ({"credentials": _async_provider}, "credentials is an async function; it must be a plain one"),
    ],
)
def test_invalid_client_options_are_rejected(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text) as caught:
        Client(**options)
    assert "the-secret" not in str(caught.value)


def test_the_client_id_ends_with_the_unit() -> None:
    assert Client(unit_name="blue").client_id.endswith("@blue")
    assert Client().client_id.count("@") == 1


def test_the_repr_of_settings_shows_no_secret() -> None:
    config = ClientConfig(credentials=Credentials("key", "the-secret", "the-token"))
    assert "the-secret" not in repr(config)
    assert "the-token" not in repr(config)
    provider = partial(Credentials, "key", "the-secret")
    assert "the-secret" not in repr(ClientConfig(credentials=provider))


def test_an_invalid_address_fails_in_the_constructor() -> None:
    with pytest.raises(ConfigurationError, match="is not host:port"):
        Client("localhost")
    for address in ("name..example:9876", "http://name..example/nsaddr"):
        with pytest.raises(ConfigurationError, match=r"'name\.\.example' is not a host name"):
            Client(address)


@pytest.mark.parametrize("timeout", [None, 0, 3, 0.5, math.inf])
def test_valid_timeouts(timeout: float | None) -> None:
    check_timeout(timeout)


@pytest.mark.parametrize(
    ("timeout", "text"),
    [
        (-1, "wait is -1; it must be 0 or more, in seconds"),
        (math.nan, "wait is nan; it must be 0 or more, in seconds"),
        ("5", "wait is '5'; it must be a number of seconds"),
        (True, "wait is True; it must be a number of seconds"),
    ],
)
def test_an_invalid_timeout_is_named(timeout: object, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        check_timeout(timeout, "wait")


def test_a_constructor_accepts_config_objects_and_their_fields() -> None:
    shared = ProducerConfig(retries=5, group="orders")
    producer = Producer("a:1", ClientConfig(request_timeout=1.0), shared, send_timeout=9.0, vip_channel=True)
    assert producer.config == ProducerConfig(retries=5, group="orders", send_timeout=9.0)
    assert producer.client.config == ClientConfig(request_timeout=1.0, vip_channel=True)
    assert Client("a:1", ClientConfig(unit_mode=True)).config.unit_mode
    batching = BatchingProducer("a:1", BatchingConfig(linger=1.0), shared, max_batch_messages=5)
    assert batching.config == BatchingConfig(linger=1.0, max_batch_messages=5)
    assert batching.producer.config == shared
    transactions = TransactionProducer(
        "a:1", TransactionConfig(check_concurrency=2), shared, check=lambda _: TransactionState.UNKNOWN
    )
    assert transactions.transaction_config.check_concurrency == 2
    assert transactions.config == shared


@pytest.mark.parametrize(
    ("configs", "options", "text"),
    [
        (
            [ProducerConfig(retries=5)],
            {"retries": 1},
            "retries is given twice: as a keyword and in the ProducerC",
        ),
        ([ProducerConfig(group="a")], {"group": "b"}, "group is given twice"),
        ([ClientConfig(vip_channel=True)], {"vip_channel": True}, "vip_channel is given twice"),
        ([ProducerConfig(), ProducerConfig()], {}, "ProducerConfig is given twice; pass one"),
        (
            [BatchingConfig()],
            {},
            "a configuration object must be one of ProducerConfig, ClientConfig, not a BatchingConfig",
        ),
        ([{"retries": 5}], {}, "a configuration object must be one of .* not a dict"),
        ([], {"retry": 5}, "there is no option 'retry'; did you mean 'retries'"),
    ],
)
def test_an_option_cannot_be_given_twice(configs: list[Any], options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        Producer("a:1", *configs, **options)


def test_a_transaction_producer_requires_a_group_and_a_check() -> None:
    with pytest.raises(ConfigurationError, match="group is missing"):
        TransactionProducer("a:1", check=lambda _: TransactionState.UNKNOWN)
    with pytest.raises(ConfigurationError, match=r"a function that accepts \(message\), not None"):
        TransactionProducer("a:1", group="g", check=None)  # type: ignore[arg-type]  # that is the test


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"trace": "no topic!"}, "topic 'no topic!' may hold only letters"),
        ({"trace": "SCHEDULE_TOPIC_XXXX"}, "a topic that clients cannot send to"),
        ({"trace": 5}, "trace is 5; it must be True, False or a topic"),
        ({"group": 5}, "group must be a str, not int"),
    ],
)
def test_invalid_producer_options_are_rejected(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        Producer("a:1", **options)


def test_a_client_must_be_an_address_or_a_client() -> None:
    with pytest.raises(ConfigurationError, match=r"client must be an address .*, not int of builtins"):
        Client(9876)  # type: ignore[arg-type]  # the fault that is tested


def test_options_of_a_shared_client_are_rejected() -> None:
    with pytest.raises(
        ConfigurationError, match="request_timeout cannot be set here, because the client is shared"
    ):
        Producer(Client("a:1"), request_timeout=1.0)


def test_a_machine_without_a_network_has_an_address_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(_: socket.socket, __: object) -> None:
        raise OSError(errno.ENETUNREACH, "Network is unreachable")

    monkeypatch.setattr(socket.socket, "connect", unreachable)
    assert outgoing_address("10.0.0.1:9876") == "127.0.0.1"
