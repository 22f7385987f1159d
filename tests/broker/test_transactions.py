from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from rocketmq_py.broker.sends.transactions import RESERVED_MS
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.message import ReceivedMessage
from rocketmq_py.protocol.headers import CheckTransactionStateRequest
from rocketmq_py.protocol.stored_message import decode_messages
from tests.broker.offline import START_MS, Answer, OfflineBroker, OfflineClient

ID = "7F00000100002A139A55000000000001"
COMMON_FIELDS = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
COMMIT, ROLLBACK, UNKNOWN = "8", "12", "0"
CHECK_SOON = {"transaction_time_out": 2, "transaction_check_interval": 2}
"""Settings with which a half message is checked after four seconds, and then every two seconds."""

SENT = {"UNIQ_KEY": ID, "TRAN_MSG": "true", "PGROUP": "p", "TAGS": "A"}
HALF = SENT | COMMON_FIELDS | {"CLUSTER": "DefaultCluster", "__transactionId__": ID}


def send_half(client: OfflineClient, body: bytes = b"half", **changes: Any) -> Answer:
    return client.send("t", body, **{"f": "4", "g": str(START_MS), **SENT, **changes})


def end_fields(sent: Answer, outcome: str, **changes: str) -> dict[str, str]:
    return {
        "producerGroup": "p",
        "tranStateTableOffset": sent.fields["queueOffset"],
        "commitLogOffset": str(int(sent.fields["msgId"][16:], 16)),
        "commitOrRollback": outcome,
        "fromTransactionCheck": "false",
        "msgId": ID,
        "transactionId": ID,
    } | changes


def end(client: OfflineClient, sent: Answer, outcome: str, **changes: str) -> Answer:
    return client.ask(RequestCode.END_TRANSACTION, end_fields(sent, outcome, **changes))


def join(client: OfflineClient, group: str = "p", client_id: str = "c@1") -> None:
    heartbeat = {
        "clientID": client_id,
        "producerDataSet": [{"groupName": group}],
        "consumerDataSet": [],
    }
    client.ask(RequestCode.HEART_BEAT, {}, json.dumps(heartbeat).encode())


def checks(client: OfflineClient) -> list[tuple[CheckTransactionStateRequest, ReceivedMessage]]:
    """Return the checks that a client has received, and clear them."""
    received = []
    for (code, fields), body in zip(client.notices, client.notice_bodies, strict=True):
        assert code == RequestCode.CHECK_TRANSACTION_STATE
        (message,) = decode_messages(body, "broker-a")
        received.append((CheckTransactionStateRequest.from_fields(fields), message))
    client.notices.clear()
    client.notice_bodies.clear()
    return received


def bodies(client: OfflineClient, topic: str = "t", **changes: str) -> list[bytes]:
    return [message.body for message in client.pull(topic, **changes).messages]


# The end of a transaction


async def test_a_half_message_is_stored_in_the_half_topic(client: OfflineClient) -> None:
    answer = send_half(client, queue_id=2, h="7")
    assert answer.code == ResponseCode.SUCCESS
    assert answer.fields == {
        **COMMON_FIELDS,
        "msgId": "7F00000100002A9F0000000000000000",
        "queueId": "2",
        "queueOffset": "0",
        "transactionId": ID,
    }
    assert bodies(client, queueId="2") == []
    (half,) = client.pull(HALF_TOPIC).messages
    assert half.properties == HALF | {"REAL_TOPIC": "t", "REAL_QID": "2"}
    assert (half.flag, half.system_flag, half.prepared_transaction_offset) == (7, 0, 0)


async def test_a_commit_delivers_the_message(client: OfflineClient) -> None:
    client.send("t")
    half = send_half(client, queue_id=2, h="7")
    answer = end(client, half, COMMIT)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    (message,) = client.pull("t", queueId="2", subscription="A").messages
    assert message.properties == HALF
    assert message.body == b"half"
    assert (message.flag, message.system_flag, message.born_time_ms) == (7, 8, START_MS)
    assert message.prepared_transaction_offset == int(half.fields["msgId"][16:], 16) > 0


async def test_a_rollback_delivers_no_message(client: OfflineClient) -> None:
    answer = end(client, send_half(client), ROLLBACK)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "not set any response code")
    assert bodies(client) == []


async def test_an_unknown_outcome_is_not_answered(client: OfflineClient) -> None:
    half = send_half(client)
    client.send_request(RequestCode.END_TRANSACTION, end_fields(half, UNKNOWN))
    assert len(client.answers) == 1
    assert end(client, half, COMMIT).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({"producerGroup": "q"}, "The producer group wrong"),
        ({"tranStateTableOffset": "1"}, "The transaction state table offset wrong"),
        ({"commitLogOffset": "1"}, "Find prepared transaction message failed"),
        ({"commitLogOffset": "-1"}, "Find prepared transaction message failed"),
        ({"commitOrRollback": "5"}, "commitOrRollback field wrong: 5"),
    ],
)
@pytest.mark.parametrize("outcome", [COMMIT, ROLLBACK])
async def test_an_end_that_does_not_match_the_half_message_is_refused(
    client: OfflineClient, outcome: str, changes: dict[str, str], remark: str
) -> None:
    answer = end(client, send_half(client), outcome, **changes)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
    assert bodies(client) == []


@pytest.mark.parametrize("changes", [{"TRAN_MSG": "false", "f": "0"}, {"PGROUP": ""}])
async def test_the_end_of_a_message_that_is_not_a_half_message_is_refused(
    client: OfflineClient, changes: dict[str, Any]
) -> None:
    answer = end(client, send_half(client, **changes), COMMIT)
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "Find prepared transaction message failed",
    )


async def test_a_second_commit_delivers_the_message_again(client: OfflineClient) -> None:
    half = send_half(client)
    assert [end(client, half, COMMIT).code for _ in range(2)] == [0, 0]
    assert bodies(client) == [b"half", b"half"]


async def test_the_property_marks_a_half_message_not_the_system_flag(client: OfflineClient) -> None:
    assert end(client, send_half(client, b"1", f="0", TRAN_MSG="TRUE"), COMMIT).code == 0
    for flag in ("4", "12"):
        answer = client.send("t", b"never delivered", f=flag)
        assert (answer.code, answer.fields["queueOffset"]) == (ResponseCode.SUCCESS, "0")
    client.send("t", b"2", f="8")
    assert bodies(client) == [b"1", b"2"]


async def test_a_delayed_retry_is_not_a_half_message(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    send_half(client, f="0", j="1", DELAY="1")
    await trio.sleep(1.1)
    assert bodies(client) == [b"half"]


async def test_reject_transaction_message_refuses_half_messages(
    open_broker: Callable[..., OfflineBroker],
) -> None:
    client = open_broker(reject_transaction_message=True).connect()
    answer = send_half(client)
    assert (answer.code, answer.remark, answer.fields) == (
        ResponseCode.NO_PERMISSION,
        "the broker[127.0.0.1] sending transaction message is forbidden",
        COMMON_FIELDS,
    )
    assert client.send("t").code == ResponseCode.SUCCESS


# Checks of open transactions


async def test_an_open_transaction_is_checked(
    open_broker: Callable[..., OfflineBroker], autojump_clock: trio.testing.MockClock
) -> None:
    client = open_broker(**CHECK_SOON).connect()
    join(client)
    send_half(client, queue_id=1, h="7")
    await trio.sleep(3.9)
    assert checks(client) == []
    await trio.sleep(0.2)
    ((check, message),) = checks(client)
    copy_offset = int(check.offset_msg_id[16:], 16) if check.offset_msg_id else 0
    assert check == CheckTransactionStateRequest(
        topic=HALF_TOPIC,
        tran_state_table_offset=1,
        commit_log_offset=copy_offset,
        msg_id=ID,
        transaction_id=ID,
        offset_msg_id=f"7F00000100002A9F{copy_offset:016X}",
        broker_name="broker-a",
    )
    assert copy_offset > 0
    checked = HALF | {"REAL_TOPIC": "t", "REAL_QID": "1", "TRANSACTION_CHECK_TIMES": "1"}
    assert message.properties == checked | {"WAIT": "false"}
    assert (message.topic, message.queue_id, message.queue_offset) == ("t", 1, 1)
    assert (message.commit_log_offset, message.store_time_ms) == (copy_offset, START_MS)
    assert (message.body, message.flag, message.born_host) == (b"half", 7, client.address)
    assert message.store_host == "127.0.0.1:10911"
    (copy,) = client.pull(HALF_TOPIC, 1).messages
    assert copy.properties == checked
    assert copy.flag == 0, "Java's copy loses the flag, too"

    fields = {
        "producerGroup": "p",
        "tranStateTableOffset": "1",
        "commitLogOffset": str(copy_offset),
        "commitOrRollback": COMMIT,
        "fromTransactionCheck": "true",
        "msgId": ID,
    }
    assert client.ask(RequestCode.END_TRANSACTION, fields).code == ResponseCode.SUCCESS
    (committed,) = client.pull("t", queueId="1").messages
    assert committed.properties == HALF | {"TRANSACTION_CHECK_TIMES": "1"}
    await trio.sleep(20)
    assert checks(client) == []


@pytest.mark.parametrize("outcome", [COMMIT, ROLLBACK])
async def test_an_ended_transaction_is_not_checked(
    open_broker: Callable[..., OfflineBroker], autojump_clock: trio.testing.MockClock, outcome: str
) -> None:
    client = open_broker(**CHECK_SOON).connect()
    join(client)
    halves = [send_half(client) for _ in range(4)]
    for half in halves[1:]:
        end(client, half, outcome)
    await trio.sleep(4.1)
    assert len(checks(client)) == 1
    await trio.sleep(2)
    assert [check.tran_state_table_offset for check, _ in checks(client)] == [5]


async def test_a_half_message_is_discarded_after_the_maximum_number_of_checks(
    open_broker: Callable[..., OfflineBroker], autojump_clock: trio.testing.MockClock
) -> None:
    client = open_broker(**CHECK_SOON, transaction_check_max=3).connect()
    join(client)
    send_half(client, queue_id=1)
    await trio.sleep(60)
    times = [message.properties["TRANSACTION_CHECK_TIMES"] for _, message in checks(client)]
    assert times == ["1", "2", "3"]
    (discarded,) = client.pull("TRANS_CHECK_MAX_TIME_TOPIC").messages
    assert discarded.properties == HALF | {
        "REAL_TOPIC": "t",
        "REAL_QID": "1",
        "TRANSACTION_CHECK_TIMES": "3",
    }
    assert bodies(client, queueId="1") == []


async def test_an_old_half_message_is_discarded_without_a_check(
    open_broker: Callable[..., OfflineBroker], autojump_clock: trio.testing.MockClock
) -> None:
    client = open_broker(**CHECK_SOON).connect()
    join(client)
    send_half(client, g=str(START_MS - RESERVED_MS))
    await trio.sleep(3)
    assert checks(client) == []
    assert bodies(client, "TRANS_CHECK_MAX_TIME_TOPIC") == [b"half"]


async def test_a_half_message_from_the_future_is_checked_at_once(
    open_broker: Callable[..., OfflineBroker], autojump_clock: trio.testing.MockClock
) -> None:
    client = open_broker(**CHECK_SOON).connect()
    join(client)
    send_half(client, g=str(START_MS + 3_600_000))
    await trio.sleep(2.1)
    assert len(checks(client)) == 1


async def test_an_immunity_time_delays_the_first_check(
    open_broker: Callable[..., OfflineBroker], autojump_clock: trio.testing.MockClock
) -> None:
    client = open_broker(**CHECK_SOON).connect()
    join(client)
    send_half(client, CHECK_IMMUNITY_TIME_IN_SECONDS="7")
    await trio.sleep(7.9)
    assert checks(client) == []
    await trio.sleep(0.2)
    ((_, message),) = checks(client)
    assert message.properties["TRANSACTION_CHECK_TIMES"] == "4", "three scans were within the immunity time"
    assert message.properties["TRAN_PREPARED_QUEUE_OFFSET"] == "0"
    copies = client.pull(HALF_TOPIC, 1).messages
    assert [copy.properties["TRANSACTION_CHECK_TIMES"] for copy in copies] == ["1", "2", "3", "4"]
    assert {copy.properties["TRAN_PREPARED_QUEUE_OFFSET"] for copy in copies} == {"0"}


@pytest.mark.parametrize(("immunity", "checked_at"), [("-1", 4), ("soon", 4), ("1", 2), ("0", 2)])
async def test_an_invalid_or_short_immunity_time(
    open_broker: Callable[..., OfflineBroker],
    autojump_clock: trio.testing.MockClock,
    immunity: str,
    checked_at: int,
) -> None:
    client = open_broker(**CHECK_SOON).connect()
    join(client)
    send_half(client, CHECK_IMMUNITY_TIME_IN_SECONDS=immunity)
    await trio.sleep(checked_at - 0.1)
    assert checks(client) == []
    await trio.sleep(0.2)
    assert len(checks(client)) == 1


async def test_an_end_after_the_immunity_time_is_refused_until_the_check(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    half = send_half(client, CHECK_IMMUNITY_TIME_IN_SECONDS="7")
    await trio.sleep(7.1)
    answer = end(client, half, COMMIT)
    assert (answer.code, answer.remark) == (
        ResponseCode.ILLEGAL_OPERATION,
        "not set any response code",
    )
    assert end(client, half, COMMIT, fromTransactionCheck="true").code == ResponseCode.SUCCESS


async def test_the_immunity_time_is_at_least_the_transaction_timeout(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    half = send_half(client, CHECK_IMMUNITY_TIME_IN_SECONDS="1")
    await trio.sleep(5.9)
    assert end(client, half, COMMIT).code == ResponseCode.SUCCESS


async def test_checks_rotate_among_the_members_of_the_group(
    open_broker: Callable[..., OfflineBroker], autojump_clock: trio.testing.MockClock
) -> None:
    broker = open_broker(**CHECK_SOON)
    clients = [broker.connect() for _ in range(5)]
    for number, client in enumerate(clients):
        join(client, "p" if number else "another", f"c@{number}")
    clients[3].has_space = False
    clients[4].close()
    send_half(clients[0])
    await trio.sleep(10.1)
    assert [len(checks(client)) for client in clients] == [0, 2, 2, 0, 0]


async def test_a_check_counts_even_if_the_group_has_no_member(
    open_broker: Callable[..., OfflineBroker], autojump_clock: trio.testing.MockClock
) -> None:
    client = open_broker(**CHECK_SOON).connect()
    send_half(client)
    await trio.sleep(4.1)
    join(client)
    await trio.sleep(2)
    ((_, message),) = checks(client)
    assert message.properties["TRANSACTION_CHECK_TIMES"] == "2"


async def test_an_incomplete_half_message_is_never_checked(
    open_broker: Callable[..., OfflineBroker], autojump_clock: trio.testing.MockClock
) -> None:
    client = open_broker(**CHECK_SOON).connect()
    join(client)
    send_half(client, PGROUP="")
    await trio.sleep(60)
    assert checks(client) == []
    assert bodies(client, "TRANS_CHECK_MAX_TIME_TOPIC") == [b"half"]


async def test_a_half_message_without_space_for_the_check_count_is_lost(
    open_broker: Callable[..., OfflineBroker],
    autojump_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "rocketmq_py.broker")
    client = open_broker(**CHECK_SOON).connect()
    join(client)
    space = 32_767 - sum(len(name) + len(value) + 2 for name, value in HALF.items())
    space -= len("REAL_TOPIC--t") + len("REAL_QID--0") + len("a2--")
    assert send_half(client, a2="x" * space).code == ResponseCode.SUCCESS
    send_half(client, b"another")
    await trio.sleep(4.1)
    assert [message.body for _, message in checks(client)] == [b"another"]
    assert "half message lost topic=t" in caplog.text


async def test_half_messages_dropped_by_the_store_are_skipped(
    open_broker: Callable[..., OfflineBroker], autojump_clock: trio.testing.MockClock
) -> None:
    client = open_broker(**CHECK_SOON, max_store_bytes=4000).connect()
    join(client)
    for _ in range(20):
        send_half(client)
    await trio.sleep(4.1)
    assert 0 < len(checks(client)) < 20
