"""The pauses between attempts that fail one after another."""

from __future__ import annotations

import math

import attrs

MOST_DOUBLINGS = 60
"""Pauses are doubled no further, since a larger power of two may not fit into a float."""


@attrs.frozen
class BackOff:
    """Pauses that are doubled after each failure in a row. The caller counts the failures.

    Attributes:
        first: seconds after the first failure.
        longest: the longest pause.
    """

    first: float
    longest: float = math.inf

    def after(self, failures: int) -> float:
        """Return the seconds to wait after this many failures in a row, at least one."""
        return min(self.first * 2.0 ** min(failures - 1, MOST_DOUBLINGS), self.longest)
