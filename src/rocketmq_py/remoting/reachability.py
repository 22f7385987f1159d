"""Whether an address can be reached: its consecutive failed dials, and when the next one is due."""

from __future__ import annotations

import math
import random
import time
from typing import Final

import trio

from rocketmq_py.errors import ConnectError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.remoting.back_off import BackOff

logger: Final = LibraryLogger("rocketmq_py.remoting")

WAITED_BACK_OFF: Final = BackOff(0.1, longest=0.8)
"""Seconds between two dials while calls wait for the address.

A send with the default timeout of 3 s then has time left after a restart of 2 s.
"""
BACK_OFF: Final = BackOff(0.1, longest=5.0)
"""Seconds between two dials while no call waits."""
RECHECK_SECONDS = 1.0
"""Seconds after which a caller that waits for an address looks again whether it is still the right one.

A broker may come back at another address, a topic may be on another broker, and name servers may have others.
"""
QUIET_SECONDS = 30.0
"""Seconds after a log line in which no other line says that the address cannot be reached."""
FORGOTTEN_AFTER = 300.0
"""Seconds without a dial after which an address is forgotten: brokers and name servers come and go."""


class Reachability:
    """The consecutive failed dials of an address.

    A dial fails if no connection could be opened. A connection whose peer refuses it at once, because it
    closes it or answers GO_AWAY, counts as a failed dial too.

    Args:
        address: the address.
        rng: makes the pauses between dials differ, so that the clients of a cluster do not dial in step.

    Attributes:
        failures: the number of failed dials since the address was reached last.
        retry_at: when the next dial is due if calls wait for the address, on trio's clock.
        quiet_until: when the next dial is due if none does.
        is_lasting: whether waiting is useless, because the peer's certificate or the address is invalid.
    """

    def __init__(self, address: str, rng: random.Random) -> None:
        self._address = address
        self._rng = rng
        self.failures: int = 0
        self.retry_at: float = -math.inf
        self.quiet_until: float = -math.inf
        self.is_lasting: bool = False
        self._kind: type[ConnectError] = ConnectError
        self._reason = ""
        self._since = self._failed_at = 0.0
        self._since_time_of_day = 0.0
        self._failures_before_opening = 0
        self._is_logged = False
        self._logged_at = -math.inf

    def failed(
        self, reason: str, kind: type[ConnectError] = ConnectError, *, is_lasting: bool = False
    ) -> None:
        """Record a failed dial."""
        now = trio.current_time()
        if not self.failures:
            self._since, self._since_time_of_day = now, time.time()
        self.failures += 1
        self._failed_at = now
        self._reason, self._kind, self.is_lasting = reason, kind, is_lasting
        self.retry_at = now + self._rng.uniform(0.5, 1.0) * WAITED_BACK_OFF.after(self.failures)
        self.quiet_until = max(self.retry_at, now + BACK_OFF.after(self.failures))
        if not self._is_logged and now - self._logged_at >= QUIET_SECONDS:
            self._is_logged, self._logged_at = True, now
            logger.warning(
                "address unreachable, connecting again: address=%s error=%s", self._address, reason
            )

    def opened(self) -> None:
        """Record a connection that was opened."""
        if self._is_logged:
            seconds = trio.current_time() - self._since
            logger.info(
                "address reachable again: address=%s failed_attempts=%d seconds=%.1f",
                self._address, self.failures, seconds,
            )  # fmt: skip
            self._is_logged = False
        self._failures_before_opening, self.failures = self.failures, 0
        self.is_lasting = False

    def refused(self, reason: str) -> None:
        """Record that the peer has refused the connection that was opened last."""
        if not self.failures:  # otherwise a later dial has failed already
            self.failures, self._failures_before_opening = self._failures_before_opening, 0
        self.failed(reason)

    def is_forgotten(self) -> bool:
        """Whether the last failed dial is so long ago that this object is no longer needed."""
        return trio.current_time() - self._failed_at > FORGOTTEN_AFTER

    @property
    def reason(self) -> str:
        """Why the last dial failed, how many have failed in which time, and since when."""
        if self.failures < 2:
            return self._reason
        since = time.localtime(self._since_time_of_day)
        is_today = time.time() - self._since_time_of_day < 12 * 3600
        moment = time.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M:%S", since)
        seconds = self._failed_at - self._since
        return f"{self._reason} ({self.failures} attempts in {seconds:.1f} s; unreachable since {moment})"

    def error(self) -> ConnectError:
        """Return a new error that describes the failures."""
        error = self._kind(self._address, self.reason)
        error._not_reached = not self.is_lasting
        return error
