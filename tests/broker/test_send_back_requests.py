from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from rocketmq_py.codes import RequestCode, ResponseCode
from tests.broker.offline import Answer, OfflineBroker, OfflineClient

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
RETRY, DEAD = "%RETRY%g", "%DLQ%g"


def send_back(client: OfflineClient, offset: int = 0, **changes: str) -> Answer:
    fields = {
        "offset": str(offset), "group": "g", "delayLevel": "0", "originMsgId": "X", "originTopic": "t",
        "unitMode": "false", "maxReconsumeTimes": "16", **changes,
    }  # fmt: skip
    return client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields)


async def test_a_message_sent_back_is_delivered_again_after_a_delay(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    sent = client.send("t", b"failed", TAGS="A", KEYS="k", h="3")
    answer = send_back(client)
    assert (answer.code, answer.remark, answer.fields) == (ResponseCode.SUCCESS, None, {})
    await trio.sleep(9.9)
    assert client.pull(RETRY).code == ResponseCode.PULL_NOT_FOUND
    await trio.sleep(0.2)
    (message,) = client.pull(RETRY).messages
    assert message.body == b"failed"
    assert message.topic == RETRY
    assert message.reconsume_times == 1
    assert message.flag == 3
    assert message.born_host == client.address
    # The properties on a real 5.5.0 broker.
    assert message.properties == {
        "TAGS": "A",
        "KEYS": "k",
        "UNIQ_KEY": "7F00000100002A139A55000000000001",
        "CLUSTER": "DefaultCluster",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "RETRY_TOPIC": "t",
        "ORIGIN_MESSAGE_ID": sent.fields["msgId"],
        "WAIT": "false",
        "DELAY": "3",
        "REAL_TOPIC": RETRY,
        "REAL_QID": "0",
    }


async def test_delays_increase_until_the_message_becomes_a_dead_letter(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    sent = client.send("t", b"failed")
    send_back(client, maxReconsumeTimes="2")
    await trio.sleep(10.1)
    (first,) = client.pull(RETRY).messages
    send_back(client, first.commit_log_offset, maxReconsumeTimes="2")
    await trio.sleep(29.9)
    assert client.pull(RETRY, 1).code == ResponseCode.PULL_NOT_FOUND
    await trio.sleep(0.2)
    (second,) = client.pull(RETRY, 1).messages
    assert (second.reconsume_times, second.properties["DELAY"]) == (2, "4")
    send_back(client, second.commit_log_offset, maxReconsumeTimes="2")
    (dead,) = client.pull(DEAD).messages
    assert (dead.reconsume_times, dead.properties["DELAY"]) == (3, "0")
    assert dead.properties["RETRY_TOPIC"] == "t"
    assert dead.properties["ORIGIN_MESSAGE_ID"] == sent.fields["msgId"]
    route = client.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": DEAD})
    assert b'"readQueueNums":1,"writeQueueNums":1,"perm":6' in route.body


@pytest.mark.parametrize("changes", [{"delayLevel": "-1"}, {"maxReconsumeTimes": "0"}])
async def test_a_message_can_become_a_dead_letter_at_once(
    client: OfflineClient, changes: dict[str, Any]
) -> None:
    client.send("t", b"failed")
    assert send_back(client, **changes).code == ResponseCode.SUCCESS
    assert [message.body for message in client.pull(DEAD).messages] == [b"failed"]


async def test_the_consumer_can_choose_the_delay_level(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    client.send("t")
    send_back(client, delayLevel="1")
    await trio.sleep(1.1)
    assert len(client.pull(RETRY).messages) == 1


async def test_retry_max_times_of_the_group_applies_without_a_limit_in_the_request(
    client: OfflineClient,
) -> None:
    group = {"groupName": "g", "retryMaxTimes": 0}
    client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, json.dumps(group).encode())
    client.send("t")
    fields = {"offset": "0", "group": "g", "delayLevel": "0"}
    assert client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields).code == ResponseCode.SUCCESS
    assert len(client.pull(DEAD).messages) == 1


async def test_a_group_without_retry_queues_drops_the_message(client: OfflineClient) -> None:
    group = {"groupName": "g", "retryQueueNums": 0}
    client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, json.dumps(group).encode())
    client.send("t")
    assert send_back(client).code == ResponseCode.SUCCESS
    assert client.pull(RETRY).code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize(
    ("changes", "code", "remark"),
    [
        ({"offset": "99"}, ResponseCode.SYSTEM_ERROR, "look message by offset failed, 99"),
        (
            {"group": "a b"},
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"subscription group not exist, a b {FAQ}",
        ),
    ],
)
async def test_a_send_back_of_an_unknown_message_or_invalid_group_is_refused(
    client: OfflineClient, changes: dict[str, Any], code: int, remark: str
) -> None:
    client.send("t")
    answer = send_back(client, **changes)
    assert (answer.code, answer.remark) == (code, remark)


# If a send-back fails, the client sends a copy of the message to the retry topic itself.


async def test_a_copy_sent_to_the_retry_topic_is_delayed(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    answer = client.send(RETRY, b"copy", DELAY="1", RETRY_TOPIC="t", j="1", l="16")
    assert answer.fields["queueId"] == "0"
    await trio.sleep(1.1)
    (message,) = client.pull(RETRY).messages
    assert (message.reconsume_times, message.properties["RETRY_TOPIC"]) == (1, "t")


async def test_a_copy_beyond_the_retry_limit_becomes_a_dead_letter(client: OfflineClient) -> None:
    client.send(RETRY, b"sixteen", j="16", l="16")
    client.send(RETRY, b"seventeen", j="17", l="16")
    assert [message.body for message in client.pull(RETRY).messages] == [b"sixteen"]
    (dead,) = client.pull(DEAD).messages
    assert (dead.body, dead.properties["DELAY"], dead.reconsume_times) == (b"seventeen", "-1", 17)


async def test_a_copy_from_an_orderly_group_becomes_a_dead_letter(client: OfflineClient) -> None:
    queue = {"topic": "t", "brokerName": "broker-a", "queueId": 0}
    lock = {"consumerGroup": "g", "clientId": "one", "mqSet": [queue]}
    client.ask(RequestCode.LOCK_BATCH_MQ, {}, json.dumps(lock).encode())
    client.send(RETRY, b"ordered", j="1", l="16")
    assert [message.body for message in client.pull(DEAD).messages] == [b"ordered"]


async def test_a_retry_topic_is_created_even_if_topics_are_not(
    open_broker: Callable[..., OfflineBroker],
) -> None:
    client = open_broker(auto_create_topic_enable=False).connect()
    assert client.send(RETRY).code == ResponseCode.SUCCESS
    assert client.send(RETRY, queue_id=1).code == ResponseCode.INVALID_PARAMETER
