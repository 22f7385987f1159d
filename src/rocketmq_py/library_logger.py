"""The loggers of the library."""

from __future__ import annotations

import logging
import sys
from typing import Any


class RecordRoute:
    """Takes log records to the handlers of a program, in the thread that logs."""

    def handle(self, logger: logging.Logger, record: logging.LogRecord) -> None:
        """Pass a record to the handlers of a logger."""
        logger.handle(record)


class LibraryLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger that takes no lock of the logging module, and whose records can be handled in another thread.

    A thread may hold the lock of the logging module while it waits for the trio thread. For example,
    ``dictConfig`` makes a handler that sends a message. ``Logger.isEnabledFor`` would wait for this lock.

    Args:
        name: the name of the logger.
    """

    route: RecordRoute = RecordRoute()
    """The route of the records of all loggers of the library. ``handoff/`` sets another one."""

    def __init__(self, name: str) -> None:
        super().__init__(logging.getLogger(name), {})

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - as in the base class
        """Return whether records of a level are logged."""
        logger = self.logger
        return not logger.disabled and logger.manager.disable < level >= logger.getEffectiveLevel()

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a message. All other methods that log call this one."""
        if not self.isEnabledFor(level):
            return
        exc_info = kwargs.get("exc_info")
        if isinstance(exc_info, BaseException):
            exc_info = (type(exc_info), exc_info, exc_info.__traceback__)
        elif exc_info and not isinstance(exc_info, tuple):
            exc_info = sys.exc_info()
        logger = self.logger
        file, line, function, _ = logger.findCaller(stacklevel=2)
        record = logger.makeRecord(
            logger.name, level, file, line, msg, args, exc_info or None, function, kwargs.get("extra")
        )
        self.route.handle(logger, record)
