"""The clock and the randomness of clients and brokers. Tests and simulations replace them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import attrs


@attrs.frozen
class Environment:
    """The clock and the randomness of the clients and brokers that are created in a context.

    Attributes:
        now_ms: the wall clock, epoch milliseconds. None for the real one.
        rng: the source of randomness. None gives each client and broker one of its own.
    """

    now_ms: Callable[[], int] | None = None
    rng: random.Random | None = None

    def random(self) -> random.Random:
        """Return the source of randomness of a new client or broker."""
        return self.rng or random.Random()


REAL: Final = Environment()
_current: ContextVar[Environment] = ContextVar("rocketmq_py environment", default=REAL)


def current_environment() -> Environment:
    """Return the environment of this context."""
    return _current.get()


@contextmanager
def use_environment(
    *, now_ms: Callable[[], int] | None = None, rng: random.Random | None = None
) -> Iterator[None]:
    """Give clients and brokers that are created in the block this clock, and this source of randomness."""
    token = _current.set(Environment(now_ms, rng))
    try:
        yield
    finally:
        _current.reset(token)


@attrs.define
class MonotonicClock:
    """The clock of code that blocks its thread. Tests replace it.

    All are equal, so that copies of an object with a clock are equal.
    """

    def now(self) -> float:
        """Return the monotonic time in seconds."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Block for a number of seconds."""
        time.sleep(seconds)


def wall_clock_ms() -> int:
    """Return the current time, epoch milliseconds."""
    return time.time_ns() // 1_000_000
