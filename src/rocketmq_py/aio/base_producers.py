"""The base classes of the producers, and their pipelined sends with asyncio futures."""

from __future__ import annotations

import asyncio
from asyncio import _get_running_loop as _running_loop  # the public one raises where none runs
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import copy_context
from functools import partial
from typing import Any

from rocketmq_py import producer
from rocketmq_py.aio.hosted import Hosted, for_loop, written_for
from rocketmq_py.arguments import Duration
from rocketmq_py.callables import NeverBlocks, check_callable
from rocketmq_py.errors import RocketMQError
from rocketmq_py.handoff.forwarding import with_sections_of
from rocketmq_py.handoff.hosted import in_list, without_iterator
from rocketmq_py.handoff.hosted_producer import HostedProducer, LoopSendCall
from rocketmq_py.handoff.loop_link import LoopLink, current_link
from rocketmq_py.handoff.send_queue import SendQueue, result_of
from rocketmq_py.message import Message, MessageQueue, ReceivedMessage, SendResult
from rocketmq_py.producer import (
    PendingReply,
    Transaction,
    TransactionCheck,
    TransactionSendResult,
)
from rocketmq_py.producer.destinations import Destination, check_destination, select
from rocketmq_py.producer.outcome import FailureLog
from rocketmq_py.producer.transaction_producer import LocalWork

YIELD_EVERY = 64
"""A sender that always finds space lets other tasks run after so many sends."""


class LoopSendFuture(asyncio.Future[SendResult]):
    """A pipelined send. Cancelling it keeps the message from being sent while it waits in the queue.

    Attributes:
        _link: the link to its loop.
        _send_queue: the queue.
        _message, _size, _queue, _timeout: see QueuedSend.
    """

    __slots__ = ("_link", "_message", "_queue", "_send_queue", "_size", "_timeout")

    # Set by LoopSendQueue, not by an __init__, which saves a call for each message.
    _link: LoopLink
    _send_queue: LoopSendQueue
    _message: Message | None
    _size: int
    _queue: Destination | None
    _timeout: Duration | None

    # In the trio thread

    def claim(self) -> bool:
        """Claim it for sending. Return False if it was cancelled."""
        return not self.cancelled()

    def _succeed(self, result: Any) -> None:
        """Set the result."""
        self._send_queue.release(self)
        self._link.deliver(_set_result, self, result)

    def _fail(self, error: BaseException, log: FailureLog | None = None) -> None:
        """Set the error. asyncio logs it if it is never retrieved."""
        self._send_queue.release(self, error)
        self._link.deliver(_set_exception, self, error)


def _set_result(future: asyncio.Future[SendResult], outcome: Any) -> None:
    if not future.done():
        future.set_result(result_of(outcome))


def _set_exception(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


class LoopSendQueue(SendQueue[LoopSendFuture]):
    """Takes messages from tasks of asyncio loops; see SendQueue."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._until_yield = YIELD_EVERY
        self._link: LoopLink | None = None  # to the loop that has sent last

    async def send(
        self, message: Message, queue: Destination | None, timeout: Duration | None = None
    ) -> LoopSendFuture:
        """Queue a message when there is space, and return its future. When cancelled, it is not sent.

        Raises InvalidMessageError and ClosedError.
        """
        size = self.check(message)
        link = self._link
        if link is None or link.loop is not _running_loop():
            link = self._link = current_link()
        if self._until_yield <= 0:  # below 0 if two loops have counted at the same moment
            self._until_yield = YIELD_EVERY
            await asyncio.sleep(0)
        while not self.has_space(size):
            await self._wait_for_space(link, size)
            self.check_open()
        self._until_yield -= 1
        send = LoopSendFuture(loop=link.loop)
        send._link = link
        send._send_queue = self
        send._message = message
        send._size = size
        send._queue = queue
        send._timeout = timeout
        self.add(send)
        return send

    async def _wait_for_space(self, link: LoopLink, size: int) -> None:
        woken = link.loop.create_future()

        def wake() -> None:
            link.deliver(_wake, woken)

        if self.must_wait(wake, size):
            await woken
            self._until_yield = YIELD_EVERY  # other tasks have run


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)


class BaseProducer(HostedProducer[LoopSendQueue], Hosted[producer.Producer]):
    """The base class of the producers: pipelined sends, and those that wait for one."""

    _queue_class = LoopSendQueue

    @written_for(producer.Producer.send)
    async def send(
        self, message: Message, *, queue: Destination | None = None, timeout: Duration | None = None
    ) -> SendResult:
        """Send a message and wait until a broker has stored it."""
        self._check_open()
        if self._target.settings.linger is not None:
            return await (await self.submit(message, queue=queue, timeout=timeout))
        queue = await self._select(queue, message)
        link = current_link()
        return await link.wait_for(LoopSendCall(link, self._target, message, queue, timeout))

    async def submit(
        self, message: Message, *, queue: Destination | None = None, timeout: Duration | None = None
    ) -> asyncio.Future[SendResult]:
        """Queue a message for sending, and return a future of the result.

        It waits only while ``max_in_flight`` messages, or ``max_in_flight_bytes``, are pending. Messages of
        one task are sent in order. With ``linger``, only the bytes count. The future has the result, or the
        error of the last attempt: await it, or pass it to ``asyncio.wait`` or ``gather``. Cancelling the
        future keeps the message from being sent, as long as the message is in the queue.

        When cancelled while it waits, the message is not sent.

        Args:
            message: the message.
            queue: the queue, or a selector; see the trio Producer.
            timeout: seconds for all attempts together, from the moment at which the message leaves the queue.
                None for the setting ``send_timeout``.

        Raises:
            InvalidMessageError: the argument is not a Message.
            ClosedError: the producer is closed.
            The errors of a selector, and of looking up the queues for it. The future has all other errors.
        """
        queue = await self._select(queue, message)
        return await self._send_queue.send(message, queue, timeout)

    @written_for(producer.Producer.send_oneway)
    async def send_oneway(self, message: Message, *, queue: Destination | None = None) -> None:
        """Send a message without an acknowledgement. It may be lost without an error."""
        queue = await self._select(queue, message)
        await self._call(self._target.send_oneway, message, queue=queue)

    @written_for(producer.Producer.send_batch)
    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: Destination | None = None,
        timeout: Duration | None = None,
    ) -> Sequence[SendResult]:
        """Send messages of one topic in a batch, and wait until a broker has stored them."""
        self._check_open()
        messages = without_iterator(messages)
        if isinstance(messages, Sequence) and messages:  # its messages have one topic
            queue = await self._select(queue, messages[0])
        return await self._call(self._target.send_batch, messages, queue=queue, timeout=timeout)

    @written_for(producer.Producer.request)
    async def request(
        self, message: Message, *, queue: Destination | None = None, timeout: Duration | None = None
    ) -> ReceivedMessage:
        """Send a request and wait for the reply of a consumer."""
        queue = await self._select(queue, message)
        return await self._call(self._target.request, message, queue=queue, timeout=timeout)

    async def submit_request(
        self, message: Message, *, queue: Destination | None = None, timeout: Duration | None = None
    ) -> asyncio.Future[ReceivedMessage]:
        """Send a request, and return a future of the reply.

        It waits as :meth:`submit`. Arguments and errors are those of :meth:`request`. Cancelling the future
        does not take the request back, but drops its reply.

        When cancelled while it waits, the request is not sent.

        Raises:
            InvalidMessageError, SendForbiddenError, ClosedError: nothing was sent.
            The errors of a selector. The future has all other errors.
        """
        queue = await self._select(queue, message)
        link = current_link()
        future: asyncio.Future[ReceivedMessage] = link.loop.create_future()
        done = partial(_deliver_reply, link, future)
        await self._call(self._submit_request, message, done, queue=queue, timeout=timeout)
        return future

    @with_sections_of(producer.Producer.send_all)
    async def send_all(
        self, messages: Iterable[Message], *, queues: Iterable[Destination | None] | None = None
    ) -> list[SendResult | RocketMQError]:
        """Send messages, wait for all of them, and return the outcome of each in order.

        With ``linger``, it is the fastest way to send many messages: they reach the trio thread together.
        """
        self._check_open()
        listed, destinations = in_list(messages), in_list(queues)
        if not (
            isinstance(listed, list) and isinstance(destinations, list) and len(listed) == len(destinations)
        ):
            return await self._call(self._send_all, listed, destinations)
        errors: dict[int, RocketMQError] = {}
        for index, message in enumerate(listed):
            try:
                destinations[index] = await self._select(destinations[index], message)
            except RocketMQError as error:
                errors[index] = error
        indexes = range(len(listed))
        outcomes = iter(
            await self._call(
                self._send_all,
                [listed[index] for index in indexes if index not in errors],
                [destinations[index] for index in indexes if index not in errors],
            )
        )
        return [errors[index] if index in errors else next(outcomes) for index in indexes]

    async def flush(self) -> None:
        """Send the collected messages, and wait for the outcome of all that were passed to :meth:`submit`."""
        await self._call(self._drain)

    async def _select(self, queue: Destination | None, message: object) -> Destination | None:
        """Check that it is open. Call a user's selector on the running loop, and return the selected queue.

        Each send begins with this. Returns any other destination unchanged. If ``message`` is not a Message,
        it returns the selector, and the trio producer raises the error.

        Raises ClosedError, the errors of the selector and of looking up the queues, ConfigurationError for a
        function that cannot be a selector, and InvalidMessageError if it returns no queue of the topic.
        """
        self._check_open()
        if isinstance(queue, (MessageQueue, NeverBlocks)) or not callable(queue):
            return queue
        if not isinstance(message, Message):
            return queue
        check_destination(queue, message.topic)
        queues = await self._call(self._target.queues, message.topic)
        return select(queue, queues, message)


def _deliver_reply(link: LoopLink, future: asyncio.Future[ReceivedMessage], pending: PendingReply) -> None:
    link.deliver(_set_reply, future, pending)


def _set_reply(future: asyncio.Future[ReceivedMessage], pending: PendingReply) -> None:
    error = pending.exception()  # retrieved: a cancelled future is not worth a log line
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(pending.result())


class BaseTransactionProducer(BaseProducer):
    """The base class of TransactionProducer, in addition to Producer."""

    _target: producer.TransactionProducer

    def _check_on_loop(self, check: TransactionCheck) -> TransactionCheck:
        """Return a function that calls the user's ``check`` on the loop of this producer."""
        check_callable(check, "check", "message")
        return self._for_own_loop(check)

    @with_sections_of(producer.TransactionProducer.send_in_transaction)
    async def send_in_transaction(
        self,
        message: Message,
        local_work: LocalWork,
        *,
        queue: Destination | None = None,
        timeout: Duration | None = None,
        check_immunity: Duration | None = None,
    ) -> TransactionSendResult:
        """Send a message that is delivered only if ``local_work`` commits.

        The loop calls an async ``local_work``, a worker thread a plain one, with the caller's context
        variables.
        """
        check_callable(local_work, "local_work", "message", "transaction_id")
        queue = await self._select(queue, message)
        where = current_link(), copy_context()
        work = for_loop(local_work, lambda: where)
        return await self._call(
            self._target.send_in_transaction,
            message, work, queue=queue, timeout=timeout, check_immunity=check_immunity,
        )  # fmt: skip

    @with_sections_of(producer.TransactionProducer.transaction)
    def transaction(
        self,
        message: Message,
        *,
        queue: Destination | None = None,
        timeout: Duration | None = None,
        check_immunity: Duration | None = None,
    ) -> AbstractAsyncContextManager[Transaction]:
        """Send a message that is delivered only if the ``async with`` block ends without an exception.

        The arguments are those of :meth:`send_in_transaction`.
        """
        return self._transaction(message, queue, timeout=timeout, check_immunity=check_immunity)

    @asynccontextmanager
    async def _transaction(
        self, message: Message, queue: Destination | None, **options: Duration | None
    ) -> AsyncIterator[Transaction]:
        queue = await self._select(queue, message)
        async with self._entered(self._target.transaction(message, queue=queue, **options)) as transaction:
            yield transaction
