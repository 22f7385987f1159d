"""Failures in a row: said once, and now and then, not every few seconds."""

from __future__ import annotations

import logging

SAY_EVERY = 10


class Streak:
    """Logs the first failure of something that is tried again and again, every tenth, and the success.

    Args:
        what: what fails, as the log's lines begin.
        level: of the lines about failures.
    """

    __slots__ = ("_failures", "_level", "_what")

    def __init__(self, what: str, level: int = logging.WARNING) -> None:
        self._what = what
        self._level = level
        self._failures = 0

    def failed(self, logger: logging.Logger, error: Exception, pause: float) -> None:
        """Note a failure that is followed by another try after ``pause`` seconds."""
        if self._failures % SAY_EVERY == 0:
            logger.log(self._level, "%s: %s; trying again every %g s", self._what, error, pause)
        self._failures += 1

    def succeeded(self, logger: logging.Logger) -> None:
        """Note a success."""
        if self._failures:
            logger.info("%s: works again after %d failures", self._what, self._failures)
            self._failures = 0
