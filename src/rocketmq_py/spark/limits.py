"""How much a batch of a stream may read, and when there is one: Spark's limits and the options' together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Self

import attrs

from rocketmq_py.spark.source_options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
    except ImportError:  # Spark 4.1: it knows neither
        ReadLimit = SupportsTriggerAvailableNow = object

__all__ = ["Limits", "Pace", "ReadLimit", "SupportsTriggerAvailableNow", "default_read_limit"]


def default_read_limit(options: SourceOptions) -> ReadLimit:
    """Return what of the options Spark has a word for: it knows one limit at a time."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

    if options.max_offsets_per_trigger is not None:
        return ReadMaxRows(options.max_offsets_per_trigger)
    if options.min_offsets_per_trigger is not None:
        return ReadMinRows(options.min_offsets_per_trigger)
    return ReadAllAvailable()


@attrs.frozen
class Limits:
    """What one batch may read.

    Args:
        most: offsets at the most; None for no limit.
        least: offsets without which there is no batch, unless ``delay`` seconds have passed since the last.
        delay: see there.
    """

    most: int | None = None
    least: int | None = None
    delay: float = 0.0

    @classmethod
    def of(cls, options: SourceOptions, limit: ReadLimit | None) -> Self:
        """Return what holds for a batch.

        Args:
            options: the user's.
            limit: Spark's, which is the default one, or everything, where the trigger says so. None from
                Spark 4.1, which knows no limits.
        """
        if limit is not None and type(limit).__name__ == "ReadAllAvailable":
            return cls()
        most = getattr(limit, "max_rows", options.max_offsets_per_trigger)
        least = getattr(limit, "min_rows", options.min_offsets_per_trigger)
        return cls(most, least, options.max_trigger_delay)


class Pace:
    """Keeps the time since the last batch.

    Args:
        clock: seconds that pass.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last: float | None = None

    def is_time(self, available: int, limits: Limits) -> bool:
        """Tell whether there is a batch now. The first one comes at once, as with Kafka's connector."""
        now = self._clock()
        waited = self._last is None or now - self._last >= limits.delay
        if limits.least is not None and available < limits.least and not waited:
            return False
        if available:
            self._last = now
        return True
