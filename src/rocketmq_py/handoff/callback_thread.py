"""A thread that runs user code on behalf of the trio thread, which must never wait for it."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from queue import SimpleQueue

_here = threading.local()


def mark_trio_thread() -> None:
    """Declare that the caller runs in a trio thread, for :func:`in_trio_thread`."""
    _here.is_trio_thread = True


def in_trio_thread() -> bool:
    """Return whether the caller runs in a trio thread."""
    return hasattr(_here, "is_trio_thread")


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
