"""Concurrent requests to several brokers: order, limit of concurrency, partial failures."""

from __future__ import annotations

import pytest
import trio

from rocketmq_py.admin import SomeBrokersFailedError
from rocketmq_py.admin.fan_out import MAX_CONCURRENT, change_each, query_each
from rocketmq_py.errors import ConnectError


async def request(name: str) -> str:
    if name.startswith("down"):
        raise ConnectError(name, "refused")
    return name.upper()


async def test_results_and_failures_keep_the_order_of_the_requests() -> None:
    results = await query_each(["c", "down-1", "a", "b", "down-0", "a"], request)
    assert list(results.values.items()) == [("c", "C"), ("a", "A"), ("b", "B")]
    assert [str(error) for error in results.failures.values()] == [
        "cannot connect to down-1: refused",
        "cannot connect to down-0: refused",
    ]
    assert (await query_each([], request)).values == {}


async def test_concurrency_is_limited(autojump_clock: trio.testing.MockClock) -> None:
    in_flight = maximum = 0

    async def count(_: int) -> None:
        nonlocal in_flight, maximum
        in_flight += 1
        maximum = max(maximum, in_flight)
        await trio.sleep(1)
        in_flight -= 1

    assert len((await query_each(range(MAX_CONCURRENT * 3), count)).values) == MAX_CONCURRENT * 3
    assert maximum == MAX_CONCURRENT


async def test_a_partly_failed_change_names_all_brokers() -> None:
    with pytest.raises(SomeBrokersFailedError) as caught:
        await change_each(["a", "down-1", "b"], request, "changing it")
    assert caught.value.done == ("a", "b")
    assert list(caught.value.failures) == ["down-1"]
    assert str(caught.value) == (
        "changing it failed on 1 of 3: down-1: cannot connect to down-1: refused; it is done on a, b"
    )


async def test_a_failed_change_of_a_single_broker_raises_its_own_error() -> None:
    with pytest.raises(ConnectError, match="down-1"):
        await change_each(["down-1"], request, "changing it")


async def test_other_exceptions_propagate() -> None:
    async def fail(_: str) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await query_each(["a"], fail)
