"""Push, lite pull, pop and lite topic consumers for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from rocketmq_py import consumer
from rocketmq_py.aio.generated_methods import (
    LitePullConsumerMethods,
    LiteTopicConsumerMethods,
    LiteTopicPushConsumerMethods,
    PopConsumerMethods,
    PushConsumerMethods,
)
from rocketmq_py.aio.handler_tasks import HandlerInThreads, HandlerOnLoop
from rocketmq_py.aio.hosted import Hosted
from rocketmq_py.arguments import Duration
from rocketmq_py.callables import check_methods, is_async
from rocketmq_py.client.settings import ClientSettings
from rocketmq_py.client.user_functions import call_user_function
from rocketmq_py.consumer import (
    AssignmentListener,
    ConsumerHook,
    ConsumerStatistics,
    LitePullConsumerOptions,
    LiteTopicConsumerOptions,
    LiteTopicPushConsumerOptions,
    PopConsumerOptions,
    PoppedMessage,
    PushConsumerOptions,
)
from rocketmq_py.consumer.lite.settings import LiteTopicConsumerSettings, LiteTopicPushConsumerSettings
from rocketmq_py.consumer.lite_pull.consumer import DEFAULT_MAX_MESSAGES, is_leaving
from rocketmq_py.consumer.lite_pull.settings import LitePullConsumerSettings
from rocketmq_py.consumer.pop.receiver import MAX_MESSAGES
from rocketmq_py.consumer.pop.settings import PopConsumerSettings
from rocketmq_py.consumer.push.handler import Handler
from rocketmq_py.consumer.push.typed_handlers import prepare_handler
from rocketmq_py.consumer.settings import PushConsumerSettings
from rocketmq_py.handoff.hosted import Target, with_sections_of
from rocketmq_py.handoff.undelivered_messages import Fetch, Undelivered, UndeliveredPolls
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.shown_settings import takes_settings

if TYPE_CHECKING:
    from rocketmq_py.aio.client import Client

Item = TypeVar("Item")
Result = TypeVar("Result")


class _ListenerOnLoop(AssignmentListener):
    """Calls two functions in place of the methods of a user's listener."""

    def __init__(self, on_assigned: Callable[..., Any], on_revoked: Callable[..., Any]) -> None:
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked

    async def on_assigned(self, queues: list[MessageQueue]) -> None:
        await call_user_function(self._on_assigned, queues, abandon_on_cancel=True)

    async def on_revoked(self, queues: list[MessageQueue]) -> None:
        await call_user_function(self._on_revoked, queues, abandon_on_cancel=True)


class BaseConsumer(Hosted[Target]):
    """The base class of the consumers."""

    def add_hook(self, hook: ConsumerHook) -> Callable[[], None]:
        """Add a hook that the running loop calls for each batch of messages. Returns its remover."""
        target: Any = self._target
        remove: Callable[[], None] = self._call_plain(target.add_hook, self._hook_on_loop(hook, ConsumerHook))
        return remove

    def _listener_on_loop(self, listener: AssignmentListener | None) -> AssignmentListener | None:
        """Return a listener that calls the async methods of the user's on the loop of this consumer."""
        if listener is None:
            return None
        check_methods(listener, "assignment_listener", AssignmentListener)
        return _ListenerOnLoop(
            self._for_own_loop(listener.on_assigned), self._for_own_loop(listener.on_revoked)
        )

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
    """The base class of PopConsumer and LiteTopicConsumer: the program receives and acknowledges messages."""

    @with_sections_of(consumer.PopConsumer.holding)
    def holding(
        self, message: PoppedMessage, *, invisible: Duration = 60.0
    ) -> AbstractAsyncContextManager[None]:
        """Keep a message invisible for as long as the ``async with`` block runs, then acknowledge it.

        The trio thread renews the invisible time, also while the block does not return to the event loop.
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
            ConfigurationError: ``handle`` has the wrong parameters or returned another value, the consumer is
                running already, or another consumer of this client is in the group.
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

    def _stop_waiting(self) -> None:
        super()._stop_waiting()
        self._any_target._stop_waiting()


@takes_settings(PushConsumerSettings, ClientSettings)
class PushConsumer(PushConsumerMethods, HandlerConsumer[consumer.PushConsumer]):
    """``rocketmq_py.PushConsumer`` for asyncio: async handlers run on the loop, plain ones in threads.

    ::

        async with PushConsumer("127.0.0.1:9876", group="billing") as consumer:
            consumer.subscribe("TopicTest", "A || B")
            await consumer.run(handle)  # async def handle(message): an exception means "deliver again"

    Options, errors and guarantees are those of the trio PushConsumer. Plain handlers may block. An async
    handler costs less per message, because it needs no thread.

    Args:
        client: name servers as ``host:port;host:port``, or None for NAMESRV_ADDR or 127.0.0.1:9876, or
            an open ``rocketmq_py.aio.Client`` to share.
        group: the consumer group. All members must have the same subscriptions.
        assignment_listener: called when queues are assigned or revoked.
        **options: the settings of a PushConsumer, and those of a Client unless one is shared.

    Raises:
        ConfigurationError: an option is unknown or not valid.
    """

    def __init__(
        self,
        client: str | Client | None = None,
        *,
        group: str | None = None,
        assignment_listener: AssignmentListener | None = None,
        **options: Unpack[PushConsumerOptions],
    ) -> None:
        shared, parent = self._shared_client(client)
        listener = self._listener_on_loop(assignment_listener)
        target = consumer.PushConsumer(shared, group=group, assignment_listener=listener, **options)
        super().__init__(target, parent)

    @property
    def settings(self) -> PushConsumerSettings:
        """The settings."""
        return self._target.settings

    @property
    def assignment(self) -> list[MessageQueue]:
        """The assigned queues, sorted, with those of the group's retry topic."""
        assignment: list[MessageQueue] = self._get("assignment")
        return assignment


@takes_settings(LitePullConsumerSettings, ClientSettings)
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
        group: the consumer group. All members must have the same subscriptions.
        assignment_listener: called when queues are assigned or revoked.
        **options: the settings of a LitePullConsumer, and those of a Client unless one is shared.

    Raises:
        ConfigurationError: an option is unknown or not valid.
    """

    def __init__(
        self,
        client: str | Client | None = None,
        *,
        group: str | None = None,
        assignment_listener: AssignmentListener | None = None,
        **options: Unpack[LitePullConsumerOptions],
    ) -> None:
        shared, parent = self._shared_client(client)
        listener = self._listener_on_loop(assignment_listener)
        target = consumer.LitePullConsumer(shared, group=group, assignment_listener=listener, **options)
        super().__init__(target, parent)
        self._undelivered: UndeliveredPolls = UndeliveredPolls(target, self._check_open)

    @property
    def settings(self) -> LitePullConsumerSettings:
        """The settings."""
        return self._target.settings

    @with_sections_of(consumer.LitePullConsumer.poll)
    async def poll(
        self,
        *,
        max_messages: int = DEFAULT_MAX_MESSAGES,
        wait: Duration = 5.0,
    ) -> list[ReceivedMessage]:
        """Return the next messages, or none after ``wait``. Acknowledges those of the previous poll.

        When cancelled, no message is lost: the next poll returns it.
        """
        undelivered = self._undelivered
        return await self._fetch(undelivered, partial(undelivered.poll, max_messages, wait))

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
        if not is_leaving(self._target):  # its assignment listener may still commit
            super()._check_open()

    @property
    def assignment(self) -> list[MessageQueue]:
        """The assigned queues, sorted."""
        assignment: list[MessageQueue] = self._get("assignment")
        return assignment


@takes_settings(PopConsumerSettings, ClientSettings)
class PopConsumer(PopConsumerMethods, ReceivingConsumer[consumer.PopConsumer]):
    """``rocketmq_py.PopConsumer`` for asyncio: pops messages, which are invisible to others for a time (5.x).

    Options, errors and guarantees are those of the trio PopConsumer. A cancelled ``receive`` loses no
    messages: the next one returns them.

    Args:
        client: name servers as ``host:port;host:port``, or None for NAMESRV_ADDR or 127.0.0.1:9876, or
            an open ``rocketmq_py.aio.Client`` to share.
        group: the consumer group. All members must have the same subscriptions.
        **options: the settings of a PopConsumer, and those of a Client unless one is shared.

    Raises:
        ConfigurationError: an option is unknown or not valid.
    """

    def __init__(
        self,
        client: str | Client | None = None,
        *,
        group: str | None = None,
        **options: Unpack[PopConsumerOptions],
    ) -> None:
        shared, parent = self._shared_client(client)
        super().__init__(consumer.PopConsumer(shared, group=group, **options), parent)
        self._undelivered: Undelivered[PoppedMessage] = Undelivered(self._check_open)

    @property
    def settings(self) -> PopConsumerSettings:
        """The settings."""
        return self._target.settings

    @with_sections_of(consumer.PopConsumer.receive)
    async def receive(
        self,
        topic: str | None = None,
        *,
        max_messages: int = MAX_MESSAGES,
        invisible: Duration = 60.0,
        wait: Duration = 15.0,
    ) -> list[PoppedMessage]:
        """Return messages as soon as there are any. A message that is not acknowledged in time comes again.

        When cancelled, no message is lost: the next call returns it.
        """
        receive = partial(
            self._target.receive, topic, max_messages=max_messages, invisible=invisible, wait=wait
        )
        taken = self._undelivered.take(max_messages, lambda message: topic in (None, message.topic))
        return taken or await self._fetch(self._undelivered, receive)


@takes_settings(LiteTopicConsumerSettings, ClientSettings)
class LiteTopicConsumer(LiteTopicConsumerMethods, ReceivingConsumer[consumer.LiteTopicConsumer]):
    """``rocketmq_py.LiteTopicConsumer`` for asyncio: receives messages of lite topics on request (5.5).

    Options, errors and guarantees are those of the trio LiteTopicConsumer. A cancelled ``receive`` loses no
    messages: the next one returns them.

    Args:
        client: name servers as ``host:port;host:port``, or None for NAMESRV_ADDR or 127.0.0.1:9876, or
            an open ``rocketmq_py.aio.Client`` to share.
        group: the consumer group. Its attribute ``lite.bind.topic`` must name the parent topic.
        parent: the parent topic, of type LITE. Java: ``bindTopic``.
        **options: the settings of a LiteTopicConsumer, and those of a Client unless one is shared.

    Raises:
        ConfigurationError: an option is unknown or not valid, or ``group`` is missing.
    """

    def __init__(
        self,
        client: str | Client | None = None,
        *,
        group: str | None = None,
        parent: str,
        **options: Unpack[LiteTopicConsumerOptions],
    ) -> None:
        shared, owner = self._shared_client(client)
        self._undelivered: Undelivered[PoppedMessage] = Undelivered(self._check_open)
        super().__init__(consumer.LiteTopicConsumer(shared, group=group, parent=parent, **options), owner)

    @property
    def settings(self) -> LiteTopicConsumerSettings:
        """The settings."""
        return self._target.settings

    @property
    def lite_topics(self) -> frozenset[str]:
        """The subscribed lite topics."""
        lite_topics: frozenset[str] = self._get("lite_topics")
        return lite_topics

    @with_sections_of(consumer.LiteTopicConsumer.receive)
    async def receive(
        self, *, max_messages: int = MAX_MESSAGES, invisible: Duration = 60.0, wait: Duration = 15.0
    ) -> list[PoppedMessage]:
        """Receive messages of the subscribed lite topics as soon as there are any.

        When cancelled, no message is lost: the next call returns it.
        """
        receive = partial(self._target.receive, max_messages=max_messages, invisible=invisible, wait=wait)
        return self._undelivered.take(max_messages) or await self._fetch(self._undelivered, receive)


@takes_settings(LiteTopicPushConsumerSettings, ClientSettings)
class LiteTopicPushConsumer(LiteTopicPushConsumerMethods, HandlerConsumer[consumer.LiteTopicPushConsumer]):
    """``rocketmq_py.LiteTopicPushConsumer`` for asyncio: the loop calls the handler (5.5).

    ::

        async with LiteTopicPushConsumer("127.0.0.1:9876", group="agents", parent="Sessions") as consumer:
            await consumer.subscribe_lite("session-42")
            await consumer.run(handle)  # async def handle(message); raise = handle again

    Options, errors and guarantees are those of the trio LiteTopicPushConsumer.

    Args:
        client: name servers as ``host:port;host:port``, or None for NAMESRV_ADDR or 127.0.0.1:9876, or
            an open ``rocketmq_py.aio.Client`` to share.
        group: the consumer group. Its attribute ``lite.bind.topic`` must name the parent topic.
        parent: the parent topic, of type LITE. Java: ``bindTopic``.
        **options: the settings of a LiteTopicPushConsumer, and those of a Client unless one is shared.

    Raises:
        ConfigurationError: an option is unknown or not valid, or ``group`` is missing.
    """

    def __init__(
        self,
        client: str | Client | None = None,
        *,
        group: str | None = None,
        parent: str,
        **options: Unpack[LiteTopicPushConsumerOptions],
    ) -> None:
        shared, owner = self._shared_client(client)
        super().__init__(consumer.LiteTopicPushConsumer(shared, group=group, parent=parent, **options), owner)

    @property
    def settings(self) -> LiteTopicPushConsumerSettings:
        """The settings."""
        return self._target.settings

    @property
    def lite_topics(self) -> frozenset[str]:
        """The subscribed lite topics."""
        lite_topics: frozenset[str] = self._get("lite_topics")
        return lite_topics
