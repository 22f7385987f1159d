"""Consumers for asyncio."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from rocketmq_py import (
    AssignmentListener,
    Message,
    MessageQueue,
    PoppedMessage,
    Position,
    ReceivedMessage,
)
from rocketmq_py.admin import MessageType
from rocketmq_py.aio import Client, LitePullConsumer, PopConsumer, Producer, PushConsumer, Reader
from rocketmq_py.errors import ClosedError, ConfigurationError
from rocketmq_py.handoff.undelivered_messages import Fetch
from tests.aio.conftest import run

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
NUMBERS = [b"%d" % number for number in range(200)]


async def send(address: str, bodies: Sequence[bytes] = NUMBERS) -> None:
    async with Producer(address, group="sender") as producer:
        await asyncio.gather(*[await producer.submit(Message("T", body)) for body in bodies])


def test_handlers_are_tasks_of_the_loop(address: str) -> None:
    async def main() -> None:
        await send(address)
        variable.set("mine")
        seen: list[bytes] = []
        places: set[tuple[int, str]] = set()

        async def handle(message: ReceivedMessage) -> None:
            places.add((threading.get_ident(), variable.get()))
            variable.set("changed by one call, for itself")
            await asyncio.sleep(0)
            seen.append(message.body)
            if len(seen) == len(NUMBERS):
                consumer.stop()

        async with PushConsumer(address, group="g", consume_from="earliest") as consumer:
            consumer.subscribe("T")
            await consumer.run(handle)
            assert consumer.assignment == []
        assert sorted(seen) == sorted(NUMBERS)
        assert places == {(threading.get_ident(), "mine")}

    run(main())


@pytest.mark.parametrize("error", [LookupError("try again"), asyncio.CancelledError()])
def test_failed_ordered_message_is_retried_in_place(address: str, error: BaseException) -> None:
    async def main() -> None:
        await send(address, [b"x"])
        times: list[int] = []

        async def handle(message: ReceivedMessage) -> None:
            times.append(message.queue_offset)
            if len(times) == 1:
                raise error
            consumer.stop()

        async with PushConsumer(
            address, group="g", consume_from="earliest", orderly=True, suspend_current_queue=0.01
        ) as consumer:
            consumer.subscribe("T")
            await consumer.run(handle)
        assert times == [0, 0]

    run(main())


def test_a_cancelled_run_cancels_its_handlers_and_loses_nothing(address: str) -> None:
    async def main() -> None:
        await send(address, [b"x"])
        began, ended = asyncio.Event(), []

        async def wait(message: ReceivedMessage) -> None:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                ended.append(message.body)

        async def take(message: ReceivedMessage) -> None:
            ended.append(message.body)
            consumer.stop()

        async with PushConsumer(address, group="g", consume_from="earliest") as consumer:
            consumer.subscribe("T")
            running = asyncio.create_task(consumer.run(wait))
            await began.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert ended == [b"x"]
            await consumer.run(take)
        assert ended == [b"x", b"x"]

    run(main())


def test_wrong_handlers_and_uses(address: str) -> None:
    async def main() -> None:
        async with PushConsumer(address, group="g") as consumer:
            with pytest.raises(ConfigurationError):
                consumer.subscribe("T", "A", sql="a > 1")
            consumer.subscribe("T")
            with pytest.raises(ConfigurationError):
                await consumer.run(None)  # type: ignore[arg-type]
            with pytest.raises(ConfigurationError):
                await consumer.run(lambda: None)  # type: ignore[arg-type]
            with pytest.raises(ClosedError, match="not running"):
                await consumer.committed(MessageQueue("T", "broker-a", 0))

    run(main())


def test_polls(address: str) -> None:
    async def main() -> None:
        await send(address)
        changes: list[tuple[int, int]] = []

        class Listener(AssignmentListener):
            def on_assigned(self, queues: list[MessageQueue]) -> None:
                changes.append((threading.get_ident(), len(queues)))

            async def on_revoked(self, queues: list[MessageQueue]) -> None:
                await asyncio.sleep(0)
                await consumer.commit()
                changes.append((threading.get_ident(), -len(queues)))

        async with LitePullConsumer(
            address, group="g", consume_from="earliest", assignment_listener=Listener()
        ) as consumer:
            consumer.subscribe("T")
            seen = [message.body for message in await consumer.poll(max_messages=7, wait=60)]
            async for message in consumer:
                seen.append(message.body)
                if len(seen) == len(NUMBERS):
                    break
            await consumer.commit()
            count = len(consumer.assignment)
            assert [change for _, change in changes] == [count]
            assert not await consumer.poll(wait=0)
        assert [change for _, change in changes] == [count, -count]
        # A plain method runs in a worker thread, an async one on the loop.
        assert [place == threading.get_ident() for place, _ in changes] == [False, True]
        assert sorted(seen) == sorted(NUMBERS)

    run(main())


def test_a_poll_that_is_cancelled_at_any_moment_loses_nothing(address: str) -> None:
    async def main() -> None:
        await send(address)
        seen: list[bytes] = []
        async with LitePullConsumer(address, group="g", consume_from="earliest") as consumer:
            consumer.subscribe("T")
            turns = 0
            while len(seen) < len(NUMBERS):
                poll = asyncio.create_task(consumer.poll(max_messages=3, wait=60))
                for _ in range(turns % 7):
                    await asyncio.sleep(0)
                turns += 1
                if turns % 3:
                    poll.cancel()
                try:
                    seen += [message.body for message in await poll]
                except asyncio.CancelledError:
                    continue
        assert sorted(seen) == sorted(NUMBERS)

    run(main())


def test_close_does_not_commit_messages_of_a_cancelled_poll(address: str) -> None:
    async def main() -> None:
        await send(address, [b"x"])
        async with LitePullConsumer(address, group="g", consume_from="earliest") as consumer:
            consumer.subscribe("T")
            poll = partial(consumer._target.poll, wait=60)
            await consumer._call(Fetch(consumer._undelivered, poll).run)
        async with LitePullConsumer(address, group="g", consume_from="earliest") as consumer:
            consumer.subscribe("T")
            assert [message.body for message in await consumer.poll(wait=60)] == [b"x"]

    run(main())


@pytest.mark.parametrize("acknowledge", ["commit", "assign"])
def test_messages_of_a_cancelled_poll_are_not_acknowledged_before_they_are_polled(
    address: str, acknowledge: str
) -> None:
    async def main() -> None:
        await send(address)
        async with LitePullConsumer(address, group="g", consume_from="earliest") as consumer:
            queues = await consumer.queues("T")
            await consumer.assign(queues)
            fetched = await consumer._call(consumer._target.poll, max_messages=9, wait=60)
            consumer._undelivered.items.extend(fetched)
            seen = [message.body for message in await consumer.poll(max_messages=5)]
            if acknowledge == "commit":
                await consumer.commit()
            else:
                await consumer.assign(queues)
        async with LitePullConsumer(address, group="g", consume_from="earliest") as consumer:
            await consumer.assign(queues)
            while messages := await consumer.poll(wait=60):
                seen += [message.body for message in messages]
                if len(seen) >= len(NUMBERS):
                    break
        assert sorted(seen) == sorted(NUMBERS)

    run(main())


@pytest.mark.parametrize(
    ("position", "first"),
    [(1, 1), ("earliest", 0), ("latest", None), (Position.time(0), 0)],
)
def test_seek_drops_messages_of_a_cancelled_poll(
    address: str, position: Position | str | int, first: int | None
) -> None:
    async def main() -> None:
        await send(address)
        async with LitePullConsumer(address, group="g", consume_from="earliest") as consumer:
            (sought, *_) = await consumer.queues("T")
            await consumer.assign([sought])
            consumer._undelivered.items.extend(await consumer._call(consumer._target.poll, wait=60))
            await consumer.seek(sought, position)
            polled = await consumer.poll(max_messages=1, wait=0.1 if first is None else 60)
            assert [message.queue_offset for message in polled] == ([] if first is None else [first])

    run(main())


def test_a_paused_consumer_returns_messages_of_a_cancelled_poll_when_it_is_resumed(address: str) -> None:
    async def main() -> None:
        await send(address)
        async with LitePullConsumer(address, group="g", consume_from="earliest") as consumer:
            await consumer.assign((await consumer.queues("T"))[:1])
            fetched = await consumer._call(consumer._target.poll, max_messages=5, wait=60)
            consumer._undelivered.items.extend(fetched)
            consumer.pause()
            assert await consumer.poll(wait=0) == []
            consumer.resume()
            assert await consumer.poll(max_messages=5, wait=60) == fetched

    run(main())


def test_pops(address: str) -> None:
    async def main() -> None:
        await send(address, NUMBERS[:40])
        seen: list[bytes] = []
        async with PopConsumer(address, group="g", consume_from="earliest") as consumer:
            consumer.subscribe("T")
            while len(seen) < 40:
                messages: list[PoppedMessage] = await consumer.receive(wait=60)
                seen += [message.body for message in messages]
                await consumer.ack(*messages)
        assert sorted(seen) == sorted(NUMBERS[:40])

    run(main())


def test_concurrent_receives_return_their_own_messages(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with Client(address) as client, client.admin() as admin:
            await admin.topics.create("T")
        async with PopConsumer(address, group="g", consume_from="earliest") as consumer:
            consumer.subscribe("T")
            fetched = asyncio.Barrier(2)
            call = consumer._call

            async def call_together(*arguments: Any, **named: Any) -> Any:
                result = await call(*arguments, **named)
                await fetched.wait()  # both calls have fetched before either returns
                return result

            with monkeypatch.context() as patched:
                patched.setattr(consumer, "_call", call_together)
                receiving = [asyncio.create_task(consumer.receive(max_messages=1, wait=60)) for _ in range(2)]
                await send(address, NUMBERS[:2])
                received = [[message.body for message in await task] for task in receiving]
            assert sorted(received) == [[b"0"], [b"1"]]

    run(main())


def test_a_receive_whose_end_is_not_awaited_loses_nothing(address: str) -> None:
    async def main() -> None:
        await send(address, [b"x"])
        async with PopConsumer(address, group="g", consume_from="earliest") as consumer:
            consumer.subscribe("T")
            fetch = Fetch(consumer._undelivered, consumer._target.receive)
            fetch.interrupt()  # as when a second cancellation comes
            await consumer._call(fetch.run)
            assert [message.body for message in await consumer.receive(wait=60)] == [b"x"]

    run(main())


def test_held_messages_are_acknowledged_after_the_block(address: str) -> None:
    async def main() -> None:
        await send(address, NUMBERS[:2])
        async with PopConsumer(address, group="g", consume_from="earliest") as consumer:
            consumer.subscribe("T")
            (first,) = await consumer.receive(wait=60, max_messages=1)
            async with consumer.holding(first):
                await asyncio.sleep(0)
            (second,) = await consumer.receive(wait=60, max_messages=1)
            with pytest.raises(LookupError, match="mine"):
                async with consumer.holding(second):
                    raise LookupError("mine")
            held = asyncio.Event()

            async def hold() -> None:
                async with consumer.holding(second):
                    held.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(hold())
            await held.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert consumer.statistics.topics["T"].handled == 1

    run(main())


def test_held_messages_of_lite_topics_are_acknowledged_after_the_block(address: str) -> None:
    async def main() -> None:
        async with Client(address) as client, client.admin() as admin:
            await admin.topics.create("Sessions", queues=1, message_type=MessageType.LITE)
            await admin.groups.create("g", attributes={"lite.bind.topic": "Sessions"})
            async with (
                client.lite_topic_consumer("g", parent="Sessions") as consumer,
                client.producer("senders") as producer,
            ):
                await consumer.subscribe_lite("s")
                await producer.send(Message("Sessions", b"x", lite_topic="s"))
                (message,) = await consumer.receive(wait=60)
                with pytest.raises(LookupError, match="mine"):
                    async with consumer.holding(message):
                        raise LookupError("mine")
                async with consumer.holding(message):
                    assert (await admin.lite_topics.lag("g")).lag == 1
                assert (await admin.lite_topics.lag("g")).lag == 0

    run(main())


def test_readers(address: str) -> None:
    async def main() -> None:
        await send(address)
        async with Client(address) as client, client.reader() as reader:
            async with reader.open("T", start="earliest", stop_at_end=True) as messages:
                assert sorted([message.body async for message in messages]) == sorted(NUMBERS)
            with pytest.raises(ClosedError, match=r"inside `async with reader\.open\(\.\.\.\)`"):
                await anext(reader.open("T"))
            (queue, *_) = await reader.offsets("T")
            some = [message async for message in reader.range(queue)]
            assert {message.queue_id for message in some} == {queue.queue_id}
        async with Reader(address) as own:
            assert await own.topics() == ["T"]

    run(main())


def test_loops_of_several_threads_share_an_iterator(address: str) -> None:
    async def main() -> None:
        await send(address, [b"%d" % number for number in range(5000)])
        async with Reader(address) as reader:
            (queue, *_) = await reader.offsets("T")
            messages = reader.range(queue)
            taken: list[int] = []

            async def take() -> None:
                taken.extend([message.queue_offset async for message in messages])

            await asyncio.gather(*[asyncio.to_thread(asyncio.run, take()) for _ in range(3)])
            first, end = (await reader.offsets("T"))[queue]
            assert sorted(taken) == list(range(first, end))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        run(main())
    finally:
        sys.setswitchinterval(interval)
