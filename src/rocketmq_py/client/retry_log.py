"""Log lines of loops that retry in the background, at growing intervals."""

from __future__ import annotations

import logging

import trio

from rocketmq_py.library_logger import LibraryLogger

FIRST_QUIET_SECONDS = 30.0
LONGEST_QUIET_SECONDS = 900.0
"""Between two lines about one failure: doubled from the first to the longest."""


class RetryLog:
    """Logs one failure that a loop retries until it succeeds.

    The first failure is logged at WARNING. While the failure lasts, further lines follow at growing
    intervals, with the number of failures and the seconds since the first. The first success is logged at
    INFO. A failure that comes and goes is logged once in FIRST_QUIET_SECONDS.

    Loops that fail together, such as the pull loops of one broker, share a log.

    Args:
        logger: the logger of the module.
        event: the operation, in words to search for: "route lookup", "heartbeat".
        **where: the group, topic, broker, … of the loop, logged as ``key=value``.

    Attributes:
        error: the error of the last failure, if no success has followed. Otherwise None.
    """

    def __init__(self, logger: LibraryLogger, event: str, **where: object) -> None:
        self._logger = logger
        self._event = event
        self._where = where
        self._pace = _Pace()
        self._failures = 0
        self._began_at = 0.0
        self._is_logged = False
        self.error: object | None = None

    @property
    def is_quiet(self) -> bool:
        """Whether a failure now would not be logged."""
        return self._pace.is_quiet

    def failed(self, error: object, **where: object) -> None:
        """Note a failure. ``where`` adds to the keys of this log."""
        if not self._failures:
            self._began_at = trio.current_time()
            self._pace.begin_again()
        self._failures += 1
        self.error = error
        if self._pace.is_due():
            lasts = self._lasts() if self._failures > 1 else {}
            pairs = _pairs({**self._where, **where, **lasts, "error": error})
            self._logger.warning("%s failed, retrying: %s", self._event, pairs)
            self._is_logged = True

    def failed_as_expected(self, error: object, **where: object) -> None:
        """Log a failure that belongs to normal operation, at DEBUG."""
        if self._logger.isEnabledFor(logging.DEBUG):
            pairs = _pairs({**self._where, **where, "error": error})
            self._logger.debug("%s failed, retrying: %s", self._event, pairs)

    def succeeded(self, **where: object) -> None:
        """Note a success. It is logged if it follows a failure that was logged."""
        if not self._failures:
            return
        if self._is_logged:
            pairs = _pairs({**self._where, **where, **self._lasts()})
            self._logger.info("%s succeeded again: %s", self._event, pairs)
        self._failures = 0
        self._is_logged = False
        self.error = None

    def _lasts(self) -> dict[str, object]:
        return {"failures": self._failures, "seconds": round(trio.current_time() - self._began_at)}


class RetryLogs:
    """A RetryLog for each broker, topic or other key.

    Args:
        logger, event, where: as for RetryLog.
        label: the name of the key in the log: "broker".
    """

    def __init__(self, logger: LibraryLogger, event: str, label: str, **where: object) -> None:
        self._logger = logger
        self._event = event
        self._label = label
        self._where = where
        self._logs: dict[object, RetryLog] = {}

    def __len__(self) -> int:
        return len(self._logs)

    def of(self, key: object) -> RetryLog:
        """Return the log of a key."""
        log = self._logs.get(key)
        if log is None:
            log = self._logs[key] = RetryLog(self._logger, self._event, **self._where, **{self._label: key})
        return log

    def error(self, key: object) -> object | None:
        """Return the error of the last failure for a key, if no success has followed. Otherwise None."""
        log = self._logs.get(key)
        return None if log is None else log.error

    def failed(self, key: object, error: object, **where: object) -> None:
        """Note a failure for a key."""
        self.of(key).failed(error, **where)

    def succeeded(self, key: object) -> None:
        """Note a success for a key."""
        log = self._logs.get(key)
        if log is not None:
            log.succeeded()
            if not log.is_quiet:  # brokers and topics come and go
                del self._logs[key]


class RepeatedLog:
    """Logs at WARNING, at growing intervals, a condition that is met again and again."""

    def __init__(self, logger: LibraryLogger) -> None:
        self._logger = logger
        self._pace = _Pace()
        self._not_logged = 0

    def warning(self, text: str, *arguments: object) -> None:
        """Log a line if the last one is long enough ago."""
        if not self._pace.is_due():
            self._not_logged += 1
            return
        if self._not_logged:
            text, arguments = f"{text} not_logged=%d", (*arguments, self._not_logged)
            self._not_logged = 0
        self._logger.warning(text, *arguments)


class _Pace:
    """When the next line is due: at once, then after intervals that grow."""

    def __init__(self) -> None:
        self._quiet_until = -1.0
        self._interval = FIRST_QUIET_SECONDS

    @property
    def is_quiet(self) -> bool:
        return trio.current_time() < self._quiet_until

    def begin_again(self) -> None:
        """Return to the first interval, unless the last line is still recent."""
        if not self.is_quiet:
            self._interval = FIRST_QUIET_SECONDS

    def is_due(self) -> bool:
        """Return whether a line is due now; if so, the next one is due after the interval."""
        if self.is_quiet:
            return False
        self._quiet_until = trio.current_time() + self._interval
        self._interval = min(2 * self._interval, LONGEST_QUIET_SECONDS)
        return True


def _pairs(values: dict[str, object]) -> str:
    return " ".join([f"{key}={value}" for key, value in values.items()])
