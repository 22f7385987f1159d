"""A bound on how often something happens."""

from __future__ import annotations

import trio


class Pace:
    """Lets something happen so many times a second at the most.

    Args:
        rate: times a second; None for no bound.
    """

    def __init__(self, rate: float | None) -> None:
        self._interval = None if rate is None else 1 / rate
        self._next = trio.current_time()

    async def turn(self) -> float:
        """Wait for the next turn; return when it was due, by trio's clock."""
        if self._interval is None:
            return trio.current_time()
        due = self._next
        await trio.sleep_until(due)
        # What was late is not made up for: that would be a burst.
        self._next = max(due, trio.current_time() - self._interval) + self._interval
        return due
