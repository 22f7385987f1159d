"""Handing messages to a handler that is called outside of trio, without a task for each call."""

from __future__ import annotations

import contextvars
import inspect
import logging
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from rocketmq_py.client.user_calls import raise_without_failures
from rocketmq_py.consumer.pull.message_buffer import MessageBuffer
from rocketmq_py.consumer.push.concurrent import CallUnderWay, ConcurrentDispatch, describe_item
from rocketmq_py.consumer.push.dispatch import YIELD_EVERY
from rocketmq_py.consumer.push.far_side import NO_OUTCOME, Bunch, Call
from rocketmq_py.consumer.push.handler_failures import unreadable
from rocketmq_py.message import ReceivedMessage

logger: Final = logging.getLogger("rocketmq_py.consumer")

MOST_AHEAD = 512
"""How many messages are handed over, at the most, beside those of the calls that may be under way."""


class FarDispatch(ConcurrentDispatch):
    """Hands out messages of all queues at once, to threads or to tasks of an asyncio loop.

    Messages are handed over in bunches: when some are offered, and when a bunch of calls has ended. What a
    call came to is seen to right there, unless something has to be waited for. While there are hooks, which
    may be async, there is a task for each call as for async handlers.

    As many calls wait on the far side, beside those that may be under way, as twice those that have last
    ended together: a quick handler never waits for messages, and a slow one has none wait for it which then
    grow old there.

    Args as ConcurrentDispatch.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._far = self._invoker.far
        self._far.on_ended = self._take
        self._context = contextvars.copy_context()
        self._until_timed = 0  # of many calls one is timed
        self._ahead = 0

    def close(self) -> None:
        """Hand out no more, and take back what was not begun."""
        super().close()
        for call in list(self._far.calls):
            if type(call) is _HandlerCall and self._far.withdraw(call):
                self._handling -= 1
            elif type(call) is _HandlerBunch:
                self._handling -= self._far.withdraw_all(call)
        self._look_whether_all_is_done()

    def _wake(self) -> None:
        if self._hooked:
            super()._wake()
        else:
            self._begin_calls()

    def _begin_calls(self) -> None:
        ready, batch_size = self._ready, self._batch_size
        space = self._concurrency - self._handling
        ahead = self._ahead
        in_bunches = self._far.takes_bunches and batch_size is None
        count = 0
        calls: list[Call] = []
        while ready and space + ahead > 0:
            buffer = ready[0]
            may_take = min(space + (ahead if buffer.may_wait else 0), YIELD_EVERY)
            items: list[Any]
            if may_take <= 0:
                break
            if batch_size is None:
                items = buffer.take_several(may_take)
            else:
                several = self._take_several(buffer)
                items = [] if several is None else [several]
            self._next_queue(buffer, is_over=not items)
            if not items:  # the queue has been dropped, or nothing in it can be read
                continue
            space -= len(items)
            count += len(items)
            if in_bunches:
                calls.append(_HandlerBunch(buffer, deque(items)))
            else:
                calls += [_HandlerCall(buffer, item) for item in items]
        if calls:
            self._handling += count
            self._until_timed -= count
            if self._until_timed <= 0:
                self._until_timed = YIELD_EVERY
                calls[0].seconds = 0.0
            self._far.begin(calls)

    def _take(self, ended: list[Call]) -> None:
        """Take what calls came to, in trio's thread."""
        done: dict[MessageBuffer, list[ReceivedMessage]] = {}
        begun = 0
        for call in ended:
            if type(call) is _HandlerBunch:
                count = len(call.done)
                begun += count
                if call.seconds is not None:
                    call.buffer.counts.calls += count
                    call.buffer.counts.call_seconds += call.seconds
                if count:
                    call.buffer.remove_all(call.done)
                continue
            assert type(call) is _HandlerCall
            buffer, item = call.buffer, call.handed_out
            if call.seconds is not None:
                buffer.counts.calls += 1
                buffer.counts.call_seconds += call.seconds
            if call.error is not None or call.result is not None:
                # With the context of whoever runs the consumer: the result may have to be awaited.
                self._context.copy().run(self._nursery.start_soon, self._settle, call)
                continue
            begun += 1
            messages = done.get(buffer)
            if messages is None:
                messages = done[buffer] = []
            if type(item) is tuple:
                messages += item
            else:
                messages.append(item)
        for buffer, messages in done.items():
            buffer.remove_all(messages)
        self._handling -= begun
        self._ahead = min(2 * max(begun, len(ended)), MOST_AHEAD)
        self._go_on()

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
            if result is None:
                buffer.remove_all(item if type(item) is tuple else (item,))
            elif result is not NO_OUTCOME:
                await self._returned(call, item, result)
        finally:
            call.error = None  # else it would refer to itself by way of its traceback
            self._handling -= 1
            self._go_on()

    def _go_on(self) -> None:
        if self._closed:
            self._look_whether_all_is_done()
        elif self._ready:
            self._wake()

    def _calls_under_way(self) -> Iterable[CallUnderWay]:
        yield from super()._calls_under_way()
        for call in list(self._far.calls):
            if isinstance(call, _HandlerCall | _HandlerBunch) and call.runner is not None:
                yield call

    def _cancel(self, call: CallUnderWay) -> None:
        if isinstance(call, _HandlerCall | _HandlerBunch):
            self._far.cancel(call)
        else:
            super()._cancel(call)


class _HandlerCall(Call):
    """A call of the handler; also what ConcurrentDispatch knows of it.

    Attributes:
        handed_out: what it was called with.
    """

    seen: Any = None
    since = 0.0

    def __init__(self, buffer: MessageBuffer, item: Any) -> None:
        self.argument = list(item) if type(item) is tuple else item
        self.buffer = buffer
        self.handed_out = self.item = item

    def is_wanted(self) -> bool:
        """Tell whether the queue is this member's still; and fail if its body cannot be read."""
        if self.buffer.dropped:
            return False
        if type(self.handed_out) is not tuple and self.handed_out.corruption is not None:
            raise unreadable(self.handed_out)
        return True


class _HandlerBunch(Bunch):
    """Calls of the handler with messages of one queue; also what ConcurrentDispatch knows of the one begun.

    Attributes:
        buffer: the queue.
    """

    seen: Any = None
    since = 0.0

    def __init__(self, buffer: MessageBuffer, messages: deque[ReceivedMessage]) -> None:
        super().__init__(messages)
        self.buffer = buffer

    @property
    def item(self) -> Any:
        """What is handled; None once that took too long."""
        begun = self.begun
        return None if begun is self.expired else begun

    @item.setter
    def item(self, _: None) -> None:
        self.expired = self.seen  # the next one may have begun since that was looked at

    def may_begin(self, argument: ReceivedMessage) -> bool:
        """As ``is_wanted`` of a single call."""
        if self.buffer.dropped:
            return False
        if argument.corruption is not None:
            raise unreadable(argument)
        return True

    def take_out(self, argument: ReceivedMessage) -> _HandlerCall:
        """Return the call that has begun as one of its own."""
        self.taken_out = call = _HandlerCall(self.buffer, argument)
        if argument is self.expired:
            call.item = None
        return call

    def rest(self) -> _HandlerBunch:
        """Return those that have not begun as a bunch of their own."""
        return _HandlerBunch(self.buffer, self.waiting)
