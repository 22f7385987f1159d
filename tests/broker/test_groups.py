from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from rocketmq_py.broker.groups import LOCK_SECONDS, QueueLocks
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.message import MessageQueue
from tests.broker.offline import Answer, OfflineBroker, OfflineClient

NOTICE = (RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"})
FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


def subscription(topic: str = "t", expression: str = "*", version: int = 1) -> dict[str, Any]:
    tags = [] if expression == "*" else [expression]
    return {
        "topic": topic, "subString": expression, "tagsSet": tags, "codeSet": [ord(tag) for tag in tags],
        "subVersion": version, "expressionType": "TAG", "classFilterMode": False,
    }  # fmt: skip


def send_heartbeat(
    client: OfflineClient,
    client_id: str,
    *subscriptions: dict[str, Any],
    model: str = "CLUSTERING",
    **changes: Any,
) -> Answer:
    consumer = {
        "groupName": "g", "consumeType": "CONSUME_PASSIVELY", "messageModel": model,
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "unitMode": False,
        "subscriptionDataSet": list(subscriptions or [subscription()]),
    }  # fmt: skip
    heartbeat = {
        "clientID": client_id, "producerDataSet": [], "consumerDataSet": [consumer], **changes,
    }  # fmt: skip
    return client.ask(RequestCode.HEART_BEAT, {}, json.dumps(heartbeat).encode())


def members(client: OfflineClient) -> list[str]:
    answer = client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"})
    return list(json.loads(answer.body)["consumerIdList"]) if answer.code == ResponseCode.SUCCESS else []


def take_notices(client: OfflineClient) -> list[tuple[int, dict[str, str]]]:
    notices, client.notices = client.notices, []
    return notices


async def test_a_heartbeat_adds_a_member(client: OfflineClient) -> None:
    answer = client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"})
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "no consumer for this group, g")
    answer = send_heartbeat(client, "one@x")
    assert answer.code == ResponseCode.SUCCESS
    assert answer.fields == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
    assert members(client) == ["one@x"]


async def test_members_are_notified_of_changes(client: OfflineClient, broker: OfflineBroker) -> None:
    other = broker.connect()
    send_heartbeat(client, "one@x")
    assert take_notices(client) == [NOTICE]
    send_heartbeat(client, "one@x")
    assert take_notices(client) == []
    send_heartbeat(other, "two@x")
    assert (take_notices(client), take_notices(other)) == ([NOTICE], [NOTICE])
    send_heartbeat(client, "one@x", subscription(expression="A", version=2))
    assert (take_notices(client), take_notices(other)) == ([], [])
    send_heartbeat(client, "one@x", subscription(), subscription("another"))
    assert (take_notices(client), take_notices(other)) == ([NOTICE], [NOTICE])


async def test_members_that_do_not_read_are_not_notified(
    client: OfflineClient, broker: OfflineBroker
) -> None:
    send_heartbeat(client, "one@x")
    take_notices(client)
    client.has_space = False
    send_heartbeat(broker.connect(), "two@x")
    assert take_notices(client) == []


async def test_members_are_notified_when_another_leaves(client: OfflineClient, broker: OfflineBroker) -> None:
    others = [broker.connect(), broker.connect()]
    send_heartbeat(client, "one@x")
    send_heartbeat(others[0], "two@x")
    send_heartbeat(others[1], "three@x")
    take_notices(client)
    answer = others[0].ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "two@x", "consumerGroup": "g"})
    assert answer.code == ResponseCode.SUCCESS
    assert take_notices(client) == [NOTICE]
    assert members(client) == ["one@x", "three@x"]
    others[1].close()
    assert take_notices(client) == [NOTICE]
    assert members(client) == ["one@x"]
    client.close()
    assert members(broker.connect()) == []


async def test_members_are_notified_when_a_client_that_is_not_a_member_unregisters(
    client: OfflineClient, broker: OfflineBroker
) -> None:
    send_heartbeat(client, "one@x")
    take_notices(client)
    stranger = broker.connect()
    stranger.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "zz", "consumerGroup": "g"})
    assert take_notices(client) == [NOTICE]
    assert members(client) == ["one@x"]


async def test_a_group_without_notices_is_notified_of_lost_connections_only(
    client: OfflineClient, broker: OfflineBroker
) -> None:
    group = {"groupName": "g", "notifyConsumerIdsChangedEnable": False}
    client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, json.dumps(group).encode())
    leaving, lost = broker.connect(), broker.connect()
    send_heartbeat(client, "one@x")
    send_heartbeat(leaving, "two@x")
    send_heartbeat(lost, "three@x")
    leaving.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "two@x", "consumerGroup": "g"})
    assert take_notices(client) == []
    lost.close()
    assert take_notices(client) == [NOTICE]


async def test_members_of_a_broadcasting_group_are_not_notified(
    client: OfflineClient, broker: OfflineBroker
) -> None:
    send_heartbeat(client, "one@x", model="BROADCASTING")
    send_heartbeat(broker.connect(), "two@x", model="BROADCASTING")
    assert take_notices(client) == []


async def test_connections_of_silent_clients_are_closed(
    client: OfflineClient, broker: OfflineBroker, autojump_clock: trio.testing.MockClock
) -> None:
    silent = broker.connect()
    send_heartbeat(client, "one@x")
    send_heartbeat(silent, "two@x")
    producing = broker.connect()
    heartbeat = {"clientID": "p@x", "producerDataSet": [{"groupName": "p"}], "consumerDataSet": []}
    producing.ask(RequestCode.HEART_BEAT, {}, json.dumps(heartbeat).encode())
    for _ in range(4):
        await trio.sleep(28)
        send_heartbeat(client, "one@x")
    assert not silent.is_closed
    take_notices(client)
    await trio.sleep(20)
    assert (client.is_closed, silent.is_closed, producing.is_closed) == (False, True, True)
    assert take_notices(client) == [NOTICE]
    assert members(client) == ["one@x"]


async def test_a_heartbeat_creates_the_retry_topic_of_the_group(client: OfflineClient) -> None:
    send_heartbeat(client, "one@x")
    answer = client.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "%RETRY%g"})
    assert b'"readQueueNums":1,"writeQueueNums":1,"perm":6' in answer.body


async def test_pulls_use_the_subscription_of_the_last_heartbeat(client: OfflineClient) -> None:
    client.send("t", b"a", TAGS="A")
    client.send("t", b"b", TAGS="B")
    client.send("u")
    send_heartbeat(client, "one@x", subscription(expression="B", version=2))

    def pull(topic: str = "t", **changes: str) -> Answer:
        return client.pull(topic, consumerGroup="g", sysFlag="0", **changes)

    assert [message.body for message in pull(subVersion="2").messages] == [b"b"]
    answer = pull(subVersion="3")
    assert (answer.code, answer.remark) == (
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        "the consumer's subscription not latest",
    )
    answer = pull("u")
    assert (answer.code, answer.remark) == (
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        f"the consumer's subscription not exist{FAQ}",
    )
    send_heartbeat(client, "one@x", subscription(expression="A", version=1))
    assert [message.body for message in pull().messages] == [b"b"], "an older version is ignored"


async def test_consume_broadcast_enable_false_refuses_broadcasting_pulls(client: OfflineClient) -> None:
    client.send("t")
    group = {"groupName": "g", "consumeBroadcastEnable": False}
    client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, json.dumps(group).encode())
    send_heartbeat(client, "one@x", model="BROADCASTING")
    answer = client.pull("t", consumerGroup="g", sysFlag="0")
    assert (answer.code, answer.remark, answer.fields) == (
        ResponseCode.NO_PERMISSION,
        "the consumer group[g] can not consume by broadcast way",
        {"forbiddenType": "4"},
    )


async def test_a_changed_fingerprint_is_answered_with_subscription_changed(client: OfflineClient) -> None:
    def changed(*subscriptions: dict[str, Any], **changes: Any) -> str:
        return send_heartbeat(client, "one@x", *subscriptions, **changes).fields["IS_SUB_CHANGE"]

    assert changed(subscription("u"), heartbeatFingerprint=5) == "false"
    assert changed(heartbeatFingerprint=5, withoutSub=True) == "false"
    assert client.notices == [NOTICE]
    assert changed(heartbeatFingerprint=6) == "true"


async def test_unknown_groups_are_ignored_without_automatic_creation(
    open_broker: Callable[..., OfflineBroker],
) -> None:
    client = open_broker(auto_create_subscription_group=False).connect()
    assert send_heartbeat(client, "one@x").code == ResponseCode.SUCCESS
    assert members(client) == []


async def test_consumer_connections_list_members_and_subscriptions(client: OfflineClient) -> None:
    send_heartbeat(client, "one@x", subscription(expression="A", version=2))
    answer = client.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "g"})
    assert json.loads(answer.body) == {
        "connectionSet": [
            {"clientAddr": client.address, "clientId": "one@x", "language": "JAVA", "version": 513}
        ],
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "subscriptionTable": {"t": subscription(expression="A", version=2)},
    }
    answer = client.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "zz"})
    assert (answer.code, answer.remark) == (
        ResponseCode.CONSUMER_NOT_ONLINE,
        "the consumer group[zz] not online",
    )


def check(client: OfflineClient, expression: str, kind: str) -> Answer:
    checked = {**subscription(), "subString": expression, "expressionType": kind}
    body = {"clientId": "one@x", "group": "g", "subscriptionData": checked}
    return client.ask(RequestCode.CHECK_CLIENT_CONFIG, {}, json.dumps(body).encode())


@pytest.mark.parametrize(
    ("expression", "kind", "code"),
    [
        ("A", "TAG", ResponseCode.SUCCESS),
        ("a > 1", "SQL92", ResponseCode.SUCCESS),
        ("a >", "SQL92", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ("a > 1", "SQL93", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
    ],
)
async def test_check_client_config_validates_the_subscription(
    client: OfflineClient, expression: str, kind: str, code: int
) -> None:
    assert check(client, expression, kind).code == code
    assert client.ask(RequestCode.CHECK_CLIENT_CONFIG, {}).code == ResponseCode.SUCCESS


async def test_check_client_config_refuses_sql_filters_if_they_are_disabled(
    open_broker: Callable[..., OfflineBroker],
) -> None:
    client = open_broker(enable_property_filter=False).connect()
    answer = check(client, "a > 1", "SQL92")
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "The broker does not support consumer to filter message by SQL92",
    )
    assert check(client, "A", "TAG").code == ResponseCode.SUCCESS


async def test_pulls_use_the_sql_filter_of_the_last_heartbeat(client: OfflineClient) -> None:
    client.send("t", b"one", size="1")
    client.send("t", b"two", size="2")

    def condition(expression: str, version: int) -> dict[str, Any]:
        return {**subscription(version=version), "subString": expression, "expressionType": "SQL92"}

    def pull(version: int) -> Answer:
        return client.pull("t", consumerGroup="g", sysFlag="0", subVersion=str(version))

    send_heartbeat(client, "one@x", condition("size > 1", 2))
    assert [message.body for message in pull(2).messages] == [b"two"]
    send_heartbeat(client, "one@x", condition("size < 2", 3))
    assert [message.body for message in pull(3).messages] == [b"one"]
    send_heartbeat(client, "one@x", condition("size <", 4))
    answer = pull(4)
    assert (answer.code, answer.remark) == (
        ResponseCode.FILTER_DATA_NOT_EXIST,
        "The broker's consumer filter data is not exist!Your expression may be wrong!",
    )


async def test_the_sql_filter_of_a_group_without_members_stays_in_effect(client: OfflineClient) -> None:
    condition = {**subscription(version=5), "subString": "a > 1", "expressionType": "SQL92"}
    send_heartbeat(client, "one@x", condition)
    client.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "one@x", "consumerGroup": "g"})
    client.send("t")
    send_heartbeat(client, "one@x", {**condition, "subVersion": 4})
    answer = client.pull("t", consumerGroup="g", sysFlag="0", subVersion="4")
    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY


QUEUES = [MessageQueue("t", "broker-a", queue_id) for queue_id in range(3)]


async def test_a_queue_is_locked_by_one_client_per_group() -> None:
    locks = QueueLocks()
    assert locks.lock("g", QUEUES[:2], "one") == QUEUES[:2]
    assert locks.lock("g", QUEUES, "two") == QUEUES[2:]
    assert locks.lock("g", QUEUES, "one") == QUEUES[:2]
    assert locks.lock("another group", QUEUES, "two") == QUEUES


async def test_only_the_client_with_the_lock_unlocks() -> None:
    locks = QueueLocks()
    locks.lock("g", QUEUES, "one")
    locks.unlock("g", QUEUES, "two")
    locks.unlock("h", QUEUES, "one")
    assert locks.lock("g", QUEUES, "two") == []
    locks.unlock("g", QUEUES[:1], "one")
    assert locks.lock("g", QUEUES, "two") == QUEUES[:1]


async def test_locks_expire_unless_renewed(autojump_clock: trio.testing.MockClock) -> None:
    locks = QueueLocks()
    locks.lock("g", QUEUES[:2], "one")
    await trio.sleep(LOCK_SECONDS - 1)
    locks.lock("g", QUEUES[:1], "one")
    await trio.sleep(2)
    assert locks.lock("g", QUEUES[:2], "two") == QUEUES[1:2]
    assert locks.is_orderly("g")
    await trio.sleep(LOCK_SECONDS + 1)
    assert not locks.is_orderly("g")
    assert not locks.is_orderly("another group")


async def test_lock_batch_mq_locks_queues(client: OfflineClient) -> None:
    queues = [{"topic": "t", "brokerName": "broker-a", "queueId": queue_id} for queue_id in range(2)]

    def ask(code: int, client_id: str) -> Answer:
        body = {"consumerGroup": "g", "clientId": client_id, "mqSet": queues}
        return client.ask(code, {}, json.dumps(body).encode())

    assert json.loads(ask(RequestCode.LOCK_BATCH_MQ, "one").body) == {"lockOKMQSet": queues}
    assert json.loads(ask(RequestCode.LOCK_BATCH_MQ, "two").body) == {"lockOKMQSet": []}
    assert ask(RequestCode.UNLOCK_BATCH_MQ, "one").code == ResponseCode.SUCCESS
    assert json.loads(ask(RequestCode.LOCK_BATCH_MQ, "two").body) == {"lockOKMQSet": queues}
