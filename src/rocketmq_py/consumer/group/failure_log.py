"""Failures that are tried again and again, by many at once: said now and then, not every time."""

from __future__ import annotations

import logging
from typing import Final

import trio

logger: Final = logging.getLogger("rocketmq_py.consumer")

QUIET_SECONDS = 30.0


class FailureLog:
    """Logs the failures of all who share it, such as the pull loops of one broker.

    The first is logged at once; what follows, one line at the most in QUIET_SECONDS, with the number of
    those that were not logged; then the first success.
    """

    def __init__(self) -> None:
        self._quiet_until = -1.0
        self._not_logged = 0
        self._said = False

    def failed(self, what: str, error: Exception, pause: float) -> None:
        """Note that ``what`` failed; it is tried again after ``pause`` seconds."""
        if self.warn(f"{what}: {error}; trying again every {pause:g} s"):
            self._said = True

    def warn(self, text: str) -> bool:
        """Note what may happen again and again; return whether it was logged."""
        now = trio.current_time()
        if now < self._quiet_until:
            self._not_logged += 1
            return False
        others = f" ({self._not_logged} failures since the last line)" if self._not_logged else ""
        logger.warning("%s%s", text, others)
        self._quiet_until = now + QUIET_SECONDS
        self._not_logged = 0
        return True

    def succeeded(self, what: str) -> None:
        """Note that ``what``, which failed before, has succeeded."""
        if self._said:
            self._said = False
            logger.info("%s: works again", what)
