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
from rocketmq_py.library_logger import LibraryLogger, RecordRoute

FLUSH_SECONDS = 2.0
"""How long the end of the process waits for handlers."""


class LogRecords(RecordRoute):
    """The route of the library's records: those of trio threads go to a thread that calls handlers."""

    def __init__(self) -> None:
        self._thread: CallbackThread | None = None

    def start(self) -> None:
        """Hand over the records of trio threads from now on."""
        if self._thread is None:
            LibraryLogger.route = self
            self._thread = CallbackThread("rocketmq-py logging")

    def handle(self, logger: logging.Logger, record: logging.LogRecord) -> None:
        """Pass a record to the handlers, in a trio thread later in the other thread."""
        if self._thread is not None and in_trio_thread():
            self._thread.post(partial(logger.handle, record))
        else:
            super().handle(logger, record)

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


log_records: Final = LogRecords()
if hasattr(os, "register_at_fork"):  # Windows cannot fork
    os.register_at_fork(after_in_child=log_records.forget)
