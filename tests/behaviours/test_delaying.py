"""Delay levels on all brokers, timed messages and recalls on brokers that support them."""

from __future__ import annotations

import time

import pytest

from rocketmq_py import Client, Message
from rocketmq_py.client import core_of
from rocketmq_py.client.features import RECALLS, TIMED_MESSAGES
from rocketmq_py.errors import BrokerError, UnsupportedByBrokerError
from rocketmq_py.protocol.handles import RecallHandle
from tests.behaviours.conftest import ClusterUnderTest
from tests.behaviours.reading import read_all

pytestmark = pytest.mark.apis(real=True)


@pytest.mark.proxied
@pytest.mark.parametrize("level", [3, "10s"])
@pytest.mark.versions
async def test_a_delay_level_by_number_and_by_name(client: Client, topic: str, level: int | str) -> None:
    async with client.producer("senders") as producer:
        later_send = await producer.submit(Message(topic, b"later", delay_level=level))
        await producer.send(Message(topic, b"now"))
        await later_send
    now, later = sorted(await read_all(client, topic, count=2), key=lambda message: message.store_time_ms)
    assert (now.body, later.body) == (b"now", b"later")
    assert later.properties["DELAY"] == "3"
    assert later.store_time_ms - later.born_time_ms >= 900, "the clusters of these tests delay level 3 by 1 s"


@pytest.mark.proxied
@pytest.mark.versions
async def test_a_timed_message_is_delivered_in_time_or_rejected(
    cluster: ClusterUnderTest, client: Client, topic: str
) -> None:
    due = time.time_ns() // 1_000_000 + 6000
    messages = [Message(topic, b"delay", delay=1.5), Message(topic, b"at", deliver_at_ms=due)]
    async with client.producer("senders") as producer:
        if not cluster.has(TIMED_MESSAGES):
            for message in messages:
                with pytest.raises(UnsupportedByBrokerError, match="timed messages, which needs 5"):
                    await producer.send(message)
            return
        results = [await producer.send(message) for message in messages]
        assert all(result.recall_handle for result in results) == cluster.has(RECALLS)
    received = {message.body: message for message in await read_all(client, topic, count=2)}
    delayed, timed = received[b"delay"], received[b"at"]
    assert delayed.store_time_ms - delayed.born_time_ms >= 1400
    assert timed.store_time_ms >= due - 100


@pytest.mark.proxied
async def test_a_recalled_message_is_not_delivered(
    cluster: ClusterUnderTest, client: Client, topic: str
) -> None:
    async with client.producer("senders") as producer:
        if not cluster.has(RECALLS):
            broker_name = next(iter(core_of(client).routes.brokers()))
            handle = RecallHandle(topic, broker_name, "1900000000000", "7F0000010000").encode()
            with pytest.raises(UnsupportedByBrokerError, match=r"recalls .*, which needs 5\.3\.2"):
                await producer.recall(topic, handle)
            return
        recalled = await producer.send(Message(topic, b"recalled", delay=8))
        kept = await producer.send(Message(topic, b"kept", delay=9))
        assert recalled.recall_handle is not None
        assert kept.recall_handle is not None
        assert await producer.recall(topic, recalled.recall_handle) == recalled.message_id
        (received,) = await read_all(client, topic, count=1)
        assert received.body == b"kept"
        with pytest.raises(BrokerError):  # it has been delivered
            await producer.recall(topic, kept.recall_handle)
