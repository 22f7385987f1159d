"""Messages are found, with their tracks and traces. Dead letters are listed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import trio

from rocketmq_py import Admin, Client, Message, Position, ReceivedMessage
from rocketmq_py.admin import DeadLetter, TraceKind, TrackType
from rocketmq_py.admin.message_values import DeadLetterListing, TraceListing
from rocketmq_py.client import core_of
from rocketmq_py.client.features import RECALLS
from rocketmq_py.errors import BrokerError, ConfigurationError, NoQueueError, TopicNotFoundError
from rocketmq_py.message import MessageQueue
from rocketmq_py.names import TRACE_TOPIC
from tests.behaviours.conftest import ClusterUnderTest
from tests.behaviours.reading import PATIENCE, allow_reading, until_committed


@pytest.fixture
async def admin(client: Client) -> AsyncIterator[Admin]:
    async with client.admin() as admin:
        yield admin


async def poll_until(query: Callable[[], Any], condition: Callable[[Any], bool]) -> Any:
    """Return the first result that meets a condition. Brokers index messages with a short delay."""
    with trio.fail_after(PATIENCE):
        while not condition(result := await query()):
            await trio.sleep(0.05)
    return result


async def test_find_a_message_by_its_ids_offset_and_keys(client: Client, admin: Admin, topic: str) -> None:
    async with client.producer("senders") as producer:
        sent = [
            await producer.send(Message(topic, b"%d" % number, "A", ["order", f"order-{number}"]))
            for number in range(3)
        ]
    result = sent[1]
    for found in (
        await poll_until(lambda: admin.messages.get(result.message_id, topic=topic), bool),
        await admin.messages.get(result.offset_message_id),
        await admin.messages.get(result.offset_message_id, topic=topic),
        await admin.messages.at(result.queue, result.queue_offset),
    ):
        assert found is not None
        assert (found.message_id, found.offset_message_id) == (result.message_id, result.offset_message_id)
        assert (found.topic, found.queue, found.queue_offset, found.body) == (
            (topic, result.queue, result.queue_offset, b"1")
        )

    async def find(key: str, **bounds: Any) -> list[ReceivedMessage]:
        listing = await admin.messages.find(topic, key, **bounds)
        assert not listing.failures
        return list(listing.messages)

    (by_key,) = await poll_until(lambda: find("order-1"), bool)
    assert by_key.message_id == result.message_id
    every = await poll_until(lambda: find("order"), lambda some: len(some) == 3)
    assert [one.body for one in every] == [b"0", b"1", b"2"]
    assert [one.body for one in await find("order", max_messages=2)] == [b"1", b"2"]
    later = every[-1].store_time_ms + 1
    assert await find("order", start=Position.time(later)) == []
    assert len(await find("order", end=Position.time(later))) == 3


async def test_unknown_messages_return_none_and_invalid_ids_raise(
    client: Client, admin: Admin, topic: str, unique: str
) -> None:
    async with client.producer("senders") as producer:
        result = await producer.send(Message(topic, b"x"))
    assert await admin.messages.get(f"{result.message_id[:-4]}FFFF", topic=topic) is None
    assert await admin.messages.get("no-id-of-java", topic=topic) is None
    assert await admin.messages.at(result.queue, result.queue_offset + 7) is None
    with pytest.raises(ConfigurationError, match="is the message id of a client, not an"):
        await admin.messages.get(result.message_id)
    with pytest.raises(ConfigurationError, match="32 or 56 hex digits"):
        await admin.messages.get("no-id-of-java")
    with pytest.raises(ConfigurationError, match="max_messages is 0"):
        await admin.messages.find(topic, "k", max_messages=0)
    for ask in (
        admin.messages.get(result.message_id, topic=f"{unique}-x"),
        admin.messages.find(f"{unique}-x", "k"),
        admin.messages.at(MessageQueue(f"{unique}-x", "broker-a", 0), 0),
    ):
        with pytest.raises(TopicNotFoundError):
            await ask


async def test_tracks_return_the_state_of_a_message_in_each_group(
    cluster: ClusterUnderTest, client: Client, admin: Admin, topic: str, unique: str
) -> None:
    names = {kind: f"{kind}-{unique}" for kind in ("done", "filtered", "stuck", "gone", "pulling", "behind")}
    async with client.producer("senders") as producer:
        sent = await producer.send(Message(topic, b"x", "A"))
    queues = (await core_of(client).routes.get(topic)).read_queues
    async with client.reader() as reader:
        await reader.commit(names["gone"], {sent.queue: sent.queue_offset + 1})
        await reader.commit(names["behind"], {sent.queue: 0})
    stuck = trio.Event()

    async def handle(message: ReceivedMessage) -> None:
        pass

    async def hang(message: ReceivedMessage) -> None:
        stuck.set()
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        clients = [await nursery_client(nursery, cluster) for _ in range(4)]
        for own, kind, tags, handler in (
            (clients[0], "done", "*", handle),
            (clients[1], "filtered", "B", handle),
            (clients[2], "stuck", "A || B", hang),
        ):
            consumer = own.push_consumer(names[kind], consume_from="earliest", commit_interval=0.2)
            await nursery.start(run_consumer, consumer, topic, tags, handler)
        pulling = clients[3].lite_pull_consumer(names["pulling"], consume_from="earliest")
        await nursery.start(run_lite_pull, pulling, topic)
        with trio.fail_after(PATIENCE):
            await stuck.wait()
        end = {sent.queue: sent.queue_offset + 1}
        await until_committed(client, names["done"], end)
        await until_committed(client, names["filtered"], end)
        await until_committed(client, names["pulling"], end)
        message = await admin.messages.get(sent.offset_message_id)
        assert message is not None
        listing = await poll_until(
            lambda: admin.messages.tracks(message),
            lambda some: len([one for one in some.tracks if one.group.endswith(unique)]) == len(names),
        )
        tracks = listing.tracks
        assert listing.failures == {}
        found = {one.group: one for one in tracks}
        assert {kind: (found[name].track_type, found[name].is_past) for kind, name in names.items()} == {
            "done": (TrackType.CONSUMED, True),
            "filtered": (TrackType.CONSUMED_BUT_FILTERED, True),
            "stuck": (TrackType.NOT_CONSUME_YET, False),
            "gone": (TrackType.NOT_ONLINE, True),
            "behind": (TrackType.NOT_ONLINE, False),
            "pulling": (TrackType.PULL, True),
        }
        assert found[names["gone"]].committed == sent.queue_offset + 1
        assert [one.failure for one in tracks] == [None] * len(tracks)
        assert queues
        nursery.cancel_scope.cancel()


async def nursery_client(nursery: trio.Nursery, cluster: ClusterUnderTest) -> Client:
    """Return a client that stays open until a nursery is cancelled."""

    async def run(*, task_status: trio.TaskStatus[Client]) -> None:
        async with Client(cluster.address) as client:
            task_status.started(client)
            await trio.sleep_forever()

    client: Client = await nursery.start(run)
    return client


async def run_consumer(
    consumer: Any, topic: str, tags: str, handler: Any, *, task_status: trio.TaskStatus[None]
) -> None:
    async with consumer:
        consumer.subscribe(topic, tags)
        task_status.started()
        await consumer.run(handler)


async def run_lite_pull(consumer: Any, topic: str, *, task_status: trio.TaskStatus[None]) -> None:
    async with consumer:
        consumer.subscribe(topic)
        while not await consumer.poll(wait=0.2):
            pass
        await consumer.commit()
        task_status.started()
        await trio.sleep_forever()


async def test_consume_directly_calls_the_handler_of_a_member(
    cluster: ClusterUnderTest, client: Client, admin: Admin, topic: str, unique: str
) -> None:
    async with client.producer("senders") as producer:
        sent = await producer.send(Message(topic, b"good"))
        bad = await producer.send(Message(topic, b"bad"))
    handled: list[bytes] = []
    both = trio.Event()

    async def handle(message: ReceivedMessage) -> None:
        handled.append(message.body)
        if {b"good", b"bad"} <= set(handled):
            both.set()
        if message.body == b"bad":
            raise ValueError("not this one")

    async with trio.open_nursery() as nursery:
        own = await nursery_client(nursery, cluster)
        consumer = own.push_consumer(unique, consume_from="earliest")
        await nursery.start(run_consumer, consumer, topic, "*", handle)
        await poll_until(
            lambda: admin.clients.list(),
            lambda some: core_of(own).client_id in [c.client_id for c in some.clients],
        )
        good_message = await admin.messages.get(sent.offset_message_id)
        bad_message = await admin.messages.get(bad.offset_message_id)
        assert good_message is not None
        assert bad_message is not None
        with trio.fail_after(PATIENCE):  # the normal deliveries, which must not count as direct ones
            await both.wait()
        before = handled.count(b"good")
        result = await admin.messages.consume_directly(good_message, unique, core_of(own).client_id)
        assert (result.result, result.success, result.remark) == ("CR_SUCCESS", True, None)
        assert handled.count(b"good") == before + 1
        failed = await admin.messages.consume_directly(bad_message, unique, core_of(own).client_id)
        assert (failed.result, failed.success) == ("CR_THROW_EXCEPTION", False)
        assert "not this one" in str(failed.remark)
        with pytest.raises(BrokerError, match="not online"):
            await admin.messages.consume_directly(good_message, unique, "unknown-client")
        nursery.cancel_scope.cancel()


async def test_the_trace_of_a_recalled_message(
    cluster: ClusterUnderTest, client: Client, admin: Admin, topic: str, unique: str
) -> None:
    cluster.needs(RECALLS)
    async with client.producer(f"sender-{unique}", trace=True) as producer:
        sent = await producer.send(Message(topic, b"x", delay=60))
        assert sent.recall_handle is not None
        await producer.recall(topic, sent.recall_handle)
    listing = await poll_until(
        lambda: admin.messages.trace(sent.message_id),
        lambda trace: len(trace.events) == 2,
    )
    assert [(event.kind, event.group, event.success) for event in listing.events] == [
        (TraceKind.SENT, f"sender-{unique}", True),
        (TraceKind.RECALLED, f"sender-{unique}", True),
    ]


async def test_the_trace_of_a_message(
    cluster: ClusterUnderTest, client: Client, admin: Admin, topic: str, unique: str
) -> None:
    async with client.producer(f"sender-{unique}", trace=True) as producer:
        sent = await producer.send(Message(topic, b"x"))
        other = await producer.send(Message(topic, b"y"))
    done = trio.Event()

    async def fail_first(message: ReceivedMessage) -> None:
        if message.message_id != sent.message_id:
            return
        if not message.reconsume_times:
            raise ValueError("the first time fails")
        done.set()

    async with (
        Client(cluster.address) as own,
        own.push_consumer(unique, consume_from="earliest", trace=True) as consumer,
        trio.open_nursery() as nursery,
    ):
        consumer.subscribe(topic)
        nursery.start_soon(consumer.run, fail_first)
        with trio.fail_after(PATIENCE):
            await done.wait()
        nursery.cancel_scope.cancel()
    listing: TraceListing = await poll_until(
        lambda: admin.messages.trace(sent.message_id),
        lambda some: len(some.events) == 3 and all(one.success is not None for one in some.events),
    )
    events = listing.events
    assert listing.failures == {}
    assert [(one.kind, one.group, one.success, one.reconsume_times, one.detail) for one in events] == [
        (TraceKind.SENT, f"sender-{unique}", True, 0, None),
        (TraceKind.CONSUMED, unique, False, 0, "EXCEPTION"),
        (TraceKind.CONSUMED, unique, True, 1, "SUCCESS"),
    ]
    assert [one.time_ms for one in events] == sorted(one.time_ms for one in events)
    assert events[0].broker_address is not None
    assert {kind.client_address.partition(":")[0] for kind in events} == {cluster.sees_clients_at}
    assert (await admin.messages.trace("unknown-id")).events == ()
    assert sent.message_id != other.message_id
    assert TRACE_TOPIC in await core_of(client).name_servers.topics()


async def test_list_dead_letters(
    cluster: ClusterUnderTest, client: Client, admin: Admin, topic: str, unique: str
) -> None:
    await admin.groups.create(unique)
    assert (await admin.dead_letters.list(unique)).letters == ()
    async with client.producer("senders") as producer:
        sent = [
            await producer.send(
                Message(
                    topic,
                    b"%d" % number,
                    "A",
                    f"order-{number}",
                    {"colour": "grün"},
                    sharding_key=f"customer-{number}",
                )
            )
            for number in range(3)
        ]

    async def fail(message: ReceivedMessage) -> None:
        raise ValueError("never")

    async def letters_of_the_group() -> DeadLetterListing:
        try:
            return await admin.dead_letters.list(unique)
        except NoQueueError:
            await allow_reading(core_of(client), f"%DLQ%{unique}")
            return await admin.dead_letters.list(unique)

    async with trio.open_nursery() as nursery:
        own = await nursery_client(nursery, cluster)
        consumer = own.push_consumer(unique, consume_from="earliest", max_reconsume_times=0)
        await nursery.start(run_consumer, consumer, topic, "*", fail)
        listing = await poll_until(letters_of_the_group, lambda some: some.total == 3)
        nursery.cancel_scope.cancel()
    letters: dict[bytes, DeadLetter] = {one.message.body: one for one in listing.letters}
    assert (len(listing.letters), listing.failures) == (3, {})
    for number, result in enumerate(sent):
        letter = letters[b"%d" % number]
        assert (letter.group, letter.origin_topic) == (unique, topic)
        assert letter.message.message_id == result.message_id
        if cluster.is_at_least("4.9.1"):  # older brokers do not store the id
            assert letter.origin_message_id == result.offset_message_id
    (newest,) = (await admin.dead_letters.list(unique, max_messages=1)).letters
    assert newest.message.message_id == listing.letters[-1].message.message_id
    later = newest.message.store_time_ms + 1
    assert (await admin.dead_letters.list(unique, start=Position.time(later))).letters == ()
    assert len((await admin.dead_letters.list(unique, end=Position.time(later))).letters) == 3
    with pytest.raises(ConfigurationError, match="max_messages is 0"):
        await admin.dead_letters.list(unique, max_messages=0)
