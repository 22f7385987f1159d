from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import ResetOffsets
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import ResetOffsetRequest
from tests.broker.offline import START_MS, Answer, OfflineBroker, OfflineClient
from tests.broker.popping import ack, pop
from tests.broker.test_groups import send_heartbeat
from tests.popped import bodies


def table(offset: int, *, queues: int = 4) -> dict[MessageQueue, int]:
    """Return the offsets of the topic's queues: ``offset`` for the first queue, 0 for the others."""
    return {MessageQueue("t", "broker-a", id_): offset if id_ == 0 else 0 for id_ in range(queues)}


def reset(client: OfflineClient, group: str = "g", **changes: Any) -> Answer:
    values = {"topic": "t", "group": group, "timestamp": -1, "is_force": True, **changes}
    header = ResetOffsetRequest(**values)
    return client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header.to_fields())


def query(client: OfflineClient, group: str = "g") -> str:
    fields = {"consumerGroup": group, "topic": "t", "queueId": "0"}
    return client.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields).fields["offset"]


def commit(client: OfflineClient, offset: int, group: str = "g") -> Answer:
    fields = {"consumerGroup": group, "topic": "t", "queueId": "0", "commitOffset": str(offset)}
    return client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)


async def send(client: OfflineClient, count: int) -> None:
    """Send messages, one per second."""
    for _ in range(count):
        client.send("t")
        await trio.sleep(1)


async def test_the_next_pull_is_answered_with_the_reset_offset(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    await send(client, 5)
    send_heartbeat(client, "one@x")
    commit(client, 5)
    answer = reset(client, timestamp=START_MS + 2000)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    assert ResetOffsets.decode(answer.body).offset_table == table(2)
    assert query(client) == "2"
    answer = commit(client, 5)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "Offset has been previously reset")
    assert query(client) == "2"
    answer = client.pull("t", 5, consumerGroup="g")
    assert (answer.code, answer.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
    assert (answer.fields["nextBeginOffset"], answer.fields["maxOffset"]) == ("2", "5")
    assert len(client.pull("t", 2, consumerGroup="g").messages) == 3
    assert commit(client, 4).remark is None
    assert query(client) == "4"


@pytest.mark.parametrize(
    ("changes", "offset"),
    [
        ({}, 3),
        ({"timestamp": 0}, 0),
        ({"timestamp": START_MS + 1000}, 1),
        ({"timestamp": START_MS + 90_000}, 3),
    ],
)
async def test_the_timestamp_of_a_reset_selects_the_offset(
    client: OfflineClient, autojump_clock: trio.testing.MockClock, changes: dict[str, Any], offset: int
) -> None:
    await send(client, 3)
    send_heartbeat(client, "one@x")
    assert ResetOffsets.decode(reset(client, **changes).body).offset_table == table(offset)


async def test_a_single_queue_can_be_reset(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    await send(client, 3)
    send_heartbeat(client, "one@x")
    answer = reset(client, queue_id=0, offset=1)
    assert ResetOffsets.decode(answer.body).offset_table == table(1, queues=1)
    answer = reset(client, queue_id=0, offset=-1, timestamp=START_MS + 2000)
    assert ResetOffsets.decode(answer.body).offset_table == table(2, queues=1)
    answer = reset(client, queue_id=0, offset=5)
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "Target offset 5 not in consume queue range [0-3]",
    )
    assert client.pull("t", consumerGroup="g", queueId="1").remark == "NO_MESSAGE_IN_QUEUE"


async def test_a_group_without_members_can_be_reset(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    await send(client, 3)
    client.pull("t", consumerGroup="g")
    assert reset(client).code == ResponseCode.SUCCESS
    assert query(client) == "3"


@pytest.mark.parametrize(
    ("changes", "code", "remark"),
    [
        ({"topic": "nope"}, ResponseCode.TOPIC_NOT_EXIST, "Topic nope does not exist"),
        ({"group": "nope"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "Group nope does not exist"),
    ],
)
async def test_a_reset_of_an_unknown_topic_or_group_is_refused(
    client: OfflineClient, changes: dict[str, str], code: int, remark: str
) -> None:
    client.send("t")
    send_heartbeat(client, "one@x")
    answer = reset(client, **changes)
    assert (answer.code, answer.remark) == (code, remark)


async def test_deleting_a_topic_drops_its_pending_resets(client: OfflineClient) -> None:
    client.send("t")
    send_heartbeat(client, "one@x")
    reset(client)
    client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"})
    client.send("t")
    assert client.pull("t", consumerGroup="g").remark == "FOUND"


# Pop


async def test_the_next_pop_starts_at_the_reset_offset(client: OfflineClient) -> None:
    for body in (b"a", b"b"):
        client.send("t", body)
    for popped in pop(client, "t"):
        ack(client, popped)
    assert reset(client, "readers", timestamp=0).code == ResponseCode.SUCCESS
    assert bodies(pop(client, "t")) == [b"a", b"b"]
    assert pop(client, "t") == []


async def test_a_reset_makes_messages_popped_in_order_available_again(client: OfflineClient) -> None:
    for body in (b"a", b"b"):
        client.send("t", body)
    first, _ = pop(client, "t", order=True)
    reset(client, "readers", timestamp=0)
    ack(client, first)
    assert query(client, "readers") == "0", "an acknowledgement does not undo the reset"
    again = pop(client, "t", order=True)
    assert [(each.body, each.count) for each in again] == [(b"a", 0), (b"b", 0)]


# With notification of the members


@pytest.fixture
async def notifying_broker(open_broker: Callable[..., OfflineBroker]) -> OfflineBroker:
    return open_broker(use_server_side_reset_offset=False)


async def test_without_server_side_reset_the_members_are_notified(
    notifying_broker: OfflineBroker, autojump_clock: trio.testing.MockClock
) -> None:
    client, others = notifying_broker.connect(), [notifying_broker.connect(), notifying_broker.connect()]
    await send(client, 5)
    for each, client_id in zip(others, ("one@x", "two@x"), strict=True):
        send_heartbeat(each, client_id)
    for each in others:
        each.notices.clear()
        each.notice_bodies.clear()
    for queue_id in range(4):
        fields = {"consumerGroup": "g", "topic": "t", "queueId": str(queue_id), "commitOffset": "3"}
        client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
    time_ms = START_MS + 2000
    answer = reset(client, timestamp=time_ms)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "not set any response code")
    assert ResetOffsets.decode(answer.body).offset_table == table(2)
    for each in others:
        ((code, fields),) = each.notices
        assert code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET
        assert fields == {
            "topic": "t", "group": "g", "timestamp": str(time_ms), "isForce": "false", "queueId": "-1",
        }  # fmt: skip
        assert ResetOffsets.decode(each.notice_bodies[0]).offset_table == table(2)
    assert query(client) == "3", "the members commit the new offset"
    answer = reset(client, timestamp=START_MS + 4000, is_force=False)
    offsets = ResetOffsets.decode(answer.body).offset_table
    assert offsets[MessageQueue("t", "broker-a", 0)] == 3, "a reset without force does not skip messages"
    others[1].has_space = False
    reset(client, timestamp=time_ms)
    assert [len(each.notices) for each in others] == [3, 2], "a client that does not read is not notified"


async def test_a_reset_by_a_cpp_tool_notifies_members_with_a_list(notifying_broker: OfflineBroker) -> None:
    client = notifying_broker.connect()
    client.send("t")
    send_heartbeat(client, "one@x")
    for queue_id in range(4):
        fields = {"consumerGroup": "g", "topic": "t", "queueId": str(queue_id), "commitOffset": "1"}
        client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
    client.notice_bodies.clear()
    header = ResetOffsetRequest(topic="t", group="g", timestamp=-1, is_force=True)
    request = Command(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, 1, 0, header.to_fields(), language=1)
    notifying_broker.broker.dispatch(client, request)  # type: ignore[arg-type]  # takes the place of a Connection
    (body,) = client.notice_bodies
    entry = {"topic": "t", "brokerName": "broker-a", "queueId": 0, "offset": 1}
    assert json.loads(body)["offsetTable"][0] == entry
    assert ResetOffsets.decode(body).offset_table == table(1)


@pytest.mark.parametrize(
    ("topic", "group", "code", "remark"),
    [
        (
            "nope",
            "g",
            ResponseCode.TOPIC_NOT_EXIST,
            "[reset-offset] reset offset failed, no topic in this broker. topic=nope",
        ),
        ("t", "nope", ResponseCode.SYSTEM_ERROR, "THe consumer group <nope> not exist"),
        (
            "t",
            "gone",
            ResponseCode.CONSUMER_NOT_ONLINE,
            "Consumer not online, so can not reset offset, Group: gone Topic: t Timestamp: -1",
        ),
    ],
)
async def test_a_reset_that_cannot_be_applied_to_members_is_refused(
    notifying_broker: OfflineBroker, topic: str, group: str, code: int, remark: str
) -> None:
    client = notifying_broker.connect()
    client.send("t")
    client.pull("t", consumerGroup="gone")
    for queue_id in range(4):
        fields = {"consumerGroup": "gone", "topic": "t", "queueId": str(queue_id), "commitOffset": "1"}
        client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
    answer = reset(client, group, topic=topic)
    assert (answer.code, answer.remark) == (code, remark)
