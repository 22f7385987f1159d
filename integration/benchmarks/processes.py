"""CPU time and memory of Spark's processes: driver, JVM, and the JVM's Python children. Linux only."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import attrs

_PROC = Path("/proc")
_TICK = 1 / os.sysconf("SC_CLK_TCK")
ROLES = {
    "worker": "tasks",
    "plan_data_source_read": "planning of batches",
    "python_streaming_source_runner": "planning of streams",
}
"""Roles of Spark's Python processes, by their pyspark module. Others are ignored."""
_PAUSE = 0.05
"""Seconds between two scans for processes. Linux records each process's peak memory."""


@attrs.frozen
class Spent:
    """CPU seconds of all Python processes, of the JVM, and of the brokers."""

    python: float
    java: float
    brokers: float

    def since(self, earlier: Spent) -> Spent:
        """Return the difference to an earlier measurement."""
        return Spent(self.python - earlier.python, self.java - earlier.java, self.brokers - earlier.brokers)


def spent(java: int, brokers: float = 0.0) -> Spent:
    """Return the CPU time of this process, the JVM ``java`` and its descendants, including ended children."""
    mine, jvm = _times(os.getpid()), _times(java)
    below = sum([sum(_times(process)) for process in descendants(java)])
    return Spent(mine[0] + jvm[1] + below, jvm[0], brokers)


def descendants(of: int) -> Iterator[int]:
    """Yield the ids of a process's descendants."""
    children: dict[int, list[int]] = {}
    for directory in _PROC.glob("[0-9]*"):
        fields = _fields(int(directory.name))
        if fields:
            children.setdefault(int(fields[1]), []).append(int(directory.name))
    waiting = children.get(of, [])
    while waiting:
        process = waiting.pop()
        yield process
        waiting += children.get(process, [])


def _times(process: int) -> tuple[float, float]:
    """Return the CPU seconds of a process, and of its ended children."""
    fields = _fields(process)
    if not fields:
        return 0.0, 0.0
    user, system, of_children, system_of_children = [int(field) * _TICK for field in fields[11:15]]
    return user + system, of_children + system_of_children


def _fields(process: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on, or nothing if it has ended."""
    try:
        return (_PROC / str(process) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


class Peaks:
    """The peak memory of processes within a ``with`` block, in bytes, by role.

    Roles are those of ROLES, and ``driver`` for the driver's Python process.

    Args:
        java: the process id of the JVM.
    """

    def __init__(self, java: int) -> None:
        self._java = java
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._peaks: dict[int, tuple[str, int]] = {}

    def __enter__(self) -> Self:
        _forget_peak(os.getpid())
        for process in descendants(self._java):
            _forget_peak(process)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._look()

    def by_name(self) -> dict[str, int]:
        """Return the largest peak of each role."""
        largest: dict[str, int] = {}
        for name, peak in self._peaks.values():
            largest[name] = max(largest.get(name, 0), peak)
        return dict(sorted(largest.items()))

    def _watch(self) -> None:
        while not self._ended.wait(_PAUSE):
            self._look()

    def _look(self) -> None:
        for process in (os.getpid(), *descendants(self._java)):
            name = "driver" if process == os.getpid() else _role(process)
            if name and (peak := peak_of(process)):
                self._peaks[process] = name, peak


def _role(process: int) -> str | None:
    """Return the role of a Spark Python process, or None for other processes."""
    try:
        words = (_PROC / str(process) / "cmdline").read_bytes().decode().rstrip("\0").split("\0")
    except OSError:
        return None
    return ROLES.get(words[-1].rpartition(".")[2])


def peak_of(process: int) -> int:
    """Return the peak memory of a process in bytes, or 0 if it has ended."""
    try:
        status = (_PROC / str(process) / "status").read_text()
    except OSError:
        return 0
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def _forget_peak(process: int) -> None:
    """Reset Linux's peak memory of a process."""
    with suppress(OSError):  # it may have ended
        (_PROC / str(process) / "clear_refs").write_text("5")
