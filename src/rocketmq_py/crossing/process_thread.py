"""The one thread of a process that runs trio: closed at the end of that, and left behind by a fork."""

from __future__ import annotations

import atexit
import os
import sys
import threading

from rocketmq_py.crossing.trio_thread import TrioThread

_lock = threading.Lock()
_current: TrioThread | None = None
_left_behind: list[TrioThread] = []
"""Threads of parent processes: nothing of theirs must be finalized here, where it could do harm."""


def trio_thread() -> TrioThread:
    """Return the thread of this process, started if it was not."""
    global _current
    thread = _current
    if thread is None or not thread.is_usable:
        with _lock:
            thread = _current
            if thread is None or not thread.is_usable:
                thread = TrioThread()
                thread.start()
                _current = thread
                _close_at_end_of_worker()
    return thread


def _close_at_end_of_worker() -> None:
    """Have multiprocessing close what is open: its workers end without a call of what atexit knows."""
    process, util = sys.modules.get("multiprocessing.process"), sys.modules.get("multiprocessing.util")
    if process is not None and util is not None and process.parent_process() is not None:
        util.Finalize(None, _close_all, exitpriority=10)


def _leave_behind() -> None:
    """Forget, in a child that was just forked, what only the parent has."""
    global _lock, _current
    _lock = threading.Lock()  # another thread may have held it
    if _current is not None:
        _left_behind.append(_current)
        _current.leave_behind()
        _current = None


def _close_all() -> None:
    if _current is not None:
        _current.close_all()


os.register_at_fork(after_in_child=_leave_behind)
atexit.register(_close_all)
