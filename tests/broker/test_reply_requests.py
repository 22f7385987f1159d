from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import trio
import trio.testing

from rocketmq_py.broker.sends.reply_requests import PUSH_SECONDS
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import Delivery, RequestTimeoutError
from rocketmq_py.properties import decode_properties
from tests.broker.offline import BROKER_ADDRESS, START_MS, Answer, OfflineBroker, OfflineClient

REPLIES = "DefaultCluster_REPLY_TOPIC"
ID = "7F00000100002A139A55000000000001"
COMMON_FIELDS = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
FIRST = {**COMMON_FIELDS, "msgId": "7F00000100002A9F0000000000000000", "queueId": "0", "queueOffset": "0"}
SENT = {"UNIQ_KEY": ID, "REPLY_TO_CLIENT": "c@1", "CORRELATION_ID": "7", "MSG_TYPE": "reply", "TTL": "3000"}


def heartbeat(client: OfflineClient, *groups: str, client_id: str = "c@1") -> None:
    body = {
        "clientID": client_id,
        "producerDataSet": [{"groupName": group} for group in groups],
        "consumerDataSet": [],
    }
    client.ask(RequestCode.HEART_BEAT, {}, json.dumps(body).encode())


def leave(client: OfflineClient, group: str) -> None:
    client.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "c@1", "producerGroup": group})


def reply(client: OfflineClient, body: bytes = b"reply", **changes: str) -> None:
    """Send a reply, which is answered when the requesting client has answered."""
    header = {
        "a": "repliers", "b": REPLIES, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "5", "h": "0",
        "j": "0", "k": "false", "i": "".join([f"{name}\x01{value}\x02" for name, value in SENT.items()]),
    }  # fmt: skip
    client.send_request(RequestCode.SEND_REPLY_MESSAGE_V2, header | changes, body)


@pytest.fixture
async def requester(broker: OfflineBroker) -> OfflineClient:
    """The client that waits for the reply to its request."""
    client = broker.connect()
    heartbeat(client, "requesters")
    client.answers.clear()
    return client


async def test_a_reply_is_forwarded_to_the_requesting_client(
    client: OfflineClient, requester: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    reply(client, b"packed", f="1", h="4", e="-1")
    assert client.answers == []
    (push,) = requester.requests
    fields = dict(push.fields)
    assert decode_properties(fields.pop("properties")) == {
        **SENT,
        **COMMON_FIELDS,
        "PUSH_REPLY_TIME": str(START_MS),
    }
    assert (push.code, push.body) == (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, b"packed")
    assert fields == {
        "producerGroup": "repliers", "topic": REPLIES, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
        "queueId": "-1", "sysFlag": "1", "bornTimestamp": "5", "flag": "4", "reconsumeTimes": "0",
        "unitMode": "false", "bornHost": client.address, "storeHost": BROKER_ADDRESS,
        "storeTimestamp": str(START_MS),
    }  # fmt: skip
    push.answer()
    assert client.answers == [Answer(1, ResponseCode.SUCCESS, FIRST, b"", None)]


async def test_a_reply_is_stored(client: OfflineClient, requester: OfflineClient) -> None:
    reply(client, f="1", h="4")
    assert client.pull(REPLIES).messages == []
    requester.requests[0].answer()
    (message,) = client.pull(REPLIES).messages
    assert message.properties == SENT | COMMON_FIELDS
    assert (message.flag, message.system_flag, message.born_host) == (4, 0, client.address)


async def test_store_reply_message_enable_false_does_not_store_replies(
    open_broker: Callable[..., OfflineBroker],
) -> None:
    broker = open_broker(store_reply_message_enable=False)
    client, requester = broker.connect(), broker.connect()
    heartbeat(requester, "requesters")
    reply(client)
    requester.requests[0].answer()
    assert client.answers[0].fields == {**COMMON_FIELDS, "msgId": "0", "queueId": "0", "queueOffset": "0"}
    assert client.pull(REPLIES).messages == []
    reply(client, i="")
    assert client.answers[-1].fields == COMMON_FIELDS


async def test_a_reply_that_is_too_large_to_store_is_forwarded(
    open_broker: Callable[..., OfflineBroker],
) -> None:
    broker = open_broker(max_message_size=10)
    client, requester = broker.connect(), broker.connect()
    heartbeat(requester, "requesters")
    reply(client, b"x" * 11)
    requester.requests[0].answer()
    (answer,) = client.answers
    assert (answer.code, answer.fields["msgId"]) == (ResponseCode.SUCCESS, "0")


async def test_a_reply_with_long_field_names_is_forwarded(
    client: OfflineClient, requester: OfflineClient
) -> None:
    fields = {
        "producerGroup": "repliers", "topic": REPLIES, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
        "queueId": "0", "sysFlag": "0", "bornTimestamp": "5", "flag": "0",
        "properties": "UNIQ_KEY\x01U\x02REPLY_TO_CLIENT\x01c@1\x02",
    }  # fmt: skip
    client.send_request(RequestCode.SEND_REPLY_MESSAGE, fields, b"long")
    requester.requests[0].answer()
    assert requester.requests[0].body == b"long"
    assert client.answers == [Answer(1, ResponseCode.SUCCESS, FIRST, b"", None)]


@pytest.mark.parametrize(
    ("properties", "remark"),
    [
        ("REPLY_TO_CLIENT\x01c@2\x02", "push reply message fail, channel of <c@2> not found."),
        ("UNIQ_KEY\x01U\x02", "reply message properties[REPLY_TO_CLIENT] is null"),
    ],
)
async def test_a_reply_without_a_connected_requester_is_stored_and_refused(
    client: OfflineClient, requester: OfflineClient, properties: str, remark: str
) -> None:
    reply(client, i=properties)
    assert client.answers == [Answer(1, ResponseCode.SYSTEM_ERROR, FIRST, b"", remark)]
    assert requester.requests == []
    assert len(client.pull(REPLIES).messages) == 1


NOT_CONFIRMED = "push reply message to c@1fail."


async def test_a_requester_that_refuses_the_reply(client: OfflineClient, requester: OfflineClient) -> None:
    reply(client)
    requester.requests[0].answer(ResponseCode.SYSTEM_ERROR)
    assert client.answers == [Answer(1, ResponseCode.SYSTEM_ERROR, FIRST, b"", NOT_CONFIRMED)]


async def test_a_requester_that_does_not_answer(
    client: OfflineClient, requester: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    reply(client)
    (push,) = requester.requests
    assert push.deadline == trio.current_time() + PUSH_SECONDS
    push.on_answer(RequestTimeoutError(requester.address, PUSH_SECONDS, Delivery.UNKNOWN))
    assert client.answers == [Answer(1, ResponseCode.SYSTEM_ERROR, FIRST, b"", NOT_CONFIRMED)]


async def test_a_requester_that_does_not_read(client: OfflineClient, requester: OfflineClient) -> None:
    requester.has_space = False
    reply(client)
    assert requester.requests == []
    assert client.answers == [Answer(1, ResponseCode.SYSTEM_ERROR, FIRST, b"", NOT_CONFIRMED)]


async def test_a_requester_whose_connection_is_closed(
    client: OfflineClient, requester: OfflineClient
) -> None:
    requester.is_closed = True
    reply(client)
    assert client.answers == [Answer(1, ResponseCode.SYSTEM_ERROR, FIRST, b"", NOT_CONFIRMED)]
    requester.close()
    reply(client)
    assert client.answers[1].remark == "push reply message fail, channel of <c@1> not found."


async def test_replies_are_validated_like_sends(client: OfflineClient, requester: OfflineClient) -> None:
    reply(client, b="a b")
    reply(client, b"")
    reply(client, e="1")
    assert [answer.code for answer in client.answers] == [
        ResponseCode.INVALID_PARAMETER,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.INVALID_PARAMETER,
    ]
    assert requester.requests == []


async def test_a_reply_goes_to_the_newest_connection_of_the_requester(
    broker: OfflineBroker, requester: OfflineClient
) -> None:
    client, again = broker.connect(), broker.connect()
    heartbeat(again, "requesters")
    requester.close()
    reply(client)
    assert len(again.requests) == 1


# Surprising, but the same as on real brokers.
async def test_a_client_that_leaves_a_group_is_not_found_until_it_joins_another(
    client: OfflineClient, requester: OfflineClient
) -> None:
    heartbeat(requester, "requesters", "others")
    leave(requester, "requesters")
    heartbeat(requester, "others")
    reply(client)
    assert client.answers[-1].remark == "push reply message fail, channel of <c@1> not found."
    heartbeat(requester, "others", "requesters")
    reply(client)
    assert len(requester.requests) == 1
