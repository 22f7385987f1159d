"""Requests are signed last, just before encoding."""

from __future__ import annotations

import pytest
import trio

from rocketmq_py.credentials import Credentials, signature
from rocketmq_py.errors import InvalidMessageError
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Answer, Connection
from tests.remoting.serving import pool_of, serving

CREDENTIALS = Credentials("key", "secret")


class RecordingServer:
    """A server that records the requests it receives."""

    def __init__(self) -> None:
        self.requests: list[Command] = []

    def __call__(self, connection: Connection, request: Command) -> None:
        self.requests.append(request)
        connection.respond(request, 0)


@pytest.mark.parametrize("token", [None, "token"])
async def test_every_kind_of_request_is_signed(token: str | None) -> None:
    server = RecordingServer()
    credentials = Credentials("key", "secret", token)
    async with serving(server) as address, pool_of(credentials=credentials) as connections:
        connection = await connections.get(address)
        answers: list[Answer] = []
        connection.submit(
            1, {"way": "submit"}, b"1", deadline=trio.current_time() + 3, timeout=3, on_answer=answers.append
        )
        await connection.oneway(2, {"way": "oneway"}, b"2")
        connection.oneway_nowait(3, {"way": "oneway_nowait"}, b"3")
        await connections.request(address, 4, {"way": "request"}, b"4", timeout=3)
    assert [request.body for request in server.requests] == [b"1", b"2", b"3", b"4"]
    for request in server.requests:
        assert request.fields["AccessKey"] == "key"
        assert request.fields.get("SecurityToken") == token
        assert request.fields["Signature"] == signature("secret", request.fields, request.body)


async def test_fields_that_are_used_again_are_signed_anew() -> None:
    server = RecordingServer()
    fields = {"queueId": "1"}
    async with serving(server) as address, pool_of(credentials=CREDENTIALS) as connections:
        await connections.request(address, 10, fields, timeout=3)
        assert fields == {"queueId": "1"}
        fields["queueId"] = "2"
        await connections.request(address, 10, fields, timeout=3)
    first, second = server.requests
    assert first.fields["Signature"] != second.fields["Signature"]
    assert second.fields["Signature"] == signature("secret", second.fields, b"")


async def test_the_second_namespace_is_in_every_request_and_signed() -> None:
    server = RecordingServer()
    added = {"nsd": "true", "ns": "rmq-cn-1"}
    async with (
        serving(server) as address,
        pool_of(credentials=CREDENTIALS, namespace_v2="rmq-cn-1") as signing,
        pool_of(namespace_v2="rmq-cn-1") as plain,
    ):
        for connections in (signing, plain):
            await connections.request(address, 10, {"a": "b", "ns": "other"}, b"1", timeout=3)
            (await connections.get(address)).oneway_nowait(11, {"a": "b"}, b"2")
            await connections.request(address, 10, {"a": "b"}, b"3", timeout=3)
    assert [request.code for request in server.requests] == [10, 11, 10] * 2
    for request in server.requests[:3]:
        signed_fields = {**added, "a": "b", "AccessKey": "key"}
        assert request.fields == {
            **signed_fields, "Signature": signature("secret", signed_fields, request.body)
        }  # fmt: skip
    for request in server.requests[3:]:
        assert request.fields == {"a": "b", **added}


async def test_without_credentials_nothing_is_added() -> None:
    server = RecordingServer()
    async with serving(server) as address, pool_of() as connections:
        await connections.request(address, 10, {"a": "b"}, timeout=3)
    assert server.requests[0].fields == {"a": "b"}


async def test_answers_are_not_signed() -> None:
    answers: list[Command] = []

    def ask_back(connection: Connection, request: Command) -> None:
        def answered(answer: Answer) -> None:
            assert isinstance(answer, Command)
            answers.append(answer)
            connection.respond(request, 0)

        deadline = trio.current_time() + 3
        connection.submit(220, {}, deadline=deadline, timeout=3, on_answer=answered)

    def answer(connection: Connection, request: Command) -> None:
        connection.respond(request, 0, {"mine": "1"})

    async with (
        serving(ask_back) as address,
        pool_of(credentials=CREDENTIALS, handler=answer) as connections,
    ):
        await connections.request(address, 10, {}, timeout=3)
    assert answers[0].fields == {"mine": "1"}


async def test_request_that_cannot_be_signed_leaves_the_connection_usable() -> None:
    server = RecordingServer()
    async with serving(server) as address, pool_of(credentials=CREDENTIALS) as connections:
        with pytest.raises(InvalidMessageError):
            await connections.request(address, 10, {"half": "\ud800"}, timeout=3)
        assert (await connections.request(address, 10, {}, timeout=60)).code == 0
        assert connections.open_connections()[0].pending == 0
