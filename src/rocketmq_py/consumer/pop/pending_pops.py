"""Pops in progress, and popped messages that no caller has received yet."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final

import attrs
import trio

from rocketmq_py.consumer.pop.messages import PoppedMessage
from rocketmq_py.consumer.pop.requests import PopSpec
from rocketmq_py.errors import RocketMQError
from rocketmq_py.library_logger import LibraryLogger

logger: Final = LibraryLogger("rocketmq_py.consumer")

LATEST_SHARE = 0.5
"""The share of a message's invisible time after which it is not returned any more."""

Pop = Callable[[str, PopSpec, float], Awaitable[list[PoppedMessage]]]
"""Pops from the broker of this name, which may hold the request for so many seconds."""


@attrs.define(eq=False)
class PendingPop:
    """A pop in progress.

    Attributes:
        broker_name, spec: the broker and the request.
        is_awaited: whether a caller waits for it.
        error: the error if it failed.
    """

    broker_name: str
    spec: PopSpec
    is_awaited: bool = True
    error: RocketMQError | None = None


@attrs.frozen
class BufferedMessage:
    """A popped message that no caller has received yet.

    Attributes:
        message: the message.
        until: the time on trio's clock after which it is not returned any more.
    """

    message: PoppedMessage
    until: float


class PendingPops:
    """Pops in the background, so that popped messages outlive a cancelled call.

    A broker that holds a pop delivers messages to it even if the caller was cancelled. The next call for the
    same messages takes over the pop of a cancelled one, and so receives its messages in time.

    Args:
        pop: sends a pop.
    """

    def __init__(self, pop: Pop) -> None:
        self._pop = pop
        self._pending: list[PendingPop] = []
        self._buffered: deque[BufferedMessage] = deque()
        self._changed = trio.lowlevel.ParkingLot()

    def take(self, topics: Collection[str], count: int) -> list[BufferedMessage]:
        """Take up to ``count`` buffered messages of these topics with enough invisible time left."""
        messages: list[BufferedMessage] = []
        remaining: deque[BufferedMessage] = deque()
        now = trio.current_time()
        for buffered in self._buffered:
            if buffered.until < now:
                continue  # the broker redelivers it
            if buffered.message.topic in topics and len(messages) < count:
                messages.append(buffered)
            else:
                remaining.append(buffered)
        self._buffered = remaining
        return messages

    def put_back(self, messages: Sequence[BufferedMessage]) -> None:
        """Put taken messages back in front of the others, for the next :meth:`take`."""
        self._buffered.extendleft(reversed(messages))
        self._changed.unpark_all()

    def take_all(self) -> list[PoppedMessage]:
        """Take all buffered messages."""
        messages = [buffered.message for buffered in self._buffered]
        self._buffered.clear()
        return messages

    async def wait(
        self, nursery: trio.Nursery, broker_name: str, spec: PopSpec, *, hold: float, topics: Collection[str]
    ) -> None:
        """Pop from a broker, and wait until it has answered or messages of these topics have arrived.

        Args:
            nursery: runs the pop.
            broker_name: the broker.
            spec: the request.
            hold: seconds that the broker may hold the request.
            topics: the topics that the caller waits for.

        Raises:
            RocketMQError: the pop failed.

        When cancelled, the popped messages are buffered for the next call.
        """
        limit = hold
        pending = self._find_abandoned(broker_name, spec)
        if pending is None:
            limit = math.inf
            pending = PendingPop(broker_name, spec)
            self._pending.append(pending)
            nursery.start_soon(self._run, pending, hold)
        pending.is_awaited = True
        try:
            with trio.move_on_after(limit):
                while pending in self._pending and not self._has_messages_of(topics):
                    await self._changed.park()
        finally:
            pending.is_awaited = False
        if pending.error is not None:
            raise pending.error

    def _find_abandoned(self, broker_name: str, spec: PopSpec) -> PendingPop | None:
        for pending in self._pending:
            if not pending.is_awaited and (pending.broker_name, pending.spec) == (broker_name, spec):
                return pending
        return None

    def _has_messages_of(self, topics: Collection[str]) -> bool:
        return any(buffered.message.topic in topics for buffered in self._buffered)

    async def _run(self, pending: PendingPop, hold: float) -> None:
        try:
            messages = await self._pop(pending.broker_name, pending.spec, hold)
            until = trio.current_time() + pending.spec.invisible * LATEST_SHARE
            self._buffered += [BufferedMessage(message, until) for message in messages]
        except RocketMQError as error:
            pending.error = error
            if not pending.is_awaited:
                logger.info(
                    "pop failed after its caller was cancelled: broker=%s: %s", pending.broker_name, error
                )
        finally:
            self._pending.remove(pending)
            self._changed.unpark_all()
