"""Trio runs with virtual time and an in-memory network.

Tests that use the fixture ``jumping_clock``, directly or through another fixture, run this way. Clients and
embedded brokers connect over a network of the run's own
(:class:`rocketmq_py.testing.network.MemoryNetwork`). When all tasks are blocked, no data is in flight, so the
clock can jump to the next deadline without overtaking a response, however busy the machine is. ``time.time``
follows trio's clock. Other processes and threads with their own event loops cannot connect to such a run.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar
from unittest import mock

import trio
import trio.testing

from rocketmq_py.testing.network import MemoryNetwork

_T = TypeVar("_T")


def run(
    program: Callable[..., Awaitable[_T]],
    *arguments: Any,
    clock: trio.abc.Clock | None = None,
    instruments: Sequence[trio.abc.Instrument] = (),
) -> _T:
    """Run as ``trio.run``, with a network of its own and a clock that jumps: ``clock``, or a new one.

    As long as a worker thread works, time goes as it does in reality.
    """
    jumping = clock or trio.testing.MockClock(autojump_threshold=0)
    assert isinstance(jumping, trio.testing.MockClock)
    began, in_thread, at_work = time.time_ns(), trio.to_thread.run_sync, 0

    def time_ns() -> int:
        return began + round(jumping.current_time() * 1e9)

    def time_of_day() -> float:
        return time_ns() / 1e9

    async def work(*arguments: Any, **options: Any) -> Any:
        nonlocal at_work
        # A call from the run of another thread must not change this clock.
        if trio.lowlevel.current_clock() is not jumping:
            return await in_thread(*arguments, **options)
        at_work += 1
        jumping.autojump_threshold, jumping.rate = float("inf"), 1.0
        try:
            return await in_thread(*arguments, **options)
        finally:
            at_work -= 1
            if not at_work:
                jumping.autojump_threshold, jumping.rate = 0.0, 0.0

    async def main() -> _T:
        trio.socket.set_custom_socket_factory(MemoryNetwork())
        return await program(*arguments)

    with (
        mock.patch("time.time_ns", time_ns),
        mock.patch("time.time", time_of_day),
        mock.patch("trio.to_thread.run_sync", work),
    ):
        return trio.run(main, clock=jumping, instruments=instruments)
