from __future__ import annotations

import trio
import trio.testing

from rocketmq_py.producer.room import Room


def test_what_is_left_can_be_taken() -> None:
    room = Room(10)
    assert room.take_nowait(6)
    assert not room.take_nowait(5)
    assert room.take_nowait(4)
    assert room.taken == 10
    room.give(6)
    assert room.take_nowait(5)


def test_more_than_there_is_goes_alone() -> None:
    room = Room(10)
    assert room.take_nowait(50)
    assert not room.take_nowait(1)
    room.give(50)
    assert room.take_nowait(1)
    assert not room.take_nowait(50)


async def test_bytes_are_given_in_turn() -> None:
    room = Room(10)
    assert room.take_nowait(10)
    order: list[int] = []

    async def take(size: int) -> None:
        await room.take(size)
        order.append(size)

    async with trio.open_nursery() as nursery:
        for size in (7, 2, 8):
            nursery.start_soon(take, size)
            await trio.testing.wait_all_tasks_blocked()
        assert room.is_wanted
        room.give(5)
        await trio.testing.wait_all_tasks_blocked()
        assert order == [], "the first comes first, and its bytes are not there"
        assert not room.take_nowait(1)
        room.give(5)
        assert room.taken == 9, "they are taken on the waiting tasks' behalf"
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(order) == [2, 7]
        room.give(7)
    assert order[2:] == [8]
    assert not room.is_wanted


async def test_a_cancelled_wait_takes_nothing_and_lets_the_next_one_in() -> None:
    room = Room(10)
    assert room.take_nowait(6)
    scope = trio.CancelScope()

    async def take_cancellable() -> None:
        with scope:
            await room.take(8)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take_cancellable)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(room.take, 4)
        await trio.testing.wait_all_tasks_blocked()
        assert room.taken == 6
        scope.cancel()
    assert room.taken == 10
