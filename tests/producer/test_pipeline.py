"""Pipelined sends: waiting, order, outcomes and the log of failures."""

from __future__ import annotations

import gc
import math
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from rocketmq_py import Client
from rocketmq_py.client import core, core_of
from rocketmq_py.client.lifespan import start_soon
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import (
    ClosedError,
    ConfigurationError,
    Delivery,
    InvalidMessageError,
    ReplyTimeoutError,
    RequestTimeoutError,
    RocketMQError,
)
from rocketmq_py.message import Message, MessageQueue
from rocketmq_py.producer import (
    PendingReply,
    PendingSend,
    Producer,
    ProducerHook,
    TransactionProducer,
    TransactionState,
)
from rocketmq_py.producer.outcome import REPORT_INTERVAL, FailureLog
from rocketmq_py.producer.send import Send
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection
from tests.scripted import ScriptedCluster, ignore, refuse, scripted_cluster, store

MESSAGE = Message("T", b"body")
QUEUE = MessageQueue("T", "broker-a", 0)
V2 = RequestCode.SEND_MESSAGE_V2


@attrs.define
class Dialling(trio.abc.HostnameResolver):
    """Makes the dial of one broker last until ``reached`` is set, as if a network swallowed the packets."""

    host: str = "swallows.example"
    address: str = ""
    reached: trio.Event = attrs.field(factory=trio.Event)

    async def getaddrinfo(self, host, port, *_: object) -> Any:  # type: ignore[no-untyped-def]
        await self.reached.wait()
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", int(port)))]

    async def getnameinfo(self, *_: object) -> Any:
        raise NotImplementedError


@contextmanager
def dialling(cluster: ScriptedCluster) -> Iterator[Dialling]:
    """Delay the path to broker-a."""
    server = cluster.brokers["broker-a"]
    resolver = Dialling()
    server.address = f"{resolver.host}:{server.address.partition(':')[2]}"
    before = trio.socket.set_custom_hostname_resolver(resolver)
    yield resolver
    trio.socket.set_custom_hostname_resolver(before)


class Done:
    """Sets ``event`` after this number of calls."""

    def __init__(self, count: int) -> None:
        self.event = trio.Event()
        self.pendings: list[PendingSend] = []
        self._count = count

    def add(self, pending: PendingSend) -> None:
        self.pendings.append(pending)
        if len(self.pendings) == self._count:
            self.event.set()


# Waiting


async def test_a_broker_that_swallows_packets_does_not_block_submit() -> None:
    async with scripted_cluster(store, store) as cluster, Producer(cluster.address) as producer:
        with dialling(cluster) as way:
            half = Done(8)
            pending = [await producer.submit(MESSAGE) for _ in range(16)]
            for one in pending:
                one.add_done_callback(half.add)
            await half.event.wait()
            assert {one.result().queue.broker_name for one in half.pendings} == {"broker-b"}
            way.reached.set()
            await producer.flush()
            assert sum(one.result().queue.broker_name == "broker-a" for one in pending) == 8


async def test_messages_for_one_queue_are_written_in_order() -> None:
    async with scripted_cluster(store) as cluster, Producer(cluster.address) as producer:
        await producer.queues("T")
        with dialling(cluster) as way:
            bodies = [b"%d" % number for number in range(300)]
            for body in bodies[:100]:
                await producer.submit(Message("T", body), queue=QUEUE)
            way.reached.set()
            for body in bodies[100:]:
                await producer.submit(Message("T", body), queue=QUEUE)
            await producer.flush()
        assert [request.body for request in cluster.brokers["broker-a"].asked(V2)] == bodies


async def test_each_queued_request_has_its_own_timeout(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with (
        scripted_cluster(store) as cluster,
        Producer(cluster.address, connect_timeout=60.0) as producer,
    ):
        with dialling(cluster) as way:
            start = trio.current_time()
            pending = [
                await producer.submit(MESSAGE, queue=QUEUE, timeout=timeout)
                for timeout in (9000.0, 4.0, 9000.0)
            ]
            await trio.testing.wait_all_tasks_blocked(0.01)
            late = await producer.submit(MESSAGE, queue=QUEUE, timeout=2.0)
            for one, seconds in ((late, 2), (pending[1], 4)):
                with pytest.raises(
                    RequestTimeoutError, match=rf"swallows.example:\d+ within {seconds} s"
                ) as caught:
                    await one
                assert caught.value.delivery is Delivery.NOT_SENT
                assert trio.current_time() - start == pytest.approx(seconds, abs=0.1)
            way.reached.set()
            assert [(await pending[index]).queue for index in (0, 2)] == [QUEUE, QUEUE]


async def test_a_full_buffer_does_not_block_submit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "MAX_BUFFERED", 1)
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with (
        listener,  # accepts, and reads nothing
        scripted_cluster(store, store) as cluster,
        Producer(cluster.address, close_timeout=0.01) as producer,
    ):
        address = f"127.0.0.1:{listener.socket.getsockname()[1]}"
        cluster.brokers["broker-a"].address = address
        await producer.queues("T")
        connection = await core_of(producer).connections.get(address)
        connection.oneway_nowait(1, {}, bytes(15 << 20))
        await trio.testing.wait_all_tasks_blocked(0.05)
        connection.oneway_nowait(1, {}, b"fills the buffer")
        half = Done(4)
        for _ in range(8):
            (await producer.submit(MESSAGE)).add_done_callback(half.add)
        await half.event.wait()
        assert {one.result().queue.broker_name for one in half.pendings} == {"broker-b"}


async def test_submit_request_does_not_wait_for_the_broker(jumping_clock: trio.testing.MockClock) -> None:
    async with scripted_cluster(store, store) as cluster, Producer(cluster.address) as producer:
        with dialling(cluster):
            start = trio.current_time()
            pending = [await producer.submit_request(MESSAGE, queue=QUEUE, timeout=1.0) for _ in range(4)]
            assert trio.current_time() - start < 0.1
            for one in pending:
                with pytest.raises(RocketMQError) as caught:
                    await one
                assert caught.value.delivery is Delivery.NOT_SENT
            assert producer.in_flight == 0


# Errors in the background


async def test_a_selector_that_raises_in_the_background_fails_its_message(
    jumping_clock: trio.testing.MockClock,
) -> None:
    def broken(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        raise LookupError("no such shard")

    async with scripted_cluster(store) as cluster:

        def refuse_once(connection: Connection, request: Command) -> None:
            cluster.name_server.answer = cluster.route
            connection.respond(request, ResponseCode.SYSTEM_ERROR, remark="starting")

        async with Producer(cluster.address) as producer:
            for sending in (producer.submit, producer.submit_request):
                cluster.name_server.answer = refuse_once
                pending = await sending(Message("T", b"x"), queue=broken)
                with pytest.raises(
                    InvalidMessageError, match=r"queue selector raised LookupError\('no such sh"
                ) as e:
                    await pending
                assert isinstance(e.value.__cause__, LookupError)
                core_of(producer).routes._routes.clear()
            assert (await producer.send(MESSAGE)).queue.topic == "T", "the connection still works"


async def test_start_soon_does_nothing_after_the_nursery_has_ended() -> None:
    async with trio.open_nursery() as nursery:
        pass
    assert not start_soon(nursery, trio.sleep, 0)
    assert not start_soon(None, trio.sleep, 0)


async def test_unsent_messages_are_not_sent_when_the_producer_closes(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_cluster(ignore, store) as cluster, trio.open_nursery() as nursery:
        producer = Producer(cluster.address, send_timeout=1000, connect_timeout=1000.0, close_timeout=1.0)
        await producer.start(nursery)
        await producer.queues("T")
        answered = await producer.submit(MESSAGE, queue=QUEUE)
        await trio.testing.wait_all_tasks_blocked(0.01)
        with dialling(cluster) as way:
            core_of(producer).connections.close(cluster.brokers["broker-a"].address)
            cluster.topics["other"] = (1, 1, 6)
            await producer.queues("other")
            waiting = await producer.submit(
                Message("other", b"x"), queue=MessageQueue("other", "broker-a", 0)
            )
            await producer.aclose()
            way.reached.set()
        for one, delivery in ((answered, Delivery.UNKNOWN), (waiting, Delivery.NOT_SENT)):
            with pytest.raises(ClosedError) as caught:
                await one
            assert caught.value.delivery is delivery


# The delivery of failed sends


async def test_a_request_that_waits_for_a_heartbeat_is_not_sent(
    jumping_clock: trio.testing.MockClock,
) -> None:
    def no_heartbeats(connection: Connection, request: Command) -> None:
        if request.code != RequestCode.HEART_BEAT:
            store(connection, request)

    async with (
        scripted_cluster(no_heartbeats) as cluster,
        TransactionProducer(
            cluster.address, group="g", check=lambda _: TransactionState.UNKNOWN, send_timeout=1.0
        ) as producer,
    ):
        timed = Message("T", b"x", delay=5)
        for send in (
            lambda: producer.send(timed),
            lambda: producer.send_oneway(timed),
            lambda: producer.send_in_transaction(MESSAGE, lambda *_: TransactionState.COMMIT),
            lambda: producer.request(MESSAGE),
        ):
            with pytest.raises(RocketMQError) as caught:
                await send()
            assert caught.value.delivery is Delivery.NOT_SENT
        with pytest.raises(RequestTimeoutError) as caught:
            await (await producer.submit(timed))
        assert caught.value.delivery is Delivery.NOT_SENT
        assert not cluster.brokers["broker-a"].asked(V2)


def unanswered() -> tuple[trio.Event, Callable[[Connection, Command], None]]:
    """Return an event for the first send that arrives, and a script that leaves all sends unanswered."""
    written = trio.Event()

    def handle(connection: Connection, request: Command) -> None:
        if request.code == V2:
            written.set()
        else:
            store(connection, request)

    return written, handle


async def test_a_request_that_was_written_may_have_arrived() -> None:
    written, no_answer = unanswered()
    async with scripted_cluster(no_answer) as cluster:
        async with Producer(cluster.address, close_timeout=0.01) as producer:
            pending = await producer.submit_request(MESSAGE, timeout=60)
            await written.wait()
        with pytest.raises(ClosedError) as caught:
            await pending
        assert caught.value.delivery is Delivery.UNKNOWN


async def test_a_group_is_unregistered_although_closing_times_out() -> None:
    written, no_answer = unanswered()
    async with scripted_cluster(no_answer) as cluster, Client(cluster.address) as client:
        async with client.producer("slow", close_timeout=0.01) as producer:
            await core_of(client).heartbeats.send()
            await producer.submit(MESSAGE, timeout=60)
            await written.wait()
        await core_of(client).heartbeats.send()
        broker = cluster.brokers["broker-a"]
        with trio.fail_after(60):
            while not broker.asked(RequestCode.UNREGISTER_CLIENT):
                await trio.lowlevel.checkpoint()
        (leave,) = broker.asked(RequestCode.UNREGISTER_CLIENT)
        assert leave.fields["producerGroup"] == "slow"


@pytest.mark.parametrize("linger", [None, 0.005])
async def test_a_group_is_unregistered_although_the_nursery_of_the_producer_is_cancelled(
    linger: float | None,
) -> None:
    written, no_answer = unanswered()
    async with scripted_cluster(no_answer) as cluster, Client(cluster.address) as client:
        async with trio.open_nursery() as nursery:
            producer = client.producer("cancelled", linger=linger)
            await producer.start(nursery)
            await core_of(client).heartbeats.send()
            await producer.submit(MESSAGE)
            await written.wait()
            nursery.cancel_scope.cancel()
        with trio.fail_after(60):
            while not (leaves := cluster.brokers["broker-a"].asked(RequestCode.UNREGISTER_CLIENT)):
                await trio.lowlevel.checkpoint()
        assert [leave.fields["producerGroup"] for leave in leaves] == ["cancelled"]


async def test_a_group_is_unregistered_although_closing_a_producer_with_linger_times_out() -> None:
    written, no_answer = unanswered()
    async with scripted_cluster(no_answer) as cluster, Client(cluster.address) as client:
        async with client.producer("slow", linger=0.005, close_timeout=0.01) as producer:
            await core_of(client).heartbeats.send()
            await producer.submit(MESSAGE, timeout=60)
            await written.wait()
        with trio.fail_after(60):
            while not cluster.brokers["broker-a"].asked(RequestCode.UNREGISTER_CLIENT):
                await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("hook", [None, ProducerHook()])
async def test_a_send_that_waits_for_space_fails_when_the_nursery_of_the_producer_is_cancelled(
    hook: ProducerHook | None,
) -> None:
    written, no_answer = unanswered()
    async with scripted_cluster(no_answer) as cluster, trio.open_nursery() as tasks:
        producer = Producer(cluster.address, max_in_flight=1)
        if hook is not None:
            producer.add_hook(hook)

        async def send_two() -> None:
            await producer.submit(MESSAGE)
            with pytest.raises(ClosedError):
                await producer.submit(MESSAGE)

        async with trio.open_nursery() as nursery:
            await producer.start(nursery)
            tasks.start_soon(send_two)
            await written.wait()
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()


async def test_a_send_that_waits_for_a_route_is_not_sent_after_its_producer_was_closed(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_cluster(store, topics=["T", "U"]) as cluster, Client(cluster.address) as client:
        async with client.producer("other") as other:
            await other.send(Message("U", b"connects to the broker"))
        requests: list[tuple[Connection, Command]] = []
        cluster.name_server.answer = lambda *request: requests.append(request)
        sends: list[PendingSend] = []

        async def submit() -> None:
            sends.append(await producer.submit(MESSAGE))

        async with trio.open_nursery() as tasks:
            async with client.producer("g", close_timeout=0.5) as producer:
                tasks.start_soon(submit)
                await trio.testing.wait_all_tasks_blocked()
            cluster.route(*requests[0])
        await trio.sleep(1)
        error = sends[0].exception()
        assert isinstance(error, ClosedError)
        assert error.delivery is Delivery.NOT_SENT
        assert len(cluster.brokers["broker-a"].asked(V2)) == 1


class SlowCompression:
    """The compression of a producer, which waits for ``release`` as if the body were very large."""

    def __init__(self, producer: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started = trio.Event()
        self.release = trio.Event()
        self._compress = producer._sender.compress
        monkeypatch.setattr(producer._sender, "compress", self.compress)

    async def compress(self, send: Send) -> None:
        self.started.set()
        await self.release.wait()
        await self._compress(send)


async def test_a_message_that_is_compressed_while_the_producer_closes_is_not_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def submit(producer: Producer) -> None:
        sends.append(await producer.submit(Message("T", b"large" * 1000)))

    sends: list[PendingSend] = []
    async with scripted_cluster(store) as cluster, Client(cluster.address) as client:
        async with trio.open_nursery() as nursery:
            async with Producer(client, close_timeout=0.05) as producer:
                await producer.send(MESSAGE)
                slow = SlowCompression(producer, monkeypatch)
                nursery.start_soon(submit, producer)
                await slow.started.wait()
            slow.release.set()
        error = sends[0].exception()
        assert isinstance(error, ClosedError)
        assert error.delivery is Delivery.NOT_SENT
        async with Producer(client) as other:
            await other.send(MESSAGE)  # over the same connection
        assert len(cluster.brokers["broker-a"].asked(V2)) == 2


async def test_a_request_that_is_compressed_while_the_producer_closes_is_not_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def ask(producer: Producer) -> None:
        requests.append(await producer.submit_request(Message("T", b"large" * 1000)))

    requests: list[PendingReply] = []
    async with scripted_cluster(store) as cluster, Client(cluster.address) as client:
        async with trio.open_nursery() as nursery:
            async with Producer(client, close_timeout=0.05) as producer:
                requests.append(await producer.submit_request(MESSAGE))
                while requests[0].sent is None:
                    await trio.sleep(0.01)
                slow = SlowCompression(producer, monkeypatch)
                nursery.start_soon(ask, producer)
                await slow.started.wait()
            slow.release.set()
        errors = [request.exception() for request in requests]
        assert [error.delivery for error in errors if isinstance(error, ClosedError)] == [
            Delivery.UNKNOWN,
            Delivery.NOT_SENT,
        ]
        async with Producer(client) as other:
            await other.send(MESSAGE)  # over the same connection
        assert len(cluster.brokers["broker-a"].asked(V2)) == 2


async def test_a_message_whose_compression_is_cancelled_is_not_in_flight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with scripted_cluster(store) as cluster, Producer(cluster.address) as producer:
        slow = SlowCompression(producer, monkeypatch)
        for submit in (producer.submit, producer.submit_request):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(submit, Message("T", b"large" * 1000))
                await slow.started.wait()
                await trio.testing.wait_all_tasks_blocked()
                assert producer.in_flight == 1
                nursery.cancel_scope.cancel()
            assert (producer.in_flight, producer.statistics.in_flight_bytes) == (0, 0)
        assert not cluster.brokers["broker-a"].asked(V2)


async def test_the_timeout_of_a_request_begins_after_its_compression(
    monkeypatch: pytest.MonkeyPatch, jumping_clock: trio.testing.MockClock
) -> None:
    async with scripted_cluster(store) as cluster, Producer(cluster.address) as producer:
        await producer.send(MESSAGE)
        slow = SlowCompression(producer, monkeypatch)
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def ask() -> None:
                started = trio.current_time()
                with pytest.raises(ReplyTimeoutError) as caught:
                    await producer.request(Message("T", b"large" * 1000), timeout=1)
                assert caught.value.delivery is Delivery.UNKNOWN
                assert trio.current_time() - started == pytest.approx(3, abs=0.1)

            await slow.started.wait()
            await trio.sleep(2)
            slow.release.set()
        assert len(cluster.brokers["broker-a"].asked(V2)) == 2


# Unretrieved errors


async def test_unretrieved_errors_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with scripted_cluster(refuse(ResponseCode.MESSAGE_ILLEGAL, "too long")) as cluster:
        async with Producer(cluster.address) as producer:
            looked_at = [await producer.submit(MESSAGE) for _ in range(3)]
            for _ in range(5):
                await producer.submit(MESSAGE)
            await producer.flush()
            assert all(one.exception() for one in looked_at)
        del looked_at, producer
        gc.collect()
    logged = [record.message for record in caplog.records if "MESSAGE_ILLEGAL" in record.message]
    assert ["count=1 " in logged[0], "count=4 " in logged[1]] == [True, True], (
        "the first at once, then the others"
    )
    assert "and their results were never awaited: count=1 last_error=127.0.0.1:" in logged[0]
    assert "MESSAGE_ILLEGAL (13): too long" in logged[0]


async def test_a_producer_with_linger_logs_unretrieved_errors(caplog: pytest.LogCaptureFixture) -> None:
    async with (
        scripted_cluster(refuse(ResponseCode.MESSAGE_ILLEGAL)) as cluster,
        Producer(cluster.address, linger=0) as producer,
    ):
        await producer.submit(MESSAGE)
        await producer.flush()
    assert "results were never awaited: count=1" in caplog.text


def test_unretrieved_errors_are_logged_together_at_intervals(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    log = FailureLog(lambda: now)
    for text in ("first", "more", "more", "more", "fifth", "sixth"):
        if text == "fifth":
            now = REPORT_INTERVAL
        PendingSend()._fail(ClosedError(text), log)
    del log
    logged = [record.message for record in caplog.records]
    assert [tuple(text.split()[-2:]) for text in logged] == [
        ("count=1", "last_error=first"), ("count=4", "last_error=fifth"), ("count=1", "last_error=sixth"),
    ]  # fmt: skip


async def test_a_callback_that_ignores_the_error_does_not_retrieve_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = FailureLog(lambda: 0.0)
    called: list[bool] = []

    def look(one: PendingSend) -> None:
        called.append(one.exception() is not None)

    for callback in (look, lambda _: called.append(False)):
        pending = PendingSend()
        pending.add_done_callback(callback)
        pending._fail(ClosedError("gone"), log)
        del pending
    assert called == [True, False]
    assert [record.message for record in caplog.records if "error=gone" in record.message] == [
        "pipelined sends failed, and their results were never awaited: count=1 last_error=gone"
    ]


# Flush


async def test_flush_waits_for_the_sends_in_flight() -> None:
    held: list[tuple[Connection, Command]] = []

    def hold(connection: Connection, request: Command) -> None:
        if request.code == V2:
            held.append((connection, request))
        else:
            store(connection, request)

    async with scripted_cluster(hold) as cluster, Producer(cluster.address) as producer:
        await producer.flush()
        first = await producer.submit(MESSAGE)
        flushed = trio.Event()

        async def flush() -> None:
            await producer.flush()
            flushed.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(flush)
            await trio.testing.wait_all_tasks_blocked(0.05)
            second = await producer.submit(MESSAGE)
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert not flushed.is_set()
            store(*held[0])
            await flushed.wait()
            assert first.done()
            assert not second.done()
            store(*held[1])
    with pytest.raises(ClosedError):
        await producer.flush()


# Validation


@pytest.mark.parametrize(
    ("method", "arguments", "options", "text"),
    [
        ("send", (b"x",), {}, r"message must be a Message, not bytes"),
        (
            "send",
            ([MESSAGE],),
            {},
            r"message must be a Message, not list; use send_batch",
        ),
        ("submit", ("x",), {}, "not str"),
        ("send_oneway", (None,), {}, "not NoneType"),
        ("request", (b"x",), {}, "not bytes"),
        ("send_batch", (MESSAGE,), {}, "messages must be a list of Message, not a Message; use send"),
        ("send_batch", ([MESSAGE, b"x"],), {}, r"(but|not) bytes"),
        (
            "send",
            (MESSAGE,),
            {"queue": 0},
            "queue must be a MessageQueue or a queue selector, not int",
        ),
        ("submit", (MESSAGE,), {"queue": "0"}, "queue must be a MessageQueue or .* not str"),
    ],
)
@pytest.mark.parametrize("hooked", [False, True])
async def test_invalid_arguments_are_named(
    method: str, arguments: tuple[object], options: dict[str, object], text: str, hooked: bool
) -> None:
    async with scripted_cluster(store) as cluster, Producer(cluster.address) as producer:
        if hooked:
            producer.add_hook(ProducerHook())
        with pytest.raises(InvalidMessageError, match=text):
            await getattr(producer, method)(*arguments, **options)
        assert producer.in_flight == 0


@pytest.mark.parametrize("timeout", [-1, math.nan, "5"])
@pytest.mark.parametrize("linger", [None, 0.005])
async def test_invalid_timeouts_are_named(timeout: object, linger: float | None) -> None:
    async with scripted_cluster(store) as cluster, Producer(cluster.address, linger=linger) as producer:
        for method in ("send", "submit", "send_batch", "request", "submit_request"):
            message = [MESSAGE] if method == "send_batch" else MESSAGE
            with pytest.raises(ConfigurationError, match=r"timeout is .*; it must be"):
                await getattr(producer, method)(message, timeout=timeout)


async def test_a_timeout_can_be_infinite() -> None:
    async with (
        scripted_cluster(store) as cluster,
        Producer(cluster.address, close_timeout=0.01) as producer,
    ):
        assert (await producer.send(MESSAGE, timeout=math.inf)).queue.topic == "T"
        assert (await (await producer.submit(MESSAGE, timeout=math.inf))).queue.topic == "T"
        pending = await producer.submit_request(MESSAGE, timeout=math.inf)
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert pending.sent is not None


# Admission


async def test_a_send_that_fails_early_takes_no_space() -> None:
    def broken(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        raise LookupError("no such shard")

    async with scripted_cluster(store) as cluster, Producer(cluster.address) as producer:
        await producer.queues("T")
        for body in (b"x", b"x" * 10_000):  # the second is compressed first
            with pytest.raises(LookupError):
                await producer.submit(Message("T", body), queue=broken)
            assert producer.in_flight == producer.statistics.in_flight_bytes == 0


async def test_waiting_for_a_route_can_be_cancelled(jumping_clock: trio.testing.MockClock) -> None:
    async with scripted_cluster(store) as cluster, Producer(cluster.address) as producer:
        cluster.name_server.answer = ignore
        with trio.move_on_after(0.5) as scope:
            await producer.submit(MESSAGE)
        assert scope.cancelled_caught
        assert producer.in_flight == producer.statistics.in_flight_bytes == 0


async def test_a_send_that_waits_for_max_in_flight_fails_when_the_producer_closes(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_cluster(ignore) as cluster, trio.open_nursery() as nursery:
        producer = Producer(cluster.address, send_timeout=60, max_in_flight=1)

        async def send_one_too_many() -> None:
            with pytest.raises(ClosedError, match="closed before the send was written"):
                await producer.submit(MESSAGE)

        async with producer:
            await producer.queues("T")
            await producer.submit(MESSAGE)
            nursery.start_soon(send_one_too_many)
            await trio.testing.wait_all_tasks_blocked()
        assert producer.in_flight == producer.statistics.in_flight_bytes == 0


async def test_a_late_answer_changes_nothing(jumping_clock: trio.testing.MockClock) -> None:
    held: list[tuple[Connection, Command]] = []

    def hold(connection: Connection, request: Command) -> None:
        if request.code == V2:
            held.append((connection, request))
        else:
            store(connection, request)

    async with scripted_cluster(hold) as cluster, Client(cluster.address) as client:
        async with client.producer("g", send_timeout=60, close_timeout=1.0) as producer:
            pending = await producer.submit(MESSAGE)
            await trio.sleep(1)
        assert isinstance(pending.exception(), ClosedError)
        store(*held[0])
        await trio.sleep(1)
        assert isinstance(pending.exception(), ClosedError)
        assert (producer.statistics.sent, producer.statistics.failed) == (0, 1)
