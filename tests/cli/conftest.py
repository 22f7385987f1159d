"""A broker in the test's process, and commands that are still running."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import trio

from rocketmq_py.broker import EmbeddedBroker
from tests.cli.command import COMMAND, ENVIRONMENT

StartCli = Callable[..., Awaitable[trio.Process]]


@pytest.fixture
async def start_cli() -> AsyncIterator[StartCli]:
    """Start ``rocketmq-py`` and return its process, which is killed at the end if it still runs."""
    processes: list[trio.Process] = []

    async def start(*arguments: str, **options: Any) -> trio.Process:
        process = await trio.lowlevel.open_process([*COMMAND, *arguments], **{"env": ENVIRONMENT, **options})
        processes.append(process)
        return process

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
            await process.wait()


@pytest.fixture
async def address() -> AsyncIterator[str]:
    """The name server of an embedded broker."""
    async with EmbeddedBroker() as broker:
        yield broker.name_server_address


@pytest.fixture
def unused_address() -> str:
    """Where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"
