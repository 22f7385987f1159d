"""Producers for asyncio."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Unpack

from rocketmq_py import producer
from rocketmq_py.aio.base_producer import BaseProducer
from rocketmq_py.aio.forwarding import written_for
from rocketmq_py.aio.generated_methods import BatchingProducerMethods, ProducerMethods
from rocketmq_py.aio.hosted import on_loop
from rocketmq_py.callables import check_callable
from rocketmq_py.client.config import ClientConfig
from rocketmq_py.errors import RocketMQError
from rocketmq_py.handoff.awaited_sends import LoopSendCall
from rocketmq_py.handoff.hosted import in_list
from rocketmq_py.handoff.loop_link import LoopLink, current_link
from rocketmq_py.message import Message, ReceivedMessage, SendResult
from rocketmq_py.producer import (
    BatchingConfig,
    BatchingOptions,
    PendingReply,
    ProducerConfig,
    ProducerOptions,
    Transaction,
    TransactionCheck,
    TransactionConfig,
    TransactionOptions,
    TransactionSendResult,
    TransactionStatistics,
)
from rocketmq_py.producer.send_request import Destination
from rocketmq_py.producer.transaction_producer import LocalWork

if TYPE_CHECKING:
    from rocketmq_py.aio.client import Client


class Producer(ProducerMethods, BaseProducer[producer.Producer]):
    """``rocketmq_py.Producer`` for asyncio: the same methods, as coroutines.

    Use it inside ``async with``. The end of the block waits at most ``close_timeout`` seconds for pending
    sends. Any number of tasks may share a producer. The loop calls selectors and hooks. Cancelling a task
    cancels the send that it awaits, but the broker may still store a message whose request was written.

    Args:
        client: name servers as ``host:port;host:port``, or None for NAMESRV_ADDR or 127.0.0.1:9876, or
            an open ``rocketmq_py.aio.Client`` to share.
        *configs: a ProducerConfig, and a ClientConfig unless a client is shared. Single fields may be
            given as keywords instead, or in addition.
        group: the producer group.
        rng: the source of randomness, for reproducible tests.
        **options: the fields of ProducerConfig, and those of ClientConfig unless a client is shared.

    Raises:
        ConfigurationError: an option is unknown, given twice or not valid.
    """

    def __init__(
        self,
        client: str | Client | None = None,
        *configs: ProducerConfig | ClientConfig,
        group: str | None = None,
        rng: random.Random | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        shared, parent = self._shared_client(client)
        super().__init__(producer.Producer(shared, *configs, group=group, rng=rng, **options), parent)

    @property
    def config(self) -> ProducerConfig:
        """The settings."""
        return self._target.config

    @written_for(producer.Producer.send)
    async def send(
        self, message: Message, *, queue: Destination | None = None, timeout: float | None = None
    ) -> SendResult:
        """Replaced by the docstring of the trio Producer's method."""
        self._check_open()
        if queue is not None:
            queue = await self._select(queue, message)
        link = current_link()
        return await link.wait_for(LoopSendCall(link, self._target, message, queue, timeout))

    async def submit(
        self, message: Message, *, queue: Destination | None = None, timeout: float | None = None
    ) -> asyncio.Future[SendResult]:
        """Queue a message for sending, and return a future of the result.

        It waits only while ``max_in_flight`` messages, or ``max_in_flight_bytes``, are pending. Messages of
        one task are sent in order. The future has the result, or the error of the last attempt: await it, or
        pass it to ``asyncio.wait`` or ``gather``. ``timeout`` (seconds) starts when the message leaves the
        queue. Until then, cancelling the future keeps the message from being sent.

        When cancelled while it waits, the message is not sent.

        Raises:
            InvalidMessageError: the argument is not a Message.
            ClosedError: the producer is closed.
            The errors of a selector, and of looking up the queues for it. The future has all other errors.
        """
        if self._has_closed or not self._was_opened:
            self._check_open()
        if queue is not None:
            queue = await self._select(queue, message)
        return await self._send_queue.send(message, queue, timeout)

    async def submit_request(
        self, message: Message, *, queue: Destination | None = None, timeout: float | None = None
    ) -> asyncio.Future[ReceivedMessage]:
        """Send a request, and return a future of the reply.

        It waits as :meth:`submit`. Arguments and errors are those of :meth:`request`. InvalidMessageError,
        SendForbiddenError, ClosedError and the errors of a selector are raised here, the others are in the
        future. Cancelling the future does not take the request back, but drops its reply.

        When cancelled while it waits, the request is not sent.
        """
        link = current_link()
        future: asyncio.Future[ReceivedMessage] = link.loop.create_future()
        done = partial(_deliver_reply, link, future)
        await self._call(self._target.submit_request, message, queue=queue, timeout=timeout, on_done=done)
        return future

    @property
    def in_flight(self) -> int:
        """The number of pipelined sends, and of requests that wait for replies, without an outcome."""
        return self._count_in_flight()


def _deliver_reply(link: LoopLink, future: asyncio.Future[ReceivedMessage], pending: PendingReply) -> None:
    link.deliver(_set_reply, future, pending)


def _set_reply(future: asyncio.Future[ReceivedMessage], pending: PendingReply) -> None:
    error = pending.error  # retrieved: a cancelled future is not worth a log line
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(pending.result())


class BatchingProducer(BatchingProducerMethods, BaseProducer[producer.BatchingProducer]):
    """``rocketmq_py.BatchingProducer`` for asyncio: batches the messages of all tasks.

    Use it as a :class:`Producer`.

    Args:
        client, group, rng: as for Producer.
        *configs: a BatchingConfig, a ProducerConfig, and a ClientConfig unless a client is shared.
        **options: the fields of these classes.

    Raises:
        ConfigurationError: an option is unknown, given twice or not valid.
    """

    def __init__(
        self,
        client: str | Client | None = None,
        *configs: BatchingConfig | ProducerConfig | ClientConfig,
        group: str | None = None,
        rng: random.Random | None = None,
        **options: Unpack[BatchingOptions],
    ) -> None:
        shared, parent = self._shared_client(client)
        super().__init__(producer.BatchingProducer(shared, *configs, group=group, rng=rng, **options), parent)

    @property
    def config(self) -> BatchingConfig:
        """The settings."""
        return self._target.config

    async def submit(
        self, message: Message, *, queue: Destination | None = None, timeout: float | None = None
    ) -> asyncio.Future[SendResult]:
        """Queue a message for the next batch, and return a future of the result.

        It waits only while ``max_buffered_bytes`` are in use. ``timeout`` is that of :meth:`send`. Otherwise
        it is as the Producer's ``submit``.
        """
        self._check_open()
        if queue is not None:
            queue = await self._select(queue, message)
        return await self._send_queue.send(message, queue, timeout)

    async def send_all(
        self, messages: Iterable[Message], *, queues: Iterable[Destination | None] | None = None
    ) -> list[SendResult | RocketMQError]:
        """Send messages, and return the outcome of each. See the trio BatchingProducer's ``send_all``.

        It is the fastest way to send many messages: they reach the trio thread together.
        """
        self._check_open()
        listed, destinations = in_list(messages), in_list(queues)
        if not (
            isinstance(listed, list) and isinstance(destinations, list) and len(listed) == len(destinations)
        ):
            return await self._call(self._target.send_all, listed, queues=destinations)
        errors: dict[int, RocketMQError] = {}
        for index, message in enumerate(listed):
            try:
                destinations[index] = await self._select(destinations[index], message)
            except RocketMQError as error:
                errors[index] = error
        indexes = range(len(listed))
        outcomes = iter(
            await self._call(
                self._target.send_all,
                [listed[index] for index in indexes if index not in errors],
                queues=[destinations[index] for index in indexes if index not in errors],
            )
        )
        return [errors[index] if index in errors else next(outcomes) for index in indexes]

    @property
    def pending(self) -> int:
        """The number of accepted messages without an outcome."""
        return self._count_pending()

    @property
    def buffered_bytes(self) -> int:
        """How many of ``max_buffered_bytes`` the messages without an outcome take."""
        buffered: int = self._get("buffered_bytes")
        return buffered


class TransactionProducer(Producer):
    """``rocketmq_py.TransactionProducer`` for asyncio: the same methods, as coroutines.

    The loop calls ``check`` and the local work.

    Args:
        client, group, rng: as for Producer. The group is required.
        *configs: a TransactionConfig, a ProducerConfig, and a ClientConfig unless a client is shared.
        check: returns the state of a transaction. See the trio TransactionProducer.
        **options: the fields of these classes.

    Raises:
        ConfigurationError: an option is unknown, given twice, missing or not valid.
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
        shared, parent = self._shared_client(client)
        check_callable(check, "check", "message")
        target = producer.TransactionProducer(
            shared, *configs, group=group, check=self._on_own_loop(check), rng=rng, **options
        )
        BaseProducer.__init__(self, target, parent)  # not Producer's, which makes another target

    @property
    def transaction_config(self) -> TransactionConfig:
        """The settings of transactions."""
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
        """Send a message that is delivered only if ``local_work``, which the loop calls, commits.

        The arguments and errors are those of the trio TransactionProducer's ``send_in_transaction``.
        """
        check_callable(local_work, "local_work", "message", "transaction_id")
        work = on_loop(current_link(), copy_context(), local_work)
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
        """Send a message that is delivered only if the ``async with`` block ends without an exception.

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
        self._check_open()
        queue = await self._select(queue, message)
        async with self._entered(
            self._target.transaction(message, queue=queue, timeout=timeout, check_immunity=check_immunity)
        ) as transaction:
            yield transaction

    @property
    def transaction_statistics(self) -> TransactionStatistics:
        """The counters of transactions since it was opened."""
        statistics: TransactionStatistics = self._get("transaction_statistics")
        return statistics
