from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from rocketmq_py import Client
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.client import core_of
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import (
    ClosedError,
    ConfigurationError,
    Delivery,
    InvalidMessageError,
    MessageRefusedError,
    MessageTooLargeError,
    NoQueueError,
    OutsideEventLoopError,
    RequestTimeoutError,
    TopicNotFoundError,
)
from rocketmq_py.message import Message, MessageQueue, SendResult
from rocketmq_py.producer import PendingSend, Producer, TransactionProducer
from rocketmq_py.producer.batch import MAX_MESSAGE_OVERHEAD
from rocketmq_py.producer.batcher import YIELD_EVERY
from rocketmq_py.protocol.batch import decode_batch
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection
from rocketmq_py.selectors import SelectByHash
from tests.cancelling import cancel_at_each_await
from tests.environment import created
from tests.producer.transacting import never_checked
from tests.scripted import scripted_cluster

QUEUE = MessageQueue("T", "broker-a", 1)
NEVER = 1000.0
"""A linger time in seconds that no test reaches, so that batches are sent for another reason."""
ONE = MAX_MESSAGE_OVERHEAD + 1
"""The bytes that a message with a body of one byte counts in a batch."""


@attrs.define(eq=False)
class Store:
    """A broker that stores messages at consecutive offsets of their queues.

    Attributes:
        refuses: bodies whose sends it refuses.
        holds_back: whether it answers only on :meth:`answer_next`.
        sends: the bodies of each send, in order of arrival.
    """

    refuses: frozenset[bytes] = frozenset()
    holds_back: bool = False
    sends: list[list[bytes]] = attrs.field(factory=list)
    _ends: dict[str, int] = attrs.field(factory=dict)
    _held_back: list[Callable[[], None]] = attrs.field(factory=list)
    _something_came: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot)

    def __call__(self, connection: Connection, request: Command) -> None:
        if request.code == RequestCode.SEND_BATCH_MESSAGE:
            bodies = [message.body for message in decode_batch(request.body)]
        elif request.code == RequestCode.SEND_MESSAGE_V2:
            bodies = [request.body]
        else:
            connection.respond(request, ResponseCode.SUCCESS)
            return
        self.sends.append(bodies)
        self._something_came.unpark_all()
        self._held_back.append(lambda: self._answer(connection, request, bodies))
        if not self.holds_back:
            self.answer_next()

    async def came(self, count: int) -> list[list[bytes]]:
        """Wait for this number of sends, and for further ones that may follow. Return all."""
        while len(self.sends) < count:
            await self._something_came.park()
        await trio.testing.wait_all_tasks_blocked(0.01)
        return self.sends

    def answer_next(self) -> None:
        self._held_back.pop(0)()

    def _answer(self, connection: Connection, request: Command, bodies: list[bytes]) -> None:
        if not self.refuses.isdisjoint(bodies):
            connection.respond(request, ResponseCode.MESSAGE_ILLEGAL, remark="scripted")
            return
        queue_id = request.fields["e"]
        first = self._ends.get(queue_id, 0)
        self._ends[queue_id] = first + len(bodies)
        ids = [f"{number:032X}" for number in range(first, first + len(bodies))]
        fields = {"msgId": ",".join(ids), "queueId": queue_id, "queueOffset": str(first)}
        connection.respond(request, ResponseCode.SUCCESS, fields)


def batching(address: str, **options: Any) -> Producer:
    return created(Producer, address, group="g", rng=random.Random(1), **{"linger": NEVER, **options})


async def send_all(
    producer: Producer, *bodies: bytes, queue: MessageQueue | None = None
) -> list[PendingSend]:
    return [await producer.submit(Message("T", body), queue=queue) for body in bodies]


async def test_messages_within_the_linger_time_share_a_batch(jumping_clock: trio.testing.MockClock) -> None:
    store = Store()
    async with scripted_cluster(store) as cluster, batching(cluster.address, linger=0.5) as producer:
        started = trio.current_time()
        pending = await send_all(producer, b"a", b"b", b"c")
        assert not any(one.done() for one in pending)
        results = [await one for one in pending]
        assert trio.current_time() - started == pytest.approx(0.5, abs=0.1)
        assert store.sends == [[b"a", b"b", b"c"]]
        assert [result.queue_offset for result in results] == [0, 1, 2]
        assert [int(result.offset_message_id, 16) for result in results] == [0, 1, 2]
        assert len({result.message_id for result in results}) == 3
        await producer.send(Message("T", b"later"))
        assert store.sends[1:] == [[b"later"]]


async def test_a_full_batch_is_sent_at_once(jumping_clock: trio.testing.MockClock) -> None:
    store = Store()
    async with scripted_cluster(store) as cluster, batching(cluster.address, max_batch_bytes=400) as producer:
        started = trio.current_time()
        pending = await send_all(producer, *[b"%20d" % number for number in range(7)])
        for one in pending[:6]:
            await one
        assert trio.current_time() - started < NEVER
        assert [len(bodies) for bodies in store.sends] == [3, 3]
        assert not pending[6].done()
        assert producer.in_flight == 1


async def test_the_bytes_of_a_batch_are_in_flight_until_its_result() -> None:
    store = Store(holds_back=True)
    async with (
        scripted_cluster(store) as cluster,
        batching(cluster.address, max_batch_bytes=2 * ONE) as producer,
    ):
        pending = await send_all(producer, b"a", b"b")
        assert await store.came(1) == [[b"a", b"b"]]
        assert (producer.statistics.sent, producer.in_flight) == (0, 2)
        assert producer.statistics.in_flight_bytes > 0
        store.answer_next()
        assert [(await one).queue_offset for one in pending] == [0, 1]
        assert producer.statistics.sent == 2
        assert (producer.in_flight, producer.statistics.in_flight_bytes) == (0, 0)


async def test_a_batch_whose_first_attempt_fails_goes_to_another_broker() -> None:
    def is_busy(connection: Connection, request: Command) -> None:
        is_send = request.code == RequestCode.SEND_BATCH_MESSAGE
        connection.respond(request, ResponseCode.SYSTEM_ERROR if is_send else ResponseCode.SUCCESS)

    store = Store()
    options = {"max_batch_bytes": 2 * ONE, "linger": 0}
    async with scripted_cluster(is_busy, store) as cluster, batching(cluster.address, **options) as producer:
        for _ in range(8):
            for one in await send_all(producer, b"a", b"b"):
                assert (await one).queue.broker_name == "broker-b"
        assert store.sends == [[b"a", b"b"]] * 8
        assert (producer.statistics.sent, producer.statistics.failed) == (16, 0)
        retried = producer.statistics.retried
        assert retried == len(cluster.brokers["broker-a"].asked(RequestCode.SEND_BATCH_MESSAGE)) > 1


async def test_batches_in_flight_on_a_shared_connection_are_forgotten_after_close_timeout(
    jumping_clock: trio.testing.MockClock,
) -> None:
    store = Store(holds_back=True)
    async with (
        scripted_cluster(store) as cluster,
        created(Client, cluster.address, rng=random.Random(1)) as client,
    ):
        queues = await core_of(client).routes.get("T", for_sending=True)
        connection = await core_of(client).connections.get(
            core_of(client).routes.broker_address(queues.write_queues[0].broker_name)
        )
        before = connection.pending
        async with client.producer("g", linger=NEVER, max_batch_bytes=2 * ONE, send_timeout=60) as producer:
            pending = await send_all(producer, b"a", b"b")
            await store.came(1)
            assert connection.pending == before + 1
        assert connection.pending == before
        store.answer_next()
        await trio.testing.wait_all_tasks_blocked(0.01)
    for one in pending:
        error = one.exception()
        assert isinstance(error, ClosedError)
        assert error.delivery is Delivery.UNKNOWN


async def test_flush_sends_and_waits() -> None:
    store = Store()
    async with scripted_cluster(store) as cluster, batching(cluster.address) as producer:
        pending = await send_all(producer, b"a", b"b")
        pending += await send_all(producer, b"c", queue=QUEUE)
        await producer.flush()
        assert all(one.done() for one in pending)
        assert sorted(store.sends) == [[b"a", b"b"], [b"c"]]
        assert (producer.in_flight, producer.statistics.in_flight_bytes) == (0, 0)
        await producer.flush()


async def test_closing_sends_the_collected_messages() -> None:
    store = Store()
    async with scripted_cluster(store) as cluster:
        async with batching(cluster.address) as producer:
            pending = await send_all(producer, b"a", b"b")
        assert [one.result().queue_offset for one in pending] == [0, 1]
        with pytest.raises(ClosedError, match="this Producer is closed"):
            await producer.submit(Message("T", b"x"))
        with pytest.raises(ClosedError):
            await producer.flush()


async def test_messages_without_a_result_after_close_timeout_fail(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_cluster(Store(holds_back=True)) as cluster:
        async with batching(cluster.address, send_timeout=60, max_batch_bytes=ONE) as producer:
            in_flight, behind = await send_all(producer, b"a", b"b", queue=QUEUE)
            started = trio.current_time()
        assert trio.current_time() - started == pytest.approx(producer.settings.close_timeout, abs=0.5)
    for pending, delivery in ((in_flight, Delivery.UNKNOWN), (behind, Delivery.NOT_SENT)):
        error = pending.exception()
        assert isinstance(error, ClosedError)
        assert error.delivery is delivery
    assert (producer.in_flight, producer.statistics.in_flight_bytes) == (0, 0)
    assert producer.statistics.failed == 2


async def test_a_send_that_waits_for_space_fails_when_the_producer_closes(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_cluster(Store(holds_back=True)) as cluster, trio.open_nursery() as nursery:
        producer = batching(cluster.address, send_timeout=60, max_in_flight_bytes=100)

        async def send_one_too_many() -> None:
            with pytest.raises(ClosedError, match="the producer was closed before the send was written"):
                await producer.submit(Message("T", b"b"))

        async with producer:
            await send_all(producer, b"a")
            nursery.start_soon(send_one_too_many)
            await trio.testing.wait_all_tasks_blocked()
    assert producer.statistics.in_flight_bytes == 0


async def test_batches_of_one_queue_are_in_flight_one_after_the_other() -> None:
    store = Store(holds_back=True)
    async with (
        scripted_cluster(store) as cluster,
        batching(cluster.address, max_batch_bytes=2 * ONE) as producer,
    ):
        pending = await send_all(producer, b"a", b"b", b"c", b"d", b"e", queue=QUEUE)
        assert await store.came(1) == [[b"a", b"b"]]
        store.answer_next()
        assert await store.came(2) == [[b"a", b"b"], [b"c", b"d"]]
        assert pending[1].done()
        store.holds_back = False
        store.answer_next()
        await producer.flush()
        assert store.sends[2:] == [[b"e"]]
        assert [one.result().queue_offset for one in pending] == [0, 1, 2, 3, 4]


async def test_batches_without_a_queue_go_to_different_queues_concurrently() -> None:
    store = Store(holds_back=True)
    async with (
        scripted_cluster(store) as cluster,
        batching(cluster.address, max_batch_bytes=2 * ONE) as producer,
    ):
        pending = await send_all(producer, *[b"%d" % number for number in range(8)])
        assert len(await store.came(4)) == 4
        for _ in range(4):
            store.answer_next()
        await producer.flush()
        queues = [one.result().queue.queue_id for one in pending]
        assert sorted(queues[::2]) == [0, 1, 2, 3]
        assert queues[::2] == queues[1::2]


async def test_lingering_batches_are_sent_when_a_message_waits_for_space() -> None:
    store = Store(holds_back=True)
    async with (
        scripted_cluster(store) as cluster,
        batching(cluster.address, max_in_flight_bytes=350) as producer,
        trio.open_nursery() as nursery,
    ):
        await send_all(producer, b"a", b"b", b"c")
        nursery.start_soon(send_all, producer, b"d")
        assert await store.came(1) == [[b"a", b"b", b"c"]], "they linger while no message waits for space"
        assert producer.in_flight == 3
        store.answer_next()
        while producer.in_flight != 1:
            await trio.testing.wait_all_tasks_blocked(0.01)
        assert len(store.sends) == 1
        store.holds_back = False
        await producer.flush()
        assert store.sends[1:] == [[b"d"]]


async def test_space_is_freed_whichever_batch_holds_it() -> None:
    store = Store(holds_back=True)
    async with (
        scripted_cluster(store) as cluster,
        batching(cluster.address, max_in_flight_bytes=350) as producer,
        trio.open_nursery() as nursery,
    ):
        await send_all(producer, b"under way")
        nursery.start_soon(producer.flush)
        await store.came(1)
        await send_all(producer, b"lingers")
        nursery.start_soon(send_all, producer, b"2" * 150)
        await trio.testing.wait_all_tasks_blocked(0.01)
        nursery.start_soon(send_all, producer, b"3" * 100)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert len(store.sends) == 1
        store.answer_next()  # its space is not enough for the first waiting message
        assert (await store.came(2))[1:] == [[b"lingers"]]
        store.answer_next()  # now it is, but not for the second, so the first must not linger
        assert (await store.came(3))[2:] == [[b"2" * 150]]
        store.holds_back = False
        store.answer_next()
        await trio.testing.wait_all_tasks_blocked(0.01)
        await producer.flush()
        assert store.sends[3:] == [[b"3" * 100]]


async def test_a_message_larger_than_the_buffer_goes_alone() -> None:
    store = Store()
    large = b"x" * 500
    async with (
        scripted_cluster(store) as cluster,
        batching(cluster.address, max_in_flight_bytes=350) as producer,
    ):
        await send_all(producer, b"a", large, b"b")
        await producer.flush()
    assert sorted(store.sends) == [[b"a"], [b"b"], [large]]


async def test_a_cancelled_wait_for_space_sends_nothing() -> None:
    store = Store(holds_back=True)
    async with (
        scripted_cluster(store) as cluster,
        batching(cluster.address, max_in_flight_bytes=100) as producer,
    ):
        await send_all(producer, b"a")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_all, producer, b"never")
            await store.came(1)
            nursery.cancel_scope.cancel()
        assert producer.in_flight == 1
        store.holds_back = False
        store.answer_next()
        await producer.flush()
        await send_all(producer, b"b")
    assert store.sends == [[b"a"], [b"b"]]


# Messages that are sent alone


async def test_messages_that_cannot_be_batched_are_sent_alone_in_order() -> None:
    store = Store()
    large, compressible = random.Random(1).randbytes(9000), b"x" * 4096
    async with (
        scripted_cluster(store) as cluster,
        batching(cluster.address, max_batch_bytes=8000) as producer,
    ):
        for message in (
            Message("T", b"a"),
            Message("T", b"b"),
            Message("T", b"c"),
            Message("T", b"delayed", delay_level=3),
            Message("T", b"d"),
            Message("T", large),
            Message("T", b"e"),
            Message("T", b"f"),
            Message("T", compressible),
            Message("T", b"g"),
        ):
            await producer.submit(message, queue=QUEUE)
        await producer.flush()
    *before, compressed, after = store.sends
    assert before == [[b"a", b"b", b"c"], [b"delayed"], [b"d"], [large], [b"e", b"f"]]
    assert zlib.decompress(compressed[0]) == compressible
    assert after == [b"g"]


async def test_without_compression_large_bodies_share_a_batch() -> None:
    store = Store()
    async with scripted_cluster(store) as cluster, batching(cluster.address, compression=None) as producer:
        await send_all(producer, b"x" * 5000, b"y" * 5000)
        await producer.flush()
    assert store.sends == [[b"x" * 5000, b"y" * 5000]]


# Faults


@pytest.mark.parametrize("queue", [None, QUEUE])
async def test_a_refused_message_fails_alone(queue: MessageQueue | None) -> None:
    store = Store(refuses=frozenset({b"3"}))
    bodies = [b"%d" % number for number in range(8)]
    async with scripted_cluster(store) as cluster, batching(cluster.address) as producer:
        pending = await send_all(producer, *bodies, queue=queue)
        await producer.flush()
    assert (producer.statistics.sent, producer.statistics.failed) == (7, 1)
    (refused,) = [one for one in pending if one.exception()]
    assert refused is pending[3]
    assert isinstance(refused.exception(), MessageRefusedError)
    stored = [body for sent in store.sends for body in sent if b"3" not in sent]
    assert stored == bodies[:3] + bodies[4:]
    if queue is not None:
        assert [one.result().queue_offset for one in pending if not one.exception()] == list(range(7))


async def test_a_message_whose_properties_are_too_long_for_a_batch_fails_no_other() -> None:
    store = Store()
    async with scripted_cluster(store) as cluster, batching(cluster.address) as producer:
        pending = await send_all(producer, b"a")
        # It has more bytes than characters, which is noticed only when the batch is encoded.
        too_long = Message("T", b"alone", properties={"long": "ü" * 16_000})
        pending += [await producer.submit(too_long), *await send_all(producer, b"b")]
        await producer.flush()
    assert sorted(store.sends) == [[b"a"], [b"alone"], [b"b"]]
    assert all(one.exception() is None for one in pending)


async def test_a_batch_that_may_be_stored_is_not_split_and_resent() -> None:
    def break_then_refuse(connection: Connection, request: Command) -> None:
        if request.code not in (RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_MESSAGE_V2):
            connection.respond(request, ResponseCode.SUCCESS)
            return
        tries.append(request.code)
        if len(tries) == 1:
            connection.close()
        else:
            connection.respond(request, ResponseCode.MESSAGE_ILLEGAL)

    tries: list[int] = []
    async with scripted_cluster(break_then_refuse) as cluster, batching(cluster.address) as producer:
        pending = await send_all(producer, b"a", b"b")
        await producer.flush()
        assert tries == [RequestCode.SEND_BATCH_MESSAGE] * 2
        for one in pending:
            error = one.exception()
            assert isinstance(error, MessageRefusedError)
            assert error.delivery is Delivery.UNKNOWN


@pytest.mark.parametrize("text", ["ascii", "grün", "\U0001f600"])
async def test_no_batch_is_larger_than_allowed(text: str) -> None:
    store = Store()
    async with (
        scripted_cluster(store) as cluster,
        batching(cluster.address, max_batch_bytes=5000) as producer,
    ):
        for _ in range(100):
            properties = {f"{text}{number}": text * 20 for number in range(3)}
            await producer.submit(Message("T", b"x", tags=text, keys=text, properties=properties))
        await producer.flush()
        requests = cluster.brokers["broker-a"].asked(RequestCode.SEND_BATCH_MESSAGE)
    assert len(requests) > 1
    assert max(len(request.body) for request in requests) <= 5000


async def test_a_topic_that_does_not_exist_is_the_error_of_each_message() -> None:
    async with scripted_cluster(Store(), topics=["T"]) as cluster, batching(cluster.address) as producer:
        for queue in (None, SelectByHash("k")):
            pending = [await producer.submit(Message("Missing", b"x"), queue=queue) for _ in range(2)]
            await producer.flush()
            assert all(isinstance(one.exception(), TopicNotFoundError) for one in pending)


async def test_invalid_messages_are_rejected_at_once() -> None:
    async with scripted_cluster(Store()) as cluster, batching(cluster.address) as producer:
        with pytest.raises(InvalidMessageError, match=r"message must be a Message, not bytes"):
            await producer.submit(b"x")  # type: ignore[arg-type]  # the fault that is tested
        with pytest.raises(MessageTooLargeError, match="max_message_size is 4194304"):
            await producer.submit(Message("T", bytes(4 * 1024 * 1024 + 1)))
        with pytest.raises(InvalidMessageError, match="does not belong to topic 'T'"):
            await producer.submit(Message("T", b"x"), queue=MessageQueue("Other", "broker-a", 0))
        with pytest.raises(InvalidMessageError, match="the selector returned None"):
            await producer.submit(Message("T", b"x"), queue=lambda queues, message: None)  # type: ignore[arg-type]  # the fault that is tested
        assert (producer.in_flight, producer.statistics.in_flight_bytes) == (0, 0)


# Other methods and settings


async def test_a_selector_chooses_the_queue_of_each_message() -> None:
    store = Store()
    async with scripted_cluster(store) as cluster, batching(cluster.address) as producer:
        pending = [
            await producer.submit(Message("T", b"%d" % number), queue=SelectByHash(number % 3))
            for number in range(9)
        ]
        await producer.flush()
    assert [one.result().queue.queue_id for one in pending] == [0, 1, 2] * 3
    assert sorted(store.sends) == [[b"0", b"3", b"6"], [b"1", b"4", b"7"], [b"2", b"5", b"8"]]


async def test_send_all_returns_the_outcome_of_each_message() -> None:
    store = Store(refuses=frozenset({b"refused"}))
    async with scripted_cluster(store) as cluster, batching(cluster.address) as producer:
        bodies = [b"a", b"refused", bytes(4 * 1024 * 1024 + 1), b"b"]
        stored, *wrong, last = await producer.send_all([Message("T", body) for body in bodies])
        assert isinstance(stored, SendResult)
        assert isinstance(last, SendResult)
        assert [type(one) for one in wrong] == [MessageRefusedError, MessageTooLargeError]
        sends = len(store.sends)
        with pytest.raises(InvalidMessageError, match="queues has 1 entries for 2 messages"):
            await producer.send_all([Message("T", b"x")] * 2, queues=[QUEUE])
        assert len(store.sends) == sends


async def test_a_oneway_message_is_sent_at_once_and_alone() -> None:
    async with scripted_cluster(Store()) as cluster:
        async with batching(cluster.address) as producer:
            await producer.send_oneway(Message("T", b"x"), queue=QUEUE)
            assert producer.in_flight == 0
        (request,) = cluster.brokers["broker-a"].asked(RequestCode.SEND_MESSAGE_V2)
        assert (request.is_oneway, request.body, request.fields["e"]) == (True, b"x", "1")


async def test_transactions_and_explicit_batches_do_not_wait_for_linger() -> None:
    store = Store()
    async with (
        scripted_cluster(store) as cluster,
        TransactionProducer(cluster.address, group="g", check=never_checked, linger=NEVER) as producer,
    ):
        collected = await send_all(producer, b"a", b"b")
        async with producer.transaction(Message("T", b"half")):
            assert store.sends == [[b"half"]]
        await producer.send_batch([Message("T", b"c"), Message("T", b"d")])
        assert store.sends[1:] == [[b"c", b"d"]]
        assert not any(one.done() for one in collected)
        await producer.flush()
    assert store.sends[2:] == [[b"a", b"b"]]


async def test_a_refused_explicit_batch_has_failed_as_a_whole() -> None:
    store = Store(refuses=frozenset({b"c"}))
    async with scripted_cluster(store) as cluster, batching(cluster.address) as producer:
        with pytest.raises(MessageRefusedError):
            await producer.send_batch([Message("T", b"c"), Message("T", b"d")])
        assert (producer.statistics.sent, producer.statistics.failed) == (0, 2)
        await send_all(producer, b"c", b"d")
        await producer.flush()
        assert (producer.statistics.sent, producer.statistics.failed) == (1, 3)


async def test_send_all_without_linger_sends_each_message_alone() -> None:
    store = Store(refuses=frozenset({b"refused"}))
    async with scripted_cluster(store) as cluster, Producer(cluster.address) as producer:
        first, refused, last = await producer.send_all(
            [Message("T", body) for body in (b"a", b"refused", b"b")], queues=[QUEUE, None, QUEUE]
        )
        assert isinstance(first, SendResult)
        assert isinstance(last, SendResult)
        assert isinstance(refused, MessageRefusedError)
        assert (first.queue, last.queue) == (QUEUE, QUEUE)
        assert sorted(store.sends) == [[b"a"], [b"b"], [b"refused"]]
        assert (producer.in_flight, producer.statistics.in_flight_bytes) == (0, 0)


@pytest.mark.parametrize(
    ("timeouts", "shortest"), [((20.0, 5.0, 10.0), 5), ((90.0, None), 60), ((None, 90.0), 60), ((90.0,), 90)]
)
async def test_a_batch_has_the_shortest_timeout_of_its_messages(
    timeouts: Sequence[float | None], shortest: float, jumping_clock: trio.testing.MockClock
) -> None:
    async with (
        scripted_cluster(Store(holds_back=True)) as cluster,
        batching(cluster.address, send_timeout=60) as producer,
    ):
        await producer.queues("T")
        started = trio.current_time()
        pending = [await producer.submit(Message("T", b"x"), timeout=timeout) for timeout in timeouts]
        await producer.flush()
        assert trio.current_time() - started == pytest.approx(shortest, abs=0.1)
        assert {type(one.exception()) for one in pending} == {RequestTimeoutError}


async def test_a_callback_gets_each_result() -> None:
    done: list[PendingSend] = []
    async with scripted_cluster(Store()) as cluster, batching(cluster.address) as producer:
        pending = await send_all(producer, b"a", b"b", b"c")
        for one in pending:
            one.add_done_callback(done.append)
        await producer.flush()
    assert done == pending
    assert [one.result().queue_offset for one in done] == [0, 1, 2]


async def test_statistics_count_the_messages_of_batches() -> None:
    async with scripted_cluster(Store()) as cluster, batching(cluster.address) as producer:
        await send_all(producer, b"a", b"b", b"c")
        await producer.flush()
        assert producer.statistics.sent == 3


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"lingr": 1}, "there is no setting 'lingr'; did you mean 'linger'"),
        ({"linger": -1}, "linger is -1; it must be 0 or more"),
        ({"max_batch_bytes": 0}, "max_batch_bytes is 0; it must be above 0"),
        ({"max_in_flight_bytes": 0}, "max_in_flight_bytes is 0"),
        (
            {"max_message_size": 1000},
            "max_batch_bytes is 65536; it must be at most max_message_size, which is 1000",
        ),
        ({"send_timeout": 0}, "send_timeout is 0"),
        ({"linger": None, "max_batch_bytes": 1000}, "max_batch_bytes has no effect without linger"),
    ],
)
def test_settings_are_validated(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        Producer("127.0.0.1:1", **{"linger": 0.005, **options})


async def test_without_linger_messages_sent_without_a_pause_share_a_batch() -> None:
    store = Store()
    async with scripted_cluster(store) as cluster, batching(cluster.address, linger=0) as producer:
        pending = await send_all(producer, b"a", b"b", b"c")
        for one in pending:
            await one
    assert store.sends == [[b"a", b"b", b"c"]]


async def test_a_sender_that_never_waits_yields_to_other_tasks() -> None:
    ran = False

    async def other() -> None:
        nonlocal ran
        ran = True

    async with (
        scripted_cluster(Store()) as cluster,
        batching(cluster.address) as producer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(other)
        for _ in range(2 * YIELD_EVERY + 3):  # twice: trio runs ready tasks in any order
            await producer.submit(Message("T", b"x"))
        assert ran


async def test_a_shared_client_must_be_open() -> None:
    with pytest.raises(ClosedError, match="the Client that this Producer shares is not open"):
        async with Client("127.0.0.1:1").producer("g", linger=0.005):
            pass


async def test_the_key_of_a_hash_is_the_sharding_key_of_a_batched_message() -> None:
    requests: list[Command] = []

    def keep(connection: Connection, request: Command) -> None:
        requests.append(request)
        store(connection, request)

    store = Store()
    async with scripted_cluster(keep) as cluster, batching(cluster.address) as producer:
        for body in (b"a", b"b"):
            await producer.submit(Message("T", body), queue=SelectByHash("order-7"))
        await producer.flush()
    (request,) = [one for one in requests if one.code == RequestCode.SEND_BATCH_MESSAGE]
    messages = decode_batch(request.body)
    assert [one.body for one in messages] == [b"a", b"b"]
    assert all(b"__SHARDINGKEY\x01order-7\x02" in one.properties for one in messages)


@pytest.mark.parametrize("queue", [None, SelectByHash("k")])
async def test_a_send_in_another_thread_raises(queue: SelectByHash | None) -> None:
    async def send(producer: Producer) -> None:
        with pytest.raises(OutsideEventLoopError, match=r"opened in a trio\.run in another thread"):
            await producer.submit(Message("T", b"x"), queue=queue)

    async with scripted_cluster(Store()) as cluster, batching(cluster.address) as producer:
        await trio.to_thread.run_sync(trio.run, send, producer)
        assert producer.in_flight == 0


# Cancellation


async def test_accepting_a_message_is_a_cancellation_point() -> None:
    async with scripted_cluster(Store()) as cluster, batching(cluster.address) as producer:
        with trio.CancelScope() as scope:
            scope.cancel()
            await producer.submit(Message("T", b"x"))
        assert scope.cancelled_caught
        assert producer.in_flight == 0


@pytest.fixture
async def broker() -> Any:
    async with EmbeddedBroker() as broker:
        yield broker


async def test_send_can_be_cancelled_at_each_await(broker: EmbeddedBroker) -> None:
    async with Producer(broker.name_server_address, linger=0, max_in_flight_bytes=100) as producer:

        async def send() -> None:
            await producer.submit(Message("T", b"a"), queue=SelectByHash("k"))
            await producer.submit(Message("T", b"b"))  # waits for the space of the first
            await producer.send(Message("T", b"c"))
            await producer.flush()

        async def check() -> None:
            await producer.flush()
            assert (producer.in_flight, producer.statistics.in_flight_bytes) == (0, 0)

        assert await cancel_at_each_await(send, check) >= 4


async def test_opening_and_closing_can_be_cancelled_at_each_await(broker: EmbeddedBroker) -> None:
    before = trio.lowlevel.current_statistics().tasks_living
    accepted: list[PendingSend] = []
    producers: list[Producer] = []

    async def use() -> None:
        async with Producer(broker.name_server_address, linger=NEVER) as producer:
            producers.append(producer)
            accepted.append(await producer.submit(Message("T", b"a")))
            await producer.flush()
            accepted.append(await producer.submit(Message("T", b"b")))

    async def check() -> None:
        for _ in range(200):  # the broker notices the closed connection in its next steps
            await trio.testing.wait_all_tasks_blocked()
            if trio.lowlevel.current_statistics().tasks_living <= before:
                break
        assert trio.lowlevel.current_statistics().tasks_living <= before
        errors = [one.exception() for one in accepted if one.done() and one.exception() is not None]
        given_up = sum([producer.statistics.given_up for producer in producers])
        assert all(one.done() for one in accepted)
        assert all(isinstance(error, ClosedError) for error in errors)
        assert len(errors) == given_up <= 2, "closing sends accepted messages unless it is cancelled itself"

    assert await cancel_at_each_await(use, check) >= 3


async def test_a_selector_is_not_called_without_queues() -> None:
    async with EmbeddedBroker() as broker, Client(broker.name_server_address) as client:
        await core_of(client).brokers.create_topic(broker.broker_address, "T", queues=2, perm=4)
        async with client.producer("g", linger=0.005) as producer:
            with pytest.raises(NoQueueError, match="topic 'T' has no queue that may be written to"):
                await producer.send(Message("T", b"x"), queue=SelectByHash("k"))
            assert producer.statistics.failed == 1
