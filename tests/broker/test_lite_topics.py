"""Lite topics whose state depends on the clock, which real brokers are too slow to show."""

from __future__ import annotations

from collections.abc import Callable

import trio
import trio.testing

from rocketmq_py.broker.lite.lite_expiry import CHECK_SECONDS
from rocketmq_py.broker.topics import TopicConfig
from rocketmq_py.names import lite_queue
from tests.broker.offline import OfflineBroker, OfflineClient

PARENT = "Sessions"
HOUR = 3600.0


def create_parent(broker: OfflineBroker, expiration_minutes: int) -> None:
    attributes = {"message.type": "LITE", "lite.topic.expiration": str(expiration_minutes)}
    broker.broker.state.topics.put(TopicConfig(PARENT, 4, 4, attributes=attributes))


def lite_topics(broker: OfflineBroker) -> set[str]:
    return {queue.topic for queue in broker.broker.state.store.lite_queues()}


async def test_a_lite_topic_without_recent_messages_expires(
    broker: OfflineBroker, client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    create_parent(broker, 60)
    client.send(PARENT, __LITE_TOPIC="old")
    await trio.sleep(HOUR / 2)
    client.send(PARENT, __LITE_TOPIC="new")
    await trio.sleep(HOUR / 2 - CHECK_SECONDS)
    assert lite_topics(broker) == {lite_queue(PARENT, "old"), lite_queue(PARENT, "new")}
    await trio.sleep(2 * CHECK_SECONDS + 1)
    assert lite_topics(broker) == {lite_queue(PARENT, "new")}


async def test_a_lite_topic_whose_messages_were_dropped_expires(
    open_broker: Callable[..., OfflineBroker], autojump_clock: trio.testing.MockClock
) -> None:
    broker = open_broker(max_store_messages=1)
    create_parent(broker, 60)
    client = broker.connect()
    client.send(PARENT, __LITE_TOPIC="old")
    client.send("T")
    await trio.sleep(HOUR - CHECK_SECONDS)
    assert lite_topics(broker) == {lite_queue(PARENT, "old")}
    await trio.sleep(2 * CHECK_SECONDS + 1)
    assert lite_topics(broker) == set()
