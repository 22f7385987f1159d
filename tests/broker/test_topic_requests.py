from __future__ import annotations

import json

import pytest

from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import TopicStats
from tests.broker.offline import Answer, OfflineClient


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


async def test_a_topic_may_have_more_write_queues_than_read_queues(client: OfflineClient) -> None:
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
async def test_changes_of_system_topics_are_refused(client: OfflineClient, topic: str, remark: str) -> None:
    for answer in (create(client, topic), client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})):
        assert (answer.code, answer.remark) == (ResponseCode.INVALID_PARAMETER, remark)


async def test_attributes_of_a_topic_can_be_changed(client: OfflineClient) -> None:
    def attributes() -> object:
        answer = client.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "t"})
        return json.loads(answer.body)["attributes"]

    create(client, attributes="+message.type=FIFO,+reserve.time=7")
    assert attributes() == {"message.type": "FIFO", "reserve.time": "7"}
    create(client, attributes="-reserve.time,+message.type=NORMAL")
    assert attributes() == {"message.type": "NORMAL"}
    for invalid in (
        "-reserve.time", "a=b", "+a", "-message.type=x", "-message.type,+message.type=FIFO",
        "+message.type=FIFO,,+reserve.time=7",
    ):  # fmt: skip
        assert create(client, attributes=invalid).code == ResponseCode.SYSTEM_ERROR
    assert attributes() == {"message.type": "NORMAL"}


async def test_get_topic_config_returns_the_settings(client: OfflineClient) -> None:
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
async def test_the_number_of_queues_of_a_topic_is_limited(client: OfflineClient, name: str) -> None:
    answer = create(client, **{name: "2147483647"})
    assert (answer.code, answer.remark) == (
        ResponseCode.INVALID_PARAMETER,
        "The topic[t] would have 2147483647 queues; this broker lets it have 65536.",
    )
    assert route(client).code == ResponseCode.TOPIC_NOT_EXIST
    assert create(client, **{name: "65536"}).code == ResponseCode.SUCCESS


async def test_deleting_a_topic_deletes_its_messages_and_offsets(client: OfflineClient) -> None:
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


async def test_topic_stats_contain_the_offsets_of_all_queues(client: OfflineClient) -> None:
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
