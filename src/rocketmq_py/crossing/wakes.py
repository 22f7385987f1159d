"""Waking those who wait elsewhere for what happens in trio's thread."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import trio

logger: Final = logging.getLogger("rocketmq_py.crossing")


class Wakes(trio.abc.Instrument):
    """What wakes others, put off until the thread is about to wait: they find all that has come by then.

    Whoever is woken wants the interpreter's lock, and would take it in the midst of what there is to do.
    """

    def __init__(self) -> None:
        self._put_off: list[Callable[[], object]] = []

    def add(self, wake: Callable[[], object]) -> None:
        """Have one called (in the thread)."""
        self._put_off.append(wake)

    def before_io_wait(self, timeout: float) -> None:
        """Call them: all tasks that could run have had their turn."""
        if self._put_off:
            put_off, self._put_off = self._put_off, []
            for wake in put_off:
                try:
                    wake()
                except BaseException:  # else trio would call this no more
                    logger.exception("waking what waits for the thread that runs trio has failed")
