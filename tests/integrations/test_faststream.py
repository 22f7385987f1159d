"""The FastStream broker behaves the same on brokers 4.x, 5.x and the embedded one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import Annotated, Any

import pytest

pytest.importorskip("faststream", reason="the extra faststream is not installed")

from faststream import AckPolicy, Header
from faststream.exceptions import NackMessage, RejectMessage, StopConsume
from pydantic import BaseModel

from rocketmq_py import Message
from rocketmq_py.aio import Admin, Producer
from rocketmq_py.errors import ClosedError, InvalidMessageError
from rocketmq_py.integrations.faststream import (
    RocketMQBroker,
    RocketMQResponse,
    RocketMQRouter,
    TestRocketMQBroker,
)
from rocketmq_py.integrations.faststream.annotations import RocketMQMessage

pytestmark = pytest.mark.sockets

PATIENCE = 120


class Order(BaseModel):
    number: int


def asyncio_test(function: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on an asyncio loop."""

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(function(*args, **kwargs), PATIENCE))

    return run


@asynccontextmanager
async def running(broker: RocketMQBroker, *topics: str) -> AsyncIterator[RocketMQBroker]:
    """Create topics and run a broker."""
    async with Admin(broker._address) as admin:
        for topic in topics:
            await admin.topics.create(topic, queues=2)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


def broker_of(address: str, **options: Any) -> RocketMQBroker:
    return RocketMQBroker(address, logger=None, **options)


class Received:
    """The values that handlers were called with."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._changed = asyncio.Event()

    def add(self, value: Any) -> None:
        self.values.append(value)
        self._changed.set()

    async def wait_for(self, count: int) -> list[Any]:
        while len(self.values) < count:
            self._changed.clear()
            await self._changed.wait()
        return self.values


@asyncio_test
async def test_handlers_get_models_headers_and_messages(address: str, unique: str) -> None:
    broker = broker_of(address)
    received = Received()

    @broker.subscriber(unique, group=unique, consume_from="earliest")
    async def handle(order: Order, message: RocketMQMessage, shop: Annotated[str, Header()]) -> None:
        received.add(
            (order, shop, message.received[0].tags, message.received[0].keys, message.correlation_id)
        )

    async with running(broker, unique):
        result = await broker.publish(
            Order(number=7), unique, tags="A", keys="k1 k2", headers={"shop": 3}, correlation_id="c"
        )
        assert result.queue.topic == unique
        assert await received.wait_for(1) == [(Order(number=7), "3", "A", ("k1", "k2"), "c")]


@asyncio_test
async def test_bodies_keep_their_types(address: str, unique: str) -> None:
    broker = broker_of(address)
    received = Received()

    @broker.subscriber(unique, group=unique, consume_from="earliest")
    async def handle(body: Any) -> None:
        received.add(body)

    bodies = [b"\x00\xff", "text", "5", 5, None, {"a": [1, None]}, True]
    async with running(broker, unique):
        for body in bodies:
            await broker.publish(body, unique)
        assert sorted(map(repr, await received.wait_for(len(bodies)))) == sorted(map(repr, bodies))


@asyncio_test
async def test_tags_select_messages(address: str, unique: str) -> None:
    broker = broker_of(address)
    received = Received()

    @broker.subscriber(unique, group=unique, tags="A || B", consume_from="earliest")
    async def handle(body: str) -> None:
        received.add(body)

    async with running(broker, unique):
        for tags in ("A", "C", "B", "", "A"):
            await broker.publish(f"tag {tags}", unique, tags=tags)
        assert sorted(await received.wait_for(3)) == ["tag A", "tag A", "tag B"]


@asyncio_test
async def test_ordered_subscribers_keep_the_order_and_retry_in_place(address: str, unique: str) -> None:
    broker = broker_of(address)
    received = Received()

    @broker.subscriber(unique, group=unique, orderly=True, max_workers=4, consume_from="earliest")
    async def handle(number: int) -> None:
        received.add(number)
        if received.values.count(3) == 1 and number == 3:
            raise NackMessage(seconds=0)

    async with running(broker, unique):
        for number in range(6):
            await broker.publish(number, unique, sharding_key="one")
        assert await received.wait_for(7) == [0, 1, 2, 3, 3, 4, 5]


@asyncio_test
async def test_results_are_published(address: str, unique: str) -> None:
    broker = broker_of(address)
    received = Received()
    bills = f"{unique}-bills"

    @broker.subscriber(unique, group=unique, consume_from="earliest")
    @broker.publisher(bills, tags="new", headers={"source": "shop"})
    async def bill(order: Order, message: RocketMQMessage) -> RocketMQResponse:
        return RocketMQResponse({"bill": order.number}, keys=str(order.number))

    @broker.subscriber(bills, group=bills, consume_from="earliest")
    async def collect(body: dict[str, int], message: RocketMQMessage) -> None:
        raw = message.received[0]
        received.add((body, raw.tags, raw.keys, message.headers["source"], message.correlation_id))

    async with running(broker, unique, bills):
        await broker.publish(Order(number=7), unique, correlation_id="c")
        assert await received.wait_for(1) == [({"bill": 7}, "new", ("7",), "shop", "c")]


@asyncio_test
async def test_requests_get_the_results_of_handlers_as_replies(address: str, unique: str) -> None:
    broker = broker_of(address)

    @broker.subscriber(unique, group=unique, max_workers=4, consume_from="earliest")
    async def answer(text: str) -> Any:
        match text:
            case "nothing":
                return None
            case "model":
                return Order(number=7)
            case "headers":
                return RocketMQResponse(b"\xff", headers={"language": "fr"})
        return text.upper()

    publisher = broker.publisher(unique)
    async with running(broker, unique):
        replies = [await broker.request(text, unique, timeout=60) for text in ("5", "nothing", "model")]
        assert [await reply.decode() for reply in replies] == ["5", None, {"number": 7}]
        assert all(reply.reply_to == "" for reply in replies)
        reply = await publisher.request("headers", correlation_id="c", timeout=60)
        assert (await reply.decode(), reply.headers["language"], reply.correlation_id) == (b"\xff", "fr", "c")


@pytest.mark.long
@asyncio_test
async def test_a_request_whose_sender_has_gone_is_not_delivered_again(address: str, unique: str) -> None:
    broker, asker = broker_of(address), broker_of(address, close_timeout=1.0)
    received = Received()
    release = asyncio.Event()

    @broker.subscriber(unique, group=unique, orderly=True, consume_from="earliest")
    async def answer(text: str) -> str:
        received.add(text)
        await release.wait()
        return text.upper()

    async with running(broker, unique):
        async with running(asker):
            request = asyncio.create_task(asker.request("ask", unique, timeout=PATIENCE))
            await received.wait_for(1)
        with pytest.raises(ClosedError):
            await request
        release.set()
        async with Admin(address) as admin:
            queues = (await admin.topics.describe(unique)).queues
            for _ in queues:  # each queue goes on behind the request
                await broker.publish("next", unique)
        texts = await received.wait_for(1 + len(queues))
    assert texts == ["ask", *["next"] * len(queues)]


@asyncio_test
async def test_results_go_to_the_topic_that_a_message_names(address: str, unique: str) -> None:
    broker = broker_of(address)
    received = Received()
    answers = f"{unique}-answers"

    @broker.subscriber(unique, group=unique, consume_from="earliest")
    async def answer(text: str) -> str:
        return text.upper()

    @broker.subscriber(answers, group=answers, consume_from="earliest")
    async def collect(text: str) -> None:
        received.add(text)

    async with running(broker, unique, answers):
        await broker.publish("hello", unique, reply_to=answers)
        assert await received.wait_for(1) == ["HELLO"]


@asyncio_test
async def test_batches(address: str, unique: str) -> None:
    broker = broker_of(address)
    received = Received()
    copies = f"{unique}-copies"

    @broker.subscriber(unique, group=unique, batch=True, max_records=10, consume_from="earliest")
    @broker.publisher(copies, batch=True)
    async def copy(orders: list[Order], message: RocketMQMessage) -> list[dict[str, int]]:
        assert len(message.batch_headers) == len(message.received) == len(orders) <= 10
        return [{"copy": order.number} for order in orders]

    @broker.subscriber(copies, group=copies, consume_from="earliest")
    async def collect(body: dict[str, int], message: RocketMQMessage) -> None:
        received.add((body["copy"], message.received[0].keys))

    publisher = broker.publisher(unique, batch=True)
    async with running(broker, unique, copies):
        items = [Order(number=number) for number in range(3)]
        results = await broker.publish_batch(
            *items, RocketMQResponse(Order(number=3), keys="k"), topic=unique
        )
        assert len(results) == 4
        assert len(await publisher.publish(Order(number=4), Order(number=5))) == 2
        assert await publisher.publish() == ()
        assert sorted(await received.wait_for(6)) == [(number, ()) for number in range(6)]


@asyncio_test
async def test_nacked_and_unacknowledged_messages_are_delivered_again(address: str, unique: str) -> None:
    broker = broker_of(address)
    received = Received()
    first, second = f"{unique}-nacked", f"{unique}-unsettled"

    @broker.subscriber(first, group=first, ack_policy=AckPolicy.MANUAL, consume_from="earliest")
    async def nack(body: str, message: RocketMQMessage) -> None:
        received.add((first, message.received[0].reconsume_times))
        if message.received[0].reconsume_times == 0:
            await message.nack(delay_level=1)
        else:
            await message.ack()

    @broker.subscriber(
        second,
        group=second,
        orderly=True,
        ack_policy=AckPolicy.MANUAL,
        consumer_options={"suspend_current_queue": 0},
        consume_from="earliest",
    )
    async def forget(body: str, message: RocketMQMessage) -> None:
        received.add((second, message.received[0].reconsume_times))
        if message.received[0].reconsume_times > 0:
            await message.ack()

    async with running(broker, first, second):
        await broker.publish("hello", first)
        await broker.publish("hello", second)
        assert sorted(await received.wait_for(4)) == [(first, 0), (first, 1), (second, 0), (second, 1)]


@asyncio_test
async def test_rejected_messages_become_dead_letters(address: str, unique: str) -> None:
    broker = broker_of(address)

    @broker.subscriber(
        unique, group=unique, ack_policy=AckPolicy.REJECT_ON_ERROR, max_workers=4, consume_from="earliest"
    )
    async def reject(body: str) -> None:
        if body == "raises":
            raise ValueError("no")
        raise RejectMessage

    async with running(broker, unique), Admin(address) as admin:
        await broker.publish("raises", unique)
        await broker.publish("rejects", unique)
        letters: Any = ()
        while len(letters) < 2:  # brokers store them in the background
            letters = (await admin.dead_letters.list(unique)).letters
        assert sorted(letter.message.body for letter in letters) == [b"raises", b"rejects"]


async def dead_letters(address: str, group: str, count: int) -> list[bytes]:
    """Wait for dead letters of a group, which brokers store in the background, and return their bodies."""
    async with Admin(address) as admin:
        letters: Any = ()
        while len(letters) < count:
            letters = (await admin.dead_letters.list(group)).letters
    return sorted([letter.message.body for letter in letters])


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("kind", ["async", "plain"])
def test_bodies_that_cannot_be_decoded_become_dead_letters_at_once(
    address: str, unique: str, orderly: bool, kind: str
) -> None:
    """Neither a wrong body nor a wrong value is delivered again: it would fail in the same way."""

    @asyncio_test
    async def run() -> None:
        broker = broker_of(address)
        received = Received()
        subscribe = broker.subscriber(unique, group=unique, orderly=orderly, consume_from="earliest")
        if kind == "async":

            @subscribe
            async def handle(order: Order) -> None:
                received.add(order.number)
        else:

            @subscribe
            def handle_plainly(order: Order) -> None:
                received.add(order.number)

        async with running(broker, unique), Producer(address, group=unique) as producer:
            bodies = [b"{", b"\xff", b'{"number": "many"}', b'{"number": 7}']
            for body in bodies:
                await producer.send(Message(unique, body, properties={"contentType": "application/json"}))
            assert await received.wait_for(1) == [7]
            assert await dead_letters(address, unique, 3) == sorted(bodies[:3])

    run()


@pytest.mark.parametrize("orderly", [False, True])
def test_the_other_messages_of_a_batch_are_handled(address: str, unique: str, orderly: bool) -> None:
    @asyncio_test
    async def run() -> None:
        broker = broker_of(address)
        received = Received()

        @broker.subscriber(
            unique, group=unique, batch=True, max_records=8, orderly=orderly, consume_from="earliest"
        )
        async def handle(orders: list[Order]) -> None:
            for order in orders:
                received.add(order.number)

        async with running(broker, unique), Producer(address, group=unique) as producer:
            bodies = [b'{"number": 1}', b"{", b'{"number": 2}', b'{"number": "x"}', b'{"number": 3}']
            json = {"contentType": "application/json"}
            await producer.send_batch([Message(unique, body, properties=json) for body in bodies])
            assert sorted(await received.wait_for(3)) == [1, 2, 3]
            assert await dead_letters(address, unique, 2) == sorted([bodies[1], bodies[3]])

    run()


@asyncio_test
async def test_validation_errors_of_a_handler_are_failures_like_others(address: str, unique: str) -> None:
    broker = broker_of(address)
    received = Received()

    @broker.subscriber(unique, group=unique, orderly=True, consume_from="earliest")
    async def handle(body: str) -> int:
        received.add(body)
        if len(received.values) == 1:
            Order.model_validate({"number": "of another service"})
        return "no number" if len(received.values) == 2 else 3  # type: ignore[return-value]

    async with running(broker, unique):
        await broker.publish("hello", unique)
        assert await received.wait_for(3) == ["hello"] * 3


@asyncio_test
async def test_acknowledged_failures_are_not_delivered_again(address: str, unique: str) -> None:
    """With the policies ACK and ACK_FIRST, the messages that follow show that a failed one is gone."""
    broker = broker_of(address)
    received = Received()

    @broker.subscriber(unique, group=unique, orderly=True, ack_policy=AckPolicy.ACK, consume_from="earliest")
    async def fail(number: int) -> None:
        received.add(number)
        raise ValueError("no")

    first = f"{unique}-first"

    @broker.subscriber(
        first, group=first, orderly=True, ack_policy=AckPolicy.ACK_FIRST, consume_from="earliest"
    )
    async def fail_too(number: int) -> None:
        received.add(number)
        raise ValueError("no")

    async with running(broker, unique, first):
        for number in range(3):
            await broker.publish(number, unique, sharding_key="one")
            await broker.publish(number, first, sharding_key="one")
        assert sorted(await received.wait_for(6)) == [0, 0, 1, 1, 2, 2]


@asyncio_test
async def test_messages_without_a_handler(address: str, unique: str) -> None:
    """A subscriber without a handler returns messages one by one, and as an iterator."""
    broker = broker_of(address)
    subscriber = broker.subscriber(unique, group=unique, consume_from="earliest")
    batches = broker.subscriber(unique, group=f"{unique}-b", batch=True, consume_from="earliest")
    async with running(broker, unique):
        assert await subscriber.get_one(timeout=0.1) is None
        for number in range(3):
            await broker.publish({"number": number}, unique, sharding_key="one")
        message = await subscriber.get_one(timeout=60)
        assert message is not None
        assert await message.decode() == {"number": 0}
        numbers = []
        async for message in subscriber:
            body: Any = await message.decode()
            numbers.append(body["number"])
            await message.ack()
            if len(numbers) == 2:
                break
        assert numbers == [1, 2]
        batch = await batches.get_one(timeout=60)
        assert batch is not None
        assert await batch.decode() == [{"number": 0}]


@asyncio_test
async def test_stopping_waits_for_running_handlers(address: str, unique: str) -> None:
    broker = broker_of(address, graceful_timeout=60)
    is_running, release = asyncio.Event(), asyncio.Event()
    received = Received()

    @broker.subscriber(unique, group=unique, consume_from="earliest")
    async def handle(body: str) -> None:
        is_running.set()
        await release.wait()
        received.add(body)

    async with running(broker, unique):
        await broker.publish("hello", unique)
        await is_running.wait()
        stopping = asyncio.create_task(broker.stop())
        await asyncio.sleep(0)  # it has begun to stop
        assert not stopping.done()
        release.set()
        await stopping
        assert received.values == ["hello"]
    with pytest.raises(ClosedError, match=r"await broker\.start\(\) first"):
        await broker.publish("late", unique)
    # the message was acknowledged, so the restarted broker receives only the next one
    async with running(broker):
        await broker.publish("again", unique)
        assert await received.wait_for(2) == ["hello", "again"]


@asyncio_test
async def test_handlers_that_do_not_end_are_cancelled_and_their_messages_kept(
    address: str, unique: str
) -> None:
    broker = broker_of(address, graceful_timeout=0.1)
    received = Received()
    is_second = asyncio.Event()

    @broker.subscriber(unique, group=unique, consume_from="earliest")
    async def handle(body: str) -> None:
        received.add(body)
        if not is_second.is_set():
            await asyncio.Event().wait()

    async with running(broker, unique):
        await broker.publish("hello", unique)
        await received.wait_for(1)
    is_second.set()
    async with running(broker):
        assert await received.wait_for(2) == ["hello", "hello"]


@asyncio_test
async def test_a_cancelled_stop_does_not_wait_for_handlers(address: str, unique: str) -> None:
    broker = broker_of(address)
    is_running = asyncio.Event()

    @broker.subscriber(unique, group=unique, consume_from="earliest")
    async def handle(body: str) -> None:
        is_running.set()
        await asyncio.Event().wait()

    async with running(broker, unique):
        await broker.publish("hello", unique)
        await is_running.wait()
        subscriber: Any = broker.subscribers[0]
        consumer = subscriber._consumer
        assert consumer.settings.close_timeout == 25
        stopping = asyncio.create_task(subscriber.stop())
        await asyncio.sleep(0)  # it has begun to stop
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        async with asyncio.timeout(20):
            await subscriber._closing
        assert consumer.statistics.cut_off == 1


@asyncio_test
async def test_a_handler_stops_its_subscriber(address: str, unique: str) -> None:
    broker = broker_of(address)
    received = Received()

    @broker.subscriber(unique, group=unique, ack_policy=AckPolicy.ACK, consume_from="earliest")
    async def handle(body: str) -> None:
        received.add(body)
        raise StopConsume

    async with running(broker, unique):
        await broker.publish("hello", unique)
        await received.wait_for(1)
        subscriber: Any = broker.subscribers[0]
        while subscriber.running:
            await asyncio.sleep(0.01)
    assert received.values == ["hello"]


@asyncio_test
async def test_routers(address: str, unique: str) -> None:
    received = Received()
    inner = RocketMQRouter("inner-")
    router = RocketMQRouter("test_outer-", routers=[inner])

    @inner.subscriber(unique, f"{unique}-b", group=unique, consume_from="earliest")
    @router.publisher(f"{unique}-done")
    async def handle(body: str, message: RocketMQMessage) -> str:
        return message.received[0].topic

    broker = broker_of(address)

    @broker.subscriber(f"test_outer-{unique}-done", group=f"{unique}-done", consume_from="earliest")
    async def collect(body: str) -> None:
        received.add(body)

    broker.include_router(router)
    topics = [f"test_outer-inner-{unique}", f"test_outer-inner-{unique}-b"]
    async with running(broker, *topics, f"test_outer-{unique}-done"):
        for topic in topics:
            await broker.publish("hello", topic)
        assert sorted(await received.wait_for(2)) == topics


@asyncio_test
async def test_a_subscriber_waits_for_its_topic(address: str, unique: str) -> None:
    broker = broker_of(address, route_refresh_interval=0.2)
    received = Received()

    @broker.subscriber(
        unique, group=unique, consumer_options={"rebalance_interval": 0.2}, consume_from="earliest"
    )
    async def handle(body: str) -> None:
        received.add(body)

    async with running(broker), Admin(address) as admin:
        await admin.topics.create(unique)
        await broker.publish("hello", unique)
        assert await received.wait_for(1) == ["hello"]


@asyncio_test
async def test_the_test_broker_also_uses_a_real_connection(address: str, unique: str) -> None:
    broker = broker_of(address)

    @broker.subscriber(unique, group=unique, consume_from="earliest")
    @broker.publisher(f"{unique}-done")
    async def handle(body: str) -> str:
        return body.upper()

    async with Admin(address) as admin:
        for topic in (unique, f"{unique}-done"):
            await admin.topics.create(topic)
    async with TestRocketMQBroker(broker, with_real=True) as test_broker:
        await test_broker.publish("hello", unique)
        await handle.wait_call(timeout=PATIENCE)
        handle.mock.assert_called_once_with("hello")


@asyncio_test
async def test_pings(address: str) -> None:
    broker = broker_of(address)
    assert not await broker.ping()
    async with running(broker):
        assert await broker.ping(timeout=PATIENCE)
        assert not await broker.ping(timeout=0)
    assert not await broker.ping()


@asyncio_test
async def test_messages_that_cannot_be_sent_are_refused(address: str, unique: str) -> None:
    broker = broker_of(address)
    async with running(broker, unique):
        wrong: list[dict[str, Any]] = [
            {"message": b""},
            {"headers": {"empty": ""}},
            {"headers": {"KEYS": "1"}},
            {"headers": {"none": None}},
            {"headers": {"bytes": b"1"}},
            {"topic": "no topic!"},
            {"delay": -1},
        ]
        for arguments in wrong:
            with pytest.raises(InvalidMessageError):
                await broker.publish(**{"message": "x", "topic": unique} | arguments)
