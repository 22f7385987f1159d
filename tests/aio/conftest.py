"""A broker in a thread of its own, and coroutines that asyncio runs in debug mode."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar
from unittest import mock

import pytest

from tests.blocking.conftest import BrokerThread

Result = TypeVar("Result")


@pytest.fixture
def address() -> Iterator[str]:
    broker = BrokerThread()
    yield broker.start()
    broker.stop()


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run it as ``asyncio.run`` does, and see that it leaves no tasks, and nothing for asyncio to log."""

    async def watched() -> Result:
        told: list[dict[str, Any]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context))
        loop.slow_callback_duration = 60.0
        async with asyncio.timeout(120):
            result = await main
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert told == []
        return result

    # Debug mode keeps a stack with each callback, and a whole one with each task and future unless there is
    # a limit for all: no test reads more of them than where they come from.
    with (
        mock.patch("asyncio.constants.DEBUG_STACK_DEPTH", 1),
        mock.patch("sys.tracebacklimit", 1, create=True),
    ):
        return asyncio.run(watched(), debug=True)


@pytest.fixture
def unused_address() -> str:
    """Where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"
