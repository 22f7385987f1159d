"""The one trio thread of a process: made on first use, closed at exit, left behind by a fork."""

from __future__ import annotations

import atexit
import os
import sys

from rocketmq_py.errors import ClosedError, ConfigurationError
from rocketmq_py.handoff.log_records import log_records
from rocketmq_py.handoff.trio_thread import PROCESS_ENDING, TrioThread

_threads: dict[str, TrioThread] = {}
_CURRENT = "current"
_ending: set[int] = set()
"""This process, when it ends."""
_left_behind: list[TrioThread] = []
"""Threads of parent processes, kept from the garbage collector: finalizers must not touch their sockets."""


def trio_thread() -> TrioThread:
    """Return the trio thread of this process, and start it if there is none.

    Raises ConfigurationError where gevent has replaced threads, and ClosedError when the process ends.
    """
    while True:
        thread = _threads.get(_CURRENT)
        if thread is not None and thread.is_usable:
            return thread
        _check_not_patched()
        if os.getpid() in _ending:
            raise ClosedError(PROCESS_ENDING)
        # Without a lock: a signal handler may be here while the thread that it has interrupted is, too.
        log_records.start()
        fresh = TrioThread()
        fresh.start()
        if thread is not None and _threads.get(_CURRENT) is thread:  # unless another has taken its place
            _threads.pop(_CURRENT, None)
        if _threads.setdefault(_CURRENT, fresh) is fresh:
            _close_at_end_of_worker()
            return fresh
        fresh.stop()  # another thread was faster


def _check_not_patched() -> None:
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None and monkey.is_module_patched("threading"):
        raise ConfigurationError(
            "gevent has patched the threading module of this process, and rocketmq_py needs real threads: "
            "use workers with threads (gunicorn -k gthread, celery -P threads), or send from a process that "
            "gevent does not patch"
        )


def _close_at_end_of_worker() -> None:
    """Close everything at the end of a multiprocessing worker, which does not run atexit functions."""
    process, util = sys.modules.get("multiprocessing.process"), sys.modules.get("multiprocessing.util")
    if process is not None and util is not None and process.parent_process() is not None:
        util.Finalize(None, _close_all, exitpriority=10)


def _leave_behind() -> None:
    """Forget the parent's thread in a child that was just forked."""
    thread = _threads.pop(_CURRENT, None)
    if thread is not None:
        _left_behind.append(thread)
        thread.leave_behind()


def _close_all() -> None:
    _ending.add(os.getpid())
    thread = _threads.get(_CURRENT)
    if thread is not None:
        try:
            thread.close_all()
        finally:
            log_records.flush()


if hasattr(os, "register_at_fork"):  # Windows cannot fork
    os.register_at_fork(after_in_child=_leave_behind)
atexit.register(_close_all)
