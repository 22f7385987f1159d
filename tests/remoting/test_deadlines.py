from __future__ import annotations

import math
import os

import pytest
import trio
import trio.testing

from rocketmq_py.protocol.command import Command, encode_response
from rocketmq_py.protocol.frames import FrameDecoder
from rocketmq_py.remoting import Answer, Connection, wire
from rocketmq_py.remoting.deadlines import TICK, Deadlines


class Watched:
    def __init__(self) -> None:
        self.tick = 0
        self.expired_at: float | None = None

    def expire(self) -> None:
        assert self.expired_at is None, "expires once"
        self.expired_at = trio.current_time()


async def test_each_expires_at_its_time_and_not_before(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    deadlines = Deadlines()
    nursery.start_soon(deadlines.run)
    start = trio.current_time()
    timeouts = [3.0, 0.2, 30.0, 0.21, 1.0]
    watched = [Watched() for _ in timeouts]
    for one, timeout in zip(watched, timeouts, strict=True):
        deadlines.add(one, trio.current_time() + timeout)
        await trio.sleep(0)  # the sweeper may already be asleep when an earlier deadline is added
    await trio.sleep(31)
    for one, timeout in zip(watched, timeouts, strict=True):
        assert one.expired_at is not None
        assert timeout <= one.expired_at - start <= timeout + TICK + 1e-9
    nursery.cancel_scope.cancel()


async def test_removed_ones_never_expire(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    deadlines = Deadlines()
    nursery.start_soon(deadlines.run)
    kept, removed = Watched(), Watched()
    deadlines.add(kept, trio.current_time() + 1.0)
    deadlines.add(removed, trio.current_time() + 1.0)
    deadlines.remove(removed)
    await trio.sleep(2)
    assert kept.expired_at is not None
    assert removed.expired_at is None
    deadlines.remove(kept)  # removing an expired one has no effect
    nursery.cancel_scope.cancel()


async def test_expiry_may_defer_others_with_the_same_deadline(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    deadlines = Deadlines()
    nursery.start_soon(deadlines.run)
    watched: list[Watched] = []

    class DefersOthers(Watched):
        def expire(self) -> None:
            super().expire()
            for one in watched:
                if one is not self and one.expired_at is None:
                    deadlines.remove(one)
                    deadlines.add(one, 5.0)

    watched += [DefersOthers(), DefersOthers()]
    for one in watched:
        deadlines.add(one, 1.0)
    await trio.sleep(10)
    assert sorted(one.expired_at or 0.0 for one in watched) == [1.0, 5.0]
    nursery.cancel_scope.cancel()


async def test_an_earlier_deadline_wakes_a_sweeper_that_sleeps_for_a_later_one(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    deadlines = Deadlines()
    nursery.start_soon(deadlines.run)
    deadlines.add(Watched(), trio.current_time() + 30.0)
    await trio.sleep(10)
    soon = Watched()
    deadlines.add(soon, trio.current_time() + 1.0)
    await trio.sleep(1.1)
    assert soon.expired_at is not None
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("never", [math.inf, 1e308])
async def test_infinite_deadline_never_expires_and_can_be_removed(
    never: float, autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    deadlines = Deadlines()
    nursery.start_soon(deadlines.run)
    forever, soon = Watched(), Watched()
    deadlines.add(forever, never)
    deadlines.add(soon, trio.current_time() + 1)
    await trio.sleep(1000)
    assert (forever.expired_at is None, soon.expired_at is None) == (True, False)
    deadlines.remove(forever)
    nursery.cancel_scope.cancel()


def raw_answers(request: bytes, bodies: int) -> bytes:
    """Return the responses to the requests in ``request``, each with a body of the given size."""
    return b"".join([encode_response(one, 0, {}, bytes(bodies)) for one in FrameDecoder().feed(request)])


@pytest.mark.parametrize("late", [0, 1, 3600])
async def test_responses_that_arrived_during_a_stall_are_delivered(
    late: float, mock_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The responses take many reads, and all deadlines have passed before the first read."""
    monkeypatch.setattr(wire, "READ_SIZE", 1024)
    count = 20
    answers: list[Answer] = []
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        stream = await trio.testing.open_stream_to_socket_listener(listener)
        peer = await listener.accept()
    async with peer, trio.open_nursery() as nursery:
        deadlines = Deadlines()
        connection = Connection(stream, deadlines=deadlines, handler=lambda *_: None)
        nursery.start_soon(deadlines.run)
        nursery.start_soon(connection.run)
        for _ in range(count):
            connection.submit(10, {}, deadline=1, timeout=1, on_answer=answers.append)
        await trio.testing.wait_all_tasks_blocked()
        data = raw_answers(await peer.receive_some(1 << 20), 2048)

        # From here on no trio task runs until the deadlines have passed.
        os.set_blocking(peer.socket.fileno(), False)
        assert os.write(peer.socket.fileno(), data) == len(data)
        mock_clock.jump(1 + late)

        await trio.testing.wait_all_tasks_blocked()
        mock_clock.autojump_threshold = 0
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    assert [type(answer) for answer in answers] == [Command] * count
