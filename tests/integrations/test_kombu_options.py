"""URLs, options and names of the transport, and its error without kombu."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from kombu import Connection
from kombu.transport import TRANSPORT_ALIASES, get_transport_cls

import rocketmq_py.integrations.kombu
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.integrations.kombu.cluster import delay_level, due_time, remaining_delay
from rocketmq_py.integrations.kombu.options import TransportOptions, address_of, client_options_of


def test_importing_the_module_registers_the_scheme() -> None:
    assert TRANSPORT_ALIASES["rocketmq"] == "rocketmq_py.integrations.kombu:Transport"
    assert get_transport_cls("rocketmq") is rocketmq_py.integrations.kombu.Transport
    assert Connection("rocketmq://host").transport.driver_type == "rocketmq"


NAMED = """
from kombu import Connection
connection = Connection("rocketmq://host", transport="rocketmq_py.integrations.kombu:Transport")
print(connection.transport.driver_name)
"""


@pytest.mark.long
def test_the_transport_can_be_named_without_importing_it() -> None:
    """As Celery's setting broker_transport does."""
    assert subprocess.check_output([sys.executable, "-c", NAMED], text=True) == "rocketmq-py\n"


def test_without_kombu_the_error_names_the_extra() -> None:
    program = "import sys; sys.modules['kombu'] = None; import rocketmq_py.integrations.kombu"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.endswith(
        "ImportError: rocketmq_py.integrations.kombu needs kombu: install rocketmq-py[celery]\n"
    )


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("rocketmq://", None),
        ("rocketmq://host", "host:9876"),
        ("rocketmq://host:1234", "host:1234"),
        ("rocketmq://a,b:1234", "a:1234;b:1234"),
        ("rocketmq://[::1]:1234", "[::1]:1234"),
        ("rocketmq://http://MQ_INST_1_Ab.example.com:8080", "MQ_INST_1_Ab.example.com:8080"),
        ("rocketmq://key:secret@https://a,b:1/team", "a:9876;b:1"),
        ("rocketmq://http:1234/team", "http:1234"),
    ],
)
def test_addresses(url: str, address: str | None) -> None:
    connection = Connection(url)
    assert address_of(connection) == address


def client_options(url: str, **settings: Any) -> dict[str, Any]:
    connection = Connection(url, **settings)
    return dict(client_options_of(connection, TransportOptions.of(connection.transport_options)))


def test_the_url_has_credentials_and_a_namespace() -> None:
    found = client_options("rocketmq://key:secret@host/team", connect_timeout=2)
    credentials = found["credentials"]
    assert (credentials.access_key, credentials.secret_key) == ("key", "secret")
    assert found["namespace"] == "team"
    assert found["connect_timeout"] == 2.0
    assert "credentials" not in client_options("rocketmq://host")
    found = client_options("rocketmq://key:secret@http://host:8080/team/")
    assert (found["credentials"].secret_key, found["namespace"]) == ("secret", "team")
    with pytest.raises(ConfigurationError, match="needs both keys or none") as raised:
        client_options("rocketmq://key@host")
    assert "key@" not in str(raised.value)


def test_a_namespace_that_kombu_has_changed_to_lower_case_is_refused() -> None:
    url = "rocketmq://MQ_INST_1_Ab.example.com:8080"
    for address in (url, url.replace("//", "//other,")):
        with pytest.raises(
            ConfigurationError, match=r"give the endpoint with its scheme: rocketmq://KEY:SECRET@http://MQ_I"
        ):
            client_options(address)
    assert client_options(f"{url}/MQ_INST_1_Ab")["namespace"] == "MQ_INST_1_Ab"
    assert "namespace" not in client_options("rocketmq://key:secret@http://MQ_INST_1_Ab.example.com:8080/")
    none = {"client_options": {"namespace": ""}}
    assert client_options(url, transport_options=none)["namespace"] == ""


def test_client_options_are_passed_on() -> None:
    settings = {"client_options": {"request_timeout": 9.0}}
    assert client_options("rocketmq://host", transport_options=settings)["request_timeout"] == 9.0


def test_tls() -> None:
    assert "tls" not in client_options("rocketmq://host")
    assert client_options("rocketmq://host", ssl=True)["tls"].verify
    tls = client_options("rocketmq://host", ssl={"ca_certs": __file__, "cert_reqs": 0})["tls"]
    assert (tls.ca_file, tls.verify) == (__file__, False)
    with pytest.raises(ConfigurationError, match="ssl has no ca_file; it may have ca_certs"):
        client_options("rocketmq://host", ssl={"ca_file": "x"})
    with pytest.raises(ConfigurationError, match="True or a dict, not str"):
        client_options("rocketmq://host", ssl="yes")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"visibility_timeout": 0}, "visibility_timeout"),
        ({"topic_prefix": "a b"}, "topic_prefix is 'a b'; letters, digits, '-' and '_' are allowed"),
        ({"group_prefix": 3}, "group_prefix"),
        ({"create_topics": "yes"}, "create_topics"),
        ({"max_reconsume_times": -1}, "max_reconsume_times"),
        ({"client_options": 3}, "client_options must be a dict, not int"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        TransportOptions.of(options)


def test_options_of_kombu_itself_are_ignored() -> None:
    assert TransportOptions.of({"max_retries": 3, "visibility_timeout": 5}).visibility_timeout == 5


def test_names_of_topics_and_groups() -> None:
    plain, prefixed = TransportOptions(), TransportOptions(topic_prefix="test-", group_prefix="g-")
    assert plain.topic_of_queue("celery") == "celery"
    assert plain.group_of_queue("celery") == "kombu-celery"
    assert prefixed.topic_of_queue("celery") == "test-celery"
    assert prefixed.group_of_queue("celery") == "g-test-celery"
    assert prefixed.topic_of_exchange("news") == "test-kombu-exchange-news"
    assert prefixed.topic_of_exchange("") == "test-kombu-exchange-default"


def test_no_two_queues_share_a_topic() -> None:
    names = ["a.b", "a-b", "a/b", "ä", "x" * 200, "x" * 201, "x" * 90]
    options = TransportOptions(topic_prefix="t" * 20, group_prefix="g" * 10)
    assert len({options.topic_of_queue(name) for name in names}) == len(names)
    assert len({options.group_of_queue(name) for name in names}) == len(names)


NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "due"),
    [
        (None, None),
        ({}, None),
        ({"eta": None}, None),
        ({"eta": "soon"}, None),
        ({"eta": NOW.isoformat()}, NOW.timestamp()),
        ({"eta": NOW.astimezone(timezone(timedelta(hours=2))).isoformat()}, NOW.timestamp()),
        ({"eta": "2026-01-01T12:00:00"}, None),  # in a zone that only the worker knows
    ],
)
def test_the_time_of_a_task(headers: dict[str, Any] | None, due: float | None) -> None:
    assert due_time({"headers": headers}) == due


def test_a_task_that_is_nearly_due_is_not_delayed() -> None:
    payload, now = {"headers": {"eta": NOW.isoformat()}}, NOW.timestamp()
    assert remaining_delay(payload, now - 10) == 10
    assert remaining_delay(payload, now - 1) == 0
    assert remaining_delay(payload, now + 10) == 0
    assert remaining_delay({}, now) == 0


@pytest.mark.parametrize(
    ("seconds", "level"), [(1, 1), (4.9, 1), (5, 2), (7199, 17), (7200, 18), (1_000_000, 18)]
)
def test_delay_levels_are_never_too_long(seconds: float, level: int) -> None:
    assert delay_level(seconds) == level
