"""Cancels the producer, the consumer and the reader at each await, and checks that nothing leaks."""

from __future__ import annotations

import gc
import threading
from collections.abc import AsyncIterator, Callable

import pytest
import trio
import trio.testing

from rocketmq_py import (
    Client,
    Message,
    Producer,
    PushConsumer,
    Reader,
    ReceivedMessage,
)
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.client import core_of
from tests.cancelling import cancel_at_each_await, open_sockets


@pytest.fixture
async def broker() -> AsyncIterator[EmbeddedBroker]:
    async with EmbeddedBroker() as broker:
        yield broker


class Leftovers:
    """Counts of tasks, threads and sockets at creation, to compare with later ones."""

    def __init__(self) -> None:
        gc.collect()
        gc.freeze()  # spares each later collection the objects that exist now
        self.before = self._count()

    def _count(self) -> tuple[int, int, int]:
        gc.collect()
        return trio.lowlevel.current_statistics().tasks_living, threading.active_count(), open_sockets()

    async def check(self) -> None:
        # The broker notices closed connections a few task steps later.
        for _ in range(200):
            await trio.testing.wait_all_tasks_blocked()
            if not self._more():
                return
        assert not self._more()

    def _more(self) -> list[str]:
        # Lower counts are no fault, since idle threads of earlier tests may end.
        kinds = ("tasks", "threads", "sockets")
        return [
            f"{now} {kind}, before {before}"
            for kind, before, now in zip(kinds, self.before, self._count(), strict=True)
            if now > before
        ]


async def test_opening_sending_and_closing_a_producer(broker: EmbeddedBroker) -> None:
    async def send_in_each_way() -> None:
        async with Producer(broker.name_server_address, group="g") as producer:
            await producer.send(Message("T", b"1"))
            pending = await producer.submit(Message("T", b"2"))
            await producer.send_oneway(Message("T", b"3"))
            await pending

    leftovers = Leftovers()
    assert await cancel_at_each_await(send_in_each_way, leftovers.check) > 5


@pytest.mark.parametrize("way", ["send", "submit", "send_oneway"])
async def test_sends_of_a_producer_that_stays_open(broker: EmbeddedBroker, way: str) -> None:
    async with Client(broker.name_server_address) as client, client.producer("g") as producer:
        send: Callable[[Message], object] = getattr(producer, way)
        topics = iter(range(1000))

        async def send_to_a_new_topic() -> None:
            topic = f"T{next(topics)}"  # a new topic needs a route request
            core_of(client).connections.close(broker.broker_address)  # the send has to reconnect
            pending = await send(Message(topic, b"x"))  # type: ignore[misc]  # one of the three above
            if way == "submit":
                await pending

        async def check() -> None:
            await trio.testing.wait_all_tasks_blocked(0.001)
            assert (
                sum(connection.pending for connection in core_of(client).connections.open_connections()) == 0
            )
            assert producer.in_flight == 0
            await producer.send(Message("works", b"still"))

        assert await cancel_at_each_await(send_to_a_new_topic, check) >= 3


async def test_waiting_for_a_place_in_flight(broker: EmbeddedBroker) -> None:
    async with Producer(broker.name_server_address, group="g", max_in_flight=1) as producer:

        async def send_two() -> None:
            await producer.submit(Message("T", b"1"))
            await producer.submit(Message("T", b"2"))

        async def check() -> None:
            await trio.testing.wait_all_tasks_blocked(0.001)
            assert producer.in_flight == 0

        assert await cancel_at_each_await(send_two, check) >= 2


async def test_a_push_consumer_cancelled_anywhere_loses_nothing(broker: EmbeddedBroker) -> None:
    count = 20
    async with Producer(broker.name_server_address, group="g") as producer:
        for number in range(count):
            await producer.send(Message("T", b"%d" % number))
    leftovers = Leftovers()
    groups = 0

    async def consume(group: str, enough: int, handled: set[bytes]) -> None:
        async with PushConsumer(
            broker.name_server_address, group=group, consume_from="earliest", concurrency=3
        ) as consumer:
            consumer.subscribe("T")

            async def handle(message: ReceivedMessage) -> None:
                await trio.lowlevel.checkpoint()
                handled.add(message.body)
                if len(handled) == enough:
                    consumer.stop()

            await consumer.run(handle)

    async def cancelled_after(steps: int) -> bool:
        """Cancel a consumer after a number of task steps. Another one receives the remaining messages."""
        nonlocal groups
        groups += 1
        group, handled = f"group-{groups}", set[bytes]()
        with trio.CancelScope() as scope:
            instrument = CancelAfterSteps(scope, steps)
            trio.lowlevel.add_instrument(instrument)
            try:
                await consume(group, count, handled)
            finally:
                trio.lowlevel.remove_instrument(instrument)
        finished = not scope.cancel_called
        if len(handled) < count:
            with trio.fail_after(30):
                await consume(group, count, handled)
        assert handled == {b"%d" % number for number in range(count)}
        await leftovers.check()
        return finished

    steps = 0
    while not await cancelled_after(steps):
        steps += 1 + steps // 8  # every step at first, then with growing gaps
    assert steps > 100


class CancelAfterSteps(trio.abc.Instrument):
    """Cancels a scope after a number of steps of any tasks."""

    def __init__(self, scope: trio.CancelScope, steps: int) -> None:
        self.scope = scope
        self.steps = steps

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if self.steps == 0:
            self.scope.cancel()
        self.steps -= 1


async def test_reading(broker: EmbeddedBroker) -> None:
    async with Producer(broker.name_server_address, group="g") as producer:
        for number in range(20):
            await producer.send(Message("T", b"%d" % number))
    leftovers = Leftovers()

    async def read() -> None:
        async with (
            Reader(broker.name_server_address) as reader,
            reader.open("T", start="earliest", stop_at_end=True) as messages,
        ):
            assert len([message async for message in messages]) == 20

    assert await cancel_at_each_await(read, leftovers.check) > 3


async def test_closing_under_load_leaves_nothing(broker: EmbeddedBroker) -> None:
    leftovers = Leftovers()
    handled = 0

    async def handle(_: ReceivedMessage) -> None:
        nonlocal handled
        handled += 1
        await trio.sleep(0)

    async with (
        trio.open_nursery() as nursery,
        Client(broker.name_server_address) as client,
        client.producer("g") as producer,
        client.push_consumer("c", consume_from="earliest") as consumer,
    ):
        consumer.subscribe("T")
        nursery.start_soon(consumer.run, handle)
        for number in range(5000):
            await producer.submit(Message("T", b"%d" % number))
        while not handled:
            await trio.sleep(0.01)
        # Everything was closed with messages in flight in both directions.
    await leftovers.check()
    assert handled
