"""Log records of the trio thread, which reach the user's handlers from a thread of their own.

A handler may block, or wait for the very thread that logs: one that ships records with a producer holds its
lock while it sends. A thread that sends may also hold the lock of the logging module itself, for example
while ``dictConfig`` makes such a handler. Programs on trio are not affected, only the trio thread of the
other APIs.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial
from typing import Final

from rocketmq_py.handoff.callback_thread import CallbackThread, in_trio_thread

LOGGERS: Final = tuple(
    f"rocketmq_py{suffix}"
    for suffix in ("", ".blocking", ".broker", ".client", ".consumer", ".handoff", ".integrations",
                   ".producer", ".relay", ".remoting", ".spark", ".trace")
)  # fmt: skip
"""The names of the library's loggers."""
# Made at import, because getLogger takes the lock of the logging module. A thread that holds it may wait for
# the thread that opens the first object, for example while dictConfig closes a handler that ships records.
_loggers: Final = tuple(logging.getLogger(name) for name in LOGGERS)

FLUSH_SECONDS = 2.0
"""How long the end of the process waits for handlers."""


class LogRecords(logging.Filter):
    """A filter of the library's loggers that takes the records of the trio thread out of it."""

    def __init__(self) -> None:
        super().__init__()
        self._thread: CallbackThread | None = None

    def start(self) -> None:
        """Hand over the records of trio threads to the thread that calls handlers, from now on."""
        if self._thread is not None:
            return
        for logger in _loggers:
            logger.addFilter(self)
            logger.isEnabledFor = partial(_is_enabled_for, logger)  # type: ignore[method-assign]
        self._thread = CallbackThread("rocketmq-py logging")

    def filter(self, record: logging.LogRecord) -> bool:
        """Return False, and queue the record, in a trio thread."""
        if self._thread is None or not in_trio_thread():
            return True
        self._thread.post(partial(_call_handlers, record))
        return False

    def call_soon(self, function: Callable[[], object]) -> None:
        """Call a function that logs in the thread that calls handlers."""
        if self._thread is not None:
            self._thread.post(function)

    def flush(self) -> None:
        """Wait until the handlers have had every record until now, within FLUSH_SECONDS."""
        if self._thread is not None:
            self._thread.flush(FLUSH_SECONDS)

    def forget(self) -> None:
        """Start anew in a forked child, which does not have the thread."""
        self._thread = None


def _call_handlers(record: logging.LogRecord) -> None:
    logging.getLogger(record.name).handle(record)


def _is_enabled_for(logger: logging.Logger, level: int) -> bool:
    """Do the same as ``Logger.isEnabledFor``, but without the lock of the logging module."""
    return not logger.disabled and logger.manager.disable < level >= logger.getEffectiveLevel()


log_records: Final = LogRecords()
if hasattr(os, "register_at_fork"):  # Windows cannot fork
    os.register_at_fork(after_in_child=log_records.forget)
