from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from rocketmq_py import Client, Position
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.client import Route, core_of
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.consumer import Reader
from rocketmq_py.consumer.read.message_stream import BUFFERED_ANSWERS, MessageStream
from rocketmq_py.consumer.read.queue_range import QueueRange
from rocketmq_py.errors import (
    BrokerError,
    ClosedError,
    ConfigurationError,
    NameServerError,
    NoQueueError,
    TopicNotFoundError,
)
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection
from tests.cancelling import cancel_at_each_await
from tests.consumer.conftest import Fill
from tests.consumer.received import stored
from tests.scripted import scripted_cluster


@pytest.fixture
async def reader(client: Client) -> AsyncIterator[Reader]:
    async with Reader(client) as reader:
        yield reader


async def numbers_of(reading: MessageStream) -> list[int]:
    """Read to the end."""
    async with reading as messages:
        return [int(message.body) async for message in messages]


async def some_of(reading: MessageStream, count: int) -> list[int]:
    return [int((await anext(reading)).body) for _ in range(count)]


# Start and end


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("earliest", range(100)),
        ("latest", range(0)),
        (Position.last(10), range(90, 100)),
        (Position.last(0), range(0)),
        (Position.last(1000), range(100)),
        (Position.offset(0), range(100)),
        (Position.offset(95), range(95, 100)),
        (Position.offset(1000), range(0)),
        (Position.time(0), range(100)),
        (Position.time(2**60), range(0)),
    ],
)
async def test_read_from_a_start_position_to_the_end(
    reader: Reader, fill: Fill, start: Position | str, expected: range
) -> None:
    await fill("T", 100)
    assert await numbers_of(reader.open("T", start=start, stop_at_end=True)) == list(expected)


async def test_start_at_a_time(reader: Reader, fill: Fill, jumping_clock: trio.testing.MockClock) -> None:
    await fill("T", 10)
    async with reader.open("T", start="earliest", stop_at_end=True) as messages:
        last = [message async for message in messages][-1]
    await trio.sleep(10)
    await fill("T", 10, first=10)
    start = Position.time(last.store_time_ms + 1)
    assert await numbers_of(reader.open("T", start=start, stop_at_end=True)) == list(range(10, 20))


async def test_messages_of_each_queue_are_in_order(reader: Reader, fill: Fill) -> None:
    await fill("T", 500, queues=8)
    async with reader.open("T", start="earliest", stop_at_end=True) as messages:
        received = [message async for message in messages]
    assert sorted(int(message.body) for message in received) == list(range(500))
    for queue_id in range(8):
        offsets = [message.queue_offset for message in received if message.queue_id == queue_id]
        assert offsets == sorted(offsets)


async def test_start_at_the_last_messages_of_each_queue(reader: Reader, fill: Fill) -> None:
    await fill("T", 40, queues=4)
    numbers = await numbers_of(reader.open("T", start=Position.last(2), stop_at_end=True))
    assert sorted(numbers) == list(range(32, 40))


async def test_stop_at_end_ignores_later_messages(reader: Reader, fill: Fill) -> None:
    await fill("T", 50)
    async with reader.open("T", start="earliest", stop_at_end=True) as messages:
        await fill("T", 50, first=50)
        assert [int(message.body) async for message in messages] == list(range(50))


async def test_tags(reader: Reader, fill: Fill) -> None:
    await fill("T", 10, tags="Aa")
    await fill("T", 10, tags="BB", first=10)
    await fill("T", 10, first=20)
    assert await numbers_of(reader.open("T", start="earliest", stop_at_end=True, tags="BB")) == list(
        range(10, 20)
    )
    assert await numbers_of(reader.open("T", start="earliest", stop_at_end=True, tags="C")) == []


async def test_read_new_messages_from_the_end(
    reader: Reader, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 10, queues=2)
    async with reader.open("T") as messages:
        await fill("T", 10, first=10)
        assert sorted(await some_of(messages, 10)) == list(range(10, 20))
        with trio.move_on_after(100) as scope:
            await anext(messages)
        assert scope.cancelled_caught
        await fill("T", 2, first=20)
        assert sorted(await some_of(messages, 2)) == [20, 21]


@pytest.mark.parametrize("start", ["latest", "earliest", Position.last(1)])
async def test_new_queue_is_read_from_its_first_message(
    reader: Reader, broker: EmbeddedBroker, client: Client, fill: Fill, start: Position | str
) -> None:
    await fill("T", 1)
    async with reader.open("T", start=start) as messages:
        if start != "latest":
            assert await some_of(messages, 1) == [0]
        await core_of(client).brokers.create_topic(broker.broker_address, "T", queues=4)
        await core_of(client).routes.refresh("T")
        await fill("T", 8, first=1)
        assert sorted(await some_of(messages, 8)) == list(range(1, 9))


async def test_new_queue_with_old_messages_is_read_from_the_opening_time(
    broker: EmbeddedBroker, client: Client, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 4, queues=2)
    await core_of(client).brokers.create_topic(broker.broker_address, "T", queues=1)
    route = await core_of(client).routes.refresh("T")
    assert len(route.read_queues) == 1
    await trio.sleep(1)
    async with Reader(client) as reader, reader.open("T") as messages:
        await trio.sleep(1)
        await core_of(client).brokers.create_topic(broker.broker_address, "T", queues=2)
        await core_of(client).routes.refresh("T")
        await fill("T", 4, first=4)
        assert sorted(await some_of(messages, 4)) == [4, 5, 6, 7]


async def test_queue_added_during_the_opening_is_read() -> None:
    held: list[tuple[Connection, Command]] = []
    pulled: set[str] = set()

    def hold_first_offset(connection: Connection, request: Command) -> None:
        if request.code == RequestCode.PULL_MESSAGE:
            pulled.add(request.fields["queueId"])
        elif request.code == RequestCode.GET_MAX_OFFSET and not held:
            held.append((connection, request))
            cluster.topics["T"] = (2, 2, 6)
            core_of(client).routes.invalidate("T")
        else:
            connection.respond(request, ResponseCode.SUCCESS, {"offset": "0"})

    async with (
        scripted_cluster(hold_first_offset, queues=1) as cluster,
        Client(cluster.address) as client,
        Reader(client) as reader,
    ):

        def let_it_go(_: Route) -> None:
            for connection, request in held:
                connection.respond(request, ResponseCode.SUCCESS, {"offset": "0"})

        core_of(client).watch_routes(let_it_go)
        async with reader.open("T"):
            await trio.testing.wait_all_tasks_blocked(0.05)
    assert pulled == {"0", "1"}


@pytest.mark.parametrize("stop_at_end", [False, True])
async def test_deleted_queue_is_not_read_any_more(
    reader: Reader,
    broker: EmbeddedBroker,
    client: Client,
    fill: Fill,
    jumping_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
    stop_at_end: bool,
) -> None:
    await fill("T", 2000, queues=2)
    async with reader.open("T", start="earliest", stop_at_end=stop_at_end) as messages:
        await trio.sleep(1)
        await core_of(client).brokers.create_topic(broker.broker_address, "T", queues=1)
        received = await some_of(messages, 1000)
        with trio.move_on_after(100):
            async for message in messages:
                received.append(int(message.body))
    assert set(received) >= set(range(0, 2000, 2))
    assert len(received) < 2000
    assert len(caplog.records) == 1, "at most one more pull of the queue"


# Errors of the opening


@pytest.mark.parametrize("stop_at_end", [False, True])
async def test_missing_topic_is_an_error(reader: Reader, stop_at_end: bool) -> None:
    with pytest.raises(TopicNotFoundError, match="topic 'T' does not exist"):
        async with reader.open("T", stop_at_end=stop_at_end):
            pytest.fail("not reached")
    with pytest.raises(TopicNotFoundError):
        await reader.offsets("T")


async def test_unavailable_name_server_is_an_error(jumping_clock: trio.testing.MockClock) -> None:
    with pytest.raises(NameServerError, match="no name server answered"):
        async with Reader("127.0.0.1:1") as reader, reader.open("T"):
            pytest.fail("not reached")


async def test_topic_without_a_readable_queue_is_an_error(
    reader: Reader, broker: EmbeddedBroker, client: Client
) -> None:
    await core_of(client).brokers.create_topic(broker.broker_address, "T", queues=1, perm=2)
    with pytest.raises(NoQueueError, match="'T' has no readable queue"):
        async with reader.open("T"):
            pytest.fail("not reached")


async def test_closing_a_stream_ends_a_waiting_iteration_with_an_error(
    reader: Reader, fill: Fill, nursery: trio.Nursery
) -> None:
    await fill("T", 1)
    messages = reader.open("T")
    await messages.start(nursery)

    async def wait() -> None:
        with pytest.raises(ClosedError):
            await anext(messages)

    async with trio.open_nursery() as waiting:
        waiting.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        await messages.aclose()


async def test_closing_the_reader_ends_the_iteration_over_its_open_stream(
    address: str, fill: Fill, nursery: trio.Nursery
) -> None:
    await fill("T", 1)
    reader = Reader(address)
    await reader.start(nursery)
    async with reader.open("T", start="earliest") as messages:
        assert await some_of(messages, 1) == [0]
        await reader.aclose()
        with trio.fail_after(100), pytest.raises(ClosedError, match="the client is closed"):
            await anext(messages)


async def test_reader_and_stream_must_be_open(address: str, fill: Fill) -> None:
    await fill("T", 1)
    reader = Reader(address)
    with pytest.raises(ClosedError, match=r"async with Reader"):
        reader.open("T")
    async with reader:
        with pytest.raises(ConfigurationError, match="names no tag"):
            reader.open("T", tags="||")
        reading = reader.open("T", start="earliest")
        with pytest.raises(ClosedError, match=r"async with reader.open"):
            await anext(reading)
        async with reading as messages:
            assert await some_of(messages, 1) == [0]
        with pytest.raises(ClosedError, match=r"async with reader.open"):
            await anext(reading)


async def test_offsets_of_all_queues(reader: Reader, fill: Fill) -> None:
    await fill("T", 10, queues=3)
    assert await reader.offsets("T") == {
        MessageQueue("T", "broker-a", 0): (0, 4),
        MessageQueue("T", "broker-a", 1): (0, 3),
        MessageQueue("T", "broker-a", 2): (0, 3),
    }


async def test_reading_joins_no_group_and_commits_nothing(reader: Reader, client: Client, fill: Fill) -> None:
    await fill("T", 10)
    await numbers_of(reader.open("T", start="earliest", stop_at_end=True))
    with pytest.raises(BrokerError, match="no consumer for this group"):
        await core_of(client).brokers.consumer_ids("TOOLS_CONSUMER", "broker-a")
    queue = MessageQueue("T", "broker-a", 0)
    assert await core_of(client).brokers.committed_offset("TOOLS_CONSUMER", queue, zero_if_new=False) is None


# Bounds, errors and cancellation


class ScriptedQueue:
    """A broker of one queue with scripted answers to pulls, after which it holds them."""

    def __init__(self, end: int, *answers: tuple[int, int, bytes], repeat: bool = False) -> None:
        self.end = end
        self.answers = list(answers)
        self.repeat = repeat
        self.pulled: list[int] = []

    def __call__(self, connection: Connection, request: Command) -> None:
        if request.code == RequestCode.GET_MAX_OFFSET:
            connection.respond(request, ResponseCode.SUCCESS, {"offset": str(self.end)})
        elif request.code == RequestCode.GET_MIN_OFFSET:
            connection.respond(request, ResponseCode.SUCCESS, {"offset": "0"})
        elif request.code == RequestCode.PULL_MESSAGE:
            offset = int(request.fields["queueOffset"])
            self.pulled.append(offset)
            if self.repeat:
                self.answers.append((ResponseCode.SUCCESS, offset + 32, body_of(range(offset, offset + 32))))
            if self.answers:
                code, next_offset, body = self.answers.pop(0)
                fields = {
                    "nextBeginOffset": str(next_offset),
                    "minOffset": "0",
                    "maxOffset": str(self.end),
                    "suggestWhichBrokerId": "0",
                }
                connection.respond(request, code, fields, body, remark="scripted")


def body_of(offsets: Iterable[int]) -> bytes:
    return b"".join(stored(offset, body=b"%d" % offset) for offset in offsets)


@asynccontextmanager
async def scripted_reading(
    queue: ScriptedQueue, *, stop_at_end: bool = True, start: str = "earliest"
) -> AsyncIterator[MessageStream]:
    async with (
        scripted_cluster(queue, queues=1) as cluster,
        Reader(cluster.address) as reader,
        reader.open("T", start=start, stop_at_end=stop_at_end) as reading,
    ):
        yield reading


FOUND = ResponseCode.SUCCESS
NO_NEW = ResponseCode.PULL_NOT_FOUND
NO_MATCHED = ResponseCode.PULL_RETRY_IMMEDIATELY
MOVED = ResponseCode.PULL_OFFSET_MOVED


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([(FOUND, 2, body_of([0, 1])), (FOUND, 10, body_of([7]))], [0, 1, 7]),
        ([(MOVED, 5, b""), (MOVED, 5, b""), (FOUND, 10, body_of([5, 6]))], [5, 6]),
        ([(NO_MATCHED, 8, b"")] * 2 + [(FOUND, 12, body_of([8, 9, 10, 11]))], [8, 9]),
        ([(NO_NEW, 4, b""), (NO_NEW, 4, b""), (FOUND, 12, body_of([4]))], [4]),
        ([(FOUND, 2, body_of([0, 1])), (NO_NEW, 2, b""), (NO_NEW, 2, b"")], [0, 1]),
        ([(FOUND, 2, body_of([0, 1])), (MOVED, 1, b""), (MOVED, 1, b"")], [0, 1]),
        ([(FOUND, 4, body_of(range(4))), (NO_NEW, 4, b""), (FOUND, 10, body_of(range(4, 10)))], [*range(10)]),
        ([(MOVED, 0, b""), (FOUND, 10, body_of(range(10)))], [*range(10)]),
    ],
    ids=[
        "gap", "deleted", "skipped and beyond the end", "skipped", "shorter", "lost",
        "a replica that lags behind", "a broker that is being started",
    ],
)  # fmt: skip
async def test_end_is_found_across_gaps(
    answers: list[tuple[int, int, bytes]], expected: list[int], jumping_clock: trio.testing.MockClock
) -> None:
    async with scripted_reading(ScriptedQueue(10, *answers)) as messages:
        assert [message.queue_offset async for message in messages] == expected


async def test_stream_continues_after_the_broker_lost_messages(
    jumping_clock: trio.testing.MockClock,
) -> None:
    queue = ScriptedQueue(
        50, (FOUND, 52, body_of([50, 51])), (MOVED, 3, b""), (NO_NEW, 3, b""), (FOUND, 4, body_of([3]))
    )
    async with scripted_reading(queue, stop_at_end=False, start="latest") as messages:
        assert await some_of(messages, 3) == [50, 51, 3]
    assert queue.pulled[:4] == [50, 52, 3, 3]


async def test_repeated_messages_are_not_returned_again(
    jumping_clock: trio.testing.MockClock,
) -> None:
    """The next offset in the answer is not after the requested one."""
    again = [(FOUND, 0, body_of([0, 1]))] * 50
    queue = ScriptedQueue(10, *again, (FOUND, 3, body_of([2])))
    async with scripted_reading(queue, stop_at_end=False) as messages:
        assert await some_of(messages, 3) == [0, 1, 2]
    assert set(queue.pulled[1:51]) == {2}


async def test_repeated_backward_correction_is_delayed(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    queue = ScriptedQueue(5, *[(NO_NEW, place, b"") for place in range(4, -20, -1)])
    async with scripted_reading(queue, stop_at_end=False, start="latest") as messages:
        with trio.move_on_after(29):
            await anext(messages)
        assert queue.pulled[:7] == [5, 4, 3, 2, 1, 0, 0]
        assert 10 <= len(queue.pulled) <= 12
    assert len(caplog.records) == 1


async def test_unavailable_broker_is_an_error_with_stop_at_end(
    jumping_clock: trio.testing.MockClock,
) -> None:
    queue = ScriptedQueue(10, (FOUND, 4, body_of(range(4))), *[(ResponseCode.SYSTEM_BUSY, 0, b"")] * 50)
    async with scripted_reading(queue) as messages:
        assert await some_of(messages, 4) == [0, 1, 2, 3]
        with pytest.raises(BrokerError, match="SYSTEM_BUSY"):
            await anext(messages)


@pytest.mark.parametrize("stop_at_end", [False, True])
async def test_queue_that_returns_to_the_route_is_continued(
    jumping_clock: trio.testing.MockClock, stop_at_end: bool
) -> None:
    """As during a restart of its broker."""
    queue = ScriptedQueue(4, (FOUND, 2, body_of([0, 1])))
    async with (
        scripted_cluster(queue, queues=1) as cluster,
        Client(cluster.address) as client,
        Reader(client) as reader,
        reader.open("T", start="earliest", stop_at_end=stop_at_end) as messages,
    ):
        assert await some_of(messages, 2) == [0, 1]
        cluster.topics["T"] = (0, 0, 6)
        await core_of(client).routes.refresh("T")
        queue.answers.append((FOUND, 4, body_of([2, 3])))
        cluster.topics["T"] = (1, 1, 6)
        await core_of(client).routes.refresh("T")
        assert await some_of(messages, 2) == [2, 3]
    assert set(queue.pulled) <= {0, 2, 4}
    assert queue.pulled.count(0) == 1


async def test_pulls_stop_while_the_buffer_is_full() -> None:
    queue = ScriptedQueue(1 << 30, repeat=True)
    async with scripted_reading(queue) as messages:
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert len(queue.pulled) == BUFFERED_ANSWERS + 1
        assert await some_of(messages, 3200) == list(range(3200))


async def test_error_that_is_not_retriable_is_raised() -> None:
    async with scripted_reading(
        ScriptedQueue(10, (ResponseCode.SUBSCRIPTION_PARSE_FAILED, 0, b""))
    ) as messages:
        with pytest.raises(BrokerError, match="SUBSCRIPTION_PARSE_FAILED"):
            await anext(messages)
        with pytest.raises(StopAsyncIteration):
            await anext(messages)


async def test_stream_raises_errors_that_are_not_retriable(
    jumping_clock: trio.testing.MockClock,
) -> None:
    queue = ScriptedQueue(10, (FOUND, 1, body_of([0])))
    async with (
        scripted_cluster(queue, queues=1) as cluster,
        Client(cluster.address) as client,
        Reader(client) as reader,
        reader.open("T", start="earliest") as messages,
    ):
        assert await some_of(messages, 1) == [0]
        cluster.topics["Another"] = (4, 4, 6)
        await core_of(client).routes.get("Another")
        queue.answers.append((ResponseCode.SUBSCRIPTION_PARSE_FAILED, 1, b""))
        core_of(client).connections.close(cluster.brokers["broker-a"].address)  # including the held pull
        with pytest.raises(BrokerError, match="SUBSCRIPTION_PARSE_FAILED"):
            await anext(messages)
    assert set(queue.pulled) == {0, 1}


async def test_retriable_errors_are_retried(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    queue = ScriptedQueue(
        1,
        (ResponseCode.SYSTEM_BUSY, 0, b""),
        (FOUND, 1, b"\x00" * 200),
        (FOUND, 1, body_of([0])),
    )
    async with scripted_reading(queue) as messages:
        start = trio.current_time()
        assert [message.queue_offset async for message in messages] == [0]
        assert trio.current_time() - start == pytest.approx(6, abs=0.2)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


async def test_error_of_the_opening_is_not_wrapped() -> None:
    def refuse(connection: Connection, request: Command) -> None:
        connection.respond(request, ResponseCode.SYSTEM_ERROR, remark="scripted")

    async with scripted_cluster(refuse) as cluster, Reader(cluster.address) as reader:
        with pytest.raises(BrokerError, match="scripted"):
            await reader.offsets("T")
        with pytest.raises(BrokerError, match="scripted"):
            async with reader.open("T"):
                pytest.fail("not reached")


async def test_cancellation_at_every_await(address: str, client: Client, fill: Fill) -> None:
    await fill("T", 200, queues=2)
    received: list[int] = []

    async def read() -> None:
        received.clear()
        async with Reader(client) as reader:
            await reader.offsets("T")
            received.extend(await numbers_of(reader.open("T", start="earliest", stop_at_end=True)))

    async def check() -> None:
        await trio.testing.wait_all_tasks_blocked()
        assert all(connection.pending == 0 for connection in core_of(client).connections.open_connections())

    assert await cancel_at_each_await(read, check) > 5
    assert sorted(received) == list(range(200))


async def test_cancelled_wait_loses_no_message(
    reader: Reader, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 1)
    numbers: list[int] = []
    async with reader.open("T") as messages:
        for turn in range(20):
            with trio.move_on_after(0.1):
                numbers += await some_of(messages, 1)
            if turn % 2:
                await fill("T", 1, first=turn)
        with trio.move_on_after(1):
            while True:
                numbers += await some_of(messages, 1)
    assert numbers == list(range(1, 20, 2))


async def test_iteration_without_waiting_lets_other_tasks_run(
    reader: Reader, fill: Fill, nursery: trio.Nursery
) -> None:
    await fill("T", 1000)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    nursery.start_soon(other)
    assert len(await numbers_of(reader.open("T", start="earliest", stop_at_end=True))) == 1000
    assert turns > 1000 / 64
    nursery.cancel_scope.cancel()


async def taken_by_tasks(messages: MessageStream | QueueRange, count: int) -> list[int]:
    """Return the offsets that several tasks get which iterate together."""
    taken: list[int] = []

    async def take() -> None:
        async for message in messages:
            taken.append(message.queue_offset)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(take)
    return taken


async def test_tasks_that_iterate_over_a_stream_together_get_each_message_once(
    reader: Reader, fill: Fill
) -> None:
    await fill("T", 200)
    async with reader.open("T", start="earliest", stop_at_end=True) as messages:
        assert sorted(await taken_by_tasks(messages, 5)) == list(range(200))


async def test_tasks_that_iterate_over_a_range_together_get_each_message_once(
    reader: Reader, fill: Fill
) -> None:
    await fill("T", 200)
    (queue,) = await reader.offsets("T")
    assert sorted(await taken_by_tasks(reader.range(queue, 10, 190), 5)) == list(range(10, 190))
