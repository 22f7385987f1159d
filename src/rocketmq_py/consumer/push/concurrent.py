"""Handing messages to the user's handler, of all queues at once."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, Protocol

import trio

from rocketmq_py.client.user_calls import raise_without_failures
from rocketmq_py.consumer.group.hooks import ConsumerHooks
from rocketmq_py.consumer.group.results import ConsumeLater, check_result
from rocketmq_py.consumer.pull.message_buffer import MessageBuffer
from rocketmq_py.consumer.push.dispatch import YIELD_EVERY, Dispatch
from rocketmq_py.consumer.push.handler_failures import (
    Redelivery,
    describe,
    log_meaningless,
    unreadable,
)
from rocketmq_py.consumer.push.invoker import Invoker
from rocketmq_py.message import ReceivedMessage

logger: Final = logging.getLogger("rocketmq_py.consumer")

EXPIRED_DELAY_LEVEL = 3
"""The delay level of a message that took too long. Java: ProcessQueue.cleanExpiredMsg."""
LOOKS_PER_TIMEOUT = 10
"""How often it is looked, in each ``consume_timeout``, for calls that take too long."""


class CallUnderWay(Protocol):
    """What is known of a call of the handler.

    Attributes:
        buffer: the queue that the item is from.
        item: what is handled; None once that took too long, and where there is no call.
        seen: the item that it had when it was last looked for calls that take too long.
        since: the first time that it was seen.
    """

    buffer: MessageBuffer
    item: Any
    seen: Any
    since: float


class _Worker:
    """A worker, whose call it is, and a scope around that."""

    __slots__ = ("buffer", "item", "scope", "seen", "since")

    def __init__(self) -> None:
        self.buffer: MessageBuffer
        self.item: Any = None
        self.scope = trio.CancelScope()
        self.seen: Any = None
        self.since = 0.0


class ConcurrentDispatch(Dispatch[MessageBuffer]):
    """Hands out messages of all queues at once. Java: ``ConsumeMessageConcurrentlyService``.

    An item is what one call of the handler gets: a message, or a tuple of them.

    Args:
        nursery: where workers run.
        invoker: calls the handler.
        concurrency: how many calls may be under way at once.
        batch_size: the longest list that a call gets; None for a message a call.
        timeout: seconds after which a call counts as failed.
        send_back: has the broker deliver a message again, after the delay of this level.
        hooks: as Workers has them.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        invoker: Invoker,
        *,
        concurrency: int,
        batch_size: int | None,
        timeout: float,
        send_back: Callable[[ReceivedMessage, int], Awaitable[None]],
        hooks: ConsumerHooks | None = None,
    ) -> None:
        super().__init__(nursery, invoker, concurrency=concurrency, hooks=hooks)
        self._batch_size = batch_size
        self._timeout = timeout
        self._redelivery = Redelivery(send_back, self.offer)
        self._under_way: list[_Worker] = []
        nursery.start_soon(self._redelivery.run)
        nursery.start_soon(self._look_for_late_calls)

    async def _work(self) -> None:
        worker = _Worker()
        self._under_way.append(worker)
        self._waking = False
        while True:
            with trio.CancelScope() as worker.scope:  # cancelled when a call takes too long
                await self._serve(worker)

    async def _serve(self, worker: _Worker) -> None:
        """Have messages handled, until a call has failed or took too long."""
        ready, call, one_by_one = self._ready, self._invoker.call, self._batch_size is None
        hooked = self._hooked
        until_yield, is_timed = YIELD_EVERY, True  # of many calls one is timed
        began = 0.0
        while True:
            if not ready:
                worker.item = None
                await self._idle.park()
                self._waking = False
                until_yield, is_timed = YIELD_EVERY, True
                continue
            buffer = ready[0]
            item: Any = buffer.take() if one_by_one else self._take_several(buffer)
            if item is None or not buffer.line:
                ready.popleft()
                buffer.offered = False
                if item is None:  # the queue has been dropped, or nothing in it can be read
                    continue
            elif len(ready) > 1:
                ready.rotate(-1)
            if ready and not self._waking:
                self._wake()
            worker.buffer, worker.item = buffer, item
            self._handling += 1
            if is_timed:
                began = trio.current_time()
            try:
                if one_by_one and item.corruption is not None:
                    raise unreadable(item)
                result = await (self._call_hooked(buffer, item) if hooked else call(item))
            except Exception:
                logger.exception("handling %s failed", describe_item(buffer, item))
                await self._failed(worker, item)
            except BaseExceptionGroup as group:
                raise_without_failures(group, logger, "handling %s failed", describe_item(buffer, item))
            else:
                if result is not None:
                    await self._returned(worker, item, result)
                elif one_by_one:
                    buffer.remove(item)
                else:
                    buffer.remove_all(item)
            finally:
                self._handling -= 1
                if self._closed:
                    self._look_whether_all_is_done()
            if is_timed:
                is_timed = False
                buffer.counts.calls += 1
                buffer.counts.call_seconds += trio.current_time() - began
            if worker.item is None:
                return
            until_yield -= 1
            if not until_yield:
                until_yield, is_timed = YIELD_EVERY, True
                await trio.lowlevel.checkpoint()

    def _take_several(self, buffer: MessageBuffer) -> tuple[ReceivedMessage, ...] | None:
        """Return the next messages that can be read; those that cannot are sent back."""
        assert self._batch_size is not None
        while messages := buffer.take_several(self._batch_size):
            readable = tuple([message for message in messages if message.corruption is None])
            for message in messages:
                if message.corruption is not None:
                    logger.error(
                        "handling %s failed", describe(buffer, message), exc_info=unreadable(message)
                    )
                    self._nursery.start_soon(self._redelivery.deliver_again, buffer, [message], 0)
            if readable:
                return readable
        return None

    async def _returned(self, call: CallUnderWay, item: Any, result: object) -> None:
        """See to what a handler has returned, other than that all is done with."""
        check_result(result)
        if not isinstance(result, ConsumeLater):
            log_meaningless(result, describe_item(call.buffer, item))
            await self._failed(call, item)
            return
        messages = _messages(item)
        call.buffer.remove_all(messages[: result.done])
        if call.item is not None:
            call.item = None
            await self._redelivery.deliver_again(call.buffer, messages[result.done :], result.delay_level)

    async def _failed(self, call: CallUnderWay, item: Any) -> None:
        if call.item is not None:  # else it took too long, and has been sent back already
            call.item = None
            await self._redelivery.deliver_again(call.buffer, _messages(item), 0)

    # Calls that take too long

    async def _look_for_late_calls(self) -> None:
        while True:
            await trio.sleep(self._timeout / LOOKS_PER_TIMEOUT)
            now = trio.current_time()
            for call in self._calls_under_way():
                if call.item is not call.seen:
                    call.seen, call.since = call.item, now
                elif call.item is not None and now - call.since >= self._timeout:
                    self._expire(call)

    def _calls_under_way(self) -> Iterable[CallUnderWay]:
        return list(self._under_way)

    def _expire(self, call: CallUnderWay) -> None:
        """Count a call as failed that is under way still, and have its worker go on if it can."""
        buffer, item = call.buffer, call.item
        call.item = None
        logger.error(
            "handling %s takes longer than %g s: it is sent back", describe_item(buffer, item), self._timeout
        )
        self._nursery.start_soon(self._redelivery.deliver_again, buffer, _messages(item), EXPIRED_DELAY_LEVEL)
        self._cancel(call)

    def _cancel(self, call: CallUnderWay) -> None:
        if self._invoker.cancels and isinstance(call, _Worker):
            call.scope.cancel()


def _messages(item: Any) -> Sequence[ReceivedMessage]:
    return item if isinstance(item, tuple) else (item,)


def describe_item(buffer: MessageBuffer, item: Any) -> str:
    """Return what logs call what a call of the handler gets."""
    return describe(buffer, *_messages(item))
