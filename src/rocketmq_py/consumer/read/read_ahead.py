"""Pulls of a span that are under way before it is their turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TypeAlias

import attrs
import trio

from rocketmq_py.consumer.pull.queue_puller import RawPulled
from rocketmq_py.consumer.read.chunk_buffer import ChunkBuffer
from rocketmq_py.errors import RocketMQError

RELEARN_AFTER = 256
"""Pulls ahead after which one asks for all that its broker gives at once: it may have become more."""

OnEnd: TypeAlias = Callable[[RawPulled | None], None]
Begin: TypeAlias = Callable[[int, int, OnEnd], Callable[[], None] | None]


@attrs.define(eq=False)
class Ahead:
    """A pull that is under way, or has brought something.

    Attributes:
        start: the offset from which it asks.
        end: up to where.
        reserved: the space for what it brings.
        pulled: what it brought, if it did.
        is_done: whether it has ended.
        stop: stops it.
    """

    start: int
    end: int
    reserved: int
    pulled: RawPulled | None = None
    is_done: bool = False
    stop: Callable[[], None] | None = None


class ReadAhead:
    """What is pulled of a queue at the same time, in the order of its offsets.

    Brokers give few messages at once (maxTransferCountOnMessageInMemory: 32; from disk 8), so that a queue
    that is pulled one after the other comes at the pace of round trips. As many as the last pull brought are
    taken to come in each of the next. What comes differently does no harm: a part is taken as it is, and
    what fails here is left to who pulls in turn.

    What half of them brought is taken together, and as many are asked for together then: to wake a task for
    each, and to write it by itself, would cost several times as much as all else.

    Args:
        nursery: where pulls run that ``begin`` cannot begin.
        begin: begins a pull from an offset to before another, and gives what it brought, None if it failed,
            to a function. Returns what stops it, or None where it cannot begin without waiting.
        pull: pulls the same, and waits for it.
        buffer: where the space for them is.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        begin: Begin,
        pull: Callable[[int, int], Awaitable[RawPulled]],
        buffer: ChunkBuffer,
    ) -> None:
        self._nursery = nursery
        self._begin = begin
        self._pull = pull
        self._buffer = buffer
        self._pulls: deque[Ahead] = deque()
        self._stride = 0
        self._until_relearning = 0
        self._awaited: Ahead | None = None
        self._parked = trio.lowlevel.ParkingLot()

    def learn(self, asked: int, brought: int, *, is_limited: bool) -> None:
        """Take note of what a pull brought.

        Args:
            asked: the messages that it asked for.
            brought: those that came.
            is_limited: whether more than were asked for might have come.
        """
        if not is_limited:
            self._until_relearning = RELEARN_AFTER
        if not is_limited or brought < asked:
            self._stride = brought

    def start(self, offset: int, end: int, *, depth: int, size: int) -> None:
        """Have up to ``depth`` pulls under way, from ``offset`` to before ``end``, while there is space.

        Args:
            offset: what comes next in turn.
            end: where the span ends.
            depth: how many; 1 for none ahead.
            size: bytes that one is taken to bring.
        """
        while self._pulls and self._pulls[0].start < offset:
            self._release(self._pulls.popleft())
        if depth < 2 or not self._stride or len(self._pulls) > depth // 2:
            return
        start = self._pulls[-1].end if self._pulls else offset
        while start < end and len(self._pulls) < depth and self._until_relearning:
            reserved = self._buffer.reserve_nowait(size)
            if not reserved:
                return
            ahead = Ahead(start, min(start + self._stride, end), reserved)
            self._pulls.append(ahead)
            self._run(ahead)
            self._until_relearning -= 1
            start = ahead.end

    def limit(self, end: int) -> int:
        """Return up to where nothing is under way."""
        return self._pulls[0].start if self._pulls else end

    async def take(self, offset: int, *, leave: int) -> list[Ahead]:
        """Wait for the pull from ``offset`` on. Return it, and those after it that have brought something.

        All but the last brought as much as they asked for; at most ``leave`` are left, if so many have come.
        None at all if there is no such pull, it failed, or it found nothing.
        """
        if self.limit(-1) != offset:
            return []
        pulls = self._pulls
        if not pulls[0].is_done:
            await self._wait_for(pulls[(len(pulls) - 1) // 2])  # most come in order
            while not pulls[0].is_done:
                await self._wait_for(pulls[0])
        taken: list[Ahead] = []
        while pulls and (len(pulls) > leave or not taken):
            ahead = pulls[0]
            pulled = ahead.pulled
            if ahead.start != offset or pulled is None or not pulled.brings_after(offset):
                break
            taken.append(pulls.popleft())
            offset = pulled.next_offset
        if not taken:
            self._release(pulls.popleft())
        return taken

    def make_space(self, size: int) -> None:
        """Drop what comes last, until so many bytes are free: what comes before it is wanted first."""
        while self._pulls and not self._buffer.has_space(size):
            self._release(self._pulls.pop())

    def stop(self) -> None:
        """Drop all; their pulls are cancelled."""
        while self._pulls:
            self._release(self._pulls.pop())

    def _release(self, ahead: Ahead) -> None:
        if ahead.stop is not None and not ahead.is_done:
            ahead.stop()  # what it brought would be held beside what the buffer allows
        self._buffer.release(ahead.reserved)

    def _run(self, ahead: Ahead) -> None:
        try:
            ahead.stop = self._begin(ahead.start, ahead.end, partial(self._end, ahead))
        except RocketMQError:
            self._end(ahead, None)
            return
        if ahead.stop is None:
            scope = trio.CancelScope()
            ahead.stop = scope.cancel
            self._nursery.start_soon(self._wait, ahead, scope)

    async def _wait(self, ahead: Ahead, scope: trio.CancelScope) -> None:
        pulled = None
        with scope, suppress(RocketMQError):  # asked for again in its turn, where a failure counts
            pulled = await self._pull(ahead.start, ahead.end)
        self._end(ahead, pulled)

    def _end(self, ahead: Ahead, pulled: RawPulled | None) -> None:
        ahead.pulled, ahead.is_done = pulled, True
        if ahead is self._awaited:
            self._parked.unpark_all()

    async def _wait_for(self, ahead: Ahead) -> None:
        if not ahead.is_done:
            self._awaited = ahead
            await self._parked.park()
