"""Bounds for the number of Python function calls that the client or the embedded broker makes per message.

The numbers do not depend on the load of the machine, because client and broker run in one simulation with a
seeded task order. Only functions of the library are counted, since trio's calls depend on the network. If a
bound is exceeded, a change has added work to every message. Check whether it can be done once per received
chunk, once per route, or only where it is needed. Lower a bound that is far above the measured number.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import trio

import rocketmq_py
from rocketmq_py import Message, PendingSend, Producer, PushConsumer
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.testing import World, simulate
from tests import virtual_time

MESSAGES = 1000
IN_FLIGHT = 256
WARM_UP = 100
_LIBRARY = str(Path(rocketmq_py.__file__).parent)
_TESTING = str(Path(_LIBRARY, "testing"))
_is_client: ContextVar[bool] = ContextVar("_is_client", default=False)


class Calls(trio.abc.Instrument):
    """Counts the calls of Python functions in tasks that were started where ``_is_client`` is set.

    Functions that threads run in the trio thread count, too. Here only the client's handler threads do so.

    Args:
        of_broker: count calls in all other tasks instead.
    """

    def __init__(self, *, of_broker: bool = False) -> None:
        self._of_broker = of_broker
        self.count = 0
        self.is_counting = False

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        is_client = task.context.get(_is_client, False) or "run_sync_soon" in task.name
        if self.is_counting and is_client != self._of_broker:
            sys.setprofile(self._event)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        sys.setprofile(None)

    def _event(self, frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith((_LIBRARY, "<attrs")) and not file.startswith(_TESTING):
            self.count += 1


def calls_of(work: Callable[[str, Calls], Awaitable[None]], *, of_broker: bool = False) -> float:
    """Return the calls per message, of MESSAGES, that the client or the broker makes in ``work``."""
    calls = Calls(of_broker=of_broker)

    async def main(world: World) -> None:
        trio.lowlevel.add_instrument(calls)
        if not of_broker:
            _is_client.set(True)
            await work(world.name_server_address, calls)
            return
        # The world's own brokers record all requests for tests. This one is configured as by default.
        async with EmbeddedBroker() as broker:
            _is_client.set(True)
            await work(broker.name_server_address, calls)

    simulate(main, seed=0, latency=(0.0, 0.0), split=0.0)
    return calls.count / MESSAGES


def calls_with_threads(work: Callable[[str, Calls], Awaitable[None]]) -> float:
    """Return the client's calls per message, of MESSAGES, in ``work``, which uses real threads.

    Simulations have no threads. Their timing differs between runs, so bounds need a margin.
    """
    calls = Calls()

    async def main() -> None:
        async with EmbeddedBroker() as broker:
            _is_client.set(True)
            await work(broker.name_server_address, calls)

    virtual_time.run(main, instruments=[calls])
    return calls.count / MESSAGES


async def _pipelined(producer: Producer, count: int) -> None:
    left, all_done = count, trio.Event()

    def on_done(pending: PendingSend) -> None:
        nonlocal left
        assert pending.exception() is None
        left -= 1
        if not left:
            all_done.set()

    for _ in range(count):
        (await producer.submit(Message("T", b"x" * 128))).add_done_callback(on_done)
    await all_done.wait()


async def pipelined(address: str, calls: Calls) -> None:
    async with Producer(address, max_in_flight=IN_FLIGHT) as producer:
        await _pipelined(producer, WARM_UP)
        calls.is_counting = True
        await _pipelined(producer, MESSAGES)
        calls.is_counting = False


async def batching(address: str, calls: Calls) -> None:
    async with Producer(address, linger=0.005) as producer:
        await _pipelined(producer, WARM_UP)
        calls.is_counting = True
        await _pipelined(producer, MESSAGES)
        calls.is_counting = False


async def awaited(address: str, calls: Calls) -> None:
    async with Producer(address) as producer:
        for number in range(WARM_UP + MESSAGES):
            calls.is_counting = number >= WARM_UP
            await producer.send(Message("T", b"x" * 128))
        calls.is_counting = False


async def in_lists(address: str, calls: Calls) -> None:
    async with Producer(address) as producer:
        for number in range(0, WARM_UP + MESSAGES, 100):
            calls.is_counting = number >= WARM_UP
            await producer.send_batch([Message("T", b"x" * 128) for _ in range(100)])
        calls.is_counting = False


async def _consumed(address: str, calls: Calls, batch_size: int | None, *, plain: bool = False) -> None:
    async with Producer(address) as producer:
        for _ in range((WARM_UP + MESSAGES) // 100):
            await producer.send_batch([Message("T", b"x" * 128) for _ in range(100)])
    left = WARM_UP + MESSAGES
    async with PushConsumer(address, group="G", consume_from="earliest", batch_size=batch_size) as consumer:

        def consumed(count: int) -> None:
            nonlocal left
            left -= count
            calls.is_counting = 0 < left <= MESSAGES  # excludes the calls of the consumer's start
            if not left:
                consumer.stop()

        def handle_in_thread(messages: Any) -> None:
            trio.from_thread.run_sync(consumed, len(messages) if batch_size else 1)

        async def handle(_: Any) -> None:
            consumed(1)

        async def handle_list(messages: Any) -> None:
            consumed(len(messages))

        consumer.subscribe("T")
        await consumer.run(handle_in_thread if plain else handle if batch_size is None else handle_list)


async def consumed(address: str, calls: Calls) -> None:
    await _consumed(address, calls, None)


async def consumed_in_lists(address: str, calls: Calls) -> None:
    await _consumed(address, calls, 32)


async def consumed_plainly(address: str, calls: Calls) -> None:
    await _consumed(address, calls, None, plain=True)


@pytest.mark.parametrize(
    ("work", "bound"),
    [
        (pipelined, 39.7),
        (awaited, 76.1),
        (in_lists, 1.9),
        (batching, 11.0),
        (consumed, 7.6),
        (consumed_in_lists, 4.6),
    ],
)
def test_a_message_takes_no_more_calls_than_stated(
    work: Callable[[str, Calls], Awaitable[None]], bound: float
) -> None:
    assert calls_of(work) <= bound


def test_a_message_for_a_plain_handler_takes_no_more_calls_than_stated() -> None:
    assert calls_with_threads(consumed_plainly) <= 7.6


@pytest.mark.parametrize(("work", "bound"), [(pipelined, 43.2), (in_lists, 12.6), (consumed, 2)])
def test_a_message_takes_the_broker_no_more_calls_than_stated(
    work: Callable[[str, Calls], Awaitable[None]], bound: float
) -> None:
    assert calls_of(work, of_broker=True) <= bound
