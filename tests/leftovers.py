"""Checks that an API leaves no tasks of the trio thread, no threads and no sockets in the process."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator

import trio

from rocketmq_py.handoff.trio_thread import trio_thread
from tests.cancelling import open_sockets

PATIENCE = 10


class Leftovers:
    """Counts of tasks, threads and sockets at creation, to compare with later ones."""

    def __init__(self) -> None:
        gc.collect()
        gc.freeze()  # spares each later collection the objects that exist now
        self.before = self._count()

    def until_none(self) -> Iterator[None]:
        """Yield until the counts are back at their start, since a broker notices closed connections later."""
        deadline = time.monotonic() + PATIENCE
        while more := self._more():
            assert time.monotonic() < deadline, more
            yield
            gc.collect()

    def _count(self) -> tuple[int, int, int]:
        thread = trio_thread()

        def tasks() -> int:
            return trio.lowlevel.current_statistics().tasks_living

        # Trio keeps idle worker threads for a while.
        threads = [running for running in threading.enumerate() if not running.name.startswith("Trio thread")]
        return thread.call_plain(tasks), len(threads), open_sockets()

    def _more(self) -> list[str]:
        kinds = ("tasks of the trio thread", "threads", "sockets")
        return [
            f"{now} {kind}, before {before}"
            for kind, before, now in zip(kinds, self.before, self._count(), strict=True)
            if now > before
        ]
