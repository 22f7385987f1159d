"""Queues that move to another member while handlers of a concurrent or ordered consumer run."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing

from rocketmq_py import Client
from rocketmq_py.client import core_of
from rocketmq_py.client.broker_calls import BrokerCalls
from rocketmq_py.consumer import PushConsumer
from rocketmq_py.consumer.push.send_back import SendBack
from rocketmq_py.errors import ConnectError
from rocketmq_py.message import MessageQueue, ReceivedMessage
from tests.consumer.conftest import Fill
from tests.consumer.push_consumers import QUEUE, RecordingHandler, consumer_of

LONG = 8.0


class LongCalls(RecordingHandler):
    """A handler whose calls with some of the numbers take eight seconds."""

    def __init__(self, *long: int) -> None:
        super().__init__()
        self.long = set(long)
        self.started: list[int] = []
        self.cut_off: list[int] = []

    async def __call__(self, message: ReceivedMessage) -> None:
        number = int(message.body)
        self.started.append(number)
        if number in self.long:
            try:
                await trio.sleep(LONG)
            except trio.Cancelled:
                self.cut_off.append(number)
                raise
        await super().__call__(message)


def topic_queues(consumer: PushConsumer) -> list[MessageQueue]:
    return [queue for queue in consumer.assignment if queue.topic == "T"]


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_member_that_stops_hands_its_queues_over_while_a_handler_runs(
    address: str,
    client: Client,
    fill: Fill,
    nursery: trio.Nursery,
    jumping_clock: trio.testing.MockClock,
    orderly: bool,
) -> None:
    first, second = LongCalls(*range(0, 40, 10)), LongCalls()
    async with (
        consumer_of(address, orderly=orderly) as one,
        consumer_of(address, orderly=orderly) as two,
    ):
        nursery.start_soon(one.run, first)
        nursery.start_soon(two.run, second)
        await fill("T", 0, queues=4)
        await trio.sleep(30)
        assert len(topic_queues(one)) == len(topic_queues(two)) == 2
        await fill("T", 40, queues=4)
        await trio.sleep(1)
        running = [number for number in first.started if number not in first.numbers]
        assert running
        one.stop()
        await trio.sleep(5)
        assert not first.cut_off
        assert running == [number for number in first.started if number not in first.numbers]
        assert len(topic_queues(two)) == 4
        await fill("T", 40, first=40, queues=4)
        await trio.sleep(1)
        idle = set(range(40, 80)) - set(second.numbers)
        # Only ordered queues with running handlers wait for them.
        assert bool(idle) == orderly
        await trio.sleep(LONG)
        assert not first.cut_off
        assert set(first.numbers + second.numbers) == set(range(80))
        await trio.sleep(60)
    repeated = [number for number in first.numbers if number in second.numbers]
    assert sorted(repeated) == ([] if orderly else sorted(running))


async def test_a_single_member_keeps_its_queues_until_its_handlers_have_ended(
    client: Client, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 10)
    handler = LongCalls(3)
    async with consumer_of(client) as consumer, trio.open_nursery() as nursery:
        nursery.start_soon(consumer.run, handler)
        await trio.sleep(2)
        consumer.stop()
        await trio.sleep(2)
        assert topic_queues(consumer) == [QUEUE]
    assert handler.numbers == [0, 1, 2, 4, 5, 6, 7, 8, 9, 3]
    assert await core_of(client).brokers.committed_offset("g", QUEUE) == 10
    again = RecordingHandler()
    async with consumer_of(client) as consumer:
        with trio.move_on_after(60):
            await consumer.run(again)
    assert not again.numbers


async def refuse(*_: object, **__: object) -> None:
    raise ConnectError("127.0.0.1:1", "refused")


async def never_answer(*_: object, **__: object) -> None:
    await trio.sleep_forever()


@pytest.mark.parametrize("send_back", [refuse, never_answer])
async def test_a_message_that_cannot_be_sent_back_keeps_its_offset(
    address: str,
    client: Client,
    fill: Fill,
    nursery: trio.Nursery,
    jumping_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    send_back: Callable[..., Awaitable[None]],
) -> None:
    caplog.set_level(logging.INFO, "rocketmq_py.consumer")
    monkeypatch.setattr(BrokerCalls, "send_back", send_back)
    monkeypatch.setattr(SendBack, "send_copy", refuse)
    first, second = LongCalls(3), RecordingHandler()
    async with consumer_of(address) as one:
        await fill("T", 10)
        nursery.start_soon(one.run, first)
        await first.until(9)
        async with consumer_of(address) as two:
            two.subscribe("T")
            nursery.start_soon(two.run, second)
            await trio.sleep(1)
            one.stop()
            await trio.sleep(7)
            assert second.numbers == [3, 4, 5, 6, 7, 8, 9]
    assert not first.cut_off
    assert (
        "queues move while their handlers run, sending the messages back: group=g messages=1" in caplog.text
    )
