"""``top``."""

from __future__ import annotations

import json

import pytest
import trio

from rocketmq_py import Client, Message
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.cli.looking import Looking
from tests.cli.conftest import Invoke


async def prepare(address: str) -> None:
    """Have Orders be busier than Quiet, and group billing be five messages behind."""
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
async def test_rates_are_what_came_between_two_looks() -> None:
    async with EmbeddedBroker() as broker:
        await prepare(broker.name_server_address)
        async with (
            Client(broker.name_server_address) as client,
            client.admin() as admin,
            client.producer("senders") as producer,
        ):
            looking = Looking()
            first = await looking.look(admin)
            assert [(one.topic, one.rate, one.messages) for one in first.topics] == [
                ("Orders", None, 5),
                ("Quiet", None, 0),
            ]
            assert [(one.group, one.lag) for one in first.groups] == [("billing", 5)]
            begun = trio.current_time()
            for _ in range(20):
                await producer.send(Message("Quiet", b"x"))
            await trio.sleep(10 - (trio.current_time() - begun))
            second = await looking.look(admin)
            assert [(one.topic, round(one.rate or 0)) for one in second.topics] == [
                ("Quiet", 2),
                ("Orders", 0),
            ]
            await admin.topics.delete("Quiet")
            await trio.sleep(10)
            assert [(one.topic, one.rate) for one in (await looking.look(admin)).topics] == [("Orders", 0)]
            await admin.topics.create("Quiet", queues=2)
            await producer.send(Message("Quiet", b"x"))
            await trio.sleep(10)
            again = await looking.look(admin)
            assert {one.topic: one.rate for one in again.topics} == {"Orders": 0, "Quiet": 0}
            assert not again.failures


def test_it_looks_twice_and_ends(invoke: Invoke, broker_aside: str) -> None:
    trio.run(prepare, broker_aside)
    once = ("top", "--once", "--interval", "0.1", "-n", broker_aside)
    ended = invoke(*once, "-o", "json")
    assert (ended.code, ended.err) == (0, "")
    value = json.loads(ended.out)
    assert value["topics"][0].pop("last_message_ms") > 0
    # The group was made by a pull of a message, which counts when the broker's ten seconds have ended.
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


def test_nobody_is_there(invoke: Invoke, unused_address: str) -> None:
    for arguments in (("top",), ("top", "--once")):
        ended = invoke(*arguments, "-n", unused_address)
        assert (ended.code, ended.out) == (1, b"")
        assert ended.err.startswith("rocketmq-py: no name server answered")


@pytest.mark.parametrize("option", [("--interval", "0"), ("--rows", "0"), ("--interval", "soon")])
def test_a_wrong_command_line(invoke: Invoke, option: tuple[str, str]) -> None:
    assert invoke("top", *option).code == 2
