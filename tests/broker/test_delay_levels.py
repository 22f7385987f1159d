from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
import trio.testing

from rocketmq_py.codes import ResponseCode
from tests.broker.offline import START_MS, OfflineBroker, OfflineClient


async def test_a_delayed_message_is_delivered_when_it_is_due(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    answer = client.send("t", b"later", queue_id=1, DELAY="2", TAGS="A", j="0")
    assert (answer.code, answer.fields["queueId"], answer.fields["queueOffset"]) == (0, "1", "0")
    await trio.sleep(4.9)
    assert client.pull("t", queueId="1").code == ResponseCode.PULL_NOT_FOUND
    await trio.sleep(0.2)
    (message,) = client.pull("t", queueId="1", subscription="A").messages
    assert message.body == b"later"
    assert message.store_time_ms == START_MS + 5000
    assert message.born_host == client.address
    assert message.properties["DELAY"] == "2"
    assert message.properties["REAL_TOPIC"] == "t"
    assert message.properties["REAL_QID"] == "1"


async def test_a_waiting_message_can_be_pulled_from_the_schedule_topic(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    client.send("t", DELAY="2")
    (message,) = client.pull("SCHEDULE_TOPIC_XXXX", queueId="1").messages
    assert message.topic == "SCHEDULE_TOPIC_XXXX"


@pytest.mark.parametrize("level", ["0", "-1"])
async def test_levels_below_1_do_not_delay(client: OfflineClient, level: str) -> None:
    client.send("t", DELAY=level)
    (message,) = client.pull("t").messages
    assert message.properties["DELAY"] == level
    assert "REAL_TOPIC" not in message.properties


async def test_a_level_above_the_last_counts_as_the_last(
    open_broker: Callable[..., OfflineBroker], autojump_clock: trio.testing.MockClock
) -> None:
    client = open_broker(message_delay_level="1s 2s").connect()
    client.send("t", DELAY="18")
    await trio.sleep(2.1)
    assert len(client.pull("t").messages) == 1


async def test_levels_are_delivered_independently(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    client.send("t", b"ten", DELAY="3")
    await trio.sleep(1)
    client.send("t", b"one", DELAY="1")
    client.send("t", b"five", DELAY="2")
    await trio.sleep(10)
    assert [message.body for message in client.pull("t").messages] == [b"one", b"five", b"ten"]


async def test_messages_of_a_level_stay_in_order(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    bodies = [b"%d" % number for number in range(20)]
    for body in bodies:
        client.send("t", body, DELAY="1")
    await trio.sleep(1.1)
    assert [message.body for message in client.pull("t").messages] == bodies


async def test_delivery_answers_a_held_pull(
    client: OfflineClient, broker: OfflineBroker, autojump_clock: trio.testing.MockClock
) -> None:
    client.send("t", DELAY="1")
    waiting = broker.connect()
    waiting.hold_pull("t")
    await trio.sleep(1.01)
    assert [len(answer.messages) for answer in waiting.answers] == [1]


async def test_a_message_dropped_by_the_store_is_not_delivered(
    open_broker: Callable[..., OfflineBroker], autojump_clock: trio.testing.MockClock
) -> None:
    client = open_broker(max_store_bytes=2000).connect()
    client.send("t", b"dropped", DELAY="1")
    for _ in range(10):
        client.send("u")
    await trio.sleep(2)
    assert client.pull("t").remark == "NO_MESSAGE_IN_QUEUE"
