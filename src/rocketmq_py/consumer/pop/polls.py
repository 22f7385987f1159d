"""Pops under way, and what they brought that nobody has taken yet."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from typing import Final

import attrs
import trio

from rocketmq_py.consumer.pop.messages import PoppedMessage
from rocketmq_py.consumer.pop.requests import PopSpec
from rocketmq_py.errors import RocketMQError

logger: Final = logging.getLogger("rocketmq_py.consumer")

LATEST_SHARE = 0.5
"""How much of a message's time may have gone when it is handed out: its handler needs the rest."""

Pop = Callable[[str, PopSpec, float], Awaitable[list[PoppedMessage]]]
"""Takes messages from a broker, by its name, that may hold the request for so many seconds."""


@attrs.define(eq=False)
class Poll:
    """One pop under way.

    Attributes:
        broker_name, spec: what is asked of whom.
        is_awaited: whether somebody waits for it.
        error: how it failed, else None.
    """

    broker_name: str
    spec: PopSpec
    is_awaited: bool = True
    error: RocketMQError | None = None


@attrs.frozen
class _Kept:
    message: PoppedMessage
    until: float


class Polls:
    """Has brokers asked in the background, so that what they give outlives the call that asked.

    A broker that has been asked holds the request, and gives messages to it whoever waits here. A call that
    is cancelled leaves its poll to the next one that wants the same, which so gets the messages in time.

    Args:
        pop: asks a broker.
    """

    def __init__(self, pop: Pop) -> None:
        self._pop = pop
        self._under_way: list[Poll] = []
        self._kept: deque[_Kept] = deque()
        self._changed = trio.lowlevel.ParkingLot()

    def take(self, topics: Collection[str], count: int) -> list[PoppedMessage]:
        """Return messages of these topics that have come, and have time left; they are the caller's now."""
        taken: list[PoppedMessage] = []
        left: deque[_Kept] = deque()
        now = trio.current_time()
        for kept in self._kept:
            if kept.until < now:
                continue  # it comes again
            if kept.message.topic in topics and len(taken) < count:
                taken.append(kept.message)
            else:
                left.append(kept)
        self._kept = left
        return taken

    async def wait(
        self, nursery: trio.Nursery, broker_name: str, spec: PopSpec, *, hold: float, topics: Collection[str]
    ) -> None:
        """Ask a broker, and wait until it has answered or other messages of these topics have come.

        Args:
            nursery: where the asking is done.
            broker_name: the broker.
            spec: what is asked for.
            hold: seconds that it may hold the request.
            topics: what the caller would take.

        Raises:
            RocketMQError: what came of it.

        When cancelled, what it brings is kept for the next call.
        """
        limit = hold
        poll = self._left_alone(broker_name, spec)
        if poll is None:
            limit = math.inf
            poll = Poll(broker_name, spec)
            self._under_way.append(poll)
            nursery.start_soon(self._run, poll, hold)
        poll.is_awaited = True
        try:
            with trio.move_on_after(limit):
                while poll in self._under_way and not self._has(topics):
                    await self._changed.park()
        finally:
            poll.is_awaited = False
        if poll.error is not None:
            raise poll.error

    def _left_alone(self, broker_name: str, spec: PopSpec) -> Poll | None:
        for poll in self._under_way:
            if not poll.is_awaited and (poll.broker_name, poll.spec) == (broker_name, spec):
                return poll
        return None

    def _has(self, topics: Collection[str]) -> bool:
        return any(kept.message.topic in topics for kept in self._kept)

    async def _run(self, poll: Poll, hold: float) -> None:
        try:
            messages = await self._pop(poll.broker_name, poll.spec, hold)
            until = trio.current_time() + poll.spec.invisible * LATEST_SHARE
            self._kept += [_Kept(message, until) for message in messages]
        except RocketMQError as error:
            poll.error = error
            if not poll.is_awaited:
                logger.info("nobody waits for this any more: %s: %s", poll.broker_name, error)
        finally:
            self._under_way.remove(poll)
            self._changed.unpark_all()
