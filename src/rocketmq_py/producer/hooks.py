"""Hooks: a user's own code around sends and around the ends of transactions."""

from __future__ import annotations

import enum
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import attrs
import trio

from rocketmq_py.callables import check_methods
from rocketmq_py.errors import SendForbiddenError
from rocketmq_py.message import Message, MessageQueue, ReceivedMessage, SendResult
from rocketmq_py.producer.send_request import SendRequest
from rocketmq_py.remoting.rpc_hooks import call_hook

logger: Final = logging.getLogger("rocketmq_py.producer")


class SendMode(enum.Enum):
    """How a message is sent. Java: ``CommunicationMode``."""

    AWAITED = "awaited"
    PIPELINED = "pipelined"
    ONEWAY = "oneway"


@attrs.define(kw_only=True, eq=False)
class SendContext:
    """One send, as hooks see it; all its tries together. Java: ``SendMessageContext``, one for each try.

    Attributes:
        producer_group: the sender's group.
        client_id: what brokers know the sender by.
        mode: how it is sent.
        messages: what is sent: one, or all of a batch. ``before_send`` may put others in their places, with
            further properties for example.
        is_half: whether it begins a transaction.
        started_ms: when the send began, epoch milliseconds.
        results: one for each message that was stored; none before ``after_send``, and for oneway sends.
        error: why it failed, or was cancelled; else None.
        seconds: how long all tries took together, in ``after_send``.
        state: a hook's own notes between ``before_send`` and ``after_send``, by a key of its choice.
        started: when the tries began, on trio's clock.
        requests: the requests (the producer's affair).
    """

    producer_group: str
    client_id: str
    mode: SendMode
    messages: list[Message]
    is_half: bool = False
    started_ms: int = 0
    results: Sequence[SendResult] = ()
    error: BaseException | None = None
    seconds: float = 0.0
    state: dict[object, Any] = attrs.Factory(dict)
    started: float = 0.0
    requests: list[SendRequest] = attrs.field(factory=list, repr=False)

    @property
    def message_ids(self) -> list[str]:
        """The ids that this client gave the messages; none before ``after_send``."""
        return [one for request in self.requests for one in request.message_id.split(",")]

    @property
    def queue(self) -> MessageQueue | None:
        """Where the last try went; None if there was none."""
        return self.requests[-1].queue if self.requests else None

    @property
    def broker_address(self) -> str:
        """The broker of the last try; empty if there was none."""
        return self.requests[-1].address if self.requests else ""

    @property
    def retries(self) -> int:
        """How many tries failed."""
        return sum(request.failures for request in self.requests)


@attrs.define(kw_only=True, eq=False)
class EndTransactionContext:
    """The end of a transaction, as hooks see it. Java: ``EndTransactionContext``.

    Attributes:
        producer_group: the sender's group.
        client_id: what brokers know the sender by.
        topic: the message's.
        message_id: the id that its sender gave it.
        transaction_id: the transaction's id.
        state: ``"commit"``, ``"rollback"`` or ``"unknown"``.
        from_check: whether it answers a broker's check.
        broker_address: the broker that is told.
        message: the half message: as it was sent, or as the broker that checks stored it.
        error: why the broker could not be told, else None; known in ``after_end_transaction``.
    """

    producer_group: str
    client_id: str
    topic: str
    message_id: str
    transaction_id: str | None
    state: str
    from_check: bool
    broker_address: str
    message: Message | ReceivedMessage | None = None
    error: BaseException | None = None


class ProducerHook:
    """Code around a producer's sends: override what is needed, as a plain or an ``async`` method.

    Hooks are called in the order in which they were added. An exception of theirs is logged and changes
    nothing, but one of ``check_forbidden``, which forbids the send. Java: ``SendMessageHook``,
    ``CheckForbiddenHook``, ``EndTransactionHook``.
    """

    def check_forbidden(self, context: SendContext) -> Awaitable[None] | None:
        """Raise to forbid the send: the sender gets SendForbiddenError, and nothing is sent."""
        return None

    def before_send(self, context: SendContext) -> Awaitable[None] | None:
        """Look at what is about to be sent, or change ``context.messages``."""
        return None

    def after_send(self, context: SendContext) -> Awaitable[None] | None:
        """Look at what became of it, before the sender does. Called once for each ``before_send``."""
        return None

    def before_end_transaction(self, context: EndTransactionContext) -> Awaitable[None] | None:
        """Look at what the broker is about to be told."""
        return None

    def after_end_transaction(self, context: EndTransactionContext) -> Awaitable[None] | None:
        """Look at what the broker was told."""
        return None


class Hooks:
    """The hooks of one producer.

    Attributes:
        all: in the order in which they were added.
    """

    def __init__(self) -> None:
        self.all: list[ProducerHook] = []

    def add(self, hook: ProducerHook) -> Callable[[], None]:
        """Add a hook. Returns a function that removes it.

        Raises ConfigurationError if it lacks a method of ProducerHook, or one does not accept its context.
        """
        check_methods(hook, "hook", ProducerHook)
        self.all.append(hook)
        return lambda: self.all.remove(hook)

    @asynccontextmanager
    async def around(self, context: SendContext) -> AsyncIterator[SendContext]:
        """Call the hooks before and after what happens inside. Raises SendForbiddenError."""
        async with self.before(context):
            yield context
        await self.after_send(context)

    @asynccontextmanager
    async def before(self, context: SendContext) -> AsyncIterator[SendContext]:
        """Call ``check_forbidden`` and ``before_send`` of all, and the hooks after where the block raises.

        Raises SendForbiddenError.
        """
        for hook in tuple(self.all):
            try:
                outcome = hook.check_forbidden(context)
                if outcome is not None:
                    await outcome
            except Exception as error:
                raise SendForbiddenError(f"{type(hook).__name__} forbids to send it: {error}") from error
        for hook in tuple(self.all):
            await call_hook(hook.before_send, context, logger, "message")
        context.started = trio.current_time()
        try:
            yield context
        except BaseException as error:
            await self.after_send(context, error)
            raise

    async def after_send(self, context: SendContext, error: BaseException | None = None) -> None:
        """Call ``after_send`` of all."""
        context.seconds = trio.current_time() - context.started
        context.error = error
        for hook in tuple(self.all):
            await call_hook(hook.after_send, context, logger, "message")

    async def before_end_transaction(self, context: EndTransactionContext) -> None:
        """Call ``before_end_transaction`` of all."""
        for hook in tuple(self.all):
            await call_hook(hook.before_end_transaction, context, logger, "message")

    async def after_end_transaction(self, context: EndTransactionContext) -> None:
        """Call ``after_end_transaction`` of all."""
        for hook in tuple(self.all):
            await call_hook(hook.after_end_transaction, context, logger, "message")
