"""Cancelling an operation at each of its awaits in turn."""

from __future__ import annotations

import itertools
import os
from collections.abc import Awaitable, Callable

import trio


class _CancelAtStep(trio.abc.Instrument):
    """Cancels a scope when a task has been suspended the given number of times."""

    def __init__(self, task: trio.lowlevel.Task, scope: trio.CancelScope, step: int) -> None:
        self.task = task
        self.scope = scope
        self.steps_left = step

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self.task:
            self.steps_left -= 1
            if self.steps_left == 0:
                self.scope.cancel()


async def cancel_at_each_await(
    operation: Callable[[], Awaitable[object]], check: Callable[[], Awaitable[object]]
) -> int:
    """Run ``operation`` repeatedly, cancelled before it begins, at its first await, its second ….

    ``check`` runs after each run and raises if something leaked. The first run that finishes before its
    cancellation is the last. Returns the number of cancelled awaits.
    """
    for step in itertools.count():
        finished = False
        with trio.CancelScope() as scope:
            if step == 0:
                scope.cancel()
            instrument = _CancelAtStep(trio.lowlevel.current_task(), scope, step)
            trio.lowlevel.add_instrument(instrument)
            try:
                await operation()
                finished = True
            finally:
                trio.lowlevel.remove_instrument(instrument)
        await check()
        if finished and not scope.cancel_called:
            return step
    raise AssertionError("not reached")


def open_sockets() -> int:
    folder = "/proc/self/fd"
    count = 0
    for name in os.listdir(folder):
        try:
            count += os.readlink(f"{folder}/{name}").startswith("socket:")
        except FileNotFoundError:
            continue  # the descriptor of the listing itself
    return count


async def cancelled_error() -> trio.Cancelled:
    """Return the error of a cancellation that has ended."""
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as error:
            return error
    raise AssertionError
