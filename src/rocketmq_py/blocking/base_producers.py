"""The base classes of the producers, and their pipelined sends with concurrent futures."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from rocketmq_py import producer
from rocketmq_py.arguments import Duration
from rocketmq_py.blocking.futures import CallbackRunner, ThreadFuture, callback_runner_of
from rocketmq_py.blocking.hosted import Hosted, written_for
from rocketmq_py.errors import RocketMQError
from rocketmq_py.handoff.calls import SIGNAL_CHECK_SECONDS
from rocketmq_py.handoff.forwarding import with_sections_of
from rocketmq_py.handoff.hosted import in_list
from rocketmq_py.handoff.hosted_producer import HostedProducer, ThreadSendCall
from rocketmq_py.handoff.send_queue import SendQueue, result_of
from rocketmq_py.handoff.trio_thread import TrioThread
from rocketmq_py.message import Message, ReceivedMessage, SendResult
from rocketmq_py.producer import (
    PendingReply,
    Transaction,
)
from rocketmq_py.producer.destinations import Destination
from rocketmq_py.producer.outcome import FailureLog


class ThreadSendFuture(ThreadFuture[SendResult]):
    """A pipelined send. Cancelling it keeps the message from being sent while it waits in the queue.

    Args:
        send_queue: the queue.
        message, size, queue, timeout: see QueuedSend.
    """

    def __init__(
        self,
        send_queue: ThreadSendQueue,
        message: Message,
        size: int,
        queue: Destination | None,
        timeout: Duration | None,
    ) -> None:
        super().__init__(send_queue.thread, send_queue.callback_runner)
        self._message: Message | None = message
        self._size = size
        self._queue = queue
        self._timeout = timeout
        self._send_queue = send_queue

    def _result_of(self, outcome: Any) -> SendResult:
        if isinstance(outcome, SendResult):
            return outcome
        result = result_of(outcome)
        self._outcome = result
        return result

    # In the trio thread

    def _succeed(self, result: Any) -> None:
        """Set the result."""
        self._send_queue.release(self)
        self.finish(result)

    def _fail(self, error: BaseException, log: FailureLog | None = None) -> None:
        """Set the error."""
        self._send_queue.release(self, error)
        super()._fail(error)


class ThreadSendQueue(SendQueue[ThreadSendFuture]):
    """Takes messages from threads; see SendQueue.

    Attributes:
        callback_runner: calls the callbacks of the futures.
    """

    def __init__(self, thread: TrioThread, *args: Any, **kwargs: Any) -> None:
        super().__init__(thread, *args, **kwargs)
        self.callback_runner: CallbackRunner = callback_runner_of(thread)

    def send(
        self, message: Message, queue: Destination | None, timeout: Duration | None = None
    ) -> ThreadSendFuture:
        """Queue a message when there is space. If the wait is interrupted, it is not sent.

        Raises InvalidMessageError and ClosedError.
        """
        size = self.check(message)
        if not self.has_space(size):
            self._wait_for_space(size)
        future = ThreadSendFuture(self, message, size, queue, timeout)
        self.add(future)
        return future

    def _wait_for_space(self, size: int) -> None:
        if self.thread.is_current:
            return  # a hook that sends: the trio thread cannot wait for itself
        while not self.has_space(size):
            self.check_open()
            woken = threading.Lock()
            woken.acquire()
            if self.must_wait(woken.release, size) and not woken.acquire(timeout=SIGNAL_CHECK_SECONDS):
                self.thread.watchdog.check()
        self.check_open()


class BaseProducer(HostedProducer[ThreadSendQueue], Hosted[producer.Producer]):
    """The base class of the producers: pipelined sends, and those that wait for one."""

    _queue_class = ThreadSendQueue

    @written_for(producer.Producer.send)
    def send(
        self, message: Message, *, queue: Destination | None = None, timeout: Duration | None = None
    ) -> SendResult:
        """Send a message and wait until a broker has stored it."""
        self._check_open()
        if self._target.settings.linger is None:
            return self._thread.wait_for(ThreadSendCall(self._thread, self._target, message, queue, timeout))
        future = self.submit(message, queue=queue, timeout=timeout)
        try:
            return future.result()
        except BaseException:  # if interrupted, a message that still waits in the queue is not sent
            future.cancel()
            raise

    def submit(
        self, message: Message, *, queue: Destination | None = None, timeout: Duration | None = None
    ) -> Future[SendResult]:
        """Queue a message for sending, and return a future of the result.

        It waits only while ``max_in_flight`` messages, or ``max_in_flight_bytes``, are pending. Messages of
        one thread are sent in order. With ``linger``, only the bytes count. The future has the result, or the
        error of the last attempt. Cancelling the future keeps the message from being sent, as long as the
        message is in the queue.

        When interrupted while it waits, the message is not sent.

        Args:
            message: the message.
            queue: the queue, or a selector; see the trio Producer.
            timeout: seconds for all attempts together, from the moment at which the message leaves the queue.
                None for the setting ``send_timeout``.

        Raises:
            InvalidMessageError: the argument is not a Message.
            ClosedError: the producer is closed, or belongs to the parent of this process.
        """
        return self._send_queue.send(message, queue, timeout)

    def submit_request(
        self, message: Message, *, queue: Destination | None = None, timeout: Duration | None = None
    ) -> Future[ReceivedMessage]:
        """Send a request, and return a future of the reply.

        It waits as :meth:`submit`. Arguments and errors are those of :meth:`request`. The future cannot be
        cancelled.

        Raises:
            InvalidMessageError, SendForbiddenError, ClosedError: nothing was sent. The future has all other
                errors.
        """
        future: ThreadFuture[ReceivedMessage] = ThreadFuture(self._thread, self._send_queue.callback_runner)
        future.claim()
        done = partial(_set_reply, future)
        self._call(self._submit_request, message, done, queue=queue, timeout=timeout)
        return future

    @with_sections_of(producer.Producer.send_all)
    def send_all(
        self, messages: Iterable[Message], *, queues: Iterable[Destination | None] | None = None
    ) -> list[SendResult | RocketMQError]:
        """Send messages, wait for all of them, and return the outcome of each in order.

        With ``linger``, it is the fastest way to send many messages: they reach the trio thread together.
        """
        return self._call(self._send_all, in_list(messages), in_list(queues))

    def close(self) -> None:  # noqa: D102  # the docstring of Hosted.close is inherited
        super().close()
        self._send_queue.callback_runner.flush()

    def flush(self) -> None:
        """Send the collected messages, and wait for the outcome of all that were passed to :meth:`submit`.

        Then it waits for their callbacks, for at most a second.
        """
        self._call(self._drain)
        self._send_queue.callback_runner.flush()


def _set_reply(future: ThreadFuture[ReceivedMessage], pending: PendingReply) -> None:
    if (error := pending.exception()) is not None:
        future._fail(error)
    else:
        future.finish(pending.result())


class BaseTransactionProducer(BaseProducer):
    """The base class of TransactionProducer, in addition to Producer."""

    _target: producer.TransactionProducer

    @with_sections_of(producer.TransactionProducer.transaction)
    def transaction(
        self,
        message: Message,
        *,
        queue: Destination | None = None,
        timeout: Duration | None = None,
        check_immunity: Duration | None = None,
    ) -> AbstractContextManager[Transaction]:
        """Send a message that is delivered only if the ``with`` block ends without an exception.

        The arguments are those of :meth:`send_in_transaction`.
        """
        return self._entered(
            self._target.transaction(message, queue=queue, timeout=timeout, check_immunity=check_immunity)
        )
