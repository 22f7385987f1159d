from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from rocketmq_py.broker.transactions import RESERVED_MS
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.message import ReceivedMessage
from rocketmq_py.protocol.headers import CheckTransactionStateRequest
from rocketmq_py.protocol.stored_message import decode_messages
from tests.broker.offline import START_MS, Answer, OfflineBroker, OfflineClient

ID = "7F00000100002A139A55000000000001"
MARKS = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
COMMIT, ROLLBACK, NOT_KNOWN = "8", "12", "0"
AT_ONCE = {"transaction_time_out": 2, "transaction_check_interval": 2}
"""Settings with which a half message is asked about in the fourth second, and then every two seconds."""

SENT = {"UNIQ_KEY": ID, "TRAN_MSG": "true", "PGROUP": "p", "TAGS": "A"}
HALF = SENT | MARKS | {"CLUSTER": "DefaultCluster", "__transactionId__": ID}


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
    """Return what a client was asked, and forget it."""
    asked = []
    for (code, fields), body in zip(client.notices, client.noticed_bodies, strict=True):
        assert code == RequestCode.CHECK_TRANSACTION_STATE
        (message,) = decode_messages(body, "broker-a")
        asked.append((CheckTransactionStateRequest.from_fields(fields), message))
    client.notices.clear()
    client.noticed_bodies.clear()
    return asked


def bodies(client: OfflineClient, topic: str = "t", **changes: str) -> list[bytes]:
    return [message.body for message in client.pull(topic, **changes).messages]


# Ending


async def test_a_half_message_is_kept_aside(client: OfflineClient) -> None:
    answer = send_half(client, queue_id=2, h="7")
    assert answer.code == ResponseCode.SUCCESS
    assert answer.fields == {
        **MARKS,
        "msgId": "7F00000100002A9F0000000000000000",
        "queueId": "2",
        "queueOffset": "0",
        "transactionId": ID,
    }
    assert bodies(client, queueId="2") == []
    (half,) = client.pull(HALF_TOPIC).messages
    assert half.properties == HALF | {"REAL_TOPIC": "t", "REAL_QID": "2"}
    assert (half.flag, half.system_flag, half.prepared_transaction_offset) == (7, 0, 0)


async def test_a_commit_makes_it_a_message(client: OfflineClient) -> None:
    client.send("t")
    half = send_half(client, queue_id=2, h="7")
    answer = end(client, half, COMMIT)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    (message,) = client.pull("t", queueId="2", subscription="A").messages
    assert message.properties == HALF
    assert message.body == b"half"
    assert (message.flag, message.system_flag, message.born_time_ms) == (7, 8, START_MS)
    assert message.prepared_transaction_offset == int(half.fields["msgId"][16:], 16) > 0


async def test_a_rollback_leaves_nothing(client: OfflineClient) -> None:
    answer = end(client, send_half(client), ROLLBACK)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "not set any response code")
    assert bodies(client) == []


async def test_an_outcome_that_is_not_known_yet_has_no_answer(client: OfflineClient) -> None:
    half = send_half(client)
    client.hand_in(RequestCode.END_TRANSACTION, end_fields(half, NOT_KNOWN))
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
async def test_an_end_must_fit_its_half_message(
    client: OfflineClient, outcome: str, changes: dict[str, str], remark: str
) -> None:
    answer = end(client, send_half(client), outcome, **changes)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
    assert bodies(client) == []


@pytest.mark.parametrize("changes", [{"TRAN_MSG": "false", "f": "0"}, {"PGROUP": ""}])
async def test_only_a_half_message_can_be_ended(client: OfflineClient, changes: dict[str, Any]) -> None:
    answer = end(client, send_half(client, **changes), COMMIT)
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "Find prepared transaction message failed",
    )


async def test_a_second_commit_is_a_second_message(client: OfflineClient) -> None:
    half = send_half(client)
    assert [end(client, half, COMMIT).code for _ in range(2)] == [0, 0]
    assert bodies(client) == [b"half", b"half"]


async def test_the_property_makes_a_half_message_not_the_system_flag(client: OfflineClient) -> None:
    assert end(client, send_half(client, b"1", f="0", TRAN_MSG="TRUE"), COMMIT).code == 0
    for flag in ("4", "12"):
        answer = client.send("t", b"never read", f=flag)
        assert (answer.code, answer.fields["queueOffset"]) == (ResponseCode.SUCCESS, "0")
    client.send("t", b"2", f="8")
    assert bodies(client) == [b"1", b"2"]


async def test_what_comes_again_after_a_failure_is_no_half_message(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    send_half(client, f="0", j="1", DELAY="1")
    await trio.sleep(1.1)
    assert bodies(client) == [b"half"]


async def test_half_messages_can_be_refused(open_broker: Callable[..., OfflineBroker]) -> None:
    client = open_broker(reject_transaction_message=True).connect()
    answer = send_half(client)
    assert (answer.code, answer.remark, answer.fields) == (
        ResponseCode.NO_PERMISSION,
        "the broker[127.0.0.1] sending transaction message is forbidden",
        MARKS,
    )
    assert client.send("t").code == ResponseCode.SUCCESS


# Asking


async def test_an_open_transaction_is_asked_about(
    open_broker: Callable[..., OfflineBroker], autojump_clock: trio.testing.MockClock
) -> None:
    client = open_broker(**AT_ONCE).connect()
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
    asked_about = HALF | {"REAL_TOPIC": "t", "REAL_QID": "1", "TRANSACTION_CHECK_TIMES": "1"}
    assert message.properties == asked_about | {"WAIT": "false"}
    assert (message.topic, message.queue_id, message.queue_offset) == ("t", 1, 1)
    assert (message.commit_log_offset, message.store_time_ms) == (copy_offset, START_MS)
    assert (message.body, message.flag, message.born_host) == (b"half", 7, client.address)
    assert message.store_host == "127.0.0.1:10911"
    (copy,) = client.pull(HALF_TOPIC, 1).messages
    assert copy.properties == asked_about
    assert copy.flag == 0, "as Java's copy"

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
async def test_what_has_been_ended_is_not_asked_about(
    open_broker: Callable[..., OfflineBroker], autojump_clock: trio.testing.MockClock, outcome: str
) -> None:
    client = open_broker(**AT_ONCE).connect()
    join(client)
    halves = [send_half(client) for _ in range(4)]
    for half in halves[1:]:
        end(client, half, outcome)
    await trio.sleep(4.1)
    assert len(checks(client)) == 1
    await trio.sleep(2)
    assert [check.tran_state_table_offset for check, _ in checks(client)] == [5]


async def test_it_is_asked_about_again_and_then_given_up(
    open_broker: Callable[..., OfflineBroker], autojump_clock: trio.testing.MockClock
) -> None:
    client = open_broker(**AT_ONCE, transaction_check_max=3).connect()
    join(client)
    send_half(client, queue_id=1)
    await trio.sleep(60)
    times = [message.properties["TRANSACTION_CHECK_TIMES"] for _, message in checks(client)]
    assert times == ["1", "2", "3"]
    (given_up,) = client.pull("TRANS_CHECK_MAX_TIME_TOPIC").messages
    assert given_up.properties == HALF | {
        "REAL_TOPIC": "t",
        "REAL_QID": "1",
        "TRANSACTION_CHECK_TIMES": "3",
    }
    assert bodies(client, queueId="1") == []


async def test_what_is_too_old_is_given_up_unasked(
    open_broker: Callable[..., OfflineBroker], autojump_clock: trio.testing.MockClock
) -> None:
    client = open_broker(**AT_ONCE).connect()
    join(client)
    send_half(client, g=str(START_MS - RESERVED_MS))
    await trio.sleep(3)
    assert checks(client) == []
    assert bodies(client, "TRANS_CHECK_MAX_TIME_TOPIC") == [b"half"]


async def test_what_was_born_in_the_future_is_asked_about_at_once(
    open_broker: Callable[..., OfflineBroker], autojump_clock: trio.testing.MockClock
) -> None:
    client = open_broker(**AT_ONCE).connect()
    join(client)
    send_half(client, g=str(START_MS + 3_600_000))
    await trio.sleep(2.1)
    assert len(checks(client)) == 1


async def test_an_immunity_puts_the_first_check_off(
    open_broker: Callable[..., OfflineBroker], autojump_clock: trio.testing.MockClock
) -> None:
    client = open_broker(**AT_ONCE).connect()
    join(client)
    send_half(client, CHECK_IMMUNITY_TIME_IN_SECONDS="7")
    await trio.sleep(7.9)
    assert checks(client) == []
    await trio.sleep(0.2)
    ((_, message),) = checks(client)
    assert message.properties["TRANSACTION_CHECK_TIMES"] == "4", "it was looked at three times before"
    assert message.properties["TRAN_PREPARED_QUEUE_OFFSET"] == "0"
    copies = client.pull(HALF_TOPIC, 1).messages
    assert [copy.properties["TRANSACTION_CHECK_TIMES"] for copy in copies] == ["1", "2", "3", "4"]
    assert {copy.properties["TRAN_PREPARED_QUEUE_OFFSET"] for copy in copies} == {"0"}


@pytest.mark.parametrize(("immunity", "asked_at"), [("-1", 4), ("soon", 4), ("1", 2), ("0", 2)])
async def test_an_immunity_that_is_none_or_short(
    open_broker: Callable[..., OfflineBroker],
    autojump_clock: trio.testing.MockClock,
    immunity: str,
    asked_at: int,
) -> None:
    client = open_broker(**AT_ONCE).connect()
    join(client)
    send_half(client, CHECK_IMMUNITY_TIME_IN_SECONDS=immunity)
    await trio.sleep(asked_at - 0.1)
    assert checks(client) == []
    await trio.sleep(0.2)
    assert len(checks(client)) == 1


async def test_a_sender_who_comes_after_his_immunity_waits_for_the_check(
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


async def test_an_immunity_is_at_least_the_timeout(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    half = send_half(client, CHECK_IMMUNITY_TIME_IN_SECONDS="1")
    await trio.sleep(5.9)
    assert end(client, half, COMMIT).code == ResponseCode.SUCCESS


async def test_the_members_of_a_group_take_turns(
    open_broker: Callable[..., OfflineBroker], autojump_clock: trio.testing.MockClock
) -> None:
    broker = open_broker(**AT_ONCE)
    clients = [broker.connect() for _ in range(5)]
    for number, client in enumerate(clients):
        join(client, "p" if number else "another", f"c@{number}")
    clients[3].has_space = False
    clients[4].close()
    send_half(clients[0])
    await trio.sleep(10.1)
    assert [len(checks(client)) for client in clients] == [0, 2, 2, 0, 0]


async def test_without_a_member_nobody_is_asked_but_it_counts(
    open_broker: Callable[..., OfflineBroker], autojump_clock: trio.testing.MockClock
) -> None:
    client = open_broker(**AT_ONCE).connect()
    send_half(client)
    await trio.sleep(4.1)
    join(client)
    await trio.sleep(2)
    ((_, message),) = checks(client)
    assert message.properties["TRANSACTION_CHECK_TIMES"] == "2"


async def test_a_half_message_that_says_too_little_is_never_asked_about(
    open_broker: Callable[..., OfflineBroker], autojump_clock: trio.testing.MockClock
) -> None:
    client = open_broker(**AT_ONCE).connect()
    join(client)
    send_half(client, PGROUP="")
    await trio.sleep(60)
    assert checks(client) == []
    assert bodies(client, "TRANS_CHECK_MAX_TIME_TOPIC") == [b"half"]


async def test_a_half_message_without_room_for_its_count_is_lost(
    open_broker: Callable[..., OfflineBroker],
    autojump_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "rocketmq_py.broker")
    client = open_broker(**AT_ONCE).connect()
    join(client)
    room = 32_767 - sum(len(name) + len(value) + 2 for name, value in HALF.items())
    room -= len("REAL_TOPIC--t") + len("REAL_QID--0") + len("a2--")
    assert send_half(client, a2="x" * room).code == ResponseCode.SUCCESS
    send_half(client, b"another")
    await trio.sleep(4.1)
    assert [message.body for _, message in checks(client)] == [b"another"]
    assert "a half message for t is lost" in caplog.text


async def test_what_the_store_has_dropped_is_passed_over(
    open_broker: Callable[..., OfflineBroker], autojump_clock: trio.testing.MockClock
) -> None:
    client = open_broker(**AT_ONCE, max_store_bytes=4000).connect()
    join(client)
    for _ in range(20):
        send_half(client)
    await trio.sleep(4.1)
    assert 0 < len(checks(client)) < 20
