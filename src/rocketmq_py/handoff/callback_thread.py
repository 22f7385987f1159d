"""Threads that run user code on behalf of the trio thread, which must never wait for it.

Callbacks run in one of them, and log records reach the user's handlers from another. A handler may block, or
wait for the very thread that logs: one that ships records with a producer holds its lock while it sends. A
thread that sends may also hold the lock of the logging module itself, for example while ``dictConfig`` makes
such a handler. Programs on trio are not affected, only the trio thread of the other APIs.
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

from rocketmq_py.library_logger import LibraryLogger, RecordRoute
from rocketmq_py.remoting.nurseries import in_trio_thread


class CallbackThread:
    """A daemon thread that calls functions one after the other. They may block, and may raise anything.

    Args:
        name: the name of the thread.
    """

    def __init__(self, name: str) -> None:
        self._functions: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def post(self, function: Callable[[], object]) -> None:
        """Queue a function, from any thread, signal handler or finalizer."""
        self._functions.put(function)

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this thread."""
        return threading.current_thread() is self._thread

    def flush(self, seconds: float) -> None:
        """Wait until every function that was posted until now has returned, for at most ``seconds``.

        In the thread itself it returns at once.
        """
        if self.is_current:
            return
        done = threading.Lock()  # an Event has a lock that an interrupted thread might keep
        done.acquire()
        self.post(done.release)
        done.acquire(timeout=seconds)

    def _run(self) -> None:
        while True:
            function = self._functions.get()
            try:
                function()
            except BaseException:  # noqa: BLE001  # the next function must still be called
                traceback.print_exc()
            del function  # and everything that it refers to


# Log records

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
