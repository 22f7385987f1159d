"""Inspection of a cluster, and waiting until a test's expectation is met."""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import trio

from rocketmq_py.arguments import Duration, seconds
from rocketmq_py.callables import check_callable
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.names import dead_letter_topic

DEFAULT_TIMEOUT = 10.0
"""Seconds that a test waits for its expectation."""
CHECK_SECONDS = 0.1
"""Seconds between two checks of a condition, at most."""

_Result = TypeVar("_Result")


class ObservableCluster(ABC):
    """A cluster whose messages and offsets tests inspect and wait for."""

    @abstractmethod
    def messages(self, topic: str) -> list[ReceivedMessage]:
        """Return the messages of a topic, in order within each queue."""

    @abstractmethod
    def committed(self, group: str) -> dict[MessageQueue, int]:
        """Return the committed offsets of a group."""

    def dead_letters(self, group: str) -> list[ReceivedMessage]:
        """Return the dead letters of a group: messages that it failed to process in all retries."""
        return self.messages(dead_letter_topic(group))

    @abstractmethod
    def describe(self) -> str:
        """Return a description of the cluster's contents for the output of failed tests."""

    # Waiting

    def wait_for(
        self, topic: str, count: int = 1, *, timeout: Duration = DEFAULT_TIMEOUT
    ) -> list[ReceivedMessage]:
        """Wait until a topic has at least ``count`` messages. Returns all its messages.

        Args:
            topic: the topic; ``%DLQ%group`` for dead letters.
            count: the number of messages.
            timeout: real seconds.

        Raises:
            AssertionError: the topic has fewer messages after ``timeout``. The error describes the contents
                of the cluster.
            RuntimeError: an event loop runs in this thread and would be blocked. Await :meth:`wait_for_async`
                instead.
        """
        _check_no_event_loop("wait_for")
        return self._wait_for(topic, count, seconds(timeout), threading.Event())

    async def wait_for_async(
        self, topic: str, count: int = 1, *, timeout: Duration = DEFAULT_TIMEOUT
    ) -> list[ReceivedMessage]:
        """Do the same as :meth:`wait_for`, on trio or asyncio."""
        return await _run_in_thread(partial(self._wait_for, topic, count, seconds(timeout)))

    def wait_until(self, condition: Callable[[], object], *, timeout: Duration = DEFAULT_TIMEOUT) -> None:
        """Wait until ``condition()`` is true.

        It is called at least every 0.1 s, and a last time after ``timeout``. An embedded broker has it called
        after each request and each stored message, too.

        Raises the errors of :meth:`wait_for`, and ConfigurationError if ``condition`` needs arguments.
        """
        check_callable(condition, "condition", awaited=False)
        _check_no_event_loop("wait_until")
        self._wait_until(condition, seconds(timeout), threading.Event())

    async def wait_until_async(
        self, condition: Callable[[], object], *, timeout: Duration = DEFAULT_TIMEOUT
    ) -> None:
        """Do the same as :meth:`wait_until`, on trio or asyncio. Another thread calls ``condition``."""
        check_callable(condition, "condition", awaited=False)
        await _run_in_thread(partial(self._wait_until, condition, seconds(timeout)))

    @abstractmethod
    def _count(self, topic: str) -> int:
        """Return the number of messages of a topic."""

    @abstractmethod
    def _change_count(self) -> int:
        """Return how often a condition may have changed: requests and stored messages so far."""

    @abstractmethod
    def _wait_for_change(self, count: int, seconds: float) -> None:
        """Wait for a change after the first ``count``, for at most ``seconds``."""

    def _wait_for(
        self, topic: str, count: int, timeout: float, cancelled: threading.Event
    ) -> list[ReceivedMessage]:
        self._wait(
            lambda: self._count(topic) >= count,
            lambda: f"{topic} has {self._count(topic)} messages, not {count},",
            timeout,
            cancelled,
        )
        return self.messages(topic)

    def _wait_until(
        self, condition: Callable[[], object], timeout: float, cancelled: threading.Event
    ) -> None:
        self._wait(condition, lambda: "the condition is not true", timeout, cancelled)

    def _wait(
        self,
        condition: Callable[[], object],
        explain: Callable[[], str],
        timeout: float,
        cancelled: threading.Event,
    ) -> None:
        """Wait until ``condition()`` is true, or return early when ``cancelled`` is set.

        Raises AssertionError with the explanation after ``timeout``.
        """
        deadline = time.monotonic() + timeout
        while not cancelled.is_set():
            changes, left = self._change_count(), deadline - time.monotonic()
            if condition():
                return
            if left <= 0:
                raise AssertionError(f"{explain()} after {timeout:g} s\n{self.describe()}")
            # A condition may depend on the program under test, whose progress causes no request.
            self._wait_for_change(changes, min(left, CHECK_SECONDS))


def _check_no_event_loop(name: str) -> None:
    """Raise RuntimeError if trio or asyncio runs in this thread."""
    if trio.lowlevel.in_trio_run() or _asyncio_runs():
        raise RuntimeError(f"{name} would block the event loop of this thread: use await {name}_async(...)")


def _asyncio_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _run_in_thread(function: Callable[[threading.Event], _Result]) -> _Result:
    """Run a function in a thread. When this task is cancelled, set the event that the function gets."""
    cancelled = threading.Event()
    try:
        if trio.lowlevel.in_trio_run():
            return await trio.to_thread.run_sync(function, cancelled, abandon_on_cancel=True)
        return await asyncio.to_thread(function, cancelled)
    finally:
        cancelled.set()
