"""Concurrent dispatch to a handler that runs outside of trio, without a task for each call."""

from __future__ import annotations

import contextvars
import inspect
import logging
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from rocketmq_py.client.user_calls import raise_without_failures
from rocketmq_py.consumer.group.meter import outcome_name
from rocketmq_py.consumer.pull.message_buffer import MessageBuffer
from rocketmq_py.consumer.push.concurrent import ConcurrentDispatch, RunningCall, describe_call
from rocketmq_py.consumer.push.dispatch import YIELD_EVERY
from rocketmq_py.consumer.push.handler_executor import NO_RESULT, CallBatch, HandlerCall
from rocketmq_py.consumer.push.handler_failures import corruption_error
from rocketmq_py.message import ReceivedMessage

logger: Final = logging.getLogger("rocketmq_py.consumer")

MAX_PREFETCH = 512
"""Calls that are queued in the executor at most, in addition to the ``concurrency`` running ones."""


class ExecutorDispatch(ConcurrentDispatch):
    """Dispatches messages concurrently to handlers in threads, or in tasks of an asyncio loop.

    Fast path: calls go to the executor several at a time, when messages arrive and when calls have ended, and
    the outcome of a call is processed without a trio task unless it has to be awaited. ConcurrentDispatch
    would use a trio task for each call. Saves 75 % of push with a handler in threads or on asyncio.

    Up to twice as many calls as have ended together last are queued in the executor ahead of time. So a fast
    handler never waits for messages, and no messages grow old waiting for a slow one.

    With hooks, which may be async, each call has a trio task, as the calls of async handlers have.

    Args as ConcurrentDispatch.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._executor = self._invoker.executor
        self._executor.on_ended = self._process_ended
        self._context = contextvars.copy_context()
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
                items: list[Any] = buffer.take_batch(allowed)
            else:
                batch = self._take_readable(buffer)
                items = [] if batch is None else [batch]
            self._rotate_ready(buffer, is_empty=not items)
            if not items:  # the queue is dropped, or all its messages are corrupt
                continue
            space -= len(items)
            count += len(items)
            is_metered = buffer.counts.meter is not None
            if buffer.counts.meter is not None:
                buffer.counts.meter.waited(wait, len(items))
            # Fast path: one object and one start check for many calls. Saves 15 % of push on asyncio.
            if in_batches:
                calls.append(_QueueCallBatch(buffer, deque(items)))
            else:
                calls += [_QueueCall(buffer, item) for item in items]
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
        processed: dict[MessageBuffer, list[ReceivedMessage]] = {}
        count = 0
        for call in ended:
            if type(call) is _QueueCallBatch:
                count += len(call.done)
                if call.seconds is not None:
                    call.buffer.counts.calls += len(call.done)
                    call.buffer.counts.call_seconds += call.seconds
                    if call.buffer.counts.meter is not None:
                        call.buffer.counts.meter.called(call.seconds, len(call.done))
                if call.done:
                    call.buffer.remove_all(call.done)
                continue
            assert type(call) is _QueueCall
            buffer, item = call.buffer, call.called_with
            if call.seconds is not None:
                buffer.counts.calls += 1
                buffer.counts.call_seconds += call.seconds
                # A call that returned an awaitable has not ended.
                has_ended = call.result is not NO_RESULT and not inspect.isawaitable(call.result)
                if buffer.counts.meter is not None and has_ended:
                    buffer.counts.meter.called(call.seconds, 1, outcome_name(call.error, call.result))
            if call.error is not None or call.result is not None:
                # In the context of the consumer's run(), because the result may have to be awaited.
                self._context.copy().run(self._nursery.start_soon, self._process_outcome, call)
                continue
            count += 1
            messages = processed.setdefault(buffer, [])
            if type(item) is tuple:
                messages += item
            else:
                messages.append(item)
        for buffer, messages in processed.items():
            buffer.remove_all(messages)
        self._in_flight -= count
        self._prefetch = min(2 * max(count, len(ended)), MAX_PREFETCH)
        self._continue()

    async def _process_outcome(self, call: _QueueCall) -> None:
        """Process the outcome of a call that failed or returned a result other than None."""
        buffer, item = call.buffer, call.called_with
        try:
            if call.error is not None:
                raise call.error
            result = call.result
            if inspect.isawaitable(result):
                result = await result
        except Exception as error:
            buffer.counts.note_error(error)
            logger.exception("handler failed: %s", describe_call(buffer, item))
            await self._redeliver(call, item if type(item) is tuple else (item,))
        except BaseExceptionGroup as group:
            raise_without_failures(group, logger, "handler failed: %s", describe_call(buffer, item))
        else:
            if result is None:
                buffer.remove_all(item if type(item) is tuple else (item,))
            elif result is not NO_RESULT:
                await self._process_result(call, item, result)
        finally:
            call.error = None  # break the reference cycle through the traceback
            self._in_flight -= 1
            self._continue()

    def _continue(self) -> None:
        if self._closed:
            self._check_drained()
        elif self._ready:
            self._wake()

    def _running_calls(self) -> Iterable[RunningCall]:
        yield from super()._running_calls()
        for call in list(self._executor.calls):
            if isinstance(call, _QueueCall | _QueueCallBatch) and call.runner is not None:
                yield call

    def _cancel(self, call: RunningCall) -> None:
        if isinstance(call, _QueueCall | _QueueCallBatch):
            self._executor.cancel(call)
        else:
            super()._cancel(call)


class _QueueCall(HandlerCall):
    """A handler call with messages of one queue. Also the RunningCall of the timeout checks.

    Attributes:
        called_with: the message, or tuple of messages.
    """

    def __init__(self, buffer: MessageBuffer, item: Any) -> None:
        super().__init__(list(item) if type(item) is tuple else item)
        self.buffer = buffer
        self.called_with = self.item = item
        self.seen: Any = None
        self.since = 0.0

    def may_start(self) -> bool:
        """Return False if the queue was revoked. Raise the error of a message whose body is corrupt."""
        if self.buffer.dropped:
            return False
        if type(self.called_with) is not tuple and self.called_with.corruption is not None:
            raise corruption_error(self.called_with)
        return True


class _QueueCallBatch(CallBatch):
    """Handler calls with single messages of one queue. Also the RunningCall of its current call."""

    def __init__(self, buffer: MessageBuffer, messages: deque[ReceivedMessage]) -> None:
        super().__init__(messages)
        self.buffer = buffer
        self.seen: Any = None
        self.since = 0.0

    @property
    def item(self) -> Any:
        """The message of the current call. None after the call has timed out."""
        current = self.current
        return None if current is self.expired else current

    @item.setter
    def item(self, _: None) -> None:
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
            call.item = None
        return call

    def split_rest(self) -> _QueueCallBatch:
        """Return a batch of the calls that have not started."""
        return _QueueCallBatch(self.buffer, self.waiting)
