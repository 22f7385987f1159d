"""Java processes that do not outlive the run that started them."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1

OPEN_MODULES = tuple(
    f"--add-{access}=java.base/{package}=ALL-UNNAMED"
    for access, package in (
        ("opens", "java.nio"),
        ("exports", "sun.nio.ch"),
        ("opens", "sun.nio.ch"),
        ("exports", "jdk.internal.ref"),
        ("opens", "jdk.internal.ref"),
        ("opens", "java.lang"),
    )
)
"""JVM options that open the JDK internals RocketMQ uses, which Java 17 encapsulates."""


def end_with_parent() -> Callable[[], None] | None:
    """Return a ``preexec_fn`` that makes Linux kill a child when its parent ends. None on other systems.

    On Linux, the parent is the *thread* that started the child. Start processes from the main thread.
    """
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def run_in_child() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        # If the parent died between fork and prctl, no signal will come.
        if os.getppid() != parent:
            os._exit(1)

    return run_in_child


class Process:
    """A program in a process group of its own.

    On Linux it is killed when this interpreter ends for any reason. See :func:`end_with_parent`.

    Args:
        argv: the command line.
        log: the file to which its stdout and stderr are appended.
        folder: its working directory, ``HOME`` and ``ROCKETMQ_HOME``.
    """

    def __init__(self, argv: Sequence[str], *, log: Path, folder: Path) -> None:
        self.log = log
        environment = {**os.environ, "HOME": str(folder), "ROCKETMQ_HOME": str(folder)}
        # Machine-wide JVM options would change its behaviour and print a line.
        environment.pop("JAVA_TOOL_OPTIONS", None)
        with log.open("ab") as output:
            self._child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=environment,
                process_group=0,
                preexec_fn=end_with_parent(),
            )

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet. A frozen process is running."""
        return self._child.poll() is None

    @property
    def was_killed(self) -> bool:
        """Whether SIGKILL ended it."""
        return self._child.poll() == -signal.SIGKILL

    def kill(self) -> None:
        """End the process group with SIGKILL and wait for the process. Does nothing if it has ended."""
        self.signal(signal.SIGKILL)
        self._child.wait()

    def terminate(self, timeout: float) -> None:
        """Send SIGTERM, then SIGKILL if it has not ended after ``timeout`` seconds."""
        self.signal(signal.SIGTERM)
        try:
            self._child.wait(timeout)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self.kill()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its group. Does nothing if it has ended."""
        if self._child.poll() is None:
            os.killpg(self._child.pid, number)

    def cpu_seconds(self) -> float | None:
        """Return its CPU time in seconds, or None without /proc."""
        try:
            status = Path(f"/proc/{self._child.pid}/stat").read_text()
        except FileNotFoundError:
            return None
        # User and system time are the 12th and 13th fields after the program's name.
        user, system = status.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def log_tail(self, size: int = 3000) -> str:
        """Return the last ``size`` characters of its output."""
        return self._printed()[-size:]

    def has_printed(self, text: str) -> bool:
        """Return whether its whole output contains ``text``, which stack traces may push out of the tail."""
        return text in self._printed()

    def _printed(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")
