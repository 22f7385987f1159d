"""The clock of a test cluster: real time plus the time by which tests advance it."""

from __future__ import annotations

import time

import trio


class AdvancingClock(trio.abc.Clock):
    """A trio clock that runs in real time and can be advanced. Advance it in the trio run.

    Its time is that of ``time.monotonic`` plus the advances. A constant offset therefore converts it to the
    wall clock, which trio's MockClock does not allow.
    """

    def __init__(self) -> None:
        self._advanced = 0.0

    def start_clock(self) -> None:
        """Do nothing: ``time.monotonic`` always runs."""

    def current_time(self) -> float:
        """Return the time in seconds."""
        return time.monotonic() + self._advanced

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Return the real seconds until ``deadline``."""
        return deadline - self.current_time()

    def advance(self, seconds: float) -> None:
        """Advance the clock."""
        self._advanced += seconds
