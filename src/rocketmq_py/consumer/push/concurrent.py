"""Handing messages to the user's handler, of all queues at once."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final, Protocol

import trio

from rocketmq_py.client.user_calls import raise_without_failures
from rocketmq_py.consumer.group.handler_results import ConsumeLater, check_result
from rocketmq_py.consumer.group.hooks import ConsumerHooks
from rocketmq_py.consumer.pull.message_buffer import MessageBuffer
from rocketmq_py.consumer.push.dispatch import YIELD_EVERY, Dispatch
from rocketmq_py.consumer.push.handler_failures import (
    Redelivery,
    describe,
    log_meaningless,
    unreadable,
)
from rocketmq_py.consumer.push.invoker import Invoker, RestOfCall
from rocketmq_py.message import ReceivedMessage

logger: Final = logging.getLogger("rocketmq_py.consumer")

EXPIRED_DELAY_LEVEL = 3
"""The delay level of a message that took too long. Java: ProcessQueue.cleanExpiredMsg."""
LOOKS_PER_TIMEOUT = 10
"""How often it is looked, in each ``consume_timeout``, for calls that take too long."""

_ALL_DONE = object()
"""What came of calls that had nothing to wait for, and returned None."""


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
    """A worker, whose call it is, and a scope around that.

    Attributes:
        called_with: what the handler was last called with, or None at the end of a queue.
        calls: how many calls have been begun since it last turned to a queue.
        has_waited: whether the last of them had to wait.
        until_yield: how many it may begin before it lets other tasks run.
    """

    __slots__ = (
        "buffer", "called_with", "calls", "has_waited", "item", "scope", "seen", "since", "until_yield",
    )  # fmt: skip

    def __init__(self) -> None:
        self.called_with: Any = None
        self.calls = 0
        self.has_waited = False
        self.until_yield = 0
        self.buffer: MessageBuffer
        self.item: Any = None
        self.scope = trio.CancelScope()
        self.seen: Any = None
        self.since = 0.0


class ConcurrentDispatch(Dispatch[MessageBuffer]):
    """Hands out messages of all queues at once. Java: ``ConsumeMessageConcurrentlyService``.

    As long as calls have nothing to wait for, a worker makes one after the other in a plain loop, and is done
    with what they were called with all at once. It wakes another one when a call waits.

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
        ready = self._ready
        worker.until_yield = YIELD_EVERY
        while True:
            if not ready:
                await self._idle.park()
                self._waking = False
                worker.until_yield = YIELD_EVERY
                continue
            worker.buffer = buffer = ready[0]
            self._handling += 1
            result: Any = None
            began = trio.current_time()
            try:
                result = self._begin_turn(worker, buffer)
                if result is not _ALL_DONE:
                    self._wake_another()
                    if type(result) is RestOfCall:
                        result = await result
                        worker.until_yield = YIELD_EVERY
            except Exception:
                self._wake_another()
                logger.exception("handling %s failed", describe_item(buffer, worker.called_with))
                await self._failed(worker, worker.called_with)
            except BaseExceptionGroup as group:
                called_with = describe_item(buffer, worker.called_with)
                raise_without_failures(group, logger, "handling %s failed", called_with)
            else:
                if result is None:
                    buffer.remove_all(_messages(worker.called_with))
                elif result is not _ALL_DONE:
                    await self._returned(worker, worker.called_with, result)
            finally:
                self._handling -= 1
                if self._closed:
                    self._look_whether_all_is_done()
            buffer.counts.calls += worker.calls
            buffer.counts.call_seconds += trio.current_time() - began
            if result is not _ALL_DONE:
                if worker.item is None:
                    return
                worker.item = None
            if ready and not worker.until_yield:  # where nothing is left, it yields as it parks
                worker.until_yield = YIELD_EVERY
                self._waking = True  # it looks at what there is before another one that is woken could
                await trio.lowlevel.checkpoint()
                self._waking = False

    def _begin_turn(self, worker: _Worker, buffer: MessageBuffer) -> Any:
        """Have messages of a queue handled, until a call has to wait, or does not simply return.

        Nothing else runs meanwhile: what has to be seen to after each call is seen to after the last.

        Returns:
            ``_ALL_DONE``; or the rest of a call that has to wait; or what a call returned that is not None.

        Raises:
            what a call raises.
        """
        done: list[Any] = []
        worker.has_waited = False
        turn = self._take_turn(worker, buffer, done)
        result: Any = None
        try:
            # Not awaited, so as to be told when a call has to wait, which ends the turn.
            result = RestOfCall(turn, turn.send(None))
            worker.has_waited = True
        except StopIteration as ended:
            result = ended.value
        finally:
            worker.calls = len(done)
            if result is not _ALL_DONE:
                worker.calls += 1
                worker.item = worker.called_with
            worker.until_yield -= worker.calls
            if done:
                buffer.remove_all(done if self._batch_size is None else chain.from_iterable(done))
            if self._ready:  # else a handler has stopped the consumer
                self._next_queue(buffer, is_over=worker.called_with is None)
        return result

    async def _take_turn(self, worker: _Worker, buffer: MessageBuffer, done: list[Any]) -> Any:
        """Call the handler with items of a queue until a call has waited, or does not simply return.

        Those of the calls before are ``done``. Returns and raises as :meth:`_begin_turn`.
        """
        take: Callable[[], Any] = buffer.take
        call = self._invoker.call
        if self._batch_size is not None:
            take = partial(self._take_several, buffer)
        if self._hooked:
            call = partial(self._call_hooked, buffer)
        ready, one_by_one = self._ready, self._batch_size is None
        for _ in range(worker.until_yield):
            if not ready:  # a handler has stopped the consumer
                break
            worker.called_with = item = take()
            if item is None:  # nothing is left, the queue has been dropped, or nothing can be read
                break
            if one_by_one and item.corruption is not None:
                raise unreadable(item)
            result = await call(item)
            if result is not None or worker.has_waited:
                return result
            done.append(item)
        return _ALL_DONE

    def _next_queue(self, buffer: MessageBuffer, *, is_over: bool) -> None:
        """Put the queue that was the first of the line behind the others, or out of it if it has no more."""
        if is_over or not buffer.line:
            self._ready.popleft()
            buffer.offered = False
        elif len(self._ready) > 1:
            self._ready.rotate(-1)

    def _wake_another(self) -> None:
        if self._ready and not self._waking:
            self._wake()

    def _take_several(self, buffer: MessageBuffer) -> tuple[ReceivedMessage, ...] | None:
        """Return the next messages that can be read; those that cannot are sent back."""
        assert self._batch_size is not None
        while messages := buffer.take_several(self._batch_size):
            readable = tuple([message for message in messages if message.corruption is None])
            if len(readable) < len(messages):
                self._send_back_unreadable(buffer, messages)
            if readable:
                return readable
        return None

    def _send_back_unreadable(self, buffer: MessageBuffer, messages: Iterable[ReceivedMessage]) -> None:
        for message in messages:
            if message.corruption is not None:
                logger.error("handling %s failed", describe(buffer, message), exc_info=unreadable(message))
                self._nursery.start_soon(self._redelivery.deliver_again, buffer, [message], 0)

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
                    self._expire(call, call.seen)

    def _calls_under_way(self) -> Iterable[CallUnderWay]:
        return list(self._under_way)

    def _expire(self, call: CallUnderWay, item: Any) -> None:
        """Count a call as failed that is under way still, and have its worker go on if it can."""
        buffer = call.buffer
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
