from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.protocol.batch import BatchedMessage
from rocketmq_py.protocol.stored_message import COMPRESSED_FLAG
from tests.broker.offline import START_MS, OfflineBroker, OfflineClient
from tests.protocol.encoding import encode_batch

COMMON_FIELDS = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


async def test_a_message_is_stored_with_the_properties_of_the_broker(client: OfflineClient) -> None:
    answer = client.send("t", b"hello", queue_id=2, TAGS="A", KEYS="k1 k2", h="7")
    assert answer.code == ResponseCode.SUCCESS
    assert answer.remark is None
    assert answer.fields == {
        **COMMON_FIELDS,
        "msgId": "7F00000100002A9F0000000000000000",
        "queueId": "2",
        "queueOffset": "0",
        "transactionId": "7F00000100002A139A55000000000001",
    }
    (message,) = client.pull("t", queueId="2").messages
    assert message.body == b"hello"
    assert message.flag == 7
    assert message.born_time_ms == 1690000000000
    assert message.born_host == client.address
    assert message.store_time_ms >= START_MS
    assert message.properties == {
        "UNIQ_KEY": "7F00000100002A139A55000000000001",
        "TAGS": "A",
        "KEYS": "k1 k2",
        "CLUSTER": "DefaultCluster",
        **COMMON_FIELDS,
    }


async def test_a_send_with_long_field_names(client: OfflineClient) -> None:
    fields = {
        "producerGroup": "g", "topic": "t", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
        "queueId": "1", "sysFlag": "0", "bornTimestamp": "5", "flag": "0", "properties": "UNIQ_KEY\x01U\x02",
        "reconsumeTimes": "0", "unitMode": "false", "batch": "false",
    }  # fmt: skip
    answer = client.ask(RequestCode.SEND_MESSAGE, fields, b"long")
    assert (answer.code, answer.fields["queueId"], answer.fields["transactionId"]) == (0, "1", "U")
    assert client.pull("t", queueId="1").messages[0].body == b"long"


async def test_each_message_gets_the_next_offset_and_its_own_id(client: OfflineClient) -> None:
    answers = [client.send("t") for _ in range(3)]
    assert [answer.fields["queueOffset"] for answer in answers] == ["0", "1", "2"]
    assert len({answer.fields["msgId"] for answer in answers}) == 3


async def test_a_message_without_a_unique_id_gets_one(client: OfflineClient) -> None:
    ids = {client.send("t", i="").fields["transactionId"] for _ in range(2)}
    assert len(ids) == 2
    assert {message.message_id for message in client.pull("t").messages} == ids


# The properties that are sent, and those that a real 5.5.0 broker stores.
@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("KEYS\x01\x02TAGS\x01T\x02x\x01y", {"TAGS": "T", "x": "y"}),
        ("a\x01b\x02a\x01c\x02MSG_REGION\x01other\x02CLUSTER\x01me\x02POP_CK\x01zz\x02", {"a": "c"}),
        ("nosep\x02=\x01", {}),
    ],
)
async def test_invalid_properties_are_dropped(client: OfflineClient, sent: str, kept: dict[str, str]) -> None:
    client.send("t", i="UNIQ_KEY\x01U\x02" + sent)
    (message,) = client.pull("t").messages
    assert message.properties == {"UNIQ_KEY": "U", "CLUSTER": "DefaultCluster", **COMMON_FIELDS, **kept}


async def test_a_compressed_body_is_stored_unchanged(client: OfflineClient) -> None:
    client.send("t", b"not really zlib", f=str(COMPRESSED_FLAG))
    answer = client.pull("t")
    assert b"not really zlib" in answer.body
    assert answer.messages[0].corruption is not None


# Topics


@pytest.mark.parametrize(("wanted", "queues"), [("4", 4), ("100", 8), ("1", 1)])
async def test_a_new_topic_gets_at_most_the_queues_of_the_default_topic(
    client: OfflineClient, broker: OfflineBroker, wanted: str, queues: int
) -> None:
    client.send("new", d=wanted)
    route = client.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "new"})
    assert f'"readQueueNums":{queues},"writeQueueNums":{queues},"perm":6'.encode() in route.body


async def test_auto_create_topic_enable_false_refuses_unknown_topics(
    open_broker: Callable[..., OfflineBroker],
) -> None:
    client = open_broker(auto_create_topic_enable=False).connect()
    answer = client.send("new")
    assert (answer.code, answer.remark) == (
        ResponseCode.TOPIC_NOT_EXIST,
        f"topic[new] not exist, apply first please!{FAQ}",
    )
    assert answer.fields == COMMON_FIELDS


@pytest.mark.parametrize(
    ("topic", "code", "remark"),
    [
        ("", ResponseCode.INVALID_PARAMETER, "The specified topic is blank."),
        (
            "a b",
            ResponseCode.INVALID_PARAMETER,
            "The specified topic: a b, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
        ),
        (
            "x" * 128,
            ResponseCode.INVALID_PARAMETER,
            f"The specified topic: {'x' * 128}, is longer than topic max length: 127",
        ),
        (
            "%RETRY%" + "x" * 250,
            ResponseCode.INVALID_PARAMETER,
            f"The specified topic is DLQ or Retry topic: %RETRY%{'x' * 250}, and it's longer than topic max "
            "length: 255",
        ),
        (
            "SCHEDULE_TOPIC_XXXX",
            ResponseCode.NO_PERMISSION,
            "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden.",
        ),
        (
            "OFFSET_MOVED_EVENT",
            ResponseCode.NO_PERMISSION,
            "Sending message to topic[OFFSET_MOVED_EVENT] is forbidden.",
        ),
    ],
)
async def test_invalid_topics_are_refused(client: OfflineClient, topic: str, code: int, remark: str) -> None:
    answer = client.send(topic)
    assert (answer.code, answer.remark, answer.fields) == (code, remark, COMMON_FIELDS)


async def test_an_unknown_queue_is_refused(client: OfflineClient) -> None:
    client.send("t")
    answer = client.send("t", queue_id=4)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert answer.remark == (
        "request queueId[4] is illegal, TopicConfig [topicName=t, readQueueNums=4, writeQueueNums=4, "
        "perm=RW-, topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false, attributes={}] "
        f"Producer: {client.address}"
    )


async def test_a_negative_queue_id_lets_the_broker_choose_the_queue(client: OfflineClient) -> None:
    chosen = {client.send("t", queue_id=-1).fields["queueId"] for _ in range(50)}
    assert chosen == {"0", "1", "2", "3"}


# Since 5.4.0 the priority of a message selects its queue.
@pytest.mark.parametrize(
    ("properties", "queue_id", "is_kept"),
    [
        ({"_SYS_MSG_PRIORITY_": "2"}, "2", True),
        ({"_SYS_MSG_PRIORITY_": "9"}, "3", True),
        ({"_SYS_MSG_PRIORITY_": "-1"}, "1", True),
        ({"_SYS_MSG_PRIORITY_": "high"}, "1", True),
        ({"_SYS_MSG_PRIORITY_": "2", "__SHARDINGKEY": "k"}, "1", False),
        ({"_SYS_MSG_PRIORITY_": "2", "DELAY": "0"}, "1", False),
        ({"_SYS_MSG_PRIORITY_": "2", "TIMER_DELIVER_MS": "5"}, "1", False),
    ],
)
async def test_a_priority_selects_the_queue(
    client: OfflineClient, properties: dict[str, Any], queue_id: str, is_kept: bool
) -> None:
    assert client.send("t", queue_id=1, **properties).fields["queueId"] == queue_id
    (message,) = client.pull("t", queueId=queue_id).messages
    assert ("_SYS_MSG_PRIORITY_" in message.properties) is is_kept


async def test_a_half_message_loses_its_priority(client: OfflineClient) -> None:
    answer = client.send("t", queue_id=1, _SYS_MSG_PRIORITY_="2", TRAN_MSG="true", PGROUP="p")
    assert answer.fields["queueId"] == "1"
    (half,) = client.pull("RMQ_SYS_TRANS_HALF_TOPIC").messages
    assert "_SYS_MSG_PRIORITY_" not in half.properties


# Permissions of the broker

ORDERED = {
    "topic": "ordered", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
    "topicFilterType": "SINGLE_TAG", "order": "true",
}  # fmt: skip


async def test_a_read_only_broker_refuses_sends_to_ordered_topics(
    open_broker: Callable[..., OfflineBroker],
) -> None:
    client = open_broker(broker_permission=4, broker_ip1="127.0.0.1").connect()
    client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ORDERED)
    route = client.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "ordered"})
    assert b'"perm":4' in route.body
    answer = client.send("ordered")
    assert (answer.code, answer.remark, answer.fields) == (
        ResponseCode.NO_PERMISSION,
        "the broker[127.0.0.1] sending message is forbidden",
        COMMON_FIELDS,
    )
    assert client.send("t").code == ResponseCode.SUCCESS, "on real brokers only the route prevents it"


async def test_a_write_only_broker_refuses_pulls(open_broker: Callable[..., OfflineBroker]) -> None:
    client = open_broker(broker_permission=2).connect()
    assert client.send("t").code == ResponseCode.SUCCESS
    answer = client.pull("t")
    assert (answer.code, answer.remark, answer.fields) == (
        ResponseCode.NO_PERMISSION,
        "the broker[127.0.0.1] pulling message is forbidden",
        {"forbiddenType": "1"},
    )


async def test_routes_contain_the_permissions_of_topics(client: OfflineClient) -> None:
    client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ORDERED | {"perm": "2"})
    for topic, perm in (("ordered", 2), ("TBW102", 7)):
        route = client.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        assert b'"perm":%d' % perm in route.body
    assert client.send("ordered").code == ResponseCode.SUCCESS


# Invalid messages

TOO_LARGE = (
    "the message is illegal, maybe msg body or properties length not matched. msg body length limit 10B, "
    "msg properties length limit 32KB."
)


async def test_the_sizes_of_body_and_properties_are_limited(
    open_broker: Callable[..., OfflineBroker],
) -> None:
    client = open_broker(max_message_size=10).connect()
    assert client.send("t", b"x" * 10).code == ResponseCode.SUCCESS
    answer = client.send("t", b"x" * 11)
    assert (answer.code, answer.remark, answer.fields) == (
        ResponseCode.MESSAGE_ILLEGAL,
        TOO_LARGE,
        COMMON_FIELDS,
    )
    assert client.send("t", a2="x" * 32_700).remark == TOO_LARGE
    assert client.send("t", a2="x" * 32_600).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"INNER_NUM": "2"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"f": str(0x80)}, ResponseCode.MESSAGE_ILLEGAL),
        ({"DELAY": "x"}, ResponseCode.SYSTEM_ERROR),
        ({"e": "zero"}, ResponseCode.SYSTEM_ERROR),
        ({"g": str(2**64)}, ResponseCode.MESSAGE_ILLEGAL),
    ],
)
async def test_an_invalid_message_is_refused(
    client: OfflineClient, changes: dict[str, Any], code: int
) -> None:
    assert client.send("t", **changes).code == code
    assert client.send("t").fields["queueOffset"] == "0"


async def test_a_message_without_a_body_or_a_field_is_refused(client: OfflineClient) -> None:
    assert client.send("t", b"").code == ResponseCode.SYSTEM_ERROR
    assert client.pull("t").code == ResponseCode.TOPIC_NOT_EXIST, "no topic is created for it"
    answer = client.ask(RequestCode.SEND_MESSAGE_V2, {"a": "g"}, b"x")
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "SendMessageRequestV2: field 'b' is missing",
    )


# Batches

BATCH = encode_batch(
    [
        BatchedMessage(0, b"b1", b"UNIQ_KEY\x01U1\x02TAGS\x01A\x02"),
        BatchedMessage(9, b"b2", b"UNIQ_KEY\x01U2\x02TAGS\x01B\x02"),
        BatchedMessage(0, b"b3", b""),
    ]
)


async def test_the_messages_of_a_batch_are_stored_individually(client: OfflineClient) -> None:
    client.send("t")
    answer = client.send("t", BATCH, m="true", i="UNIQ_KEY\x01U1,U2,U3\x02")
    assert answer.code == ResponseCode.SUCCESS
    messages = client.pull("t", 1).messages
    assert answer.fields == {
        **COMMON_FIELDS,
        "msgId": ",".join([message.offset_message_id for message in messages]),
        "queueId": "0",
        "queueOffset": "1",
        "transactionId": "U1,U2,U3",
    }
    assert [message.body for message in messages] == [b"b1", b"b2", b"b3"]
    assert [message.flag for message in messages] == [0, 9, 0]
    assert [message.tags for message in messages] == ["A", "B", ""]
    assert messages[2].properties == {}
    assert [message.body for message in client.pull("t", 1, subscription="B").messages] == [b"b2"]


async def test_a_batch_without_a_unique_id_gets_none(client: OfflineClient) -> None:
    assert "transactionId" not in client.send("t", BATCH, m="true", i="").fields


@pytest.mark.parametrize(
    ("topic", "body", "changes", "code"),
    [
        ("%RETRY%g", BATCH, {}, ResponseCode.MESSAGE_ILLEGAL),
        ("t", BATCH, {"DELAY": "1"}, ResponseCode.MESSAGE_ILLEGAL),
        ("t", BATCH, {"f": "4"}, ResponseCode.MESSAGE_ILLEGAL),
        ("t", BATCH[:-1], {}, ResponseCode.SYSTEM_ERROR),
        ("t", b"", {}, ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_invalid_batches_are_refused(
    client: OfflineClient, topic: str, body: bytes, changes: dict[str, Any], code: int
) -> None:
    client.send("t", queue_id=1)
    assert client.send(topic, body, m="true", **changes).code == code
    assert client.pull(topic).remark == "NO_MESSAGE_IN_QUEUE"


async def test_the_size_of_a_batch_is_limited(open_broker: Callable[..., OfflineBroker]) -> None:
    client = open_broker(max_message_size=len(BATCH) - 1).connect()
    answer = client.send("t", BATCH, m="true")
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "message body size exceeded")
