"""LiteTopicConsumer and LiteTopicPushConsumer. Brokers older than 5.5.0 have no lite topics."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any

import attrs
import pytest
import trio

from rocketmq_py import (
    Admin,
    Client,
    LiteTopicConsumer,
    LiteTopicPushConsumer,
    Message,
    PoppedMessage,
    Position,
    ReceivedMessage,
    Suspend,
)
from rocketmq_py.admin import MessageType
from rocketmq_py.client.features import LITE_TOPICS
from rocketmq_py.errors import BrokerError, RequestTimeoutError, UnsupportedByBrokerError
from rocketmq_py.handoff.callback_thread import log_records
from rocketmq_py.names import dead_letter_topic
from tests.behaviours.conftest import ClusterUnderTest, create_topic, until_in_route
from tests.behaviours.reading import PATIENCE, read_all

SESSION, OTHER = "session-1", "session_2"

# The broker (5.5.0) forgets requests.
pytestmark = pytest.mark.usefixtures("short_request_timeout")


@attrs.frozen
class LiteScenario:
    """A parent topic, and a group that is bound to it."""

    client: Client
    admin: Admin
    parent: str
    group: str

    def consumer(self, client: Client | None = None) -> LiteTopicConsumer:
        return (client or self.client).lite_topic_consumer(self.group, parent=self.parent)

    def push_consumer(self, **options: Any) -> LiteTopicPushConsumer:
        return self.client.lite_topic_push_consumer(self.group, parent=self.parent, **options)

    async def send(self, lite_topic: str, *bodies: bytes) -> None:
        async with self.client.producer(f"senders-{self.parent}") as producer:
            for body in bodies:
                await producer.send(Message(self.parent, body, lite_topic=lite_topic))


@pytest.fixture
async def scenario(cluster: ClusterUnderTest, client: Client, unique: str) -> AsyncIterator[LiteScenario]:
    cluster.needs(LITE_TOPICS)
    async with Admin(cluster.address) as admin:
        await admin.topics.create(unique, queues=4, message_type=MessageType.LITE)
        scenario = LiteScenario(client, admin, unique, f"group-{unique}")
        await admin.groups.create(scenario.group, attributes={"lite.bind.topic": unique})
        await until_in_route(client, unique)
        yield scenario


@pytest.fixture
async def consumer(scenario: LiteScenario) -> AsyncIterator[LiteTopicConsumer]:
    async with scenario.consumer() as consumer:
        yield consumer


@pytest.fixture
async def other_client(cluster: ClusterUnderTest) -> AsyncIterator[Client]:
    async with Client(cluster.address) as client:
        yield client


async def receive(consumer: LiteTopicConsumer, count: int, *, invisible: float = 60) -> list[PoppedMessage]:
    """Receive a number of messages, with as many calls as it takes."""
    messages: list[PoppedMessage] = []
    while len(messages) < count:
        missing = count - len(messages)
        messages += await receive_some(consumer, max_messages=missing, invisible=invisible)
    return messages


async def receive_some(consumer: LiteTopicConsumer, **options: Any) -> list[PoppedMessage]:
    """Receive at least one message.

    A broker (5.5.0) may answer a held request late, or not at all: it drops the queue of a client's held
    requests if that is empty, also when a request is being added to it.
    """
    with trio.fail_after(PATIENCE):
        while True:
            with suppress(RequestTimeoutError):
                if messages := await consumer.receive(wait=5, **options):
                    return messages


async def receives_nothing(consumer: LiteTopicConsumer, *, wait: float = 1) -> None:
    """Check that no message arrives. A request that the broker (5.5.0) forgot has no messages either."""
    with suppress(RequestTimeoutError):
        assert await consumer.receive(wait=wait) == []


async def until(is_true: Callable[[], bool]) -> None:
    with trio.fail_after(PATIENCE):
        while not is_true():
            await trio.sleep(0.05)


def bodies_of(messages: list[PoppedMessage], lite_topic: str) -> list[bytes]:
    return [message.body for message in messages if message.lite_topic == lite_topic]


@pytest.mark.apis
async def test_messages_of_each_lite_topic_arrive_in_order(
    scenario: LiteScenario, consumer: LiteTopicConsumer
) -> None:
    await consumer.subscribe_lite(SESSION, OTHER)
    assert consumer.lite_topics == {SESSION, OTHER}
    for number in range(5):
        await scenario.send(SESSION, b"s%d" % number)
        await scenario.send(OTHER, b"o%d" % number)
    await scenario.send("session-3", b"not subscribed")
    received: list[PoppedMessage] = []
    while len(received) < 10:  # a lite topic delivers more only after its messages are acknowledged
        messages = await receive_some(consumer)
        await consumer.ack(*messages)
        received += messages
    assert bodies_of(received, SESSION) == [b"s0", b"s1", b"s2", b"s3", b"s4"]
    assert bodies_of(received, OTHER) == [b"o0", b"o1", b"o2", b"o3", b"o4"]
    assert {message.topic for message in received} == {scenario.parent}
    assert [message.queue_offset for message in received if message.lite_topic == SESSION] == [0, 1, 2, 3, 4]
    await consumer.ack(*received)  # again, without an effect
    await receives_nothing(consumer)


async def test_unacknowledged_messages_block_their_lite_topic_only(
    scenario: LiteScenario, consumer: LiteTopicConsumer
) -> None:
    await consumer.subscribe_lite(SESSION, OTHER)
    await scenario.send(SESSION, b"a", b"b")
    first = await receive(consumer, 1, invisible=10)
    assert bodies_of(first, SESSION) == [b"a"]
    await scenario.send(OTHER, b"free")
    free = await receive(consumer, 1)
    assert bodies_of(free, OTHER) == [b"free"]
    await consumer.ack(*free)
    again = await receive(consumer, 1)
    assert bodies_of(again, SESSION) == [b"a"]
    assert again[0].reconsume_times == 1
    await consumer.ack(*again)
    assert bodies_of(await receive(consumer, 1), SESSION) == [b"b"]


@pytest.mark.apis(real=True)
async def test_the_invisible_time_is_changed(scenario: LiteScenario, consumer: LiteTopicConsumer) -> None:
    await consumer.subscribe_lite(SESSION)
    await scenario.send(SESSION, b"a", b"b")
    (message,) = await receive(consumer, 1)
    changed = await consumer.change_invisible(message, 1)
    assert changed.receipt.offset == message.receipt.offset == 0
    (again,) = await receive(consumer, 1)
    assert (again.body, again.reconsume_times) == (b"a", 1)
    await consumer.change_invisible(again, 1, suspend=True)
    (third,) = await receive(consumer, 1)
    assert (third.body, third.reconsume_times) == (b"a", 1)
    await consumer.ack(third)
    assert bodies_of(await receive(consumer, 1), SESSION) == [b"b"]


async def test_a_held_message_and_its_successors_are_not_delivered(
    scenario: LiteScenario, consumer: LiteTopicConsumer
) -> None:
    await consumer.subscribe_lite(SESSION, OTHER)
    await scenario.send(SESSION, b"a", b"b")
    (message,) = await receive(consumer, 1, invisible=8)
    async with consumer.holding(message, invisible=60):
        await receives_nothing(consumer, wait=10)
        await scenario.send(OTHER, b"free")
        free = await receive(consumer, 1)
        assert bodies_of(free, OTHER) == [b"free"]
    await consumer.ack(*free)
    (successor,) = await receive(consumer, 1)
    assert (successor.body, successor.reconsume_times) == (b"b", 0)
    await consumer.ack(successor)
    assert (await scenario.admin.lite_topics.lag(scenario.group)).lag == 0


async def test_a_held_message_is_redelivered_after_a_failure(
    scenario: LiteScenario, consumer: LiteTopicConsumer
) -> None:
    await consumer.subscribe_lite(SESSION)
    await scenario.send(SESSION, b"a", b"b")
    (message,) = await receive(consumer, 1)
    with pytest.raises(LookupError):
        async with consumer.holding(message, invisible=1):
            raise LookupError
    (again,) = await receive(consumer, 1)
    assert (again.body, again.reconsume_times) == (b"a", 1)
    await consumer.ack(again)


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ({"start": "earliest"}, [b"a", b"b", b"c"]),
        ({"start": "latest"}, []),
        ({"start": Position.offset(2)}, [b"c"]),
        ({"rewind": 1}, [b"c"]),
    ],
)
async def test_a_subscription_starts_at_a_position(
    scenario: LiteScenario, consumer: LiteTopicConsumer, start: dict[str, Any], expected: list[bytes]
) -> None:
    await consumer.subscribe_lite(SESSION)
    await scenario.send(SESSION, b"a", b"b", b"c")
    received: list[PoppedMessage] = []
    while len(received) < 3:
        received += await receive(consumer, 1)
        await consumer.ack(received[-1])
    await consumer.unsubscribe_lite(SESSION)
    await consumer.subscribe_lite(SESSION, **start)
    await scenario.send(SESSION, b"new")
    again: list[bytes] = []
    while b"new" not in again:
        messages = await receive_some(consumer)
        await consumer.ack(*messages)
        again += [message.body for message in messages]
    assert again == [*expected, b"new"]


async def test_an_unsubscribed_lite_topic_is_not_received(
    scenario: LiteScenario, consumer: LiteTopicConsumer
) -> None:
    await consumer.subscribe_lite(SESSION, OTHER)
    await consumer.unsubscribe_lite(SESSION)
    assert consumer.lite_topics == {OTHER}
    await scenario.send(SESSION, b"a")
    await scenario.send(OTHER, b"b")
    assert [message.body for message in await receive(consumer, 1)] == [b"b"]
    await receives_nothing(consumer)


async def test_a_member_of_an_exclusive_group_takes_over(
    scenario: LiteScenario, consumer: LiteTopicConsumer, other_client: Client
) -> None:
    await scenario.admin.groups.alter(scenario.group, attributes={"lite.sub.model": "Exclusive"})
    await consumer.subscribe_lite(SESSION, OTHER)
    await consumer.subscribe_lite(
        SESSION, start="earliest"
    )  # the broker (5.5.0) notifies the subscriber itself
    assert consumer.lite_topics == {SESSION, OTHER}
    async with scenario.consumer(other_client) as other:
        await other.subscribe_lite(SESSION)
        await until(lambda: consumer.lite_topics == {OTHER})
        assert other.lite_topics == {SESSION}
        await scenario.send(SESSION, b"a")
        assert [message.body for message in await receive(other, 1)] == [b"a"]
        await receives_nothing(consumer)


async def test_a_lite_topic_of_an_exclusive_group_that_was_subscribed_twice_is_unsubscribed(
    scenario: LiteScenario, consumer: LiteTopicConsumer
) -> None:
    await scenario.admin.groups.alter(scenario.group, attributes={"lite.sub.model": "Exclusive"})
    await consumer.subscribe_lite(SESSION)
    await consumer.subscribe_lite(SESSION)
    await consumer.unsubscribe_lite(SESSION)
    await consumer.subscribe_lite(OTHER)
    await scenario.send(SESSION, b"a")
    await scenario.send(OTHER, b"b")
    assert [message.body for message in await receive(consumer, 1)] == [b"b"]
    await receives_nothing(consumer)


async def test_a_parent_topic_that_is_created_again_is_consumed_from_its_first_message(
    scenario: LiteScenario, consumer: LiteTopicConsumer
) -> None:
    await consumer.subscribe_lite(SESSION)
    for body in (b"old-1", b"old-2"):
        await scenario.send(SESSION, body)
        await consumer.ack(*await receive(consumer, 1))
    await scenario.admin.topics.delete(scenario.parent)
    await scenario.admin.topics.create(scenario.parent, queues=4, message_type=MessageType.LITE)
    await until_in_route(scenario.client, scenario.parent)
    await consumer.subscribe_lite(SESSION)
    await scenario.send(SESSION, b"new")
    (message,) = await receive(consumer, 1)
    assert (message.body, message.receipt.offset) == (b"new", 0)


async def test_messages_of_several_lite_topics_are_delivered_to_calls_that_wait_at_once(
    scenario: LiteScenario, consumer: LiteTopicConsumer
) -> None:
    count = 3
    names = [f"{SESSION}-{number}" for number in range(count)]
    await consumer.subscribe_lite(*names)
    received: list[PoppedMessage] = []

    async def receive_one() -> None:
        received.extend(await receive_some(consumer, max_messages=1))

    async with scenario.client.producer(scenario.group) as producer:
        await producer.send(Message(scenario.parent, b"first", lite_topic=OTHER))  # connects
        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                for _ in names:
                    nursery.start_soon(receive_one)
                await trio.sleep(1)
                for name in names:
                    nursery.start_soon(producer.send, Message(scenario.parent, b"x", lite_topic=name))
    assert {message.lite_topic for message in received} == set(names)


async def test_members_of_a_shared_group_share_a_lite_topic(
    scenario: LiteScenario, consumer: LiteTopicConsumer, other_client: Client
) -> None:
    await consumer.subscribe_lite(SESSION)
    async with scenario.consumer(other_client) as other:
        await other.subscribe_lite(SESSION)
        await scenario.send(SESSION, b"0")
        received: list[bytes] = []
        with trio.fail_after(PATIENCE):
            for member in itertools.cycle((consumer, other)):
                messages: list[PoppedMessage] = []
                with suppress(RequestTimeoutError):
                    messages = await member.receive(wait=1)
                await member.ack(*messages)
                received += [message.body for message in messages]
                if messages:
                    await scenario.send(SESSION, b"%d" % len(received))
                if len(received) == 6:
                    break
    assert received == [b"0", b"1", b"2", b"3", b"4", b"5"]
    # The other member has left. Its share goes to this one.
    assert bodies_of(await receive(consumer, 1), SESSION) == [b"6"]


async def test_a_broker_limits_the_number_of_subscriptions(
    scenario: LiteScenario, consumer: LiteTopicConsumer
) -> None:
    settings = await scenario.admin.brokers.settings("broker-a")
    await consumer.subscribe_lite(SESSION)
    await scenario.admin.brokers.alter("broker-a", {"maxLiteSubscriptionCount": "0"})
    try:
        with pytest.raises(BrokerError, match="lite subscription quota exceeded 0") as raised:
            await consumer.subscribe_lite(OTHER)
    finally:
        old = {"maxLiteSubscriptionCount": settings["maxLiteSubscriptionCount"]}
        await scenario.admin.brokers.alter("broker-a", old)
    assert (raised.value.code, raised.value.retriable) == (2018, False)
    assert consumer.lite_topics == {SESSION}


async def test_a_group_that_is_not_bound_to_the_parent_topic_is_refused(
    scenario: LiteScenario, client: Client
) -> None:
    async with client.lite_topic_consumer(f"unbound-{scenario.group}", parent=scenario.parent) as consumer:
        await consumer.subscribe_lite(SESSION)
        with pytest.raises(BrokerError, match="subscription bind topic not match"):
            await consumer.receive(wait=0)


async def test_a_group_that_may_not_consume_is_refused(
    scenario: LiteScenario, consumer: LiteTopicConsumer
) -> None:
    await scenario.admin.groups.alter(scenario.group, consume_enable=False)
    with pytest.raises(BrokerError, match="Consumer group is not allowed to consume"):
        await consumer.subscribe_lite(SESSION)
    assert consumer.lite_topics == frozenset()


async def test_a_group_of_all_lite_topics_cannot_subscribe_to_single_ones(
    scenario: LiteScenario, consumer: LiteTopicConsumer
) -> None:
    await scenario.admin.groups.alter(scenario.group, attributes={"lite.sub.wildcard": "true"})
    with pytest.raises(BrokerError, match="subscribe lite operation is not supported for this group"):
        await consumer.subscribe_lite(SESSION)
    assert consumer.lite_topics == frozenset()


async def test_a_topic_of_another_type_is_refused(scenario: LiteScenario, client: Client) -> None:
    plain = f"{scenario.parent}-plain"
    await create_topic(client, plain, queues=1)
    async with client.lite_topic_consumer(scenario.group, parent=plain) as consumer:
        await consumer.subscribe_lite(SESSION)
        with pytest.raises(BrokerError, match="message type not match"):
            await consumer.receive(wait=0)


async def test_an_old_broker_has_no_lite_topics(
    cluster: ClusterUnderTest, client: Client, topic: str, unique: str
) -> None:
    cluster.needs_older_than(LITE_TOPICS)
    text = r"does not support lite topics, which needs 5\.5\.0 or newer"
    async with client.lite_topic_consumer(unique, parent=topic) as consumer:
        with pytest.raises(UnsupportedByBrokerError, match=text):
            await consumer.subscribe_lite(SESSION)
        with pytest.raises(UnsupportedByBrokerError, match=text):
            await consumer.receive(wait=0)
    async with client.producer(unique) as producer:
        with pytest.raises(UnsupportedByBrokerError, match=text):
            await producer.send(Message(topic, b"x", lite_topic=SESSION))


# LiteTopicPushConsumer


@pytest.mark.apis
async def test_a_handler_gets_the_messages_of_each_lite_topic_in_order(scenario: LiteScenario) -> None:
    handled: list[ReceivedMessage] = []
    running: set[str] = set()

    async with scenario.push_consumer() as consumer:

        async def handle(message: ReceivedMessage) -> None:
            assert message.lite_topic not in running
            running.add(message.lite_topic)
            await trio.sleep(0.01)
            running.remove(message.lite_topic)
            handled.append(message)
            if len(handled) == 20:
                consumer.stop()

        await consumer.subscribe_lite(SESSION, OTHER)
        for number in range(10):
            await scenario.send(SESSION, b"%d" % number)
            await scenario.send(OTHER, b"%d" % number)
        with trio.fail_after(PATIENCE):
            await consumer.run(handle)
        assert consumer.lite_topics == {SESSION, OTHER}
    for lite_topic in (SESSION, OTHER):
        of_topic = [int(message.body) for message in handled if message.lite_topic == lite_topic]
        assert of_topic == list(range(10))


async def test_a_failed_message_is_handled_again_before_those_that_follow(scenario: LiteScenario) -> None:
    handled: list[tuple[bytes, int]] = []

    async with scenario.push_consumer(max_reconsume_times=2, suspend_current_queue=0.1) as consumer:

        async def handle(message: ReceivedMessage) -> None:
            handled.append((message.body, message.reconsume_times))
            if message.body == b"bad":
                raise ValueError("no")
            if message.body == b"last":
                consumer.stop()

        await consumer.subscribe_lite(SESSION)
        await scenario.send(SESSION, b"bad", b"good", b"last")
        with trio.fail_after(PATIENCE):
            await consumer.run(handle)
    assert handled == [(b"bad", 0), (b"bad", 1), (b"bad", 2), (b"good", 0), (b"last", 0)]
    (letter,) = await read_all(scenario.client, dead_letter_topic(scenario.group), count=1)
    assert letter.body == b"bad"
    assert letter.lite_topic == SESSION


async def test_a_suspended_lite_topic_is_delivered_later(scenario: LiteScenario) -> None:
    handled: list[bytes] = []
    times: list[float] = []

    async with scenario.push_consumer() as consumer:

        async def handle(message: ReceivedMessage) -> Suspend | None:
            handled.append(message.body)
            times.append(trio.current_time())
            if message.body == b"b" and handled.count(b"b") == 1:
                return Suspend(1)
            if message.body == b"c":
                consumer.stop()
            return None

        await consumer.subscribe_lite(SESSION)
        await scenario.send(SESSION, b"a", b"b", b"c")
        with trio.fail_after(PATIENCE):
            await consumer.run(handle)
    assert handled == [b"a", b"b", b"b", b"c"]
    assert times[2] - times[1] > 0.9


async def test_a_slow_handler_keeps_its_messages(scenario: LiteScenario) -> None:
    handled: list[bytes] = []

    async with scenario.push_consumer(invisible=8) as consumer:

        async def handle(message: ReceivedMessage) -> None:
            handled.append(message.body)
            if message.body == b"slow":
                await trio.sleep(12)
            if message.body == b"last":
                consumer.stop()

        await consumer.subscribe_lite(SESSION)
        await scenario.send(SESSION, b"slow", b"next", b"last")
        with trio.fail_after(PATIENCE):
            await consumer.run(handle)
    assert handled == [b"slow", b"next", b"last"]


async def test_messages_of_a_cancelled_run_are_redelivered(scenario: LiteScenario) -> None:
    started = trio.Event()
    handled: list[bytes] = []

    async with scenario.push_consumer(invisible=8) as consumer:

        async def hang(_: ReceivedMessage) -> None:
            started.set()
            await trio.sleep_forever()

        async def handle(message: ReceivedMessage) -> None:
            handled.append(message.body)
            if message.body == b"b":
                consumer.stop()

        await consumer.subscribe_lite(SESSION)
        await scenario.send(SESSION, b"a", b"b")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.run, hang)
            with trio.fail_after(PATIENCE):
                await started.wait()
            nursery.cancel_scope.cancel()
        with trio.fail_after(PATIENCE):
            await consumer.run(handle)
    assert handled == [b"a", b"b"]


async def test_a_stopping_member_hands_over_what_no_handler_has_begun_with(
    scenario: LiteScenario, other_client: Client
) -> None:
    """Its invisible time is a minute. The message of the running handler is not repeated."""
    started, may_end, stopped = trio.Event(), trio.Event(), trio.Event()
    handled: list[bytes] = []
    taken_over: list[bytes] = []

    async def handle(message: ReceivedMessage) -> None:
        handled.append(message.body)
        started.set()
        await may_end.wait()

    async def take_over(message: ReceivedMessage) -> None:
        taken_over.append(message.body)

    async def run(consumer: LiteTopicPushConsumer) -> None:
        await consumer.run(handle)
        stopped.set()

    other = LiteScenario(other_client, scenario.admin, scenario.parent, scenario.group)
    async with (
        scenario.push_consumer(concurrency=1) as consumer,
        other.push_consumer() as successor,
        trio.open_nursery() as nursery,
    ):
        await consumer.subscribe_lite(SESSION, OTHER)
        nursery.start_soon(run, consumer)
        await scenario.send(SESSION, b"running", b"behind it")
        with trio.fail_after(PATIENCE):
            await started.wait()
        await scenario.send(OTHER, b"waiting")
        await trio.sleep(1)  # it is popped
        await successor.subscribe_lite(SESSION, OTHER)
        nursery.start_soon(successor.run, take_over)
        consumer.stop()
        with trio.fail_after(PATIENCE):
            while taken_over != [b"waiting"]:
                await trio.sleep(0.05)
            may_end.set()
            await stopped.wait()
            while len(taken_over) < 2:
                await trio.sleep(0.05)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert handled == [b"running"]
    assert taken_over == [b"waiting", b"behind it"]


async def test_a_consumer_that_runs_again_gets_its_messages_soon(scenario: LiteScenario) -> None:
    """A broker still holds the pop of the run that has ended, and answers it with the first message."""
    handled: list[float] = []

    async with scenario.push_consumer() as consumer:

        async def handle(_: ReceivedMessage) -> None:
            handled.append(trio.current_time())
            consumer.stop()

        await consumer.subscribe_lite(SESSION)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.run, handle)
            await trio.sleep(1)  # its pop is held
            consumer.stop()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.run, handle)
            await trio.sleep(1)
            await scenario.send(SESSION, b"x")
            sent_at = trio.current_time()
    [handled_at] = handled
    assert handled_at - sent_at < 30  # the message is invisible to others for a minute


async def test_a_message_for_a_cancelled_receive_goes_to_the_next_consumer_soon(
    scenario: LiteScenario,
) -> None:
    """Its client is still open, so that the broker answers the pop that it holds."""
    async with scenario.consumer() as first:
        await first.subscribe_lite(SESSION)
        with trio.move_on_after(1):
            await first.receive(wait=30)
    async with scenario.consumer() as second:
        await second.subscribe_lite(SESSION)
        await scenario.send(SESSION, b"x")
        with trio.fail_after(25):
            [message] = await receive(second, 1)
    assert message.body == b"x"


async def test_many_lite_topics_are_subscribed_at_once(scenario: LiteScenario) -> None:
    names = [f"session-{number}" for number in range(500)]
    waiting = set(names)

    async with AsyncExitStack() as stack:
        consumer = await stack.enter_async_context(scenario.push_consumer(batch_size=4))

        async def handle(messages: list[ReceivedMessage]) -> None:
            waiting.difference_update(message.lite_topic for message in messages)
            if not waiting:
                consumer.stop()

        await consumer.subscribe_lite(*names)
        producer = await stack.enter_async_context(scenario.client.producer(f"senders-{scenario.parent}"))
        with trio.fail_after(3 * PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(consumer.run, handle)
                for name in names:
                    await producer.send(Message(scenario.parent, b"x", lite_topic=name))
    assert not waiting


@attrs.frozen
class Order:
    number: int


@pytest.mark.apis
async def test_push_consumer_decodes_bodies_for_its_handler(
    scenario: LiteScenario, caplog: pytest.LogCaptureFixture
) -> None:
    handled: list[int] = []

    async def handle(order: Order) -> None:
        handled.append(order.number)

    async with scenario.push_consumer() as consumer, trio.open_nursery() as nursery:
        await consumer.subscribe_lite(SESSION)
        nursery.start_soon(consumer.run, handle)
        await scenario.send(SESSION, b'{"number":1}', b'{"number":"two"}', b'{"number":3}')
        await until(lambda: len(handled) == 2)
        [letter] = await read_all(scenario.client, dead_letter_topic(scenario.group), count=1)
        consumer.stop()
    assert handled == [1, 3]
    assert letter.body == b'{"number":"two"}'
    log_records.flush()
    assert "its body cannot be decoded as Order" in caplog.text
