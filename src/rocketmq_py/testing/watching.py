"""Looking at brokers until what a test expects has come."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import trio

from rocketmq_py.callables import check_callable
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.names import dead_letter_topic

DEFAULT_TIMEOUT = 10.0
"""Seconds that a test waits for what it expects."""

_Result = TypeVar("_Result")


class Watched(ABC):
    """What can be looked at, and waited for."""

    @abstractmethod
    def messages(self, topic: str) -> list[ReceivedMessage]:
        """Return what is stored in a topic, in the order in which each broker stored it."""

    @abstractmethod
    def offsets(self, group: str) -> dict[MessageQueue, int]:
        """Return what a group has committed: where it goes on in each queue."""

    def dead_letters(self, group: str) -> list[ReceivedMessage]:
        """Return the dead letters of a group: what failed for the last time."""
        return self.messages(dead_letter_topic(group))

    @abstractmethod
    def describe(self) -> str:
        """Return what is there, as failures show it."""

    # Waiting

    def wait_for(
        self, topic: str, count: int = 1, *, timeout: float = DEFAULT_TIMEOUT
    ) -> list[ReceivedMessage]:
        """Wait until a topic has ``count`` messages or more, and return all that it has.

        Args:
            topic: of which topic; ``%DLQ%group`` for dead letters.
            count: how many.
            timeout: real seconds.

        Raises:
            AssertionError: it has fewer after ``timeout``; it says what is there.
            RuntimeError: a loop runs in this thread, which this would hold up: await :meth:`arrived`.
        """
        self._wait(
            lambda: self._count(topic) >= count,
            lambda: f"{topic} has {len(self.messages(topic))} messages, not {count},",
            "wait_for",
            "arrived",
            timeout,
        )
        return self.messages(topic)

    async def arrived(
        self, topic: str, count: int = 1, *, timeout: float = DEFAULT_TIMEOUT
    ) -> list[ReceivedMessage]:
        """As :meth:`wait_for`, to be awaited on trio or asyncio."""
        return await _in_thread(partial(self.wait_for, topic, count, timeout=timeout))

    def wait_until(self, condition: Callable[[], object], *, timeout: float = DEFAULT_TIMEOUT) -> None:
        """Wait until ``condition()`` is true: it is asked whenever something was asked or stored.

        Raises as :meth:`wait_for`, and ConfigurationError if ``condition`` accepts no empty argument list.
        """
        check_callable(condition, "condition", awaited=False)
        self._wait(condition, lambda: "what was waited for has not come,", "wait_until", "held", timeout)

    async def held(self, condition: Callable[[], object], *, timeout: float = DEFAULT_TIMEOUT) -> None:
        """As :meth:`wait_until`, to be awaited on trio or asyncio; another thread calls ``condition``."""
        await _in_thread(partial(self.wait_until, condition, timeout=timeout))

    @abstractmethod
    def _count(self, topic: str) -> int:
        """Return how many messages a topic has."""

    @abstractmethod
    def _seen(self) -> int:
        """Return how much has happened."""

    @abstractmethod
    def _changed(self, seen: int, seconds: float) -> bool:
        """Wait until more than ``seen`` has happened, or may have; return whether it has."""

    def _wait(
        self,
        condition: Callable[[], object],
        lacking: Callable[[], str],
        name: str,
        awaited: str,
        timeout: float,
    ) -> None:
        if _is_in_loop():
            raise RuntimeError(
                f"{name} would hold up the loop that runs in this thread: use await {awaited}(...)"
            )
        deadline = time.monotonic() + timeout
        while True:
            seen = self._seen()
            if condition():
                return
            if not self._changed(seen, deadline - time.monotonic()):
                raise AssertionError(f"{lacking()} after {timeout:g} s\n{self.describe()}")


def _is_in_loop() -> bool:
    if trio.lowlevel.in_trio_run():
        return True
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _in_thread(function: Callable[[], _Result]) -> _Result:
    if trio.lowlevel.in_trio_run():
        return await trio.to_thread.run_sync(function, abandon_on_cancel=True)
    return await asyncio.to_thread(function)
