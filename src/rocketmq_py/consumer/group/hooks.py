"""User hooks that run around the handling or the receipt of messages."""

from __future__ import annotations

import enum
import math
from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby
from typing import Any, Final, TypeVar, cast

import attrs
import trio

from rocketmq_py.callables import check_methods
from rocketmq_py.consumer.group.handler_results import CommitOffset
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.protocol.trace import ConsumeReturnType
from rocketmq_py.remoting.rpc_hooks import call_hook

logger: Final = LibraryLogger("rocketmq_py.consumer")

_Message = TypeVar("_Message", bound=ReceivedMessage)


class ConsumeOperation(enum.Enum):
    """How a consumer delivers messages, in OpenTelemetry's terms."""

    PROCESS = "process"
    """A push consumer calls its handler with them."""
    RECEIVE = "receive"
    """A poll or receive returns them. The consumer does not know how the program processes them."""


@attrs.define(kw_only=True, eq=False)
class ConsumeContext:
    """One handler call, or the messages of one queue that a poll returns, as hooks see it.

    Java: ``ConsumeMessageContext``.

    Attributes:
        consumer_group: the consumer group.
        client_id: the client id of the consumer.
        operation: how the consumer delivers the messages.
        queue: the queue on the broker. For retried messages, the queue of the group's retry topic if the
            broker reported it.
        messages: the message, or all messages of a list. ``before_consume`` may replace them by others of the
            same class (``attrs.evolve``), for example with a decrypted body.
        started_ms: start of the call, epoch milliseconds.
        result: the return value of the handler, in ``after_consume``.
        error: the exception of the handler, including its cancellation. Otherwise None.
        returned: how the call ended, in ``after_consume``. SUCCESS for received messages.
        seconds: duration of the handler call, in ``after_consume``. For received messages, how long the poll
            has waited, in both methods.
        state: data that hooks keep between ``before_consume`` and ``after_consume``, by any key.
    """

    consumer_group: str
    client_id: str
    operation: ConsumeOperation
    queue: MessageQueue
    messages: list[ReceivedMessage]
    started_ms: int
    result: object = None
    error: BaseException | None = None
    returned: ConsumeReturnType = ConsumeReturnType.SUCCESS
    seconds: float = 0.0
    state: dict[object, Any] = attrs.Factory(dict)

    @property
    def success(self) -> bool:
        """Whether the messages were handled without a failure, in ``after_consume``.

        A call that succeeded after ``consume_timeout`` counts as a success here.
        """
        return self.error is None and not _is_failure(self.result)


class ConsumerHook:
    """Code that runs around a consumer's messages. Override either method, as a plain or an async one.

    A push consumer calls ``before_consume`` before each handler call, in the order in which hooks were added,
    and ``after_consume`` in the reverse order after it. Both run in the task of the handler call: context
    variables set by ``before_consume`` are visible to the handler, also in a thread, until ``after_consume``
    resets them. A poll or receive calls both methods before it returns messages. Exceptions of hooks are
    logged and otherwise ignored. Java: ``ConsumeMessageHook``.
    """

    def before_consume(self, context: ConsumeContext) -> Awaitable[None] | None:
        """Inspect the messages before they are delivered. May replace ``context.messages``."""
        return None

    def after_consume(self, context: ConsumeContext) -> Awaitable[None] | None:
        """Inspect the outcome, before offsets change. Called once for each ``before_consume``.

        If the handler call was cancelled, an async method is cancelled at its first checkpoint too.
        """
        return None


class ConsumerHooks:
    """The hooks of one consumer.

    Args:
        group: the consumer group.
        client_id: the client id of the consumer.
        now_ms: the wall clock, epoch milliseconds.
        timeout: seconds after which a handler call counts as timed out.

    Attributes:
        all: the hooks, in the order in which they were added.
    """

    def __init__(
        self, group: str, client_id: str, now_ms: Callable[[], int], *, timeout: float = math.inf
    ) -> None:
        self._group = group
        self._client_id = client_id
        self._now_ms = now_ms
        self._timeout = timeout
        self.all: list[ConsumerHook] = []

    def add(self, hook: ConsumerHook) -> Callable[[], None]:
        """Add a hook. Returns a function that removes it.

        Raises ConfigurationError if the hook lacks a method of ConsumerHook, or if one does not accept a
        context.
        """
        check_methods(hook, "hook", ConsumerHook)
        self.all.append(hook)
        return lambda: self.all.remove(hook)

    async def call(self, call: Callable[[Any], Awaitable[Any]], queue: MessageQueue, delivery: Any) -> Any:
        """Call a handler with the hooks around it. Returns its result, and raises its exception.

        Args:
            call: calls the handler with a message, or a sequence of messages.
            queue: the queue of the messages.
            delivery: the message, or the sequence of messages.
        """
        is_single = isinstance(delivery, ReceivedMessage)
        context = self._context(ConsumeOperation.PROCESS, queue, [delivery] if is_single else list(delivery))
        hooks = tuple(self.all)
        called: list[ConsumerHook] = []
        started = trio.current_time()
        try:
            for hook in hooks:
                called.append(hook)
                await call_hook(hook.before_consume, context, logger, "message")
            started = trio.current_time()
            context.result = await call(context.messages[0] if is_single else list(context.messages))
        except BaseException as error:
            context.error = error
            raise
        finally:
            context.seconds = trio.current_time() - started
            context.returned = self._return_type(context)
            await _call_after_consume(called, context)
        return context.result

    async def call_for_received(
        self, messages: Sequence[_Message], queues: Sequence[MessageQueue], seconds: float
    ) -> list[_Message]:
        """Call the hooks for messages that a poll is about to return. Returns the messages to return.

        Args:
            messages: the messages.
            queues: the queue of each message.
            seconds: how long the poll has waited for them.
        """
        result: list[_Message] = []
        for queue, pairs in groupby(zip(queues, messages, strict=True), key=lambda pair: pair[0]):
            context = self._context(ConsumeOperation.RECEIVE, queue, [message for _, message in pairs])
            context.started_ms -= round(seconds * 1000)
            context.seconds = seconds
            called: list[ConsumerHook] = []
            try:
                for hook in tuple(self.all):
                    called.append(hook)
                    await call_hook(hook.before_consume, context, logger, "message")
            except BaseException as error:
                context.error = error
                raise
            finally:
                await _call_after_consume(called, context)
            result += cast(list[_Message], context.messages)  # hooks keep the class of the messages
        return result

    def _context(
        self, operation: ConsumeOperation, queue: MessageQueue, messages: list[ReceivedMessage]
    ) -> ConsumeContext:
        return ConsumeContext(
            consumer_group=self._group,
            client_id=self._client_id,
            operation=operation,
            queue=queue,
            messages=messages,
            started_ms=self._now_ms(),
        )

    def _return_type(self, context: ConsumeContext) -> ConsumeReturnType:
        if isinstance(context.error, Exception):
            return ConsumeReturnType.EXCEPTION
        if context.seconds >= self._timeout:
            return ConsumeReturnType.TIME_OUT
        if context.error is not None:
            return ConsumeReturnType.EXCEPTION
        return ConsumeReturnType.FAILED if _is_failure(context.result) else ConsumeReturnType.SUCCESS


async def _call_after_consume(hooks: list[ConsumerHook], context: ConsumeContext) -> None:
    """Call ``after_consume`` of the hooks in reverse order, of all of them even if one is cancelled."""
    if hooks:
        hook = hooks.pop()
        try:
            await call_hook(hook.after_consume, context, logger, "message")
        finally:
            await _call_after_consume(hooks, context)


def _is_failure(result: object) -> bool:
    return result is not None and not isinstance(result, CommitOffset)
