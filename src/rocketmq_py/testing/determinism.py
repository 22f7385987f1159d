"""Replaces time, randomness and threads in the thread of a simulation."""

from __future__ import annotations

import contextlib
import contextvars
import gc
import itertools
import pkgutil
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, TypeVar
from unittest import mock

import trio

from rocketmq_py.consumer.push.handler_executor import HandlerCall
from rocketmq_py.consumer.push.handler_threads import HandlerThreads, run_call

START_MS = 1_700_000_000_000
"""The time at which a simulation starts, epoch milliseconds."""

_Result = TypeVar("_Result")
_lock = threading.RLock()


def now_ms() -> int:
    """Return the time of a simulation, epoch milliseconds."""
    return START_MS + int(trio.current_time() * 1000)


@contextlib.contextmanager
def deterministic(seed: int, clock: trio.abc.Clock) -> Iterator[None]:
    """Derive the time and the randomness of this thread from a simulation's clock and seed.

    Other threads keep the real ones. They may run a test cluster or clients, and would change the simulation
    if they used its randomness. Calls from several threads run one after another, because they replace the
    same functions.
    """
    with _lock, contextlib.ExitStack() as stack:
        seeds = random.Random(f"chance {seed}")
        stack.callback(random.setstate, random.getstate())
        replacements = {**_functions(clock), **_randomness(seed, seeds)}
        for target, replacement in replacements.items():
            stack.enter_context(mock.patch(target, replacement))
        random.seed(seeds.getrandbits(64))
        # The time at which finalizers run must not depend on garbage collections, so they are switched off.
        # All objects of a simulation are in the youngest generation.
        if gc.isenabled():
            gc.disable()
            stack.callback(gc.enable)
            stack.callback(gc.collect, 0)
        yield


def _functions(clock: trio.abc.Clock) -> dict[str, object]:
    """Return the replacements of functions, by name. Other threads call the replaced functions."""

    def time_ns() -> int:
        return START_MS * 1_000_000 + round(clock.current_time() * 1e9)

    functions: dict[str, Callable[..., Any]] = {
        "trio.to_thread.run_sync": _run_in_place,
        "rocketmq_py.consumer.push.handler_threads.HandlerThreads.start": _handle_in_place,
        "rocketmq_py.handoff.hosted.trio_thread": _refuse_thread,
        "os.getpid": lambda: 4242,
        "time.time": lambda: time_ns() / 1e9,
        "time.time_ns": time_ns,
        "time.monotonic": clock.current_time,
    }
    return {
        name: _in_this_thread(function, pkgutil.resolve_name(name)) for name, function in functions.items()
    }


def _randomness(seed: int, seeds: random.Random) -> dict[str, object]:
    """Return the replacements of sources of randomness and of unique numbers, by name."""
    thread = threading.get_ident()

    class SeededRandom(random.Random):
        """A ``random.Random`` that gets its seed from the simulation unless one is given."""

        def __init__(self, seed: Any = None) -> None:
            is_simulated = seed is None and threading.get_ident() == thread
            super().__init__(seeds.getrandbits(64) if is_simulated else seed)

    scheduling = "trio._core._run._r"
    return {
        scheduling: _SchedulingRandom(random.Random(f"scheduling {seed}"), pkgutil.resolve_name(scheduling)),
        "trio._core._run._ALLOW_DETERMINISTIC_SCHEDULING": True,
        "rocketmq_py.client.identity._counter": itertools.count(),
        "random.Random": SeededRandom,
    }


def _in_this_thread(function: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls ``function`` in this thread, and ``original`` in others."""
    thread = threading.get_ident()

    def call(*arguments: Any, **options: Any) -> Any:
        return (function if threading.get_ident() == thread else original)(*arguments, **options)

    return call


class _SchedulingRandom:
    """The source from which trio draws the order of tasks: ``seeded`` in this thread, else ``original``."""

    def __init__(self, seeded: random.Random, original: random.Random) -> None:
        self._seeded = seeded
        self._original = original
        self._thread = threading.get_ident()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._seeded if threading.get_ident() == self._thread else self._original, name)


def _refuse_thread() -> NoReturn:
    raise RuntimeError(
        "rocketmq_py.aio and rocketmq_py.blocking run in a thread of their own, which a simulation does not "
        "reach: simulated programs use the classes of rocketmq_py"
    )


async def _run_in_place(function: Callable[..., _Result], *arguments: Any, **_: Any) -> _Result:
    """Call a function that would run in a thread. Virtual time does not wait for threads."""
    await trio.lowlevel.checkpoint()
    return function(*arguments)


def _handle_in_place(threads: HandlerThreads, calls: Sequence[HandlerCall]) -> None:
    """Call handlers that would run in threads. Virtual time does not wait for threads."""

    # Without a checkpoint, so that a started call is not cancelled.
    async def handle(call: HandlerCall) -> None:
        run_call(call, threads.function, call.context or contextvars.copy_context())
        threads.collect([call])

    threads.unended += len(calls)
    for call in calls:
        threads.nursery.start_soon(handle, call)
