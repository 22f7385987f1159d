"""Handing messages to the user's handler in the order of each queue, and trying again in place."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import attrs
import trio

from rocketmq_py.client.user_calls import raise_without_failures
from rocketmq_py.consumer.config import DEFAULT_RECONSUME_TIMES
from rocketmq_py.consumer.group.handler_results import CommitOffset, RollbackOffset, Suspend, check_result
from rocketmq_py.consumer.group.hooks import ConsumerHooks
from rocketmq_py.consumer.pull.process_queue import ProcessQueue
from rocketmq_py.consumer.push.dispatch import YIELD_EVERY, Dispatch
from rocketmq_py.consumer.push.handler_failures import (
    describe,
    log_meaningless,
    unreadable,
)
from rocketmq_py.consumer.push.invoker import Invoker
from rocketmq_py.errors import RocketMQError
from rocketmq_py.message import ReceivedMessage

logger: Final = logging.getLogger("rocketmq_py.consumer")


class OrderlyDispatch(Dispatch[ProcessQueue]):
    """Hands out each queue's messages one after the other. Java: ``ConsumeMessageOrderlyService``.

    While messages of a queue are handled, or it rests after a failure, nothing else of it is handed out; nor
    when its lock is not held. What fails is handed out again before what follows it.

    Args:
        nursery: where workers run.
        invoker: calls the handler.
        concurrency: how many queues may be served at once.
        batch_size: the longest list that a call gets; None for a message a call.
        auto_commit: whether what was handled is done with; else only the handler's Commit makes it so.
        suspend: seconds that a queue rests after a failure, if the handler does not say it.
        max_reconsume_times: tries after the first one, before a message is a dead letter; one whose body
            cannot be read has DEFAULT_RECONSUME_TIMES at the most.
        send_to_dead_letters: has the broker collect a message as a dead letter.
        hooks: as Workers has them.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        invoker: Invoker,
        *,
        concurrency: int,
        batch_size: int | None,
        auto_commit: bool,
        suspend: float,
        max_reconsume_times: float = math.inf,
        send_to_dead_letters: Callable[[ReceivedMessage], Awaitable[None]],
        hooks: ConsumerHooks | None = None,
    ) -> None:
        super().__init__(nursery, invoker, concurrency=concurrency, hooks=hooks)
        self._batch_size = batch_size
        self._auto_commit = auto_commit
        self._suspend = suspend
        self._max_reconsume_times = max_reconsume_times
        self._send_to_dead_letters = send_to_dead_letters

    async def _work(self) -> None:
        ready, call, one_by_one = self._ready, self._invoker.call, self._batch_size is None
        hooked = self._hooked
        batch_size = self._batch_size or 1
        self._waking = False
        until_yield, is_timed = YIELD_EVERY, True  # of many calls one is timed
        began = 0.0
        while True:
            if not ready:
                await self._idle.park()
                self._waking = False
                until_yield, is_timed = YIELD_EVERY, True
                continue
            buffer = ready.popleft()
            if ready and not self._waking:
                self._wake()
            lock = buffer.lock
            assert lock is not None
            # Whoever has it, or releases it, offers the queue again.
            messages = [] if lock.busy or not lock.is_held else buffer.take_several(batch_size)
            if not messages:
                buffer.offered = False
                continue
            lock.busy = True
            self._handling += 1
            if is_timed:
                began = trio.current_time()
            pause: float | None = None
            try:
                for message in messages:
                    if message.corruption is not None:
                        raise unreadable(message)
                item: Any = messages[0] if one_by_one else messages
                result = await (self._call_hooked(buffer, item) if hooked else call(item))
            except Exception:
                logger.exception("handling %s failed", describe(buffer, *messages))
                pause = await self._failed(buffer, messages, None)
            except BaseExceptionGroup as group:
                raise_without_failures(group, logger, "handling %s failed", describe(buffer, *messages))
            else:
                if result is not None:
                    pause = await self._returned(buffer, messages, result)
                else:
                    self._succeeded(buffer, messages)
            finally:
                self._handling -= 1
                if self._closed:
                    self._look_whether_all_is_done()
                if not self._invoker.abandoned:  # else it may be making use of the lock still
                    lock.mark_idle()
            if is_timed:
                is_timed = False
                buffer.counts.calls += 1
                buffer.counts.call_seconds += trio.current_time() - began
            self._go_on(buffer, pause)
            until_yield -= 1
            if not until_yield:
                until_yield, is_timed = YIELD_EVERY, True
                await trio.lowlevel.checkpoint()

    def _go_on(self, buffer: ProcessQueue, pause: float | None) -> None:
        """Have what follows in a queue handed out, after ``pause`` seconds if there is to be a pause."""
        if buffer.dropped:
            assert buffer.lock is not None
            buffer.lock.on_acquired()  # if the queue is consumed anew here, that has waited for this call
        elif pause is not None:
            self._nursery.start_soon(self._rest, buffer, pause)
        elif buffer.waiting and not self._closed:
            self._ready.append(buffer)
        else:
            buffer.offered = False

    async def _rest(self, buffer: ProcessQueue, seconds: float) -> None:
        await trio.sleep(seconds)
        buffer.offered = False
        if buffer.waiting:
            self.offer(buffer)

    def _succeeded(self, buffer: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        if self._auto_commit:
            buffer.remove_all(messages)
        else:
            buffer.uncommitted += messages

    async def _returned(
        self, buffer: ProcessQueue, messages: Sequence[ReceivedMessage], result: object
    ) -> float | None:
        """See to what a handler has returned, other than that all is well; return how long to rest."""
        check_result(result)
        match result:
            case Suspend():
                return await self._failed(buffer, messages, result.seconds)
            case CommitOffset():
                buffer.remove_all(buffer.uncommitted)
                buffer.remove_all(messages)
                buffer.uncommitted = []
                return None
            case RollbackOffset() if not self._auto_commit:
                buffer.put_back_first([*buffer.uncommitted, *messages])
                buffer.uncommitted = []
                return self._suspend if result.seconds is None else result.seconds
        log_meaningless(result, describe(buffer, *messages))
        return await self._failed(buffer, messages, None)

    async def _failed(
        self, buffer: ProcessQueue, messages: Sequence[ReceivedMessage], seconds: float | None
    ) -> float | None:
        """Have messages handed out again, or be dead letters after the last try; return how long to rest."""
        if buffer.dropped:
            return None  # whoever consumes the queue now gets them anyway
        buffer.counts.failed += len(messages)
        again = []
        for message in messages:
            limit = self._max_reconsume_times
            if message.corruption is not None:  # no handler can mend it, and its queue shall not end here
                limit = min(limit, DEFAULT_RECONSUME_TIMES)
            if message.reconsume_times >= limit and await self._is_dead_letter(message):
                buffer.release(message)
            else:
                again.append(attrs.evolve(message, reconsume_times=message.reconsume_times + 1))
        if not again:
            return None
        buffer.put_back_first(again)
        return self._suspend if seconds is None else seconds

    async def _is_dead_letter(self, message: ReceivedMessage) -> bool:
        try:
            await self._send_to_dead_letters(message)
        except RocketMQError:  # logged by SendBack
            return False
        return True
