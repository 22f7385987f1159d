"""The limit on the rate of our own requests."""

from __future__ import annotations

import math

import pytest
import trio
import trio.testing

from rocketmq_py.client.flow_control import RateLimiter


async def times_of(limiter: RateLimiter, counts: list[int]) -> list[float]:
    """Return the time after each wait, since the first one began."""
    start = trio.current_time()
    found = []
    for count in counts:
        await limiter.wait(count)
        found.append(trio.current_time() - start)
    return found


async def test_messages_are_spread_over_time(autojump_clock: trio.testing.MockClock) -> None:
    limiter = RateLimiter(10, burst_seconds=0.0)
    assert await times_of(limiter, [1, 1, 5, 1]) == pytest.approx([0, 0.1, 0.2, 0.7])


async def test_an_unused_rate_may_be_used_at_once(autojump_clock: trio.testing.MockClock) -> None:
    limiter = RateLimiter(10, burst_seconds=0.2)
    await limiter.wait()
    await trio.sleep(60)
    assert await times_of(limiter, [1] * 5) == pytest.approx([0, 0, 0, 0.1, 0.2])


async def test_the_due_time_is_returned(autojump_clock: trio.testing.MockClock) -> None:
    limiter = RateLimiter(10, burst_seconds=0.0)
    first = await limiter.wait()
    assert await limiter.wait() == pytest.approx(first + 0.1)


async def test_without_a_limit_nothing_waits(autojump_clock: trio.testing.MockClock) -> None:
    limiter = RateLimiter(math.inf, burst_seconds=0.0)
    start = trio.current_time()
    assert [await limiter.wait(10**6) for _ in range(3)] == [start] * 3
    assert trio.current_time() == start
