"""Sending prepared batches to scripted brokers, and through a blocking producer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

import attrs
import numpy as np
import pytest
import trio
import trio.testing

from rocketmq_py import Producer
from rocketmq_py.blocking import Client
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import BrokerBusyError, ClosedError, MessageRefusedError
from rocketmq_py.message import Message, MessageQueue
from rocketmq_py.protocol.batch import decode_batch, encode_batched
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection
from rocketmq_py.spark.batch_encoder import PreparedBatch
from rocketmq_py.spark.batch_sender import BatchSender, send_pipelined
from rocketmq_py.spark.piece_sender import EarlierBatchFailedError
from tests.scripted import scripted_cluster

QUEUES = [MessageQueue("T", "broker-a", number) for number in range(4)]


def batch_of(*bodies: bytes, topic: str = "T", queue: MessageQueue | None = None) -> PreparedBatch:
    messages = [encode_batched(0, body, b"WAIT\x01true\x02") for body in bodies]
    offsets = np.cumsum([0, *map(len, messages)])
    return PreparedBatch(topic, queue, b"".join(messages), np.arange(len(bodies)), offsets)


@attrs.define(eq=False)
class Store:
    """A scripted broker. It stores batches, or refuses those that contain a body of ``codes``.

    Attributes:
        codes: response codes by body, used once each.
        holds_back: answer only on :meth:`answer_all`.
        stored: the bodies of each request, by queue id.
    """

    codes: dict[bytes, list[int]] = attrs.field(factory=dict)
    holds_back: bool = False
    stored: dict[str, list[list[bytes]]] = attrs.field(factory=dict)
    _waiting: list[Callable[[], None]] = attrs.field(factory=list)

    def __call__(self, connection: Connection, request: Command) -> None:
        if request.code != RequestCode.SEND_BATCH_MESSAGE:  # a heartbeat
            connection.respond(request, ResponseCode.SUCCESS)
            return
        bodies = [message.body for message in decode_batch(request.body)]
        codes = [self.codes[body].pop(0) for body in bodies if self.codes.get(body)]
        code = codes[0] if codes else ResponseCode.SUCCESS
        if not codes:
            self.stored.setdefault(request.fields["e"], []).append(bodies)
        fields = {"msgId": "id", "queueId": request.fields["e"], "queueOffset": "0"}
        if self.holds_back:
            self._waiting.append(lambda: connection.respond(request, code, fields))
        else:
            connection.respond(request, code, fields)

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    def answer_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        for answer in waiting:
            answer()


async def test_acknowledged_batches_have_no_error() -> None:
    store = Store()
    async with scripted_cluster(store) as cluster, Producer(cluster.address) as producer:
        errors = await send_pipelined(producer, [batch_of(b"1", b"2"), batch_of(b"3", queue=QUEUES[2])])
    assert errors == [None, None]
    assert [b"3"] in store.stored["2"]
    assert sorted(body for sent in store.stored.values() for bodies in sent for body in bodies) == [
        b"1", b"2", b"3",
    ]  # fmt: skip


async def test_batches_are_pipelined_within_the_bound_of_bytes() -> None:
    store = Store(holds_back=True)
    batches = [batch_of(b"%d" % number) for number in range(10)]
    bound = 3 * len(batches[0].body)
    async with (
        scripted_cluster(store) as cluster,
        Producer(cluster.address) as producer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(send_pipelined, producer, batches, bound)
        for expected in (3, 3, 3, 1):
            while store.in_flight < expected:
                await trio.testing.wait_all_tasks_blocked()
            assert store.in_flight == expected
            store.answer_all()


async def test_batches_of_a_queue_are_sent_one_after_another() -> None:
    store = Store(holds_back=True)
    batches = [batch_of(b"%d" % number, queue=QUEUES[number % 2]) for number in range(6)]
    async with (
        scripted_cluster(store) as cluster,
        Producer(cluster.address) as producer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(send_pipelined, producer, batches)
        for _ in range(3):
            while store.in_flight < 2:
                await trio.testing.wait_all_tasks_blocked()
            assert store.in_flight == 2
            store.answer_all()
    assert store.stored == {"0": [[b"0"], [b"2"], [b"4"]], "1": [[b"1"], [b"3"], [b"5"]]}


async def test_retriable_failure_stops_the_later_batches_of_its_queue(
    jumping_clock: trio.testing.MockClock,
) -> None:
    busy: list[int] = [ResponseCode.SYSTEM_BUSY] * 3
    store = Store({b"1": busy})
    batches = [batch_of(b"%d" % number, queue=QUEUES[number % 2]) for number in range(5)]
    async with scripted_cluster(store) as cluster, Producer(cluster.address) as producer:
        errors = await send_pipelined(producer, batches)
        assert [type(error) for error in errors] == [
            type(None), BrokerBusyError, type(None), EarlierBatchFailedError, type(None),
        ]  # fmt: skip
        assert all(error is None or error.retriable for error in errors)
        assert store.stored == {"0": [[b"0"], [b"2"], [b"4"]]}
        assert await send_pipelined(producer, [batches[1], batches[3]]) == [None, None]
    assert store.stored["1"] == [[b"1"], [b"3"]]


async def test_refused_batch_stops_only_the_later_batches_of_its_queue() -> None:
    store = Store({b"bad": [ResponseCode.MESSAGE_ILLEGAL]})
    batches = [batch_of(b"1", b"bad", queue=QUEUES[0]), batch_of(b"2", queue=QUEUES[0]), batch_of(b"3")]
    async with scripted_cluster(store) as cluster, Producer(cluster.address) as producer:
        errors = await send_pipelined(producer, batches)
    assert isinstance(errors[0], MessageRefusedError)
    assert isinstance(errors[1], EarlierBatchFailedError)
    assert errors[1].cause is errors[0]
    assert errors[2] is None


async def test_batch_of_a_broker_that_goes_away_moves_to_another_with_the_same_bytes() -> None:
    def hang_up(connection: Connection, request: Command) -> None:
        if request.code == RequestCode.SEND_BATCH_MESSAGE:
            connection.close()
        else:
            connection.respond(request, ResponseCode.SUCCESS)

    batches = [batch_of(b"%d" % number) for number in range(8)]  # one for each queue of both brokers
    async with scripted_cluster(hang_up, Store()) as cluster, Producer(cluster.address) as producer:
        assert await send_pipelined(producer, batches) == [None] * 8
        lost, stored = [
            [request.body for request in broker.asked(RequestCode.SEND_BATCH_MESSAGE)]
            for broker in cluster.brokers.values()
        ]
    assert lost
    assert sorted(stored) == sorted([batch.body for batch in batches])


async def test_batch_moves_to_another_broker_unless_its_queue_is_fixed(
    jumping_clock: trio.testing.MockClock,
) -> None:
    def refuse(connection: Connection, request: Command) -> None:
        connection.respond(request, ResponseCode.SYSTEM_ERROR)

    store = Store()
    async with scripted_cluster(refuse, store) as cluster, Producer(cluster.address) as producer:
        assert await send_pipelined(producer, [batch_of(b"%d" % number) for number in range(4)]) == [None] * 4
        (error,) = await send_pipelined(producer, [batch_of(b"x", queue=QUEUES[0])])
    assert error is not None
    assert len([bodies for sent in store.stored.values() for bodies in sent]) == 4


async def test_cancelled_call_leaves_no_send_running() -> None:
    store = Store(holds_back=True)
    async with scripted_cluster(store) as cluster, Producer(cluster.address) as producer:
        with trio.move_on_after(5) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(send_pipelined, producer, [batch_of(b"1"), batch_of(b"2")])
                while store.in_flight < 2:
                    await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        assert producer.in_flight == 0
        store.answer_all()


# --- through a blocking producer


@pytest.fixture(scope="module")
def client(broker_address: str) -> Iterator[Client]:
    with Client(broker_address) as client:
        yield client


def test_batches_are_stored_through_a_blocking_producer(client: Client, topic: str) -> None:
    with client.producer("spark_tests", linger=0.005) as producer, client.reader() as reader:
        sender = BatchSender(producer)
        producer.send(Message(topic, b"first"))
        queue = sender.queues(topic)[-1]
        assert sender.send_batches([batch_of(b"1", b"2", topic=topic, queue=queue)]) == [None]
        bodies = [message.body for message in reader.range(queue)]
    assert bodies[-2:] == [b"1", b"2"]


def test_unique_ids_differ_between_senders_and_threads(client: Client) -> None:
    with client.producer("spark_tests", linger=0.005) as producer:
        senders = [BatchSender(producer) for _ in range(2)]
        ids: list[Sequence[str]] = []
        threads = [
            threading.Thread(target=lambda sender=sender: ids.append(sender.new_unique_ids(5000)))
            for sender in senders
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len({unique_id for each in ids for unique_id in each}) == 10_000
    assert len({len(unique_id) for each in ids for unique_id in each}) == 1


def test_closed_producer_raises(client: Client, topic: str) -> None:
    producer = client.producer("spark_tests", linger=0.005)
    sender = BatchSender(producer)
    producer.close()
    with pytest.raises(ClosedError):
        sender.send_batches([batch_of(b"1", topic=topic)])
