"""Ordered dispatch: the handler gets the messages of each queue one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, cast

import trio

from rocketmq_py.client.user_functions import users_traceback
from rocketmq_py.consumer.group.handler_results import (
    CommitOffset,
    RollbackOffset,
    SplitResult,
    Suspend,
    unsupported_result,
)
from rocketmq_py.consumer.group.hooks import ConsumerHooks
from rocketmq_py.consumer.pull.process_queue import ProcessQueue
from rocketmq_py.consumer.push.base_dispatch import Dispatch, record
from rocketmq_py.consumer.push.handler import Handler
from rocketmq_py.consumer.push.handler_executor import HandlerCall
from rocketmq_py.consumer.push.handler_failures import DeadLetterQueue, RetryInPlace, describe
from rocketmq_py.consumer.push.typed_handlers import HandlerSettings
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import ReceivedMessage

logger: Final = LibraryLogger("rocketmq_py.consumer")


class QueueSuspender(Protocol):
    """Suspends queues at the broker, so that this member does not wait."""

    async def suspend(
        self, queue: ProcessQueue, messages: Sequence[ReceivedMessage], seconds: float
    ) -> float | None:
        """Have the broker redeliver the messages of a queue after ``seconds``, with those of the last call.

        Returns:
            The seconds to wait here, where that fails.
        """


class OrderlyDispatch(Dispatch[ProcessQueue]):
    """Dispatches each queue's messages one call after the other. Java: ``ConsumeMessageOrderlyService``.

    A queue is dispatched only while this member holds its lock, and not during the pause after a failure.
    Failed messages are dispatched again before the messages that follow them.

    Args:
        nursery: runs the tasks of the executors and of outcomes that take time.
        handle: the user's handler.
        settings: the settings of the consumer.
        dead_letter_queue: takes messages after their last retry.
        hooks: called around each handler call. None calls none.
        suspender: suspends queues for which the handler returns Suspend. None: they pause here.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        handle: Handler,
        settings: HandlerSettings,
        *,
        dead_letter_queue: DeadLetterQueue,
        hooks: ConsumerHooks | None = None,
        suspender: QueueSuspender | None = None,
    ) -> None:
        super().__init__(nursery, handle, settings, hooks=hooks)
        self._auto_commit = settings.auto_commit
        self._suspend = settings.suspend_current_queue
        self._suspender = suspender
        self._failures = RetryInPlace(dead_letter_queue, settings)

    # Calls

    def _start_calls(self) -> None:
        ready, executor = self._ready, self._next_executor
        calls: list[HandlerCall] = []
        space = self._concurrency - len(self._calls)
        while ready and len(calls) < space:
            process_queue = ready.popleft()
            lock = process_queue.lock
            assert lock is not None
            wait = None if process_queue.arrivals is None else process_queue.wait_of_next()
            # The call that uses the lock, or the renewal that gets it back, offers the queue again.
            may_start = lock.is_held and not lock.busy
            messages = process_queue.take_batch(self._batch_size or 1) if may_start else []
            if not messages:
                process_queue.is_ready = False
                continue
            if len(messages) > 1:
                messages = _split_off_corrupt(process_queue, messages)
            if process_queue.counts.meter is not None:
                process_queue.counts.meter.waited(wait, len(messages))
            lock.busy = True
            argument = messages[0] if self._batch_size is None else list(messages)
            calls.append(HandlerCall(executor, process_queue, messages, argument))
        if calls:
            self._start(executor, calls)

    # Outcomes

    def _acknowledge_calls(self, calls: Sequence[HandlerCall]) -> None:
        for call in calls:
            record([call])
            self._acknowledge(_queue_of(call), call.messages)
            self._remove(call)

    async def _process_failure(self, call: HandlerCall, error: Exception) -> float | None:
        process_queue, messages = _queue_of(call), call.messages
        logger.error(
            "handler failed: %s: %s",
            describe(process_queue, *messages), self._failures.describe(messages),
            exc_info=users_traceback(error),
        )  # fmt: skip
        return await self._failures.retry(process_queue, messages, error=error)

    def _remove(self, call: HandlerCall, pause: float | None = None) -> None:
        """Forget a call, and continue its queue: at once, or after a pause."""
        super()._remove(call)
        process_queue = _queue_of(call)
        lock = process_queue.lock
        assert lock is not None
        self._mark_idle(call)
        if process_queue.dropped:
            lock.on_acquired()  # after a seek, the queue's new messages wait for this call
        elif pause is not None:
            self._nursery.start_soon(self._pause, process_queue, pause)
        elif process_queue.waiting and not self._closed:
            self._ready.append(process_queue)
        else:
            process_queue.is_ready = False

    def _process_abandoned(self, call: HandlerCall) -> None:
        self._mark_idle(call)

    def _mark_idle(self, call: HandlerCall) -> None:
        lock = _queue_of(call).lock
        assert lock is not None
        if not self.executor.is_left_running:  # an abandoned thread may still work under the lock
            lock.mark_idle()

    async def _pause(self, process_queue: ProcessQueue, seconds: float) -> None:
        await trio.sleep(seconds)
        process_queue.is_ready = False
        if process_queue.waiting:
            self.offer(process_queue)

    async def _process_result(
        self, call: HandlerCall, messages: Sequence[ReceivedMessage], result: object
    ) -> float | None:
        process_queue = _queue_of(call)
        if isinstance(result, SplitResult):
            return await self._process_split(call, messages, result)
        if result is None:
            self._acknowledge(process_queue, messages)
            return None
        match result:
            case Suspend() if self._suspender is not None:
                seconds = self._suspend if result.seconds is None else result.seconds
                return await self._suspender.suspend(process_queue, messages, seconds)
            case Suspend():
                return await self._failures.retry(process_queue, messages, result.seconds)
            case CommitOffset():
                process_queue.remove_all(process_queue.uncommitted)
                process_queue.remove_all(messages)
                process_queue.uncommitted = []
                return None
            case RollbackOffset() if not self._auto_commit:
                process_queue.requeue_first([*process_queue.uncommitted, *messages])
                process_queue.uncommitted = []
                return self._suspend if result.seconds is None else result.seconds
        error = unsupported_result(result, orderly=True)
        process_queue.counts.note_error(error)
        logger.error(
            "handler failed: %s: %s: %s",
            describe(process_queue, *messages), self._failures.describe(messages), error,
        )  # fmt: skip
        return await self._failures.retry(process_queue, messages, error=error)

    async def _process_split(
        self, call: HandlerCall, messages: Sequence[ReceivedMessage], result: SplitResult
    ) -> float | None:
        """Acknowledge or give up the messages without a call. Process its result for the others."""
        process_queue = _queue_of(call)
        pauses: list[float | None] = [None]
        self._acknowledge(process_queue, [messages[index] for index in result.done])
        if result.dead_letters:
            reasons = {messages[index]: reason for index, reason in result.dead_letters.items()}
            pauses.append(await self._failures.give_up(process_queue, reasons))
        if others := result.remaining(messages):
            pauses.append(await self._process_result(call, others, result.result))
        return max([pause for pause in pauses if pause is not None], default=None)

    def _acknowledge(self, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        if self._auto_commit:
            process_queue.remove_all(messages)
        else:
            process_queue.uncommitted += messages


def _queue_of(call: HandlerCall) -> ProcessQueue:
    return cast("ProcessQueue", call.buffer)


def _split_off_corrupt(process_queue: ProcessQueue, messages: list[ReceivedMessage]) -> list[ReceivedMessage]:
    """Return the messages before the first corrupt one, or only that if it is the first. Requeue the others.

    A corrupt message fails alone, so that its retries do not count for messages that the handler never got.
    """
    for index, message in enumerate(messages):
        if message.corruption is not None:
            count = max(index, 1)
            process_queue.requeue_first(messages[count:])
            return messages[:count]
    return messages
