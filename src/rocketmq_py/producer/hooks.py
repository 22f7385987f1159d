"""Hooks: user code that runs before and after sends, and before and after the end of transactions."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

import attrs
import trio

from rocketmq_py.callables import check_methods
from rocketmq_py.errors import RocketMQError, SendForbiddenError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import Message, MessageQueue, ReceivedMessage, SendResult
from rocketmq_py.protocol.trace import DEFAULT_REGION
from rocketmq_py.remoting.rpc_hooks import call_hook

logger: Final = LibraryLogger("rocketmq_py.producer")


class SendMode(enum.Enum):
    """How a message is sent. Java: ``CommunicationMode``.

    With ``linger``, ``send`` is PIPELINED, too: a message that was accepted is sent even if its caller is
    cancelled.
    """

    AWAITED = "awaited"
    PIPELINED = "pipelined"
    ONEWAY = "oneway"


class HookedSend(Protocol):
    """The part of a Send that a SendContext shows."""

    failures: int

    @property
    def message_id(self) -> str:
        """The id of the message, or the comma-separated ids of a batch."""

    @property
    def queue(self) -> MessageQueue | None:
        """The queue of the last attempt."""

    @property
    def address(self) -> str:
        """The address of the broker of the last attempt."""


@attrs.define(kw_only=True, eq=False)
class SendContext:
    """A send with all its attempts, as hooks see it. Java: ``SendMessageContext``, one for each attempt.

    Each message has a context of its own, also if ``linger`` collects messages in batches. The messages of a
    ``send_batch`` share one.

    Attributes:
        producer_group: the producer group.
        client_id: the id of the client.
        mode: how the message is sent.
        messages: the message, or all messages of a ``send_batch``. ``before_send`` may replace them, for
            example to add properties or to encrypt bodies. Sizes are checked afterwards.
        is_half: whether the message is the half message of a transaction.
        started_ms: the start of the send, epoch milliseconds.
        results: the result of each message that was stored. Empty before ``after_send`` and for oneway sends.
        error: the error, or the cancellation, that ended the send. None if it succeeded.
        seconds: the duration of all attempts, in ``after_send``. Without the time in which ``linger``
            collected a batch.
        state: values that a hook keeps between ``before_send`` and ``after_send``, by a key of its choice.
        started: the start of the first attempt, on trio's clock.
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
    _requests: list[HookedSend] = attrs.field(factory=list, repr=False, init=False)
    _index: int | None = attrs.field(default=None, repr=False, init=False)  # in the batch of its request
    _hooks: list[ProducerHook] = attrs.field(factory=list, repr=False, init=False)  # called with before_send

    @property
    def message_ids(self) -> list[str]:
        """The ids of the messages. Empty before ``after_send``."""
        ids = [one for request in self._requests for one in request.message_id.split(",")]
        return ids if self._index is None else [ids[self._index]]

    @property
    def queue(self) -> MessageQueue | None:
        """The queue of the last attempt. None before the first."""
        return self._requests[-1].queue if self._requests else None

    @property
    def broker_address(self) -> str:
        """The address of the broker of the last attempt. Empty before the first."""
        return self._requests[-1].address if self._requests else ""

    @property
    def retries(self) -> int:
        """The number of failed attempts. Without those of a batch that was divided because it was refused."""
        return sum(request.failures for request in self._requests)


def show_batch(context: SendContext, request: HookedSend, index: int) -> None:
    """Show the hooks of a message the request of the batch that it is sent in, at ``index``."""
    context._requests, context._index = [request], index


@attrs.define(kw_only=True, eq=False)
class EndTransactionContext:
    """The end of a transaction, as hooks see it. Java: ``EndTransactionContext``.

    Attributes:
        producer_group: the producer group.
        client_id: the id of the client.
        topic: the topic of the message.
        message_id: the id of the message, which Java's client calls the transaction id.
        transaction_id: the broker's id of the transaction. None if a check did not contain it.
        transaction_state: ``"commit"``, ``"rollback"`` or ``"unknown"``.
        from_check: whether this answers a broker's check.
        broker_address: the address of the broker.
        message: the half message, as it was sent, or as the broker that checks stored it.
        region: the broker's region, for traces. None if the broker has switched traces off.
        error: the error of the report to the broker, in ``after_end_transaction``. None if it was sent.
    """

    producer_group: str
    client_id: str
    topic: str
    message_id: str
    transaction_id: str | None
    transaction_state: str
    from_check: bool
    broker_address: str
    message: Message | ReceivedMessage | None = None
    region: str | None = DEFAULT_REGION
    error: BaseException | None = None


class ProducerHook:
    """Base class of hooks. Override the methods you need, as plain or ``async`` methods.

    Hooks are called in the order in which they were added. Their exceptions are logged and do not affect the
    send. Only an exception of ``check_forbidden`` prevents it. Java: ``SendMessageHook``,
    ``CheckForbiddenHook``, ``EndTransactionHook``.
    """

    def check_forbidden(self, context: SendContext) -> Awaitable[None] | None:
        """Raise to forbid the send. The caller gets SendForbiddenError, and nothing is sent."""
        return None

    def before_send(self, context: SendContext) -> Awaitable[None] | None:
        """Run before a send. May change ``context.messages``."""
        return None

    def after_send(self, context: SendContext) -> Awaitable[None] | None:
        """Run after a send, before the caller gets the result.

        Called once for each ``before_send``, also if the send was cancelled or the hook was removed
        meanwhile. Not called for a pipelined send whose producer closes before the outcome is known.
        """
        return None

    def before_end_transaction(self, context: EndTransactionContext) -> Awaitable[None] | None:
        """Run before the outcome of a transaction is reported to the broker."""
        return None

    def after_end_transaction(self, context: EndTransactionContext) -> Awaitable[None] | None:
        """Run after the outcome of a transaction was reported to the broker, or could not be."""
        return None


class Hooks:
    """The hooks of one producer.

    Attributes:
        all: the hooks, in the order in which they were added.
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

    async def check_forbidden(self, context: SendContext) -> None:
        """Call ``check_forbidden`` of all hooks. Raises SendForbiddenError."""
        for hook in tuple(self.all):
            try:
                outcome = hook.check_forbidden(context)
                if outcome is not None:
                    await outcome
            except Exception as error:
                raise SendForbiddenError(f"{type(hook).__name__} forbids the send: {error}") from error

    async def before_send(self, context: SendContext) -> None:
        """Call ``before_send`` of all hooks. Then :meth:`after_send` must follow, also if cancelled."""
        context.started = trio.current_time()
        for hook in tuple(self.all):
            context._hooks.append(hook)
            await call_hook(hook.before_send, context, logger, "message")
        context.started = trio.current_time()

    async def after_send(self, context: SendContext, error: BaseException | None = None) -> None:
        """Call ``after_send`` of the hooks whose ``before_send`` was called, also when cancelled."""
        context.seconds = trio.current_time() - context.started
        context.error = error
        cancelled = None
        hooks, context._hooks = context._hooks, []  # each is called once, also if this is cancelled
        for hook in hooks:
            try:
                await call_hook(hook.after_send, context, logger, "message")
            except trio.Cancelled as cancellation:
                cancelled = cancellation
        if cancelled is not None:
            raise cancelled

    async def after_outcome(self, context: SendContext, outcome: SendResult | RocketMQError) -> None:
        """Call :meth:`after_send` for a pipelined send that has its outcome."""
        if isinstance(outcome, RocketMQError):
            await self.after_send(context, outcome)
        else:
            context.results = (outcome,)
            await self.after_send(context)

    async def before_end_transaction(self, context: EndTransactionContext) -> None:
        """Call ``before_end_transaction`` of all hooks."""
        for hook in tuple(self.all):
            await call_hook(hook.before_end_transaction, context, logger, "message")

    async def after_end_transaction(self, context: EndTransactionContext) -> None:
        """Call ``after_end_transaction`` of all hooks."""
        for hook in tuple(self.all):
            await call_hook(hook.after_end_transaction, context, logger, "message")
