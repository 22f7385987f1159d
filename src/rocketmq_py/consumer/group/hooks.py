"""Hooks: a user's own code around the handling of messages, and around their coming."""

from __future__ import annotations

import enum
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby
from typing import Any, Final, TypeVar, cast

import attrs
import trio

from rocketmq_py.callables import check_methods
from rocketmq_py.consumer.group.results import CommitOffset
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.protocol.trace import ConsumeReturnType
from rocketmq_py.remoting.rpc_hooks import call_hook

logger: Final = logging.getLogger("rocketmq_py.consumer")

Received = TypeVar("Received", bound=ReceivedMessage)


class ConsumeOperation(enum.Enum):
    """How a consumer gets messages, in OpenTelemetry's words."""

    PROCESS = "process"
    """A push consumer calls its handler with them."""
    RECEIVE = "receive"
    """A poll or receive returns them. The consumer does not know how the program processes them."""


@attrs.define(kw_only=True, eq=False)
class ConsumeContext:
    """One call of a handler, or what one poll returns of one queue, as hooks see it.

    Java: ``ConsumeMessageContext``.

    Attributes:
        consumer_group: the group.
        client_id: what brokers know the consumer by.
        operation: how the consumer got the messages.
        queue: the queue on the broker; for retried messages that of the group's retry topic, if the broker
            said so.
        messages: the messages: one, or all of a list. ``before_consume`` may put others of the same class
            in their places (``attrs.evolve``), with a decrypted body for example.
        started_ms: when the call began, epoch milliseconds.
        result: what the handler returned, in ``after_consume``.
        error: what it raised, or its cancellation; else None.
        returned: how the call ended, in ``after_consume``; SUCCESS for what was received.
        seconds: how long the handler took, in ``after_consume``; for what was received, how long the poll
            has waited for it, in both.
        state: a hook's own notes between ``before_consume`` and ``after_consume``, by a key of its choice.
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
        """Whether it was consumed, as far as is known in ``after_consume``: it may have taken too long."""
        return self.error is None and not _is_failure(self.result)


class ConsumerHook:
    """Code around a consumer's messages: override what is needed, as a plain or an ``async`` method.

    For each call of a push consumer's handler, ``before_consume`` is called in the order in which hooks were
    added, and ``after_consume`` the other way round, by the task that calls the handler: context variables
    that the first sets are the handler's too, also in a thread, until the other takes them back. For what a
    poll or receive returns, both are called before it returns. An exception of theirs is logged and changes
    nothing. Java: ``ConsumeMessageHook``.
    """

    def before_consume(self, context: ConsumeContext) -> Awaitable[None] | None:
        """Look at what is about to be handed out, or change ``context.messages``."""
        return None

    def after_consume(self, context: ConsumeContext) -> Awaitable[None] | None:
        """Look at what became of it, before offsets change. Called once for each ``before_consume``.

        When the handler was cancelled, an async method is cancelled at its first checkpoint too.
        """
        return None


class ConsumerHooks:
    """The hooks of one consumer.

    Args:
        group: the consumer's group.
        client_id: what brokers know it by.
        now_ms: the wall clock, epoch milliseconds.
        timeout: seconds after which a handler took too long.

    Attributes:
        all: in the order in which they were added.
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

        Raises ConfigurationError if it lacks a method of ConsumerHook, or one does not accept its context.
        """
        check_methods(hook, "hook", ConsumerHook)
        self.all.append(hook)
        return lambda: self.all.remove(hook)

    async def call(self, call: Callable[[Any], Awaitable[Any]], queue: MessageQueue, item: Any) -> Any:
        """Call a handler with the hooks around it; return what it returns, and raise what it raises.

        Args:
            call: takes a message, or a sequence of them.
            queue: the queue that they are from.
            item: the message, or the sequence.
        """
        is_one = isinstance(item, ReceivedMessage)
        context = self._context(ConsumeOperation.PROCESS, queue, [item] if is_one else list(item))
        hooks = tuple(self.all)
        called: list[ConsumerHook] = []
        began = trio.current_time()
        try:
            for hook in hooks:
                called.append(hook)
                await call_hook(hook.before_consume, context, logger, "message")
            began = trio.current_time()
            context.result = await call(context.messages[0] if is_one else context.messages)
        except BaseException as error:
            context.error = error
            raise
        finally:
            context.seconds = trio.current_time() - began
            context.returned = self._how_it_ended(context)
            await _after(called, context)
        return context.result

    async def received(
        self, messages: Sequence[Received], queues: Sequence[MessageQueue], seconds: float
    ) -> list[Received]:
        """Call the hooks for what a poll is about to return; return what it shall return.

        Args:
            messages: what has come.
            queues: the queue of each.
            seconds: how long it was waited for.
        """
        changed: list[Received] = []
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
                await _after(called, context)
            changed += cast(list[Received], context.messages)  # hooks keep to the kind
        return changed

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

    def _how_it_ended(self, context: ConsumeContext) -> ConsumeReturnType:
        if isinstance(context.error, Exception):
            return ConsumeReturnType.EXCEPTION
        if context.seconds >= self._timeout:
            return ConsumeReturnType.TIME_OUT
        if context.error is not None:
            return ConsumeReturnType.EXCEPTION
        return ConsumeReturnType.FAILED if _is_failure(context.result) else ConsumeReturnType.SUCCESS


async def _after(hooks: list[ConsumerHook], context: ConsumeContext) -> None:
    """Call ``after_consume`` of these hooks, the last first; one that is cancelled keeps none from it."""
    if hooks:
        hook = hooks.pop()
        try:
            await call_hook(hook.after_consume, context, logger, "message")
        finally:
            await _after(hooks, context)


def _is_failure(result: object) -> bool:
    return result is not None and not isinstance(result, CommitOffset)
