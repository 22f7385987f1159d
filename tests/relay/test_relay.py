"""Relays: wrong options, stores in use, expired messages, and kills."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
import trio

pytest.importorskip("rocksdict", reason="the extra relay is not installed")

from rocketmq_py import Client, LitePullConsumer, Message, MessageQueue, ReceivedMessage
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.client import core_of
from rocketmq_py.errors import (
    ClosedError,
    ConfigurationError,
    NotAssignedError,
    OutsideEventLoopError,
    StoreError,
)
from rocketmq_py.relay import Relay, cancel, wait_in
from rocketmq_py.relay.buffer_entries import Cancellation, parse_entry
from rocketmq_py.relay.delivery import QueueDelivery
from rocketmq_py.relay.store import Store
from tests.behaviours.conftest import create_topic
from tests.relay.kills import BUFFER, TARGET, Kills

KILLS = 4
QUEUE = MessageQueue("Buffer", "broker-a", 0)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_rate": 0}, "max_rate is 0; it must be above 0"),
        ({"batch_size": -1}, "batch_size is -1"),
        ({"topic": "no topic!"}, "no topic!"),
        ({"store": ""}, "store is empty"),
        ({"progres_interval": 1}, "did you mean 'progress_interval'?"),
    ],
)
def test_the_constructor_refuses_a_wrong_option(options: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Relay("127.0.0.1:1", **{"topic": "Buffer", "store": "unused", **options})  # type: ignore[arg-type]
    assert text in str(caught.value)


def test_a_relay_outside_of_trio_raises_an_error_that_names_the_command(tmp_path: Path) -> None:
    async def enter() -> None:
        async with Relay("127.0.0.1:1", topic="Buffer", store=tmp_path):
            pass

    with pytest.raises(OutsideEventLoopError) as caught:
        asyncio.run(enter())
    assert str(caught.value).endswith("; other programs start the command `rocketmq-py relay`")
    relay: Any = Relay("127.0.0.1:1", topic="Buffer", store=tmp_path)
    with pytest.raises(TypeError, match=r"use 'async with Relay\(.*`rocketmq-py relay`"), relay:
        pass


async def test_a_second_relay_on_the_same_store_is_refused(tmp_path: Path) -> None:
    async with EmbeddedBroker() as broker:
        async with Relay(broker.name_server_address, topic="Buffer", store=tmp_path) as relay:
            with pytest.raises(ConfigurationError, match="in use by another relay"):
                async with Relay(broker.name_server_address, topic="Buffer", store=tmp_path):
                    pass
        with pytest.raises(ClosedError):
            await relay.run()


async def test_messages_of_a_buffer_topic_with_a_long_name_can_be_cancelled() -> None:
    """RELAY_ and the topic are too long for a group then. The relay has an explicit group."""
    topic = "T" * 120
    async with EmbeddedBroker() as broker, Client(broker.name_server_address) as client:
        await create_topic(client, topic, queues=1)
        await cancel(client, topic, "id")
        async with client.reader() as reader:
            queue = MessageQueue(topic, "broker-a", 0)
            (message,) = [message async for message in reader.range(queue)]
    assert parse_entry(message) == Cancellation("id")


@pytest.mark.parametrize(
    ("message_id", "text"), [("", "message_id is empty"), (None, "message_id must be a str, not None")]
)
async def test_cancelling_without_a_message_id_is_refused(message_id: Any, text: str) -> None:
    async with EmbeddedBroker() as broker, Client(broker.name_server_address) as client:
        await create_topic(client, "Buffer", queues=1)
        with pytest.raises(ConfigurationError) as caught:
            await cancel(client, "Buffer", message_id)
    assert str(caught.value) == text


async def test_messages_that_expired_before_they_were_read_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def min_offset(_: MessageQueue) -> int:
        await trio.lowlevel.checkpoint()
        return 4

    with Store(tmp_path) as store:
        store.open_queue(QUEUE).write([], 3)
    async with EmbeddedBroker() as broker, Client(broker.name_server_address) as client:
        await create_topic(client, "Buffer", queues=1)
        async with client.producer("senders") as producer:
            for _ in range(5):
                await producer.send(Message("Buffer", b"x"))
        monkeypatch.setattr(core_of(client).brokers, "min_offset", min_offset)
        async with Relay(client, topic="Buffer", store=tmp_path) as relay:
            with trio.fail_after(20):
                while not relay.assignment:
                    await trio.sleep(0.02)
    assert "messages expired before they were read and are lost queue=" in caplog.text
    assert "offsets=3-3" in caplog.text


async def test_a_queue_is_acquired_again_after_it_was_revoked_during_the_seek(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seek, revoked = LitePullConsumer.seek, [QUEUE, QUEUE]

    async def seek_with_errors(self: LitePullConsumer, queue: MessageQueue, offset: int) -> None:
        if revoked:
            raise NotAssignedError(f"{revoked.pop()} is not assigned")
        await seek(self, queue, offset)

    monkeypatch.setattr(LitePullConsumer, "seek", seek_with_errors)
    async with EmbeddedBroker() as broker, Client(broker.name_server_address) as client:
        await create_topic(client, "Buffer", queues=1)
        async with Relay(client, topic="Buffer", store=tmp_path) as relay:
            with trio.fail_after(20):
                while relay.assignment != [QUEUE]:
                    await trio.sleep(0.02)


@pytest.mark.parametrize("answers", [True, False])
async def test_closing_waits_for_the_answers_to_messages_in_flight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, answers: bool
) -> None:
    asked, answer = trio.Event(), trio.Event()

    async def finish(_: QueueDelivery) -> None:
        asked.set()
        await answer.wait()

    monkeypatch.setattr(QueueDelivery, "finish", finish)
    close_timeout = 60 if answers else 0.01
    async with (
        EmbeddedBroker() as broker,
        Client(broker.name_server_address) as client,
        trio.open_nursery() as nursery,
    ):
        await create_topic(client, "Buffer", queues=1)
        relay = Relay(client, topic="Buffer", store=tmp_path, close_timeout=close_timeout)
        await relay.start(nursery)
        with trio.fail_after(20):
            while relay.assignment != [QUEUE]:
                await trio.sleep(0.02)
            async with trio.open_nursery() as closing:
                closing.start_soon(relay.aclose)
                await asked.wait()
                if answers:
                    answer.set()
    assert ("closing without the answers for messages in flight" in caplog.text) != answers


async def test_a_queue_that_is_revoked_and_assigned_during_a_poll_is_read_without_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile another relay has read messages that this relay has not."""
    poll, may_revoke, was_reassigned = LitePullConsumer.poll, trio.Event(), trio.Event()

    async def poll_with_rebalance(self: LitePullConsumer, **options: Any) -> list[ReceivedMessage]:
        if may_revoke.is_set() and not was_reassigned.is_set():
            await self._queues.assign("Buffer", [])
            for _ in range(3):
                await producer.send(wait_in("Buffer", Message("T", b"x"), due_ms))
            await core_of(client).brokers.commit_offset("RELAY_Buffer", QUEUE, 3)
            await self._queues.assign("Buffer", [QUEUE])
            was_reassigned.set()
        return await poll(self, **options)

    monkeypatch.setattr(LitePullConsumer, "poll", poll_with_rebalance)
    async with EmbeddedBroker() as broker, Client(broker.name_server_address) as client:
        await create_topic(client, "Buffer", queues=1)
        due_ms = core_of(client).now_ms() + 3_600_000
        async with (
            client.producer("senders") as producer,
            Relay(client, topic="Buffer", store=tmp_path) as relay,
        ):
            await producer.send(wait_in("Buffer", Message("T", b"x"), due_ms))
            with trio.fail_after(20):
                await until_read(relay, 1)
                may_revoke.set()
                await was_reassigned.wait()
                await until_read(relay, 4)
    with Store(tmp_path) as store:
        assert len([*store.open_queue(QUEUE).messages()]) == 4


async def until_read(relay: Relay, offset: int) -> None:
    """Wait until a relay has read its buffer queue up to an offset."""
    while QUEUE not in relay._owned or (relay._owned[QUEUE].store.next_offset or 0) < offset:
        await trio.sleep(0.02)


async def test_run_raises_if_the_store_cannot_be_used_to_acquire_a_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise StoreError("the store cannot be used: No space left on device")

    monkeypatch.setattr(Store, "open_queue", fail)
    async with EmbeddedBroker() as broker, Client(broker.name_server_address) as client:
        await create_topic(client, "Buffer", queues=1)
        async with Relay(client, topic="Buffer", store=tmp_path) as relay:
            with trio.fail_after(20), pytest.raises(StoreError, match="No space left on device"):
                await relay.run()


@pytest.mark.parametrize("members", [1, 2])
async def test_kills_at_random_times_lose_no_message(members: int, tmp_path: Path) -> None:
    async with EmbeddedBroker() as broker, Client(broker.name_server_address) as client:
        await create_topic(client, BUFFER, queues=4)
        await create_topic(client, TARGET, queues=4)
        rng = random.Random(20261122)
        kills = Kills(broker.name_server_address, client, tmp_path, KILLS, members, rng)
        await kills.run()
    kills.check()
