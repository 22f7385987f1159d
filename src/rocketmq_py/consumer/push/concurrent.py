"""Handing messages to the user's handler, several at a time, and what happens when it fails."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import attrs
import trio

from rocketmq_py.consumer.group.hooks import ConsumerHooks
from rocketmq_py.consumer.group.results import ConsumeLater, check_result
from rocketmq_py.consumer.pull.message_buffer import MessageBuffer
from rocketmq_py.consumer.push.dispatch import (
    YIELD_EVERY,
    Dispatch,
    describe,
    raise_without_failures,
    unreadable,
)
from rocketmq_py.consumer.push.invoker import Invoker
from rocketmq_py.errors import RocketMQError
from rocketmq_py.message import ReceivedMessage

logger = logging.getLogger("rocketmq_py.consumer")

RETRY_HERE_SECONDS = 5.0
"""How long a message waits that failed and could not be given back. Java: submitConsumeRequestLater."""
EXPIRED_DELAY_LEVEL = 3
"""The delay level of a message that took too long. Java: ProcessQueue.cleanExpiredMsg."""
LOOKS_PER_TIMEOUT = 10
"""How often it is looked, in each ``consume_timeout``, for calls that take too long."""


class _Place:
    """A worker: the item that it handles now, the queue that it is from, and a scope around the call.

    ``seen`` is the item that it had when it was last looked for calls that take too long, ``since`` the first
    time that it was seen.
    """

    __slots__ = ("held", "item", "scope", "seen", "since")

    def __init__(self) -> None:
        self.held: MessageBuffer
        self.item: Any = None
        self.scope = trio.CancelScope()
        self.seen: Any = None
        self.since = 0.0


class ConcurrentDispatch(Dispatch[MessageBuffer]):
    """Hands out messages of all queues at once. Java: ``ConsumeMessageConcurrentlyService``.

    An item is what one call of the handler gets: a message, or a tuple of them.

    Args:
        nursery: where workers run.
        caller: calls the handler.
        concurrency: how many calls may be under way at once.
        batch_size: the longest list that a call gets; None for a message a call.
        timeout: seconds after which a call counts as failed.
        give_back: has the broker deliver a message again, after the delay of this level.
        hooks: as Workers has them.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        caller: Invoker,
        *,
        concurrency: int,
        batch_size: int | None,
        timeout: float,
        give_back: Callable[[ReceivedMessage, int], Awaitable[None]],
        hooks: ConsumerHooks | None = None,
    ) -> None:
        super().__init__(nursery, caller, concurrency=concurrency, hooks=hooks)
        self._batch_size = batch_size
        self._timeout = timeout
        self._give_back = give_back
        self._places: list[_Place] = []
        self._later: deque[tuple[float, MessageBuffer, ReceivedMessage]] = deque()
        self._more_later = trio.lowlevel.ParkingLot()
        nursery.start_soon(self._redeliver)
        nursery.start_soon(self._look_for_late_calls)

    async def _work(self) -> None:
        place = _Place()
        self._places.append(place)
        self._waking = False
        while True:
            with trio.CancelScope() as place.scope:  # cancelled when a call takes too long
                await self._serve(place)

    async def _serve(self, place: _Place) -> None:
        """Have messages handled, until a call has failed or was given up."""
        ready, call, one_by_one = self._ready, self._caller.call, self._batch_size is None
        hooked = self._hooked
        until_yield, is_timed = YIELD_EVERY, True  # of many calls one is timed
        began = 0.0
        while True:
            if not ready:
                place.item = None
                await self._idle.park()
                self._waking = False
                until_yield, is_timed = YIELD_EVERY, True
                continue
            held = ready[0]
            item: Any = held.take() if one_by_one else self._take_several(held)
            if item is None or not held.waiting:
                ready.popleft()
                held.offered = False
                if item is None:  # the queue has been dropped, or nothing in it can be read
                    continue
            else:
                ready.rotate(-1)
            if ready and not self._waking:
                self._wake()
            place.held, place.item = held, item
            self._handling += 1
            if is_timed:
                began = trio.current_time()
            try:
                if one_by_one and item.corruption is not None:
                    raise unreadable(item)
                result = await (self._call_hooked(held, item) if hooked else call(item))
            except Exception:
                logger.exception("handling %s failed", _describe(held, item))
                await self._failed(place, item)
            except BaseExceptionGroup as group:
                raise_without_failures(group, _describe(held, item))
            else:
                if result is not None:
                    await self._returned(place, item, result)
                elif one_by_one:
                    held.remove(item)
                else:
                    held.remove_all(item)
            finally:
                self._handling -= 1
                if self._closed:
                    self._look_whether_all_is_done()
            if is_timed:
                is_timed = False
                held.counts.calls += 1
                held.counts.call_seconds += trio.current_time() - began
            if place.item is None:
                return
            until_yield -= 1
            if not until_yield:
                until_yield, is_timed = YIELD_EVERY, True
                await trio.lowlevel.checkpoint()

    def _take_several(self, held: MessageBuffer) -> tuple[ReceivedMessage, ...] | None:
        """Return the next messages that can be read; those that cannot are given back."""
        assert self._batch_size is not None
        while messages := held.take_several(self._batch_size):
            readable = tuple([message for message in messages if message.corruption is None])
            for message in messages:
                if message.corruption is not None:
                    logger.error("handling %s failed", describe(held, message), exc_info=unreadable(message))
                    self._nursery.start_soon(self._deliver_again, held, [message], 0)
            if readable:
                return readable
        return None

    async def _returned(self, place: _Place, item: Any, result: object) -> None:
        """See to what a handler has returned, other than that all is done with."""
        check_result(result)
        if not isinstance(result, ConsumeLater):
            logger.error(
                "handling %s failed: the handler returned %r, which says nothing to this consumer",
                _describe(place.held, item), result,
            )  # fmt: skip
            await self._failed(place, item)
            return
        messages = _messages(item)
        place.held.remove_all(messages[: result.done])
        if place.item is not None:
            place.item = None
            await self._deliver_again(place.held, messages[result.done :], result.delay_level)

    async def _failed(self, place: _Place, item: Any) -> None:
        if place.item is not None:  # else it took too long, and has been given back already
            place.item = None
            await self._deliver_again(place.held, _messages(item), 0)

    # Delivering again

    async def _deliver_again(
        self, held: MessageBuffer, messages: Sequence[ReceivedMessage], delay_level: int
    ) -> None:
        """Give messages back to the broker; those that it does not take are kept, and tried again here."""
        held.counts.failed += len(messages)
        async with trio.open_nursery() as nursery:
            for message in messages:
                nursery.start_soon(self._deliver_one_again, held, message, delay_level)

    async def _deliver_one_again(
        self, held: MessageBuffer, message: ReceivedMessage, delay_level: int
    ) -> None:
        # Whoever has the queue now gets the message anyway; or its call has ended after all.
        if held.dropped or not held.holds(message):
            return
        try:
            await self._give_back(message, delay_level)
        except RocketMQError as error:
            logger.warning(
                "%s not given back: %s; it is handled again here in %g s",
                describe(held, message), error, RETRY_HERE_SECONDS,
            )  # fmt: skip
            again = attrs.evolve(message, reconsume_times=message.reconsume_times + 1)
            self._later.append((trio.current_time() + RETRY_HERE_SECONDS, held, again))
            self._more_later.unpark_all()
        else:
            held.release(message)

    async def _redeliver(self) -> None:
        """Hand out again what was kept, when its time has come."""
        while True:
            while not self._later:
                await self._more_later.park()
            due_at, held, message = self._later.popleft()
            await trio.sleep_until(due_at)
            held.put_back(message)
            self.offer(held)

    # Calls that take too long

    async def _look_for_late_calls(self) -> None:
        while True:
            await trio.sleep(self._timeout / LOOKS_PER_TIMEOUT)
            now = trio.current_time()
            for place in self._places:
                if place.item is not place.seen:
                    place.seen, place.since = place.item, now
                elif place.item is not None and now - place.since >= self._timeout:
                    self._give_up(place)

    def _give_up(self, place: _Place) -> None:
        """Count a call as failed that is under way still, and have its worker go on if it can."""
        held, item = place.held, place.item
        place.item = None
        logger.error(
            "handling %s takes longer than %g s: it is given back", _describe(held, item), self._timeout
        )
        self._nursery.start_soon(self._deliver_again, held, _messages(item), EXPIRED_DELAY_LEVEL)
        if self._caller.is_async:
            place.scope.cancel()


def _messages(item: Any) -> Sequence[ReceivedMessage]:
    return item if isinstance(item, tuple) else (item,)


def _describe(held: MessageBuffer, item: Any) -> str:
    return describe(held, *_messages(item))
