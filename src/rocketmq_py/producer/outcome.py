"""Outcomes of sends: the broker's acknowledgement or an error, and a log of unretrieved errors."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

from rocketmq_py.errors import ClosedError, Delivery, RocketMQError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.protocol.sends import Acknowledgement as Acknowledgement
from rocketmq_py.protocol.sends import send_result as send_result

logger: Final = LibraryLogger("rocketmq_py.producer")

REPORT_INTERVAL = 10.0
"""Seconds between two lines of a FailureLog."""

Outcome: TypeAlias = Acknowledgement | RocketMQError


def closed_error(*, may_be_stored: bool = False) -> ClosedError:
    """Return the error of a send that had not ended when its producer was closed."""
    if not may_be_stored:
        return ClosedError("the producer was closed before the message could be sent")
    error = ClosedError("the producer was closed before the broker answered")
    error.delivery = Delivery.UNKNOWN
    return error


class OutcomeReceiver(Protocol):
    """Receives the outcome of a send: a Pending, or its counterpart in another API."""

    def _succeed(self, result: Any) -> None:
        """Set the result: an Acknowledgement from which it is made when it is read, or a PendingSend."""

    def _fail(self, error: RocketMQError, log: FailureLog | None) -> None:
        """Set the error. Report it to ``log`` if it is never retrieved."""


class FailureLog:
    """Logs errors of sends that were never retrieved: the first at once, later ones together.

    Args:
        now: the clock, in seconds.
    """

    _count = 0  # of the class, as __init__ may be interrupted before __del__

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._last_error: RocketMQError | None = None
        self._next_report = -math.inf

    def add(self, error: RocketMQError) -> None:
        """Count an error. Log it now, or with the first one REPORT_INTERVAL after the last line."""
        self._count += 1
        self._last_error = error
        if self._now() >= self._next_report:
            self.report()

    def report(self) -> None:
        """Log the errors that were not logged yet."""
        if self._count:
            self._next_report = self._now() + REPORT_INTERVAL
            logger.error(
                "pipelined sends failed, and their results were never awaited: count=%d last_error=%s",
                self._count,
                self._last_error,
            )
            self._count = 0

    __del__ = report  # errors that were added after the producer was closed
