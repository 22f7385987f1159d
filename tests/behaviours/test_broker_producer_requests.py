"""Answers of brokers to the requests of producers."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from rocketmq_py import Client, ReceivedMessage
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.properties import decode_properties, encode_properties
from rocketmq_py.protocol.batch import BatchedMessage
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.handles import RecallHandle
from rocketmq_py.protocol.headers import (
    CheckTransactionStateRequest,
    EndTransactionRequest,
    PullMessageRequest,
    RecallMessageRequest,
    SendMessageAnswer,
    SendMessageRequestV2,
    UnregisterClientRequest,
)
from rocketmq_py.protocol.message_id import OffsetMessageId
from rocketmq_py.protocol.stored_message import decode_messages
from tests.behaviours.conftest import ClusterUnderTest
from tests.behaviours.peers import Peer, open_peer
from tests.behaviours.reading import PATIENCE, read_all
from tests.protocol.encoding import encode_batch

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
COMMIT, ROLLBACK = 8, 12
COMMON_FIELDS = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
TOO_FAR = (
    "timer message illegal, the delay time should not be bigger than the max delay 259200000ms; or if set "
    "del msg, the delay time should be bigger than the current time"
)


@pytest.fixture
async def peer(client: Client) -> AsyncIterator[Peer]:
    async with open_peer(client) as peer:
        yield peer


@pytest.fixture
def is_4(cluster: ClusterUnderTest) -> bool:
    return cluster.name.startswith("4.")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def new_id() -> str:
    return f"7F00000100002A139A55{time.time_ns() % 2**48:012X}"


async def send(
    peer: Peer, topic: str, properties: dict[str, str], body: bytes = b"hello", **header: Any
) -> Command:
    properties = {"UNIQ_KEY": new_id()} | properties
    code = header.pop("code", None)
    fields: dict[str, Any] = {
        "producer_group": "producers",
        "topic": topic,
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 0,
        "sys_flag": 0,
        "born_timestamp": now_ms(),
        "flag": 0,
        "properties": encode_properties(properties),
        "reconsume_times": 0,
    }
    return await peer.ask(SendMessageRequestV2(**(fields | header)), body, code=code)


async def join(peer: Peer, client_id: str, *groups: str) -> None:
    heartbeat = {
        "clientID": client_id,
        "producerDataSet": [{"groupName": group} for group in groups],
        "consumerDataSet": [],
    }
    answer = await peer.send(RequestCode.HEART_BEAT, {}, json.dumps(heartbeat).encode())
    assert answer.code == ResponseCode.SUCCESS


def refusal(answer: Command) -> tuple[int, str | None]:
    return answer.code, answer.remark


# Transactions


async def send_half(peer: Peer, topic: str, group: str, **header: Any) -> Command:
    properties = {"TRAN_MSG": "true", "PGROUP": group, "TAGS": "A"}
    return await send(peer, topic, properties, b"half", **{"sys_flag": 4, "flag": 7, **header})


async def end(peer: Peer, half: Command, outcome: int, group: str, **changes: int) -> Command:
    sent = SendMessageAnswer.from_fields(half.fields)
    offsets: dict[str, Any] = {
        "tran_state_table_offset": sent.queue_offset,
        "commit_log_offset": OffsetMessageId.parse(sent.msg_id).commit_log_offset,
    }
    return await peer.ask(
        EndTransactionRequest(
            producer_group=group, commit_or_rollback=outcome, msg_id="", **{**offsets, **changes}
        )
    )


async def pull_until(peer: Peer, topic: str, offset: int) -> ReceivedMessage:
    """Wait for the message at an offset of queue 0."""
    request = PullMessageRequest(
        consumer_group="TOOLS_CONSUMER",
        topic=topic,
        queue_id=0,
        queue_offset=offset,
        max_msg_nums=1,
        sys_flag=4,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
        subscription="*",
    )
    with trio.fail_after(PATIENCE):
        while True:
            answer = await peer.ask(request)
            if answer.code == ResponseCode.SUCCESS:
                return decode_messages(answer.body, peer.broker_name)[0]
            await trio.sleep(0.02)


async def test_a_commit_delivers_the_half_message(
    client: Client, peer: Peer, topic: str, unique: str, is_4: bool
) -> None:
    answer = await send_half(peer, topic, unique, queue_id=2)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    assert {name: answer.fields[name] for name in COMMON_FIELDS} == COMMON_FIELDS
    sent = SendMessageAnswer.from_fields(answer.fields)
    assert sent.queue_id == 2
    half = await pull_until(peer, HALF_TOPIC, sent.queue_offset)
    expected = {"UNIQ_KEY": half.message_id, "TRAN_MSG": "true", "PGROUP": unique, "TAGS": "A"}
    expected["CLUSTER"] = "DefaultCluster"
    real = {"REAL_TOPIC": topic, "REAL_QID": "2"}
    if not is_4:
        expected |= COMMON_FIELDS | {"__transactionId__": half.message_id}
        assert sent.transaction_id == half.message_id
    assert half.properties == expected | real
    assert (half.flag, half.system_flag, half.prepared_transaction_offset) == (7, 0, 0)

    assert refusal(await end(peer, answer, COMMIT, unique)) == (ResponseCode.SUCCESS, None)
    (message,) = await read_all(client, topic, count=1)
    assert message.properties == (expected | real if is_4 else expected)
    assert (message.body, message.queue_id, message.flag, message.system_flag) == (b"half", 2, 7, 8)
    assert message.prepared_transaction_offset == half.commit_log_offset
    assert (message.born_time_ms, message.born_host) == (half.born_time_ms, half.born_host)


async def test_an_end_that_does_not_match_the_half_message_is_refused(
    client: Client, peer: Peer, topic: str, unique: str
) -> None:
    half = await send_half(peer, topic, unique)
    for outcome in (COMMIT, ROLLBACK):
        answers = [
            await end(peer, half, outcome, "another"),
            await end(peer, half, outcome, unique, tran_state_table_offset=2**40),
            await end(peer, half, outcome, unique, commit_log_offset=2**40),
        ]
        assert [refusal(answer) for answer in answers] == [
            (ResponseCode.SYSTEM_ERROR, "The producer group wrong"),
            (ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong"),
            (ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed"),
        ]
    answer = await end(peer, half, 5, unique)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "commitOrRollback field wrong" in (answer.remark or "")
    # The half message is still open. A broker does not check whether a half message has ended.
    outcomes = [await end(peer, half, outcome, unique) for outcome in (COMMIT, ROLLBACK, COMMIT)]
    assert [refusal(answer) for answer in outcomes] == [
        (ResponseCode.SUCCESS, None),
        (ResponseCode.SUCCESS, "not set any response code"),
        (ResponseCode.SUCCESS, None),
    ]
    assert [message.body for message in await read_all(client, topic, count=2)] == [b"half", b"half"]


async def test_a_check_contains_the_offset_of_a_copy_of_the_half_message(
    client: Client, peer: Peer, topic: str, unique: str, is_4: bool
) -> None:
    await join(peer, f"{unique}@1", unique)
    answer = await send_half(peer, topic, unique, queue_id=1)
    sent = SendMessageAnswer.from_fields(answer.fields)
    request = await peer.until_asked(RequestCode.CHECK_TRANSACTION_STATE)
    assert request.is_oneway
    check = CheckTransactionStateRequest.from_fields(request.fields)
    (message,) = decode_messages(request.body, peer.broker_name)
    assert (check.topic, check.broker_name) == ((None, None) if is_4 else (HALF_TOPIC, peer.broker_name))
    assert check.msg_id == check.transaction_id == message.message_id
    assert check.tran_state_table_offset == message.queue_offset > sent.queue_offset
    assert check.commit_log_offset == message.commit_log_offset
    assert check.offset_msg_id == message.offset_message_id != sent.msg_id
    assert (message.topic, message.queue_id, message.body, message.flag) == (topic, 1, b"half", 7)
    assert message.properties.items() >= {
        ("REAL_TOPIC", topic),
        ("REAL_QID", "1"),
        ("TRANSACTION_CHECK_TIMES", "1"),
        ("WAIT", "false"),
    }
    copy = await pull_until(peer, HALF_TOPIC, check.tran_state_table_offset)
    assert copy.properties == {name: value for name, value in message.properties.items() if name != "WAIT"}
    assert (copy.commit_log_offset, copy.flag) == (check.commit_log_offset, 0)
    end_fields = EndTransactionRequest(
        producer_group=unique,
        tran_state_table_offset=check.tran_state_table_offset,
        commit_log_offset=check.commit_log_offset,
        commit_or_rollback=COMMIT,
        from_transaction_check=True,
        msg_id=message.message_id,
    )
    assert (await peer.ask(end_fields)).code == ResponseCode.SUCCESS
    (committed,) = await read_all(client, topic, count=1)
    assert committed.properties["TRANSACTION_CHECK_TIMES"] == "1"
    assert committed.prepared_transaction_offset == check.commit_log_offset


# Timed messages


async def test_a_timed_message_is_delivered_at_its_time_and_can_be_recalled(
    client: Client, peer: Peer, topic: str, is_4: bool
) -> None:
    due_ms = now_ms() + 5000
    slot_ms = (due_ms - 1) // 1000 * 1000
    properties = {"UNIQ_KEY": new_id(), "TIMER_DELIVER_MS": str(due_ms)}
    answer = await send(peer, topic, properties, queue_id=1)
    assert answer.code == ResponseCode.SUCCESS
    (message,) = await read_all(client, topic, count=1)
    if is_4:
        assert "recallHandle" not in answer.fields
        assert message.store_time_ms < due_ms, "4.x does not support delivery times"
        return
    handle = RecallHandle(topic, peer.broker_name, str(slot_ms + 1), properties["UNIQ_KEY"])
    assert answer.fields["recallHandle"] == handle.encode()
    assert message.store_time_ms >= due_ms
    assert message.queue_id == 1
    times = {name: message.properties[name] for name in ("TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS")}
    assert message.properties == {
        **properties,
        **COMMON_FIELDS,
        **times,
        "CLUSTER": "DefaultCluster",
        "REAL_TOPIC": topic,
        "REAL_QID": "1",
        "TIMER_OUT_MS": str(slot_ms),
    }


async def test_invalid_delivery_times_are_refused(client: Client, peer: Peer, topic: str, is_4: bool) -> None:
    for timer in ({"TIMER_DELAY_SEC": "259201"}, {"TIMER_DELAY_MS": "soon"}):
        answer = await send(peer, topic, timer)
        if is_4:
            assert answer.code == ResponseCode.SUCCESS
        else:
            assert refusal(answer) == (ResponseCode.MESSAGE_ILLEGAL, TOO_FAR)
            assert answer.fields == COMMON_FIELDS
    for timer in ({"TIMER_DELAY_SEC": "-1"}, {"TIMER_DELIVER_MS": "5"}):
        answer = await send(peer, topic, timer)
        assert answer.code == ResponseCode.SUCCESS
        assert "recallHandle" not in answer.fields
    assert len(await read_all(client, topic, count=4 if is_4 else 2)) == (4 if is_4 else 2)


async def test_recalls_are_validated(peer: Peer, topic: str, is_4: bool) -> None:
    def handle(due_ms: int, *, topic: str = topic, broker: str = peer.broker_name) -> str:
        return RecallHandle(topic, broker, str(due_ms), "7F00").encode()

    async def recall(handle: str, topic: str = topic) -> tuple[int, str | None]:
        answer = await peer.ask(RecallMessageRequest(topic=topic, recall_handle=handle))
        if not is_4:
            assert answer.fields["MSG_REGION"] == "DefaultRegion"
        return refusal(answer)

    soon = now_ms() + 60_000
    if is_4:
        refused = (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, " request type 370 not supported")
        assert await recall(handle(soon)) == refused
        return
    illegal = ResponseCode.ILLEGAL_OPERATION
    assert await recall(handle(soon)) == (ResponseCode.SUCCESS, "not set any response code")
    assert await recall("nonsense") == (illegal, "recall handle is invalid")
    assert await recall(handle(soon), "TBW102") == (illegal, "recall failed, topic not match")
    assert await recall(handle(soon), "nowhere") == (
        ResponseCode.TOPIC_NOT_EXIST,
        "recall failed, the topic[nowhere] not exist",
    )
    assert await recall(handle(soon, broker="another")) == (
        illegal,
        "recall failed, broker service not available",
    )
    for due_ms in (1, now_ms() + 259_260_000):
        assert await recall(handle(due_ms)) == (illegal, "recall failed, timestamp invalid")


# Replies

REPLIES = "DefaultCluster_REPLY_TOPIC"


async def reply(peer: Peer, client_id: str | None, body: bytes = b"reply", **header: Any) -> Command:
    properties = {"CORRELATION_ID": "7", "MSG_TYPE": "reply", "TTL": "3000"}
    if client_id is not None:
        properties["REPLY_TO_CLIENT"] = client_id
    return await send(peer, REPLIES, properties, body, code=RequestCode.SEND_REPLY_MESSAGE_V2, **header)


async def test_a_reply_is_forwarded_and_stored(peer: Peer, unique: str, is_4: bool) -> None:
    client_id = f"{unique}@1"
    await join(peer, client_id, unique)
    peer.bodies[RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT] = lambda _: b""
    answer = await reply(peer, client_id, sys_flag=1, flag=4)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    (push,) = peer.asked(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)
    assert (push.body, push.is_oneway) == (b"reply", False)
    assert push.fields.items() >= {
        ("producerGroup", "producers"),
        ("topic", REPLIES),
        ("queueId", "0"),
        ("sysFlag", "1"),
        ("flag", "4"),
        ("reconsumeTimes", "0"),
        ("unitMode", "false"),
        ("storeHost", peer.address),
    }
    properties = decode_properties(push.fields["properties"])
    assert abs(int(properties.pop("PUSH_REPLY_TIME")) - now_ms()) < 60_000
    assert abs(int(push.fields["storeTimestamp"]) - now_ms()) < 60_000
    stored_reply = await pull_until(peer, REPLIES, int(answer.fields["queueOffset"]))
    assert stored_reply.properties == properties
    assert properties.items() >= {("CORRELATION_ID", "7"), ("MSG_TYPE", "reply"), ("TTL", "3000")}
    assert ("MSG_REGION" in properties) is not is_4
    assert (stored_reply.offset_message_id, stored_reply.flag, stored_reply.system_flag) == (
        answer.fields["msgId"],
        4,
        0,
    )
    assert push.fields["bornHost"] == stored_reply.born_host


async def test_replies_without_a_connected_requester_are_refused_and_stored(peer: Peer, unique: str) -> None:
    await join(peer, f"{unique}@1", unique)
    answers = [
        await reply(peer, None),
        await reply(peer, f"{unique}@2"),
        await reply(peer, f"{unique}@1"),  # this peer refuses it
    ]
    assert [refusal(answer) for answer in answers] == [
        (ResponseCode.SYSTEM_ERROR, "reply message properties[REPLY_TO_CLIENT] is null"),
        (ResponseCode.SYSTEM_ERROR, f"push reply message fail, channel of <{unique}@2> not found."),
        (ResponseCode.SYSTEM_ERROR, f"push reply message to {unique}@1fail."),
    ]
    for answer in answers:
        assert answer.fields.keys() == {*COMMON_FIELDS, "msgId", "queueId", "queueOffset"}, "they are stored"


async def test_a_client_that_leaves_a_group_is_not_found_until_it_joins_another(
    peer: Peer, unique: str
) -> None:
    client_id = f"{unique}@1"
    peer.bodies[RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT] = lambda _: b""
    await join(peer, client_id, f"{unique}-a", f"{unique}-b")
    assert (await reply(peer, client_id)).code == ResponseCode.SUCCESS
    await peer.ask(UnregisterClientRequest(client_id=client_id, producer_group=f"{unique}-a"))
    await join(peer, client_id, f"{unique}-b")
    assert (await reply(peer, client_id)).code == ResponseCode.SYSTEM_ERROR
    await join(peer, client_id, f"{unique}-b", f"{unique}-a")
    assert (await reply(peer, client_id)).code == ResponseCode.SUCCESS


# Batches

BATCH = encode_batch(
    [
        BatchedMessage(0, b"b1", b"UNIQ_KEY\x01U1\x02TAGS\x01A\x02"),
        BatchedMessage(9, b"b2", b"UNIQ_KEY\x01U2\x02TAGS\x01B\x02x\x01y\x02"),
        BatchedMessage(0, b"b3", b""),
    ]
)
TOO_LARGE = (
    "the message is illegal, maybe msg body or properties length not matched. msg body length limit "
    "4194304B, msg properties length limit 32KB."
)


async def test_the_messages_of_a_batch_are_stored_individually(
    client: Client, peer: Peer, topic: str, is_4: bool
) -> None:
    outer = {"UNIQ_KEY": "U1,U2,U3", "WAIT": "false", "z": "of the batch"}
    answer = await send(peer, topic, outer, BATCH, batch=True, code=RequestCode.SEND_BATCH_MESSAGE)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    messages = await read_all(client, topic, count=3)
    assert answer.fields["msgId"].split(",") == [message.offset_message_id for message in messages]
    assert answer.fields["queueOffset"] == "0"
    assert answer.fields.get("transactionId") == (None if is_4 else "U1,U2,U3")
    assert [(message.body, message.flag) for message in messages] == [(b"b1", 0), (b"b2", 9), (b"b3", 0)]
    properties = [dict(message.properties) for message in messages]
    if is_4:  # each message gets the properties of the batch
        assert [own["z"] for own in properties] == ["of the batch"] * 3
    else:
        assert properties == [{"UNIQ_KEY": "U1", "TAGS": "A"}, {"UNIQ_KEY": "U2", "TAGS": "B", "x": "y"}, {}]


async def test_invalid_batches_are_refused(client: Client, peer: Peer, topic: str, is_4: bool) -> None:
    limit = 4 * 1024 * 1024
    overhead = len(encode_batch([BatchedMessage(0, b"", b"")]))
    largest = encode_batch([BatchedMessage(0, b"x" * (limit - overhead), b"")])
    assert (await send(peer, topic, {}, largest, batch=True)).code == ResponseCode.SUCCESS
    answer = await send(peer, topic, {}, largest + BATCH, batch=True)
    if is_4:
        assert refusal(answer) == (ResponseCode.MESSAGE_ILLEGAL, TOO_LARGE)
    else:
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "message body size exceeded" in (answer.remark or "")
    illegal = (ResponseCode.MESSAGE_ILLEGAL, TOO_LARGE)
    assert refusal(await send(peer, topic, {"DELAY": "1"}, BATCH, batch=True)) == illegal
    assert refusal(await send(peer, topic, {}, BATCH, batch=True, sys_flag=4)) == illegal
    assert (await send(peer, topic, {}, BATCH[:-1], batch=True)).code == ResponseCode.SYSTEM_ERROR
    assert (await send(peer, topic, {}, b"", batch=True)).code == ResponseCode.SYSTEM_ERROR
    if not is_4:
        assert refusal(await send(peer, "%RETRY%" + topic, {}, BATCH, batch=True)) == (
            ResponseCode.MESSAGE_ILLEGAL,
            f"batch request does not support retry group %RETRY%{topic}",
        )
    (stored,) = await read_all(client, topic, count=1)
    assert len(stored.body) == limit - overhead


# Other messages


async def test_a_priority_selects_the_queue(peer: Peer, topic: str, is_4: bool) -> None:
    properties = [
        {"_SYS_MSG_PRIORITY_": "2"},
        {"_SYS_MSG_PRIORITY_": "9"},
        {"_SYS_MSG_PRIORITY_": "none"},
        {"_SYS_MSG_PRIORITY_": "2", "__SHARDINGKEY": "k"},
    ]
    answers = [await send(peer, topic, each, queue_id=1) for each in properties]
    queue_ids = [answer.fields["queueId"] for answer in answers]
    assert queue_ids == (["1"] * 4 if is_4 else ["2", "3", "1", "1"])


async def test_a_message_with_only_the_system_flag_of_a_half_message_is_never_delivered(
    client: Client, peer: Peer, topic: str
) -> None:
    for flag in (4, 12):
        answer = await send(peer, topic, {}, b"never delivered", sys_flag=flag)
        assert (answer.code, answer.fields["queueOffset"]) == (ResponseCode.SUCCESS, "0")
    assert (await send(peer, topic, {}, b"delivered", sys_flag=8)).fields["queueOffset"] == "0"
    assert [message.body for message in await read_all(client, topic, count=1)] == [b"delivered"]
