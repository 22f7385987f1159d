"""The settings on the page "Managed services" connect programs to the profiles of the services."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
import trio

from rocketmq_py import TLS, Client, Credentials, Message, ReceivedMessage
from rocketmq_py.address import split_address
from rocketmq_py.broker.profiles import PROFILES, Profile
from rocketmq_py.testing import TestBroker, run_broker
from tests.hostname_resolver import Resolver

pytestmark = pytest.mark.sockets
PAGE = Path(__file__).parents[2] / "docs" / "managed-services.md"
HEADINGS = {
    "alibaba-4": "Alibaba Cloud 4.x",
    "alibaba-5": "Alibaba Cloud 5.x",
    "alibaba-5-serverless": "Alibaba Cloud 5.x",
    "tencent-4": "Tencent Cloud 4.x",
    "huawei": "Huawei Cloud",
    "volcengine": "Volcengine",
}
"""The sections of the page by profile."""


def settings_on_page(heading: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the addresses and options of the clients in a section of the page."""
    section = PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found = []
    for code in re.findall(r"^```python\n(client = Client\(\n.*?^\)\n)", section, re.MULTILINE | re.DOTALL):

        def client(address: str, **options: Any) -> Client:
            found.append((address, options))
            return Client(address, **options)  # raises ConfigurationError for invalid settings

        exec(code, {"Client": client, "Credentials": Credentials, "TLS": TLS})
    return found


def connected_to(
    broker: TestBroker, profile: str, address: str, options: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Return the settings with the names of the page's instance replaced by those of the broker's.

    The host stays, so that the client derives from it whatever it derives from the service's host.
    """
    host, port = split_address(broker.name_server_address)
    actual = broker.client_options
    options = {**options, "credentials": actual["credentials"]}
    for name in options.keys() & {"namespace", "namespace_v2"}:
        options[name] = actual[name]
    first = address.removeprefix("http://").partition(";")[0]
    name, _ = split_address(first)
    rule = PROFILES[profile].namespace
    if rule is not None and "namespace" not in options:
        assert name.startswith("MQ_INST_")
        name = name.replace(name.partition(".")[0], rule.value)
    if not name[0].isdigit():
        Resolver.install().addresses[name] = [host]
        host = name
    scheme = "http://" if address.startswith("http://") else ""
    return f"{scheme}{host}:{port}", options


CLIENTS = [
    (profile, number)
    for profile, heading in HEADINGS.items()
    for number, (_, options) in enumerate(settings_on_page(heading))
    if ("namespace_v2" in options) == (PROFILES[profile].namespace_v2 is not None)
]


@pytest.mark.parametrize("heading", [*HEADINGS.values(), "Tencent Cloud 5.x"])
def test_each_section_has_settings(heading: str) -> None:
    assert settings_on_page(heading)


def test_each_profile_has_settings() -> None:
    assert {profile for profile, _ in CLIENTS} == {*PROFILES}


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_the_page_shows_the_texts_with_which_a_profile_refuses_requests(profile: Profile) -> None:
    page = PAGE.read_text()
    for rule in (profile.unsigned, profile.forged, profile.throttled):
        text = re.split(r": |rmq-cn-test ", rule.value)[-1].rstrip(".")  # without exceptions and instances
        assert text in page


@pytest.mark.parametrize(("profile", "number"), CLIENTS)
async def test_a_program_with_the_settings_of_the_page_connects(profile: str, number: int) -> None:
    received: list[ReceivedMessage] = []

    async def handle(message: ReceivedMessage) -> None:
        received.append(message)
        if len(received) == 4:
            consumer.stop()

    address, options = settings_on_page(HEADINGS[profile])[number]
    with run_broker(profile=profile, topics=["orders", "steps:2:FIFO", "reminders:1:DELAY"]) as broker:
        address, options = connected_to(broker, profile, address, options)
        async with Client(address, **options) as client:
            async with client.producer("GID_orders") as producer:
                await producer.send(Message("orders", b"order"))
                await producer.send(Message("steps", b"placed", sharding_key="order-7"))
                await producer.send(Message("steps", b"paid", sharding_key="order-7"))
                await producer.send(Message("reminders", b"reminder", delay=3600))
            assert broker.messages("reminders") == []
            async with client.push_consumer("GID_orders", consume_from="earliest", orderly=True) as consumer:
                for topic in ("orders", "steps", "reminders"):
                    consumer.subscribe(topic)
                broker.advance("1h")
                with trio.fail_after(20):
                    await consumer.run(handle)
    assert [one.body for one in received if one.topic == "steps"] == [b"placed", b"paid"]
    assert {one.topic for one in received} == {"orders", "steps", "reminders"}
    (reminder,) = [one for one in received if one.topic == "reminders"]
    assert reminder.store_time_ms > time.time() * 1000 + 3_000_000
