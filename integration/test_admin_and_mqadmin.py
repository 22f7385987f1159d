"""``Admin`` reports the same about a cluster as RocketMQ's own ``mqadmin``."""

from __future__ import annotations

import pytest

from integration.clusters.cluster import Cluster
from integration.mqadmin import mqadmin, send
from rocketmq_py import Client, Message, Position
from tests.behaviours.reading import until_readable

pytestmark = pytest.mark.usefixtures("java_and_maven")


def rows(table: str, first: str) -> list[list[str]]:
    """Return the words of the lines that begin with ``first``, which mqadmin may have truncated."""
    return [words for line in table.splitlines() if (words := line.split()) and first.startswith(words[0])]


async def test_the_figures_match_mqadmin(real: Cluster, client: Client, topic: str) -> None:
    group = f"group-{topic}"
    await send(client, topic, range(30))
    await until_readable(client, topic, count=30)
    async with client.admin() as admin:
        await admin.groups.create(group)
        # mqadmin finds a group's brokers through its retry topic, which members would create.
        await admin.topics.create(f"%RETRY%{group}", queues=1)
        await admin.offsets.reset(group, topic, Position.offset(2))

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
            [one.queue.queue_id, one.max_offset, one.committed, one.lag] for one in of_topic.queues
        ]
        assert f"Diff Total: {lag.lag}" in progress
        assert lag.lag == 22

        listed = await mqadmin(real, "clusterList")
        (broker,) = (await admin.brokers.list()).brokers
        assert broker.address in listed
        assert f"V{broker.version.replace('.', '_')}" in listed

        known = set((await mqadmin(real, "topicList")).split())
        assert {one.topic for one in (await admin.topics.list(system=True)).topics} <= known


async def test_a_message_matches_mqadmin(real: Cluster, client: Client, topic: str) -> None:
    group = f"group-{topic}"
    async with client.producer("senders") as producer:
        sent = await producer.send(Message(topic, b"x", "A", "order-7", {"colour": "green"}))
    await until_readable(client, topic, count=1)
    async with client.reader() as reader:
        await reader.commit(group, {sent.queue: sent.queue_offset + 1})
    async with client.admin() as admin:
        # mqadmin finds a group's brokers through its retry topic, which members would create.
        await admin.topics.create(f"%RETRY%{group}", queues=1)
        found = await admin.messages.get(sent.offset_message_id)
        assert found is not None
        of_topic = "" if real.version.startswith("4.") else f"-t {topic} "
        shown = await mqadmin(real, f"queryMsgById {of_topic}-i {sent.offset_message_id}")
        said = {
            name.strip(): value.strip()
            for name, separator, value in (line.partition(":") for line in shown.splitlines())
            if separator
        }
        assert said["Topic"] == found.topic
        assert said["Queue ID"] == str(found.queue_id)
        assert said["Queue Offset"] == str(found.queue_offset)
        assert said["CommitLog Offset"] == str(found.commit_log_offset)
        assert said["Tags"] == f"[{found.tags}]"
        assert said["Keys"] == f"[{found.keys[0]}]"
        assert said["Store Host"] == found.store_host
        (track,) = (await admin.messages.tracks(found)).tracks
        assert (track.group, track.is_past) == (group, True)
        assert f"MessageTrack [consumerGroup={track.group}, trackType={track.track_type}" in shown
        by_key = await mqadmin(real, f"queryMsgByKey -t {topic} -k order-7")
        (same,) = (await admin.messages.find(topic, "order-7")).messages
        assert same.message_id in by_key
