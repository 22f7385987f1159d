"""PopConsumer. Brokers of 4.x do not support pop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from rocketmq_py import Client, Message, PopConsumer, PoppedMessage
from rocketmq_py.address import split_address
from rocketmq_py.client import core_of
from rocketmq_py.client.features import POP
from rocketmq_py.errors import ConnectionLostError, TopicNotFoundError, UnsupportedByBrokerError
from rocketmq_py.message import MessageQueue
from rocketmq_py.names import dead_letter_topic
from rocketmq_py.protocol.bodies import MASTER_ID
from tests.behaviours.conftest import ClusterUnderTest, create_topic
from tests.behaviours.reading import PATIENCE, read_all, until_readable
from tests.remoting.socks_server import socks_server


@attrs.frozen
class PopScenario:
    """A pop consumer and a producer for its topic of two queues."""

    client: Client
    topic: str
    group: str

    def consumer(self, *, max_reconsume_times: int = 16) -> PopConsumer:
        consumer = self.client.pop_consumer(
            self.group, consume_from="earliest", max_reconsume_times=max_reconsume_times
        )
        consumer.subscribe(self.topic)
        return consumer

    async def send(self, *bodies: bytes, **changes: Any) -> None:
        async with self.client.producer(f"senders-{self.topic}") as producer:
            for number, body in enumerate(bodies):
                queue = None if number else await self._first_queue()
                await producer.send(Message(self.topic, body, **changes), queue=queue)
        await until_readable(self.client, self.topic, count=len(bodies))

    async def _first_queue(self) -> MessageQueue:
        return (await core_of(self.client).routes.get(self.topic)).write_queues[0]


@pytest.fixture
async def scenario(cluster: ClusterUnderTest, client: Client, unique: str) -> PopScenario:
    cluster.needs(POP)
    await create_topic(client, unique, queues=2)
    return PopScenario(client, unique, f"group-{unique}")


@pytest.fixture
async def consumer(scenario: PopScenario) -> AsyncIterator[PopConsumer]:
    async with scenario.consumer() as consumer:
        yield consumer


def bodies(messages: Iterable[PoppedMessage]) -> list[bytes]:
    return sorted([message.body for message in messages])


async def receive(consumer: PopConsumer, count: int, *, invisible: float = 60) -> list[PoppedMessage]:
    """Receive until there are ``count`` messages. Real brokers redeliver late."""
    messages: list[PoppedMessage] = []
    with trio.fail_after(PATIENCE):
        while len(messages) < count:
            missing = count - len(messages)
            messages += await consumer.receive(wait=5, max_messages=missing, invisible=invisible)
    return messages


async def exists(client: Client, topic: str) -> bool:
    try:
        await core_of(client).routes.refresh(topic)
    except TopicNotFoundError:
        return False
    return True


@pytest.mark.versions
async def test_acknowledged_message_is_not_redelivered(scenario: PopScenario, consumer: PopConsumer) -> None:
    await scenario.send(b"a", b"b", b"c", tags="A", keys="k", properties={"colour": "blue"})
    one, *others = await receive(consumer, 3, invisible=8)
    assert (one.topic, one.tags, one.keys, one.user_properties) == (
        scenario.topic,
        "A",
        ("k",),
        {"colour": "blue"},
    )
    assert one.invisible_until_ms == one.receipt.pop_time_ms + 8000
    await consumer.ack(one)
    await consumer.ack(*others)
    await consumer.ack(*others)
    assert await consumer.receive(wait=12) == []


@pytest.mark.parametrize("sent", ["before it is closed", "later"])
async def test_messages_for_a_cancelled_receive_of_a_closed_consumer_are_redelivered_soon(
    scenario: PopScenario, sent: str
) -> None:
    """A broker holds the pop of a cancelled call as long as the client is open, and answers it."""
    async with scenario.consumer() as first:
        with trio.move_on_after(1):
            await first.receive(wait=15)  # which the broker may leave unanswered for as long
        if sent != "later":
            await scenario.send(b"x")
    async with scenario.consumer() as second:
        if sent == "later":
            await scenario.send(b"x")
        with trio.fail_after(40):
            [message] = await receive(second, 1)
    assert message.body == b"x"


@pytest.mark.apis(real=True)
async def test_unacknowledged_message_is_redelivered(scenario: PopScenario, consumer: PopConsumer) -> None:
    await scenario.send(b"a", b"b")
    first = await receive(consumer, 2, invisible=1)
    await consumer.ack(first[0])
    (again,) = await receive(consumer, 1, invisible=1)
    assert (again.body, again.topic, again.reconsume_times) == (first[1].body, scenario.topic, 1)
    (third,) = await receive(consumer, 1)
    assert (third.body, third.reconsume_times) == (first[1].body, 2)
    await consumer.ack(third)
    await consumer.ack(again)  # too late, without an effect
    assert await consumer.receive(wait=1) == []


async def test_redelivered_messages_are_acknowledged_together(
    scenario: PopScenario, consumer: PopConsumer
) -> None:
    await scenario.send(b"a", b"b", b"c")
    await receive(consumer, 3, invisible=1)
    again = await receive(consumer, 3, invisible=8)
    assert [message.reconsume_times for message in again] == [1, 1, 1]
    await consumer.ack(*again)
    assert await consumer.receive(wait=12) == []


async def test_members_share_the_messages(scenario: PopScenario, cluster: ClusterUnderTest) -> None:
    await scenario.send(*[b"%d" % number for number in range(20)])
    async with Client(cluster.address) as other_client:
        theirs = attrs.evolve(scenario, client=other_client)
        async with scenario.consumer() as one, theirs.consumer() as other:
            found: list[PoppedMessage] = []
            with trio.fail_after(PATIENCE):
                while len(found) < 20:
                    found += await one.receive(max_messages=3, wait=1)
                    found += await other.receive(max_messages=3, wait=1)
            assert len({message.body for message in found}) == 20


@pytest.mark.apis(real=True)
async def test_receive_waits_for_a_message(scenario: PopScenario, consumer: PopConsumer) -> None:
    await scenario.send(b"first")
    await consumer.ack(*await receive(consumer, 1))
    received: list[PoppedMessage] = []

    async def wait() -> None:
        received.extend(await consumer.receive(wait=PATIENCE))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked(0.05)
        await scenario.send(b"second")
    assert bodies(received) == [b"second"]


@pytest.mark.apis(real=True)
async def test_receive_without_messages_returns_none(consumer: PopConsumer) -> None:
    assert await consumer.receive(wait=0) == []
    assert await consumer.receive(wait=1) == []


@pytest.mark.apis("trio", "asyncio", "uvloop", real=True)  # threads cannot be cancelled
async def test_message_for_a_cancelled_receive_is_returned_by_the_next(
    scenario: PopScenario, consumer: PopConsumer
) -> None:
    await scenario.send(b"first")
    await consumer.ack(*await receive(consumer, 1))
    with trio.move_on_after(0.3):
        await consumer.receive(wait=PATIENCE)
    await scenario.send(b"second")
    with trio.fail_after(PATIENCE / 2):
        (message,) = await consumer.receive(wait=PATIENCE)
    assert (message.body, message.reconsume_times) == (b"second", 0)
    await consumer.ack(message)


@pytest.mark.apis(real=True)
@pytest.mark.parametrize(
    ("wanted", "found"),
    [({"tags": "A || B"}, [b"a", b"b"]), ({"sql": "size > 2"}, [b"c"])],
    ids=["tags", "sql"],
)
async def test_subscription_may_have_a_filter(
    scenario: PopScenario, consumer: PopConsumer, wanted: dict[str, str], found: list[bytes]
) -> None:
    consumer.subscribe(scenario.topic, **wanted)
    async with scenario.client.producer("senders") as producer:
        for number, name in enumerate(["a", "b", "c"], start=1):
            properties = {"size": str(number)}
            await producer.send(
                Message(scenario.topic, name.encode(), tags=name.upper(), properties=properties)
            )
    await until_readable(scenario.client, scenario.topic, count=3)
    assert bodies(await receive(consumer, len(found))) == found
    assert await consumer.receive(wait=1) == []


async def test_change_invisible_changes_the_time_of_the_redelivery(
    scenario: PopScenario, consumer: PopConsumer
) -> None:
    await scenario.send(b"a", b"b")
    sooner, later = await receive(consumer, 2, invisible=8)
    old = later.receipt
    await consumer.change_invisible(sooner, 0.5)
    later = await consumer.change_invisible(later, 60)
    assert later.receipt != old
    (again,) = await receive(consumer, 1)
    assert (again.body, again.reconsume_times) == (sooner.body, 1)
    await consumer.ack(again)
    assert await consumer.receive(wait=12) == [], "only the first invisible time is over"
    await consumer.ack(later)


async def test_deliveries_of_a_message_start_in_different_milliseconds(
    scenario: PopScenario, consumer: PopConsumer
) -> None:
    """Brokers identify deliveries by their pop time, so that an ack of the first does not end the second."""
    sent = [b"%d" % number for number in range(100)]
    await scenario.send(*sent)
    for _ in sent:
        (message,) = await receive(consumer, 1)
        times = [message.receipt.pop_time_ms]
        for _ in range(2):
            message = await consumer.change_invisible(message, 60)
            times.append(message.receipt.pop_time_ms)
        assert times == sorted(set(times))
        await consumer.ack(message)


async def test_message_is_acknowledged_with_its_new_receipt_handle(
    scenario: PopScenario, consumer: PopConsumer
) -> None:
    await scenario.send(b"a", b"b")
    changed = [await consumer.change_invisible(message, 8) for message in await receive(consumer, 2)]
    await consumer.ack(*changed)
    assert await consumer.receive(wait=12) == []


async def test_message_without_acknowledgements_becomes_a_dead_letter(scenario: PopScenario) -> None:
    await scenario.send(b"a", keys="k")
    async with scenario.consumer(max_reconsume_times=1) as consumer:
        (first,) = await receive(consumer, 1, invisible=1)
        (second,) = await receive(consumer, 1, invisible=1)
        assert (first.reconsume_times, second.reconsume_times) == (0, 1)
        dead_letters = dead_letter_topic(scenario.group)
        with trio.fail_after(PATIENCE):
            while not await exists(scenario.client, dead_letters):
                assert await consumer.receive(wait=1) == []
        assert await consumer.receive(wait=3) == [], "the dead letter is acknowledged"
    (dead,) = await read_all(scenario.client, dead_letters, count=1)
    assert (dead.body, dead.keys) == (b"a", ("k",))


@pytest.mark.versions
async def test_brokers_of_4_x_are_not_asked(cluster: ClusterUnderTest, client: Client, topic: str) -> None:
    cluster.needs_older_than(POP)
    async with client.pop_consumer(f"group-{topic}") as consumer:
        consumer.subscribe(topic)
        with pytest.raises(
            UnsupportedByBrokerError,
            match=r"does not support pop consumption, which needs 5\.0\.0 .* Use a PushConsumer",
        ):
            await consumer.receive(wait=1)


async def test_a_held_message_is_not_redelivered(scenario: PopScenario, consumer: PopConsumer) -> None:
    await scenario.send(b"a")
    (first,) = await receive(consumer, 1, invisible=8)
    async with consumer.holding(first, invisible=8):
        assert await consumer.receive(wait=16) == []
    assert await consumer.receive(wait=12) == [], "it is acknowledged"


async def test_a_held_message_is_redelivered_after_a_failure(
    scenario: PopScenario, consumer: PopConsumer
) -> None:
    await scenario.send(b"a")
    (first,) = await receive(consumer, 1, invisible=60)
    with pytest.raises(LookupError):
        async with consumer.holding(first, invisible=1):
            raise LookupError
    (again,) = await receive(consumer, 1)
    assert (again.message_id, again.reconsume_times) == (first.message_id, 1)
    await consumer.ack(again)


async def test_an_ordered_message_is_held(scenario: PopScenario, orderly: PopConsumer) -> None:
    await send_in_order(scenario, b"a", b"b")
    (first,) = await orderly.receive(max_messages=1, invisible=8)
    async with orderly.holding(first, invisible=8):
        assert await orderly.receive(wait=14) == []
    (second,) = await receive(orderly, 1)
    assert second.body == b"b"


@pytest.fixture
async def orderly(scenario: PopScenario) -> AsyncIterator[PopConsumer]:
    consumer = scenario.client.pop_consumer(scenario.group, consume_from="earliest", orderly=True)
    consumer.subscribe(scenario.topic)
    async with consumer:
        yield consumer


async def send_in_order(scenario: PopScenario, *bodies: bytes) -> None:
    queue = (await core_of(scenario.client).routes.get(scenario.topic)).write_queues[0]
    async with scenario.client.producer("senders") as producer:
        for body in bodies:
            await producer.send(Message(scenario.topic, body), queue=queue)
    await until_readable(scenario.client, scenario.topic, count=len(bodies))


async def test_ordered_queue_waits_for_the_acknowledgement_of_delivered_messages(
    scenario: PopScenario, orderly: PopConsumer
) -> None:
    await send_in_order(scenario, b"a", b"b", b"c")
    first = await orderly.receive(max_messages=2)
    assert [message.body for message in first] == [b"a", b"b"]
    assert first[0].receipt.is_ordered
    assert await orderly.receive(wait=1) == []
    await orderly.ack(first[0])
    assert await orderly.receive(wait=1) == [], "one message is not acknowledged yet"
    await orderly.ack(first[1])
    assert [message.body for message in await receive(orderly, 1)] == [b"c"]


async def test_ordered_queue_redelivers_unacknowledged_messages_first(
    scenario: PopScenario, orderly: PopConsumer
) -> None:
    await send_in_order(scenario, b"a", b"b", b"c")
    first = await orderly.receive(max_messages=2, invisible=1)
    assert [message.body for message in first] == [b"a", b"b"]
    await orderly.ack(first[0])
    again = await receive(orderly, 2)
    assert [(message.body, message.reconsume_times) for message in again] == [(b"b", 1), (b"c", 0)]
    await orderly.ack(*again)
    assert await orderly.receive(wait=1) == []


async def test_an_ordered_pop_whose_answer_is_lost_is_repeated_at_once(
    cluster: ClusterUnderTest, scenario: PopScenario
) -> None:
    brokers = (await core_of(scenario.client).routes.get(scenario.topic)).brokers
    _, port = split_address(next(iter(brokers.values()))[MASTER_ID])
    settings: dict[str, Any] = {"consume_from": "earliest", "orderly": True}
    async with (
        socks_server() as proxy,
        # No heartbeat but the first, whose answer could be taken for that of the pop.
        Client(cluster.address, proxy=proxy.url, heartbeat_interval=3600) as proxied,
        proxied.pop_consumer(scenario.group, **settings) as consumer,
        scenario.client.pop_consumer(scenario.group, **settings) as other,
    ):
        for each in (consumer, other):
            each.subscribe(scenario.topic)
            assert await each.receive(wait=0) == []
        await send_in_order(scenario, b"a", b"b")
        proxy.cut_at_answer_from = port
        with pytest.raises(ConnectionLostError):
            await consumer.receive(wait=0, invisible=300)
        proxy.cut_at_answer_from = None
        assert await other.receive(wait=1) == [], "the broker has popped the messages"
        received = await receive(consumer, 2)
        assert bodies(received) == [b"a", b"b"]
        assert [message.reconsume_times for message in received] == [0, 0]
        await consumer.ack(*received)


async def test_change_invisible_of_an_ordered_message(scenario: PopScenario, orderly: PopConsumer) -> None:
    await send_in_order(scenario, b"a", b"b")
    (first,) = await orderly.receive(max_messages=1)
    await orderly.change_invisible(first, 0.2)
    again = await receive(orderly, 2)
    assert [(message.body, message.reconsume_times) for message in again] == [(b"a", 1), (b"b", 0)]
    kept = await orderly.change_invisible(again[0], 60)
    assert await orderly.receive(wait=1) == []
    await orderly.ack(kept, again[1])
    await send_in_order(scenario, b"c")
    assert [message.body for message in await receive(orderly, 1)] == [b"c"]


async def test_brokers_count_popped_messages(scenario: PopScenario, consumer: PopConsumer) -> None:
    async with scenario.client.admin() as admin:
        (before,) = (await admin.brokers.list()).brokers
        await scenario.send(*[b"x"] * 10)
        await receive(consumer, 10)
        (after,) = (await admin.brokers.list()).brokers
    # Other groups may add to the number.
    assert after.get_today - before.get_today >= 10


async def test_retries_are_deleted_with_their_topic(scenario: PopScenario, consumer: PopConsumer) -> None:
    await scenario.send(b"old")
    await receive(consumer, 1, invisible=1)
    retry_topic = f"%RETRY%{scenario.group}_{scenario.topic}"
    with trio.fail_after(PATIENCE):
        while not await exists(scenario.client, retry_topic):
            await trio.sleep(0.5)
    await until_readable(scenario.client, retry_topic, count=1)
    async with scenario.client.admin() as admin:
        await admin.topics.delete(scenario.topic)
    await create_topic(scenario.client, scenario.topic, queues=2)
    await scenario.send(b"new")
    (message,) = await receive(consumer, 1)
    assert message.body == b"new"
    await consumer.ack(message)
    for _ in range(10):  # not each pop reads the retry topic
        assert await consumer.receive(wait=0) == []
