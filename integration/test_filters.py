"""SqlFilters on real brokers: members in both languages, and a broker with SQL filters disabled."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest
import trio

from integration.clusters.cluster import Cluster
from integration.clusters.provider import VERSIONS
from integration.java.peer import java_peer
from rocketmq_py import Client, Message, ReceivedMessage
from rocketmq_py.errors import SqlFilterRefusedError
from tests.behaviours.conftest import create_topic

PATIENCE = 60
CONDITION = "size >= 50 AND colour = 'blue'"


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_broker_with_sql_filters_disabled(
    version: str, own_cluster: Callable[..., Cluster], unique: str
) -> None:
    cluster = own_cluster(version, settings={"enablePropertyFilter": "false"})
    why = r"does not support consumer to filter message by SQL92; set enablePropertyFilter=true on the broker"
    async with Client(cluster.name_servers) as client:
        await create_topic(client, unique, queues=4)
        async with client.push_consumer(unique) as consumer:
            consumer.subscribe(unique, sql=CONDITION)
            with pytest.raises(SqlFilterRefusedError, match=why):
                await consumer.run(lambda _: None)
        async with client.lite_pull_consumer(f"{unique}-pull") as lite_pull:
            lite_pull.subscribe(unique, sql=CONDITION)
            with pytest.raises(SqlFilterRefusedError, match=why):
                await lite_pull.poll(wait=PATIENCE)
        async with client.reader() as reader:
            with pytest.raises(SqlFilterRefusedError, match=why):
                async with reader.open(unique, sql=CONDITION, start="earliest"):
                    raise AssertionError("not reached")


async def test_members_in_both_languages_filter_alike(
    real: Cluster, client: Client, java: str, topic: str
) -> None:
    here: set[int] = set()
    there: list[dict[str, Any]] = []

    async def handle(message: ReceivedMessage) -> None:
        here.add(int(message.body))

    def numbers() -> set[int]:
        return {int(base64.b64decode(line["body"])) for line in there if "body" in line}

    async with (
        client.push_consumer(
            f"group-{topic}", consume_from="earliest", rebalance_interval=1
        ) as consumer,
        java_peer(
            java, "Consume", "--namesrv", real.name_servers, "--topic", topic, "--group", f"group-{topic}",
            "--sql", CONDITION,
        ) as peer,
        trio.open_nursery() as nursery,
    ):  # fmt: skip
        consumer.subscribe(topic, sql=CONDITION)
        await peer.next_line()

        async def collect() -> None:
            while True:
                there.append(await peer.next_line())

        nursery.start_soon(consumer.run, handle)
        nursery.start_soon(collect)
        with trio.fail_after(PATIENCE):
            while len([queue for queue in consumer.assignment if queue.topic == topic]) != 2:
                await trio.sleep(0.1)
        async with client.producer("senders") as producer:
            for number in range(100):
                colour = "blue" if number % 2 else "red"
                properties = {"size": str(number), "colour": colour}
                await producer.send(Message(topic, b"%d" % number, properties=properties))
        expected = set(range(51, 100, 2))
        with trio.fail_after(PATIENCE):
            while not expected <= here | numbers():
                await trio.sleep(0.1)
        nursery.cancel_scope.cancel()
    assert here | numbers() == expected
    assert here
    assert numbers()
