"""The base of both dispatches: queues with waiting messages, running calls and their outcomes."""

from __future__ import annotations

import contextvars
import inspect
from collections import deque
from collections.abc import Awaitable, Sequence
from typing import Any, Final, Generic, TypeVar

import trio

from rocketmq_py.client.user_functions import failure_of, raise_without_failures, users_traceback
from rocketmq_py.consumer.group.counters import outcome_name
from rocketmq_py.consumer.group.hooks import ConsumerHook, ConsumerHooks
from rocketmq_py.consumer.pull.message_buffer import MessageBuffer
from rocketmq_py.consumer.push.handler import Handler, open_executor
from rocketmq_py.consumer.push.handler_executor import NO_RESULT, HandlerCall, HandlerExecutor
from rocketmq_py.consumer.push.handler_failures import describe, log_end
from rocketmq_py.consumer.push.handler_workers import HandlerWorkers
from rocketmq_py.consumer.push.typed_handlers import HandlerSettings
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.remoting.nurseries import split_cancelled

logger: Final = LibraryLogger("rocketmq_py.consumer")

Buffer = TypeVar("Buffer", bound=MessageBuffer)


class Dispatch(Generic[Buffer]):
    """Starts handler calls for the queues in turn, and processes their outcomes.

    An executor makes the calls. With hooks, which may be async, a trio task makes each call instead, and
    waits for the executor between the hooks. Subclasses define which messages a call gets, and what follows
    from its outcome.

    Args:
        nursery: runs the tasks of the executors and of outcomes that take time.
        handle: the user's handler.
        settings: the settings of the consumer.
        hooks: called around each handler call. None calls none.

    Attributes:
        executor: calls the handler.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        handle: Handler,
        settings: HandlerSettings,
        *,
        hooks: ConsumerHooks | None = None,
    ) -> None:
        concurrency = settings.concurrency
        self.executor: HandlerExecutor = open_executor(handle, concurrency, nursery)
        self.executor.on_ended = self._process_ended
        self._with_hooks = HandlerWorkers(
            self._call_hooked, concurrency, nursery, cancels=self.executor.cancels
        )
        self._with_hooks.on_ended = self._process_ended
        self._nursery = nursery
        self._concurrency = concurrency
        self._batch_size = settings.batch_size
        self._hooks = hooks
        self._hooked: Sequence[ConsumerHook] = () if hooks is None else hooks.all
        self._context = contextvars.copy_context()
        # Queues with waiting messages, each once. The first one is served next.
        self._ready: deque[Buffer] = deque()
        # Queued and running calls, and those whose outcome is being processed, in the order of their start.
        self._calls: dict[HandlerCall, None] = {}
        self._closed = False
        self._draining = trio.CancelScope()
        self._drained = trio.Event()
        nursery.start_soon(self._abandon_at_end)

    @property
    def in_flight(self) -> int:
        """The number of handler calls whose outcome has not been processed."""
        return len(self._calls)

    def running_calls(self) -> list[HandlerCall]:
        """Return the calls that are running and have not timed out."""
        return [call for call in self._calls if call.runner is not None and not call.is_timed_out]

    def offer(self, buffer: Buffer) -> None:
        """Dispatch the waiting messages of a queue."""
        if self._closed:
            return
        if not buffer.is_ready:
            buffer.is_ready = True
            self._ready.append(buffer)
        self._start_calls()

    def close(self) -> None:
        """Start no more handler calls, and withdraw those that have not started."""
        self._closed = True
        self._ready.clear()
        for call in reversed(list(self._calls)):
            if call.runner is None and call.executor.withdraw(call):
                call.buffer.put_back(call.messages)
                self._remove(call)
        self._check_drained()

    async def drain(self) -> None:
        """Start no more handler calls, and wait until the running ones have ended."""
        self.close()
        await self._drained.wait()

    async def drain_within(self, seconds: float, group: str) -> None:
        """Start no more handler calls. Wait until the running ones have ended, or until :meth:`cut_off`.

        Args:
            seconds: the maximum time to wait.
            group: the consumer group, for the log.
        """
        self.close()
        if self._calls:
            logger.info("waiting for %d handlers group=%s up to %g s", self.in_flight, group, seconds)
        self._draining.deadline = trio.current_time() + seconds
        with self._draining:
            await self.drain()

    def cut_off(self) -> None:
        """Wait for the running handler calls no longer."""
        self._draining.cancel()

    # Calls

    def _start_calls(self) -> None:
        """Start calls with waiting messages, as far as ``concurrency`` allows."""
        raise NotImplementedError

    @property
    def _next_executor(self) -> HandlerExecutor:
        """The executor of the next calls: hooks may be added and removed at any time."""
        return self._with_hooks if self._hooked else self.executor

    def _start(self, executor: HandlerExecutor, calls: Sequence[HandlerCall]) -> None:
        self._calls.update(dict.fromkeys(calls))
        if executor is self._with_hooks:
            for call in calls:
                call.argument = call.buffer.queue, call.argument
        executor.start(calls)

    async def _call_hooked(self, argument: tuple[MessageQueue, Any]) -> Any:
        """Call the handler and the hooks around it, with messages of a queue."""
        assert self._hooks is not None
        return await self._hooks.call(self.executor.call, *argument)

    # Outcomes

    def _process_ended(self, ended: Sequence[HandlerCall]) -> None:
        """Process the outcomes of ended calls, then start the next calls."""
        succeeded: list[HandlerCall] = []
        for call in ended:
            if call.result is None and call.error is None:
                succeeded.append(call)
            else:
                call.is_collected = True
                # In the context of the consumer's run(), because the result may have to be awaited.
                self._context.copy().run(self._nursery.start_soon, self._process_outcome, call)
        if succeeded:
            self._acknowledge_calls(succeeded)
        self._continue()

    async def _process_outcome(self, call: HandlerCall) -> None:
        """Process the outcome of a call that failed, was cancelled, or returned a result."""
        pause: float | None = None
        try:
            if call.result is not None and inspect.isawaitable(call.result):
                await self._await_result(call, call.result)
            if call.result is not NO_RESULT or call.is_timed_out:
                record([call])
            if call.is_cancelled:
                self._process_cancellation(call)
            elif isinstance(call.error, Exception):
                call.buffer.counts.note_error(call.error)
                pause = await self._process_failure(call, call.error)
            elif call.error is None and call.result is not NO_RESULT:
                pause = await self._process_result(call, call.messages, call.result)
            if call.error is not None and not isinstance(call.error, Exception):
                _raise_end(call.error, call)
        except BaseException:  # the consumer ends
            self.close()
            raise
        finally:
            call.error = None  # break the reference cycle through the traceback
            self._remove(call, pause)
            self._continue()

    async def _await_result(self, call: HandlerCall, result: Awaitable[Any]) -> None:
        """Await the awaitable that a plain handler has returned."""
        started, call.result = trio.current_time(), None
        try:
            with trio.CancelScope() as scope:
                call.scope = call.runner = scope
                call.result = await result
            if scope.cancelled_caught:  # it has timed out
                call.result = NO_RESULT
        except BaseException as error:  # noqa: BLE001  # recorded, or raised again
            if split_cancelled(failure_of(error))[0] is None:
                call.fail(error)
            else:
                note_cut_off(call)
                _raise_end(error, call)
        finally:
            call.scope = call.runner = None
            call.seconds += trio.current_time() - started

    def _process_cancellation(self, call: HandlerCall) -> None:
        """Process the end of a call that timed out, or that was cancelled because the consumer ends."""
        if isinstance(call.error, Exception):  # it failed while it was being cancelled
            logger.error(
                "handler failed: %s", describe(call.buffer, *call.messages),
                exc_info=users_traceback(call.error),
            )  # fmt: skip
        if not call.is_timed_out:
            note_cut_off(call)

    def _acknowledge_calls(self, calls: Sequence[HandlerCall]) -> None:
        """Process the end of calls that returned None."""
        raise NotImplementedError

    async def _process_failure(self, call: HandlerCall, error: Exception) -> float | None:
        """Log an exception of the handler, and have the messages delivered again.

        Returns the seconds to pause the queue, or None.
        """
        raise NotImplementedError

    async def _process_result(
        self, call: HandlerCall, messages: Sequence[ReceivedMessage], result: object
    ) -> float | None:
        """Process a result of the handler that stands for these messages of a call.

        Returns the seconds to pause the queue, or None.
        """
        raise NotImplementedError

    def _remove(self, call: HandlerCall, pause: float | None = None) -> None:
        """Forget a call whose outcome has been processed, or that was withdrawn.

        Args:
            call: the call.
            pause: seconds to pause its queue, or None.
        """
        del self._calls[call]

    def _continue(self) -> None:
        """Start more calls after some have ended."""
        if self._closed:
            self._check_drained()
        elif self._ready:
            self._start_calls()

    def _check_drained(self) -> None:
        if not self._calls:
            self._drained.set()

    # The end

    async def _abandon_at_end(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self.close()  # calls that end now start no others
            self.executor.collect_finished()
            self.executor.abandon()
            if not isinstance(self.executor, HandlerWorkers):  # else the end of the nursery cancels the calls
                self._cut_off_calls()

    def _cut_off_calls(self) -> None:
        """Note the calls that the executor has started, or is about to start, and that no task processes."""
        for call in self._calls:
            if call.executor is self.executor and not (call.is_collected or call.is_timed_out):
                note_cut_off(call)
                self._process_abandoned(call)

    def _process_abandoned(self, call: HandlerCall) -> None:
        """Process the end of a call that its executor does not wait for any longer."""


def record(calls: Sequence[HandlerCall]) -> None:
    """Record the durations and the outcomes of calls with messages of one queue."""
    counts = calls[0].buffer.counts
    counts.calls += len(calls)
    counts.call_seconds += sum([call.seconds for call in calls])
    if counts.meter is not None:
        for call in calls:
            outcome = "TimeoutError" if call.is_timed_out else outcome_name(call.error, call.result)
            counts.meter.called(call.seconds, outcome)


def note_cut_off(call: HandlerCall) -> None:
    """Log and count messages whose handler call is cancelled or abandoned, because the consumer ends."""
    call.buffer.counts.cut_off += len(call.messages)
    for message in call.messages:
        logger.warning("handler cut off: %s: the message is delivered again", describe(call.buffer, message))


def _raise_end(error: BaseException, call: HandlerCall) -> None:
    """Raise an error of a handler that ends the consumer."""
    description = describe(call.buffer, *call.messages)
    if isinstance(error, BaseExceptionGroup):
        raise_without_failures(error, logger, "handler failed: %s", description)
    log_end(error, description)
    raise error
