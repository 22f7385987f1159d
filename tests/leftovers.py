"""What doors leave behind in a process: tasks of the trio thread, threads, and sockets."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator

import trio

from rocketmq_py.handoff.process import trio_thread
from tests.cancelling import open_sockets

PATIENCE = 10


class Leftovers:
    """What there was before, to compare with."""

    def __init__(self) -> None:
        gc.collect()
        gc.freeze()  # what is there now is none: it need not be looked through after each step
        self.before = self._count()

    def until_none(self) -> Iterator[None]:
        """Go on until there is no more than before: a broker hears later that connections have ended."""
        deadline = time.monotonic() + PATIENCE
        while more := self._more():
            assert time.monotonic() < deadline, more
            yield
            gc.collect()

    def _count(self) -> tuple[int, int, int]:
        thread = trio_thread()

        def tasks() -> int:
            return trio.lowlevel.current_statistics().tasks_living

        # Trio keeps threads that have nothing to do for a while, for what comes next.
        threads = [one for one in threading.enumerate() if not one.name.startswith("Trio thread")]
        return thread.call_plain(tasks), len(threads), open_sockets()

    def _more(self) -> list[str]:
        kinds = ("tasks of the trio thread", "threads", "sockets")
        return [
            f"{now} {kind}, before {before}"
            for kind, before, now in zip(kinds, self.before, self._count(), strict=True)
            if now > before
        ]
