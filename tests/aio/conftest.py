"""A broker in a thread of its own, and coroutines in debug mode, on loops of asyncio and of uvloop."""

from __future__ import annotations

import asyncio
import socket
import textwrap
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar
from unittest import mock

import pytest
import uvloop

from tests.behaviours.doors import ASYNCIO, UVLOOP
from tests.blocking import conftest as blocking

Result = TypeVar("Result")

_ON_UVLOOP = """
import asyncio, uvloop
asyncio.new_event_loop = asyncio.events.new_event_loop = uvloop.new_event_loop
"""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Have each test run on loops of asyncio's own and of uvloop's, or of the doors that are named."""
    named = next((mark.args for mark in metafunc.definition.iter_markers("doors")), (ASYNCIO, UVLOOP))
    parameters = [pytest.param(door, marks=[pytest.mark.other_door] * (door == UVLOOP)) for door in named]
    metafunc.parametrize("loops", parameters, indirect=True)


@pytest.fixture(autouse=True)
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who makes the loops of the test, those of ``asyncio.run`` too."""
    maker: str = request.param
    if maker == UVLOOP:
        for module in (asyncio, asyncio.events):
            monkeypatch.setattr(module, "new_event_loop", uvloop.new_event_loop)
    return maker


@pytest.fixture
def run_program(loops: str) -> Callable[..., str]:
    """As the function of this name of the door for threads, with the loops of the test."""

    def run(program: str, *arguments: str) -> str:
        before = _ON_UVLOOP if loops == UVLOOP else ""
        return blocking.run_program(before + textwrap.dedent(program), *arguments)

    return run


@pytest.fixture
def address() -> Iterator[str]:
    broker = blocking.BrokerThread()
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
