from __future__ import annotations

import itertools
import logging
from pathlib import Path

import pytest
import trio
import trio.testing

import rocketmq_py.consumer
from rocketmq_py import Client, ConsumeLater, Position, PushConsumer
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.client import core_of
from rocketmq_py.message import Message, MessageQueue, ReceivedMessage
from rocketmq_py.position import PositionKind
from rocketmq_py.producer import Producer
from tests.consumer.conftest import Fill, now_ms
from tests.consumer.push_consumers import QUEUE, RecordingHandler, consumer_of


async def test_broker_that_lost_its_messages(jumping_clock: trio.testing.MockClock) -> None:
    kept = RecordingHandler()

    async def send(address: str, numbers: range) -> None:
        async with Producer(address, group="p") as producer:
            for number in numbers:
                await producer.send(Message("T", b"%d" % number))

    async with trio.open_nursery() as nursery:
        async with EmbeddedBroker() as broker:
            address, port = broker.name_server_address, int(broker.broker_address.split(":")[1])
            await send(address, range(20))
            consumer = consumer_of(address)
            await consumer.start(nursery)
            nursery.start_soon(consumer.run, kept)
            await kept.until(20)
            await trio.sleep(10)
        await trio.sleep(60)
        namesrv_port = int(address.split(":")[1])
        async with EmbeddedBroker(namesrv_port=namesrv_port, port=port):
            # The offsets are beyond the ends of the queues. Brokers then send consumers to the end.
            await send(address, range(20, 24))
            await trio.sleep(60)
            count = len(kept.numbers)
            await send(address, range(24, 28))
            await kept.until(count + 4)
            await consumer.aclose()
    assert sorted(kept.numbers[count:]) == list(range(24, 28))


@pytest.mark.parametrize("consume_from", ["earliest", "latest", "time"])
async def test_message_that_failed_before_its_retry_topic_was_consumed_is_redelivered(
    client: Client, fill: Fill, consume_from: str, jumping_clock: trio.testing.MockClock
) -> None:
    """The first member of a new group may end before it has committed an offset of the retry topic."""
    await fill("T", 1)
    position = Position(PositionKind.TIME, now_ms() - 60_000) if consume_from == "time" else consume_from
    failed = trio.Event()

    async def fail(_: ReceivedMessage) -> ConsumeLater:
        failed.set()
        return ConsumeLater(delay_level=3)

    kept = RecordingHandler()
    async with trio.open_nursery() as nursery:
        async with PushConsumer(client, group="g", consume_from=position) as first:
            first.subscribe("T")
            nursery.start_soon(first.run, fail)
            await failed.wait()
        await trio.sleep(10)  # the message has reached the retry topic
        async with PushConsumer(client, group="g", consume_from=position) as second:
            second.subscribe("T")
            nursery.start_soon(second.run, kept)
            with trio.fail_after(60):
                await kept.until(1)


async def test_closing_takes_at_most_close_timeout_without_a_cluster(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        async with EmbeddedBroker() as broker:
            async with Producer(broker.name_server_address, group="p") as producer:
                await producer.send(Message("T", b"0"))
            kept = RecordingHandler()
            consumer = consumer_of(broker.name_server_address)
            await consumer.start(nursery)
            nursery.start_soon(consumer.run, kept)
            await kept.until(1)
        await trio.sleep(60)
        start = trio.current_time()
        await consumer.aclose()
        assert trio.current_time() - start <= consumer.settings.close_timeout


class CancelAtStep(trio.abc.Instrument):
    """Cancels a scope when the consumer's tasks have been suspended a number of times in total."""

    def __init__(self, scope: trio.CancelScope, step: int) -> None:
        self.scope = scope
        self.steps_left = step
        self.package = str(Path(rocketmq_py.consumer.__file__).parent)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        code = getattr(task.coro, "cr_code", None)
        if code is not None and code.co_filename.startswith(self.package):
            self.steps_left -= 1
            if self.steps_left == 0:
                self.scope.cancel()


@pytest.mark.long
async def test_cancellation_at_every_await_loses_no_message(
    client: Client,
    fill: Fill,
    caplog: pytest.LogCaptureFixture,
    jumping_clock: trio.testing.MockClock,
) -> None:
    """At every await of every task of a run: look-up, pull, handler, send back, leave."""
    caplog.set_level(logging.CRITICAL)
    count = 6
    await fill("T", count)
    poison = 3
    for step in itertools.count(1):
        group = f"g{step}"
        handled: set[int] = set()
        async with consumer_of(client, group=group, concurrency=2) as consumer:

            async def handle(message: ReceivedMessage) -> None:
                await trio.lowlevel.checkpoint()
                if message.queue_offset == poison and message.topic == "T" and not message.reconsume_times:
                    raise ValueError("not yet")
                handled.add(int(message.body))  # noqa: B023  # it ends before the next turn
                if len(handled) == count:  # noqa: B023
                    consumer.stop()

            with trio.CancelScope() as scope:
                instrument = CancelAtStep(scope, step)
                trio.lowlevel.add_instrument(instrument)
                try:
                    await consumer.run(handle)
                finally:
                    trio.lowlevel.remove_instrument(instrument)
            assert not core_of(client).heartbeats.has_consumer(group)
        committed = await core_of(client).brokers.committed_offset(group, QUEUE) or 0
        assert set(range(committed)) <= handled | {poison}
        if committed > poison and poison not in handled:
            await trio.sleep(3.1)
            retries = MessageQueue(f"%RETRY%{group}", "broker-a", 0)
            assert await core_of(client).brokers.max_offset(retries) >= 1, "it was sent back"
        if not scope.cancel_called:
            assert handled == set(range(count))
            break
    assert step > 30
