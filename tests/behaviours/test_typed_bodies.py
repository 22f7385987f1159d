"""Bodies that are encoded from values and decoded for handlers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import pytest
import trio

from rocketmq_py import Client, Message, PushConsumer, ReceivedMessage
from rocketmq_py.allocation import AllocateByBroker, allocate_averagely
from rocketmq_py.client import core_of
from rocketmq_py.client.features import POP, REPLIES
from rocketmq_py.codecs import JSON, MESSAGEPACK
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.handoff.callback_thread import log_records
from rocketmq_py.names import dead_letter_topic
from rocketmq_py.protocol.bodies import RequestMode, RequestModeSetting
from tests.behaviours.apis import new
from tests.behaviours.conftest import ClusterUnderTest
from tests.behaviours.peers import open_peer
from tests.behaviours.reading import PATIENCE, read_all

pytestmark = pytest.mark.apis


@attrs.frozen
class Order:
    number: int


KINDS: Mapping[str, dict[str, Any]] = {
    "concurrent": {},
    "lists": {"batch_size": 4},
    "orderly": {"orderly": True, "suspend_current_queue": 0.1},
    "orderly_lists": {"orderly": True, "batch_size": 4, "suspend_current_queue": 0.1},
    "pop": {"allocate": AllocateByBroker(), "invisible": 30.0},
}


async def set_pop_mode(client: Client, topic: str, group: str) -> None:
    setting = RequestModeSetting(topic=topic, consumer_group=group, mode=RequestMode.POP)
    async with open_peer(client) as peer:
        answer = await peer.send(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, setting.encode())
    assert answer.code == ResponseCode.SUCCESS


@pytest.mark.parametrize("kind", KINDS)
async def test_handler_gets_decoded_bodies_and_others_become_dead_letters(
    cluster: ClusterUnderTest,
    client: Client,
    topic: str,
    unique: str,
    caplog: pytest.LogCaptureFixture,
    kind: str,
) -> None:
    group, handled = f"group-{unique}", set[int]()
    if kind == "pop":
        cluster.needs(POP)
        await set_pop_mode(client, topic, group)
    options = {"allocate": allocate_averagely, **KINDS[kind]}

    async def handle(order: Order) -> None:
        handled.add(order.number)

    async def handle_lists(orders: list[Order]) -> None:
        handled.update(order.number for order in orders)

    async with client.producer("senders") as producer:
        for number in range(8):
            codec = MESSAGEPACK if number % 2 else None
            await producer.send(Message.of(topic, Order(number), keys=f"k{number}", codec=codec))
        await producer.send(Message.of(topic, {"number": "nine"}, keys="bad"))
        await producer.send(
            Message(topic, b"%PDF", keys="pdf", properties={"contentType": "application/pdf"})
        )
        await producer.send(Message(topic, b'{"number":8}'))  # from a sender without content types
    consumer = new(client, PushConsumer, cluster.address, group=group, consume_from="earliest", **options)
    async with consumer, trio.open_nursery() as nursery:
        consumer.subscribe(topic)
        nursery.start_soon(consumer.run, handle_lists if "batch_size" in options else handle)
        with trio.fail_after(PATIENCE):
            while (
                len(handled) < 9
                or dead_letter_topic(group) not in await core_of(client).name_servers.topics()
            ):
                await trio.sleep(0.05)
        letters = {
            letter.keys: letter for letter in await read_all(client, dead_letter_topic(group), count=2)
        }
        consumer.stop()
    assert handled == {*range(9)}
    assert letters.keys() == {("bad",), ("pdf",)}
    bad, pdf = letters["bad",], letters["pdf",]
    assert bad.body == b'{"number":"nine"}'
    assert "cannot be decoded as Order: Expected `int`, got `str`" in bad.properties["DLQ_REASON"]
    assert "no codec for the content type 'application/pdf'" in pdf.properties["DLQ_REASON"]
    assert pdf.decode(bytes) == b"%PDF"
    log_records.flush()
    assert caplog.text.count("message sent to the dead-letter queue") == 2, "without retries"


async def test_broadcasting_drops_undecodable_bodies(
    cluster: ClusterUnderTest,
    client: Client,
    topic: str,
    unique: str,
    tmp_path: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    handled = trio.Event()

    async def handle(order: Order, message: ReceivedMessage) -> None:
        assert message.decode(Order) == order
        handled.set()

    async with client.producer("senders") as producer:
        queue = (await core_of(client).routes.get(topic)).write_queues[0]
        await producer.send(Message(topic, b"bad"), queue=queue)
        await producer.send(Message.of(topic, Order(1)), queue=queue)
    consumer = new(
        client,
        PushConsumer,
        cluster.address,
        group=f"group-{unique}",
        consume_from="earliest",
        broadcasting=True,
        concurrency=1,
        local_offsets=tmp_path,
    )
    async with consumer, trio.open_nursery() as nursery:
        consumer.subscribe(topic)
        nursery.start_soon(consumer.run, handle)
        with trio.fail_after(PATIENCE):
            await handled.wait()
        consumer.stop()
    log_records.flush()
    assert "message dropped" in caplog.text
    assert "JSON is malformed" in caplog.text


async def test_request_and_reply_carry_values(
    cluster: ClusterUnderTest, client: Client, topic: str, unique: str
) -> None:
    cluster.needs(REPLIES)
    async with client.producer("askers") as producer:

        async def double(order: Order, message: ReceivedMessage) -> None:
            await producer.reply(message, Order(order.number * 2), codec=JSON)

        consumer = new(
            client, PushConsumer, cluster.address, group=f"group-{unique}", consume_from="earliest"
        )
        async with consumer, trio.open_nursery() as nursery:
            consumer.subscribe(topic)
            nursery.start_soon(consumer.run, double)
            with trio.fail_after(PATIENCE):
                reply = await producer.request(Message.of(topic, Order(21)), timeout=PATIENCE)
            consumer.stop()
        assert reply.decode(Order) == Order(42)
        assert reply.content_type == "application/json"
