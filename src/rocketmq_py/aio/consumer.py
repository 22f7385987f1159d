"""Push, lite pull and pop consumers for asyncio."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from rocketmq_py import consumer
from rocketmq_py.aio.generated_methods import LitePullConsumerMethods, PopConsumerMethods, PushConsumerMethods
from rocketmq_py.aio.handler_tasks import HandlerOnLoop
from rocketmq_py.aio.hosted import Hosted
from rocketmq_py.callables import check_methods
from rocketmq_py.client.config import ClientConfig
from rocketmq_py.consumer import (
    AssignmentListener,
    ConsumerHook,
    ConsumerStatistics,
    LitePullConsumerConfig,
    LitePullConsumerOptions,
    PopConsumerConfig,
    PopConsumerOptions,
    PoppedMessage,
    PushConsumerConfig,
    PushConsumerOptions,
)
from rocketmq_py.consumer.lite_pull.consumer import DEFAULT_MAX_MESSAGES
from rocketmq_py.consumer.pop.receiver import MAX_MESSAGES
from rocketmq_py.consumer.push.invoker import Handler
from rocketmq_py.consumer.push.typed_handlers import prepare_handler
from rocketmq_py.handoff.hosted import ForwardingListener, Target
from rocketmq_py.handoff.undelivered_messages import Fetch, Undelivered, UndeliveredPolls
from rocketmq_py.message import MessageQueue, ReceivedMessage

if TYPE_CHECKING:
    from rocketmq_py.aio.client import Client

Item = TypeVar("Item")
Result = TypeVar("Result")


class BaseConsumer(Hosted[Target]):
    """The base class of the consumers."""

    def add_hook(self, hook: ConsumerHook) -> Callable[[], None]:
        """Add a hook that the running loop calls for each batch of messages. Returns its remover."""
        target: Any = self._target
        remove: Callable[[], None] = self._call_plain(target.add_hook, self._hook_on_loop(hook, ConsumerHook))
        return remove

    def _listener_on_loop(self, listener: AssignmentListener | None) -> AssignmentListener | None:
        """Return a listener that calls the methods of the user's on the loop of this consumer."""
        if listener is None:
            return None
        check_methods(listener, "assignment_listener", AssignmentListener)
        return ForwardingListener(listener, lambda function, queues: self._on_own_loop(function)(queues))

    async def _fetch(
        self, undelivered: Undelivered[Item], function: Callable[[], Awaitable[list[Item]]]
    ) -> list[Item]:
        """Return the messages that an async function fetches in the trio thread.

        If cancelled, the next calls return them.
        """
        fetch = Fetch(undelivered, function)
        try:
            await self._call(fetch.run)
            return fetch.result()
        except BaseException:
            fetch.interrupt()
            raise

    @property
    def statistics(self) -> ConsumerStatistics:
        """The counters since it was opened, and the state of each queue."""
        statistics: ConsumerStatistics = self._get("statistics")
        return statistics


class ReceivingConsumer(BaseConsumer[Target]):
    """The base class of PopConsumer and LiteConsumer: the program receives messages and acknowledges each."""

    def holding(
        self, message: PoppedMessage, *, invisible: float = 60.0
    ) -> AbstractAsyncContextManager[None]:
        """Keep a message invisible for as long as the ``async with`` block runs, then acknowledge it.

        The trio thread renews the invisible time, also while the block does not return to the event loop.
        The arguments and errors are those of the trio consumer's ``holding``.
        """
        target: Any = self._target
        return self._entered(target.holding(message, invisible=invisible))


class HandlerConsumer(BaseConsumer[Target]):
    """The base class of the consumers that call a handler."""

    @property
    def _any_target(self) -> Any:
        return self._target

    async def run(self, handle: Handler) -> None:
        """Join the group and call ``handle`` for its messages, until :meth:`stop` or until cancelled.

        Handlers run in at most ``concurrency`` tasks of the running loop, with the context variables of this
        call. If another task cancels a handler's task, the handler has failed and its message is delivered
        again. Results and exceptions of handlers, errors and cancellation are as for the trio consumer.
        """
        self._check_open()
        on_loop = HandlerOnLoop(prepare_handler(handle, self._any_target.config))
        try:
            await self._call(self._any_target.run, on_loop)
        except GeneratorExit:  # the loop is closed, so the tasks cannot be awaited
            on_loop.tasks.clear()
            raise
        finally:
            if on_loop.tasks:  # they were cancelled when the run ended
                await asyncio.wait(on_loop.tasks)


class PushConsumer(PushConsumerMethods, HandlerConsumer[consumer.PushConsumer]):
    """``rocketmq_py.PushConsumer`` for asyncio: the loop calls handlers.

    ::

        async with PushConsumer("127.0.0.1:9876", group="billing") as consumer:
            consumer.subscribe("TopicTest", "A || B")
            await consumer.run(handle)  # async def handle(message): an exception means "deliver again"

    Options, errors and guarantees are those of the trio PushConsumer. The loop calls plain handlers, too:
    they must not block. Use ``await asyncio.to_thread(...)`` in an async handler for blocking work.

    Args:
        client: name servers as ``host:port;host:port``, or None for NAMESRV_ADDR or 127.0.0.1:9876, or
            an open ``rocketmq_py.aio.Client`` to share.
        *configs: a PushConsumerConfig, and a ClientConfig unless a client is shared. Single fields may be
            given as keywords instead, or in addition.
        group: the consumer group. All members must have the same subscriptions.
        assignment_listener: the loop awaits its methods when queues are assigned or revoked.
        rng: the source of randomness, for reproducible tests.
        **options: the fields of PushConsumerConfig, and those of ClientConfig unless a client is shared.

    Raises:
        ConfigurationError: an option is unknown or not valid.
    """

    def __init__(
        self,
        client: str | Client | None = None,
        *configs: PushConsumerConfig | ClientConfig,
        group: str | None = None,
        assignment_listener: AssignmentListener | None = None,
        rng: random.Random | None = None,
        **options: Unpack[PushConsumerOptions],
    ) -> None:
        shared, parent = self._shared_client(client)
        listener = self._listener_on_loop(assignment_listener)
        target = consumer.PushConsumer(
            shared, *configs, group=group, assignment_listener=listener, rng=rng, **options
        )
        super().__init__(target, parent)

    @property
    def config(self) -> PushConsumerConfig:
        """The settings."""
        return self._target.config

    @property
    def queues(self) -> list[MessageQueue]:
        """The assigned queues, sorted, with those of the group's retry topic."""
        queues: list[MessageQueue] = self._get("queues")
        return queues


class LitePullConsumer(LitePullConsumerMethods, BaseConsumer[consumer.LitePullConsumer]):
    """``rocketmq_py.LitePullConsumer`` for asyncio: returns messages to polls.

    ::

        async with LitePullConsumer("127.0.0.1:9876", group="billing") as consumer:
            consumer.subscribe("TopicTest", "A || B")
            async for message in consumer:  # or: await consumer.poll()
                ...

    Options, errors and guarantees are those of the trio LitePullConsumer. A cancelled poll loses no messages:
    the next one returns them.

    Args:
        client: name servers as ``host:port;host:port``, or None for NAMESRV_ADDR or 127.0.0.1:9876, or
            an open ``rocketmq_py.aio.Client`` to share.
        *configs: a LitePullConsumerConfig, and a ClientConfig unless a client is shared. Single fields may be
            given as keywords instead, or in addition.
        group: the consumer group. All members must have the same subscriptions.
        assignment_listener: the loop awaits its methods when queues are assigned or revoked.
        rng: the source of randomness, for reproducible tests.
        **options: the fields of LitePullConsumerConfig, and those of ClientConfig unless a client is shared.

    Raises:
        ConfigurationError: an option is unknown or not valid.
    """

    def __init__(
        self,
        client: str | Client | None = None,
        *configs: LitePullConsumerConfig | ClientConfig,
        group: str | None = None,
        assignment_listener: AssignmentListener | None = None,
        rng: random.Random | None = None,
        **options: Unpack[LitePullConsumerOptions],
    ) -> None:
        shared, parent = self._shared_client(client)
        listener = self._listener_on_loop(assignment_listener)
        target = consumer.LitePullConsumer(
            shared, *configs, group=group, assignment_listener=listener, rng=rng, **options
        )
        super().__init__(target, parent)
        self._undelivered: UndeliveredPolls = UndeliveredPolls(target, self._check_open)

    @property
    def config(self) -> LitePullConsumerConfig:
        """The settings."""
        return self._target.config

    async def poll(
        self,
        *,
        max_messages: int = DEFAULT_MAX_MESSAGES,
        timeout: float | None = None,
    ) -> list[ReceivedMessage]:
        """Return the next messages, or none after ``timeout``. Acknowledges those of the previous poll.

        Arguments and errors are those of the trio LitePullConsumer's ``poll``. When cancelled, no message is
        lost: the next poll returns it.
        """
        undelivered = self._undelivered
        return await self._fetch(undelivered, partial(undelivered.poll, max_messages, timeout))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        (message,) = await self._fetch(self._undelivered, self._undelivered.next_message)
        return message

    async def _call(self, function: Callable[..., Awaitable[Result]], *args: Any, **kwargs: Any) -> Result:
        method: Callable[[], Awaitable[Result]] = partial(function, *args, **kwargs)
        result: Result = await super()._call(self._undelivered.call, method)
        return result

    def _has_undelivered(self) -> bool:
        return bool(self._undelivered)

    def _check_open(self) -> None:
        if not self._target.is_leaving:  # its assignment listener may still commit
            super()._check_open()

    @property
    def assignment(self) -> list[MessageQueue]:
        """The assigned queues, sorted."""
        assignment: list[MessageQueue] = self._get("assignment")
        return assignment


class PopConsumer(PopConsumerMethods, ReceivingConsumer[consumer.PopConsumer]):
    """``rocketmq_py.PopConsumer`` for asyncio: pops messages, which are invisible to others for a time (5.x).

    Options, errors and guarantees are those of the trio PopConsumer. A cancelled ``receive`` loses no
    messages: the next one returns them.

    Args:
        client: name servers as ``host:port;host:port``, or None for NAMESRV_ADDR or 127.0.0.1:9876, or
            an open ``rocketmq_py.aio.Client`` to share.
        *configs: a PopConsumerConfig, and a ClientConfig unless a client is shared. Single fields may be
            given as keywords instead, or in addition.
        group: the consumer group. All members must have the same subscriptions.
        rng: the source of randomness, for reproducible tests.
        **options: the fields of PopConsumerConfig, and those of ClientConfig unless a client is shared.

    Raises:
        ConfigurationError: an option is unknown or not valid.
    """

    def __init__(
        self,
        client: str | Client | None = None,
        *configs: PopConsumerConfig | ClientConfig,
        group: str | None = None,
        rng: random.Random | None = None,
        **options: Unpack[PopConsumerOptions],
    ) -> None:
        shared, parent = self._shared_client(client)
        super().__init__(consumer.PopConsumer(shared, *configs, group=group, rng=rng, **options), parent)
        self._undelivered: Undelivered[PoppedMessage] = Undelivered(self._check_open)

    @property
    def config(self) -> PopConsumerConfig:
        """The settings."""
        return self._target.config

    async def receive(
        self,
        topic: str | None = None,
        *,
        max_messages: int = MAX_MESSAGES,
        invisible: float = 60.0,
        wait: float = 15.0,
    ) -> list[PoppedMessage]:
        """Return messages as soon as there are any. A message that is not acknowledged in time comes again.

        Arguments and errors are those of the trio PopConsumer's ``receive``. When cancelled, no message is
        lost: the next call returns it.
        """
        receive = partial(
            self._target.receive, topic, max_messages=max_messages, invisible=invisible, wait=wait
        )
        taken = self._undelivered.take(max_messages, lambda message: topic in (None, message.topic))
        return taken or await self._fetch(self._undelivered, receive)
