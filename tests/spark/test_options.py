"""Parsing of options, and the options of the connection."""

from __future__ import annotations

import pickle
from collections.abc import Mapping

import pytest

from rocketmq_py import Client, Credentials
from rocketmq_py.client import core_of
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.remoting import TLS
from rocketmq_py.spark.options import (
    ALL_ROLES,
    SINKS,
    SOURCES,
    Option,
    ParsedOptions,
    Role,
    boolean,
    duration,
    size,
    text,
    whole_number,
)
from tests.spark import token_service

KNOWN = (
    Option("startingOffsets", text, SOURCES),
    Option("endingOffsets", text, frozenset({Role.BATCH_SOURCE})),
    Option("minPartitions", whole_number(1), SOURCES),
    Option("topic", text, SOURCES),
)
OTHERS = (Option("topic", text, SINKS), Option("sendTimeout", duration, SINKS))
ADDRESS: Mapping[str, str | None] = {"nameServer": "ns:9876"}


def parse(options: Mapping[str, str | None], role: Role = Role.STREAM_SOURCE) -> ParsedOptions:
    return ParsedOptions(options, role, KNOWN, OTHERS)


def error_text(options: Mapping[str, str | None], role: Role = Role.STREAM_SOURCE) -> str:
    """Return the text of the error that lists all mistakes."""
    parsed = parse({**ADDRESS, **options}, role)
    parsed.pop_connection()
    with pytest.raises(ConfigurationError) as raised:
        parsed.check()
    return str(raised.value)


@pytest.fixture(autouse=True)
def _no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)


def test_option_names_are_compared_without_case() -> None:
    parsed = parse({"STARTINGOFFSETS": "x", "minpartitions": " 7 ", "nameserver": "a:1;b:2"})
    connection = parsed.pop_connection()
    parsed.check()
    assert parsed.values == {"starting_offsets": "x", "min_partitions": 7}
    assert connection is not None
    assert connection.name_server == "a:1;b:2"


def test_all_mistakes_are_listed_at_once() -> None:
    text = error_text(
        {"startingOffset": "x", "minPartitions": "none", "accessKey": "me", "connectTimeout": "0"}
    )
    assert text.splitlines() == [
        "rocketmq streaming source: 4 invalid options:",
        "  - startingOffset: unknown option; did you mean startingOffsets?",
        "  - minPartitions: invalid value 'none'; allowed: a whole number from 1",
        "  - connectTimeout: invalid value '0'; allowed: a duration above 0 such as 500ms, 30s, 15m, 2h or "
        "1d",
        "  - accessKey and secretKey must be set together, and securityToken only with both of them",
    ]


@pytest.mark.parametrize(
    ("name", "role", "mistake"),
    [
        (
            "endingOffsets",
            Role.STREAM_SOURCE,
            "endingOffsets is an option of a batch source; this is a streaming",
        ),
        (
            "startingOffsets",
            Role.BATCH_SINK,
            "startingOffsets is an option of a source; this is a batch sink",
        ),
        ("sendTimeout", Role.BATCH_SOURCE, "sendTimeout is an option of a sink; this is a batch source"),
        ("endingOffsets", Role.STREAM_SINK, "an option of a batch source; this is a streaming sink"),
    ],
)
def test_misplaced_option_is_reported_with_its_owner(name: str, role: Role, mistake: str) -> None:
    assert mistake in error_text({name: "x"}, role)


def test_option_of_both_ends_is_accepted_by_both() -> None:
    for role in ALL_ROLES & SOURCES:
        assert parse({"topic": "x"}, role).mistakes == []


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("subscribe", "did you mean topic?"),
        ("kafka.bootstrap.servers", "did you mean nameServer?"),
        ("address", "did you mean nameServer?"),
        ("nameSrever", "did you mean nameServer?"),
        ("TOPCI", "did you mean topic?"),
    ],
)
def test_nearest_option_is_suggested(name: str, suggestion: str) -> None:
    assert f"{name}: unknown option; {suggestion}" in error_text({name: "x"})


def test_nothing_is_suggested_without_a_similar_option() -> None:
    assert error_text({"qqqq": "x"}).endswith("qqqq: unknown option")


def test_suggestion_prefers_options_of_the_role() -> None:
    text = error_text({"sendTimout": "3s"}, Role.BATCH_SOURCE)
    assert text.endswith("did you mean sendTimeout, an option of a sink?")
    text = error_text({"endingOfsets": "x"})
    assert text.endswith("did you mean startingOffsets?")  # endingOffsets is nearer, but not for a stream


def test_options_that_spark_adds_are_ignored() -> None:
    parsed = parse({"path": "x", "checkpointLocation": "/tmp/x", "queryName": "q", "topic": None, **ADDRESS})
    parsed.pop_connection()
    parsed.check()
    assert parsed.values == {}


@pytest.mark.parametrize("name", ["secretKey", "securityToken", "tlsKeyPassword"])
def test_secrets_are_never_shown(name: str) -> None:
    options = {"accessKey": "me", "secretKey": "hush1", "tlsCertificateFile": "/c", name: "hush2", **ADDRESS}
    connection = parse(options).pop_connection()
    assert connection is not None
    assert "hush" not in repr(connection)
    assert "hush" not in repr(parse({"secretKey": "hush"}).mistakes)
    assert f"{name}: invalid value; allowed: a text that is not empty" in error_text({name: " "})


def test_password_in_the_address_is_not_shown() -> None:
    text = error_text({"nameServer": "http://me:hush@host/x"})
    assert "nameServer: " in text
    assert "hush" not in text


@pytest.mark.parametrize("address", ["::1:9876", "[::1]:9876", "::1:9876;[2001:db8::1]:9876"])
def test_ipv6_address_is_accepted_with_and_without_brackets(address: str) -> None:
    connection = parse({"nameServer": address}).pop_connection()
    assert connection is not None
    assert connection.name_server == address


def test_address_defaults_to_the_drivers_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "env:9876")
    connection = parse({}).pop_connection()
    assert connection is not None
    assert connection.name_server == "env:9876"


def test_missing_address_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = parse({})
    assert parsed.pop_connection() is None
    with pytest.raises(ConfigurationError, match="nameServer is missing, and NAMESRV_ADDR is unset; set it"):
        parsed.check()
    monkeypatch.setenv("NAMESRV_ADDR", "nonsense")
    parsed = parse({})
    assert parsed.pop_connection() is None
    with pytest.raises(ConfigurationError, match=r"the driver's NAMESRV_ADDR is invalid: .*nonsense"):
        parsed.check()


def test_invalid_address_is_one_mistake() -> None:
    assert error_text({"nameServer": "nonsense"}).count("nameServer") == 1


def test_connection_options_become_client_options() -> None:
    options = {
        "namespace": "tenant",
        "accessKey": "me",
        "secretKey": " s ",
        "securityToken": "t",
        "tlsCaFile": "/ca.pem",
        "tlsVerify": "FALSE",
        "requestTimeout": "500ms",
        "routeRefreshInterval": "5s",
        "vipChannel": "true",
        **ADDRESS,
    }
    connection = parse(options).pop_connection()
    assert connection is not None
    client = connection.client_options()
    assert client["namespace"] == "tenant"
    assert client["request_timeout"] == 0.5
    assert client["route_refresh_interval"] == 5.0
    assert client["vip_channel"] is True
    credentials, tls = client["credentials"], client["tls"]
    assert isinstance(credentials, Credentials)
    assert isinstance(tls, TLS)
    assert (credentials.access_key, credentials.secret_key, credentials.security_token) == ("me", " s ", "t")
    assert (tls.ca_file, tls.verify) == ("/ca.pem", False)
    assert pickle.loads(pickle.dumps(connection)) == connection
    assert hash(pickle.loads(pickle.dumps(connection))) == hash(connection)


@pytest.mark.parametrize(
    ("options", "namespace", "namespace_v2"),
    [
        ({}, "MQ_INST_1_Ab", ""),
        ({"namespace": ""}, "", ""),
        ({"namespace": "own", "namespaceV2": " rmq-cn-1 "}, "own", "rmq-cn-1"),
    ],
)
def test_the_namespaces_of_an_endpoint(
    options: dict[str, str | None], namespace: str, namespace_v2: str
) -> None:
    endpoint = "http://MQ_INST_1_Ab.example.com:8080"
    connection = parse({"nameServer": f" {endpoint} ", **options}).pop_connection()
    assert connection is not None
    client = Client(connection.name_server, **connection.client_options())
    assert (core_of(client).namespace.name, client.settings.namespace_v2) == (namespace, namespace_v2)
    assert "use the TCP endpoint" in error_text({"nameServer": "http://1.mqrest.cn-x.example.com"})


def test_credentials_provider() -> None:
    name = "tests.spark.token_service:credentials"
    connection = parse({"credentialsProvider": f" {name} ", **ADDRESS}).pop_connection()
    assert connection is not None
    assert connection.client_options()["credentials"] is token_service.credentials
    text = error_text({"credentialsProvider": name, "accessKey": "a", "secretKey": "s"})
    assert "credentialsProvider excludes accessKey, secretKey and securityToken" in text


@pytest.mark.parametrize("name", ["module", "module:", ":function", "a b:c", "module:a.b"])
def test_invalid_name_of_a_credentials_provider(name: str) -> None:
    assert "credentialsProvider: invalid value" in error_text({"credentialsProvider": name})


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no_such_module:function", "cannot import no_such_module:function with .*: ModuleNotFoundError"),
        ("tests.spark.token_service:missing", "AttributeError"),
        ("tests.spark.token_service:not_a_function", "is not a function but str"),
    ],
)
def test_credentials_provider_that_cannot_be_imported(name: str, reason: str) -> None:
    connection = parse({"credentialsProvider": name, **ADDRESS}).pop_connection()
    assert connection is not None
    with pytest.raises(ConfigurationError, match=reason):
        connection.client_options()


def test_tls_is_off_by_default() -> None:
    default = parse(dict(ADDRESS)).pop_connection()
    with_tls = parse({"useTls": "true", **ADDRESS}).pop_connection()
    assert default is not None
    assert with_tls is not None
    assert "tls" not in default.client_options()
    assert with_tls.client_options()["tls"] is not None


@pytest.mark.parametrize(
    ("options", "mistake"),
    [
        ({"useTls": "false", "tlsServerName": "x"}, "useTls is false, but other TLS options are set"),
        ({"tlsKeyFile": "/k"}, "tlsKeyFile needs tlsCertificateFile"),
        ({"securityToken": "t"}, "securityToken only with both"),
        ({"namespace": "a b"}, "namespace: namespace 'a b' may hold only letters"),
    ],
)
def test_inconsistent_connection_options_are_rejected(options: dict[str, str | None], mistake: str) -> None:
    assert mistake in error_text(options)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("15m", 900),
        ("1500", 1.5),
        ("500ms", 0.5),
        ("2 h", 7200),
        ("1D", 86400),
        ("3min", 180),
        ("250us", 0.00025),
    ],
)
def test_durations_in_sparks_notation(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "number"), [("65536", 65536), ("512k", 2**19), ("32MB", 2**25), ("1g", 2**30), ("7b", 7)]
)
def test_sizes_in_sparks_notation(text: str, number: int) -> None:
    assert size(text) == number


@pytest.mark.parametrize("text", ["", "-1", "1.5s", "s", "0", "1 week", "٣s"])
def test_invalid_durations_and_sizes_are_rejected(text: str) -> None:
    for parser in (duration, size):
        with pytest.raises(ValueError, match="above 0"):
            parser(text)


@pytest.mark.parametrize("text", ["", "-1", "0", "11", "1.0", "٣", "+1", "1e1"])
def test_numbers_out_of_range_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="1 to 10"):
        whole_number(1, 10)(text)


def test_booleans_in_any_case() -> None:
    assert [boolean(each) for each in ("true", "FALSE", " True ")] == [True, False, True]
    with pytest.raises(ValueError, match="true or false"):
        boolean("yes")
