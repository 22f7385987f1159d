"""compose.yaml: its clients on the host reach every address that the name server gives them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rocketmq_py.client.settings import DEFAULT_ADDRESS

yaml = pytest.importorskip("yaml", reason="reads compose.yaml")
BROKERS = ("broker-a", "broker-b")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    text = (Path(__file__).resolve().parent.parent / "compose.yaml").read_text()
    return yaml.safe_load(text)  # type: ignore[no-any-return]


def settings(compose: dict[str, Any], broker: str) -> dict[str, str]:
    """Return the settings in the configuration file of a broker."""
    lines = compose["configs"][broker]["content"].splitlines()
    return dict(line.split(" = ", 1) for line in lines)


def published(compose: dict[str, Any]) -> list[str]:
    ports: list[str] = compose["services"]["namesrv"]["ports"]
    return ports


def test_there_are_a_name_server_two_brokers_a_proxy_and_a_dashboard(compose: dict[str, Any]) -> None:
    assert set(compose["services"]) == {"namesrv", *BROKERS, "proxy", "dashboard"}


def test_clients_find_the_name_server_at_the_default_address(compose: dict[str, Any]) -> None:
    host, port = DEFAULT_ADDRESS.split(":")
    assert f"{host}:{port}:{port}" in published(compose)


@pytest.mark.parametrize("broker", BROKERS)
def test_brokers_register_addresses_that_are_published(compose: dict[str, Any], broker: str) -> None:
    registered = settings(compose, broker)
    host, port = registered["brokerIP1"], int(registered["listenPort"])
    for each in (port, port - 2):
        assert f"{host}:{each}:{each}" in published(compose)
    assert registered["brokerName"] == broker


def test_services_share_the_network_in_which_these_addresses_are_valid(compose: dict[str, Any]) -> None:
    others = set(compose["services"]) - {"namesrv"}
    assert {compose["services"][name]["network_mode"] for name in others} == {"service:namesrv"}
    assert not any("ports" in compose["services"][name] for name in others)


@pytest.mark.parametrize("broker", BROKERS)
def test_each_broker_has_its_configuration_and_its_storage(compose: dict[str, Any], broker: str) -> None:
    service = compose["services"][broker]
    assert service["configs"] == [{"source": broker, "target": "/broker.conf"}]
    assert "-c /broker.conf" in service["command"]
    [volume] = service["volumes"]
    name, _, folder = volume.partition(":")
    assert name in compose["volumes"]
    assert folder == settings(compose, broker)["storePathRootDir"]


def test_storage_and_ports_are_not_shared(compose: dict[str, Any]) -> None:
    volumes = [compose["services"][broker]["volumes"][0] for broker in BROKERS]
    assert len(set(volumes)) == len(BROKERS)
    assert len(set(published(compose))) == len(published(compose))
