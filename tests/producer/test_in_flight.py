from __future__ import annotations

import trio
import trio.testing

from rocketmq_py.producer.in_flight import YIELD_EVERY, InFlight
from rocketmq_py.producer.pending import PendingSend


async def test_senders_wait_for_a_place_and_get_it_in_turn() -> None:
    in_flight = InFlight(most=2, most_bytes=1 << 20)
    first, second = PendingSend(), PendingSend()
    await in_flight.enter(first, 1)
    await in_flight.enter(second, 1)
    order: list[int] = []
    waiting = [PendingSend() for _ in range(3)]

    async def enter(number: int) -> None:
        await in_flight.enter(waiting[number], 1)
        order.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(enter, number)
            await trio.testing.wait_all_tasks_blocked()
        assert order == []
        in_flight.leave(first)
        await trio.testing.wait_all_tasks_blocked()
        assert order == [0]
        in_flight.leave(second)
        assert len(in_flight) == 2  # the place is taken on the waiting task's behalf
        await trio.testing.wait_all_tasks_blocked()
        assert order == [0, 1]
        in_flight.leave(waiting[0])
        await trio.testing.wait_all_tasks_blocked()
        assert order == [0, 1, 2]
    assert len(in_flight) == 2


async def test_bytes_are_bounded_too_and_a_large_one_goes_alone() -> None:
    in_flight = InFlight(most=100, most_bytes=10)
    small, large = PendingSend(), PendingSend()
    await in_flight.enter(small, 6)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(in_flight.enter, large, 50)
        await trio.testing.wait_all_tasks_blocked()
        assert in_flight.bytes == 6
        in_flight.leave(small)
    assert in_flight.bytes == 50


async def test_a_cancelled_wait_takes_no_place_and_wakes_the_next() -> None:
    in_flight = InFlight(most=1, most_bytes=10)
    first, cancelled, next_one = PendingSend(), PendingSend(), PendingSend()
    await in_flight.enter(first, 1)
    scope = trio.CancelScope()

    async def wait_cancellable() -> None:
        with scope:
            await in_flight.enter(cancelled, 1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait_cancellable)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(in_flight.enter, next_one, 1)
        await trio.testing.wait_all_tasks_blocked()
        scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        in_flight.leave(first)
    assert len(in_flight) == 1
    in_flight.leave(next_one)
    await in_flight.all_left()


async def test_a_sender_that_never_waits_lets_others_run() -> None:
    in_flight = InFlight(most=1 << 20, most_bytes=1 << 30)
    ran = False

    async def other() -> None:
        nonlocal ran
        ran = True

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        for _ in range(2 * YIELD_EVERY + 3):  # twice: trio runs ready tasks in any order
            await in_flight.enter(PendingSend(), 1)
        assert ran


async def test_entering_is_a_cancellation_point() -> None:
    in_flight = InFlight(most=10, most_bytes=10)
    with trio.CancelScope() as scope:
        scope.cancel()
        await in_flight.enter(PendingSend(), 1)
    assert scope.cancelled_caught
    assert len(in_flight) == 0


async def test_abandoning_empties_it() -> None:
    in_flight = InFlight(most=10, most_bytes=10)
    pending = PendingSend()
    await in_flight.enter(pending, 3)
    assert in_flight.abandon() == [pending]
    assert (len(in_flight), in_flight.bytes) == (0, 0)
