"""Consumers of groups, for asyncio."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Self, Unpack

from rocketmq_py import client as core
from rocketmq_py import consumer
from rocketmq_py.aio.declaring import coroutine
from rocketmq_py.aio.handler_tasks import HandlerOnLoop
from rocketmq_py.aio.hosted import Hosted, shared_client
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
from rocketmq_py.consumer.lite_pull.consumer import MAX_POLLED
from rocketmq_py.consumer.pop.consumer import MAX_MESSAGES
from rocketmq_py.consumer.push.invoker import Handler, check_handler
from rocketmq_py.handoff.hosted import ForwardingListener, Target, Undelivered, plain
from rocketmq_py.message import MessageQueue, ReceivedMessage

if TYPE_CHECKING:
    from rocketmq_py.aio.client import Client


P = ParamSpec("P")


class _Consumer(Hosted[Target]):
    """What the consumers have in common."""

    @property
    def _client(self) -> core.Client:
        target: Any = self._target
        client: core.Client = target.client
        return client

    def add_hook(self, hook: ConsumerHook) -> Callable[[], None]:
        """Have a hook called on the running loop around what is consumed; returns what removes it."""
        target: Any = self._target
        remove: Callable[[], None] = self._call_plain(target.add_hook, self._hook_on_loop(hook))
        return remove

    def _forwarding(self, listener: AssignmentListener | None) -> AssignmentListener | None:
        """Return what has a listener called on the loop that this is opened on."""
        if listener is None:
            return None
        return ForwardingListener(listener, lambda function, queues: self._at_home(function)(queues))

    @property
    def statistics(self) -> ConsumerStatistics:
        """What it has done until now, and how far it is."""
        statistics: ConsumerStatistics = self._get("statistics")
        return statistics


class PushConsumer(_Consumer[consumer.PushConsumer]):
    """``rocketmq_py.PushConsumer`` for asyncio: handlers are called on the loop.

    ::

        async with PushConsumer("127.0.0.1:9876", group="billing") as consumer:
            consumer.subscribe("TopicTest", "A || B")
            await consumer.run(handle)  # async def handle(message); raise = deliver again

    Options, errors and promises are those of the trio PushConsumer. A plain handler is called on the loop as
    well, and must be quick: ``await asyncio.to_thread(...)`` in an async one does what takes time.

    Args:
        client: name servers as ``host:port;host:port`` (None reads NAMESRV_ADDR, else 127.0.0.1:9876), or
            an open ``rocketmq_py.aio.Client`` to share.
        *configs: a PushConsumerConfig, and a ClientConfig unless a client is shared; instead of their fields
            as keywords, or beside some of them.
        group: the consumer group. All its members must subscribe alike.
        assignment_listener: hears which queues this consumer gets and loses, on the loop, and awaited.
        rng: the source of randomness, for tests that replay a run.
        **options: the fields of PushConsumerConfig, and those of ClientConfig unless a client is shared.

    Raises:
        ConfigurationError: an option is unknown or outside of what is allowed.
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
        shared, parent = shared_client(client)
        listener = self._forwarding(assignment_listener)
        target = consumer.PushConsumer(
            shared, *configs, group=group, assignment_listener=listener, rng=rng, **options
        )
        super().__init__(target, parent)

    @property
    def config(self) -> PushConsumerConfig:
        """Its settings."""
        return self._target.config

    subscribe: Final = plain(consumer.PushConsumer.subscribe)
    unsubscribe: Final = plain(consumer.PushConsumer.unsubscribe)
    stop: Final = plain(consumer.PushConsumer.stop)
    pause: Final = plain(consumer.PushConsumer.pause)
    resume: Final = plain(consumer.PushConsumer.resume)
    committed: Final = coroutine(consumer.PushConsumer.committed)
    seek: Final = coroutine(consumer.PushConsumer.seek)
    begin_offsets: Final = coroutine(consumer.PushConsumer.begin_offsets)
    end_offsets: Final = coroutine(consumer.PushConsumer.end_offsets)
    lag: Final = coroutine(consumer.PushConsumer.lag)
    check_sql: Final = coroutine(consumer.PushConsumer.check_sql)

    async def run(self, handle: Handler) -> None:
        """Join the group and hand its messages to ``handle``, until :meth:`stop` or until cancelled.

        Handlers run in tasks of the running loop, ``concurrency`` of them at the most, each call with the
        context variables of this one. A handler whose task was cancelled by somebody else has failed: its
        message is delivered again. Otherwise as the trio PushConsumer's ``run``: what handlers return and
        raise, errors, and what a cancellation does.
        """
        self._check_open()
        check_handler(handle, in_lists=self.config.batch_size is not None)
        on_loop = HandlerOnLoop(handle)
        try:
            await self._call(self._target.run, on_loop)
        except GeneratorExit:  # the loop is closed: nothing can be awaited
            on_loop.tasks.clear()
            raise
        finally:
            if on_loop.tasks:  # they were cancelled when the run ended
                await asyncio.wait(on_loop.tasks)

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that this member has now, sorted: those of its group's retry topic as well."""
        queues: list[MessageQueue] = self._get("queues")
        return queues


def _seek(
    method: Callable[Concatenate[Any, P], Awaitable[None]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, None]]:
    """Return the coroutine method for one that seeks: what came for a cancelled poll counts no more."""
    seek = coroutine(method)

    @wraps(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> None:
        await seek(self, *args, **kwargs)
        self._drop_undelivered(args[0] if args else kwargs["queue"])

    return call


class LitePullConsumer(_Consumer[consumer.LitePullConsumer]):
    """``rocketmq_py.LitePullConsumer`` for asyncio: gives messages when it is asked for them.

    ::

        async with LitePullConsumer("127.0.0.1:9876", group="billing") as consumer:
            consumer.subscribe("TopicTest", "A || B")
            async for message in consumer:  # or: await consumer.poll()
                ...

    Options, errors and promises are those of the trio LitePullConsumer. What came for a poll that was
    cancelled is what the next one returns.

    Args:
        client: name servers as ``host:port;host:port`` (None reads NAMESRV_ADDR, else 127.0.0.1:9876), or
            an open ``rocketmq_py.aio.Client`` to share.
        *configs: a LitePullConsumerConfig, and a ClientConfig unless a client is shared; instead of their
            fields as keywords, or beside some of them.
        group: the consumer group. All its members must subscribe alike.
        assignment_listener: hears which queues this consumer gets and loses, on the loop, and awaited.
        rng: the source of randomness, for tests that replay a run.
        **options: the fields of LitePullConsumerConfig, and those of ClientConfig unless a client is shared.

    Raises:
        ConfigurationError: an option is unknown or outside of what is allowed.
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
        shared, parent = shared_client(client)
        listener = self._forwarding(assignment_listener)
        target = consumer.LitePullConsumer(
            shared, *configs, group=group, assignment_listener=listener, rng=rng, **options
        )
        super().__init__(target, parent)
        self._undelivered: Undelivered[ReceivedMessage] = Undelivered()

    @property
    def config(self) -> LitePullConsumerConfig:
        """Its settings."""
        return self._target.config

    subscribe: Final = plain(consumer.LitePullConsumer.subscribe)
    unsubscribe: Final = plain(consumer.LitePullConsumer.unsubscribe)
    pause: Final = plain(consumer.LitePullConsumer.pause)
    resume: Final = plain(consumer.LitePullConsumer.resume)
    assign: Final = coroutine(consumer.LitePullConsumer.assign)
    seek: Final = _seek(consumer.LitePullConsumer.seek)
    seek_to_begin: Final = _seek(consumer.LitePullConsumer.seek_to_begin)
    seek_to_end: Final = _seek(consumer.LitePullConsumer.seek_to_end)
    seek_to_time: Final = _seek(consumer.LitePullConsumer.seek_to_time)
    queues: Final = coroutine(consumer.LitePullConsumer.queues)
    offset_at: Final = coroutine(consumer.LitePullConsumer.offset_at)
    commit: Final = coroutine(consumer.LitePullConsumer.commit)
    committed: Final = coroutine(consumer.LitePullConsumer.committed)
    position: Final = coroutine(consumer.LitePullConsumer.position)
    begin_offsets: Final = coroutine(consumer.LitePullConsumer.begin_offsets)
    end_offsets: Final = coroutine(consumer.LitePullConsumer.end_offsets)
    lag: Final = coroutine(consumer.LitePullConsumer.lag)
    check_sql: Final = coroutine(consumer.LitePullConsumer.check_sql)

    async def poll(
        self,
        *,
        max_messages: int = MAX_POLLED,
        timeout: float | None = None,
    ) -> list[ReceivedMessage]:
        """Return the next messages, or none if none came in time; what was polled before is done with.

        Arguments and errors are those of the trio LitePullConsumer's ``poll``. When cancelled, no message is
        lost: what has come is returned by the next one.
        """
        self._check_open()  # a forked child must not return messages of its parent
        if not self._undelivered:
            await self._call(
                self._undelivered.fetch,
                partial(self._target.poll, max_messages=max_messages, timeout=timeout),
            )
        return self._undelivered.take(max_messages)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        self._check_open()  # a forked child must not return messages of its parent
        if not self._undelivered:
            await self._call(self._undelivered.fetch_one, self._target.__anext__)
        (message,) = self._undelivered.take(1)
        return message

    def _has_undelivered(self) -> bool:
        return bool(self._undelivered)

    def _drop_undelivered(self, queue: object) -> None:
        self._undelivered.drop(lambda message: message.queue == queue)

    def _check_open(self) -> None:
        if not self._target.is_leaving:  # its listener may commit until the end
            super()._check_open()

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that this consumer has now, sorted."""
        assignment: list[MessageQueue] = self._get("assignment")
        return assignment


class PopConsumer(_Consumer[consumer.PopConsumer]):
    """``rocketmq_py.PopConsumer`` for asyncio: takes a group's messages, each its own for a time (5.x).

    Options, errors and promises are those of the trio PopConsumer. What came for a ``receive`` that was
    cancelled is what the next one returns.

    Args:
        client: name servers as ``host:port;host:port`` (None reads NAMESRV_ADDR, else 127.0.0.1:9876), or
            an open ``rocketmq_py.aio.Client`` to share.
        *configs: a PopConsumerConfig, and a ClientConfig unless a client is shared; instead of their fields
            as keywords, or beside some of them.
        group: the consumer group. All its members must subscribe alike.
        rng: the source of randomness, for tests that replay a run.
        **options: the fields of PopConsumerConfig, and those of ClientConfig unless a client is shared.

    Raises:
        ConfigurationError: an option is unknown or outside of what is allowed.
    """

    def __init__(
        self,
        client: str | Client | None = None,
        *configs: PopConsumerConfig | ClientConfig,
        group: str | None = None,
        rng: random.Random | None = None,
        **options: Unpack[PopConsumerOptions],
    ) -> None:
        shared, parent = shared_client(client)
        super().__init__(consumer.PopConsumer(shared, *configs, group=group, rng=rng, **options), parent)
        self._undelivered: Undelivered[PoppedMessage] = Undelivered()

    @property
    def config(self) -> PopConsumerConfig:
        """Its settings."""
        return self._target.config

    subscribe: Final = plain(consumer.PopConsumer.subscribe)
    unsubscribe: Final = plain(consumer.PopConsumer.unsubscribe)
    ack: Final = coroutine(consumer.PopConsumer.ack)
    change_invisible: Final = coroutine(consumer.PopConsumer.change_invisible)
    begin_offsets: Final = coroutine(consumer.PopConsumer.begin_offsets)
    end_offsets: Final = coroutine(consumer.PopConsumer.end_offsets)
    lag: Final = coroutine(consumer.PopConsumer.lag)
    check_sql: Final = coroutine(consumer.PopConsumer.check_sql)

    async def receive(
        self,
        topic: str | None = None,
        *,
        max_messages: int = MAX_MESSAGES,
        invisible: float = 60.0,
        wait: float = 15.0,
    ) -> list[PoppedMessage]:
        """Take messages, as soon as there are any; each comes again if it is not acknowledged in time.

        Arguments and errors are those of the trio PopConsumer's ``receive``. When cancelled, no message is
        lost: what has come is returned by the next one.
        """
        self._check_open()  # a forked child must not return messages of its parent
        if not self._undelivered:
            receive = partial(
                self._target.receive, topic, max_messages=max_messages, invisible=invisible, wait=wait
            )
            await self._call(self._undelivered.fetch, receive)
        return self._undelivered.take(max_messages)
