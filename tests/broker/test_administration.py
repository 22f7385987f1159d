from __future__ import annotations

import json

import pytest

from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol import fastjson
from rocketmq_py.protocol.bodies import ConsumeStats, TopicStats
from tests.broker.offline import BROKER_ADDRESS, Answer, OfflineClient


def create(client: OfflineClient, topic: str = "t", **changes: str) -> Answer:
    fields = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "3", "perm": "6",
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false", **changes,
    }  # fmt: skip
    return client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)


def route(client: OfflineClient, topic: str = "t") -> Answer:
    return client.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})


async def test_a_topic_is_created_and_changed(client: OfflineClient) -> None:
    answer = create(client)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "not set any response code")
    assert b'"readQueueNums":2,"writeQueueNums":3,"perm":6' in route(client).body
    create(client, perm="2")
    answer = client.pull("t")
    assert (answer.code, answer.remark, answer.fields) == (
        ResponseCode.NO_PERMISSION,
        "the topic[t] pulling message is forbidden",
        {"forbiddenType": "3"},
    )


async def test_a_queue_may_be_written_before_it_may_be_read(client: OfflineClient) -> None:
    create(client)
    assert client.send("t", queue_id=2).code == ResponseCode.SUCCESS
    assert client.send("t", queue_id=3).code == ResponseCode.INVALID_PARAMETER
    assert client.pull("t", queueId="2").code == ResponseCode.INVALID_PARAMETER


@pytest.mark.parametrize(
    ("topic", "remark"),
    [
        ("TBW102", "The topic[TBW102] is conflict with system topic."),
        ("DefaultCluster", "The topic[DefaultCluster] is conflict with system topic."),
        ("rmq_sys_x", "The topic[rmq_sys_x] is conflict with system topic."),
        ("", "The specified topic is blank."),
    ],
)
async def test_system_topics_stay_as_they_are(client: OfflineClient, topic: str, remark: str) -> None:
    for answer in (create(client, topic), client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})):
        assert (answer.code, answer.remark) == (ResponseCode.INVALID_PARAMETER, remark)


async def test_a_topic_has_attributes(client: OfflineClient) -> None:
    def attributes() -> object:
        answer = client.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "t"})
        return json.loads(answer.body)["attributes"]

    create(client, attributes="+message.type=FIFO,+reserve.time=7")
    assert attributes() == {"message.type": "FIFO", "reserve.time": "7"}
    create(client, attributes="-reserve.time,+message.type=NORMAL")
    assert attributes() == {"message.type": "NORMAL"}
    for wrong in ("-reserve.time", "a=b", "+a", "-message.type=x"):
        assert create(client, attributes=wrong).code == ResponseCode.SYSTEM_ERROR
    assert attributes() == {"message.type": "NORMAL"}


async def test_a_topics_settings_can_be_seen(client: OfflineClient) -> None:
    create(client)
    answer = client.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "t"})
    assert json.loads(answer.body) == {
        "topicName": "t", "readQueueNums": 2, "writeQueueNums": 3, "perm": 6, "topicSysFlag": 0,
        "topicFilterType": "SINGLE_TAG", "order": False, "attributes": {},
    }  # fmt: skip
    answer = client.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "u"})
    assert (answer.code, answer.remark) == (
        ResponseCode.TOPIC_NOT_EXIST,
        "No topic in this broker. topic: u",
    )


@pytest.mark.parametrize("name", ["readQueueNums", "writeQueueNums"])
async def test_a_topic_has_a_bounded_number_of_queues(client: OfflineClient, name: str) -> None:
    answer = create(client, **{name: "2147483647"})
    assert (answer.code, answer.remark) == (
        ResponseCode.INVALID_PARAMETER,
        "The topic[t] would have 2147483647 queues; this broker lets it have 65536.",
    )
    assert route(client).code == ResponseCode.TOPIC_NOT_EXIST
    assert create(client, **{name: "65536"}).code == ResponseCode.SUCCESS


async def test_a_retry_topic_has_a_bounded_number_of_queues(client: OfflineClient) -> None:
    body = {"groupName": "g", "retryQueueNums": 65537}
    answer = client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, json.dumps(body).encode())
    assert (answer.code, answer.remark) == (
        ResponseCode.INVALID_PARAMETER,
        "The retry topic of group[g] would have 65537 queues; this broker lets it have 65536.",
    )


async def test_a_deleted_topic_is_gone(client: OfflineClient) -> None:
    client.send("t")
    offset = {"consumerGroup": "readers", "topic": "t", "queueId": "0"}
    client.pull("t", 1, sysFlag="5", commitOffset="1")
    assert client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"}).code == ResponseCode.SUCCESS
    assert client.pull("t").code == ResponseCode.TOPIC_NOT_EXIST
    assert client.ask(RequestCode.GET_MAX_OFFSET, {"topic": "t", "queueId": "0"}).fields == {"offset": "0"}
    assert client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"}).code == ResponseCode.SUCCESS
    client.send("t")
    assert client.ask(RequestCode.QUERY_CONSUMER_OFFSET, offset).fields == {"offset": "0"}
    assert client.pull("t").fields["maxOffset"] == "1"


async def test_the_offsets_of_a_topic(client: OfflineClient) -> None:
    create(client)
    client.send("t", queue_id=2)
    answer = client.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "t"})
    table = TopicStats.decode(answer.body).offset_table
    assert {queue.queue_id: (offset.min_offset, offset.max_offset) for queue, offset in table.items()} == {
        0: (0, 0),
        1: (0, 0),
        2: (0, 1),
    }
    assert table[MessageQueue("t", "broker-a", 2)].last_update_timestamp > 0
    assert table[MessageQueue("t", "broker-a", 0)].last_update_timestamp == 0
    answer = client.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "u"})
    assert (answer.code, answer.remark) == (ResponseCode.TOPIC_NOT_EXIST, "topic[u] not exist")


async def test_how_far_a_group_has_come(client: OfflineClient) -> None:
    for _ in range(3):
        client.send("t")
    client.send("u")
    client.pull("t", 1, sysFlag="5", commitOffset="1", maxMsgNums="1")

    def stats(**changes: str) -> dict[tuple[str, int], tuple[int, int, int]]:
        answer = client.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "readers", **changes})
        table = ConsumeStats.decode(answer.body).offset_table
        return {
            (queue.topic, queue.queue_id): (offset.broker_offset, offset.consumer_offset, offset.pull_offset)
            for queue, offset in table.items()
        }

    expected = {("t", queue_id): (0, 0, 0) for queue_id in range(4)} | {("t", 0): (3, 1, 2)}
    assert stats() == stats(topic="t") == stats(topicList="t;unknown") == expected
    assert stats(topic="u")[("u", 0)] == (1, 0, 0)
    assert stats(consumerGroup="nobody") == {}


async def test_how_far_all_groups_have_come(client: OfflineClient) -> None:
    create(client, "ordered", order="true")
    for topic in ("t", "ordered"):
        client.send(topic)
        client.pull(topic, 0)
        offset = {"consumerGroup": "readers", "topic": topic, "queueId": "0", "commitOffset": "0"}
        client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, offset)

    def stats(**fields: str) -> tuple[list[str], int]:
        members = fastjson.loads(client.ask(RequestCode.GET_BROKER_CONSUME_STATS, fields).body)
        assert isinstance(members, dict)
        assert members["brokerAddr"] == BROKER_ADDRESS
        by_group = {group: some for one in members["consumeStatsList"] for group, some in one.items()}
        assert by_group["TOOLS_CONSUMER"] == []
        topics = {dict(queue)["topic"] for one in by_group["readers"] for queue in one["offsetTable"]}
        return sorted(topics), members["totalDiff"]

    assert stats(isOrder="false") == (["ordered", "t"], 2)
    assert stats(isOrder="true") == (["ordered"], 1)


async def test_members_in_a_language_that_is_not_known(client: OfflineClient) -> None:
    heartbeat = {"clientID": "c", "consumerDataSet": [{"groupName": "g"}]}
    client.ask(RequestCode.HEART_BEAT, {}, json.dumps(heartbeat).encode(), language=77)
    answer = client.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "g"})
    (connection,) = json.loads(answer.body)["connectionSet"]
    assert connection["language"] == "OTHER"


async def test_queues_are_locked(client: OfflineClient) -> None:
    queues = [{"topic": "t", "brokerName": "broker-a", "queueId": queue_id} for queue_id in range(2)]

    def ask(code: int, client_id: str) -> Answer:
        body = {"consumerGroup": "g", "clientId": client_id, "mqSet": queues}
        return client.ask(code, {}, json.dumps(body).encode())

    assert json.loads(ask(RequestCode.LOCK_BATCH_MQ, "one").body) == {"lockOKMQSet": queues}
    assert json.loads(ask(RequestCode.LOCK_BATCH_MQ, "two").body) == {"lockOKMQSet": []}
    assert ask(RequestCode.UNLOCK_BATCH_MQ, "one").code == ResponseCode.SUCCESS
    assert json.loads(ask(RequestCode.LOCK_BATCH_MQ, "two").body) == {"lockOKMQSet": queues}


async def test_a_groups_name_is_checked(client: OfflineClient) -> None:
    answer = client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, b'{"groupName":"a b"}')
    assert (answer.code, answer.remark) == (
        ResponseCode.INVALID_PARAMETER,
        "The specified group: a b, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
    )
    answer = client.ask(
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, json.dumps({"groupName": "g" * 121}).encode()
    )
    assert answer.code == ResponseCode.INVALID_PARAMETER
