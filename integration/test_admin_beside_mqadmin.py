"""What ``Admin`` says of a cluster is what RocketMQ's own ``mqadmin`` says."""

from __future__ import annotations

import pytest

from integration.clusters.cluster import Cluster
from integration.mqadmin import mqadmin, send
from rocketmq_py import Client
from rocketmq_py.admin import ResetTo
from tests.behaviours.reading import until_readable

pytestmark = pytest.mark.usefixtures("java_and_maven")


def rows(table: str, first: str) -> list[list[str]]:
    """Return the words of the lines that begin with a word, which mqadmin may have cut."""
    return [words for line in table.splitlines() if (words := line.split()) and first.startswith(words[0])]


async def test_the_figures_are_those_of_mqadmin(real: Cluster, client: Client, topic: str) -> None:
    group = f"group-{topic}"
    await send(client, topic, range(30))
    await until_readable(client, topic, count=30)
    async with client.admin() as admin:
        await admin.groups.create(group)
        # By it mqadmin looks for a group's brokers; members bring it along.
        await admin.topics.create(f"%RETRY%{group}", queues=1)
        await admin.offsets.reset(group, topic, ResetTo.offset(2))

        status = await mqadmin(real, f"topicStatus -t {topic}")
        described = await admin.topics.describe(topic)
        (broker_name,) = described.brokers
        assert [[int(word) for word in line[1:4]] for line in rows(status, broker_name)] == [
            [one.queue.queue_id, one.min_offset, one.max_offset] for one in described.queues
        ]

        progress = await mqadmin(real, f"consumerProgress -g {group}")
        lag = await admin.groups.describe(group)
        (of_topic,) = lag.topics
        assert [[int(word) for word in line[2:6]] for line in rows(progress, topic)] == [
            [one.queue.queue_id, one.broker_offset, one.consumer_offset, one.lag] for one in of_topic.queues
        ]
        assert f"Diff Total: {lag.lag}" in progress
        assert lag.lag == 22

        listed = await mqadmin(real, "clusterList")
        (broker,) = (await admin.brokers.list()).brokers
        assert broker.address in listed
        assert f"V{broker.version.replace('.', '_')}" in listed

        known = set((await mqadmin(real, "topicList")).split())
        assert {one.topic for one in (await admin.topics.list(system=True)).topics} <= known
