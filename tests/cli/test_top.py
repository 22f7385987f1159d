"""``top``."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import trio

from rocketmq_py import Client, Message
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.cli.top import ActivityMonitor
from rocketmq_py.codes import ResponseCode
from rocketmq_py.testing import run_broker
from tests.cli.conftest import Invoke

REQUEST_CODE_NOT_SUPPORTED = ResponseCode.REQUEST_CODE_NOT_SUPPORTED


async def prepare(address: str) -> None:
    """Create topics Orders, with five messages, and Quiet, and group billing with a lag of five."""
    async with Client(address) as client:
        async with client.admin() as admin:
            for topic in ("Orders", "Quiet"):
                await admin.topics.create(topic, queues=2)
        async with client.producer("senders") as producer:
            for _ in range(5):
                await producer.send(Message("Orders", b"x"))
        async with client.reader() as reader:
            await reader.commit("billing", dict.fromkeys(await reader.offsets("Orders"), 0))


@pytest.mark.usefixtures("jumping_clock")
async def test_rates_are_computed_between_two_samples() -> None:
    async with EmbeddedBroker() as broker:
        await prepare(broker.name_server_address)
        async with (
            Client(broker.name_server_address) as client,
            client.admin() as admin,
            client.producer("senders") as producer,
        ):
            monitor = ActivityMonitor()
            first = await monitor.sample(admin)
            assert [(one.topic, one.rate, one.messages) for one in first.topics] == [
                ("Orders", None, 5),
                ("Quiet", None, 0),
            ]
            assert [(one.group, one.lag) for one in first.groups] == [("billing", 5)]
            started = trio.current_time()
            for _ in range(20):
                await producer.send(Message("Quiet", b"x"))
            await trio.sleep(10 - (trio.current_time() - started))
            second = await monitor.sample(admin)
            assert [(one.topic, round(one.rate or 0)) for one in second.topics] == [
                ("Quiet", 2),
                ("Orders", 0),
            ]
            await admin.topics.delete("Quiet")
            await trio.sleep(10)
            assert [(one.topic, one.rate) for one in (await monitor.sample(admin)).topics] == [("Orders", 0)]
            await admin.topics.create("Quiet", queues=2)
            await producer.send(Message("Quiet", b"x"))
            await trio.sleep(10)
            again = await monitor.sample(admin)
            assert {one.topic: one.rate for one in again.topics} == {"Orders": 0, "Quiet": 0}
            assert not again.failures


def test_once_takes_two_samples(invoke: Invoke, threaded_broker: str) -> None:
    trio.run(prepare, threaded_broker)
    once = ("top", "--once", "--interval", "0.1", "-n", threaded_broker)
    ended = invoke(*once, "--json")
    assert (ended.code, ended.err) == (0, "")
    value = json.loads(ended.out)
    assert value["topics"][0].pop("last_message_ms") > 0
    # The commit pulled a message. The broker's next update of its rates may count it.
    assert value["groups"][0].pop("rate") in (0.0, 0.1)
    assert value == {
        "topics": [
            {"topic": "Orders", "rate": 0.0, "messages": 5},
            {"topic": "Quiet", "rate": 0.0, "messages": 0, "last_message_ms": None},
        ],
        "groups": [{"group": "billing", "lag": 5, "members": 0}],
        "failures": {},
        "not_offered": {},
    }
    table = invoke(*once, "--rows", "1").out.decode().splitlines()
    assert [line.split()[0] for line in table if line] == ["TOPIC", "Orders", "GROUP", "billing"]


def test_it_shows_what_a_service_offers(invoke: Invoke) -> None:
    with run_broker() as service:
        trio.run(prepare, service.name_server_address)
        once = ("top", "--once", "--interval", "0.1", "-n", service.name_server_address)
        fault = service.fail("GET_ALL_TOPIC_LIST_FROM_NAMESERVER", code=REQUEST_CODE_NOT_SUPPORTED)
        ended = invoke(*once, "--json")
        assert "topics: " in ended.err
        assert "does not offer the list of topics (GET_ALL_TOPIC_LIST_FROM_NAMESERVER, 206)" in ended.err
        value = json.loads(ended.out)
        assert value["topics"] == []
        assert [(one["group"], one["lag"]) for one in value["groups"]] == [("billing", 5)]
        fault.end()
        service.fail("GET_ALL_SUBSCRIPTIONGROUP_CONFIG", code=REQUEST_CODE_NOT_SUPPORTED)
        ended = invoke(*once, "--json")
        assert "does not offer the settings of groups (GET_ALL_SUBSCRIPTIONGROUP_CONFIG, 201)" in ended.err
        assert [one["topic"] for one in json.loads(ended.out)["topics"]] == ["Orders", "Quiet"]
        service.fail("GET_BROKER_CLUSTER_INFO", code=REQUEST_CODE_NOT_SUPPORTED)
        ended = invoke(*once)
        assert (ended.code, ended.out) == (1, b"")
        assert "does not offer information about the cluster" in ended.err


def test_a_cluster_that_is_down_is_one_line(
    invoke: Invoke, unused_address: str, default_timeouts: Callable[[float], None]
) -> None:
    default_timeouts(0.2)
    for arguments in (("top",), ("top", "--once")):
        ended = invoke(*arguments, "-n", unused_address)
        assert (ended.code, ended.out) == (1, b"")
        assert ended.err.startswith("rocketmq-py: no name server answered")


@pytest.mark.parametrize("option", [("--interval", "0"), ("--rows", "0"), ("--interval", "soon")])
def test_usage_errors(invoke: Invoke, option: tuple[str, str]) -> None:
    assert invoke("top", *option).code == 2
