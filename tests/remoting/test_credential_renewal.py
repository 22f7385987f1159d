"""Credentials that a function supplies: fetched for each connection, renewed when the peer denies access."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from rocketmq_py.codes import ResponseCode
from rocketmq_py.credentials import Credentials, signature
from rocketmq_py.errors import ConnectError, RequestTimeoutError
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection
from rocketmq_py.remoting.client_connection import MAX_CALLS, RENEWAL_INTERVAL, CredentialSource
from tests.remoting.serving import pool_of, serving

HELD_BACK = 99
"""A request whose denial waits for the test."""
DENIAL = "check signature failed"


@attrs.define(eq=False)
class Guard:
    """A server that accepts one access key.

    Attributes:
        accepted: the access key.
        held_back: the denials that wait.
        denied: the number of denied requests.
    """

    accepted: str = "first"
    denied: int = 0
    held_back: list[Callable[[], None]] = attrs.field(factory=list)

    def __call__(self, connection: Connection, request: Command) -> None:
        key = request.fields["AccessKey"]
        assert request.fields["Signature"] == signature(key, request.fields, b"")
        if key == self.accepted:
            connection.respond(request, ResponseCode.SUCCESS, {"key": key})
            return
        self.denied += 1

        def deny() -> None:
            connection.respond(request, ResponseCode.NO_PERMISSION, remark=DENIAL)

        if request.code == HELD_BACK:
            self.held_back.append(deny)
        else:
            deny()


@attrs.define(eq=False)
class Provider:
    """Returns the next credentials of a list, and the last ones from then on."""

    keys: list[str]
    calls: int = 0

    def __call__(self) -> Credentials:
        key = self.keys[min(self.calls, len(self.keys) - 1)]
        self.calls += 1
        return Credentials(key, key)


async def test_each_connection_fetches_the_credentials() -> None:
    guard, provider = Guard("second"), Provider(["first", "second"])
    async with serving(guard) as one, serving(guard) as other, pool_of(credentials=provider) as connections:
        await connections.get(one)
        assert (await connections.request(other, 1, {}, timeout=60)).code == ResponseCode.SUCCESS
        await connections.request(other, 1, {}, timeout=3)
    assert provider.calls == 2


async def test_denied_requests_are_sent_again_with_new_credentials() -> None:
    guard, provider = Guard(), Provider(["first", "second"])
    answers: list[Command] = []
    async with serving(guard) as address, pool_of(credentials=provider) as connections:
        await connections.request(address, 1, {}, timeout=3)
        guard.accepted = "second"

        async def ask() -> None:
            answers.append(await connections.request(address, 1, {}, timeout=3))

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(ask)
        await ask()
    assert [answer.fields for answer in answers] == [{"key": "second"}] * 21
    assert (provider.calls, guard.denied) == (2, 20)


async def test_late_denial_of_the_old_credentials_does_not_renew_again() -> None:
    guard, provider = Guard(), Provider(["first", "second", "third"])
    async with (
        serving(guard) as address,
        pool_of(credentials=provider) as connections,
        trio.open_nursery() as nursery,
    ):
        await connections.request(address, 1, {}, timeout=3)
        guard.accepted = "second"
        answers: list[Command] = []

        async def ask() -> None:
            answers.append(await connections.request(address, HELD_BACK, {}, timeout=30))

        nursery.start_soon(ask)
        while not guard.held_back:
            await trio.testing.wait_all_tasks_blocked()
        assert (await connections.request(address, 1, {}, timeout=60)).code == ResponseCode.SUCCESS
        for deny in guard.held_back:
            deny()
    assert [answer.fields for answer in answers] == [{"key": "second"}]
    assert provider.calls == 2


async def test_lasting_denial_reaches_the_caller_and_is_not_renewed_at_once() -> None:
    guard, provider = Guard("none"), Provider(["first", "second", "third"])
    async with serving(guard) as address, pool_of(credentials=provider) as connections:
        for _ in range(3):
            answer = await connections.request(address, 1, {}, timeout=3)
            assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, DENIAL)
    assert provider.calls == 2


async def test_unchanged_credentials_do_not_send_the_request_again() -> None:
    guard, provider = Guard("none"), Provider(["first"])
    async with serving(guard) as address, pool_of(credentials=provider) as connections:
        assert (await connections.request(address, 1, {}, timeout=60)).code == ResponseCode.NO_PERMISSION
    assert (provider.calls, guard.denied) == (2, 1)


async def test_other_errors_do_not_renew() -> None:
    provider = Provider(["first"])

    def refuse(connection: Connection, request: Command) -> None:
        connection.respond(request, ResponseCode.NO_PERMISSION, remark="the broker is not writable")

    async with serving(refuse) as address, pool_of(credentials=provider) as connections:
        await connections.request(address, 1, {}, timeout=3)
    assert provider.calls == 1


class Stuck(Provider):
    """Blocks in its second call until it is released."""

    def __init__(self) -> None:
        super().__init__(["first", "second"])
        self.is_stuck = threading.Event()
        self.release = threading.Event()

    def __call__(self) -> Credentials:
        credentials = super().__call__()
        if self.calls == 2:
            self.is_stuck.set()
            self.release.wait()
        return credentials


async def test_request_times_out_or_is_cancelled_during_a_renewal() -> None:
    guard, provider = Guard(), Stuck()
    try:
        async with serving(guard) as address, pool_of(credentials=provider) as connections:
            await connections.request(address, 1, {}, timeout=3)
            guard.accepted = "second"
            with pytest.raises(RequestTimeoutError):
                await connections.request(address, 1, {}, timeout=0.05)
            with trio.move_on_after(0.05):
                await connections.request(address, 1, {}, timeout=3)
            assert connections.open_connections()[0].pending == 0
            provider.release.set()
            assert (await connections.request(address, 1, {}, timeout=60)).fields == {"key": "second"}
    finally:
        provider.release.set()


async def test_failing_function_fails_the_dial_and_the_renewal(caplog: pytest.LogCaptureFixture) -> None:
    guard, calls = Guard("none"), 0

    def provider() -> Credentials:
        nonlocal calls
        calls += 1
        if calls != 2:
            raise OSError("no route to the token service")
        return Credentials("first", "first")

    async with serving(guard) as address:
        async with pool_of(credentials=provider) as connections:
            with pytest.raises(ConnectError, match="raised OSError: no route to the token service"):
                await connections.get(address)
        with caplog.at_level(logging.WARNING, "rocketmq_py.remoting"):
            async with pool_of(credentials=provider) as connections:
                answer = await connections.request(address, 1, {}, timeout=3)
    assert answer.remark == DENIAL
    assert "cannot renew credentials" in caplog.text


async def test_function_must_return_credentials() -> None:
    wrong: Any = lambda: "secret"  # noqa: E731
    async with serving(Guard()) as address, pool_of(credentials=wrong) as connections:
        with pytest.raises(ConnectError, match=r"must return Credentials\(\.\.\.\), not str") as caught:
            await connections.get(address)
    assert "secret" not in str(caught.value)


async def test_a_provider_that_hangs_leaves_threads_to_others() -> None:
    may_end = threading.Event()

    def hang() -> Credentials:
        may_end.wait(60)
        return Credentials("key", "secret")

    source = CredentialSource(hang)
    others = trio.to_thread.current_default_thread_limiter()
    try:
        for _ in range(MAX_CALLS + 1):
            with trio.move_on_after(0.01):
                await source.fetch()
        assert not others.borrowed_tokens
    finally:
        may_end.set()


async def test_renewal_is_possible_again_after_the_interval() -> None:
    time = 0.0
    source = CredentialSource(Provider(["first", "second", "third"]), now=lambda: time)
    first = await source.fetch()
    second = await source.renew(first)
    assert second is not None
    assert second.access_key == "second"
    assert await source.renew(first) is second
    assert await source.renew(second) is None
    time = RENEWAL_INTERVAL
    third = await source.renew(second)
    assert third is not None
    assert third.access_key == "third"


async def test_a_renewal_that_was_cancelled_may_be_repeated_at_once() -> None:
    provider = Stuck()
    source = CredentialSource(provider)
    first = await source.fetch()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(source.renew, first)
        await trio.to_thread.run_sync(provider.is_stuck.wait)
        nursery.cancel_scope.cancel()
    provider.release.set()
    renewed = await source.renew(first)
    assert renewed is not None
    assert renewed.access_key == "second"
