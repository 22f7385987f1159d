from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import (
    ConnectionLostError,
    Delivery,
    ProtocolError,
    RequestTimeoutError,
    RocketMQError,
)
from rocketmq_py.protocol.command import RESPONSE_FLAG, Command, Serialization, encode, encode_request
from rocketmq_py.protocol.frames import FrameDecoder
from rocketmq_py.remoting import Answer, Connection, Deadlines, Handler, serve
from rocketmq_py.remoting.client_connection import ClientConnection
from rocketmq_py.remoting.connection import MAX_SILENT_TIMEOUTS


def echo(connection: Connection, request: Command) -> None:
    connection.respond(request, 0, request.fields, request.body, remark="echo")


def silent(_: Connection, __: Command) -> None:
    """A peer that never answers."""


def refuse(connection: Connection, request: Command) -> None:
    connection.respond(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)


@asynccontextmanager
async def connected(
    handler: Handler,
    *,
    client_handler: Handler = refuse,
    max_buffered: int = 1 << 20,
    serialization: Serialization = Serialization.JSON,
    on_closed: Callable[[Connection], None] = lambda _: None,
    runs: bool = True,
) -> AsyncIterator[Connection]:
    async with trio.open_nursery() as nursery:
        address: str = await nursery.start(
            lambda task_status: serve(handler, "127.0.0.1", 0, on_closed=on_closed, task_status=task_status)
        )
        host, port = address.split(":")
        deadlines = Deadlines()
        connection = ClientConnection(
            await trio.open_tcp_stream(host, int(port)),
            deadlines=deadlines,
            handler=client_handler,
            max_buffered=max_buffered,
            serialization=serialization,
        )
        nursery.start_soon(deadlines.run)
        if runs:
            nursery.start_soon(connection.run)
        yield connection
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("serialization", list(Serialization))
async def test_response_goes_to_its_request(serialization: Serialization) -> None:
    async with connected(echo, serialization=serialization) as connection:
        answer = await connection.request(10, {"a": "b"}, b"body", timeout=3)
        assert (answer.code, answer.fields, answer.body, answer.remark) == (0, {"a": "b"}, b"body", "echo")
        assert answer.serialization is serialization
        assert connection.pending == 0


async def test_the_version_is_not_that_of_a_member_whose_answer_is_forwarded() -> None:
    versions = iter([441, 401, 441])

    def answer_in_versions(connection: Connection, request: Command) -> None:
        version, encoding = next(versions), request.serialization
        frame = encode(0, 12, version, request.opaque, RESPONSE_FLAG, None, {}, b"", encoding)
        connection.writer.put(frame)

    async with connected(answer_in_versions) as connection:
        await connection.request(RequestCode.GET_CONSUMER_RUNNING_INFO, {}, timeout=3)
        assert connection.peer_version == 0
        await connection.request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {}, timeout=3)
        assert connection.peer_version == 401
        await connection.request(RequestCode.CONSUME_MESSAGE_DIRECTLY, {}, timeout=3)
        assert connection.peer_version == 401


async def test_answers_in_any_order_are_matched() -> None:
    held: list[tuple[Connection, Command]] = []

    def answer_backwards(connection: Connection, request: Command) -> None:
        held.append((connection, request))
        if len(held) == 50:
            for asker, one in reversed(held):
                asker.respond(one, 0, {}, one.body)

    answers = {}
    async with connected(answer_backwards) as connection:

        async def ask(number: int) -> None:
            answers[number] = (await connection.request(10, {}, b"%d" % number, timeout=3)).body

        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(ask, number)
    assert answers == {number: b"%d" % number for number in range(50)}


async def test_a_timeout_says_that_the_request_was_written(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with connected(silent) as connection:
        with pytest.raises(
            RequestTimeoutError, match=r"no answer from 127\.0\.0\.1:\d+ within 3 s"
        ) as caught:
            await connection.request(10, {}, timeout=3)
        assert caught.value.delivery is Delivery.UNKNOWN
        assert connection.pending == 0
        assert not connection.is_closed


async def test_a_request_without_a_timeout_waits_for_its_answer(
    jumping_clock: trio.testing.MockClock,
) -> None:
    held: list[tuple[Connection, Command]] = []
    async with connected(lambda *asked: held.append(asked)) as connection, trio.open_nursery() as nursery:
        nursery.start_soon(lambda: connection.request(10, {}, timeout=math.inf))
        await trio.sleep(1_000_000)
        assert connection.pending == 1
        ((asker, request),) = held
        asker.respond(request, 0)


async def test_nan_deadline_is_refused_and_leaves_nothing_pending() -> None:
    async with connected(silent) as connection:
        with pytest.raises(ValueError, match="NaN"):
            connection.submit(10, {}, deadline=math.nan, timeout=1, on_answer=lambda _: None)
        assert connection.pending == 0


async def test_a_connection_that_stays_silent_is_broken(jumping_clock: trio.testing.MockClock) -> None:
    async with connected(silent) as connection:
        for _ in range(MAX_SILENT_TIMEOUTS):
            with pytest.raises(RequestTimeoutError):
                await connection.request(10, {}, timeout=1)
        assert connection.is_closed
        with pytest.raises(ConnectionLostError, match="timed out and nothing was received") as caught:
            await connection.request(10, {}, timeout=1)
        assert caught.value.delivery is Delivery.NOT_SENT


async def test_short_timeouts_do_not_close_the_connection_of_a_slow_peer(
    jumping_clock: trio.testing.MockClock,
) -> None:
    held: list[tuple[Connection, Command]] = []
    async with connected(lambda connection, request: held.append((connection, request))) as connection:
        async with trio.open_nursery() as nursery:
            patient: list[Command] = []

            async def wait_long() -> None:
                patient.append(await connection.request(10, {}, b"patient", timeout=30))

            nursery.start_soon(wait_long)
            for _ in range(MAX_SILENT_TIMEOUTS * 3):
                with pytest.raises(RequestTimeoutError):
                    await connection.request(10, {}, timeout=0.1)
            for asker, request in held:
                if request.body == b"patient":
                    asker.respond(request, 0)
        assert len(patient) == 1


async def test_a_connection_that_answers_in_between_is_kept(jumping_clock: trio.testing.MockClock) -> None:
    def answer_only_pings(connection: Connection, request: Command) -> None:
        if request.code == 1:
            connection.respond(request, 0)

    async with connected(answer_only_pings) as connection:
        for _ in range(MAX_SILENT_TIMEOUTS * 2):
            with pytest.raises(RequestTimeoutError):
                await connection.request(10, {}, timeout=1)
            await connection.request(1, {}, timeout=1)
        assert not connection.is_closed


async def test_lost_connection_fails_all_pending_requests_immediately() -> None:
    def hang_up_at_ten(connection: Connection, request: Command) -> None:
        if request.body == b"9":
            connection.close()

    errors: list[RocketMQError] = []
    async with connected(hang_up_at_ten) as connection:

        async def ask(number: int) -> None:
            with pytest.raises(ConnectionLostError) as caught:
                await connection.request(10, {}, b"%d" % number, timeout=1000)
            errors.append(caught.value)

        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(ask, number)
        assert connection.is_closed
    assert [error.delivery for error in errors] == [Delivery.UNKNOWN] * 10


async def test_buffered_request_fails_as_not_sent() -> None:
    answers: list[Answer] = []
    async with connected(echo) as connection:
        connection.submit(10, {}, deadline=trio.current_time() + 3, timeout=3, on_answer=answers.append)
        connection.close("test")  # before the writer task runs
    (error,) = answers
    assert isinstance(error, ConnectionLostError)
    assert error.delivery is Delivery.NOT_SENT
    assert "test" in str(error)


async def test_a_cancelled_request_leaves_nothing_and_its_late_answer_is_dropped() -> None:
    held: list[tuple[Connection, Command]] = []

    def hold_first(connection: Connection, request: Command) -> None:
        held.append((connection, request))
        if len(held) == 2:
            for asker, one in held:
                asker.respond(one, 0, {}, one.body)

    async with connected(hold_first) as connection:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: connection.request(10, {}, b"1", timeout=3))
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert connection.pending == 0
        answer = await connection.request(10, {}, b"2", timeout=3)
        assert answer.body == b"2"


async def test_senders_wait_when_the_buffer_is_full(jumping_clock: trio.testing.MockClock) -> None:
    """A peer that does not read: memory stays bounded, and the wait counts towards the timeout."""
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    async with trio.open_nursery() as nursery, listener:
        deadlines = Deadlines()
        connection = Connection(
            await trio.open_tcp_stream("127.0.0.1", listener.socket.getsockname()[1]),
            deadlines=deadlines,
            handler=refuse,
            max_buffered=1 << 20,
        )
        nursery.start_soon(deadlines.run)
        nursery.start_soon(connection.run)
        body = bytes(1 << 20)
        answers: list[Answer] = []
        submitted = 0
        with trio.move_on_after(1):
            while True:
                await connection.wait_for_space()
                connection.submit(
                    10, {}, body, deadline=trio.current_time() + 1000, timeout=1000, on_answer=answers.append
                )
                submitted += 1
        assert not connection.has_space
        with pytest.raises(RequestTimeoutError) as caught:
            await connection.request(10, {}, timeout=2)
        assert caught.value.delivery is Delivery.NOT_SENT
        with trio.move_on_after(1) as scope:
            await connection.oneway(10, {})
        assert scope.cancelled_caught
        connection.close("test")
        assert len(answers) == submitted
        nursery.cancel_scope.cancel()


async def test_oneway_and_requests_from_the_other_side() -> None:
    seen: list[Command] = []
    arrived = trio.Event()
    server_side: list[Connection] = []

    def server(connection: Connection, request: Command) -> None:
        server_side.append(connection)
        seen.append(request)
        connection.respond(request, 0)  # no effect, because the request is oneway
        arrived.set()

    async with connected(server, client_handler=echo) as connection:
        await connection.oneway(34, {"x": "y"}, b"!")
        await arrived.wait()
        assert seen[0].is_oneway
        assert (seen[0].code, seen[0].fields, seen[0].body) == (34, {"x": "y"}, b"!")
        answer = await server_side[0].request(39, {}, b"from the server", timeout=3)
        assert answer.body == b"from the server"


async def test_a_handler_that_raises_is_answered_as_system_error(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: Connection, __: Command) -> None:
        raise ValueError("not today")

    async with connected(broken) as connection:
        answer = await connection.request(10, {}, timeout=3)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "ValueError: not today"
        assert not connection.is_closed
    assert "request failed peer=" in caplog.text


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 8, bytes(64)])
async def test_garbage_from_the_peer_closes_the_connection(garbage: bytes) -> None:
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    stream = await trio.open_tcp_stream("127.0.0.1", listener.socket.getsockname()[1])
    async with listener, await listener.accept() as peer, trio.open_nursery() as nursery:
        deadlines = Deadlines()
        connection = Connection(stream, deadlines=deadlines, handler=refuse)
        nursery.start_soon(deadlines.run)
        nursery.start_soon(connection.run)
        answers: list[Answer] = []
        connection.submit(10, {}, deadline=trio.current_time() + 3, timeout=3, on_answer=answers.append)
        await peer.send_all(garbage)
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert connection.is_closed
        assert isinstance(answers[0], ConnectionLostError)
        assert "the peer sent invalid data" in str(answers[0])
        nursery.cancel_scope.cancel()


async def test_a_connection_closed_before_it_runs_closes_its_socket(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with connected(silent, runs=False) as connection:
        connection.close()
        with trio.fail_after(60):
            await connection.run()
        assert connection._wire._socket.fileno() == -1


async def test_graceful_close_writes_buffered_bytes() -> None:
    seen: list[bytes] = []
    closed = trio.Event()

    def collect(_: Connection, request: Command) -> None:
        seen.append(request.body)

    async with connected(collect, on_closed=lambda _: closed.set()) as connection:
        for number in range(1000):
            connection.oneway_nowait(10, {}, b"%d" % number)
        await connection.aclose()
        assert connection.is_closed
        await closed.wait()
        assert seen == [b"%d" % number for number in range(1000)]


async def test_go_away_drains_the_connection() -> None:
    def going(connection: Connection, request: Command) -> None:
        connection.respond(request, ResponseCode.GO_AWAY)

    async with connected(going) as connection:
        answer = await connection.request(10, {}, timeout=3)
        assert answer.code == ResponseCode.GO_AWAY
        assert connection.draining
        assert connection.is_closed  # nothing else was pending


async def test_unexpected_response_is_dropped() -> None:
    def twice(connection: Connection, request: Command) -> None:
        connection.respond(request, 0, {}, request.body)
        connection.respond(request, 0, {}, b"again")

    async with connected(twice) as connection:
        for body in (b"1", b"2", b"3"):
            assert (await connection.request(10, {}, body, timeout=60)).body == body


async def frozen_connection(nursery: trio.Nursery) -> tuple[Connection, trio.SocketStream]:
    """Return a connection with a blocked writer, and the peer's end."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        deadlines = Deadlines()
        connection = Connection(
            await trio.testing.open_stream_to_socket_listener(listener),
            deadlines=deadlines,
            handler=refuse,
            max_buffered=1 << 30,
        )
        peer = await listener.accept()
    nursery.start_soon(deadlines.run)
    nursery.start_soon(connection.run)
    submit(connection, 1, bytes(15 << 20))
    await trio.sleep(1)
    return connection, peer


def submit(connection: Connection, code: int, body: bytes = b"") -> None:
    end = trio.current_time() + 1000
    connection.submit(code, {}, body, deadline=end, timeout=1000, on_answer=lambda _: None)


async def codes_until(peer: trio.SocketStream, last: int) -> list[int]:
    decoder, codes = FrameDecoder(), []
    while last not in codes:
        codes += [command.code for command in decoder.feed(await peer.receive_some(1 << 20))]
    return codes


async def test_request_that_timed_out_before_writing_is_not_written(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        connection, peer = await frozen_connection(nursery)
        with pytest.raises(RequestTimeoutError) as caught:
            await connection.request(2, {}, timeout=1)
        assert caught.value.delivery is Delivery.NOT_SENT
        submit(connection, 3)
        assert await codes_until(peer, 3) == [1, 3]
        nursery.cancel_scope.cancel()
        await trio.aclose_forcefully(peer)


async def test_request_cancelled_before_writing_is_not_written(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        connection, peer = await frozen_connection(nursery)
        with trio.move_on_after(1):
            await connection.request(2, {}, bytes(1000), timeout=10)
        assert connection.pending == 1
        submit(connection, 3)
        assert await codes_until(peer, 3) == [1, 3]
        nursery.cancel_scope.cancel()
        await trio.aclose_forcefully(peer)


async def test_answers_to_a_peer_that_does_not_read_them_are_bounded(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    bound = 1 << 20
    asked = 0

    def answer(connection: Connection, request: Command) -> None:
        nonlocal asked
        asked += 1
        connection.respond(request, 0, {}, bytes(bound // 4))

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        stream = await trio.testing.open_stream_to_socket_listener(listener)
        peer = await listener.accept()
    async with peer, trio.open_nursery() as nursery:
        connection = Connection(stream, deadlines=Deadlines(), handler=answer, max_buffered=bound)
        nursery.start_soon(connection.run)
        requests = b"".join(encode_request(220, number, {}, b"") for number in range(200))
        await peer.send_all(requests)
        await trio.sleep(1)
        assert asked == 200
        decoder, answered = FrameDecoder(), 0
        with trio.move_on_after(1):
            while True:
                answered += len(decoder.feed(await peer.receive_some(1 << 20)))
        assert 8 <= answered < 30
        await peer.send_all(
            encode_request(220, 1000, {}, b"")
        )  # once the peer reads, the server responds again
        while not any(command.opaque == 1000 for command in decoder.feed(await peer.receive_some(1 << 20))):
            pass
        nursery.cancel_scope.cancel()
    assert caplog.text.count("which the peer does not read") == 1


async def test_a_request_that_cannot_be_read_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def malformed(_: Connection, __: Command) -> None:
        raise ProtocolError("field queueId is missing")

    async with connected(malformed) as connection:
        answer = await connection.request(10, {}, timeout=3)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "field queueId is missing")
    (record,) = [record for record in caplog.records if "request failed peer=" in record.message]
    assert (record.levelname, record.exc_info) == ("WARNING", None)


@pytest.mark.parametrize("is_first", [True, False])
async def test_the_error_of_a_request_above_the_limit_of_servers_names_the_limit(is_first: bool) -> None:
    async with connected(echo) as connection:
        if not is_first:
            await connection.request(10, {}, b"small", timeout=3)
        with pytest.raises(ConnectionLostError, match=r"17,000,000 bytes; servers accept 16,777,216 bytes"):
            await connection.request(10, {}, bytes(17_000_000), timeout=30)
