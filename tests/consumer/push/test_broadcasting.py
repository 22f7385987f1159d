from __future__ import annotations

import errno
import itertools
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from rocketmq_py import Client
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.client import core_of
from rocketmq_py.consumer import ConsumeLater, PushConsumer
from rocketmq_py.consumer.group.local_offset_commits import OffsetFile
from rocketmq_py.errors import ConfigurationError, StoreError
from rocketmq_py.message import MessageQueue, ReceivedMessage
from tests.consumer.conftest import Fill
from tests.consumer.push.test_consumer_faults import CancelAtStep
from tests.consumer.push_consumers import QUEUE, RecordingHandler, consumer_of, never


@pytest.fixture(autouse=True)
def files_without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write files without threads, because a mock clock does not wait for threads."""

    async def run_here(work: Callable[[], object], *, abandon_on_cancel: bool) -> object:
        await trio.lowlevel.checkpoint()
        return work()

    monkeypatch.setattr(trio.to_thread, "run_sync", run_here)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "offsets"


def broadcasting(address: str, folder: Path, name: str | None = None, **options: Any) -> PushConsumer:
    return consumer_of(address, broadcasting=True, local_offsets=folder, instance_name=name, **options)


def offsets_in(folder: Path, name: str = "DEFAULT") -> dict[MessageQueue, int]:
    return OffsetFile(folder / f"127.0.0.1@{name}" / "g" / "offsets.json").read()


async def test_every_member_gets_every_message(
    address: str, fill: Fill, folder: Path, nursery: trio.Nursery, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 40, queues=4)
    first, second = RecordingHandler(), RecordingHandler()
    async with broadcasting(address, folder, "one") as one, broadcasting(address, folder, "two") as two:
        nursery.start_soon(one.run, first)
        nursery.start_soon(two.run, second)
        await first.until(40)
        await second.until(40)
        await fill("T", 40, first=40)
        await first.until(80)
        await second.until(80)
        assert len(one.assignment) == len(two.assignment) == 4, "without a retry topic"
    assert sorted(first.numbers) == sorted(second.numbers) == list(range(80))
    for name in ("one", "two"):
        assert offsets_in(folder, name) == {MessageQueue("T", "broker-a", number): 20 for number in range(4)}


async def test_restarted_member_continues_from_its_file_without_commits_to_brokers(
    address: str, client: Client, fill: Fill, folder: Path, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 10)
    kept = RecordingHandler()
    for numbers in (10, 20, 30):
        async with broadcasting(address, folder) as consumer, trio.open_nursery() as nursery:
            nursery.start_soon(consumer.run, kept)
            await kept.until(numbers)
            nursery.cancel_scope.cancel()
        await fill("T", 10, first=numbers)
    assert kept.numbers == list(range(30))
    assert await core_of(client).brokers.committed_offset("g", QUEUE, zero_if_new=False) is None


@pytest.mark.parametrize(("where", "expected"), [("latest", range(10, 15)), ("earliest", range(15))])
async def test_new_member_starts_at_consume_from(
    address: str,
    fill: Fill,
    folder: Path,
    jumping_clock: trio.testing.MockClock,
    where: str,
    expected: range,
) -> None:
    """In a clustering group, brokers would start at 0 while the first messages are in memory."""
    await fill("T", 10)
    kept = RecordingHandler()
    consumer = PushConsumer(address, group="g", broadcasting=True, local_offsets=folder, consume_from=where)
    consumer.subscribe("T")
    async with consumer, trio.open_nursery() as nursery:
        nursery.start_soon(consumer.run, kept)
        await trio.sleep(5)
        await fill("T", 5, first=10)
        await trio.sleep(5)
        nursery.cancel_scope.cancel()
    assert kept.numbers == list(expected)


async def test_messages_sent_while_a_member_was_stopped_are_consumed(
    address: str, fill: Fill, folder: Path, jumping_clock: trio.testing.MockClock
) -> None:
    """Even if the member has never got a message, because its start offset is in the file."""
    await fill("T", 3)
    kept = RecordingHandler()
    consumer = PushConsumer(address, group="g", broadcasting=True, local_offsets=folder)
    consumer.subscribe("T")
    async with consumer:
        for _ in range(2):
            with trio.move_on_after(5):
                await consumer.run(kept)
            await fill("T", 3, first=3)
    assert kept.numbers == [3, 4, 5]


async def test_failed_message_is_logged_and_dropped(
    address: str,
    client: Client,
    fill: Fill,
    folder: Path,
    jumping_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await fill("T", 4)
    tries: list[int] = []

    async def handle(message: ReceivedMessage) -> ConsumeLater | None:
        tries.append(message.queue_offset)
        if message.queue_offset == 1:
            raise ValueError("no")
        if message.queue_offset == 3:
            await trio.sleep_forever()
        return ConsumeLater() if message.queue_offset == 2 else None

    async with broadcasting(address, folder, consume_timeout=5) as consumer:
        with trio.move_on_after(30):
            await consumer.run(handle)
    assert sorted(tries) == [0, 1, 2, 3]
    assert offsets_in(folder) == {QUEUE: 4}
    assert caplog.text.count("broadcasting groups have no redelivery") == 3
    assert await core_of(client).brokers.max_offset(MessageQueue("%RETRY%g", "broker-a", 0)) == 0


async def test_broadcasting_in_order(
    address: str, fill: Fill, folder: Path, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 5)
    tries: list[int] = []

    async def handle(message: ReceivedMessage) -> None:
        tries.append(message.queue_offset)
        await trio.sleep(1)
        if message.queue_offset == 2 and not message.reconsume_times:
            raise ValueError("no")

    async with broadcasting(address, folder, orderly=True) as consumer:
        with trio.move_on_after(20):
            await consumer.run(handle)
    assert tries == [0, 1, 2, 2, 3, 4]
    assert offsets_in(folder) == {QUEUE: 5}


async def test_ordered_queue_that_is_assigned_again_waits_for_its_running_call(
    address: str,
    fill: Fill,
    folder: Path,
    nursery: trio.Nursery,
    jumping_clock: trio.testing.MockClock,
) -> None:
    await fill("T", 2)
    calls: list[str] = []

    async def handle(message: ReceivedMessage) -> None:
        calls.append(f"start {message.queue_offset}")
        await trio.sleep(30)
        calls.append(f"end {message.queue_offset}")

    async with broadcasting(address, folder, orderly=True) as consumer:
        nursery.start_soon(consumer.run, handle)
        await trio.sleep(5)
        consumer.unsubscribe("T")
        await trio.sleep(3)
        consumer.subscribe("T")
        await trio.sleep(40)
        consumer.unsubscribe("T")
        await trio.sleep(30)
        assert offsets_in(folder) == {QUEUE: 2}
    assert calls == ["start 0", "end 0", "start 1", "end 1"]


async def test_offsets_are_written_every_5_seconds(
    address: str, fill: Fill, folder: Path, nursery: trio.Nursery, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 10)
    kept = RecordingHandler()
    async with broadcasting(address, folder) as consumer:
        nursery.start_soon(consumer.run, kept)
        await kept.until(10)
        await trio.sleep(2)
        assert offsets_in(folder) == {QUEUE: 10}
        await fill("T", 10, first=10)
        await kept.until(20)
        await trio.sleep(6)
        assert offsets_in(folder) == {QUEUE: 20}


async def test_full_disk_does_not_stop_consumption(
    address: str,
    fill: Fill,
    folder: Path,
    nursery: trio.Nursery,
    jumping_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def no_space(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    await fill("T", 10)
    kept = RecordingHandler()
    async with broadcasting(address, folder) as consumer:
        nursery.start_soon(consumer.run, kept)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", no_space)
            await trio.sleep(20)
            await fill("T", 10, first=10)
            await kept.until(20)
            await trio.sleep(20)
        assert offsets_in(folder) == {}
        assert caplog.text.count("No space left on device") == 2, "logged at intervals"
        await trio.sleep(6)
        assert offsets_in(folder) == {QUEUE: 20}


async def test_damaged_offset_file_is_an_error(
    address: str, fill: Fill, folder: Path, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 1)
    path = folder / "127.0.0.1@DEFAULT" / "g" / "offsets.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"{")
    async with broadcasting(address, folder) as consumer:
        with pytest.raises(StoreError, match="cannot be read"):
            await consumer.run(never)
        path.unlink()
        with trio.move_on_after(1):
            await consumer.run(never)


async def test_second_member_with_the_same_instance_name_is_rejected(
    address: str, fill: Fill, folder: Path, nursery: trio.Nursery, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 1)
    async with broadcasting(address, folder) as one, broadcasting(address, folder) as two:
        nursery.start_soon(one.run, never)
        await trio.sleep(1)
        with pytest.raises(ConfigurationError, match="Give each client its own instance_name"):
            await two.run(never)


async def test_offsets_beyond_the_end_of_a_new_broker_are_corrected(
    folder: Path, jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The offsets in the file are beyond the end of the new broker's queues."""
    caplog.set_level(logging.CRITICAL)
    path = folder / "127.0.0.1@DEFAULT" / "g" / "offsets.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:1000}}')
    kept = RecordingHandler()
    async with EmbeddedBroker() as broker, Client(broker.name_server_address) as client:
        await core_of(client).brokers.create_topic(broker.broker_address, "T", queues=1)
        consumer = broadcasting(broker.name_server_address, folder)
        async with consumer:
            with trio.move_on_after(10):
                await consumer.run(kept)
    assert offsets_in(folder) == {QUEUE: 0}


@pytest.mark.long
async def test_cancellation_at_every_await_never_writes_unprocessed_offsets(
    client: Client,
    address: str,
    fill: Fill,
    folder: Path,
    jumping_clock: trio.testing.MockClock,
) -> None:
    count = 5
    await fill("T", count)
    for step in itertools.count(1):
        handled: set[int] = set()
        consumer = consumer_of(client, broadcasting=True, local_offsets=folder / str(step))
        async with consumer:

            async def handle(message: ReceivedMessage) -> None:
                await trio.lowlevel.checkpoint()
                handled.add(message.queue_offset)  # noqa: B023  # it ends before the next turn
                if len(handled) == count:  # noqa: B023
                    consumer.stop()  # noqa: B023

            with trio.CancelScope() as scope:
                instrument = CancelAtStep(scope, step)
                trio.lowlevel.add_instrument(instrument)
                try:
                    await consumer.run(handle)
                finally:
                    trio.lowlevel.remove_instrument(instrument)
        (offset,) = offsets_in(folder / str(step)).values() or [0]
        assert set(range(offset)) <= handled
        if not scope.cancel_called:
            assert offset == count
            break
    assert step > 20
