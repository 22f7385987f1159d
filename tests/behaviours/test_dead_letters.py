"""Dead letters are sent again: to the group that failed, or to their topic. They are marked, and skipped."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from rocketmq_py import Admin, Client, Message, PushConsumer, ReceivedMessage, SendResult
from rocketmq_py.admin import RESENT_FROM, RESENT_OFFSET_MESSAGE_ID, DeadLetter, GroupNotFoundError
from rocketmq_py.admin.message_values import DeadLetterListing
from rocketmq_py.client import core_of
from rocketmq_py.client.features import POP
from rocketmq_py.errors import (
    ConfigurationError,
    NoQueueError,
    RetriableBrokerError,
    UnsupportedByBrokerError,
)
from rocketmq_py.names import dead_letter_topic
from tests.behaviours.conftest import ClusterUnderTest, create_topic
from tests.behaviours.reading import PATIENCE, allow_reading, read_all
from tests.cli.command import run_cli

BODIES = (b"0", b"1" * 10_000, b"2")


@pytest.fixture
async def admin(client: Client) -> AsyncIterator[Admin]:
    async with client.admin() as admin:
        yield admin


class Group:
    """A consumer group whose members fail until the test lets them succeed."""

    def __init__(self, client: Client, name: str, topic: str) -> None:
        self.client = client
        self.name = name
        self.topic = topic
        self.fails = True
        self.received: list[ReceivedMessage] = []

    async def handle(self, message: ReceivedMessage) -> None:
        self.received.append(message)
        if self.fails:
            raise ValueError("it fails")

    @asynccontextmanager
    async def member(self, *, orderly: bool = False) -> AsyncIterator[PushConsumer]:
        """Run a member of the group during the block."""
        async with (
            self.client.push_consumer(
                self.name, consume_from="earliest", max_reconsume_times=0, orderly=orderly
            ) as consumer,
            trio.open_nursery() as nursery,
        ):
            consumer.subscribe(self.topic)
            nursery.start_soon(consumer.run, self.handle)
            yield consumer
            nursery.cancel_scope.cancel()

    async def until_received(self, count: int) -> None:
        with trio.fail_after(PATIENCE):
            while len(self.received) < count:
                await trio.sleep(0.05)


async def send(client: Client, topic: str) -> list[SendResult]:
    async with client.producer("senders") as producer:
        return [
            await producer.send(
                Message(topic, body, "A", f"order-{number}", {"colour": "grün"}, sharding_key="customer-7")
            )
            for number, body in enumerate(BODIES)
        ]


async def listed(admin: Admin, group: str, count: int, *, resent: int = 0) -> DeadLetterListing:
    """Return the dead letters of a group when there are as many. Brokers index messages with a delay."""
    with trio.fail_after(PATIENCE):
        while True:
            try:
                listing = await admin.dead_letters.list(group)
            except GroupNotFoundError:  # its first member has not registered yet
                await trio.sleep(0.05)
                continue
            except NoQueueError:
                await allow_reading(core_of(admin), f"%DLQ%{group}")
                continue
            if listing.total == count and len([one for one in listing if one.resent_ms]) == resent:
                return listing
            await trio.sleep(0.05)


async def letters_of(admin: Admin, group: Group) -> DeadLetterListing:
    """Let a group fail on three messages, and return its dead letters."""
    await send(group.client, group.topic)
    async with group.member():
        listing = await listed(admin, group.name, 3)
    group.received.clear()
    group.fails = False
    return listing


def with_body(letters: DeadLetterListing, body: bytes) -> DeadLetter:
    (letter,) = [one for one in letters if one.message.body == body]
    return letter


@pytest.mark.apis(real=True)
async def test_only_the_group_that_failed_receives_letters_that_are_sent_again(
    client: Client, admin: Admin, topic: str, unique: str
) -> None:
    billing, other = Group(client, unique, topic), Group(client, f"other-{unique}", topic)
    other.fails = False
    async with other.member():
        letters = await letters_of(admin, billing)
        await other.until_received(3)
        async with billing.member():
            sent = await admin.dead_letters.resend(letters)
            assert (sent.failures, set(sent.values.values())) == ({}, {f"%RETRY%{unique}"})
            assert set(sent.values) == {one.message.offset_message_id for one in letters}
            await billing.until_received(3)
        assert len(other.received) == 3
    ids = {one.message.message_id for one in letters}
    for message in billing.received:
        letter = with_body(letters, message.body)
        assert (message.topic, message.reconsume_times, message.tags) == (topic, 0, "A")
        assert message.message_id == letter.message.message_id
        assert message.keys == letter.message.keys
        assert message.sharding_key == "customer-7"
        assert message.user_properties == {
            "colour": "grün",
            "__SHARDINGKEY": "customer-7",
            RESENT_FROM: f"%DLQ%{unique}",
            RESENT_OFFSET_MESSAGE_ID: letter.message.offset_message_id,
        }
    assert {message.message_id for message in billing.received} == ids


@pytest.mark.versions
async def test_letters_that_were_sent_again_are_marked_and_skipped(
    cluster: ClusterUnderTest, client: Client, admin: Admin, topic: str, unique: str
) -> None:
    billing = Group(client, unique, topic)
    letters = await letters_of(admin, billing)
    assert [one.resent_ms for one in letters] == [None] * 3
    chosen = with_body(letters, BODIES[1])
    await admin.dead_letters.resend([chosen])
    async with Client(cluster.address) as elsewhere, elsewhere.admin() as other:
        marked = await listed(other, unique, 3, resent=1)
        assert with_body(marked, BODIES[1]).resent_ms is not None
        # The listing from before the first resend does not matter.
        sent = await other.dead_letters.resend(letters)
        assert sent.failures == {}
        assert chosen.message.offset_message_id not in sent.values
        assert len(sent.values) == 2
        await listed(other, unique, 3, resent=3)
        nothing = await other.dead_letters.resend(letters)
        assert (nothing.values, nothing.failures) == ({}, {})
        again = await other.dead_letters.resend([chosen], again=True)
        assert set(again.values) == {chosen.message.offset_message_id}
    async with billing.member():
        await billing.until_received(4)
    assert sorted(message.body for message in billing.received) == sorted([*BODIES, BODIES[1]])


async def test_a_letter_that_fails_again_is_a_new_letter(
    cluster: ClusterUnderTest, client: Client, admin: Admin, topic: str, unique: str
) -> None:
    billing = Group(client, unique, topic)
    letters = await letters_of(admin, billing)
    billing.fails = True
    chosen = with_body(letters, b"0")
    await admin.dead_letters.resend([chosen])
    async with billing.member():
        marked = await listed(admin, unique, 4, resent=1)
    (new,) = [one for one in marked if one.message.body == b"0" and one.resent_ms is None]
    # Brokers before 4.9.1 do not store the id of the message.
    origin = chosen.origin_message_id if cluster.is_at_least("4.9.1") else chosen.message.offset_message_id
    assert (new.origin_topic, new.origin_message_id) == (topic, origin)
    billing.fails = False
    sent = await admin.dead_letters.resend(marked)
    assert len(sent.values) == 3
    await listed(admin, unique, 4, resent=4)
    async with billing.member():
        await billing.until_received(4)
    (twice,) = [one for one in billing.received[1:] if one.body == b"0"]
    assert twice.user_properties[RESENT_OFFSET_MESSAGE_ID].split(",") == [
        chosen.message.offset_message_id,
        new.message.offset_message_id,
    ], "the newest message marks all letters of its message"


async def test_letters_are_sent_to_their_topic_if_asked_to(
    client: Client, admin: Admin, topic: str, unique: str
) -> None:
    letters = await letters_of(admin, Group(client, unique, topic))
    chosen = with_body(letters, BODIES[1])
    sent = await admin.dead_letters.resend([chosen], to_topic=True)
    assert (dict(sent.values), sent.failures) == ({chosen.message.offset_message_id: topic}, {})
    received = await read_all(client, topic, count=4)
    (back,) = [one for one in received if RESENT_FROM in one.user_properties]
    assert (back.topic, back.body, back.tags, back.keys) == (topic, BODIES[1], "A", ("order-1",))
    assert back.sharding_key == "customer-7"
    assert back.message_id == chosen.message.message_id
    (original, copy) = [one for one in received if one.body == BODIES[1]]
    assert original.queue == copy.queue
    await listed(admin, unique, 3, resent=1)
    assert (await admin.dead_letters.resend([chosen])).values == {}


@pytest.mark.parametrize("failed_by", ["pop", "push"])
async def test_a_group_that_pops_receives_its_letters(
    cluster: ClusterUnderTest, client: Client, admin: Admin, topic: str, unique: str, failed_by: str
) -> None:
    cluster.needs(POP)
    if failed_by == "push":
        letters = await letters_of(admin, Group(client, unique, topic))
    else:
        await send(client, topic)
        letters = await let_pops_fail(client, admin, topic, unique)
    async with client.pop_consumer(unique, consume_from="earliest") as consumer:
        consumer.subscribe(topic)
        received = await consumer.receive(wait=1)
        while received:  # the group has popped nothing of the topic if it pulled before
            await consumer.ack(*received)
            received = await consumer.receive(wait=1)
        sent = await admin.dead_letters.resend(letters)
        assert sent.failures == {}
        found: list[ReceivedMessage] = []
        with trio.fail_after(PATIENCE):
            while len(found) < 3:
                messages = await consumer.receive(wait=5)
                await consumer.ack(*messages)
                found += messages
    assert {(one.topic, one.body) for one in found} == {(topic, body) for body in BODIES}
    await listed(admin, unique, 3, resent=3)


async def let_pops_fail(client: Client, admin: Admin, topic: str, group: str) -> DeadLetterListing:
    """Pop three messages until they are dead letters."""
    async with client.pop_consumer(group, consume_from="earliest", max_reconsume_times=0) as consumer:
        consumer.subscribe(topic)
        with trio.fail_after(PATIENCE):
            while True:
                await consumer.receive(wait=1, invisible=1)
                if (await admin.dead_letters.list(group)).total == 3:
                    return await listed(admin, group, 3)


async def test_brokers_move_letters_of_ordered_members_back(
    cluster: ClusterUnderTest, client: Client, admin: Admin, topic: str, unique: str
) -> None:
    billing = Group(client, unique, topic)
    letters = await letters_of(admin, billing)
    async with billing.member(orderly=True) as consumer:
        with trio.fail_after(PATIENCE):
            while not consumer.assignment:
                await trio.sleep(0.05)
        sent = await admin.dead_letters.resend(letters)
        if not cluster.is_at_least("5.1.0"):
            assert len(sent.values) == 3
            return
    assert sent.values == {}
    for error in sent.failures.values():
        assert isinstance(error, UnsupportedByBrokerError)
        assert f"back to %DLQ%{unique}" in str(error)
    listing = await listed(admin, unique, 4)
    assert [one.resent_ms for one in listing] == [None] * 4, "the copy went to the dead letters"


async def test_names_too_long_for_a_retry_topic_of_pop_do_not_matter(
    cluster: ClusterUnderTest, unique: str
) -> None:
    async with Client(cluster.address, namespace="tenant-1") as inside, inside.admin() as admin:
        name = f"{unique[-20:]}-{'x' * 60}"
        await create_topic(inside, name, queues=1)
        letters = await letters_of(admin, Group(inside, name, name))
        sent = await admin.dead_letters.resend(letters)
        assert (len(sent.values), sent.failures) == (3, {})


async def test_letters_in_a_namespace_are_sent_again(
    cluster: ClusterUnderTest, topic: str, unique: str
) -> None:
    async with Client(cluster.address, namespace="tenant-1") as inside, inside.admin() as admin:
        await create_topic(inside, unique, queues=1)
        billing = Group(inside, unique, unique)
        letters = await letters_of(admin, billing)
        (first, second, _) = letters
        sent = await admin.dead_letters.resend([first])
        assert (list(sent.values.values()), sent.failures) == ([f"%RETRY%{unique}"], {})
        sent = await admin.dead_letters.resend([second], to_topic=True)
        assert (list(sent.values.values()), sent.failures) == ([unique], {})
        await listed(admin, unique, 3, resent=2)
        async with billing.member():
            await billing.until_received(2)
        assert {message.topic for message in billing.received} == {unique}


async def test_the_dead_letters_of_an_unknown_group_are_an_error(
    client: Client, admin: Admin, unique: str
) -> None:
    with pytest.raises(GroupNotFoundError, match=unique):
        await admin.dead_letters.list(unique)
    await admin.groups.create(unique)
    listing = await admin.dead_letters.list(unique)
    assert (listing.letters, listing.total, listing.failures) == ((), 0, {})


async def test_resend_of_a_letter_without_an_original_topic_is_a_failure(
    client: Client, admin: Admin, unique: str
) -> None:
    dead = dead_letter_topic(unique)
    await create_topic(client, dead, queues=1)
    async with client.producer("senders") as producer:
        await producer.send(Message(dead, b"from nowhere"))
    (letter,) = await listed(admin, unique, 1)
    again = await admin.dead_letters.resend([letter])
    ((letter_id, error),) = again.failures.items()
    assert letter_id == letter.message.offset_message_id
    assert isinstance(error, ConfigurationError)
    assert "its properties lack the original topic" in str(error)


@pytest.mark.sockets
async def test_dead_letters_that_may_only_be_written_say_how_to_read_them(
    cluster: ClusterUnderTest, client: Client, admin: Admin, unique: str
) -> None:
    """Brokers before 4.9.2 create the topic of dead letters so."""
    topic = f"%DLQ%{unique}"
    await create_topic(client, topic, queues=1)
    async with client.producer("senders") as producer:
        sent = await producer.send(Message(topic, b"x"))
    address = core_of(client).routes.broker_address(sent.queue.broker_name)
    await core_of(client).brokers.create_topic(address, topic, queues=1, perm=2)
    with trio.fail_after(PATIENCE):
        while (await core_of(client).routes.refresh(topic)).read_queues:
            await trio.sleep(0.1)
    command = f"rocketmq-py topic alter {topic} --permission RW"
    unreadable = (
        f"topic '{topic}' has no readable queue: it may only be written to; allow reading with: {command}"
    )
    with pytest.raises(NoQueueError, match=re.escape(unreadable)):
        await admin.dead_letters.list(unique)
    async with client.reader() as reader:
        for query in (reader.offsets(topic), reader.offsets([topic]), reader.offsets_at(topic, "earliest")):
            with pytest.raises(NoQueueError, match=re.escape(unreadable)):
                await query
    listed = await run_cli("dlq", "list", unique, "-n", cluster.address)
    assert (listed.code, listed.out) == (1, b"")
    assert unreadable in listed.err
    async with client.reader() as reader:
        with pytest.raises(NoQueueError, match=re.escape(unreadable)):
            await reader.offsets(topic)
        with pytest.raises(NoQueueError, match=re.escape(unreadable)):
            async with reader.open(topic, start="earliest"):
                pass
        with pytest.raises(RetriableBrokerError, match=re.escape(f"allow reading with: {command}")):
            async for _ in reader.range(sent.queue):
                pass
    words = command.split()[1:]
    altered = await run_cli(*words, "-n", cluster.address)
    assert altered.code == 0, altered.err
    with trio.fail_after(PATIENCE):
        while not (await core_of(client).routes.refresh(topic)).read_queues:
            await trio.sleep(0.1)
    assert [one.message.body for one in (await admin.dead_letters.list(unique)).letters] == [b"x"]
