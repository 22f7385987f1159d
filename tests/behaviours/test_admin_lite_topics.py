"""Lite topics are described: numbers, offsets, subscribers and lag. Brokers older than 5.5.0 have none."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from rocketmq_py import Admin, Client, LiteTopicConsumer, Message
from rocketmq_py.admin import MessageType
from rocketmq_py.client import core_of
from rocketmq_py.client.features import LITE_TOPICS
from rocketmq_py.errors import BrokerError, ConfigurationError, TopicNotFoundError, UnsupportedByBrokerError
from tests.behaviours.conftest import ClusterUnderTest, until_in_route
from tests.behaviours.test_lite_topics import receive

BROKER = "broker-a"
# The broker (5.5.0) forgets requests.
pytestmark = pytest.mark.usefixtures("short_request_timeout")


@pytest.fixture
async def admin(client: Client) -> AsyncIterator[Admin]:
    async with client.admin() as admin:
        yield admin


@pytest.fixture
async def group(cluster: ClusterUnderTest, client: Client, admin: Admin, unique: str) -> str:
    """A group that is bound to the parent topic ``unique``."""
    cluster.needs(LITE_TOPICS)
    attributes = {"lite.topic.expiration": "60"}
    await admin.topics.create(unique, queues=2, message_type=MessageType.LITE, attributes=attributes)
    group = f"group-{unique}"
    await admin.groups.create(group, attributes={"lite.bind.topic": unique})
    await until_in_route(client, unique)
    return group


@pytest.fixture
async def consumer(client: Client, group: str, unique: str) -> AsyncIterator[LiteTopicConsumer]:
    async with client.lite_topic_consumer(group, parent=unique) as consumer:
        yield consumer


async def send(client: Client, parent: str, lite_topic: str, count: int) -> None:
    async with client.producer(f"senders-{parent}") as producer:
        for _ in range(count):
            await producer.send(Message(parent, b"x", lite_topic=lite_topic))


async def test_a_parent_topic_and_its_lite_topics_are_described(
    client: Client, admin: Admin, consumer: LiteTopicConsumer, group: str, unique: str
) -> None:
    await consumer.subscribe_lite("s1", "s2")
    await send(client, unique, "s1", 3)
    (first,) = await receive(consumer, 1)
    parent = await admin.lite_topics.describe_parent(unique)
    assert (parent.parent, parent.expiration, parent.groups) == (unique, 60, (group,))
    assert (parent.lite_topics, parent.failures) == ({BROKER: 1}, {})
    described = await admin.lite_topics.describe(unique, "s1")
    assert (described.messages, described.failures) == (3, {})
    offsets = described.brokers[BROKER]
    assert (offsets.min_offset, offsets.max_offset, offsets.is_home) == (0, 3, True)
    assert offsets.last_message_ms is not None
    assert offsets.last_message_ms >= first.store_time_ms
    assert offsets.subscribers == {group: (core_of(client).client_id,)}
    empty = await admin.lite_topics.describe(unique, "s2")
    assert (empty.messages, empty.brokers[BROKER].last_message_ms) == (0, None)
    missing = await admin.lite_topics.describe(unique, "s3")
    assert (missing.messages, missing.brokers[BROKER].subscribers) == (0, {})
    brokers = await admin.lite_topics.brokers()
    broker = brokers.brokers[BROKER]
    assert (broker.broker_name, brokers.failures) == (BROKER, {})
    assert broker.subscriptions >= 2
    assert broker.lite_queues >= 1
    assert broker.popped >= 1
    assert broker.clients >= 1
    assert broker.expirations[unique] == 60
    assert broker.groups[unique] == (group,)


async def test_the_subscription_of_a_client_is_described(
    client: Client, admin: Admin, consumer: LiteTopicConsumer, group: str, unique: str
) -> None:
    await consumer.subscribe_lite("s3", "s1", "s2")
    await send(client, unique, "s1", 1)
    await receive(consumer, 1)
    described = await admin.lite_topics.describe_client(unique, group, core_of(client).client_id)
    own = described.brokers[BROKER]
    assert (own.count, own.lite_topics) == (3, ("s1", "s2", "s3"))
    assert own.last_pop_ms is not None
    few = await admin.lite_topics.describe_client(unique, group, core_of(client).client_id, max_lite_topics=1)
    assert len(few.brokers[BROKER].lite_topics) == 1
    assert few.brokers[BROKER].count == 3
    assert (await admin.lite_topics.describe_client(unique, group, "nobody")).brokers == {}


async def test_the_lag_of_a_group_is_reported(
    client: Client, admin: Admin, consumer: LiteTopicConsumer, group: str, unique: str
) -> None:
    await consumer.subscribe_lite("s1", "s2")
    for lite_topic in ("s1", "s2"):
        await send(client, unique, lite_topic, 1)
        await consumer.ack(*await receive(consumer, 1))
    await send(client, unique, "s1", 2)
    await send(client, unique, "s2", 5)
    report = await admin.lite_topics.lag(group)
    assert (report.group, report.parent, report.lag, report.failures) == (group, unique, 7, {})
    assert [(one.lite_topic, one.broker_name, one.lag) for one in report.largest] == [
        ("s2", BROKER, 5),
        ("s1", BROKER, 2),
    ]
    one = await admin.lite_topics.lag(group, "s1")
    assert (one.lag, [each.lite_topic for each in one.largest]) == (2, ["s1"])
    assert one.largest[0].waiting_since_ms is not None
    never = await admin.lite_topics.lag(group, "s9")
    assert (never.lag, never.largest) == (0, ())
    assert [one.lite_topic for one in (await admin.lite_topics.lag(group, largest=1)).largest] == ["s2"]


async def test_waiting_messages_are_offered_again(
    client: Client, admin: Admin, consumer: LiteTopicConsumer, group: str, unique: str
) -> None:
    await consumer.subscribe_lite("s1")
    await send(client, unique, "s1", 1)
    assert await admin.lite_topics.offer_again(group) == (BROKER,)
    assert await admin.lite_topics.offer_again(group, core_of(client).client_id) == (BROKER,)
    await consumer.ack(*await receive(consumer, 1))
    assert await consumer.receive(wait=0) == []


async def test_wrong_topics_and_groups_are_refused(
    client: Client, admin: Admin, group: str, unique: str
) -> None:
    plain = f"{unique}-plain"
    await admin.topics.create(plain, queues=1)
    with pytest.raises(TopicNotFoundError):
        await admin.lite_topics.describe_parent(f"missing-{unique}")
    with pytest.raises(BrokerError, match="type not match"):
        await admin.lite_topics.describe_parent(plain)
    with pytest.raises(BrokerError, match="type not match"):
        await admin.lite_topics.describe(plain, "s1")
    await admin.groups.create(f"unbound-{unique}")
    with pytest.raises(BrokerError, match="is not a LITE group"):
        await admin.lite_topics.lag(f"unbound-{unique}")
    with pytest.raises(BrokerError, match="is not a LITE group"):
        await admin.lite_topics.offer_again(f"unbound-{unique}")
    with pytest.raises(BrokerError, match="not match"):
        await admin.lite_topics.describe_client(unique, f"unbound-{unique}", core_of(client).client_id)
    with pytest.raises(ConfigurationError, match="lite_topic is 'a b'"):
        await admin.lite_topics.describe(unique, "a b")


async def test_an_old_broker_describes_no_lite_topics(cluster: ClusterUnderTest, admin: Admin) -> None:
    cluster.needs_older_than(LITE_TOPICS)
    with pytest.raises(UnsupportedByBrokerError, match=r"does not support lite topics, which needs 5\.5\.0"):
        await admin.lite_topics.brokers()
