"""Queue ranges on brokers that fail and lose messages."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import trio.testing

from rocketmq_py import Client, Position
from rocketmq_py.client import core_of
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.consumer import Reader
from rocketmq_py.consumer.read.queue_range import exact_offset_of
from rocketmq_py.errors import BrokerError, ClosedError, ConfigurationError, TopicNotFoundError
from rocketmq_py.message import MessageQueue
from rocketmq_py.position import PositionKind
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection
from tests.cancelling import cancel_at_each_await
from tests.consumer.conftest import Fill
from tests.consumer.received import stored_at
from tests.scripted import scripted_cluster

QUEUE = MessageQueue("T", "broker-a", 0)
FOUND = ResponseCode.SUCCESS
NO_NEW = ResponseCode.PULL_NOT_FOUND
NO_MATCHED = ResponseCode.PULL_RETRY_IMMEDIATELY
MOVED = ResponseCode.PULL_OFFSET_MOVED


def body_of(offsets: Iterable[int]) -> bytes:
    """Return messages whose store time is ten times their offset."""
    return b"".join(stored_at(offset * 10, offset) for offset in offsets)


class ScriptedQueue:
    """A queue with offsets 2 to 20 and scripted answers to pulls."""

    def __init__(self, *answers: tuple[int, int, bytes], offset_at: int = 0) -> None:
        self.answers = list(answers)
        self.offset_at = offset_at
        self.asked_ms: list[int] = []
        self.pulled: list[int] = []

    def __call__(self, connection: Connection, request: Command) -> None:
        match request.code:
            case RequestCode.GET_MIN_OFFSET:
                connection.respond(request, ResponseCode.SUCCESS, {"offset": "2"})
            case RequestCode.GET_MAX_OFFSET:
                connection.respond(request, ResponseCode.SUCCESS, {"offset": "20"})
            case RequestCode.SEARCH_OFFSET_BY_TIMESTAMP:
                self.asked_ms.append(int(request.fields["timestamp"]))
                connection.respond(request, ResponseCode.SUCCESS, {"offset": str(self.offset_at)})
            case RequestCode.PULL_MESSAGE:
                self.pulled.append(int(request.fields["queueOffset"]))
                assert request.fields["suspendTimeoutMillis"] == "0"
                code, next_offset, body = self.answers.pop(0)
                fields = {
                    "nextBeginOffset": str(next_offset),
                    "minOffset": "2",
                    "maxOffset": "20",
                    "suggestWhichBrokerId": "0",
                }
                connection.respond(request, code, fields, body, remark="scripted")


async def offsets_of(
    queue: ScriptedQueue, start: Position | int = Position.earliest, end: Position | int = Position.latest
) -> list[int]:
    async with scripted_cluster(queue, queues=1) as cluster, Reader(cluster.address) as reader:
        return [message.queue_offset async for message in reader.range(QUEUE, start, end)]


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([(FOUND, 5, body_of([3, 4])), (FOUND, 12, body_of([8, 9, 10, 11]))], [3, 4, 8, 9]),
        ([(MOVED, 8, b""), (MOVED, 8, b""), (FOUND, 12, body_of(range(8, 12)))], [8, 9]),
        ([(NO_MATCHED, 12, b""), (NO_MATCHED, 12, b"")], []),
        ([(NO_NEW, 3, b""), (NO_NEW, 3, b"")], []),
        ([(FOUND, 5, body_of([3, 4])), (MOVED, 1, b""), (MOVED, 1, b"")], [3, 4]),
        ([(NO_NEW, 3, b""), (FOUND, 12, body_of(range(3, 12)))], [3, 4, 5, 6, 7, 8, 9]),
        ([(MOVED, 8, b""), (FOUND, 12, body_of(range(3, 12)))], [3, 4, 5, 6, 7, 8, 9]),
        ([(FOUND, 3, body_of(range(3, 7))), (FOUND, 12, body_of(range(7, 12)))], [3, 4, 5, 6, 7, 8, 9]),
    ],
    ids=["gap", "deleted", "skipped", "shorter", "lost", "late", "late replica", "place that stands still"],
)
async def test_end_is_found_across_gaps(
    answers: list[tuple[int, int, bytes]], expected: list[int], jumping_clock: trio.testing.MockClock
) -> None:
    assert await offsets_of(ScriptedQueue(*answers), 3, 10) == expected


async def test_gaps_of_a_filter_are_not_lost() -> None:
    queue = ScriptedQueue((NO_MATCHED, 7, b""), (NO_MATCHED, 12, b""))
    async with scripted_cluster(queue, queues=1) as cluster, Reader(cluster.address) as reader:
        assert [message async for message in reader.range(QUEUE, 3, 10, tags="A")] == []
    assert queue.pulled == [3, 7]


async def test_single_empty_answer_does_not_end_the_search(
    jumping_clock: trio.testing.MockClock,
) -> None:
    """Otherwise resetting a group to a time would commit the end."""
    queue = ScriptedQueue((NO_NEW, 4, b""), (FOUND, 20, body_of(range(4, 20))), offset_at=4)
    async with scripted_cluster(queue, queues=1) as cluster, Client(cluster.address) as client:
        assert await exact_offset_of(core_of(client), "g", QUEUE, Position(PositionKind.TIME, 51)) == 6


async def test_bounds_are_limited_to_the_queue() -> None:
    queue = ScriptedQueue((FOUND, 20, body_of(range(2, 20))))
    assert await offsets_of(queue, 0, 1000) == list(range(2, 20))
    assert queue.pulled == [2]
    for places in ((20,), (7, 7), (9, 3), (1000, 2000), (0, 2)):
        queue = ScriptedQueue()
        assert await offsets_of(queue, *places) == []


async def test_time_bounds_are_exact_with_inexact_offsets_of_the_broker() -> None:
    """4.x brokers return any message of the millisecond or, without one, the message before."""
    queue = ScriptedQueue((FOUND, 20, body_of(range(4, 20))), offset_at=4)
    assert await offsets_of(queue, Position(PositionKind.TIME, 51)) == list(range(6, 20))
    assert queue.asked_ms == [50]
    queue = ScriptedQueue((FOUND, 9, body_of(range(2, 9))), offset_at=7)
    assert await offsets_of(queue, end=Position(PositionKind.TIME, 75)) == list(range(2, 8))
    assert queue.asked_ms == [75]


async def test_iteration_continues_after_an_error() -> None:
    queue = ScriptedQueue(
        (FOUND, 5, body_of([3, 4])),
        (ResponseCode.SYSTEM_BUSY, 0, b""),
        (FOUND, 7, body_of([5, 6])),
    )
    async with scripted_cluster(queue, queues=1) as cluster, Reader(cluster.address) as reader:
        messages = reader.range(QUEUE, 3, 7)
        assert [(await anext(messages)).queue_offset for _ in range(2)] == [3, 4]
        with pytest.raises(BrokerError, match="scripted"):
            await anext(messages)
        assert [message.queue_offset async for message in messages] == [5, 6]
        with pytest.raises(StopAsyncIteration):
            await anext(messages)


async def test_invalid_arguments_and_a_closed_reader_are_rejected(address: str) -> None:
    reader = Reader(address)
    with pytest.raises(ClosedError):
        reader.range(QUEUE)
    async with reader:
        with pytest.raises(ConfigurationError, match="names no tag"):
            reader.range(QUEUE, tags="||")
        with pytest.raises(ConfigurationError, match="needs a SQL filter"):
            reader.range(QUEUE, sql=" ")
        with pytest.raises(ConfigurationError, match="needs a SQL filter"):
            reader.open("T", sql="")
        with pytest.raises(TopicNotFoundError):
            await anext(reader.range(QUEUE))


async def test_cancellation_at_every_await_loses_no_message(client: Client, fill: Fill) -> None:
    await fill("T", 150)
    async with Reader(client) as reader:
        messages = reader.range(QUEUE, 0, 150, tags="*")
        offsets: list[int] = []

        async def read() -> None:
            offsets.append((await anext(messages)).queue_offset)

        async def check() -> None:
            assert offsets == list(range(len(offsets)))
            assert all(
                connection.pending == 0 for connection in core_of(client).connections.open_connections()
            )

        for _ in range(20):
            await cancel_at_each_await(read, check)
        offsets += [message.queue_offset async for message in messages]
    assert offsets == list(range(150))
