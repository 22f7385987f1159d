"""Peers that respond GO_AWAY: the client repeats the request over another connection."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
import trio.testing

from rocketmq_py import Message, Producer
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import ConnectError, RequestTimeoutError
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Answer, Connection, Deadlines, Handler
from tests.remoting.serving import pool_of, serving
from tests.scripted import scripted_cluster, store


class GoingAway:
    """Responds GO_AWAY on its first connections, and echoes requests on later ones."""

    def __init__(self, connections: int = 1) -> None:
        self.going = connections
        self.connections: list[Connection] = []
        self.done: list[bytes] = []
        self.asked = 0

    def __call__(self, connection: Connection, request: Command) -> None:
        self.asked += 1
        if connection not in self.connections:
            self.connections.append(connection)
        if self.connections.index(connection) < self.going:
            connection.respond(request, ResponseCode.GO_AWAY, remark="please go away")
            return
        self.done.append(request.body)
        connection.respond(request, 0, {}, request.body)


def submit(connection: Connection, body: bytes, on_answer: Callable[[Answer], None]) -> None:
    end = trio.current_time() + 30
    connection.submit(10, {}, body, deadline=end, timeout=30, on_answer=on_answer)


async def test_requests_in_flight_are_repeated_over_one_new_connection() -> None:
    peer = GoingAway()
    answers: list[Answer] = []
    answered = trio.Event()

    def done(answer: Answer) -> None:
        answers.append(answer)
        if len(answers) == 100:
            answered.set()

    async with serving(peer) as address, pool_of() as connections:
        connection = await connections.get(address)
        for number in range(100):
            submit(connection, b"%d" % number, done)
        await answered.wait()
        assert connection.is_closed
        assert connection.pending == 0
    assert len(peer.connections) == 2
    assert [answer.body for answer in answers if isinstance(answer, Command)] == peer.done
    assert peer.done == [b"%d" % number for number in range(100)]


async def test_unwritten_requests_and_oneways_move_to_the_new_connection() -> None:
    answers: list[Answer] = []
    answered = trio.Event()
    asked: list[tuple[Connection, bytes]] = []

    def done(answer: Answer) -> None:
        answers.append(answer)
        if len(answers) == 2:
            answered.set()

    def peer(connection: Connection, request: Command) -> None:
        asked.append((connection, request.body))
        if connection is asked[0][0]:
            connection.oneway_nowait(39, {})  # the client reads it together with the response, just before it
            connection.respond(request, ResponseCode.GO_AWAY)
        else:
            connection.respond(request, 0)

    def fill_the_buffer(connection: Connection, _: Command) -> None:
        connection.oneway_nowait(10, {}, b"oneway")
        submit(connection, b"request", done)

    async with serving(peer) as address, pool_of(handler=fill_the_buffer) as connections:
        connection = await connections.get(address)
        submit(connection, b"first", done)
        await answered.wait()
        assert connection.is_closed
    assert [body for _, body in asked] == [b"first", b"first", b"request", b"oneway"]
    assert len({peers_end for peers_end, _ in asked}) == 2


async def test_draining_connection_stays_usable(jumping_clock: trio.testing.MockClock) -> None:
    peer = GoingAway()
    async with serving(peer) as address, pool_of() as connections:
        connection = await connections.get(address)
        await connection.request(10, {}, b"1", timeout=3)
        assert (connection.draining, connection.is_closed) == (True, True)
        await connection.wait_for_space()
        await connection.oneway(10, {}, b"2")
        assert (await connection.request(10, {}, b"3", timeout=60)).body == b"3"
    assert peer.done == [b"1", b"2", b"3"]


async def test_request_that_is_sent_away_again_waits_for_the_next_dial(
    jumping_clock: trio.testing.MockClock,
) -> None:
    peer = GoingAway(connections=4)
    async with serving(peer) as address, pool_of() as connections:
        start = trio.current_time()
        answer = await connections.request(address, 10, {}, b"again", timeout=3)
        assert (answer.code, answer.body) == (0, b"again")
        # The second dial is made at once, the others after 0.1 s, 0.2 s and 0.4 s less a random part.
        assert 0.35 - 0.01 <= trio.current_time() - start <= 0.7
    assert len(peer.connections) == 5


async def test_peer_that_always_goes_away_counts_as_unreachable(
    jumping_clock: trio.testing.MockClock,
) -> None:
    peer = GoingAway(connections=1000)
    async with serving(peer) as address, pool_of() as connections:
        start = trio.current_time()
        with pytest.raises(ConnectError, match=r"the peer is going away \(\d+ attempts in .* s; ") as caught:
            await connections.request(address, 10, {}, timeout=3)
        assert 3 <= trio.current_time() - start <= 3.1
    assert f"({len(peer.connections) - 1} attempts" in str(caught.value)
    # A request at once on a second connection; then waits that double from at least 0.05 s to at least 0.4 s.
    assert peer.asked <= 11


async def serve_one_connection(handler: Handler, *, task_status: trio.TaskStatus[str]) -> None:
    """Accept one connection, then stop listening."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    task_status.started(f"127.0.0.1:{listener.socket.getsockname()[1]}")
    async with listener:
        stream = await listener.accept()
    await Connection(stream, deadlines=Deadlines(), handler=handler).run()


async def test_unreachable_peer_after_go_away_raises_connect_error(
    jumping_clock: trio.testing.MockClock,
) -> None:
    def go(connection: Connection, request: Command) -> None:
        connection.respond(request, ResponseCode.GO_AWAY)

    async with trio.open_nursery() as nursery, pool_of() as connections:
        address: str = await nursery.start(serve_one_connection, go)
        connection = await connections.get(address)
        for _ in range(2):
            start = trio.current_time()
            with pytest.raises(ConnectError):
                await connection.request(10, {}, timeout=3)
            assert 3 <= trio.current_time() - start <= 3.1
        assert connection.pending == 0
        nursery.cancel_scope.cancel()


async def test_the_timeout_covers_both_connections(jumping_clock: trio.testing.MockClock) -> None:
    asked: list[Command] = []

    def go_away_then_hold(connection: Connection, request: Command) -> None:
        asked.append(request)
        if len(asked) == 1:
            connection.respond(request, ResponseCode.GO_AWAY)

    async with serving(go_away_then_hold) as address, pool_of() as connections:
        connection = await connections.get(address)
        await trio.sleep(1)
        start = trio.current_time()
        with pytest.raises(RequestTimeoutError):
            await connection.request(10, {}, timeout=2)
        assert trio.current_time() - start <= 2.1
        assert len(asked) == 2
        assert all(one.pending == 0 for one in connections.open_connections())


async def test_cancelled_repeated_request_leaves_nothing() -> None:
    moved = trio.Event()

    def go_away_then_hold(connection: Connection, request: Command) -> None:
        if request.body == b"hold" and not first:
            first.append(connection)
            connection.respond(request, ResponseCode.GO_AWAY)
        else:
            moved.set()

    first: list[Connection] = []
    async with serving(go_away_then_hold) as address, pool_of() as connections:
        connection = await connections.get(address)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: connection.request(10, {}, b"hold", timeout=30))
            await moved.wait()
            nursery.cancel_scope.cancel()
        (second,) = connections.open_connections()
        assert (second is connection, second.pending) == (False, 0)


@pytest.mark.parametrize("way", ["send", "submit"])
async def test_go_away_uses_no_send_attempt(way: str) -> None:
    sent_away: list[Connection] = []

    def broker(connection: Connection, request: Command) -> None:
        if request.code == RequestCode.SEND_MESSAGE_V2 and connection not in sent_away[1:]:
            sent_away.append(connection)
            if len(sent_away) == 1:
                connection.respond(request, ResponseCode.GO_AWAY)
                return
        store(connection, request)

    async with (
        scripted_cluster(broker) as cluster,
        Producer(cluster.address, group="g", retries=0) as producer,
    ):
        if way == "send":
            await producer.send(Message("T", b"x"))
        else:
            await (await producer.submit(Message("T", b"x")))
        assert producer.statistics.retried == 0
    assert len(set(sent_away)) == 2
