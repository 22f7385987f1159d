from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from rocketmq_py.codes import RequestCode, ResponseCode
from tests.broker.offline import Answer, OfflineBroker, OfflineClient

NOTICE = (RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"})
FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


def subscription(topic: str = "t", expression: str = "*", version: int = 1) -> dict[str, Any]:
    tags = [] if expression == "*" else [expression]
    return {
        "topic": topic, "subString": expression, "tagsSet": tags, "codeSet": [ord(tag) for tag in tags],
        "subVersion": version, "expressionType": "TAG", "classFilterMode": False,
    }  # fmt: skip


def beat(
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


def taken(client: OfflineClient) -> list[tuple[int, dict[str, str]]]:
    notices, client.notices = client.notices, []
    return notices


async def test_a_heartbeat_makes_a_member(client: OfflineClient) -> None:
    answer = client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"})
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "no consumer for this group, g")
    answer = beat(client, "one@x")
    assert answer.code == ResponseCode.SUCCESS
    assert answer.fields == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
    assert members(client) == ["one@x"]


async def test_members_are_told_of_changes(client: OfflineClient, broker: OfflineBroker) -> None:
    other = broker.connect()
    beat(client, "one@x")
    assert taken(client) == [NOTICE]
    beat(client, "one@x")
    assert taken(client) == []
    beat(other, "two@x")
    assert (taken(client), taken(other)) == ([NOTICE], [NOTICE])
    beat(client, "one@x", subscription(expression="A", version=2))
    assert (taken(client), taken(other)) == ([], [])
    beat(client, "one@x", subscription(), subscription("another"))
    assert (taken(client), taken(other)) == ([NOTICE], [NOTICE])


async def test_those_who_stay_are_told_who_leaves(client: OfflineClient, broker: OfflineBroker) -> None:
    others = [broker.connect(), broker.connect()]
    beat(client, "one@x")
    beat(others[0], "two@x")
    beat(others[1], "three@x")
    taken(client)
    answer = others[0].ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "two@x", "consumerGroup": "g"})
    assert answer.code == ResponseCode.SUCCESS
    assert taken(client) == [NOTICE]
    assert members(client) == ["one@x", "three@x"]
    others[1].close()
    assert taken(client) == [NOTICE]
    assert members(client) == ["one@x"]
    client.close()
    assert members(broker.connect()) == []


async def test_a_stranger_leaving_is_announced_too(client: OfflineClient, broker: OfflineBroker) -> None:
    beat(client, "one@x")
    taken(client)
    stranger = broker.connect()
    stranger.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "zz", "consumerGroup": "g"})
    assert taken(client) == [NOTICE]
    assert members(client) == ["one@x"]


async def test_broadcasting_members_are_told_nothing(client: OfflineClient, broker: OfflineBroker) -> None:
    beat(client, "one@x", model="BROADCASTING")
    beat(broker.connect(), "two@x", model="BROADCASTING")
    assert taken(client) == []


async def test_silent_clients_are_dropped(
    client: OfflineClient, broker: OfflineBroker, autojump_clock: trio.testing.MockClock
) -> None:
    silent = broker.connect()
    beat(client, "one@x")
    beat(silent, "two@x")
    producing = broker.connect()
    heartbeat = {"clientID": "p@x", "producerDataSet": [{"groupName": "p"}], "consumerDataSet": []}
    producing.ask(RequestCode.HEART_BEAT, {}, json.dumps(heartbeat).encode())
    for _ in range(4):
        await trio.sleep(28)
        beat(client, "one@x")
    assert not silent.is_closed
    taken(client)
    await trio.sleep(20)
    assert (client.is_closed, silent.is_closed, producing.is_closed) == (False, True, True)
    assert taken(client) == [NOTICE]
    assert members(client) == ["one@x"]


async def test_a_group_gets_its_retry_topic(client: OfflineClient) -> None:
    beat(client, "one@x")
    answer = client.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "%RETRY%g"})
    assert b'"readQueueNums":1,"writeQueueNums":1,"perm":6' in answer.body


async def test_pulls_go_by_what_heartbeats_subscribed(client: OfflineClient) -> None:
    client.send("t", b"a", TAGS="A")
    client.send("t", b"b", TAGS="B")
    client.send("u")
    beat(client, "one@x", subscription(expression="B", version=2))

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
    beat(client, "one@x", subscription(expression="A", version=1))
    assert [message.body for message in pull().messages] == [b"b"], "an older version does not count"


async def test_a_group_may_be_kept_from_broadcasting(client: OfflineClient) -> None:
    client.send("t")
    group = {"groupName": "g", "consumeBroadcastEnable": False}
    client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, json.dumps(group).encode())
    beat(client, "one@x", model="BROADCASTING")
    answer = client.pull("t", consumerGroup="g", sysFlag="0")
    assert (answer.code, answer.remark, answer.fields) == (
        ResponseCode.NO_PERMISSION,
        "the consumer group[g] can not consume by broadcast way",
        {"forbiddenType": "4"},
    )


async def test_heartbeats_with_fingerprints(client: OfflineClient) -> None:
    def changed(*subscriptions: dict[str, Any], **changes: Any) -> str:
        return beat(client, "one@x", *subscriptions, **changes).fields["IS_SUB_CHANGE"]

    assert changed(subscription("u"), heartbeatFingerprint=5) == "false"
    assert changed(heartbeatFingerprint=5, withoutSub=True) == "false"
    assert client.notices == [NOTICE]
    assert changed(heartbeatFingerprint=6) == "true"


async def test_unknown_groups_are_passed_over_where_none_are_made(
    open_broker: Callable[..., OfflineBroker],
) -> None:
    client = open_broker(auto_create_subscription_group=False).connect()
    assert beat(client, "one@x").code == ResponseCode.SUCCESS
    assert members(client) == []


async def test_the_members_and_subscriptions_of_a_group_can_be_seen(client: OfflineClient) -> None:
    beat(client, "one@x", subscription(expression="A", version=2))
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
async def test_a_subscription_can_be_checked(
    client: OfflineClient, expression: str, kind: str, code: int
) -> None:
    assert check(client, expression, kind).code == code
    assert client.ask(RequestCode.CHECK_CLIENT_CONFIG, {}).code == ResponseCode.SUCCESS


async def test_no_condition_is_taken_where_none_is_evaluated(
    open_broker: Callable[..., OfflineBroker],
) -> None:
    client = open_broker(enable_property_filter=False).connect()
    answer = check(client, "a > 1", "SQL92")
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "The broker does not support consumer to filter message by SQL92",
    )
    assert check(client, "A", "TAG").code == ResponseCode.SUCCESS


async def test_pulls_go_by_the_conditions_of_heartbeats(client: OfflineClient) -> None:
    client.send("t", b"one", size="1")
    client.send("t", b"two", size="2")

    def condition(expression: str, version: int) -> dict[str, Any]:
        return {**subscription(version=version), "subString": expression, "expressionType": "SQL92"}

    def pull(version: int) -> Answer:
        return client.pull("t", consumerGroup="g", sysFlag="0", subVersion=str(version))

    beat(client, "one@x", condition("size > 1", 2))
    assert [message.body for message in pull(2).messages] == [b"two"]
    beat(client, "one@x", condition("size < 2", 3))
    assert [message.body for message in pull(3).messages] == [b"one"]
    beat(client, "one@x", condition("size <", 4))
    answer = pull(4)
    assert (answer.code, answer.remark) == (
        ResponseCode.FILTER_DATA_NOT_EXIST,
        "The broker's consumer filter data is not exist!Your expression may be wrong!",
    )


async def test_a_condition_of_a_group_that_is_gone_still_counts(client: OfflineClient) -> None:
    condition = {**subscription(version=5), "subString": "a > 1", "expressionType": "SQL92"}
    beat(client, "one@x", condition)
    client.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "one@x", "consumerGroup": "g"})
    client.send("t")
    beat(client, "one@x", {**condition, "subVersion": 4})
    answer = client.pull("t", consumerGroup="g", sysFlag="0", subVersion="4")
    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
