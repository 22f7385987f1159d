"""Repeats requests that a service refuses because they exceed its limit on the rate (FLOW_CONTROL, 215)."""

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
