"""Handing messages to a plain handler in threads, without a task for each call."""

from __future__ import annotations

import contextvars
import inspect
import logging
from typing import Any

import trio

from rocketmq_py.client.user_calls import raise_without_failures
from rocketmq_py.consumer.pull.message_buffer import MessageBuffer
from rocketmq_py.consumer.push.concurrent import ConcurrentDispatch, describe_item
from rocketmq_py.consumer.push.dispatch import YIELD_EVERY
from rocketmq_py.consumer.push.handler_failures import unreadable
from rocketmq_py.consumer.push.handler_threads import Call

logger = logging.getLogger("rocketmq_py.consumer")


class ThreadedDispatch(ConcurrentDispatch):
    """Hands out messages of all queues at once to threads: the handler is a plain function.

    A call is begun where a queue is offered, or where another call has ended; what it came to is seen to
    right there, unless something has to be waited for. While there are hooks, which may be async, there is a
    task for each call as for async handlers.

    Args as ConcurrentDispatch.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._context = contextvars.copy_context()
        self._until_timed = 0  # of many calls one is timed

    def _wake(self) -> None:
        if self._hooked:
            super()._wake()
        else:
            self._begin_calls()

    def _begin_calls(self) -> None:
        ready, one_by_one = self._ready, self._batch_size is None
        while ready and self._handling < self._concurrency:
            buffer = ready[0]
            item: Any = buffer.take() if one_by_one else self._take_several(buffer)
            if item is None or not buffer.line:
                ready.popleft()
                buffer.offered = False
                if item is None:  # the queue has been dropped, or nothing in it can be read
                    continue
            elif len(ready) > 1:
                ready.rotate(-1)
            call = _HandlerCall(self, buffer, item, self._context.copy())
            self._under_way[call] = None
            self._handling += 1
            if not self._until_timed:
                self._until_timed = YIELD_EVERY
                call.began = trio.current_time()
            self._until_timed -= 1
            if one_by_one and item.corruption is not None:
                call.error = unreadable(item)
                call.ended()
            else:
                self._invoker.threads.begin(call)

    def see_to(self, call: _HandlerCall) -> None:
        """Take what a call came to, in trio's thread."""
        buffer, item = call.buffer, call.handed_out
        if call.began is not None:
            buffer.counts.calls += 1
            buffer.counts.call_seconds += trio.current_time() - call.began
        if call.error is not None or call.result is not None:
            # With the context of whoever runs the consumer: the result may have to be awaited.
            self._context.copy().run(self._nursery.start_soon, self._settle, call)
            return
        if type(item) is tuple:
            buffer.remove_all(item)
        else:
            buffer.remove(item)
        self._end(call)

    async def _settle(self, call: _HandlerCall) -> None:
        """Take what a call came to that did not simply return."""
        buffer, item = call.buffer, call.handed_out
        try:
            if call.error is not None:
                raise call.error
            result = call.result
            if inspect.isawaitable(result):
                result = await result
        except Exception:
            logger.exception("handling %s failed", describe_item(buffer, item))
            await self._failed(call, item)
        except BaseExceptionGroup as group:
            raise_without_failures(group, logger, "handling %s failed", describe_item(buffer, item))
        else:
            if result is not None:
                await self._returned(call, item, result)
            else:
                buffer.remove_all(item if type(item) is tuple else (item,))
        finally:
            call.error = None  # else it would refer to itself by way of its traceback
            self._end(call)

    def _end(self, call: _HandlerCall) -> None:
        del self._under_way[call]
        self._handling -= 1
        if self._closed:
            self._look_whether_all_is_done()
        elif self._ready:
            self._wake()


class _HandlerCall(Call):
    """A call of the handler; also what ConcurrentDispatch knows of it.

    Attributes:
        handed_out: what it was called with.
        began: when it was begun, on trio's clock; None if it is not timed.
    """

    __slots__ = ("_dispatch", "began", "buffer", "handed_out", "item", "seen", "since")

    def __init__(
        self, dispatch: ThreadedDispatch, buffer: MessageBuffer, item: Any, context: contextvars.Context
    ) -> None:
        super().__init__(context, list(item) if type(item) is tuple else item)
        self._dispatch: ThreadedDispatch | None = dispatch
        self.buffer = buffer
        self.handed_out = self.item = item
        self.seen: Any = None
        self.since = 0.0
        self.began: float | None = None

    def ended(self) -> None:
        """Tell the dispatch."""
        if self._dispatch is not None:
            self._dispatch.see_to(self)

    def abandon(self) -> None:
        """Tell nobody: what it comes to counts no more."""
        self._dispatch = None
