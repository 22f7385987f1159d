"""Log records of the trio thread, which reach the user's handlers from a thread of their own.

A handler may block, or wait for the very thread that logs: one that ships records with a producer holds its
lock while it sends. A thread that sends may also hold the lock of the logging module itself, for example
while ``dictConfig`` makes such a handler. Programs on trio are not affected, only the trio thread of the
other APIs.
"""

from __future__ import annotations

import logging
import os
import threading
import traceback
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Final

from rocketmq_py.handoff.calls import wait_until_served
from rocketmq_py.handoff.trio_thread import in_trio_thread

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
        self._thread: threading.Thread | None = None
        self._records: SimpleQueue[logging.LogRecord | Callable[[], object]] = SimpleQueue()

    def start(self) -> None:
        """Hand over the records of trio threads to the thread that calls handlers, from now on."""
        if self._thread is not None:
            return
        for logger in _loggers:
            logger.addFilter(self)
            logger.isEnabledFor = partial(_is_enabled_for, logger)  # type: ignore[method-assign]
        thread = threading.Thread(
            target=self._call_handlers, args=(self._records,), name="rocketmq-py logging", daemon=True
        )
        thread.start()
        self._thread = thread

    def filter(self, record: logging.LogRecord) -> bool:
        """Return False, and queue the record, in a trio thread."""
        if not in_trio_thread():
            return True
        self._records.put(record)
        return False

    def flush(self) -> None:
        """Wait until the handlers have had every record until now, within FLUSH_SECONDS."""
        if self._thread is None or self._thread is threading.current_thread():
            return
        wait_until_served(self._records, FLUSH_SECONDS)

    def _call_handlers(self, records: SimpleQueue[logging.LogRecord | Callable[[], object]]) -> None:
        while True:
            record = records.get()
            if not isinstance(record, logging.LogRecord):
                record()
                continue
            try:
                logging.getLogger(record.name).handle(record)
            except BaseException:  # noqa: BLE001  # the next record must still reach its handlers
                traceback.print_exc()

    def forget(self) -> None:
        """Start anew in a forked child, which does not have the thread."""
        self._thread = None
        self._records = SimpleQueue()


def _is_enabled_for(logger: logging.Logger, level: int) -> bool:
    """Do the same as ``Logger.isEnabledFor``, but without the lock of the logging module."""
    return not logger.disabled and logger.manager.disable < level >= logger.getEffectiveLevel()


log_records: Final = LogRecords()
if hasattr(os, "register_at_fork"):  # Windows cannot fork
    os.register_at_fork(after_in_child=log_records.forget)
