"""``lite``: lite topics, their subscribers and their lag; and ``send --lite-topic``."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rocketmq_py import Client
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.client import core_of
from tests.cli.conftest import Invoke, RunInThread


@asynccontextmanager
async def broker_with_a_subscriber() -> AsyncIterator[str]:
    """A broker with the parent topic Sessions, the group agents, and its member.

    Yields the address of the name server and the client id of the member.
    """
    async with EmbeddedBroker() as broker, Client(broker.name_server_address) as client:
        async with client.admin() as admin:
            await admin.topics.create("Sessions", queues=1, message_type="LITE")
            await admin.groups.create("agents", attributes={"lite.bind.topic": "Sessions"})
        async with client.lite_topic_consumer("agents", parent="Sessions") as consumer:
            await consumer.subscribe_lite("s1", "s2")
            yield f"{broker.name_server_address} {core_of(client).client_id}"


@pytest.fixture
def cluster(run_in_thread: RunInThread) -> tuple[str, str]:
    address, client_id = run_in_thread(broker_with_a_subscriber).split()
    return address, client_id


def test_lite_topics_are_described(invoke: Invoke, cluster: tuple[str, str]) -> None:
    address, client_id = cluster
    at = ("-n", address)
    sent = invoke("send", "-t", "Sessions", "hello {n}", "--template", "-c", "2", "--lite-topic", "s1", *at)
    assert (sent.code, sent.out) == (0, b"")
    parent = invoke("lite", "describe", "Sessions", *at)
    assert parent.out.decode().splitlines() == [
        "PARENT    EXPIRATION  GROUPS  BROKER    LITE TOPICS",
        "Sessions       never  agents  broker-a            1",
    ]
    described = json.loads(invoke("lite", "describe", "Sessions", "s1", "--json", *at).out)
    assert (described["lite_topic"], described["messages"]) == ("s1", 2)
    assert described["brokers"][0]["subscribers"] == {"agents": [client_id]}
    table = invoke("lite", "describe", "Sessions", "s1", *at).out.decode().splitlines()
    assert table[0].split() == ["LITE", "TOPIC", "BROKER", "HOME", "MIN", "MAX", "LAST", "MESSAGE"]
    assert table[-1].split() == ["agents", client_id, "broker-a"]
    without = invoke("lite", "describe", "Sessions", "s9", *at).out.decode().splitlines()
    assert len(without) == 2
    brokers = invoke("lite", "brokers", *at).out.decode().splitlines()
    assert brokers[1].split() == ["broker-a", "1", "2", "0", "1", "Sessions"]
    (broker,) = json.loads(invoke("lite", "brokers", "--json", *at).out)
    assert (broker["expirations"], broker["groups"]) == ({"Sessions": None}, {"Sessions": ["agents"]})
    subscribed = invoke("lite", "client", "Sessions", "agents", client_id, *at).out.decode().splitlines()
    assert subscribed[1].split()[:3] == [client_id, "broker-a", "2"]
    assert json.loads(invoke("lite", "client", "Sessions", "agents", client_id, "--json", *at).out)[
        "brokers"
    ][0]["lite_topics"] == ["s1", "s2"]
    assert json.loads(invoke("lite", "describe", "Sessions", "--json", *at).out)["lite_topics"] == {
        "broker-a": 1
    }


def test_the_lag_of_a_group_is_shown(invoke: Invoke, cluster: tuple[str, str]) -> None:
    address, client_id = cluster
    at = ("-n", address)
    assert invoke("send", "-t", "Sessions", "hello", "--lite-topic", "s1", *at).code == 0
    lag = invoke("lite", "lag", "agents", *at)
    assert lag.out.decode().splitlines()[-1].split() == ["total", "-", "0", "-"]  # it has never consumed any
    report = json.loads(invoke("lite", "lag", "agents", "s1", "--json", *at).out)
    assert (report["group"], report["parent"], report["lag"]) == ("agents", "Sessions", 0)
    offered = invoke("lite", "offer", "agents", "--client", client_id, *at)
    assert offered.out == b"group agents: offered on broker-a\n"


def test_wrong_lite_topics_are_refused_in_one_line(invoke: Invoke, cluster: tuple[str, str]) -> None:
    at = ("-n", cluster[0])
    wrong = invoke("lite", "describe", "Sessions", "a b", *at)
    assert (wrong.code, wrong.err.count("\n")) == (2, 1)
    assert "lite_topic is 'a b'; it must have 1 to 64 letters" in wrong.err
    unbound = invoke("lite", "lag", "others", *at)
    assert unbound.code == 1
    assert "is not a LITE group" in unbound.err
    both = invoke("send", "-t", "Sessions", "x", "--lite-topic", "s", "--queue", "broker-a/0", *at)
    assert (both.code, both.err) == (2, "rocketmq-py: give --queue or --lite-topic, not both\n")
    half = invoke("send", "-t", "Sessions", "x", "--lite-topic", "s", "--half", "commit", *at)
    assert half.code == 2
