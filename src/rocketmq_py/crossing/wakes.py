"""What trio's thread does before and after it waits: it wakes others, and lets them in."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

import trio

logger: Final = logging.getLogger("rocketmq_py.crossing")


class Wakes(trio.abc.Instrument):
    """What wakes others, put off until the thread is about to wait: they find all that has come by then.

    Whoever is woken wants the interpreter's lock, and would take it in the midst of what there is to do.

    Attributes:
        running: what the thread has while it does not wait. Who has it instead may do there what needs
            nothing of trio, and takes not long.
    """

    def __init__(self) -> None:
        self._put_off: list[Callable[[], object]] = []
        self.running: Final = threading.Lock()
        self._is_running = False

    def add(self, wake: Callable[[], object]) -> None:
        """Have one called (in the thread)."""
        self._put_off.append(wake)

    def before_run(self) -> None:
        """Begin to run."""
        self.after_io_wait(0)

    def before_io_wait(self, timeout: float) -> None:
        """Let others in, and wake them: all tasks that could run have had their turn."""
        self._is_running = False  # as let_in() does: this is called for most messages
        self.running.release()
        if self._put_off:
            self.call()

    def after_io_wait(self, timeout: float) -> None:
        """Let nobody in."""
        self.running.acquire()
        self._is_running = True

    def let_in(self) -> None:
        """Let others in."""
        if self._is_running:
            self._is_running = False
            self.running.release()

    def call(self) -> None:
        """Wake them."""
        put_off, self._put_off = self._put_off, []
        for wake in put_off:
            try:
                wake()
            except BaseException:  # else trio would call this no more
                logger.exception("waking what waits for the thread that runs trio has failed")
