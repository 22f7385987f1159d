"""The minimum cost of an asyncio program whose client runs in a trio thread.

It sends without a client: prepared frames to one queue. The event loop writes them itself, all frames of
one iteration in one call. A trio task only counts the answers, and returns them to the loop in a deque with
one eventfd wake-up. Awaited sends use a minimal awaitable instead of an asyncio future. Pipelined sends use
futures, a limited number in flight.

It consumes with this project's consumer on trio. Each pull passes one list to the loop, which calls the
handler for its messages one after another. No result returns to trio.

An asyncio API whose connections are in a thread cannot need less.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import select
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import suppress
from contextvars import Context
from typing import Any

import trio

from integration.benchmarks.programs.consuming import Countdown, new_consumer
from integration.benchmarks.programs.floor import READ_SIZE, Answers, prepared
from integration.benchmarks.programs.measuring import LATENCY_EVERY, Stopwatch, options, report, timed
from rocketmq_py import ReceivedMessage
from rocketmq_py.address import split_address
from rocketmq_py.handoff.trio_thread import WakeupFd


class LoopWaker(WakeupFd):
    """Wakes up the event loop, once for all pending results."""

    _is_woken = False

    def wake(self) -> None:
        """Wake up the loop, unless it has been woken up already."""
        if not self._is_woken:
            self._is_woken = True
            super().wake()

    def drain(self) -> None:
        """Clear the descriptor before the loop takes the results."""
        super().drain()
        self._is_woken = False


class Answer:
    """A future-like object that a task awaits."""

    _asyncio_future_blocking = False
    _is_there = False

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def __await__(self) -> Generator[Answer, None, None]:
        self._asyncio_future_blocking = True
        yield self

    def add_done_callback(self, resume: Callable[[Answer], object], *, context: Context) -> None:
        """Store the callback that resumes the waiting task."""
        self._resume, self._context = resume, context

    def result(self) -> None:
        """Raise nothing."""

    def set_result(self, _: None) -> None:
        """Resume the waiting task."""
        self._context.run(self._resume, self)


class Connection:
    """A connection to a broker in a thread that runs trio, for one event loop.

    Args:
        address: the broker's.
        frame: the frame of each send.
    """

    def __init__(self, address: str, frame: bytes) -> None:
        self._loop = asyncio.get_running_loop()
        self._address = address
        self._frame = frame
        self._to_send: deque[Any] = deque()
        self._unanswered: deque[Any] = deque()
        self._answered: deque[Any] = deque()
        self._to_loop = LoopWaker()
        self._writes_later = False
        self._descriptor = -1
        self._is_connected = threading.Event()
        self.on_answers: Callable[[int], None] = lambda _: None
        self._loop.add_reader(self._to_loop.fileno(), self._take_answers)
        threading.Thread(target=trio.run, args=(self._serve,), daemon=True).start()
        self._is_connected.wait()

    # On the loop

    def send(self, answer: Any) -> None:
        """Send a message. The result of ``answer`` is set when the response arrives."""
        self._to_send.append(answer)
        if not self._writes_later:
            self._writes_later = True
            self._loop.call_soon(self._write)

    def _write(self) -> None:
        self._writes_later = False
        self._unanswered += self._to_send
        data = self._frame * len(self._to_send)
        self._to_send.clear()
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:
                select.select([], [self._descriptor], [])

    def _take_answers(self) -> None:
        self._to_loop.drain()
        self._writes_later = True
        answered = self._answered
        count = len(answered)
        for _ in range(count):
            answered.popleft().set_result(None)
        self.on_answers(count)
        self._write()

    # In the thread

    async def _serve(self) -> None:
        stream = await trio.open_tcp_stream(*split_address(self._address))
        self._descriptor = stream.socket.fileno()
        self._is_connected.set()
        answers = Answers()
        while data := await stream.receive_some(READ_SIZE):
            for _ in range(answers.count(data)):
                self._answered.append(self._unanswered.popleft())
            if self._answered:
                self._to_loop.wake()
        raise ConnectionError("the broker closed the connection")


async def awaited(connection: Connection, count: int) -> list[float]:
    """Send one message after another."""
    loop, latencies = asyncio.get_running_loop(), []
    for _ in range(count):
        started = time.perf_counter()
        answer = Answer(loop)
        connection.send(answer)
        await answer
        latencies.append(time.perf_counter() - started)
    return latencies


async def callers(connection: Connection, count: int, number: int) -> list[float]:
    """Send from ``number`` tasks, each one message after another."""
    shares = [awaited(connection, (count + index) // number) for index in range(number)]
    return [latency for latencies in await asyncio.gather(*shares) for latency in latencies]


async def pipelined(connection: Connection, count: int, most: int) -> list[float]:
    """Keep up to ``most`` sends in flight. At the limit, wait until a quarter of them are answered."""
    loop, latencies = asyncio.get_running_loop(), list[float]()
    in_flight, has_space = 0, loop.create_future()

    def note_answers(answers: int) -> None:
        nonlocal in_flight
        in_flight -= answers
        if in_flight <= few and not has_space.done():
            has_space.set_result(None)

    connection.on_answers = note_answers
    few = most * 3 // 4
    for number in range(count):
        future = loop.create_future()
        if number % LATENCY_EVERY == 0:
            future.add_done_callback(timed(latencies))
        connection.send(future)
        in_flight += 1
        if in_flight == most:
            has_space = loop.create_future()
            await has_space
    few = 0
    if in_flight:
        has_space = loop.create_future()
        await has_space
    return latencies


PULLED = 32
"""Maximum messages per pull."""


async def consume(chosen: argparse.Namespace) -> None:
    """Consume a topic's backlog, with an async handler that only counts."""
    loop, lists, waker = asyncio.get_running_loop(), deque[Sequence[ReceivedMessage]](), LoopWaker()
    is_over = loop.create_future()
    countdown = Countdown(chosen, lambda: is_over.set_result(None))
    takes_lists = chosen.list > 1

    async def handle(_: ReceivedMessage) -> None:
        countdown.count(1)

    async def handle_list(messages: Sequence[ReceivedMessage]) -> None:
        countdown.count(len(messages))

    def take_results() -> None:
        waker.drain()
        while lists:
            messages = lists.popleft()
            if takes_lists:
                call(handle_list(messages))
            else:
                for message in messages:
                    call(handle(message))

    def call(coroutine: Coroutine[Any, Any, None]) -> None:
        with suppress(StopIteration):
            coroutine.send(None)

    async def pass_to_loop(messages: list[ReceivedMessage]) -> None:
        lists.append(messages)
        waker.wake()

    async def pull() -> None:
        async with new_consumer(chosen, chosen.list if takes_lists else PULLED) as consumer:
            consumer.subscribe(chosen.topic)
            await consumer.run(pass_to_loop)

    loop.add_reader(waker.fileno(), take_results)
    threading.Thread(target=trio.run, args=(pull,), daemon=True).start()
    await is_over
    loop.remove_reader(waker.fileno())
    report(countdown.watch)


async def send(chosen: argparse.Namespace, address: str, frame: bytes) -> None:
    """Measure the way to send that ``--mode`` names."""
    connection = Connection(address, frame)
    ways: dict[str, Callable[[int], Awaitable[list[float]]]] = {
        "awaited": lambda count: awaited(connection, count),
        "callers": lambda count: callers(connection, count, chosen.callers),
        "pipelined": lambda count: pipelined(connection, count, chosen.in_flight),
    }
    sends = ways[chosen.mode]
    await sends(chosen.warm_up or 1)  # the connection is open then
    watch = Stopwatch()
    latencies = await sends(chosen.count)
    watch.stop()
    report(watch, latencies)


def main() -> None:
    """Run the program."""
    parser = options(__doc__, "namesrv", ("awaited", "callers", "pipelined", "consume"))
    parser.add_argument("--loop", choices=("asyncio", "uvloop"), default="asyncio")
    chosen = parser.parse_args()
    loop_factory: Callable[[], Any] | None = None
    if chosen.loop == "uvloop":
        import uvloop  # imported on use: an optional package

        loop_factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        if chosen.mode == "consume":
            runner.run(consume(chosen))
        else:
            runner.run(send(chosen, *trio.run(prepared, chosen)))


if __name__ == "__main__":
    main()
