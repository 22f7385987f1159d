"""Options as users write them."""

from __future__ import annotations

import pickle
from collections.abc import Mapping

import pytest

from rocketmq_py.errors import ConfigurationError
from rocketmq_py.spark.options import (
    ANY_USE,
    SINKS,
    SOURCES,
    Given,
    Option,
    Use,
    boolean,
    duration,
    size,
    text,
    whole_number,
)

KNOWN = (
    Option("startingOffsets", text, SOURCES),
    Option("endingOffsets", text, frozenset({Use.READ})),
    Option("minPartitions", whole_number(1), SOURCES),
    Option("topic", text, SOURCES),
)
OTHERS = (Option("topic", text, SINKS), Option("sendTimeout", duration, SINKS))
ADDRESS: Mapping[str, str | None] = {"nameServer": "ns:9876"}


def given(options: Mapping[str, str | None], use: Use = Use.READ_STREAM) -> Given:
    return Given(options, use, KNOWN, OTHERS)


def mistakes(options: Mapping[str, str | None], use: Use = Use.READ_STREAM) -> str:
    found = given({**ADDRESS, **options}, use)
    found.connection()
    with pytest.raises(ConfigurationError) as raised:
        found.check()
    return str(raised.value)


@pytest.fixture(autouse=True)
def _no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)


def test_upper_and_lower_case_do_not_count() -> None:
    found = given({"STARTINGOFFSETS": "x", "minpartitions": " 7 ", "nameserver": "a:1;b:2"})
    connection = found.connection()
    found.check()
    assert found.values == {"starting_offsets": "x", "min_partitions": 7}
    assert connection is not None
    assert connection.name_server == "a:1;b:2"


def test_all_mistakes_are_named_at_once() -> None:
    said = mistakes(
        {"startingOffset": "x", "minPartitions": "none", "accessKey": "me", "connectTimeout": "0"}
    )
    assert said.splitlines() == [
        "rocketmq as a streaming source: 4 options are wrong:",
        "  - startingOffset: there is no such option; did you mean startingOffsets?",
        "  - minPartitions is 'none'; allowed is a whole number from 1",
        "  - connectTimeout is '0'; allowed is a duration above 0 such as 500ms, 30s, 15m, 2h or 1d",
        "  - accessKey and secretKey belong together, securityToken only with both",
    ]


@pytest.mark.parametrize(
    ("name", "use", "said"),
    [
        (
            "endingOffsets",
            Use.READ_STREAM,
            "endingOffsets is an option of a batch source; this is a streaming",
        ),
        ("startingOffsets", Use.WRITE, "startingOffsets is an option of a source; this is a batch sink"),
        ("sendTimeout", Use.READ, "sendTimeout is an option of a sink; this is a batch source"),
        ("endingOffsets", Use.WRITE_STREAM, "an option of a batch source; this is a streaming sink"),
    ],
)
def test_an_option_in_the_wrong_place_is_called_that(name: str, use: Use, said: str) -> None:
    assert said in mistakes({name: "x"}, use)


def test_a_name_that_both_ends_have_is_right_at_both() -> None:
    for use in ANY_USE & SOURCES:
        assert given({"topic": "x"}, use).mistakes == []


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("subscribe", "did you mean topic?"),
        ("kafka.bootstrap.servers", "did you mean nameServer?"),
        ("nameSrever", "did you mean nameServer?"),
        ("TOPCI", "did you mean topic?"),
    ],
)
def test_the_nearest_name_is_told(name: str, hint: str) -> None:
    assert f"{name}: there is no such option; {hint}" in mistakes({name: "x"})


def test_a_name_like_none_gets_no_hint() -> None:
    assert mistakes({"qqqq": "x"}).endswith("qqqq: there is no such option")


def test_a_hint_of_another_use_says_so() -> None:
    said = mistakes({"sendTimout": "3s"}, Use.READ)
    assert said.endswith("did you mean sendTimeout, an option of a sink?")
    said = mistakes({"endingOfsets": "x"})
    assert said.endswith("did you mean startingOffsets?")  # a right one, though endingOffsets is nearer


def test_what_spark_adds_is_let_through() -> None:
    found = given({"path": "x", "checkpointLocation": "/tmp/x", "queryName": "q", "topic": None, **ADDRESS})
    found.connection()
    found.check()
    assert found.values == {}


@pytest.mark.parametrize("name", ["secretKey", "securityToken", "tlsKeyPassword"])
def test_no_secret_is_ever_shown(name: str) -> None:
    options = {"accessKey": "me", "secretKey": "hush1", "tlsCertificateFile": "/c", name: "hush2", **ADDRESS}
    connection = given(options).connection()
    assert connection is not None
    assert "hush" not in repr(connection)
    assert "hush" not in repr(given({"secretKey": "hush"}).mistakes)
    assert f"{name} is not what is allowed: a text that is not empty" in mistakes({name: " "})


def test_a_password_in_the_address_is_not_shown() -> None:
    said = mistakes({"nameServer": "http://me:hush@host/x"})
    assert "nameServer: " in said
    assert "hush" not in said


@pytest.mark.parametrize("address", ["::1:9876", "[::1]:9876", "::1:9876;[2001:db8::1]:9876"])
def test_an_ipv6_address_is_accepted_with_and_without_brackets(address: str) -> None:
    connection = given({"nameServer": address}).connection()
    assert connection is not None
    assert connection.name_server == address


def test_the_address_comes_from_the_drivers_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "env:9876")
    connection = given({}).connection()
    assert connection is not None
    assert connection.name_server == "env:9876"


def test_a_missing_address_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    found = given({})
    assert found.connection() is None
    with pytest.raises(ConfigurationError, match="nameServer is missing, and there is no NAMESRV_ADDR"):
        found.check()
    monkeypatch.setenv("NAMESRV_ADDR", "nonsense")
    found = given({})
    assert found.connection() is None
    with pytest.raises(ConfigurationError, match=r"the driver's NAMESRV_ADDR is wrong: .*nonsense"):
        found.check()


def test_a_wrong_address_is_one_mistake() -> None:
    assert mistakes({"nameServer": "nonsense"}).count("nameServer") == 1


def test_a_connection_becomes_a_clients_options() -> None:
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
    connection = given(options).connection()
    assert connection is not None
    client = connection.client_options()
    assert client["namespace"] == "tenant"
    assert client["request_timeout"] == 0.5
    assert client["route_refresh_interval"] == 5.0
    assert client["vip_channel"] is True
    credentials, tls = client["credentials"], client["tls"]
    assert credentials is not None
    assert tls is not None
    assert (credentials.access_key, credentials.secret_key, credentials.security_token) == ("me", " s ", "t")
    assert (tls.ca_file, tls.verify) == ("/ca.pem", False)
    assert pickle.loads(pickle.dumps(connection)) == connection
    assert hash(pickle.loads(pickle.dumps(connection))) == hash(connection)


def test_tls_is_off_unless_something_asks_for_it() -> None:
    plain = given(dict(ADDRESS)).connection()
    asked = given({"useTls": "true", **ADDRESS}).connection()
    assert plain is not None
    assert asked is not None
    assert "tls" not in plain.client_options()
    assert asked.client_options()["tls"] is not None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"useTls": "false", "tlsServerName": "x"}, "useTls is false, and other options of TLS are given"),
        ({"tlsKeyFile": "/k"}, "tlsKeyFile needs tlsCertificateFile"),
        ({"securityToken": "t"}, "securityToken only with both"),
        ({"namespace": "a b"}, "namespace: namespace 'a b' may hold only letters"),
    ],
)
def test_options_of_the_connection_that_do_not_fit(options: dict[str, str | None], said: str) -> None:
    assert said in mistakes(options)


@pytest.mark.parametrize(
    ("written", "seconds"),
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
def test_durations_are_written_as_sparks(written: str, seconds: float) -> None:
    assert duration(written) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("written", "number"), [("65536", 65536), ("512k", 2**19), ("32MB", 2**25), ("1g", 2**30), ("7b", 7)]
)
def test_sizes_are_written_as_sparks(written: str, number: int) -> None:
    assert size(written) == number


@pytest.mark.parametrize("written", ["", "-1", "1.5s", "s", "0", "1 week", "٣s"])
def test_what_is_no_duration_or_size(written: str) -> None:
    for parse in (duration, size):
        with pytest.raises(ValueError, match="above 0"):
            parse(written)


@pytest.mark.parametrize("written", ["", "-1", "0", "11", "1.0", "٣", "+1", "1e1"])
def test_what_is_no_number_of_the_range(written: str) -> None:
    with pytest.raises(ValueError, match="1 to 10"):
        whole_number(1, 10)(written)


def test_booleans() -> None:
    assert [boolean(each) for each in ("true", "FALSE", " True ")] == [True, False, True]
    with pytest.raises(ValueError, match="true or false"):
        boolean("yes")
