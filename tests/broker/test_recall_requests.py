from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
import trio.testing

from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.protocol.handles import RecallHandle
from tests.broker.offline import START_MS, Answer, OfflineBroker, OfflineClient

ID = "7F00000100002A139A55000000000001"
OTHER_ID = "7F00000100002A139A55000000000002"
REGION = {"MSG_REGION": "DefaultRegion"}


def recall(client: OfflineClient, handle: str, topic: str = "t", **fields: str) -> Answer:
    return client.ask(RequestCode.RECALL_MESSAGE, {"topic": topic, "recallHandle": handle, **fields})


def handle_for(deliver_at_ms: int | str, topic: str = "t", broker: str = "broker-a") -> str:
    return RecallHandle(topic, broker, str(deliver_at_ms), ID).encode()


async def test_a_recalled_message_is_not_delivered(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    handle = client.send("t", b"recalled", TIMER_DELAY_MS="2500").fields["recallHandle"]
    client.send("t", b"of the same second", TIMER_DELAY_MS="2999", UNIQ_KEY=OTHER_ID)
    client.send("t", b"another copy, later", TIMER_DELAY_MS="3500")
    await trio.sleep(1.9)
    answer = recall(client, handle)
    assert (answer.code, answer.fields) == (ResponseCode.SUCCESS, {**REGION, "msgId": ID})
    assert answer.remark == "not set any response code"
    await trio.sleep(3)
    assert [message.body for message in client.pull("t").messages] == [
        b"of the same second",
        b"another copy, later",
    ]


async def test_a_recall_is_stored_in_the_timer_topic(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    handle = client.send("t", TIMER_DELAY_MS="2500").fields["recallHandle"]
    recall(client, handle, producerGroup="p")
    (recall_message,) = client.pull("rmq_sys_wheel_timer", 1).messages
    assert recall_message.body == b"0"
    assert recall_message.born_host == client.address
    assert recall_message.properties == {
        "TAGS": "_RECALL_TAG_",
        "TIMER_DEL_UNIQKEY": ID,
        "UNIQ_KEY": ID,
        "TIMER_DELIVER_MS": str(START_MS + 2001),
        "TIMER_OUT_MS": str(START_MS + 2000),
        "BORN_TIMESTAMP": str(recall_message.born_time_ms),
        "TRACE_CONTEXT": "",
        "PGROUP": "p",
        "REAL_TOPIC": "t",
        "REAL_QID": "0",
    }


async def test_a_recall_of_an_unknown_message_succeeds(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    client.send("t")
    for _ in range(2):
        answer = recall(client, handle_for(START_MS + 5000))
        assert (answer.code, answer.fields["msgId"]) == (ResponseCode.SUCCESS, ID)
    await trio.sleep(6)
    assert len(client.pull("t").messages) == 1, "recalls are not delivered"


@pytest.mark.parametrize(
    ("topic", "handle", "code", "remark"),
    [
        ("nowhere", "", ResponseCode.TOPIC_NOT_EXIST, "recall failed, the topic[nowhere] not exist"),
        ("t", "", ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid"),
        ("t", "nonsense!", ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid"),
        (
            "TBW102",
            handle_for(START_MS + 5000),
            ResponseCode.ILLEGAL_OPERATION,
            "recall failed, topic not match",
        ),
        (
            "t",
            handle_for(START_MS + 5000, broker="broker-b"),
            ResponseCode.ILLEGAL_OPERATION,
            "recall failed, broker service not available",
        ),
        ("t", handle_for(START_MS), ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid"),
        ("t", handle_for("soon"), ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid"),
        (
            "t",
            handle_for(START_MS + 259_200_000),
            ResponseCode.ILLEGAL_OPERATION,
            "recall failed, timestamp invalid",
        ),
    ],
)
async def test_an_invalid_recall_is_refused(
    client: OfflineClient,
    autojump_clock: trio.testing.MockClock,
    topic: str,
    handle: str,
    code: int,
    remark: str,
) -> None:
    client.send("t")
    answer = recall(client, handle, topic)
    assert (answer.code, answer.remark, answer.fields) == (code, remark, REGION)


async def test_a_recall_in_the_same_second_as_the_delivery_is_refused(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    handle = client.send("t", TIMER_DELAY_MS="2500").fields["recallHandle"]
    await trio.sleep(2.01)
    assert recall(client, handle).remark == "recall failed, timestamp invalid"
    await trio.sleep(1)
    assert len(client.pull("t").messages) == 1


@pytest.mark.parametrize(
    ("settings", "code", "remark"),
    [
        (
            {"recall_message_enable": False},
            ResponseCode.NO_PERMISSION,
            "recall failed, operation is forbidden",
        ),
        ({"timer_wheel_enable": False}, ResponseCode.SYSTEM_ERROR, "recall failed, execute error"),
    ],
)
async def test_recalls_can_be_disabled(
    open_broker: Callable[..., OfflineBroker],
    settings: dict[str, bool],
    code: int,
    remark: str,
    autojump_clock: trio.testing.MockClock,
) -> None:
    client = open_broker(**settings).connect()
    client.send("t")
    answer = recall(client, handle_for(START_MS + 5000))
    assert (answer.code, answer.remark, answer.fields) == (code, remark, REGION)
