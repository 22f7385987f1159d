"""Cancels the asyncio API at each await, and checks that nothing leaks and no message is lost."""

from __future__ import annotations

import asyncio
import itertools
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

import pytest

from rocketmq_py import Message, ReceivedMessage, TransactionState
from rocketmq_py.aio import (
    Admin,
    Client,
    LitePullConsumer,
    PopConsumer,
    Producer,
    PushConsumer,
    Reader,
    TransactionProducer,
)
from rocketmq_py.client import core_of
from rocketmq_py.handoff.trio_thread import trio_thread
from tests.aio.conftest import run
from tests.leftovers import Leftovers

pytestmark = pytest.mark.long

LATER = (0, 1)
"""Iterations of the event loop between an await and its cancellation. The result may arrive in between."""
BODIES = {b"%d" % number for number in range(200)}  # more than all cancelled calls can receive
FIRST = "earliest"


@types.coroutine
def _cancelled_at(coroutine: Coroutine[Any, Any, object], step: int, later: int) -> Generator[Any, Any, None]:
    """Drive a coroutine and cancel its task ``later`` iterations of the event loop after await ``step``."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None

    def cancel(turns: int) -> None:
        if turns:
            loop.call_soon(cancel, turns - 1)
        else:
            task.cancel()

    resume: Callable[..., Any] = coroutine.send
    value: Any = None
    for number in itertools.count(1):
        try:
            waits_for = resume(value)
        except StopIteration:
            return
        if number == step:
            cancel(later)
        try:
            value, resume = (yield waits_for), coroutine.send
        except BaseException as error:  # noqa: BLE001  # the coroutine handles it
            value, resume = error, coroutine.throw


async def cancel_at_each_await(
    operation: Callable[[], Coroutine[Any, Any, object]], check: Callable[[], Awaitable[object]]
) -> int:
    """Run an operation repeatedly, cancelled at its first await, its second …. Return the number of awaits.

    ``check`` runs after each run. The first run that ends before its cancellation is the last.
    """
    for step in itertools.count(1):
        for later in LATER:
            task = asyncio.create_task(_awaited(_cancelled_at(operation(), step, later)))
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()
            await check()
            if not later and not task.cancelled():
                return step
    raise AssertionError("not reached")


async def _awaited(awaitable: Awaitable[None]) -> None:
    await awaitable


async def nothing_left(leftovers: Leftovers) -> None:
    for _ in leftovers.until_none():
        await asyncio.sleep(0.001)


async def stored(address: str, topic: str) -> list[bytes]:
    async with (
        Reader(address) as reader,
        reader.open(topic, start="earliest", stop_at_end=True) as all_,
    ):
        return [message.body async for message in all_]


async def fill(address: str) -> None:
    async with Producer(address, group="sender") as producer:
        for body in BODIES:
            await producer.send(Message("T", body))


class Acknowledged:
    """The acknowledged messages of a producer."""

    def __init__(self) -> None:
        self.numbers = itertools.count()
        self.bodies: set[bytes] = set()

    def message(self, topic: str = "T") -> Message:
        return Message(topic, b"%d" % next(self.numbers))

    def note(self, message: Message) -> None:
        self.bodies.add(message.body)


async def send_in_each_way(address: str, acknowledged: Acknowledged) -> None:
    async with Client(address) as client, client.producer("g") as producer:
        message = acknowledged.message()
        await producer.send(message)
        acknowledged.note(message)
        await producer.send_oneway(acknowledged.message())
        message = acknowledged.message()
        future = await producer.submit(message)
        await future
        acknowledged.note(message)
        await producer.submit(acknowledged.message())
        await producer.flush()
        messages = [acknowledged.message(), acknowledged.message()]
        await producer.send_batch(messages)
        for message in messages:
            acknowledged.note(message)
        await producer.queues("T")


async def send_batches(address: str, acknowledged: Acknowledged) -> None:
    async with Producer(address, group="g", linger=0.001) as producer:
        message = acknowledged.message()
        await producer.send(message)
        acknowledged.note(message)
        messages = [acknowledged.message(), acknowledged.message()]
        await producer.send_all(messages)
        for message in messages:
            acknowledged.note(message)
        future = await producer.submit(acknowledged.message())
        await producer.flush()
        await future


async def send_in_transactions(address: str, acknowledged: Acknowledged) -> None:
    async def check(_: ReceivedMessage) -> TransactionState:
        return TransactionState.UNKNOWN

    async def work(_: Message, __: str) -> TransactionState:
        await asyncio.sleep(0)
        return TransactionState.COMMIT

    async with TransactionProducer(address, group="g", check=check) as producer:
        message = acknowledged.message()
        await producer.send_in_transaction(message, work)
        acknowledged.note(message)
        message = acknowledged.message()
        async with producer.transaction(message):
            await asyncio.sleep(0)
        acknowledged.note(message)


@pytest.mark.parametrize("operation", [send_in_each_way, send_batches, send_in_transactions])
def test_opening_sending_and_closing(
    address: str, operation: Callable[[str, Acknowledged], Coroutine[Any, Any, None]]
) -> None:
    async def main() -> None:
        acknowledged, leftovers = Acknowledged(), Leftovers()
        await fill(address)

        async def check() -> None:
            await nothing_left(leftovers)
            assert not trio_thread().open

        await nothing_left(leftovers)
        assert await cancel_at_each_await(lambda: operation(address, acknowledged), check) > 5
        assert acknowledged.bodies <= set(await stored(address, "T"))

    run(main())


def test_a_producer_that_stays_open(address: str) -> None:
    async def main() -> None:
        acknowledged = Acknowledged()
        async with Producer(address, group="g", max_in_flight=1) as producer:
            await producer.send(acknowledged.message())

            async def send() -> None:
                message = acknowledged.message()
                await producer.send(message)
                acknowledged.note(message)
                first, second = acknowledged.message(), acknowledged.message()
                for future, message in [
                    (await producer.submit(first), first),
                    (await producer.submit(second), second),
                ]:
                    await future
                    acknowledged.note(message)
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.01):
                        await producer.request(Message("Unheard", b"x"), timeout=60)

            async def check() -> None:
                await producer.flush()
                assert producer.in_flight == 0
                message = acknowledged.message()
                await producer.send(message)
                acknowledged.note(message)

            assert await cancel_at_each_await(send, check) >= 4
            await producer.flush()
            connections = core_of(producer._target).connections
            assert sum(connection.pending for connection in connections.open_connections()) == 0
        sent = await stored(address, "T")
        assert acknowledged.bodies <= set(sent)
        assert len(set(sent)) == len(sent)

    run(main())


def test_reading_and_administering(address: str) -> None:
    async def main() -> None:
        await fill(address)
        leftovers = Leftovers()

        async def read() -> None:
            async with Reader(address) as reader:
                async with reader.open("T", start="earliest", stop_at_end=True) as messages:
                    assert {message.body async for message in messages} == BODIES
                (queue, *_) = await reader.offsets("T")
                assert all([message.queue == queue async for message in reader.range(queue)])
            async with Admin(address) as admin:
                await admin.topics.describe("T")

        async def check() -> None:
            await nothing_left(leftovers)

        assert await cancel_at_each_await(read, check) > 5

    run(main())


def test_messages_of_cancelled_polls_are_not_lost(address: str) -> None:
    async def main() -> None:
        await fill(address)
        seen: list[bytes] = []
        async with LitePullConsumer(address, group="g", consume_from=FIRST) as consumer:
            consumer.subscribe("T")

            async def poll() -> None:
                seen.extend([message.body for message in await consumer.poll(max_messages=2, wait=60)])
                message = await anext(consumer)
                seen.append(message.body)

            async def check() -> None:
                assert len(set(seen)) == len(seen)

            await cancel_at_each_await(poll, check)
            while len(seen) < len(BODIES):
                seen.extend([message.body for message in await consumer.poll(wait=60)])
        assert sorted(seen) == sorted(BODIES)

    run(main())


def test_messages_of_cancelled_pops_are_not_lost(address: str) -> None:
    async def main() -> None:
        await fill(address)
        seen: list[bytes] = []
        async with PopConsumer(address, group="g", consume_from=FIRST) as consumer:
            consumer.subscribe("T")

            async def receive() -> None:
                messages = await consumer.receive(max_messages=2, wait=60)
                seen.extend([message.body for message in messages])
                await consumer.ack(*messages)

            async def check() -> None:
                assert len(set(seen)) == len(seen)

            await cancel_at_each_await(receive, check)
            while len(seen) < len(BODIES):
                await receive()
        assert sorted(seen) == sorted(BODIES)

    run(main())


def test_a_push_consumer_cancelled_anywhere_loses_nothing(address: str) -> None:
    async def main() -> None:
        await fill(address)
        leftovers, groups = Leftovers(), itertools.count()
        handled: set[bytes] = set()
        group = ""

        async def consume() -> None:
            async with PushConsumer(address, group=group, consume_from=FIRST, concurrency=3) as consumer:
                consumer.subscribe("T")

                async def handle(message: ReceivedMessage) -> None:
                    await asyncio.sleep(0)
                    handled.add(message.body)
                    if handled == BODIES:
                        consumer.stop()

                await consumer.run(handle)

        async def cancelled() -> None:
            nonlocal group
            group = f"group-{next(groups)}"
            handled.clear()
            await consume()

        async def check() -> None:
            if handled != BODIES:
                await consume()
            assert handled == BODIES
            await nothing_left(leftovers)

        assert await cancel_at_each_await(cancelled, check) >= 3

    run(main())
