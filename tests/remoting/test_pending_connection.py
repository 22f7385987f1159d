"""Requests queued for an address before its connection is open."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from rocketmq_py.errors import (
    ClosedError,
    ConnectError,
    ConnectionLostError,
    Delivery,
    InvalidMessageError,
    RequestTimeoutError,
)
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import TLS, Answer, Connection, ConnectionPool
from rocketmq_py.remoting.base_channel import Channel
from rocketmq_py.remoting.pending_connection import PendingConnection
from rocketmq_py.remoting.pending_requests import PendingRequest
from tests.remoting.serving import echo, ignore, pool_of, serving


@asynccontextmanager
async def swallowing() -> AsyncIterator[str]:
    """An address whose TLS handshake never completes."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        yield f"127.0.0.1:{listener.socket.getsockname()[1]}"


def submit(
    channel: Channel,
    body: bytes,
    on_answer: Callable[[Answer], None],
    timeout: float = 1000,
    fields: dict[str, str] | None = None,
) -> PendingRequest:
    deadline = trio.current_time() + timeout
    return channel.submit(10, fields or {}, body, deadline=deadline, timeout=timeout, on_answer=on_answer)


async def test_requests_queued_during_a_dial_are_written_first_and_in_order() -> None:
    seen: list[bytes] = []
    answers: list[Answer] = []
    answered = trio.Event()

    def collect(connection: Connection, request: Command) -> None:
        seen.append(request.body)
        connection.respond(request, 0, {}, request.body)

    def done(answer: Answer) -> None:
        answers.append(answer)
        if len(answers) == 3:
            answered.set()

    async with serving(collect) as address, pool_of() as connections:
        dial = connections.channel_nowait(address)
        assert isinstance(dial, PendingConnection)
        assert connections.channel_nowait(address) is dial, "all share it"
        assert dial.has_space
        await dial.wait_for_space()
        submit(dial, b"1", done)
        dial.oneway_nowait(10, {}, b"2")
        submit(dial, b"3", done)
        connection = await connections.get(address)
        assert connections.channel_nowait(address) is connection
        submit(connection, b"4", done)
        await answered.wait()
    assert seen == [b"1", b"2", b"3", b"4"]
    assert [answer.body for answer in answers if isinstance(answer, Command)] == [b"1", b"3", b"4"]


async def test_hanging_dial_does_not_delay_other_addresses(jumping_clock: trio.testing.MockClock) -> None:
    answers: list[Answer] = []
    async with swallowing() as hanging, pool_of(TLS(), connect_timeout=5) as connections:
        dial = connections.channel_nowait(hanging)
        submit(dial, b"in time", answers.append, timeout=30)
        submit(dial, b"late", answers.append, timeout=1)
        forgotten = submit(dial, b"forgotten", answers.append, timeout=2)
        assert forgotten.delivery is Delivery.NOT_SENT
        forgotten.forget()
        forgotten.forget()  # a second call has no effect
        await trio.sleep(4)
        (late,) = answers
        assert isinstance(late, RequestTimeoutError)
        assert (late.address, late.timeout, late.delivery) == (hanging, 1, Delivery.NOT_SENT)
        await trio.sleep(25.9)
        assert len(answers) == 1
        await trio.sleep(0.2)
        (_, failed) = answers
        assert isinstance(failed, ConnectError)
        assert re.search(r"no connection within 5 s \(5 attempts in 2[01]\.\d s; ", str(failed))
        await trio.sleep(100)
        assert len(answers) == 2


async def test_each_waiting_caller_gets_its_own_error(jumping_clock: trio.testing.MockClock) -> None:
    answers: list[Answer] = []
    async with swallowing() as hanging, pool_of(TLS(), connect_timeout=5) as connections:
        dial = connections.channel_nowait(hanging)
        submit(dial, b"1", answers.append, timeout=6)
        submit(dial, b"2", answers.append, timeout=6)
        await trio.sleep(7)
    assert [type(answer) for answer in answers] == [ConnectError] * 2
    assert answers[0] is not answers[1]


async def test_oneway_request_waits_for_the_connection_and_is_logged_if_it_is_lost(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rocketmq_py.remoting")
    seen: list[bytes] = []
    async with serving(echo) as address:
        port = int(address.split(":")[1])
    async with pool_of() as connections:
        connections.channel_nowait(address).oneway_nowait(10, {}, b"lost")
        await trio.sleep(9)
        connections.channel_nowait(address).oneway_nowait(11, {}, b"kept")
        assert "oneway request lost" not in caplog.text
        await trio.sleep(3)
        assert f"oneway request lost: peer={address} code=10: cannot connect to" in caplog.text
        async with serving(lambda _, request: seen.append(request.body), port=port):
            await trio.sleep(1)
    assert seen == [b"kept"]
    assert "code=11" not in caplog.text


async def test_oneway_requests_of_a_closing_client_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rocketmq_py.remoting")
    async with swallowing() as hanging, pool_of(TLS()) as connections:
        connections.channel_nowait(hanging).oneway_nowait(10, {}, b"lost")
        await trio.testing.wait_all_tasks_blocked()
    assert f"oneway request lost: peer={hanging} code=10: " in caplog.text


async def test_request_after_the_dialling_has_ended_waits_for_the_next_dial(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with serving(echo) as address:
        port = int(address.split(":")[1])
    async with pool_of() as connections:
        dial = connections.channel_nowait(address)  # as for a request whose hooks take long
        await trio.sleep(1)
        assert connections.failure(address) == "Connection refused"
        async with serving(echo, port=port):
            assert (await dial.request(10, {}, b"late", timeout=60)).body == b"late"
            dial.oneway_nowait(10, {})


async def test_request_that_cannot_be_encoded_fails_alone() -> None:
    answers: list[Answer] = []
    async with serving(echo) as address, pool_of() as connections:
        dial = connections.channel_nowait(address)
        submit(dial, b"1", answers.append, fields={"topic": "\ud800"})
        submit(dial, b"2", answers.append)
        connection = await connections.get(address)
        await connection.request(10, {}, timeout=3)
    assert isinstance(answers[0], InvalidMessageError)
    assert isinstance(answers[1], Command)


async def test_closing_fails_requests_queued_during_a_dial() -> None:
    answers: list[Answer] = []
    async with swallowing() as hanging, trio.open_nursery() as nursery:
        connections = ConnectionPool(nursery, ignore, tls=TLS())
        submit(connections.channel_nowait(hanging), b"1", answers.append)
        await trio.testing.wait_all_tasks_blocked()
        await connections.aclose()
        with pytest.raises(ClosedError):
            connections.channel_nowait(hanging)
        nursery.cancel_scope.cancel()
    (error,) = answers
    assert isinstance(error, ConnectError)
    assert "the client is closed" in str(error)


async def test_request_queued_during_a_dial_belongs_to_the_connection() -> None:
    held: list[tuple[Connection, Command]] = []
    answers: list[Answer] = []
    async with serving(lambda *asked: held.append(asked)) as address, pool_of() as connections:
        pending = submit(connections.channel_nowait(address), b"1", answers.append)
        connection = await connections.get(address)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert (connection.pending, pending.delivery) == (1, Delivery.UNKNOWN)
        connection.close("test")
    (error,) = answers
    assert isinstance(error, ConnectionLostError)
