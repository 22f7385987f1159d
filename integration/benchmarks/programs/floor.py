"""The minimum cost of a send: prepared frames to one queue, and responses that are only counted.

``awaited`` is a round trip on trio alone, with one task and one stream. The other modes use a plain socket
in a loop without any library: ``pipelined`` and ``callers`` keep several sends in flight, ``batches`` sends
one batch after another. Their rates and the CPU time of the server are those of the broker alone.

With ``--tasks``, all modes send from trio tasks over one connection: a task for each caller, which waits
for its answer, a task that reads, and a task that writes the queued frames together. A frame that is alone
is written at once. In ``batches``, only the headers are prepared: the messages and their encoding are new
for each batch, as in a program with a client.
"""

from __future__ import annotations

import argparse
import itertools
import os
import socket
import struct
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

import trio

from integration.benchmarks.programs.measuring import Stopwatch, options, report
from rocketmq_py import Client
from rocketmq_py.address import split_address
from rocketmq_py.client import core_of
from rocketmq_py.codes import RequestCode
from rocketmq_py.message import Message, MessageQueue
from rocketmq_py.protocol.batch import encode_bare
from rocketmq_py.protocol.command import encode_request
from rocketmq_py.protocol.sends import SendRequestBuilder, batch_properties, send_fields

READ_SIZE = 256 * 1024
_unpack_length = struct.Struct(">i").unpack_from
_SUCCESS = b'"code":0,'


class Answers:
    """Counts responses in received data, and checks that they are successful."""

    def __init__(self) -> None:
        self._held = b""

    def count(self, data: bytes) -> int:
        """Return the number of answers that ``data`` completes. Raises ValueError for an error response."""
        data = self._held + data
        position = complete = 0
        while len(data) - position >= 4:
            end = position + 4 + _unpack_length(data, position)[0]
            if end > len(data):
                break
            if _SUCCESS not in data[position:end]:
                raise ValueError(f"the broker answered {data[position:end]!r}")
            position = end
            complete += 1
        self._held = data[position:]
        return complete


async def prepared(chosen: argparse.Namespace) -> tuple[str, bytes]:
    """Return a broker's address, and the frame of a send to it: of a batch in mode ``batches``."""
    async with Client(chosen.address) as client:
        route = await core_of(client).routes.get(chosen.topic, for_sending=True)
        queue = route.queues_to_write()[0]
        frame = (_batch if chosen.mode == "batches" else _message)(client, queue, chosen)
        return core_of(client).routes.broker_address(queue.broker_name), frame


def _message(client: Client, queue: MessageQueue, chosen: argparse.Namespace) -> bytes:
    message = Message(chosen.topic, b"x" * chosen.size)
    fields = send_fields(
        message,
        queue,
        producer_group=chosen.group,
        unique_id=core_of(client).unique_ids.next(),
        born_time_ms=core_of(client).now_ms(),
    )
    return encode_request(RequestCode.SEND_MESSAGE_V2, 1, fields, message.body)


def _batch(client: Client, queue: MessageQueue, chosen: argparse.Namespace) -> bytes:
    form = SendRequestBuilder(RequestCode.SEND_BATCH_MESSAGE, chosen.group, chosen.topic)
    fields = form.fields(
        queue.queue_id,
        queue.broker_name,
        born_time_ms=core_of(client).now_ms(),
        properties=batch_properties(wait_store_ok=True),
    )
    body = encode_bare([b"x" * chosen.size] * chosen.batch, core_of(client).unique_ids.take(chosen.batch))
    return encode_request(form.code, 1, fields, body)


class Tasks:
    """A connection that tasks share, each waiting for the answer to its own request.

    Args:
        stream: connected to a broker.
    """

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._descriptor = stream.socket.fileno()
        self._unwritten: list[bytes] = []
        self._unanswered: deque[trio.lowlevel.Task] = deque()
        self._writer = trio.lowlevel.ParkingLot()

    async def send(self, frame: bytes) -> None:
        """Send a frame, and wait for the answer."""
        rest = frame if self._unanswered else self._write(frame)
        self._unanswered.append(trio.lowlevel.current_task())
        if rest:
            self._unwritten.append(rest)
            self._writer.unpark()
        await trio.lowlevel.wait_task_rescheduled(_never_cancelled)

    def _write(self, data: bytes) -> bytes:
        """Write to the socket directly, without waiting. Return the rest of the data."""
        with suppress(BlockingIOError):
            return data[os.write(self._descriptor, data) :]
        return data

    async def write(self) -> None:
        """Write coalesced frames in a loop."""
        while True:
            if not self._unwritten:
                await self._writer.park()
            data = b"".join(self._unwritten)
            self._unwritten.clear()
            if rest := self._write(data):
                await self._stream.send_all(rest)

    async def read(self) -> None:
        """Wake up the waiting tasks as answers arrive."""
        answers = Answers()
        while True:
            await trio.lowlevel.wait_readable(self._descriptor)
            data = os.read(self._descriptor, READ_SIZE)
            if not data:
                raise ConnectionError("the broker closed the connection")
            for _ in range(answers.count(data)):
                trio.lowlevel.reschedule(self._unanswered.popleft())


def _never_cancelled(_: object) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.FAILED


async def tasks(address: str, frame: bytes, chosen: argparse.Namespace) -> None:
    """Send from concurrent trio tasks."""
    number = {"callers": chosen.callers, "pipelined": chosen.in_flight}.get(chosen.mode, 1)
    is_batches = chosen.mode == "batches"
    messages = chosen.batch if is_batches else 1
    new_frame = _batches(frame, chosen) if is_batches else itertools.repeat(frame).__next__
    latencies: list[float] = []
    watch = Stopwatch()

    async def send_share(share: int) -> None:
        for _ in range(share):
            started = time.perf_counter()
            await connection.send(new_frame())
            latencies.append(time.perf_counter() - started)

    async def send_all(count: int) -> None:
        async with trio.open_nursery() as nursery:
            for index in range(number):
                nursery.start_soon(send_share, (count // messages + index) // number)

    async with await trio.open_tcp_stream(*split_address(address)) as stream, trio.open_nursery() as nursery:
        connection = Tasks(stream)
        nursery.start_soon(connection.write)
        nursery.start_soon(connection.read)
        await send_all(chosen.warm_up)
        latencies.clear()
        watch.start()
        await send_all(chosen.count)
        watch.stop()
        nursery.cancel_scope.cancel()
    report(watch, latencies)


def _batches(frame: bytes, chosen: argparse.Namespace) -> Callable[[], bytes]:
    """Return a function that builds the frame of a new batch of the same length."""
    take = core_of(Client(chosen.address)).unique_ids.take
    body = b"x" * chosen.size

    def new_body() -> bytes:
        batch = [Message(chosen.topic, body) for _ in range(chosen.batch)]
        return encode_bare([message.body for message in batch], take(chosen.batch))

    head = frame[: -len(new_body())]
    return lambda: head + new_body()


async def awaited(address: str, frame: bytes, chosen: argparse.Namespace) -> None:
    """Send one message after another, on trio."""
    latencies: list[float] = []
    watch = Stopwatch()
    async with await trio.open_tcp_stream(*split_address(address)) as stream:
        answers = Answers()
        for number in range(chosen.warm_up + chosen.count):
            if number == chosen.warm_up:
                watch.start()
            started = time.perf_counter()
            await stream.send_all(frame)
            while not answers.count(await _received(stream)):
                pass
            latencies.append(time.perf_counter() - started)
        watch.stop()
    report(watch, latencies[chosen.warm_up :])


async def _received(stream: trio.SocketStream) -> bytes:
    data = await stream.receive_some(READ_SIZE)
    if not data:
        raise ConnectionError("the broker closed the connection")
    return bytes(data)


async def pipelined(address: str, frame: bytes, chosen: argparse.Namespace) -> None:
    """Keep ``in_flight`` sends in flight, on a blocking socket."""
    _measure(address, frame, chosen, in_flight=chosen.in_flight)


async def callers(address: str, frame: bytes, chosen: argparse.Namespace) -> None:
    """As :func:`pipelined`, with one send in flight per caller."""
    _measure(address, frame, chosen, in_flight=chosen.callers)


async def batches(address: str, frame: bytes, chosen: argparse.Namespace) -> None:
    """Send one batch after another."""
    _measure(address, frame, chosen, in_flight=1, messages=chosen.batch)


def _measure(
    address: str, frame: bytes, chosen: argparse.Namespace, *, in_flight: int, messages: int = 1
) -> None:
    watch = Stopwatch()
    with socket.create_connection(split_address(address)) as connection:
        if chosen.warm_up:
            _exchange(connection, frame, chosen.warm_up // messages, in_flight)
        watch.start()
        _exchange(connection, frame, chosen.count // messages, in_flight)
        watch.stop()
    report(watch)


def _exchange(connection: socket.socket, frame: bytes, count: int, in_flight: int) -> None:
    answers = Answers()
    to_send, unanswered = count, count
    free = min(in_flight, to_send)
    while unanswered:
        connection.sendall(frame * free)
        to_send -= free
        data = connection.recv(READ_SIZE)
        if not data:
            raise ConnectionError("the broker closed the connection")
        answered = answers.count(data)
        unanswered -= answered
        free = min(answered, to_send)


MODES: dict[str, Callable[[str, bytes, argparse.Namespace], Awaitable[None]]] = {
    "awaited": awaited,
    "callers": callers,
    "pipelined": pipelined,
    "batches": batches,
}


async def run(chosen: argparse.Namespace) -> None:
    """Run the program."""
    address, frame = await prepared(chosen)
    await (tasks if chosen.tasks else MODES[chosen.mode])(address, frame, chosen)


def main() -> None:
    """Run the program."""
    parser = options(__doc__, "namesrv", MODES)
    parser.add_argument("--tasks", action="store_true", help="send from trio tasks in all modes")
    trio.run(run, parser.parse_args())


if __name__ == "__main__":
    main()
