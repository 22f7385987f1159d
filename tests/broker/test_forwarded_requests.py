from __future__ import annotations

import pytest
import trio
import trio.testing

from rocketmq_py.broker.forwarded_requests import FORWARD_SECONDS
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import ConnectionLostError, Delivery, RequestTimeoutError
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import ConsumerOffsets
from rocketmq_py.protocol.command import RESPONSE_FLAG, Command
from tests.broker.offline import Answer, ClientRequest, OfflineBroker, OfflineClient
from tests.broker.test_groups import send_heartbeat

QUEUE = MessageQueue("t", "broker-a", 0)


def answer(
    request: ClientRequest, body: bytes, code: int = ResponseCode.SUCCESS, remark: str | None = None
) -> None:
    """Answer a request in place of the client."""
    request.on_answer(Command(code, 0, RESPONSE_FLAG, {"x": "y"}, body, remark))


@pytest.fixture
async def member(broker: OfflineBroker) -> OfflineClient:
    member = broker.connect()
    send_heartbeat(member, "one@x")
    return member


def running_info_fields(client_id: str = "one@x") -> dict[str, str]:
    return {"consumerGroup": "g", "clientId": client_id, "jstackEnable": "true"}


async def test_running_info_comes_from_the_consumer(client: OfflineClient, member: OfflineClient) -> None:
    client.send_request(RequestCode.GET_CONSUMER_RUNNING_INFO, {**running_info_fields(), "Signature": "s"})
    (sent,) = member.requests
    assert (sent.code, sent.fields) == (RequestCode.GET_CONSUMER_RUNNING_INFO, running_info_fields())
    assert sent.deadline - trio.current_time() == pytest.approx(FORWARD_SECONDS, abs=1)
    assert client.answers == []
    answer(sent, b"{}", remark="well")
    (forwarded,) = client.answers
    assert (forwarded.code, forwarded.remark, forwarded.body, forwarded.fields) == (
        0,
        "well",
        b"{}",
        {"x": "y"},
    )


async def test_consume_directly_sends_the_message_to_the_consumer(
    client: OfflineClient, member: OfflineClient
) -> None:
    message_id = client.send("t", b"hello").fields["msgId"]
    fields = {"consumerGroup": "g", "clientId": "one@x", "msgId": message_id, "topic": "t", "brokerName": "x"}
    client.answers.clear()
    client.send_request(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields)
    (sent,) = member.requests
    assert sent.fields == {**fields, "brokerName": "broker-a", "topicSysFlag": "0", "groupSysFlag": "0"}
    (message,) = Answer(0, 0, {}, sent.body, None).messages
    assert message.body == b"hello"
    answer(sent, b'{"consumeResult":"CR_SUCCESS"}')
    assert client.answers[0].body == b'{"consumeResult":"CR_SUCCESS"}'


@pytest.mark.parametrize("message_id", ["", "x", "7F00000100002A9F00000000000000FF"])
async def test_consume_directly_refuses_an_unknown_message(
    client: OfflineClient, member: OfflineClient, message_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    fields = {"consumerGroup": "g", "clientId": "one@x", "msgId": message_id}
    assert client.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields).code == ResponseCode.SYSTEM_ERROR
    assert (member.requests, caplog.records) == ([], [])


@pytest.mark.parametrize(("group", "client_id"), [("g", "two@x"), ("nope", "one@x")])
async def test_a_request_for_an_unknown_consumer_is_refused(
    client: OfflineClient, member: OfflineClient, group: str, client_id: str
) -> None:
    fields = {**running_info_fields(client_id), "consumerGroup": group}
    refused = client.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
    assert (refused.code, refused.remark) == (
        ResponseCode.SYSTEM_ERROR,
        f"The Consumer <{group}> <{client_id}> not online",
    )


async def test_a_request_for_an_old_consumer_is_refused(client: OfflineClient, broker: OfflineBroker) -> None:
    old = broker.connect()
    heartbeat = b'{"clientID":"old@x","consumerDataSet":[{"groupName":"g"}]}'
    old.ask(RequestCode.HEART_BEAT, {}, heartbeat, version=61)
    refused = client.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, running_info_fields("old@x"))
    assert (refused.code, "too low" in (refused.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)


async def test_a_timeout_of_the_consumer_is_answered_with_its_error(
    client: OfflineClient, member: OfflineClient
) -> None:
    client.send_request(RequestCode.GET_CONSUMER_RUNNING_INFO, running_info_fields())
    member.requests[0].on_answer(RequestTimeoutError("a:1", 10, Delivery.UNKNOWN))
    (forwarded,) = client.answers
    assert forwarded.code == ResponseCode.CONSUME_MSG_TIMEOUT
    assert (forwarded.remark or "").startswith("consumer <g> <one@x> Timeout: ")


async def test_a_lost_connection_to_the_consumer_is_answered_with_its_error(
    client: OfflineClient, member: OfflineClient
) -> None:
    client.send_request(RequestCode.GET_CONSUMER_RUNNING_INFO, running_info_fields())
    member.requests[0].on_answer(ConnectionLostError("a:1", "gone", Delivery.UNKNOWN))
    (forwarded,) = client.answers
    assert forwarded.code == ResponseCode.SYSTEM_ERROR
    assert (forwarded.remark or "").startswith("invoke consumer <g> <one@x> Exception: ")


async def test_a_request_is_not_sent_to_a_consumer_that_does_not_read(
    client: OfflineClient, member: OfflineClient
) -> None:
    member.has_space = False
    forwarded = client.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, running_info_fields())
    assert forwarded.code == ResponseCode.SYSTEM_ERROR
    assert member.requests == []


# Status of all members


def ask_status(client: OfflineClient, **changes: str) -> None:
    fields = {"topic": "t", "group": "g", "clientAddr": "", **changes}
    client.send_request(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, fields)


async def test_status_collects_the_offsets_of_all_members(
    client: OfflineClient, broker: OfflineBroker, member: OfflineClient
) -> None:
    other, silent = broker.connect(), broker.connect()
    send_heartbeat(other, "two@x")
    send_heartbeat(silent, "three@x")
    ask_status(client)
    for each in (member, other, silent):
        (sent,) = each.requests
        assert sent.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
        assert sent.fields == {"topic": "t", "group": "g"}
    answer(other.requests[0], ConsumerOffsets({QUEUE: 7}).encode())
    silent.requests[0].on_answer(RequestTimeoutError("a:1", 5, Delivery.UNKNOWN))
    assert client.answers == []
    answer(member.requests[0], ConsumerOffsets({QUEUE: 5}).encode())
    (forwarded,) = client.answers
    assert (forwarded.code, forwarded.remark) == (ResponseCode.SUCCESS, "not set any response code")
    tables = ConsumerOffsets.decode(forwarded.body).client_tables
    assert tables == {"one@x": {QUEUE: 5}, "two@x": {QUEUE: 7}}


async def test_status_of_a_single_member(
    client: OfflineClient, broker: OfflineBroker, member: OfflineClient
) -> None:
    other = broker.connect()
    send_heartbeat(other, "two@x")
    ask_status(client, clientAddr="two@x")
    assert member.requests == []
    answer(other.requests[0], b"nonsense")
    assert ConsumerOffsets.decode(client.answers[0].body) == ConsumerOffsets()
    ask_status(client, clientAddr="unknown@x")
    assert ConsumerOffsets.decode(client.answers[1].body) == ConsumerOffsets()


async def test_status_waits_for_both_connections_of_a_client(
    client: OfflineClient, broker: OfflineBroker, member: OfflineClient
) -> None:
    again = broker.connect()
    send_heartbeat(again, "one@x")
    ask_status(client)
    answer(member.requests[0], b"", ResponseCode.SYSTEM_ERROR)
    assert client.answers == []
    answer(again.requests[0], ConsumerOffsets({QUEUE: 5}).encode())
    (forwarded,) = client.answers
    assert ConsumerOffsets.decode(forwarded.body).client_tables == {"one@x": {QUEUE: 5}}


async def test_status_does_not_wait_for_closed_connections(
    client: OfflineClient, broker: OfflineBroker, member: OfflineClient
) -> None:
    member.is_closed = True
    ask_status(client)
    assert ConsumerOffsets.decode(client.answers[0].body) == ConsumerOffsets()


async def test_status_of_a_group_without_members_is_refused(client: OfflineClient) -> None:
    ask_status(client)
    (refused,) = client.answers
    assert (refused.code, refused.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "No Any Consumer online in the consumer group: [g]",
    )
