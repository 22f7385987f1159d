"""The base classes of the consumers: handlers and listeners on the loop, and cancellable fetching."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from rocketmq_py import consumer
from rocketmq_py.aio.handler_tasks import HandlerInThreads, HandlerOnLoop
from rocketmq_py.aio.hosted import Hosted, written_for
from rocketmq_py.arguments import Duration
from rocketmq_py.callables import check_methods, is_async
from rocketmq_py.client.user_functions import call_user_function
from rocketmq_py.consumer import AssignmentListener, PoppedMessage
from rocketmq_py.consumer.push.handler import Handler
from rocketmq_py.consumer.push.typed_handlers import prepare_handler
from rocketmq_py.handoff import hosted_consumer as base
from rocketmq_py.handoff.forwarding import with_sections_of
from rocketmq_py.handoff.hosted import Target
from rocketmq_py.handoff.undelivered_messages import Fetch
from rocketmq_py.message import MessageQueue, ReceivedMessage

P = ParamSpec("P")
Item = TypeVar("Item")


class BaseConsumer(base.BaseConsumer[Target], Hosted[Target]):
    """The base class of the consumers."""

    def _listener_on_loop(self, listener: AssignmentListener | None) -> AssignmentListener | None:
        """Return a listener that calls the async methods of the user's on the loop of this consumer."""
        if listener is None:
            return None
        check_methods(listener, "assignment_listener", AssignmentListener)
        return _ListenerOnLoop(
            self._for_own_loop(listener.on_assigned), self._for_own_loop(listener.on_revoked)
        )


class _ListenerOnLoop(AssignmentListener):
    """Calls two functions in place of the methods of a user's listener."""

    def __init__(self, on_assigned: Callable[..., Any], on_revoked: Callable[..., Any]) -> None:
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked

    async def on_assigned(self, queues: list[MessageQueue]) -> None:
        await call_user_function(self._on_assigned, queues, abandon_on_cancel=True)

    async def on_revoked(self, queues: list[MessageQueue]) -> None:
        await call_user_function(self._on_revoked, queues, abandon_on_cancel=True)


class HandlerConsumer(base.HandlerConsumer[Target], BaseConsumer[Target]):
    """The base class of the consumers that call a handler."""

    async def run(self, handle: Handler) -> None:
        """Join the group and call ``handle`` for its messages, until :meth:`stop` or until cancelled.

        Async handlers run in at most ``concurrency`` tasks of the running loop, plain ones in as many worker
        threads, all with the context variables of this call. If another task cancels a handler's task, the
        handler has failed and its message is delivered again. When cancelled, running handlers are cancelled,
        or abandoned if they run in threads, and their messages are delivered again.

        Args:
            handle: an async or a plain function. It is called with a ReceivedMessage, or with a list of them
                if ``batch_size`` is set. If its parameter is annotated with another type, it is called with
                the decoded body, and a second parameter receives the message. Returning None acknowledges the
                messages. An exception has them delivered again, and they become dead letters after
                ``max_reconsume_times`` failures. Returning a ConsumeLater, or a Suspend for ordered messages
                and lite topics, has them delivered again after a chosen time.

        Raises:
            ClosedError: the consumer is not open.
            ConfigurationError: ``handle`` has the wrong parameters, the consumer is running already, or
                another consumer of this client is in the group.
            StoreError: the offset file of a broadcasting consumer cannot be read.
            SqlFilterRefusedError: a broker does not accept a subscribed SQL filter.
        """
        self._check_open()
        handle = prepare_handler(handle, self._any_target.settings)
        adapted = HandlerOnLoop(handle) if is_async(handle) else HandlerInThreads(handle)
        try:
            await self._call(self._any_target.run, adapted)
        except GeneratorExit:  # the loop is closed, so the tasks cannot be awaited
            adapted.tasks.clear()
            raise
        finally:
            if adapted.tasks:  # they were cancelled when the run ended
                await asyncio.wait(adapted.tasks)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, Exception) and self._thread.is_usable:
            self._thread.post(self._stop_waiting)  # a cancellation or Ctrl-C
        await super().__aexit__(kind, error, traceback)

    def _close_soon(self) -> None:
        """Close it without waiting. If the loop is closed, its handlers cannot end."""
        if self._link.loop.is_closed() and self._thread.is_usable:
            self._thread.post(self._stop_waiting)
        super()._close_soon()


class FetchingConsumer(base.FetchingConsumer[Target], BaseConsumer[Target]):
    """The base class of the consumers that return messages to calls."""

    async def _fetch(self, function: Callable[[], Awaitable[list[Item]]]) -> list[Item]:
        """Return the messages that an async function fetches in the trio thread.

        If cancelled, the next calls return them.
        """
        fetch = Fetch(self._undelivered, function)
        try:
            await self._call(fetch.run)
            return fetch.result()
        except BaseException:
            fetch.interrupt()
            raise


def fetching(
    method: Callable[Concatenate[Any, P], Awaitable[list[Item]]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, list[Item]]]:
    """Return a method that fetches messages, as the method of a trio class.

    If it is cancelled, the next call returns them.
    """
    name = method.__name__

    @written_for(method)
    async def call(self: Any, /, *args: Any, **kwargs: Any) -> list[Item]:
        fetched: list[Item] = await self._fetch(partial(getattr(self._undelivered, name), *args, **kwargs))
        return fetched

    return call


class ReceivingConsumer(base.ReceivingConsumer[Target], FetchingConsumer[Target]):
    """The base class of PopConsumer and LiteTopicConsumer: the program receives and acknowledges messages."""

    @with_sections_of(consumer.PopConsumer.holding)
    def holding(
        self, message: PoppedMessage, *, invisible: Duration = 60.0
    ) -> AbstractAsyncContextManager[None]:
        """Keep a message invisible for as long as the ``async with`` block runs, then acknowledge it.

        The trio thread renews the invisible time, also while the block does not return to the event loop.
        """
        return self._entered(self._any_target.holding(message, invisible=invisible))


class PollingConsumer(base.PollingConsumer, FetchingConsumer[consumer.LitePullConsumer]):
    """The base class of LitePullConsumer: the program polls, or iterates over messages."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        (message,) = await self._fetch(self._undelivered.next_message)
        return message
