"""Fixtures for the asyncio API: a broker in a thread, and asyncio or uvloop event loops in debug mode."""

from __future__ import annotations

import asyncio
import socket
import textwrap
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar
from unittest import mock

import pytest

from tests.behaviours.apis import ASYNCIO, UVLOOP
from tests.blocking import conftest as blocking

Result = TypeVar("Result")

_ON_UVLOOP = """
import asyncio, uvloop
asyncio.new_event_loop = asyncio.events.new_event_loop = uvloop.new_event_loop
"""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test on asyncio and uvloop event loops, or on those that its ``apis`` mark names."""
    named = next((mark.args for mark in metafunc.definition.iter_markers("apis")), (ASYNCIO, UVLOOP))
    parameters = [pytest.param(api, marks=[pytest.mark.other_api] * (api == UVLOOP)) for api in named]
    metafunc.parametrize("loops", parameters, indirect=True)


@pytest.fixture(autouse=True)
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Select the event loop implementation of the test, also for ``asyncio.run``."""
    maker: str = request.param
    if maker == UVLOOP:
        import uvloop  # Windows has none

        for module in (asyncio, asyncio.events):
            monkeypatch.setattr(module, "new_event_loop", uvloop.new_event_loop)
    return maker


@pytest.fixture
def run_program(loops: str) -> Callable[..., str]:
    """Like ``tests.blocking.conftest.run_program``, with the test's event loop implementation."""

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
    """Run a coroutine with ``asyncio.run`` and check that it leaves no tasks and logs no asyncio errors."""

    async def watched() -> Result:
        logged: list[dict[str, Any]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: logged.append(context))
        loop.slow_callback_duration = 60.0
        async with asyncio.timeout(120):
            result = await main
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert logged == []
        return result

    # Debug mode stores a stack for each callback, task and future. The tests need only the innermost frame,
    # and a limit saves time.
    with (
        mock.patch("asyncio.constants.DEBUG_STACK_DEPTH", 1),
        mock.patch("sys.tracebacklimit", 1, create=True),
    ):
        return asyncio.run(watched(), debug=True)


@pytest.fixture
def unused_address() -> Iterator[str]:
    """An address that refuses connections. The port is taken, so that no other process listens there."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{unused.getsockname()[1]}"
