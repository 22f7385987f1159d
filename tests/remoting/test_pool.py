from __future__ import annotations

import errno
import itertools
import logging
import math
import random
import re
import time
from contextlib import suppress

import pytest
import trio
import trio.testing

from rocketmq_py.codes import ResponseCode
from rocketmq_py.errors import (
    ClosedError,
    ConfigurationError,
    ConnectError,
    Delivery,
    RequestTimeoutError,
)
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import TLS, Connection, ConnectionPool, serve
from tests.remoting.serving import echo, ignore, pool_of, serving


async def test_concurrent_callers_share_one_connection() -> None:
    async with serving(echo) as address, pool_of() as connections:
        found: list[Connection] = []

        async def get() -> None:
            found.append(await connections.get(address))

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(get)
        assert len(set(found)) == 1
        assert connections.get_nowait(address) is found[0]
        assert connections.open_connections() == [found[0]]


async def test_cancelling_one_waiter_does_not_cancel_the_shared_dial() -> None:
    async with serving(echo) as address, pool_of() as connections:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connections.get, address)
            await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        assert (await connections.request(address, 10, {}, b"x", timeout=60)).body == b"x"


async def test_failures_of_unused_addresses_are_forgotten(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with pool_of() as connections:
        for port in range(1, 51):
            with pytest.raises(ConnectError):
                await connections.get(f"127.0.0.1:{port}")
            await trio.sleep(60)
        assert len(connections._reachability) < 10


async def test_an_address_may_fail_any_number_of_times(
    jumping_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_: str, __: int) -> trio.SocketStream:
        raise OSError("refused")

    monkeypatch.setattr(trio, "open_tcp_stream", refuse)
    async with pool_of() as connections:
        for _ in range(1100):  # 2 ** 1024 is too large for a float
            with pytest.raises(ConnectError, match="refused"):
                await connections.get("10.0.0.1:9876")
            await trio.sleep(5)


async def test_refused_connection_raises_one_line_and_backs_off(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with serving(echo) as address:
        pass  # the server has stopped listening
    port = int(address.split(":")[1])
    async with pool_of() as connections:
        with pytest.raises(ConnectError, match=f"cannot connect to {address}: Connection refused") as caught:
            await connections.get(address)
        assert caught.value.delivery is Delivery.NOT_SENT
        async with serving(echo, port=port):
            with pytest.raises(ConnectError):  # not dialled again yet
                await connections.get(address)
            await trio.sleep(0.1)
            assert not (await connections.get(address)).is_closed


async def test_calls_wait_for_an_unreachable_address_until_their_deadline(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with serving(echo) as address:
        port = int(address.split(":")[1])
    async with pool_of() as connections:
        with pytest.raises(ConnectError):
            await connections.get(address)
        answers: list[bytes] = []

        async def ask(body: bytes) -> None:
            answers.append((await connections.request(address, 10, {}, body, timeout=10)).body)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, b"1")
            nursery.start_soon(ask, b"2")
            nursery.start_soon(connections.get_before, address, trio.current_time() + 10)
            await trio.sleep(6)
            with pytest.raises(ConnectError):  # callers with another address do not wait
                await connections.get(address)
            assert connections.is_unreachable(address)
            await nursery.start(lambda task_status: serve(echo, "127.0.0.1", port, task_status=task_status))
            listening_at = trio.current_time()
            await connections.get_before(address, math.inf)
            assert trio.current_time() - listening_at <= 1
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert sorted(answers) == [b"1", b"2"]


async def test_the_final_error_counts_the_dials_and_says_since_when(
    jumping_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    dials: list[float] = []

    async def refuse(_: str, __: int) -> trio.SocketStream:
        dials.append(trio.current_time())
        raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")

    monkeypatch.setattr(trio, "open_tcp_stream", refuse)
    since = time.strftime("%H:%M:%S", time.localtime())
    async with pool_of() as connections:
        start = trio.current_time()
        with pytest.raises(ConnectError) as caught:
            await connections.get_before("10.0.0.1:10911", start + 10)
        assert trio.current_time() == start + 10
        lasted = dials[-1] - dials[0]
        assert str(caught.value) == (
            f"cannot connect to 10.0.0.1:10911: Connection refused ({len(dials)} attempts in {lasted:.1f} s; "
            f"unreachable since {since})"
        )
        assert caught.value._not_reached
        pauses = [later - earlier for earlier, later in itertools.pairwise(dials)]
        for pause, longest in zip(pauses, [0.1, 0.2, 0.4, *[0.8] * len(pauses)], strict=False):
            assert longest / 2 <= pause <= longest
        await trio.sleep(24 * 3600)
        assert (failure := connections.failure("10.0.0.1:10911"))
        day = time.strftime("%Y-%m-%d ", time.localtime(time.time() - 24 * 3600))
        assert f"unreachable since {day}{since})" in failure


@pytest.fixture
def refused_dials(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Refuse all dials. Their times, on trio's clock."""
    dials: list[float] = []

    async def refuse(_: str, __: int) -> trio.SocketStream:
        dials.append(trio.current_time())
        raise OSError("refused")

    monkeypatch.setattr(trio, "open_tcp_stream", refuse)
    return dials


async def test_without_waiting_calls_dials_are_up_to_five_seconds_apart(
    jumping_clock: trio.testing.MockClock, refused_dials: list[float]
) -> None:
    async with pool_of() as connections:
        for _ in range(300):
            connections.dial_soon("10.0.0.1:10911")
            with suppress(ConnectError):
                await connections.get("10.0.0.1:10911")
            await trio.sleep(0.1)
    pauses = [later - earlier for earlier, later in itertools.pairwise(refused_dials)]
    assert max(pauses) == pytest.approx(5.0, abs=0.11)
    assert len(refused_dials) < 14


async def test_clients_do_not_dial_in_step(
    jumping_clock: trio.testing.MockClock, refused_dials: list[float]
) -> None:

    async def wait(seed: int) -> None:
        async with pool_of(rng=random.Random(seed)) as connections:
            with pytest.raises(ConnectError):
                await connections.get_before("10.0.0.1:10911", trio.current_time() + 10)

    async with trio.open_nursery() as nursery:
        for seed in range(100):
            nursery.start_soon(wait, seed)
    late = sorted(dial for dial in refused_dials if dial > refused_dials[0] + 5)
    assert len(set(late)) == len(late)


async def test_the_first_address_that_can_be_reached_is_connected(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with serving(echo) as one, serving(echo) as other:
        pass
    async with pool_of() as connections:
        with pytest.raises(ConnectError, match=one):
            await connections.get_any_before([one, other], trio.current_time() + 2)
        async with trio.open_nursery() as nursery:
            found: list[str] = []

            async def find() -> None:
                connection = await connections.get_any_before([one, other], trio.current_time() + 60)
                found.append(connection.address)

            nursery.start_soon(find)
            await trio.sleep(5)
            async with serving(echo, port=int(other.split(":")[1])):
                await trio.sleep(1)
                assert found == [other]
                assert (await connections.get_before(other, 0)).address == other


async def test_unreachable_address_is_logged_once_and_when_it_is_back(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rocketmq_py.remoting")
    async with serving(echo) as address:
        port = int(address.split(":")[1])
    async with pool_of() as connections:
        with pytest.raises(ConnectError):
            await connections.request(address, 10, {}, timeout=10)
        async with serving(echo, port=port):
            await connections.request(address, 10, {}, timeout=10)
        for _ in range(3):  # comes and goes
            with pytest.raises(ConnectError):
                await connections.request(address, 10, {}, timeout=1)
            async with serving(echo, port=port):
                await connections.request(address, 10, {}, timeout=10)
    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert lines[0] == (
        "WARNING",
        f"address unreachable, connecting again: address={address} error=Connection refused",
    )
    assert lines[1][0] == "INFO"
    assert re.fullmatch(
        rf"address reachable again: address={address} failed_attempts=\d\d seconds=1\d\.\d", lines[1][1]
    )
    assert len(lines) == 2


async def test_a_broken_connection_is_dialled_again() -> None:
    def hang_up(connection: Connection, request: Command) -> None:
        if request.code == 99:
            connection.close()
        else:
            echo(connection, request)

    async with serving(hang_up) as address, pool_of() as connections:
        first = await connections.get(address)
        await first.request(1, {}, timeout=3)
        await first.oneway(99, {})
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert first.is_closed
        assert connections.get_nowait(address) is None
        second = await connections.get(address)
        assert second is not first
        assert (await second.request(1, {}, timeout=60)).code == 0


async def test_peer_that_hangs_up_is_not_redialled_in_a_loop(
    jumping_clock: trio.testing.MockClock,
) -> None:
    accepted = 0

    async def hang_up(stream: trio.SocketStream) -> None:
        nonlocal accepted
        accepted += 1
        await stream.aclose()

    async with trio.open_nursery() as nursery, pool_of() as connections:
        listeners = await nursery.start(
            lambda task_status: trio.serve_tcp(hang_up, 0, host="127.0.0.1", task_status=task_status)
        )
        address = f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        await connections.get(address)
        await trio.sleep(0.01)
        for _ in range(100):
            with pytest.raises(ConnectError, match="the peer closed the connection"):
                await connections.get(address)
        assert accepted == 1
        nursery.cancel_scope.cancel()


async def test_a_socket_that_is_reset_before_its_first_use_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    reset = trio.socket.socket()  # not connected, as after a reset

    async def open_tcp_stream(_: str, __: int) -> trio.SocketStream:
        return trio.SocketStream(reset)

    monkeypatch.setattr(trio, "open_tcp_stream", open_tcp_stream)
    async with pool_of() as connections:
        with pytest.raises(ConnectError, match=r"cannot connect to 10\.0\.0\.1:9876: "):
            await connections.get("10.0.0.1:9876")
        assert reset.fileno() == -1


async def test_a_peer_that_closes_an_unused_connection_has_not_failed(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async def close_after_two_minutes(stream: trio.SocketStream) -> None:
        await trio.sleep(120)
        await stream.aclose()

    async with trio.open_nursery() as nursery, pool_of() as connections:
        listeners = await nursery.start(
            lambda task_status: trio.serve_tcp(
                close_after_two_minutes, 0, host="127.0.0.1", task_status=task_status
            )
        )
        address = f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        connection = await connections.get(address)
        await trio.sleep(120.01)
        assert connection.is_closed
        assert connections.failure(address) is None
        assert not (await connections.get(address)).is_closed
        nursery.cancel_scope.cancel()


async def test_the_timeout_of_a_request_covers_the_dial(jumping_clock: trio.testing.MockClock) -> None:
    # A listener that never accepts a TLS handshake: dialling hangs.
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    address = f"127.0.0.1:{listener.socket.getsockname()[1]}"
    async with listener, pool_of(TLS(), connect_timeout=5) as connections:
        start = trio.current_time()
        with pytest.raises(RequestTimeoutError) as caught:
            await connections.request(address, 10, {}, timeout=1)
        assert trio.current_time() - start == pytest.approx(1, abs=0.1)
        assert caught.value.delivery is Delivery.NOT_SENT
        await trio.sleep(5)
        with pytest.raises(ConnectError, match="no connection within 5 s"):
            await connections.get(address)


async def test_go_away_is_answered_by_a_new_connection_and_the_same_request() -> None:
    asked: list[Connection] = []

    def go_away_once(connection: Connection, request: Command) -> None:
        asked.append(connection)
        if len(asked) == 1:
            connection.respond(request, ResponseCode.GO_AWAY)
        else:
            echo(connection, request)

    async with serving(go_away_once) as address, pool_of() as connections:
        answer = await connections.request(address, 10, {}, b"again", timeout=3)
        assert (answer.code, answer.body) == (0, b"again")
        assert asked[0] is not asked[1]


async def test_a_closed_pool_dials_no_more() -> None:
    async with serving(echo) as address, trio.open_nursery() as nursery:
        connections = ConnectionPool(nursery, ignore)
        await connections.get(address)
        await connections.aclose()
        with pytest.raises(ClosedError):
            await connections.get(address)
        nursery.cancel_scope.cancel()


async def test_a_port_in_use_is_a_configuration_error() -> None:
    async with serving(echo) as address:
        port = int(address.split(":")[1])
        with pytest.raises(ConfigurationError, match=f"cannot listen on 127.0.0.1:{port}"):
            await serve(echo, "127.0.0.1", port)


@pytest.mark.parametrize(
    "address",
    ["nonsense", "a..b:1", ".host:1", "127.0.0.1:0", "127.0.0.1:-1", "ho st:1", "h\u00fc" * 40 + ":1"],
)
async def test_invalid_address_raises_and_leaves_the_pool_usable(address: str) -> None:
    # The address may come from a name server, so it must not end the client.
    async with serving(echo) as good, pool_of() as connections:
        with pytest.raises(ConnectError, match="cannot connect to"):
            await connections.get(address)
        assert (await connections.request(good, 10, {}, timeout=60)).code == 0


async def test_calls_do_not_wait_for_an_invalid_address() -> None:
    async with pool_of() as connections:
        for _ in range(2):
            with pytest.raises(ConnectError, match="cannot connect to nonsense") as caught:
                await connections.get_before("nonsense", math.inf)
            assert not caught.value._not_reached


async def test_after_its_nursery_has_ended_it_is_closed() -> None:
    async with trio.open_nursery() as nursery:
        connections = ConnectionPool(nursery, ignore)
        nursery.cancel_scope.cancel()
    with pytest.raises(ClosedError):
        await connections.get("127.0.0.1:1")
