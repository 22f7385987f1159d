"""Fixtures for the threads API: a broker in a thread, and programs run in subprocesses."""

from __future__ import annotations

import gc
import os
import re
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

import rocketmq_py
from rocketmq_py.blocking import Client
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.producer.send import Send

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(rocketmq_py.__file__).parent.parent)}


class BrokerThread:
    """Runs an embedded broker until it is stopped."""

    def __init__(self, **settings: Any) -> None:
        self._settings = settings
        self._address: Future[str] = Future()
        self._scope = trio.CancelScope()
        self._token: trio.lowlevel.TrioToken
        self._thread = threading.Thread(target=trio.run, args=(self._main,))

    def start(self) -> str:
        self._thread.start()
        return self._address.result()

    def stop(self) -> None:
        self._token.run_sync_soon(self._scope.cancel)
        self._thread.join()

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        with self._scope:
            async with EmbeddedBroker(**self._settings) as broker:
                self._address.set_result(broker.name_server_address)
                await trio.sleep_forever()


@contextmanager
def no_collection() -> Iterator[Callable[[], int]]:
    """Disable garbage collection. Yields a function that counts the Sends created since."""

    def count_requests() -> int:
        return sum(isinstance(one, Send) for one in gc.get_objects())

    gc.disable()
    try:
        before = count_requests()
        yield lambda: count_requests() - before
    finally:
        gc.enable()


@pytest.fixture
def address() -> Iterator[str]:
    broker = BrokerThread()
    yield broker.start()
    broker.stop()


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with Client(address) as client:
        yield client


@pytest.fixture
def unused_address() -> Iterator[str]:
    """An address that refuses connections. The port is taken, so that no other process listens there."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{unused.getsockname()[1]}"


_TOOK_LONG = re.compile(r"(WARNING:asyncio:)?Executing <.*> took \S+ seconds")


_WARNINGS = ("-W", "error", "-W", "ignore:This process:DeprecationWarning")


def run_program(program: str, *arguments: str) -> str:
    """Run a program in development mode, check that it succeeds with an empty stderr, and return its output.

    asyncio's warnings of slow callbacks are allowed on stderr, since a busy machine causes them. Python's
    warning of forks while threads run is ignored, because some programs test them. Up to Python 3.14, fork
    returned in spite of ``-W error``; 3.15 raises the warning.
    """
    ended = subprocess.run(
        [
            *(sys.executable, "-X", "dev", *_WARNINGS),
            *("-c", textwrap.dedent(program), *arguments),
        ],
        capture_output=True,
        text=True,
        check=False,
        env=ENVIRONMENT,
        timeout=240,  # longer than any program takes, so that a deadlock fails the test
    )
    said = [line for line in ended.stderr.splitlines() if not _TOOK_LONG.fullmatch(line)]
    assert (ended.returncode, said) == (0, [])
    return ended.stdout


def count(client: Client, topic: str) -> int:
    """Return the number of messages in a topic."""
    with client.reader() as reader:
        return sum(end - first for first, end in reader.offsets(topic).values())
