"""The minimum cost of a send from threads whose connection is in a trio thread, without a client.

It sends prepared frames to one queue, and only counts the answers. Frames reach the trio thread in a deque,
with one eventfd wake-up for all frames that are queued together. A waiting thread blocks on a bare lock. If
several answers arrive together, each thread wakes the next one when it waits again, and the trio thread
waits for the last one: waking all at once costs more. In mode ``pipelined``, one thread sends, and waits at
the limit of sends in flight.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import trio

from integration.benchmarks.programs.floor import READ_SIZE, Answers, prepared
from integration.benchmarks.programs.measuring import LATENCY_EVERY, Stopwatch, options, report, timed
from rocketmq_py.address import split_address
from rocketmq_py.handoff.trio_thread import WakeupFd


def locked_lock() -> threading.Lock:
    """Return a lock that is acquired: the next acquire waits until it is released."""
    lock = threading.Lock()
    lock.acquire()
    return lock


class Connection:
    """A connection to a broker in a thread that runs trio, for other threads.

    Args:
        address: the broker's.
        frame: the frame of each send.
        on_answers: called in the trio thread with the number of answers that have arrived together.
    """

    def __init__(self, address: str, frame: bytes, on_answers: Callable[[int], None]) -> None:
        self._address = address
        self._frame = frame
        self._on_answers = on_answers
        self._to_send: deque[None] = deque()
        self._wakeup_fd = WakeupFd()
        self.is_awake = False
        threading.Thread(target=trio.run, args=(self._serve,), daemon=True).start()

    def send(self) -> None:
        """Send a message."""
        self._to_send.append(None)
        if not self.is_awake:
            self.wake()

    def wake(self) -> None:
        """Wake up the thread to send all pending frames."""
        self.is_awake = True
        self._wakeup_fd.wake()

    async def _serve(self) -> None:
        stream = await trio.open_tcp_stream(*split_address(self._address))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._receive, stream.socket.fileno())
            while True:
                await trio.lowlevel.wait_readable(self._wakeup_fd)
                self._wakeup_fd.drain()
                self.is_awake = False
                count = len(self._to_send)
                for _ in range(count):
                    self._to_send.popleft()
                data, written = self._frame * count, 0
                with suppress(BlockingIOError):  # bypasses the stream
                    written = os.write(stream.socket.fileno(), data)
                if written < len(data):
                    await stream.send_all(data[written:])

    async def _receive(self, descriptor: int) -> None:
        answers = Answers()
        while True:
            await trio.lowlevel.wait_readable(descriptor)
            data = os.read(descriptor, READ_SIZE)
            if not data:
                raise ConnectionError("the broker closed the connection")
            if count := answers.count(data):
                self._on_answers(count)


class Awaiting:
    """Threads that each wait for the response to their request.

    Args:
        address, frame: as for a Connection.
    """

    def __init__(self, address: str, frame: bytes) -> None:
        self._unanswered: deque[threading.Lock] = deque()
        self._turns: deque[threading.Lock] = deque()
        self._connection = Connection(address, frame, self._wake)

    def send(self, lock: threading.Lock) -> None:
        """Send a message, and wait for the answer."""
        self._unanswered.append(lock)
        self._connection.send()
        if self._turns:
            self._turns.popleft().release()
        lock.acquire()

    def _wake(self, answers: int) -> None:
        locks = [self._unanswered.popleft() for _ in range(answers)]
        if answers == 1:
            locks[0].release()
            return
        self._connection.is_awake = True
        all_had_one = locked_lock()
        self._turns.extend([*locks[1:], all_had_one])
        locks[0].release()
        while not all_had_one.acquire(timeout=0.01):  # near the end, some threads do not wait again
            if self._turns:
                self._turns.popleft().release()
        self._connection.wake()


def awaited(awaiting: Awaiting, number: int, count: int) -> list[float]:
    """Send from ``number`` threads, each one message after another."""
    latencies: list[float] = []

    def send_share(share: int) -> None:
        lock = locked_lock()
        for _ in range(share):
            started = time.perf_counter()
            awaiting.send(lock)
            latencies.append(time.perf_counter() - started)

    threads = [
        threading.Thread(target=send_share, args=((count + index) // number,)) for index in range(number)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return latencies


class Pipelined:
    """Keeps up to ``most`` sends in flight. At the limit, waits until a quarter of them are answered."""

    def __init__(self, address: str, frame: bytes, most: int) -> None:
        self._most = most
        self._free_from = most // 4
        self._sent = self._answered = 0
        self._noted: deque[Callable[[object], None] | None] = deque()
        self._lock = locked_lock()
        self._waiting: deque[int] = deque()
        self._connection = Connection(address, frame, self._note)

    def send(self, count: int) -> list[float]:
        """Send ``count`` messages, and wait for all answers."""
        latencies: list[float] = []
        for number in range(count):
            if self._sent - self._answered >= self._most:
                self._wait(self._sent - self._most + self._free_from)
            self._noted.append(None if number % LATENCY_EVERY else timed(latencies))
            self._sent += 1
            self._connection.send()
        self._wait(self._sent)
        return latencies

    def _wait(self, until: int) -> None:
        self._waiting.append(until)
        if self._answered >= until:
            with suppress(IndexError):  # the trio thread is releasing the lock
                self._waiting.pop()
                return
        self._lock.acquire()

    def _note(self, answers: int) -> None:
        for _ in range(answers):
            done = self._noted.popleft()
            if done is not None:
                done(None)
        self._answered += answers
        if self._waiting and self._answered >= self._waiting[0]:
            with suppress(IndexError):  # the sending thread has noticed it
                self._waiting.pop()
                self._lock.release()


def main() -> None:
    """Run the program."""
    parser = options(__doc__, "namesrv", ("awaited", "callers", "pipelined"))
    chosen = parser.parse_args()
    address, frame = trio.run(prepared, chosen)
    sends: Callable[[int], list[float]]
    if chosen.mode == "pipelined":
        sends = Pipelined(address, frame, chosen.in_flight).send
    else:
        number = chosen.callers if chosen.mode == "callers" else 1
        sends = partial(awaited, Awaiting(address, frame), number)
    sends(chosen.warm_up or 1)  # the connection is open then
    watch = Stopwatch()
    latencies = sends(chosen.count)
    watch.stop()
    report(watch, latencies)


if __name__ == "__main__":
    main()
