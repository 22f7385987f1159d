"""Lite pull consumers of both languages in one group share its queues and resume at its offsets."""

from __future__ import annotations

import base64
from typing import Any

import trio

from integration.clusters.cluster import Cluster
from integration.java.peer import java_peer, run_java_async
from rocketmq_py import Client, Message, ReceivedMessage
from tests.behaviours.reading import until_readable
from tests.behaviours.test_lite_pulling import assigned, poll

PATIENCE = 60


async def send(client: Client, topic: str, numbers: range) -> None:
    async with client.producer("senders") as producer:
        for number in numbers:
            await producer.send(Message(topic, b"%d" % number, keys=f"key-{number}"))


def bodies(lines: list[dict[str, Any]]) -> set[int]:
    return {int(base64.b64decode(line["body"])) for line in lines if "body" in line}


async def test_each_resumes_where_the_other_stopped(
    real: Cluster, client: Client, java: str, topic: str, unique: str
) -> None:
    group = f"group-{unique}"

    async def poll_here(count: int) -> set[int]:
        async with client.lite_pull_consumer(group, consume_from="earliest") as consumer:
            consumer.subscribe(topic)
            return {int(message.body) for message in await poll(consumer, count)}

    await send(client, topic, range(60))
    await until_readable(client, topic, count=60)
    here = await poll_here(60)
    await send(client, topic, range(60, 100))
    there = bodies(
        await run_java_async(
            java,
            "LitePull",
            "--namesrv",
            real.name_servers,
            "--topic",
            topic,
            "--group",
            group,
            "--count",
            "40",
        )
    )
    await send(client, topic, range(100, 120))
    again = await poll_here(20)
    assert (here, there, again) == ({*range(60)}, {*range(60, 100)}, {*range(100, 120)})


async def test_a_group_with_members_in_both_languages_shares_the_queues(
    real: Cluster, client: Client, java: str, topic: str, unique: str
) -> None:
    group = f"group-{unique}"
    here: list[ReceivedMessage] = []
    there: list[dict[str, Any]] = []
    async with (
        client.lite_pull_consumer(group, consume_from="earliest", rebalance_interval=1) as consumer,
        java_peer(
            java, "LitePull", "--namesrv", real.name_servers, "--topic", topic, "--group", group
        ) as peer,
        trio.open_nursery() as nursery,
    ):
        consumer.subscribe(topic)

        async def collect_from_java() -> None:
            while True:
                there.append(await peer.next_line())

        async def collect_here() -> None:
            async for message in consumer:
                here.append(message)  # noqa: PERF401  # it is looked at meanwhile

        share = await assigned(consumer, 2)
        nursery.start_soon(collect_from_java)
        nursery.start_soon(collect_here)
        await send(client, topic, range(100))
        with trio.fail_after(PATIENCE):
            while len({int(message.body) for message in here} | bodies(there)) < 100:
                await trio.sleep(0.05)
        nursery.cancel_scope.cancel()
    assert {message.queue for message in here} == {*share}
    assert bodies(there), "those of the other two"
