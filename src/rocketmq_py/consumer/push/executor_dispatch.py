"""Concurrent dispatch to a handler that runs outside of trio, without a task for each call."""

from __future__ import annotations

import contextvars
import inspect
from collections import deque
from collections.abc import Awaitable, Iterable
from typing import Any, Final

import trio

from rocketmq_py.client.user_functions import failure_of, raise_without_failures
from rocketmq_py.consumer.pull.message_buffer import MessageBuffer
from rocketmq_py.consumer.push.base_dispatch import YIELD_EVERY, is_cancellation, note_cut_off
from rocketmq_py.consumer.push.concurrent_dispatch import (
    ConcurrentDispatch,
    RunningCall,
    describe_call,
    messages_of,
    outcome_of_call,
)
from rocketmq_py.consumer.push.handler_executor import NO_RESULT, CallBatch, HandlerCall
from rocketmq_py.consumer.push.handler_failures import corruption_error, log_end
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import ReceivedMessage

logger: Final = LibraryLogger("rocketmq_py.consumer")

MAX_PREFETCH = 512
"""The maximum number of calls queued in the executor, in addition to the ``concurrency`` running ones."""


class ExecutorDispatch(ConcurrentDispatch):
    """Dispatches messages concurrently to handlers in threads, or in tasks of an asyncio loop.

    Fast path: it starts several calls at a time, when messages arrive and when calls have ended. Successful
    calls need no trio task. ConcurrentDispatch would use a trio task for each call. Saves 75 % of push with a
    handler in threads or on asyncio.

    It queues calls in the executor ahead of time, up to twice the number of calls that ended together last.
    So a fast handler never waits for messages, and few messages wait in the queue of a slow handler.

    With hooks, which may be async, the workers of ConcurrentDispatch make the calls.

    Args as ConcurrentDispatch.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._executor = self._invoker.executor
        self._executor.on_ended = self._process_ended
        self._context = contextvars.copy_context()
        self._awaiting: set[_QueueCall] = set()  # calls whose result is being awaited
        self._until_timed = 0  # calls to start before one is timed
        self._prefetch = 0  # calls to queue in the executor, in addition to the running ones

    def close(self) -> None:
        """Start no more handler calls, and withdraw those that have not started."""
        super().close()
        for call in list(self._executor.calls):
            if type(call) is _QueueCall and self._executor.withdraw(call):
                self._in_flight -= 1
            elif type(call) is _QueueCallBatch:
                self._in_flight -= self._executor.withdraw_batch(call)
        self._check_drained()

    def _wake(self) -> None:
        if self._hooked:
            super()._wake()
        else:
            self._start_executor_calls()

    def _start_executor_calls(self) -> None:
        """Start calls with waiting messages, as far as ``concurrency`` and prefetch allow."""
        ready, batch_size = self._ready, self._batch_size
        space = self._concurrency - self._in_flight
        prefetch = self._prefetch
        in_batches = self._executor.accepts_batches and batch_size is None
        count = 0
        calls: list[HandlerCall] = []
        is_metered = False
        while ready and space + prefetch > 0:
            buffer = ready[0]
            allowed = min(space + (prefetch if buffer.allows_prefetch else 0), YIELD_EVERY)
            if allowed <= 0:
                break
            wait = None if buffer.arrivals is None else buffer.wait_of_next()
            if batch_size is None:
                deliveries: list[Any] = buffer.take_batch(allowed)
            else:
                batch = self._take_readable(buffer)
                deliveries = [] if batch is None else [batch]
            self._rotate_ready(buffer, is_empty=not deliveries)
            if not deliveries:  # the queue is dropped, or all its messages are corrupt
                continue
            space -= len(deliveries)
            count += len(deliveries)
            is_metered = buffer.counts.meter is not None
            if buffer.counts.meter is not None:
                buffer.counts.meter.waited(wait, len(deliveries))
            # Fast path: one object and one start check for many calls. Saves 15 % of push on asyncio.
            if in_batches:
                calls.append(_QueueCallBatch(buffer, deque(deliveries)))
            else:
                calls += [_QueueCall(buffer, delivery) for delivery in deliveries]
        if calls:
            self._in_flight += count
            self._until_timed -= count
            # Fast path: one call in YIELD_EVERY is timed. Saves 7 % of push with a handler in threads. With
            # metrics it is one call, or batch of calls, of those that start together.
            if self._until_timed <= 0 or is_metered:
                self._until_timed = YIELD_EVERY
                calls[0].seconds = 0.0  # not None: the executor sets its duration
            self._executor.start(calls)

    def _process_ended(self, ended: list[HandlerCall]) -> None:
        """Process the outcomes of ended calls."""
        acknowledged: dict[MessageBuffer, list[ReceivedMessage]] = {}
        count = 0
        for call in ended:
            if type(call) is _QueueCallBatch:
                count += len(call.done)
                if call.done:
                    self._record(call, len(call.done), "")
                    call.buffer.remove_all(call.done)
                continue
            assert type(call) is _QueueCall
            if call.error is not None or call.result is not None:
                # In the context of the consumer's run(), because the result may have to be awaited.
                self._context.copy().run(self._nursery.start_soon, self._process_outcome, call)
                continue
            if call.seconds is not None:
                self._record(call, 1, outcome_of_call(call, None, None))
            count += 1
            messages = acknowledged.setdefault(call.buffer, [])
            if type(call.delivery) is tuple:
                messages += call.delivery
            else:
                messages.append(call.delivery)
        for buffer, messages in acknowledged.items():
            buffer.remove_all(messages)
        self._in_flight -= count
        self._prefetch = min(2 * max(count, len(ended)), MAX_PREFETCH)
        self._continue()

    async def _process_outcome(self, call: _QueueCall) -> None:
        """Process the outcome of a call that failed or returned a result other than None."""
        result: Any = NO_RESULT
        try:
            if call.error is not None:
                raise call.error
            result = call.result
            if inspect.isawaitable(result):
                result = await self._await_result(call, result)
        except Exception as error:  # noqa: BLE001  # _process_failure() logs it
            self._record(call, 1, outcome_of_call(call, error, None))
            await self._process_failure(call, call.delivery, error)
        except BaseException as error:
            description = describe_call(call.buffer, call.delivery)
            failure = failure_of(error)
            if isinstance(failure, Exception):  # of an awaitable that a plain handler has returned
                self._record(call, 1, outcome_of_call(call, failure, None))
                await self._process_failure(call, call.delivery, failure)
            else:
                if is_cancellation(error) and call.pending is not None:
                    note_cut_off(call.buffer, messages_of(call.delivery))
                if isinstance(error, BaseExceptionGroup):
                    raise_without_failures(error, logger, "handler failed: %s", description)
                log_end(error, description)
                raise
        else:
            if result is NO_RESULT and call.is_cancelled and call.pending is not None:
                note_cut_off(call.buffer, messages_of(call.delivery))  # by the end of its loop
            if result is not NO_RESULT or call.pending is None:  # it was started
                self._record(call, 1, outcome_of_call(call, None, result))
            if result is None:
                call.buffer.remove_all(messages_of(call.delivery))
            elif result is not NO_RESULT:
                await self._process_result(call, call.delivery, result)
        finally:
            call.error = None  # break the reference cycle through the traceback
            self._in_flight -= 1
            self._continue()

    async def _await_result(self, call: _QueueCall, result: Awaitable[Any]) -> Any:
        """Await what a handler outside of trio has returned. Return NO_RESULT if that times out."""
        started = trio.current_time()
        self._awaiting.add(call)
        try:
            with trio.CancelScope() as call.runner:
                return await result
            return NO_RESULT
        finally:
            self._awaiting.discard(call)
            if call.seconds is not None:
                call.seconds += trio.current_time() - started

    def _record(self, call: _QueueCall | _QueueCallBatch, count: int, outcome: str) -> None:
        """Record the duration of a call, or of the calls of a batch, if it was timed."""
        if call.seconds is None:
            return
        counts = call.buffer.counts
        counts.calls += count
        counts.call_seconds += call.seconds
        if counts.meter is not None:
            counts.meter.called(call.seconds, count, outcome)

    def _continue(self) -> None:
        """Start more calls after some have ended."""
        if self._closed:
            self._check_drained()
        elif self._ready:
            self._wake()

    def running_calls(self) -> Iterable[RunningCall]:
        """Return the running calls, and idle ones, whose ``pending`` is None."""
        yield from super().running_calls()
        for call in [*self._executor.calls, *self._awaiting]:
            if isinstance(call, _QueueCall | _QueueCallBatch) and call.runner is not None:
                yield call

    def _note_abandoned_calls(self) -> None:
        for call in self._executor.calls:
            if isinstance(call, _QueueCall | _QueueCallBatch):
                pending = call.pending
                if call.runner is not None and pending is not None:
                    note_cut_off(call.buffer, messages_of(pending))

    def _cancel(self, call: RunningCall) -> None:
        if not isinstance(call, _QueueCall | _QueueCallBatch):
            super()._cancel(call)
        elif call in self._awaiting:
            call.runner.cancel()
        else:
            self._executor.cancel(call)


class _QueueCall(HandlerCall):
    """A handler call with messages of one queue. Also the RunningCall of the timeout checks.

    Attributes:
        delivery: the message, or tuple of messages. The handler gets a tuple as a list of its own.
    """

    def __init__(self, buffer: MessageBuffer, delivery: Any) -> None:
        super().__init__(list(delivery) if type(delivery) is tuple else delivery)
        self.buffer = buffer
        self.delivery = self.pending = delivery
        self.seen: Any = None
        self.since = 0.0

    def may_start(self) -> bool:
        """Return False if the queue was revoked. Raise the error of a message whose body is corrupt."""
        if self.buffer.dropped:
            return False
        if type(self.delivery) is not tuple and self.delivery.corruption is not None:
            raise corruption_error(self.delivery)
        return True


class _QueueCallBatch(CallBatch):
    """Handler calls with single messages of one queue. Also the RunningCall of its current call."""

    def __init__(self, buffer: MessageBuffer, messages: deque[ReceivedMessage]) -> None:
        super().__init__(messages)
        self.buffer = buffer
        self.seen: Any = None
        self.since = 0.0

    @property
    def pending(self) -> Any:
        """The message of the current call. None after the call has timed out."""
        current = self.current
        return None if current is self.expired else current

    @pending.setter
    def pending(self, _: None) -> None:
        self.expired = self.seen  # ``current`` may have changed since the timeout check

    def may_start_next(self, argument: ReceivedMessage) -> bool:
        """Return False if the queue was revoked. Raise the error of a message whose body is corrupt."""
        if self.buffer.dropped:
            return False
        if argument.corruption is not None:
            raise corruption_error(argument)
        return True

    def detach(self, argument: ReceivedMessage) -> _QueueCall:
        """Return a call for the message whose call has just started."""
        self.detached = call = _QueueCall(self.buffer, argument)
        if argument is self.expired:
            call.pending = None
        return call

    def split_rest(self) -> _QueueCallBatch:
        """Return a batch of the calls that have not started."""
        return _QueueCallBatch(self.buffer, self.waiting)
