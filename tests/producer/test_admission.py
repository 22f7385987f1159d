from __future__ import annotations

import math

import pytest
import trio
import trio.testing

from rocketmq_py.errors import ClosedError
from rocketmq_py.producer.admission import YIELD_EVERY, Admission


async def test_senders_wait_for_space_in_fifo_order() -> None:
    admission = Admission(2, 1 << 20)
    await admission.enter(1)
    await admission.enter(1)
    order: list[int] = []

    async def enter(number: int) -> None:
        await admission.enter(1)
        order.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(enter, number)
            await trio.testing.wait_all_tasks_blocked()
        assert order == []
        assert admission.has_waiters
        admission.leave(1)
        await trio.testing.wait_all_tasks_blocked()
        assert order == [0]
        admission.leave(1)
        assert admission.count == 2, "the space is taken for the waiting task"
        await trio.testing.wait_all_tasks_blocked()
        assert order == [0, 1]
        admission.leave(1)
        await trio.testing.wait_all_tasks_blocked()
        assert order == [0, 1, 2]
    assert admission.count == 2
    assert not admission.has_waiters


async def test_bytes_are_granted_in_fifo_order() -> None:
    admission = Admission(math.inf, 10)
    await admission.enter(10)
    order: list[int] = []

    async def enter(size: int) -> None:
        await admission.enter(size)
        order.append(size)

    async with trio.open_nursery() as nursery:
        for size in (7, 2, 8):
            nursery.start_soon(enter, size)
            await trio.testing.wait_all_tasks_blocked()
        admission.leave(4, 0)
        await trio.testing.wait_all_tasks_blocked()
        assert order == [], "the first waits, and blocks the others"
        admission.leave(6)
        assert admission.bytes == 9
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(order) == [2, 7]
        admission.leave(7)
    assert order[2:] == [8]


async def test_a_send_above_the_bound_of_bytes_goes_alone() -> None:
    admission = Admission(100, 10)
    await admission.enter(6)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(admission.enter, 50)
        await trio.testing.wait_all_tasks_blocked()
        assert admission.bytes == 6
        admission.leave(6)
    assert admission.bytes == 50


async def test_several_sends_leave_together() -> None:
    admission = Admission(3, 10)
    for _ in range(3):
        await admission.enter(2)
    admission.leave(4, 2)
    assert (admission.count, admission.bytes) == (1, 2)


async def test_on_full_is_called_when_a_task_starts_to_wait() -> None:
    full: list[int] = []
    admission = Admission(1, 10, lambda: full.append(1))
    await admission.enter(1)
    assert not full
    async with trio.open_nursery() as nursery:
        nursery.start_soon(admission.enter, 1)
        await trio.testing.wait_all_tasks_blocked()
        assert full == [1]
        admission.leave(1)


async def test_a_cancelled_wait_takes_no_space_and_admits_the_next() -> None:
    admission = Admission(math.inf, 10)
    await admission.enter(6)
    scope = trio.CancelScope()

    async def enter_cancellable() -> None:
        with scope:
            await admission.enter(8)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(enter_cancellable)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(admission.enter, 4)
        await trio.testing.wait_all_tasks_blocked()
        assert admission.bytes == 6
        scope.cancel()
    assert (admission.count, admission.bytes) == (2, 10)


async def test_a_sender_that_never_waits_yields_to_other_tasks() -> None:
    admission = Admission(1 << 20, 1 << 30)
    ran = False

    async def other() -> None:
        nonlocal ran
        ran = True

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        for _ in range(2 * YIELD_EVERY + 3):  # twice: trio runs ready tasks in any order
            await admission.enter(1)
        assert ran


async def test_entering_is_a_cancellation_point() -> None:
    admission = Admission(10, 10)
    with trio.CancelScope() as scope:
        scope.cancel()
        await admission.enter(1)
    assert scope.cancelled_caught
    assert admission.count == 0


async def test_closing_fails_the_tasks_that_wait_and_later_ones() -> None:
    admission = Admission(2, 10)
    await admission.enter(10)
    failed: list[int] = []

    async def enter(size: int) -> None:
        with pytest.raises(ClosedError):
            await admission.enter(size)
        failed.append(size)

    async with trio.open_nursery() as nursery:
        for size in (3, 4):
            nursery.start_soon(enter, size)
            await trio.testing.wait_all_tasks_blocked()
        admission.leave(10)  # admits both, before they run
        nursery.start_soon(enter, 10)
        admission.close()
    assert sorted(failed) == [3, 4, 10]
    assert (admission.count, admission.bytes) == (0, 0)
    assert not admission.enter_nowait(1)
    with pytest.raises(ClosedError):
        await admission.enter(1)


async def test_closing_fails_a_task_that_yields(monkeypatch: pytest.MonkeyPatch) -> None:
    admission = Admission(math.inf, 10, yield_every=1)
    assert admission.enter_nowait(1)

    async def close() -> None:
        admission.close()

    monkeypatch.setattr(trio.lowlevel, "checkpoint", close)
    with pytest.raises(ClosedError):
        await admission.enter(1)
    assert not admission.enter_nowait(1)
