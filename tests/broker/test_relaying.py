from __future__ import annotations

import pytest
import trio
import trio.testing

from rocketmq_py.broker.relaying import RELAY_SECONDS
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import ConnectionLostError, Delivery, RequestTimeoutError
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import ConsumerOffsets
from rocketmq_py.protocol.command import RESPONSE_FLAG, Command
from tests.broker.offline import Answer, Asked, OfflineBroker, OfflineClient
from tests.broker.test_groups import send_heartbeat

QUEUE = MessageQueue("t", "broker-a", 0)


def answer(asked: Asked, body: bytes, code: int = ResponseCode.SUCCESS, remark: str | None = None) -> None:
    """Answer as the client that was asked."""
    asked.on_answer(Command(code, 0, RESPONSE_FLAG, {"x": "y"}, body, remark))


@pytest.fixture
async def member(broker: OfflineBroker) -> OfflineClient:
    member = broker.connect()
    send_heartbeat(member, "one@x")
    return member


def running_info_fields(client_id: str = "one@x") -> dict[str, str]:
    return {"consumerGroup": "g", "clientId": client_id, "jstackEnable": "true"}


async def test_a_consumer_is_asked_how_it_is_doing(client: OfflineClient, member: OfflineClient) -> None:
    client.hand_in(RequestCode.GET_CONSUMER_RUNNING_INFO, {**running_info_fields(), "Signature": "s"})
    (asked,) = member.asked
    assert (asked.code, asked.fields) == (RequestCode.GET_CONSUMER_RUNNING_INFO, running_info_fields())
    assert asked.deadline - trio.current_time() == pytest.approx(RELAY_SECONDS, abs=1)
    assert client.answers == []
    answer(asked, b"{}", remark="well")
    (relayed,) = client.answers
    assert (relayed.code, relayed.remark, relayed.body, relayed.fields) == (0, "well", b"{}", {"x": "y"})


async def test_a_consumer_is_handed_a_message(client: OfflineClient, member: OfflineClient) -> None:
    message_id = client.send("t", b"hello").fields["msgId"]
    fields = {"consumerGroup": "g", "clientId": "one@x", "msgId": message_id, "topic": "t", "brokerName": "x"}
    client.answers.clear()
    client.hand_in(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields)
    (asked,) = member.asked
    assert asked.fields == {**fields, "brokerName": "broker-a", "topicSysFlag": "0", "groupSysFlag": "0"}
    (message,) = Answer(0, 0, {}, asked.body, None).messages
    assert message.body == b"hello"
    answer(asked, b'{"consumeResult":"CR_SUCCESS"}')
    assert client.answers[0].body == b'{"consumeResult":"CR_SUCCESS"}'


@pytest.mark.parametrize("message_id", ["", "x", "7F00000100002A9F00000000000000FF"])
async def test_a_message_that_is_not_there(
    client: OfflineClient, member: OfflineClient, message_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    fields = {"consumerGroup": "g", "clientId": "one@x", "msgId": message_id}
    assert client.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields).code == ResponseCode.SYSTEM_ERROR
    assert (member.asked, caplog.records) == ([], [])


@pytest.mark.parametrize(("group", "client_id"), [("g", "two@x"), ("nope", "one@x")])
async def test_a_consumer_that_is_not_there(
    client: OfflineClient, member: OfflineClient, group: str, client_id: str
) -> None:
    fields = {**running_info_fields(client_id), "consumerGroup": group}
    refused = client.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
    assert (refused.code, refused.remark) == (
        ResponseCode.SYSTEM_ERROR,
        f"The Consumer <{group}> <{client_id}> not online",
    )


async def test_a_consumer_that_is_too_old(client: OfflineClient, broker: OfflineBroker) -> None:
    old = broker.connect()
    heartbeat = b'{"clientID":"old@x","consumerDataSet":[{"groupName":"g"}]}'
    old.ask(RequestCode.HEART_BEAT, {}, heartbeat, version=61)
    refused = client.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, running_info_fields("old@x"))
    assert (refused.code, "too low" in (refused.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)


async def test_a_consumer_that_does_not_answer(client: OfflineClient, member: OfflineClient) -> None:
    client.hand_in(RequestCode.GET_CONSUMER_RUNNING_INFO, running_info_fields())
    member.asked[0].on_answer(RequestTimeoutError("a:1", 10, Delivery.UNKNOWN))
    (relayed,) = client.answers
    assert relayed.code == ResponseCode.CONSUME_MSG_TIMEOUT
    assert (relayed.remark or "").startswith("consumer <g> <one@x> Timeout: ")


async def test_a_consumer_that_is_lost_meanwhile(client: OfflineClient, member: OfflineClient) -> None:
    client.hand_in(RequestCode.GET_CONSUMER_RUNNING_INFO, running_info_fields())
    member.asked[0].on_answer(ConnectionLostError("a:1", "gone", Delivery.UNKNOWN))
    (relayed,) = client.answers
    assert relayed.code == ResponseCode.SYSTEM_ERROR
    assert (relayed.remark or "").startswith("invoke consumer <g> <one@x> Exception: ")


async def test_a_consumer_that_reads_nothing(client: OfflineClient, member: OfflineClient) -> None:
    member.has_space = False
    relayed = client.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, running_info_fields())
    assert relayed.code == ResponseCode.SYSTEM_ERROR
    assert member.asked == []


# How far all members are


def ask_status(client: OfflineClient, **changes: str) -> None:
    fields = {"topic": "t", "group": "g", "clientAddr": "", **changes}
    client.hand_in(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, fields)


async def test_all_members_are_asked_how_far_they_are(
    client: OfflineClient, broker: OfflineBroker, member: OfflineClient
) -> None:
    other, silent = broker.connect(), broker.connect()
    send_heartbeat(other, "two@x")
    send_heartbeat(silent, "three@x")
    ask_status(client)
    for each in (member, other, silent):
        (asked,) = each.asked
        assert asked.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
        assert asked.fields == {"topic": "t", "group": "g"}
    answer(other.asked[0], ConsumerOffsets({QUEUE: 7}).encode())
    silent.asked[0].on_answer(RequestTimeoutError("a:1", 5, Delivery.UNKNOWN))
    assert client.answers == []
    answer(member.asked[0], ConsumerOffsets({QUEUE: 5}).encode())
    (relayed,) = client.answers
    assert (relayed.code, relayed.remark) == (ResponseCode.SUCCESS, "not set any response code")
    tables = ConsumerOffsets.decode(relayed.body).client_tables
    assert tables == {"one@x": {QUEUE: 5}, "two@x": {QUEUE: 7}}


async def test_one_member_can_be_asked(
    client: OfflineClient, broker: OfflineBroker, member: OfflineClient
) -> None:
    other = broker.connect()
    send_heartbeat(other, "two@x")
    ask_status(client, clientAddr="two@x")
    assert member.asked == []
    answer(other.asked[0], b"nonsense")
    assert ConsumerOffsets.decode(client.answers[0].body) == ConsumerOffsets()
    ask_status(client, clientAddr="nobody")
    assert ConsumerOffsets.decode(client.answers[1].body) == ConsumerOffsets()


async def test_one_client_may_be_there_twice(
    client: OfflineClient, broker: OfflineBroker, member: OfflineClient
) -> None:
    again = broker.connect()
    send_heartbeat(again, "one@x")
    ask_status(client)
    answer(member.asked[0], b"", ResponseCode.SYSTEM_ERROR)
    assert client.answers == []
    answer(again.asked[0], ConsumerOffsets({QUEUE: 5}).encode())
    (relayed,) = client.answers
    assert ConsumerOffsets.decode(relayed.body).client_tables == {"one@x": {QUEUE: 5}}


async def test_members_that_are_gone_are_not_waited_for(
    client: OfflineClient, broker: OfflineBroker, member: OfflineClient
) -> None:
    member.is_closed = True
    ask_status(client)
    assert ConsumerOffsets.decode(client.answers[0].body) == ConsumerOffsets()


async def test_a_group_without_members(client: OfflineClient) -> None:
    ask_status(client)
    (refused,) = client.answers
    assert (refused.code, refused.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "No Any Consumer online in the consumer group: [g]",
    )
