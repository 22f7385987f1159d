"""Producers for threads."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Unpack

from rocketmq_py import producer
from rocketmq_py.blocking.forwarding import blocking, written_for
from rocketmq_py.blocking.futures import ThreadFuture
from rocketmq_py.blocking.generated_methods import BatchingProducerMethods, ProducerMethods
from rocketmq_py.blocking.hosted import Hosted
from rocketmq_py.blocking.pipelined_sends import ThreadSendQueue
from rocketmq_py.client.config import ClientConfig
from rocketmq_py.errors import RocketMQError
from rocketmq_py.handoff.awaited_sends import ThreadSendCall
from rocketmq_py.handoff.hosted import Target, in_list
from rocketmq_py.handoff.hosted_producer import HostedProducer
from rocketmq_py.message import Message, ReceivedMessage, SendResult
from rocketmq_py.producer import (
    PendingReply,
    Transaction,
    TransactionCheck,
    TransactionConfig,
    TransactionOptions,
    TransactionStatistics,
)
from rocketmq_py.producer.config import BatchingConfig, BatchingOptions, ProducerConfig, ProducerOptions
from rocketmq_py.producer.hooks import ProducerHook
from rocketmq_py.producer.send_request import Destination
from rocketmq_py.producer.statistics import ProducerStatistics

if TYPE_CHECKING:
    from rocketmq_py.blocking.client import Client


class _Producer(HostedProducer[Target, ThreadSendQueue], Hosted[Target]):
    """A producer with a queue of pipelined sends."""

    _queue_class = ThreadSendQueue

    def close(self) -> None:  # the docstring of Hosted.close is inherited
        super().close()
        self._send_queue.callback_runner.flush()

    def flush(self) -> None:
        """Wait until every message that was passed to :meth:`submit` until now has its outcome.

        Then it waits for their callbacks, for at most a second.
        """
        self._call(self._drain)
        self._send_queue.callback_runner.flush()

    def add_hook(self, hook: ProducerHook) -> Callable[[], None]:
        """Add a hook that runs around sends. Returns a function that removes it."""
        target: Any = self._target
        remove: Callable[[], None] = self._call_plain(target.add_hook, hook)
        return remove

    @property
    def statistics(self) -> ProducerStatistics:
        """The counters since it was opened."""
        statistics: ProducerStatistics = self._get("statistics")
        return statistics


class Producer(ProducerMethods, _Producer[producer.Producer]):
    """``rocketmq_py.Producer`` for threads: the same methods, without ``await``.

    Any number of threads may share a producer. KeyboardInterrupt cancels a call that waits, but the broker
    may still store a message whose request was written. Closing waits at most ``close_timeout`` seconds for
    pending sends, and the end of the process at most 15.

    Queue selectors and hooks run in the background thread that serves all calls: they must not block.

    Args:
        client: name servers as ``host:port;host:port``, or None for NAMESRV_ADDR or 127.0.0.1:9876, or
            a ``rocketmq_py.blocking.Client`` to share.
        *configs: a ProducerConfig, and a ClientConfig unless a client is shared. Single fields may be
            given as keywords instead, or in addition.
        group: the producer group; None for DEFAULT_PRODUCER.
        rng: the source of randomness, for reproducible tests.
        **options: the fields of ProducerConfig, and those of ClientConfig unless a client is shared.

    Raises:
        ConfigurationError: an option is unknown, given twice or not valid.
        ClosedError: the client is closed, or belongs to the parent of this process.
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
    def send(
        self, message: Message, *, queue: Destination | None = None, timeout: float | None = None
    ) -> SendResult:
        """Replaced by the docstring of the trio Producer's method."""
        self._check_open()
        return self._thread.wait_for(ThreadSendCall(self._thread, self._target, message, queue, timeout))

    def submit(
        self, message: Message, *, queue: Destination | None = None, timeout: float | None = None
    ) -> Future[SendResult]:
        """Queue a message for sending, and return a future of the result.

        It waits only while ``max_in_flight`` messages, or ``max_in_flight_bytes``, are pending. Messages of
        one thread are sent in order. The future has the result, or the error of the last attempt. ``timeout``
        (seconds) starts when the message leaves the queue. Until then, cancelling the future keeps the
        message from being sent.

        When interrupted while it waits, the message is not sent.

        Raises:
            InvalidMessageError: the argument is not a Message.
            ClosedError: the producer is closed, or belongs to the parent of this process.
        """
        return self._send_queue.send(message, queue, timeout)

    def submit_request(
        self, message: Message, *, queue: Destination | None = None, timeout: float | None = None
    ) -> Future[ReceivedMessage]:
        """Send a request, and return a future of the reply.

        It waits as :meth:`submit`. Arguments and errors are those of :meth:`request`. InvalidMessageError,
        SendForbiddenError and ClosedError are raised here, the others are in the future, which cannot be
        cancelled.
        """
        future: ThreadFuture[ReceivedMessage] = ThreadFuture(self._thread, self._send_queue.callback_runner)
        future.claim()
        done = partial(_set_reply, future)
        self._call(self._target.submit_request, message, queue=queue, timeout=timeout, on_done=done)
        return future

    @property
    def in_flight(self) -> int:
        """The number of pipelined sends, and of requests that wait for replies, without an outcome."""
        return self._count_in_flight()


def _set_reply(future: ThreadFuture[ReceivedMessage], pending: PendingReply) -> None:
    if pending.error is not None:
        future.fail(pending.error)
    else:
        future.finish(pending.result())


class BatchingProducer(BatchingProducerMethods, _Producer[producer.BatchingProducer]):
    """``rocketmq_py.BatchingProducer`` for threads: batches the messages of all threads.

    It has the same methods, without ``await``. Closing, interruptions and callbacks are as for
    :class:`Producer`.

    Args:
        client, group, rng: as for Producer. ``configs`` may contain a BatchingConfig, too.
        **options: the fields of BatchingConfig and ProducerConfig, and those of ClientConfig unless a client
            is shared.

    Raises:
        ConfigurationError: an option is unknown, given twice or not valid.
        ClosedError: the client is closed, or belongs to the parent of this process.
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

    def submit(
        self, message: Message, *, queue: Destination | None = None, timeout: float | None = None
    ) -> Future[SendResult]:
        """Queue a message for the next batch, and return a future of the result.

        It waits only while ``max_buffered_bytes`` are in use. ``timeout`` is that of :meth:`send`. Otherwise
        it is as the Producer's ``submit``.
        """
        return self._send_queue.send(message, queue, timeout)

    def send_all(
        self, messages: Iterable[Message], *, queues: Iterable[Destination | None] | None = None
    ) -> list[SendResult | RocketMQError]:
        """Send messages, and return the outcome of each. See the trio BatchingProducer's ``send_all``.

        It is the fastest way to send many messages: they reach the trio thread together.
        """
        return self._call(self._target.send_all, in_list(messages), queues=in_list(queues))

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
    """``rocketmq_py.TransactionProducer`` for threads: the same methods, without ``await``.

    ``check`` and the local work are plain functions, which worker threads call.

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
        target = producer.TransactionProducer(shared, *configs, group=group, check=check, rng=rng, **options)
        _Producer.__init__(self, target, parent)  # not Producer's, which makes another target

    @property
    def transaction_config(self) -> TransactionConfig:
        """The settings of transactions."""
        return self._target.transaction_config

    send_in_transaction: Final = blocking(producer.TransactionProducer.send_in_transaction)

    def transaction(
        self,
        message: Message,
        *,
        queue: Destination | None = None,
        timeout: float | None = None,
        check_immunity: float | None = None,
    ) -> AbstractContextManager[Transaction]:
        """Send a message that is delivered only if the ``with`` block ends without an exception.

        The arguments and errors are those of the trio TransactionProducer's ``transaction``.
        """
        return self._entered(
            self._target.transaction(message, queue=queue, timeout=timeout, check_immunity=check_immunity)
        )

    @property
    def transaction_statistics(self) -> TransactionStatistics:
        """The counters of transactions since it was opened."""
        statistics: TransactionStatistics = self._get("transaction_statistics")
        return statistics
