"""Lite topics: expiry, and pops. tests/behaviours compares the other behaviour with real brokers."""

from __future__ import annotations

from collections.abc import Callable

import trio
import trio.testing

from rocketmq_py.broker.lite.dispatcher import CHECK_SECONDS as CHECK_CLIENTS_SECONDS
from rocketmq_py.broker.lite.dispatcher import IDLE_SECONDS
from rocketmq_py.broker.lite.lite_expiry import CHECK_SECONDS
from rocketmq_py.broker.topics import TopicConfig
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.names import lite_queue
from rocketmq_py.protocol.bodies import (
    BrokerLiteInfo,
    LiteSubscription,
    LiteSubscriptionAction,
    LiteSubscriptions,
    SubscriptionGroupConfig,
)
from rocketmq_py.protocol.headers import PopLiteMessageRequest
from tests.broker.offline import Answer, OfflineBroker, OfflineClient

PARENT, GROUP, CLIENT_ID = "Sessions", "readers", "client-1"
HOUR = 3600.0


def create_parent(broker: OfflineBroker, expiration_minutes: int) -> None:
    attributes = {"message.type": "LITE", "lite.topic.expiration": str(expiration_minutes)}
    broker.broker.state.topics.put(TopicConfig(PARENT, 4, 4, attributes=attributes))


def create_group(broker: OfflineBroker) -> None:
    group = SubscriptionGroupConfig(group_name=GROUP, attributes={"lite.bind.topic": PARENT})
    broker.broker.state.subscription_groups.put(group)


def subscribe(client: OfflineClient, lite_topic: str) -> None:
    change = LiteSubscription(
        action=LiteSubscriptionAction.PARTIAL_ADD,
        client_id=CLIENT_ID,
        group=GROUP,
        topic=PARENT,
        lite_topic_set=(lite_topic,),
    )
    body = LiteSubscriptions(subscription_set=(change,)).encode()
    assert client.ask(RequestCode.LITE_SUBSCRIPTION_CTL, {}, body).code == ResponseCode.SUCCESS


def pop(client: OfflineClient, *, invisible_time: int) -> Answer:
    header = PopLiteMessageRequest(
        client_id=CLIENT_ID,
        consumer_group=GROUP,
        topic=PARENT,
        max_msg_num=32,
        invisible_time=invisible_time,
        poll_time=0,
        born_time=0,
    )
    return client.ask(RequestCode.POP_LITE_MESSAGE, header.to_fields())


def clients_with_offers(client: OfflineClient) -> int:
    return BrokerLiteInfo.decode(client.ask(RequestCode.GET_BROKER_LITE_INFO, {}).body).event_map_size


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


async def test_a_message_popped_without_an_invisible_time_can_be_popped_again_at_once(
    broker: OfflineBroker, client: OfflineClient
) -> None:
    create_parent(broker, 60)
    create_group(broker)
    subscribe(client, "session")
    client.send(PARENT, __LITE_TOPIC="session")
    for _ in range(2):
        assert len(pop(client, invisible_time=0).messages) == 1


async def test_a_client_without_pops_is_forgotten_after_a_while(
    broker: OfflineBroker, client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    create_parent(broker, 60)
    create_group(broker)
    subscribe(client, "session")
    client.send(PARENT, __LITE_TOPIC="session")
    pop(client, invisible_time=600_000)
    assert clients_with_offers(client) == 1
    await trio.sleep(IDLE_SECONDS + CHECK_CLIENTS_SECONDS + 1)
    assert clients_with_offers(client) == 0
