"""Producers for asyncio."""

from __future__ import annotations

import asyncio
import random
import sys
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack

from rocketmq_py import client as core
from rocketmq_py import producer
from rocketmq_py.aio.declaring import coroutine, written_for
from rocketmq_py.aio.hosted import Hosted, chosen, on_running_loop, shared_client
from rocketmq_py.aio.send_queue import LoopSendCall, LoopSendQueue
from rocketmq_py.client.config import ClientConfig
from rocketmq_py.errors import RocketMQError
from rocketmq_py.handoff.context import TrioContext
from rocketmq_py.handoff.event_loop import LoopLink, current_link
from rocketmq_py.handoff.hosted import Target
from rocketmq_py.handoff.producers import HostedProducer
from rocketmq_py.message import Message, MessageQueue, ReceivedMessage, SendResult
from rocketmq_py.producer import (
    BatchingConfig,
    BatchingOptions,
    PendingReply,
    ProducerConfig,
    ProducerHook,
    ProducerOptions,
    ProducerStatistics,
    Transaction,
    TransactionCheck,
    TransactionConfig,
    TransactionOptions,
    TransactionSendResult,
    TransactionStatistics,
)
from rocketmq_py.producer.send_request import Destination
from rocketmq_py.producer.transactions import LocalWork

if TYPE_CHECKING:
    from rocketmq_py.aio.client import Client

Result = TypeVar("Result")


class _Producer(HostedProducer[Target, LoopSendQueue], Hosted[Target]):
    """A producer with a queue of pipelined sends."""

    _queue_class = LoopSendQueue

    @abstractmethod
    async def _queues(self, topic: str) -> Sequence[MessageQueue]:
        """Return what a selector may choose from."""

    async def _call(self, function: Callable[..., Awaitable[Result]], *args: Any, **kwargs: Any) -> Result:
        queue = kwargs.get("queue")
        if callable(queue) and args:
            first = args[0] if isinstance(args[0], Message) else next(iter(args[0]), None)
            if first is not None:
                kwargs["queue"] = await chosen(queue, first, self._queues)
        return await super()._call(function, *args, **kwargs)


class Producer(_Producer[producer.Producer]):
    """``rocketmq_py.Producer`` for asyncio: the same methods, arguments and errors, as coroutines.

    Use it inside ``async with``; leaving waits until what is under way has its result, for at most
    ``close_timeout`` seconds. Any number of tasks may send through one. Selectors and hooks are called on the
    loop. Cancelling a task cancels the send that it awaits; a request that was written may still be stored.

    Args:
        client: name servers as ``host:port;host:port`` (None reads NAMESRV_ADDR, else 127.0.0.1:9876), or
            an open ``rocketmq_py.aio.Client`` to share.
        *configs: a ProducerConfig, and a ClientConfig unless a client is shared; instead of their fields as
            keywords, or beside some of them.
        group: the producer group.
        rng: the source of randomness, for tests that replay a run.
        **options: the fields of ProducerConfig, and those of ClientConfig unless a client is shared.

    Raises:
        ConfigurationError: an option is unknown, given twice, or outside of what is allowed.
    """

    def __init__(
        self,
        client: str | Client | None = None,
        *configs: ProducerConfig | ClientConfig,
        group: str | None = None,
        rng: random.Random | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        shared, parent = shared_client(client)
        super().__init__(producer.Producer(shared, *configs, group=group, rng=rng, **options), parent)

    @property
    def _client(self) -> core.Client:
        return self._target.client

    async def _queues(self, topic: str) -> Sequence[MessageQueue]:
        return await self._call(self._target.queues, topic)

    def _limits(self) -> tuple[int, int]:
        return self.config.max_in_flight, self.config.max_in_flight_bytes

    @property
    def config(self) -> ProducerConfig:
        """Its settings."""
        return self._target.config

    @written_for(producer.Producer.send)
    async def send(
        self, message: Message, *, queue: Destination | None = None, timeout: float | None = None
    ) -> SendResult:
        """Has the docstring of the trio Producer's method."""
        if self._has_closed or not (self._was_opened and self._thread.is_usable):
            self._check_open()
        if callable(queue) and isinstance(message, Message):
            queue = await chosen(queue, message, self._queues)
        link = current_link()
        return await link.wait_for(LoopSendCall(link, self._target, message, queue, timeout))

    send_oneway: Final = coroutine(producer.Producer.send_oneway)
    send_batch: Final = coroutine(producer.Producer.send_batch)
    request: Final = coroutine(producer.Producer.request)
    reply: Final = coroutine(producer.Producer.reply)
    recall: Final = coroutine(producer.Producer.recall)
    queues: Final = coroutine(producer.Producer.queues)

    async def flush(self) -> None:
        """Wait until every message that was given to :meth:`submit` until now has its outcome."""
        await self._call(self._drain)

    async def submit(
        self, message: Message, *, queue: Destination | None = None, timeout: float | None = None
    ) -> asyncio.Future[SendResult]:
        """Send a message without waiting for the broker: waits only for a place in flight.

        Messages that one task sends leave in that order. The result, or the error after the last try, is in
        the future: await it, give it to ``asyncio.wait`` or ``gather``, or have it call something when it is
        done, on the loop. ``timeout`` runs from when it has its place. Cancelling the future keeps the
        message from being sent as long as it waits for its turn. The broker's answer makes it done at once:
        between two awaits, too, so that a ``cancel()`` may come too late, and then returns False.

        Raises:
            InvalidMessageError: it is no message. ClosedError. What a selector raises. All else is the
            future's.

        When cancelled while it waits, the message is not sent.
        """
        if self._has_closed or not self._was_opened:
            self._check_open()
        if queue is not None:
            queue = await chosen(queue, message, self._queues)
        return await self._send_queue.send(message, queue, timeout)

    async def submit_request(
        self, message: Message, *, queue: Destination | None = None, timeout: float | None = None
    ) -> asyncio.Future[ReceivedMessage]:
        """Send a request without waiting for its reply: waits only for a place in flight and a connection.

        The reply, or the error, is in the future. The arguments and the errors are those of :meth:`request`;
        only InvalidMessageError, SendForbiddenError and ClosedError are raised at once.

        When cancelled while it waits, the request is not sent.
        """
        link = current_link()
        future: asyncio.Future[ReceivedMessage] = link.loop.create_future()
        queue = await chosen(queue, message, self._queues)
        done = partial(_deliver_reply, link, future)
        await self._call(self._target.submit_request, message, queue=queue, timeout=timeout, on_done=done)
        return future

    def add_hook(self, hook: ProducerHook) -> Callable[[], None]:
        """Have a hook called on the running loop around sends from now on; returns what removes it."""
        return self._call_plain(self._target.add_hook, self._hook_on_loop(hook))

    @property
    def in_flight(self) -> int:
        """How many pipelined sends have neither succeeded nor failed yet."""
        return len(self._send_queue)

    @property
    def statistics(self) -> ProducerStatistics:
        """What it has done until now."""
        statistics: ProducerStatistics = self._get("statistics")
        return statistics


def _deliver_reply(link: LoopLink, future: asyncio.Future[ReceivedMessage], pending: PendingReply) -> None:
    link.deliver(_set_reply, future, pending)


def _set_reply(future: asyncio.Future[ReceivedMessage], pending: PendingReply) -> None:
    if future.done():
        return
    if pending.error is not None:
        future.set_exception(pending.error)
    else:
        future.set_result(pending.result())


class BatchingProducer(_Producer[producer.BatchingProducer]):
    """``rocketmq_py.BatchingProducer`` for asyncio: messages of all tasks go together.

    Used as a Producer of this door is.

    Args:
        client, group, rng: as for Producer.
        *configs: a BatchingConfig, a ProducerConfig, and a ClientConfig unless a client is shared.
        **options: the fields of these.

    Raises:
        ConfigurationError: an option is unknown, given twice, or outside of what is allowed.
    """

    def __init__(
        self,
        client: str | Client | None = None,
        *configs: BatchingConfig | ProducerConfig | ClientConfig,
        group: str | None = None,
        rng: random.Random | None = None,
        **options: Unpack[BatchingOptions],
    ) -> None:
        shared, parent = shared_client(client)
        super().__init__(producer.BatchingProducer(shared, *configs, group=group, rng=rng, **options), parent)

    @property
    def _client(self) -> core.Client:
        return self._target.producer.client

    def _limits(self) -> tuple[int, int]:
        return sys.maxsize, self.config.max_buffered_bytes

    @property
    def config(self) -> BatchingConfig:
        """Its settings."""
        return self._target.config

    async def _queues(self, topic: str) -> Sequence[MessageQueue]:
        return await self._call(self._target.queues, topic)

    send: Final = coroutine(producer.BatchingProducer.send)
    send_oneway: Final = coroutine(producer.BatchingProducer.send_oneway)
    queues: Final = coroutine(producer.BatchingProducer.queues)

    async def submit(
        self, message: Message, *, queue: Destination | None = None
    ) -> asyncio.Future[SendResult]:
        """Accept a message, to be sent with others: waits only while ``max_buffered_bytes`` are exhausted.

        As the Producer's ``submit`` otherwise.
        """
        self._check_open()
        queue = await chosen(queue, message, self._queues)
        return await self._send_queue.send(message, queue)

    async def send_all(
        self, messages: Iterable[Message], *, queues: Iterable[Destination | None] | None = None
    ) -> list[SendResult | RocketMQError]:
        """Send messages, and return the outcome of each; see the trio BatchingProducer's ``send_all``.

        All of them cross to the trio thread at once: it is the fastest way to send many.
        """
        messages = list(messages)
        destinations = None if queues is None else list(queues)
        if destinations is not None and len(destinations) == len(messages):
            destinations = [
                await chosen(queue, message, self._queues)
                for queue, message in zip(destinations, messages, strict=True)
            ]
        return await self._call(self._target.send_all, messages, queues=destinations)

    async def flush(self) -> None:
        """Send what is collected, and wait until every message accepted until now has its outcome."""
        await self._call(self._drain)

    def add_hook(self, hook: ProducerHook) -> Callable[[], None]:
        """Have a hook called on the running loop around the sends of batches; returns what removes it."""
        return self._call_plain(self._target.producer.add_hook, self._hook_on_loop(hook))

    @property
    def pending(self) -> int:
        """How many messages have been accepted and have no result yet."""
        return len(self._send_queue)

    @property
    def buffered_bytes(self) -> int:
        """How many bytes they take, of ``max_buffered_bytes``."""
        buffered: int = self._get("buffered_bytes")
        return buffered

    @property
    def statistics(self) -> ProducerStatistics:
        """What it has done until now."""
        return self._call_plain(lambda: self._target.producer.statistics)


class TransactionProducer(Producer):
    """``rocketmq_py.TransactionProducer`` for asyncio: the same methods, arguments and errors, as coroutines.

    ``check`` and the local work are called on the loop.

    Args:
        client, group, rng: as for Producer; the group must be given.
        *configs: a TransactionConfig, a ProducerConfig, and a ClientConfig unless a client is shared.
        check: finds out what became of a transaction; see the trio TransactionProducer.
        **options: the fields of these.

    Raises:
        ConfigurationError: an option is unknown, given twice, missing, or outside of what is allowed.
    """

    _target: producer.TransactionProducer

    def __init__(
        self,
        client: str | Client | None = None,
        *configs: TransactionConfig | ProducerConfig | ClientConfig,
        group: str | None = None,
        check: TransactionCheck,
        rng: random.Random | None = None,
        **options: Unpack[TransactionOptions],
    ) -> None:
        shared, parent = shared_client(client)
        at_home: Any = self._at_home(check) if callable(check) else check
        target = producer.TransactionProducer(
            shared, *configs, group=group, check=at_home, rng=rng, **options
        )
        _Producer.__init__(self, target, parent)

    @property
    def transaction_config(self) -> TransactionConfig:
        """Its settings for transactions."""
        return self._target.transaction_config

    async def send_in_transaction(
        self,
        message: Message,
        local_work: LocalWork,
        *,
        queue: Destination | None = None,
        timeout: float | None = None,
        check_immunity: float | None = None,
    ) -> TransactionSendResult:
        """Send a message that is delivered only if ``local_work`` commits, which is called on the loop.

        The arguments and errors are those of the trio TransactionProducer's ``send_in_transaction``.
        """
        work: Any = on_running_loop(local_work) if callable(local_work) else local_work
        return await self._call(
            self._target.send_in_transaction,
            message, work, queue=queue, timeout=timeout, check_immunity=check_immunity,
        )  # fmt: skip

    def transaction(
        self,
        message: Message,
        *,
        queue: Destination | None = None,
        timeout: float | None = None,
        check_immunity: float | None = None,
    ) -> AbstractAsyncContextManager[Transaction]:
        """Send a message that is delivered only if the ``async with`` block ends well.

        The arguments and errors are those of the trio TransactionProducer's ``transaction``.
        """
        return self._transaction(message, queue, timeout, check_immunity)

    @asynccontextmanager
    async def _transaction(
        self,
        message: Message,
        queue: Destination | None,
        timeout: float | None,
        check_immunity: float | None,
    ) -> AsyncIterator[Transaction]:
        queue = await chosen(queue, message, self._queues)
        context = TrioContext(
            self._thread,
            self._target.transaction(message, queue=queue, timeout=timeout, check_immunity=check_immunity),
        )
        try:
            transaction = await self._call(context.enter)
        except BaseException as error:
            if context.is_entered:  # it was cancelled in this moment
                await current_link().call(partial(context.leave, error))
            raise
        try:
            yield transaction
        except BaseException as error:
            await current_link().call(partial(context.leave, error))
            raise
        await current_link().call(partial(context.leave, None))

    @property
    def transaction_statistics(self) -> TransactionStatistics:
        """What became of its transactions until now."""
        statistics: TransactionStatistics = self._get("transaction_statistics")
        return statistics
