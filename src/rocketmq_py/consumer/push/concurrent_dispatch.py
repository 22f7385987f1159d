"""Concurrent dispatch: workers that call the message handler for all assigned queues at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final, Protocol

import trio

from rocketmq_py.client.user_functions import failure_of, raise_without_failures, users_traceback
from rocketmq_py.consumer.group.handler_results import ConsumeLater, SplitResult, check_result
from rocketmq_py.consumer.group.hooks import ConsumerHooks
from rocketmq_py.consumer.group.meter import outcome_name
from rocketmq_py.consumer.pull.message_buffer import MessageBuffer
from rocketmq_py.consumer.push.base_dispatch import YIELD_EVERY, Dispatch, is_cancellation, note_cut_off
from rocketmq_py.consumer.push.handler_failures import (
    FailedMessages,
    Redelivery,
    corruption_error,
    describe,
    log_end,
)
from rocketmq_py.consumer.push.invoker import Invoker, SuspendedCall
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import ReceivedMessage

logger: Final = LibraryLogger("rocketmq_py.consumer")

TIMEOUT_DELAY_LEVEL = 3
"""The delay level of messages whose handler timed out. Java: ProcessQueue.cleanExpiredMsg."""
CHECKS_PER_TIMEOUT = 10
"""Checks for timed-out calls per ``consume_timeout``."""

_COMPLETED = object()
"""Sentinel: all calls completed without suspending and returned None."""


class RunningCall(Protocol):
    """A handler call in progress. Its delivery is a message, or a tuple of messages.

    Attributes:
        buffer: the queue of the messages.
        pending: the delivery while its outcome is pending. None when idle, after the call has timed out, and
            once its messages are being sent back.
        seen: ``pending`` at the previous timeout check.
        since: the time of the check that saw it first.
    """

    buffer: MessageBuffer
    pending: Any
    seen: Any
    since: float


class _Worker:
    """A worker task's state: its current calls and the cancel scope around them.

    A worker calls the handler several times for one queue. Only the last of these calls can suspend, fail, or
    return a result.

    Attributes:
        buffer, pending, seen, since: the last call as a RunningCall.
        delivery: the delivery of the last call, or None at the end of a queue.
        calls: the number of calls.
        has_suspended: whether the last call has suspended.
        started: the time when the first call started.
        suspended_at: the time when the last call suspended. None if it did not.
        wait: seconds that the first message has waited. None if unknown.
        scope: cancelled when the last call times out.
        until_yield: calls left before the worker yields to other tasks.
    """

    __slots__ = (
        "buffer", "calls", "delivery", "has_suspended", "pending", "scope", "seen", "since", "started",
        "suspended_at", "until_yield", "wait",
    )  # fmt: skip

    def __init__(self) -> None:
        self.buffer: MessageBuffer
        self.pending: Any = None
        self.seen: Any = None
        self.since = 0.0
        self.delivery: Any = None
        self.calls = 0
        self.has_suspended = False
        self.started = 0.0
        self.suspended_at: float | None = None
        self.wait: float | None = None
        self.scope = trio.CancelScope()
        self.until_yield = 0


class ConcurrentDispatch(Dispatch[MessageBuffer]):
    """Dispatches messages to the handler concurrently. Java: ``ConsumeMessageConcurrentlyService``.

    A worker calls the handler in a loop for as long as the calls complete without suspending, and
    acknowledges their messages together. When a call suspends, the worker wakes another worker, so that up to
    ``concurrency`` calls run at once.

    Args:
        nursery: runs the workers.
        invoker: calls the handler.
        concurrency: the number of handler calls that may run at once.
        batch_size: the maximum number of messages in a call. None calls the handler with single messages.
        timeout: seconds after which a call counts as failed.
        max_reconsume_times: redeliveries after which a message becomes a dead letter. None for broadcasting
            groups, which have no redelivery.
        failed_messages: takes the messages of failed calls.
        hooks: called around each handler call. None calls none.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        invoker: Invoker,
        *,
        concurrency: int,
        batch_size: int | None,
        timeout: float,
        max_reconsume_times: int | None,
        failed_messages: FailedMessages,
        hooks: ConsumerHooks | None = None,
    ) -> None:
        super().__init__(nursery, invoker, concurrency=concurrency, hooks=hooks)
        self._batch_size = batch_size
        self._timeout = timeout
        self._redelivery = Redelivery(failed_messages, self, max_reconsume_times)
        self._workers: list[_Worker] = []
        nursery.start_soon(self._redelivery.run)
        nursery.start_soon(self._check_timeouts)

    async def _work(self) -> None:
        worker = _Worker()
        self._workers.append(worker)
        self._is_waking = False
        while True:
            with trio.CancelScope() as worker.scope:
                await self._serve(worker)

    async def _serve(self, worker: _Worker) -> None:
        """Call the handler for one queue after the other, until a call fails or times out."""
        ready = self._ready
        worker.until_yield = YIELD_EVERY
        while True:
            if not ready:
                await self._idle.park()
                self._is_waking = False
                worker.until_yield = YIELD_EVERY
                continue
            worker.buffer = buffer = ready[0]
            self._in_flight += 1
            result: Any = None
            try:
                result = self._start_calls(worker, buffer)
                if type(result) is SuspendedCall:
                    worker.suspended_at = trio.current_time()
                    result = await result
                    worker.until_yield = YIELD_EVERY
            except Exception as error:  # noqa: BLE001  # _process_failure() logs it
                self._record_calls(worker, error, result)
                await self._process_failure(worker, worker.delivery, error)
            except BaseException as error:
                failure = failure_of(error)
                if isinstance(failure, Exception):
                    self._record_calls(worker, failure, result)
                    await self._process_failure(worker, worker.delivery, failure)
                else:
                    if worker.pending is None:  # the call has timed out
                        self._record_calls(worker, error, result)
                    elif is_cancellation(error):
                        note_cut_off(buffer, messages_of(worker.delivery))
                    call = describe_call(buffer, worker.delivery)
                    if isinstance(error, BaseExceptionGroup):
                        raise_without_failures(error, logger, "handler failed: %s", call)
                    log_end(error, call)
                    raise
            else:
                self._record_calls(worker, None, result)
                if result is None:
                    buffer.remove_all(messages_of(worker.delivery))
                elif result is not _COMPLETED:
                    await self._process_result(worker, worker.delivery, result)
            finally:
                self._in_flight -= 1
                if self._closed:
                    self._check_drained()
            if result is not _COMPLETED:
                if worker.pending is None:
                    return
                worker.pending = None
            if ready and not worker.until_yield:  # (an empty queue parks, which yields anyway)
                worker.until_yield = YIELD_EVERY
                self._is_waking = True  # this worker continues first, so waking another one would be wasted
                await trio.lowlevel.checkpoint()
                self._is_waking = False

    def _start_calls(self, worker: _Worker, buffer: MessageBuffer) -> Any:
        """Call the handler for messages of one queue until a call suspends, fails, or does not return None.

        Acknowledges the messages of the calls before that together. Another worker is woken up for the
        messages after that call.

        Fast path: drives the coroutine of ``_run_calls`` by hand, so that a worker learns whether a call has
        suspended. Waking another worker before each call instead would need no SuspendedCall. Saves 24 % of
        push.

        Returns:
            ``_COMPLETED``, or a SuspendedCall, or the result of a call that did not return None.

        Raises:
            The exception that the handler raised.
        """
        completed: list[Any] = []
        worker.has_suspended = False
        worker.suspended_at = None
        worker.wait = None if buffer.arrivals is None else buffer.wait_of_next()
        worker.started = trio.current_time()
        calls = self._run_calls(worker, buffer, completed)
        result: Any = None
        try:
            result = SuspendedCall(calls, calls.send(None))
            worker.has_suspended = True
        except StopIteration as stop:
            result = stop.value
        finally:
            worker.calls = len(completed)
            if result is not _COMPLETED:
                worker.calls += 1
                worker.pending = worker.delivery
            worker.until_yield -= worker.calls
            if completed:
                buffer.remove_all(completed if self._batch_size is None else chain.from_iterable(completed))
            if self._ready:  # else the handler has stopped the consumer
                self._rotate_ready(buffer, is_empty=worker.delivery is None)
                if self._ready and result is not _COMPLETED and not self._is_waking:
                    self._wake()
        return result

    async def _run_calls(self, worker: _Worker, buffer: MessageBuffer, completed: list[Any]) -> Any:
        """Call the handler as :meth:`_start_calls` does, and add the completed deliveries to ``completed``.

        Returns the result of the last call, or ``_COMPLETED``. Raises the exception that the handler raised.
        """
        take: Callable[[], Any] = buffer.take
        call = self._invoker.call
        if self._batch_size is not None:
            take = partial(self._take_readable, buffer)
        if self._hooked:
            call = partial(self._call_hooked, buffer)
        ready, one_by_one = self._ready, self._batch_size is None
        for _ in range(worker.until_yield):
            if not ready:  # the handler has stopped the consumer
                break
            worker.delivery = delivery = take()
            if delivery is None:  # the queue is empty or dropped
                break
            if one_by_one and delivery.corruption is not None:
                raise corruption_error(delivery)
            result = await call(delivery)
            if result is not None or worker.has_suspended:
                return result
            completed.append(delivery)
        return _COMPLETED

    def _rotate_ready(self, buffer: MessageBuffer, *, is_empty: bool) -> None:
        """Move the current queue to the back of the ready list, or remove it if it is empty."""
        if is_empty or not buffer.waiting_messages:
            self._ready.popleft()
            buffer.is_ready = False
        elif len(self._ready) > 1:
            self._ready.rotate(-1)

    def _take_readable(self, buffer: MessageBuffer) -> tuple[ReceivedMessage, ...] | None:
        """Return the next batch of readable messages. Corrupt messages are sent back to the broker."""
        assert self._batch_size is not None
        while messages := buffer.take_batch(self._batch_size):
            readable = tuple([message for message in messages if message.corruption is None])
            if len(readable) < len(messages):
                self._send_back_corrupt(buffer, messages)
            if readable:
                return readable
        return None

    def _send_back_corrupt(self, buffer: MessageBuffer, messages: Iterable[ReceivedMessage]) -> None:
        for message in messages:
            if message.corruption is not None:
                error = corruption_error(message)
                buffer.counts.note_error(error)
                self._log_failure(buffer, (message,), error)
                self._nursery.start_soon(self._redelivery.redeliver, buffer, [message], 0)

    def _record_calls(self, worker: _Worker, error: BaseException | None, result: object) -> None:
        """Record the durations of a worker's calls, with the outcome of the last one."""
        counts, ended = worker.buffer.counts, trio.current_time()
        counts.calls += worker.calls
        counts.call_seconds += ended - worker.started
        if counts.meter is not None:
            outcome = "" if result is _COMPLETED else outcome_of_call(worker, error, result)
            counts.meter.waited(worker.wait, worker.calls)
            counts.meter.called_in_sequence(worker.calls, worker.started, worker.suspended_at, ended, outcome)

    async def _process_failure(self, call: RunningCall, delivery: Any, error: Exception) -> None:
        """Log an exception of the handler, and send the messages back."""
        call.buffer.counts.note_error(error)
        self._log_failure(call.buffer, messages_of(delivery), error)
        await self._redeliver(call, messages_of(delivery))

    def _log_failure(
        self, buffer: MessageBuffer, messages: Sequence[ReceivedMessage], error: Exception
    ) -> None:
        logger.error(
            "handler failed: %s: %s", describe(buffer, *messages), self._redelivery.describe(messages),
            exc_info=users_traceback(error),
        )  # fmt: skip

    async def _process_result(self, call: RunningCall, delivery: Any, result: object) -> None:
        """Process a handler result other than None."""
        messages = messages_of(delivery)
        if isinstance(result, SplitResult):
            messages, result = await self._process_split(call, messages, result)
            if not messages:
                return
        if result is None:
            call.buffer.remove_all(messages)
            return
        check_result(result)
        if not isinstance(result, ConsumeLater):
            logger.error(
                "handler failed: %s: %s: it returned %r, which concurrent consumers do not support. Return "
                "ConsumeLater(...) to choose the delay",
                describe_call(call.buffer, delivery), self._redelivery.describe(messages), result,
            )  # fmt: skip
            await self._redeliver(call, messages)
            return
        call.buffer.remove_all(messages[: result.done])
        if call.pending is not None:
            call.pending = None
            await self._redelivery.redeliver(call.buffer, messages[result.done :], result.delay_level)

    async def _process_split(
        self, call: RunningCall, messages: Sequence[ReceivedMessage], result: SplitResult
    ) -> tuple[list[ReceivedMessage], object]:
        """Settle the messages that the handler did not get. Return the others, and the handler's result."""
        call.buffer.remove_all([messages[index] for index in result.done])
        if result.dead_letters and call.pending is not None:  # else it has timed out, and they were sent back
            reasons = {messages[index]: reason for index, reason in result.dead_letters.items()}
            await self._redelivery.give_up(call.buffer, reasons)
        return result.remaining(messages), result.result

    async def _redeliver(self, call: RunningCall, messages: Sequence[ReceivedMessage]) -> None:
        if call.pending is not None:  # else it has timed out, and they were sent back
            call.pending = None
            await self._redelivery.redeliver(call.buffer, messages, 0)

    # Timeouts

    async def _check_timeouts(self) -> None:
        while True:
            await trio.sleep(self._timeout / CHECKS_PER_TIMEOUT)
            now = trio.current_time()
            for call in self.running_calls():
                if call.pending is not call.seen:
                    call.seen, call.since = call.pending, now
                elif call.pending is not None and now - call.since >= self._timeout:
                    self._time_out(call, call.seen)

    def running_calls(self) -> Iterable[RunningCall]:
        """Return the running calls, and idle ones, whose ``pending`` is None."""
        return list(self._workers)

    def _time_out(self, call: RunningCall, delivery: Any) -> None:
        """Time out a running call: send its messages back, and cancel the handler if possible."""
        buffer = call.buffer
        call.pending = None
        buffer.counts.note_error(TimeoutError(f"a handler call took more than {self._timeout:g} s"))
        logger.error(
            "handler timed out after %g s: %s: %s",
            self._timeout, describe_call(buffer, delivery),
            self._redelivery.describe(messages_of(delivery), TIMEOUT_DELAY_LEVEL),
        )  # fmt: skip
        self._nursery.start_soon(
            self._redelivery.redeliver, buffer, messages_of(delivery), TIMEOUT_DELAY_LEVEL
        )
        self._cancel(call)

    def _cancel(self, call: RunningCall) -> None:
        if self._invoker.cancels and isinstance(call, _Worker):
            call.scope.cancel()


def outcome_of_call(call: RunningCall, error: BaseException | None, result: object) -> str:
    """Return the outcome of a call that has just ended, for metrics. Call it before its messages settle."""
    return "TimeoutError" if call.pending is None else outcome_name(error, result)


def messages_of(delivery: Any) -> Sequence[ReceivedMessage]:
    """Return the messages of a delivery."""
    return delivery if isinstance(delivery, tuple) else (delivery,)


def describe_call(buffer: MessageBuffer, delivery: Any) -> str:
    """Describe the messages of a handler call for log lines."""
    return describe(buffer, *messages_of(delivery))
