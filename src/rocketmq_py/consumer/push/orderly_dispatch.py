"""Ordered dispatch: the handler gets the messages of each queue one after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Final

import trio

from rocketmq_py.client.user_functions import failure_of, raise_without_failures, users_traceback
from rocketmq_py.consumer.group.counters import TopicCounters
from rocketmq_py.consumer.group.handler_results import (
    CommitOffset,
    RollbackOffset,
    SplitResult,
    Suspend,
    check_result,
)
from rocketmq_py.consumer.group.hooks import ConsumerHooks
from rocketmq_py.consumer.group.meter import outcome_name
from rocketmq_py.consumer.group.queue_locks import QueueLock
from rocketmq_py.consumer.pull.process_queue import ProcessQueue
from rocketmq_py.consumer.push.base_dispatch import YIELD_EVERY, Dispatch, is_cancellation, note_cut_off
from rocketmq_py.consumer.push.handler_failures import (
    DeadLetterQueue,
    RetryInPlace,
    corruption_error,
    describe,
    log_end,
)
from rocketmq_py.consumer.push.invoker import Invoker
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import ReceivedMessage

logger: Final = LibraryLogger("rocketmq_py.consumer")


class OrderlyDispatch(Dispatch[ProcessQueue]):
    """Dispatches each queue's messages one call after the other. Java: ``ConsumeMessageOrderlyService``.

    A queue is dispatched only while this member holds its lock, and not during the pause after a failure.
    Failed messages are dispatched again before the messages that follow them.

    Args:
        nursery: runs the workers.
        invoker: calls the handler.
        concurrency: the number of queues that may be served at once.
        batch_size: the maximum number of messages in a call. None calls the handler with single messages.
        auto_commit: whether returning from the handler acknowledges its messages. If not, only the result
            CommitOffset does.
        suspend: seconds that a queue pauses after a failure, unless the handler returns another time.
        max_reconsume_times: retries after which a message becomes a dead letter.
        dead_letter_queue: takes messages after their last retry.
        hooks: called around each handler call. None calls none.
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
        dead_letter_queue: DeadLetterQueue,
        hooks: ConsumerHooks | None = None,
    ) -> None:
        super().__init__(nursery, invoker, concurrency=concurrency, hooks=hooks)
        self._batch_size = batch_size
        self._auto_commit = auto_commit
        self._suspend = suspend
        self._failures = RetryInPlace(
            suspend=suspend,
            max_reconsume_times=max_reconsume_times,
            dead_letter_queue=dead_letter_queue,
        )

    async def _work(self) -> None:
        ready, batch_size = self._ready, self._batch_size or 1
        self._is_waking = False
        # Fast path: one call in YIELD_EVERY is timed. Saves 6 % of push in order.
        until_yield, is_timed = YIELD_EVERY, True
        while True:
            if not ready:
                await self._idle.park()
                self._is_waking = False
                until_yield, is_timed = YIELD_EVERY, True
                continue
            process_queue = ready.popleft()
            if ready and not self._is_waking:
                self._wake()
            lock = process_queue.lock
            assert lock is not None
            wait = None if process_queue.arrivals is None else process_queue.wait_of_next()
            # The worker that uses the lock, or the renewal that gets it back, offers the queue again.
            messages = [] if lock.busy or not lock.is_held else process_queue.take_batch(batch_size)
            if not messages:
                process_queue.is_ready = False
                continue
            if batch_size > 1:
                messages = _split_off_corrupt(process_queue, messages)
            meter = process_queue.counts.meter
            if meter is not None:
                meter.waited(wait, len(messages))
            await self._serve(process_queue, lock, messages, is_timed or meter is not None)
            is_timed = False
            until_yield -= 1
            if not until_yield:
                until_yield, is_timed = YIELD_EVERY, True
                await trio.lowlevel.checkpoint()

    async def _serve(
        self, process_queue: ProcessQueue, lock: QueueLock, messages: list[ReceivedMessage], is_timed: bool
    ) -> None:
        """Call the handler with messages of a queue and process the outcome. Then continue the queue."""
        lock.busy = True
        self._in_flight += 1
        started = trio.current_time() if is_timed else None
        pause: float | None = None
        try:
            if messages[0].corruption is not None:
                raise corruption_error(messages[0])
            call = partial(self._call_hooked, process_queue) if self._hooked else self._invoker.call
            result = await call(messages[0] if self._batch_size is None else messages)
        except BaseException as error:
            failure = failure_of(error)
            if not isinstance(failure, Exception):
                description = describe(process_queue, *messages)
                if is_cancellation(error):
                    note_cut_off(process_queue, messages)
                if isinstance(error, BaseExceptionGroup):
                    raise_without_failures(error, logger, "handler failed: %s", description)
                log_end(error, description)
                raise
            _record_call(process_queue.counts, started, failure, None)
            process_queue.counts.note_error(failure)
            logger.error(
                "handler failed: %s: %s",
                describe(process_queue, *messages), self._failures.describe(messages),
                exc_info=users_traceback(failure),
            )  # fmt: skip
            pause = await self._failures.retry(process_queue, messages)
        else:
            if started is not None:
                _record_call(process_queue.counts, started, None, result)
            if result is not None:
                pause = await self._process_result(process_queue, messages, result)
            elif self._auto_commit:
                process_queue.remove_all(messages)
            else:
                process_queue.uncommitted += messages
        finally:
            self._in_flight -= 1
            if self._closed:
                self._check_drained()
            if not self._invoker.abandoned:  # an abandoned thread may still work under the lock
                lock.mark_idle()
        if process_queue.dropped:
            lock.on_acquired()  # after a seek, the queue's new messages wait for this call
        elif pause is not None:
            self._nursery.start_soon(self._pause, process_queue, pause)
        elif process_queue.waiting and not self._closed:
            self._ready.append(process_queue)
        else:
            process_queue.is_ready = False

    async def _pause(self, process_queue: ProcessQueue, seconds: float) -> None:
        await trio.sleep(seconds)
        process_queue.is_ready = False
        if process_queue.waiting:
            self.offer(process_queue)

    async def _process_result(
        self, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage], result: object
    ) -> float | None:
        """Process a handler result. Return the seconds to pause, or None."""
        if isinstance(result, SplitResult):
            return await self._process_split(process_queue, messages, result)
        if result is None:
            self._acknowledge(process_queue, messages)
            return None
        check_result(result)
        match result:
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
        mode = (
            "ordered consumers with auto_commit"
            if isinstance(result, RollbackOffset)
            else "ordered consumers"
        )
        logger.error(
            "handler failed: %s: %s: it returned %r, which %s do not support. Return Suspend(...) to choose "
            "the delay",
            describe(process_queue, *messages), self._failures.describe(messages), result, mode,
        )  # fmt: skip
        return await self._failures.retry(process_queue, messages)

    async def _process_split(
        self, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage], result: SplitResult
    ) -> float | None:
        """Acknowledge or give up the messages without a call. Process its result for the others."""
        pauses: list[float | None] = [None]
        self._acknowledge(process_queue, [messages[index] for index in result.done])
        if result.dead_letters:
            reasons = {messages[index]: reason for index, reason in result.dead_letters.items()}
            pauses.append(await self._failures.give_up(process_queue, reasons))
        if others := result.remaining(messages):
            pauses.append(await self._process_result(process_queue, others, result.result))
        return max([pause for pause in pauses if pause is not None], default=None)

    def _acknowledge(self, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        if self._auto_commit:
            process_queue.remove_all(messages)
        else:
            process_queue.uncommitted += messages


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


def _record_call(
    counts: TopicCounters, started: float | None, error: BaseException | None, result: object
) -> None:
    """Record the duration of a call that has just ended. Does nothing if ``started`` is None."""
    if started is None:
        return
    seconds = trio.current_time() - started
    counts.calls += 1
    counts.call_seconds += seconds
    if counts.meter is not None:
        counts.meter.called(seconds, 1, outcome_name(error, result))
