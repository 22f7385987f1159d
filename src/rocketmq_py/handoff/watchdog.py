"""Notices that the trio thread does not run, because a selector, a hook or a finalizer blocks it."""

from __future__ import annotations

import sys
import time
import traceback
from collections import deque
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Final

from rocketmq_py.client.user_functions import is_of_library
from rocketmq_py.errors import ClosedError
from rocketmq_py.handoff.callback_thread import log_records
from rocketmq_py.library_logger import LibraryLogger

if TYPE_CHECKING:
    from rocketmq_py.handoff.trio_thread import TrioThread

logger: Final = LibraryLogger("rocketmq_py.handoff")

STUCK_SECONDS = 1.0
"""The trio thread is stuck if it has not run for this time."""
_IDLE = "trio._core._io_"
"""The modules in which trio waits for events."""


class Watchdog:
    """Checks that the trio thread runs.

    Callers that wait for the thread call :meth:`check` about once a second. The first check posts a probe,
    and later ones look whether the thread has answered it. Calls that end sooner cost nothing.

    Args:
        thread: the trio thread.
    """

    def __init__(self, thread: TrioThread) -> None:
        self._thread = thread
        # Shared between threads. Each access is atomic.
        self._asked_at: float | None = None  # monotonic time of the probe that is not answered yet
        self._checked_at = 0.0
        self._may_report: deque[None] = deque([None])  # the thread that takes the item reports

    @property
    def is_stuck(self) -> bool:
        """Whether the thread was reported, and has not run since."""
        return not self._may_report

    # In any other thread

    def check(self) -> None:
        """Log a WARNING with the stack of the trio thread if it is stuck, one until it runs again."""
        now = time.monotonic()
        # After such a pause the whole process may have been stopped, and the thread may be about to run.
        was_paused = now - self._checked_at > 2 * STUCK_SECONDS
        self._checked_at = now
        asked_at = self._asked_at
        if asked_at is None:
            self._asked_at = now
            with suppress(ClosedError):  # it has just ended
                self._thread.post(self._answer)
        elif was_paused:
            self._asked_at = now
        elif now - asked_at >= STUCK_SECONDS:
            self._report(now - asked_at)

    def describe(self) -> str:
        """Return where the thread stands, for the health of its objects."""
        where = ""
        frame = self._frame()
        while frame is not None:  # from the innermost: the outermost one of the user stays
            if not is_of_library(frame):
                code = frame.f_code
                where = f" in {code.co_qualname} ({code.co_filename}:{frame.f_lineno})"
            frame = frame.f_back
        return f"the background thread of rocketmq_py does not run, it is blocked{where}"

    def _report(self, seconds: float) -> None:
        frame = self._frame()
        if frame is None or frame.f_globals.get("__name__", "").startswith(_IDLE):
            return  # nothing blocks it: it waits for the processor
        stack = "\n" + "".join(traceback.format_stack(frame))

        def log() -> None:
            logger.warning(
                "the background thread of rocketmq_py has not run for %.1f s, and all calls wait for it. "
                "Selectors, hooks and finalizers must not block. It stands here: %s",
                seconds, stack,
            )  # fmt: skip

        with suppress(IndexError):  # another thread reports it
            self._may_report.pop()
            log_records.call_soon(log)  # the caller may be a logging handler that sends

    def _frame(self) -> FrameType | None:
        return sys._current_frames().get(self._thread.ident or 0)

    # In the trio thread

    def _answer(self) -> None:
        asked_at, self._asked_at = self._asked_at, None
        if self.is_stuck:
            self._may_report.append(None)
            logger.info(
                "the background thread of rocketmq_py runs again after=%.1fs",
                time.monotonic() - (asked_at or 0),
            )
