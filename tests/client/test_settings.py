from __future__ import annotations

import errno
import math
import random
import socket
from functools import partial
from typing import Any

import attrs
import pytest

from rocketmq_py import Admin, Client, PushConsumer, Reader, aio, blocking
from rocketmq_py.arguments import check_timeout, check_wait
from rocketmq_py.client import core_of
from rocketmq_py.client.discovery import Discovery
from rocketmq_py.client.identity import new_client_id, outgoing_address
from rocketmq_py.client.settings import (
    ClientSettings,
    name_servers,
    namespace_of,
    unencrypted_https,
    zone_of,
)
from rocketmq_py.credentials import Credentials
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.producer import (
    Producer,
    TransactionProducer,
    TransactionState,
)
from rocketmq_py.producer.settings import ProducerSettings
from rocketmq_py.producer.transaction_settings import TransactionSettings
from rocketmq_py.remoting import TLS, SocksProxy


def test_the_address_comes_from_the_environment_when_none_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    assert name_servers(None, ClientSettings()) == ("127.0.0.1:9876",)
    monkeypatch.setenv("NAMESRV_ADDR", "a:1;b:2")
    assert name_servers(None, ClientSettings()) == ("a:1", "b:2")
    assert name_servers("c:3", ClientSettings()) == ("c:3",)
    monkeypatch.setenv("NAMESRV_ADDR", "")
    assert name_servers(None, ClientSettings()) == ("127.0.0.1:9876",)


INSTANCE = "MQ_INST_1380_BbXb"
ENDPOINT = f"http://{INSTANCE}.cn-hangzhou.mq-internal.aliyuncs.com:8080"


@pytest.mark.parametrize("url", ["http://names.example:8080/nsaddr", "https://names.example/?a=b,c;d"])
def test_a_url_with_a_path_returns_the_name_servers(url: str) -> None:
    found = name_servers(f" {url} ", ClientSettings())
    assert isinstance(found, Discovery)
    assert found.url == url
    assert unencrypted_https(url, ClientSettings()) == frozenset()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("http://a:1/nsaddr;http://b:1/nsaddr", "must be the only address"),
        ("tcp://a:1", "'tcp://a:1' is neither host:port nor an http or https URL"),
        ("http://1.mqrest.cn-x.aliyuncs.com/nsaddr", r"an endpoint for HTTP clients \(mqrest\)"),
    ],
)
def test_a_url_that_cannot_return_name_servers_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        Client(text)


@pytest.mark.parametrize(
    ("address", "given", "namespace"),
    [
        (ENDPOINT, None, INSTANCE),
        (f" {ENDPOINT}/ ", None, INSTANCE),
        (ENDPOINT.removeprefix("http://"), None, INSTANCE),
        (ENDPOINT.replace("http", "https"), None, INSTANCE),
        (f"{ENDPOINT};{ENDPOINT.replace('8080', '80')}", None, INSTANCE),
        (f"10.0.0.1:9876;{ENDPOINT}", None, INSTANCE),
        (ENDPOINT, "tenant", "tenant"),
        (ENDPOINT, "", ""),
        # Java's pattern demands two parts of letters, digits and underscores.
        ("MQ_INST_1380.example.com:8080", None, ""),
        ("MQ_INST_1380_b-c.example.com:8080", None, ""),
        ("MQ_INST_1380_\u00fc.example.com:8080", None, ""),
        ("mq_inst_1380_b.example.com:8080", None, ""),
        ("x-MQ_INST_1380_b.example.com:8080", None, ""),
        ("MQ_INST_1380_b:8080", None, ""),
        (f"{ENDPOINT}/nsaddr", None, ""),
        ("10.0.0.1:9876", "tenant", "tenant"),
    ],
)
def test_the_namespace_of_a_client(address: str, given: str | None, namespace: str) -> None:
    assert namespace_of(address, ClientSettings(namespace=given)) == namespace
    assert core_of(Client(address, namespace=given)).namespace.name == namespace


def test_the_namespace_may_be_in_the_address_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", ENDPOINT)
    assert core_of(Client()).namespace.name == INSTANCE
    assert core_of(Producer(group="g")).namespace.name == INSTANCE


def test_addresses_of_several_instances_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="are of several instances, MQ_INST_1380_BbXb and MQ_INST_2"):
        Client(f"{ENDPOINT};MQ_INST_2_a.example.com:80")


def test_https_without_tls_is_known() -> None:
    assert unencrypted_https("https://a:1;b:2", ClientSettings()) == {"a:1"}
    assert unencrypted_https("https://a:1;b:2", ClientSettings(tls=TLS())) == frozenset()
    assert Client("https://a:1").settings.tls is None


def test_a_proxy_is_a_url_or_a_value() -> None:
    proxy = SocksProxy("proxy.example", 1080, "alice", "very-secret")
    url = "socks5://alice:very-secret@proxy.example:1080"
    config = ClientSettings(proxy=url)
    assert config == ClientSettings(proxy=proxy)
    assert config.proxy == proxy
    assert "very-secret" not in repr(config)
    assert Client("127.0.0.1:9876", proxy=url).settings.proxy == proxy
    wrong: Any = 1080
    with pytest.raises(ConfigurationError, match="proxy must be a str, not int"):
        ClientSettings(proxy=wrong)


def test_the_own_address_is_that_on_the_way_to_the_proxy() -> None:
    # 203.0.113.1 has another way out than 127.0.0.1, if any.
    assert core_of(Client("203.0.113.1:9876", proxy="socks5://127.0.0.1:1080")).host == "127.0.0.1"


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
    assert zone_of(ClientSettings(zone=zone)) == restricted_to


def test_a_zone_with_control_characters_is_rejected() -> None:
    with pytest.raises(ConfigurationError, match=r"zone is .*; it must not contain control characters"):
        ClientSettings(zone="a\nb")


def test_an_empty_address_is_rejected_in_spite_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "a:1")
    with pytest.raises(ConfigurationError, match="no address given"):
        name_servers("", ClientSettings())


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
    assert core_of(Client("::1:9876")).host.count(".") == 3


async def _async_provider() -> Credentials:
    raise NotImplementedError


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"namespace": "a%b"}, "namespace 'a%b' may hold only letters"),
        ({"namespace": 5}, "namespace must be a str, not int"),
        ({"namespace_v2": "a b"}, "namespace_v2 is 'a b'; it must not contain spaces"),
        ({"namespace_v2": None}, "namespace_v2 .*None"),
        ({"instance_name": "half \ud83d"}, "instance_name is .*; it must not contain control characters"),
        ({"unit_name": "two units"}, "unit_name is 'two units'; it must not contain spaces"),
        ({"unit_name": "a\n"}, "it must not contain spaces or control characters"),
        ({"route_refresh_interval": 0}, "route_refresh_interval is 0; it must be above 0"),
        ({"request_timeout": math.nan}, "request_timeout is nan; it must be above 0"),
        ({"request_timeout": "5"}, "request_timeout is '5'; it must be a number"),
        ({"connect_timeout": True}, "connect_timeout is True; it must be a number"),
        ({"heartbeat_interval": None}, "heartbeat_interval is None; it must be a number"),
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
    assert core_of(Client(unit_name="blue")).client_id.endswith("@blue")
    assert core_of(Client()).client_id.count("@") == 1


def test_the_repr_of_settings_shows_no_secret() -> None:
    config = ClientSettings(credentials=Credentials("key", "the-secret", "the-token"))
    assert "the-secret" not in repr(config)
    assert "the-token" not in repr(config)
    provider = partial(Credentials, "key", "the-secret")
    assert "the-secret" not in repr(ClientSettings(credentials=provider))


def test_an_invalid_address_fails_in_the_constructor() -> None:
    with pytest.raises(ConfigurationError, match="is not host:port"):
        Client("localhost")
    for address in ("name..example:9876", "http://name..example/nsaddr"):
        with pytest.raises(ConfigurationError, match=r"'name\.\.example' is not a host name"):
            Client(address)


@pytest.mark.parametrize("timeout", [None, 3, 0.5, math.inf])
def test_valid_timeouts(timeout: float | None) -> None:
    check_timeout(timeout)


@pytest.mark.parametrize(
    ("timeout", "text"),
    [
        (0, "timeout is 0; it must be above 0, in seconds"),
        (math.nan, "timeout is nan; it must be above 0, in seconds"),
        ("5", "timeout is '5'; it must be a number of seconds"),
    ],
)
def test_an_invalid_timeout_is_named(timeout: object, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        check_timeout(timeout)


@pytest.mark.parametrize("wait", [0, 3, 0.5, math.inf])
def test_valid_waits(wait: float) -> None:
    assert check_wait(wait) == wait


@pytest.mark.parametrize(
    ("wait", "text"),
    [
        (-1, "wait is -1; it must be 0 or more, in seconds"),
        (math.nan, "wait is nan; it must be 0 or more, in seconds"),
        ("5", "wait is '5'; it must be a number of seconds"),
        (True, "wait is True; it must be a number of seconds"),
        (None, "wait is None; it must be a number of seconds"),
    ],
)
def test_an_invalid_wait_is_named(wait: object, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        check_wait(wait)


def test_objects_show_their_settings() -> None:
    producer = Producer("a:1", retries=5, group="orders", send_timeout=9.0, request_timeout=1.0)
    assert producer.settings == ProducerSettings(retries=5, group="orders", send_timeout=9.0)
    assert core_of(producer).settings == ClientSettings(request_timeout=1.0)
    assert Client("a:1", unit_mode=True).settings.unit_mode
    batching = Producer("a:1", linger=1.0, max_batch_bytes=5000)
    assert batching.settings == ProducerSettings(linger=1.0, max_batch_bytes=5000)
    transactions = TransactionProducer(
        "a:1", group="g", on_error="rollback", retries=5, check=lambda _: TransactionState.UNKNOWN
    )
    assert transactions.settings == TransactionSettings(group="g", on_error="rollback", retries=5)


@pytest.mark.parametrize("kind", [Client, Reader, Admin, aio.Client, aio.Reader, aio.Admin])
def test_objects_without_settings_of_their_own_show_those_of_their_client(kind: Any) -> None:
    assert kind("a:1", request_timeout=1.5).settings == ClientSettings(request_timeout=1.5)


@pytest.mark.parametrize("kind", [blocking.Client, blocking.Reader, blocking.Admin])
def test_open_objects_without_settings_of_their_own_show_those_of_their_client(kind: Any) -> None:
    with kind("a:1", request_timeout=1.5) as opened:
        assert opened.settings == ClientSettings(request_timeout=1.5)


@pytest.mark.parametrize(
    "settings",
    [
        core_of(PushConsumer("a:1", group="g", credentials=Credentials("key", "the-secret"))).settings,
        Producer("a:1").settings,
    ],
)
def test_settings_cannot_be_changed_and_show_no_secret(settings: Any) -> None:
    assert "the-secret" not in repr(settings)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        settings.request_timeout = 5


def test_an_unknown_option_is_rejected_with_a_suggestion() -> None:
    with pytest.raises(ConfigurationError, match="there is no setting 'retry'; did you mean 'retries'"):
        Producer("a:1", retry=5)  # type: ignore[call-arg]  # that is the test
    with pytest.raises(ConfigurationError, match="group is missing; pass it as a keyword"):
        PushConsumer("a:1")


@pytest.mark.parametrize("kind", [Client, Producer, aio.Producer, blocking.Producer])
def test_settings_are_keyword_arguments_only(kind: Any) -> None:
    with pytest.raises(TypeError, match="positional argument"):
        kind("a:1", ClientSettings())


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
        ({"trace": 5}, "trace is 5; it must be True, False, 'cloud' or a topic"),
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


def test_tls_may_be_switched_on_and_off_by_a_flag() -> None:
    assert ClientSettings(tls=True).tls == TLS()
    assert ClientSettings(tls=False).tls is None
