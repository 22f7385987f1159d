from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from rocketmq_py.codes import ResponseCode
from rocketmq_py.protocol.handles import RecallHandle
from tests.broker.offline import START_MS, OfflineBroker, OfflineClient

ID = "7F00000100002A139A55000000000001"
COMMON_FIELDS = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
ILLEGAL = (
    "timer message illegal, the delay time should not be bigger than the max delay 259200000ms; or if set "
    "del msg, the delay time should be bigger than the current time"
)


@pytest.mark.parametrize(
    ("properties", "seconds"),
    [
        ({"TIMER_DELAY_SEC": "5"}, 5),
        ({"TIMER_DELAY_MS": "1500"}, 1.5),
        ({"TIMER_DELIVER_MS": str(START_MS + 2300)}, 2.3),
        ({"TIMER_DELAY_SEC": "3", "TIMER_DELAY_MS": "1", "TIMER_DELIVER_MS": "1"}, 3),
        ({"TIMER_DELAY_MS": "700", "TIMER_DELIVER_MS": "1"}, 0.7),
        ({"TIMER_DELAY_SEC": "4", "DELAY": "0"}, 4),
        ({"TIMER_DELAY_SEC": "4", "DELAY": "1"}, 1),
    ],
)
async def test_a_message_is_delivered_at_its_delivery_time(
    client: OfflineClient,
    autojump_clock: trio.testing.MockClock,
    properties: dict[str, Any],
    seconds: float,
) -> None:
    client.send("t", b"at once")
    client.send("t", b"timed", **properties)
    await trio.sleep(seconds - 0.01)
    assert [message.body for message in client.pull("t").messages] == [b"at once"]
    await trio.sleep(0.02)
    assert [message.body for message in client.pull("t").messages] == [b"at once", b"timed"]


async def test_the_answer_to_a_timed_send_has_a_recall_handle(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    answer = client.send("t", TIMER_DELAY_MS="2300", queue_id=2)
    assert answer.fields == {
        **COMMON_FIELDS,
        "msgId": "7F00000100002A9F0000000000000000",
        "queueId": "2",
        "queueOffset": "0",
        "transactionId": ID,
        "recallHandle": RecallHandle("t", "broker-a", str(START_MS + 2001), ID).encode(),
    }


async def test_a_timed_message_waits_in_the_timer_topic(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    client.send("t", TIMER_DELAY_SEC="2", queue_id=3, TAGS="A", h="7")
    waiting = {
        "UNIQ_KEY": ID,
        "TAGS": "A",
        "TIMER_DELAY_SEC": "2",
        "TIMER_OUT_MS": str(START_MS + 1000),
        "REAL_TOPIC": "t",
        "REAL_QID": "3",
        "CLUSTER": "DefaultCluster",
        **COMMON_FIELDS,
    }
    (message,) = client.pull("rmq_sys_wheel_timer").messages
    assert message.properties == waiting
    await trio.sleep(2.1)
    (message,) = client.pull("t", queueId="3", subscription="A").messages
    assert message.properties == waiting | {
        "TIMER_ENQUEUE_MS": str(START_MS),
        "TIMER_DEQUEUE_MS": str(message.store_time_ms),
    }
    assert message.flag == 7
    assert message.born_host == client.address


@pytest.mark.parametrize(
    "properties",
    [
        {"TIMER_DELAY_SEC": "0"},
        {"TIMER_DELAY_SEC": "-1"},
        {"TIMER_DELIVER_MS": "5"},
        {"TIMER_DELAY_SEC": "9", "TIMER_OUT_MS": "5"},
    ],
)
async def test_a_message_that_is_due_is_stored_at_once(
    client: OfflineClient, properties: dict[str, Any]
) -> None:
    assert "recallHandle" not in client.send("t", **properties).fields
    (message,) = client.pull("t").messages
    assert "REAL_TOPIC" not in message.properties


@pytest.mark.parametrize(
    "properties",
    [
        {"TIMER_DELAY_SEC": "259201"},
        {"TIMER_DELAY_SEC": "soon"},
        {"TIMER_DELIVER_MS": "5", "TIMER_DEL_UNIQKEY": ID},
    ],
)
async def test_an_invalid_or_too_late_delivery_time_is_refused(
    client: OfflineClient, properties: dict[str, Any]
) -> None:
    answer = client.send("t", **properties)
    assert (answer.code, answer.remark) == (ResponseCode.MESSAGE_ILLEGAL, ILLEGAL)
    assert answer.fields == COMMON_FIELDS


async def test_timer_max_delay_sec_limits_the_delivery_time(
    open_broker: Callable[..., OfflineBroker],
) -> None:
    client = open_broker(timer_max_delay_sec=10).connect()
    assert client.send("t", TIMER_DELAY_SEC="10").code == ResponseCode.SUCCESS
    assert client.send("t", TIMER_DELAY_MS="10001").code == ResponseCode.MESSAGE_ILLEGAL


async def test_a_broker_with_timers_disabled_refuses_timed_messages(
    open_broker: Callable[..., OfflineBroker],
) -> None:
    client = open_broker(timer_wheel_enable=False).connect()
    answer = client.send("t", TIMER_DELAY_SEC="5")
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "accurate timer message is not enabled, timerWheelEnable is false",
    )
    assert client.pull("rmq_sys_wheel_timer").code == ResponseCode.TOPIC_NOT_EXIST


async def test_timed_messages_are_delivered_in_order_of_their_times(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    for delay_ms in (900, 300, 2000, 301, 600):
        client.send("t", b"%d" % delay_ms, TIMER_DELAY_MS=str(delay_ms))
    await trio.sleep(0.5)
    client.send("t", b"50", TIMER_DELAY_MS="50")
    await trio.sleep(2)
    assert [message.body for message in client.pull("t").messages] == [
        b"300", b"301", b"50", b"600", b"900", b"2000",
    ]  # fmt: skip


async def test_a_timed_send_to_a_retry_topic_gets_no_recall_handle(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    answer = client.send("%RETRY%g", TIMER_DELAY_SEC="1")
    assert "recallHandle" not in answer.fields
    await trio.sleep(1.1)
    assert len(client.pull("%RETRY%g", consumerGroup="g").messages) == 1


async def test_a_message_dropped_by_the_store_is_not_delivered(
    open_broker: Callable[..., OfflineBroker], autojump_clock: trio.testing.MockClock
) -> None:
    client = open_broker(max_store_bytes=2000).connect()
    client.send("t", b"dropped", TIMER_DELAY_SEC="1")
    for _ in range(10):
        client.send("u")
    await trio.sleep(2)
    assert client.pull("t").remark == "NO_MESSAGE_IN_QUEUE"


async def test_a_message_without_space_for_the_timer_properties_is_not_delivered(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    client.send("t", TIMER_DELAY_SEC="1", a2="x" * 32_540)
    client.send("t", b"another", TIMER_DELAY_SEC="1")
    await trio.sleep(2)
    assert [message.body for message in client.pull("t").messages] == [b"another"]
