"""Limits on the rate of requests.

:class:`RateLimiter` keeps to one of our own. :func:`ask_within` repeats requests that a service refuses
because they exceed its limit (FLOW_CONTROL, 215).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from rocketmq_py.codes import ResponseCode
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting.back_off import BackOff

BACK_OFF: Final = BackOff(0.5)
"""Seconds until a refused request is sent again."""


async def ask_within(timeout: float, ask: Callable[..., Awaitable[Command]]) -> Command:
    """Send a request, and return its answer. Repeat it with a back-off while the service limits the rate.

    A refused request was not executed, so that each may be repeated.

    Args:
        timeout: seconds for all attempts together. The answer to the last one may be a refusal.
        ask: sends the request. It gets the seconds that are left as ``timeout``.
    """
    deadline = trio.current_time() + timeout
    refusals = 0
    while True:
        answer = await ask(timeout=max(deadline - trio.current_time(), 0.0))
        refusals += 1
        back_off = BACK_OFF.after(refusals)
        if answer.code != ResponseCode.FLOW_CONTROL or trio.current_time() + back_off >= deadline:
            return answer
        await trio.sleep(back_off)


class RateLimiter:
    """Limits the number of messages per second.

    Args:
        per_second: the limit. ``math.inf`` for no limit.
        burst_seconds: the unused rate of at most this many seconds may be used at once.
    """

    def __init__(self, per_second: float, *, burst_seconds: float) -> None:
        self._seconds_each = 1 / per_second
        self._burst_seconds = burst_seconds
        self._next_at = trio.current_time()

    async def wait(self, count: int = 1) -> float:
        """Wait until ``count`` more messages may be sent, and return when they were due, on trio's clock."""
        now = trio.current_time()
        if not self._seconds_each:
            return now
        due = self._next_at
        self._next_at = max(due, now - self._burst_seconds) + count * self._seconds_each
        if due > now:
            await trio.sleep_until(due)
        return due
