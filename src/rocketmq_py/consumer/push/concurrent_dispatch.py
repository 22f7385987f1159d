"""Concurrent dispatch: calls the message handler for all assigned queues at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import trio

from rocketmq_py.client.user_functions import users_traceback
from rocketmq_py.consumer.group.handler_results import ConsumeLater, SplitResult, unsupported_result
from rocketmq_py.consumer.group.hooks import ConsumerHooks
from rocketmq_py.consumer.pull.message_buffer import MessageBuffer
from rocketmq_py.consumer.push.base_dispatch import Dispatch, record
from rocketmq_py.consumer.push.handler import Handler
from rocketmq_py.consumer.push.handler_executor import HandlerCall, HandlerExecutor, corruption_error
from rocketmq_py.consumer.push.handler_failures import FailedMessages, Redelivery, describe
from rocketmq_py.consumer.settings import PushConsumerSettings
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import ReceivedMessage

logger: Final = LibraryLogger("rocketmq_py.consumer")

TIMEOUT_DELAY_LEVEL = 3
"""The delay level of messages whose handler timed out. Java: ProcessQueue.cleanExpiredMsg."""
CHECKS_PER_TIMEOUT = 10
"""Checks for timed-out calls per ``consume_timeout``."""
MAX_TAKEN = 32
"""The maximum number of messages that are taken from a queue before the next queue is served."""
MAX_PREFETCH = 512
"""The maximum number of calls queued in the executor, in addition to the ``concurrency`` running ones."""


class ConcurrentDispatch(Dispatch[MessageBuffer]):
    """Dispatches messages to the handler concurrently. Java: ``ConsumeMessageConcurrentlyService``.

    It starts several calls at a time, when messages arrive and when calls have ended. If the executor makes
    its calls outside of the trio thread, calls are queued there ahead of time, up to twice the number of
    calls that ended together last. So a fast handler never waits for messages, and few messages wait in the
    queue of a slow handler.

    Args:
        nursery: runs the tasks of the executors and of outcomes that take time.
        handle: the user's handler.
        settings: the settings of the consumer.
        failed_messages: takes the messages of failed calls.
        hooks: called around each handler call. None calls none.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        handle: Handler,
        settings: PushConsumerSettings,
        *,
        failed_messages: FailedMessages,
        hooks: ConsumerHooks | None = None,
    ) -> None:
        super().__init__(nursery, handle, settings, hooks=hooks)
        self._timeout = settings.consume_timeout
        self._redelivery = Redelivery(failed_messages, self, settings)
        self._served: MessageBuffer | None = None  # the queue that was served last: the others are first
        self._prefetch = 0  # calls to queue in the executor, in addition to the running ones
        nursery.start_soon(self._redelivery.run)
        nursery.start_soon(self._check_timeouts)

    # Calls

    def _start_calls(self) -> None:
        ready, executor = self._ready, self._next_executor
        space = self._concurrency - len(self._calls)
        prefetch = self._prefetch if executor.prefetches else 0
        calls: list[HandlerCall] = []
        while ready and space + prefetch > len(calls):
            if ready[0] is self._served:
                ready.rotate(-1)
            buffer = ready[0]
            allowed = space - len(calls) + (prefetch if buffer.allows_prefetch else 0)
            if allowed <= 0:
                break
            self._served = buffer
            wait = None if buffer.arrivals is None else buffer.wait_of_next()
            started = self._take_calls(executor, buffer, min(allowed, MAX_TAKEN))
            if started and buffer.counts.meter is not None:
                buffer.counts.meter.waited(wait, len(started))
            calls += started
            if not started or not buffer.waiting_messages:  # it may have been dropped
                ready.popleft()
                buffer.is_ready = False
        if calls:
            self._start(executor, calls)

    def _take_calls(self, executor: HandlerExecutor, buffer: MessageBuffer, limit: int) -> list[HandlerCall]:
        """Return up to ``limit`` calls with single messages of a queue, or one call with a list."""
        if self._batch_size is None:
            return [HandlerCall(executor, buffer, (one,), one) for one in buffer.take_batch(limit)]
        while messages := buffer.take_batch(self._batch_size):
            readable = [message for message in messages if message.corruption is None]
            if len(readable) < len(messages):
                self._send_back_corrupt(buffer, messages)
            if readable:
                return [HandlerCall(executor, buffer, readable, list(readable))]
        return []

    def _send_back_corrupt(self, buffer: MessageBuffer, messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            if message.corruption is not None:
                error = corruption_error(message)
                buffer.counts.note_error(error)
                self._log_failure(buffer, (message,), error)
                self._nursery.start_soon(self._redelivery.redeliver, buffer, [message], 0, error)

    # Outcomes

    def _process_ended(self, ended: Sequence[HandlerCall]) -> None:
        self._prefetch = min(2 * len(ended), MAX_PREFETCH)
        super()._process_ended(ended)

    def _acknowledge_calls(self, calls: Sequence[HandlerCall]) -> None:
        by_buffer: dict[MessageBuffer, list[HandlerCall]] = {}
        for call in calls:
            del self._calls[call]
            by_buffer.setdefault(call.buffer, []).append(call)
        for buffer, ended in by_buffer.items():
            record(ended)
            buffer.remove_all([message for call in ended for message in call.messages])

    async def _process_failure(self, call: HandlerCall, error: Exception) -> None:
        self._log_failure(call.buffer, call.messages, error)
        await self._redeliver(call, call.messages, error=error)

    def _log_failure(
        self, buffer: MessageBuffer, messages: Sequence[ReceivedMessage], error: Exception
    ) -> None:
        logger.error(
            "handler failed: %s: %s", describe(buffer, *messages), self._redelivery.describe(messages),
            exc_info=users_traceback(error),
        )  # fmt: skip

    async def _process_result(
        self, call: HandlerCall, messages: Sequence[ReceivedMessage], result: object
    ) -> None:
        if isinstance(result, SplitResult):
            await self._process_split(call, messages, result)
            return
        if result is None:
            call.buffer.remove_all(messages)
            return
        if not isinstance(result, ConsumeLater):
            error = unsupported_result(result, orderly=False)
            call.buffer.counts.note_error(error)
            logger.error(
                "handler failed: %s: %s: %s",
                describe(call.buffer, *call.messages), self._redelivery.describe(messages), error,
            )  # fmt: skip
            await self._redeliver(call, messages, error=error)
            return
        call.buffer.remove_all(messages[: result.done])
        await self._redeliver(call, messages[result.done :], result.delay_level)

    async def _process_split(
        self, call: HandlerCall, messages: Sequence[ReceivedMessage], result: SplitResult
    ) -> None:
        """Settle the messages that the handler did not get. Process its result for the others."""
        call.buffer.remove_all([messages[index] for index in result.done])
        if result.dead_letters and not call.is_timed_out:  # else they were sent back
            reasons = {messages[index]: reason for index, reason in result.dead_letters.items()}
            await self._redelivery.give_up(call.buffer, reasons)
        if others := result.remaining(messages):
            await self._process_result(call, others, result.result)

    async def _redeliver(
        self,
        call: HandlerCall,
        messages: Sequence[ReceivedMessage],
        delay_level: int = 0,
        error: BaseException | None = None,
    ) -> None:
        if not call.is_timed_out:  # else they were sent back
            await self._redelivery.redeliver(call.buffer, messages, delay_level, error)

    # Timeouts

    async def _check_timeouts(self) -> None:
        while True:
            await trio.sleep(self._timeout / CHECKS_PER_TIMEOUT)
            now = trio.current_time()
            for call in self.running_calls():
                if call.deadline is None:
                    call.deadline = now + self._timeout
                elif now >= call.deadline:
                    self._time_out(call)

    def _time_out(self, call: HandlerCall) -> None:
        """Time out a running call: send its messages back, and cancel the handler if possible."""
        call.is_timed_out = True
        error = TimeoutError(f"a handler call took more than {self._timeout:g} s")
        call.buffer.counts.note_error(error)
        logger.error(
            "handler timed out after %g s: %s: %s",
            self._timeout, describe(call.buffer, *call.messages),
            self._redelivery.describe(call.messages, TIMEOUT_DELAY_LEVEL),
        )  # fmt: skip
        self._nursery.start_soon(
            self._redelivery.redeliver, call.buffer, call.messages, TIMEOUT_DELAY_LEVEL, error
        )
        if call.scope is None:
            call.executor.cancel(call)
        else:
            call.scope.cancel()
