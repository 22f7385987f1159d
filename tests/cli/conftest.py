"""Fixtures: brokers and group members in threads, and commands in processes or in this one."""

from __future__ import annotations

import logging
import os
import queue
import socket
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import trio
from click.testing import CliRunner

from rocketmq_py import Client, ReceivedMessage
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.cli import main
from rocketmq_py.client import core_of
from rocketmq_py.testing import TestBroker
from tests.cli.command import ENVIRONMENT, Ended, Running, start_command

StartCli = Callable[..., Awaitable[Running]]


def options_of(broker: TestBroker, *, without: str = "") -> list[str]:
    """Return the options with which commands connect to a broker with a profile."""
    settings = broker.client_options
    keys = settings.get("credentials")
    options = {
        "keys": [] if keys is None else ["--access-key", keys.access_key, "--secret-key", keys.secret_key],
        "namespace": ["--namespace", settings["namespace"]] if "namespace" in settings else [],
        "namespace_v2": ["--namespace-v2", settings["namespace_v2"]] if "namespace_v2" in settings else [],
        "tls": ["--insecure"] if "tls" in settings else [],
    }
    return [word for name, words in options.items() if name != without for word in words]


@pytest.fixture
async def start_cli() -> AsyncIterator[StartCli]:
    """Start ``rocketmq-py`` and return its process. It is killed at the end of the test."""
    running: list[Running] = []

    async def start(*arguments: str, instead: Mapping[int, int] = {}) -> Running:
        running.append(await start_command(*arguments, instead=instead))
        return running[-1]

    yield start
    for command in running:
        command.close()


@pytest.fixture
async def address() -> AsyncIterator[str]:
    """The name server of an embedded broker."""
    async with EmbeddedBroker() as broker:
        yield broker.name_server_address


RunInThread = Callable[[Callable[[], AbstractAsyncContextManager[str]]], str]


@pytest.fixture
def run_in_thread() -> Iterator[RunInThread]:
    """Enter a context manager in a new thread until the end of the test, and return its value."""
    opened: list[tuple[threading.Thread, trio.lowlevel.TrioToken, trio.CancelScope]] = []

    def open_in_thread(make: Callable[[], AbstractAsyncContextManager[str]]) -> str:
        entered: queue.SimpleQueue[tuple[str, trio.lowlevel.TrioToken, trio.CancelScope]] = (
            queue.SimpleQueue()
        )

        async def run() -> None:
            with trio.CancelScope() as scope:
                async with make() as text:
                    entered.put((text, trio.lowlevel.current_trio_token(), scope))
                    await trio.sleep_forever()

        thread = threading.Thread(target=trio.run, args=(run,))
        thread.start()
        text, token, scope = entered.get(timeout=30)
        opened.append((thread, token, scope))
        return text

    yield open_in_thread
    for thread, token, scope in reversed(opened):
        token.run_sync_soon(scope.cancel)
        thread.join()


@pytest.fixture
def threaded_broker(run_in_thread: RunInThread) -> str:
    """The name server of an embedded broker in another thread, for tests that run commands in this one."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[str]:
        async with EmbeddedBroker() as broker:
            yield broker.name_server_address

    return run_in_thread(opened)


StartMember = Callable[[str, str, str], str]


@pytest.fixture
def threaded_member(run_in_thread: RunInThread) -> StartMember:
    """Run a member of a group whose handler fails on ``bad``. Return its client id once it has queues."""

    async def handle(message: ReceivedMessage) -> None:
        if message.body == b"bad":
            raise ValueError("not this one")

    def run(address: str, group: str, topic: str) -> str:
        @asynccontextmanager
        async def opened() -> AsyncIterator[str]:
            async with (
                Client(address) as client,
                client.push_consumer(group) as consumer,
                trio.open_nursery() as nursery,
            ):
                consumer.subscribe(topic)
                nursery.start_soon(consumer.run, handle)
                while not consumer.statistics.queues:
                    await trio.sleep(0.01)
                yield core_of(client).client_id
                nursery.cancel_scope.cancel()

        return run_in_thread(opened)

    return run


@pytest.fixture(autouse=True)
def restore_logging() -> Iterator[None]:
    """Restore the logging setup, which commands in this process change."""
    logger = logging.getLogger("rocketmq_py")
    consumer_logger = logging.getLogger("rocketmq_py.consumer")
    level, handlers, filters = logger.level, list(logger.handlers), list(consumer_logger.filters)
    yield
    consumer_logger.filters[:] = filters
    logger.setLevel(level)
    logger.handlers[:] = handlers


Invoke = Callable[..., Ended]


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Run a command in this process, with its output captured by click."""
    for name in os.environ.keys() - ENVIRONMENT.keys():
        monkeypatch.delenv(name)

    def run(*arguments: str, stdin: bytes | None = None) -> Ended:
        result = CliRunner().invoke(main, arguments, input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ended(result.exit_code, result.stdout_bytes, result.stderr)

    return run


@pytest.fixture
def invoke_with_files(invoke: Invoke, tmp_path: Path) -> Callable[..., Ended]:
    """Run a command in this process with files as stdin, stdout and stderr."""

    def run(*arguments: str, stdin: bytes = b"") -> Ended:
        paths = [tmp_path / name for name in ("stdin", "stdout", "stderr")]
        paths[0].write_bytes(stdin)
        with paths[0].open() as stdin_file, paths[1].open("w") as out, paths[2].open("w") as err:
            streams: dict[str, Any] = {"stdin": stdin_file, "stdout": out, "stderr": err}
            with mock.patch.multiple(sys, **streams), pytest.raises(SystemExit) as ended:
                main.main(arguments, "rocketmq-py")
        code = ended.value.code
        assert code is None or isinstance(code, int)
        return Ended(code or 0, paths[1].read_bytes(), paths[2].read_text())

    return run


@pytest.fixture
def unused_address() -> Iterator[str]:
    """An address that refuses connections. The port is taken, so that no other process listens there."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{unused.getsockname()[1]}"


@pytest.fixture
def short_timeouts(default_timeouts: Callable[[float], None]) -> None:
    """Let requests fail after 0.2 s, for tests without a server that answers."""
    default_timeouts(0.2)
