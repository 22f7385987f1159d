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
    f"--add-{what}=java.base/{package}=ALL-UNNAMED"
    for what, package in (
        ("opens", "java.nio"),
        ("exports", "sun.nio.ch"),
        ("opens", "sun.nio.ch"),
        ("exports", "jdk.internal.ref"),
        ("opens", "jdk.internal.ref"),
        ("opens", "java.lang"),
    )
)
"""What RocketMQ reaches for inside the JDK, and what Java 17 hides."""


def end_with_parent() -> Callable[[], None] | None:
    """Return what a child runs before ``exec`` so that Linux ends it with its parent; None elsewhere.

    Linux counts the *thread* that started the child as its parent: start processes from the main one.
    """
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def run_in_child() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        # The parent may have died between fork and prctl: then nobody would be left to tell us.
        if os.getppid() != parent:
            os._exit(1)

    return run_in_child


class Process:
    """One program in a process group of its own.

    On Linux it is killed when this interpreter ends, however that ends; see :func:`end_with_parent`.

    Args:
        argv: the command line.
        log: the file that takes both of its standard streams, appended to.
        folder: where it runs; its ``HOME`` and ``ROCKETMQ_HOME`` too.
    """

    def __init__(self, argv: Sequence[str], *, log: Path, folder: Path) -> None:
        self.log = log
        environment = {**os.environ, "HOME": str(folder), "ROCKETMQ_HOME": str(folder)}
        # Options meant for every JVM of a machine would change how this one runs, and print a line each.
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
        """Whether it has not ended yet (a frozen one is running)."""
        return self._child.poll() is None

    @property
    def was_killed(self) -> bool:
        """Whether it has ended by SIGKILL."""
        return self._child.poll() == -signal.SIGKILL

    def kill(self) -> None:
        """End the whole group with SIGKILL and wait for it; nothing happens when it has ended."""
        self.signal(signal.SIGKILL)
        self._child.wait()

    def terminate(self, timeout: float) -> None:
        """Ask it to end with SIGTERM, and kill it when it has not after ``timeout`` seconds."""
        self.signal(signal.SIGTERM)
        try:
            self._child.wait(timeout)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self.kill()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its group; nothing happens when it has ended."""
        if self._child.poll() is None:
            os.killpg(self._child.pid, number)

    def cpu_seconds(self) -> float | None:
        """Return the processor time that it has used, or None where there is no /proc to tell it."""
        try:
            status = Path(f"/proc/{self._child.pid}/stat").read_text()
        except FileNotFoundError:
            return None
        # After the program's name, which may hold anything: user and system time are the 12th and 13th.
        user, system = status.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def log_tail(self, size: int = 3000) -> str:
        """Return the last ``size`` characters that it printed."""
        return self._printed()[-size:]

    def has_printed(self, text: str) -> bool:
        """Whether ``text`` is anywhere in what it printed: stack traces push it out of the tail."""
        return text in self._printed()

    def _printed(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")
