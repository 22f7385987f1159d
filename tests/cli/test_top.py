"""``top``."""

from __future__ import annotations

import json

import pytest
import trio

from rocketmq_py import Client, Message
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.cli.top import ActivityMonitor
from tests.cli.conftest import Invoke


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
    ended = invoke(*once, "-o", "json")
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
    }
    table = invoke(*once, "--rows", "1").out.decode().splitlines()
    assert [line.split()[0] for line in table if line] == ["TOPIC", "Orders", "GROUP", "billing"]


def test_a_cluster_that_is_down_is_one_line(invoke: Invoke, unused_address: str) -> None:
    for arguments in (("top",), ("top", "--once")):
        ended = invoke(*arguments, "-n", unused_address)
        assert (ended.code, ended.out) == (1, b"")
        assert ended.err.startswith("rocketmq-py: no name server answered")


@pytest.mark.parametrize("option", [("--interval", "0"), ("--rows", "0"), ("--interval", "soon")])
def test_usage_errors(invoke: Invoke, option: tuple[str, str]) -> None:
    assert invoke("top", *option).code == 2
