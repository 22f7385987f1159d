"""Producers for threads."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, Unpack

from rocketmq_py import client as core
from rocketmq_py import producer
from rocketmq_py.blocking.declaring import blocking, written_for
from rocketmq_py.blocking.futures import ThreadFuture
from rocketmq_py.blocking.hosted import Hosted, shared_client
from rocketmq_py.blocking.send_queue import ThreadSendCall, ThreadSendQueue
from rocketmq_py.client.config import ClientConfig
from rocketmq_py.errors import RocketMQError
from rocketmq_py.handoff.context import TrioContext
from rocketmq_py.handoff.hosted import Target
from rocketmq_py.handoff.producers import HostedProducer
from rocketmq_py.message import Message, ReceivedMessage, SendResult
from rocketmq_py.producer import (
    PendingReply,
    Transaction,
    TransactionCheck,
    TransactionConfig,
    TransactionOptions,
    TransactionStatistics,
)
from rocketmq_py.producer.batching_config import BatchingConfig, BatchingOptions
from rocketmq_py.producer.config import ProducerConfig, ProducerOptions
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
        self._send_queue.completer.flush()

    def flush(self) -> None:
        """Wait until every message that was passed to :meth:`submit` until now has its outcome.

        Then it waits for their callbacks, for at most a second.
        """
        self._call(self._drain)
        self._send_queue.completer.flush()


class Producer(_Producer[producer.Producer]):
    """``rocketmq_py.Producer`` for threads: the same methods, arguments and errors, without ``await``.

    Any number of threads may send through one. A KeyboardInterrupt cancels the call that waits; a request
    that was written may still be stored then. Closing waits until what is under way has its result, for at
    most ``close_timeout`` seconds; so does the end of the process.

    Queue selectors, hooks and callbacks run in the thread that serves all calls: they must be quick.

    Args:
        client: name servers as ``host:port;host:port`` (None reads NAMESRV_ADDR, else 127.0.0.1:9876), or
            a blocking Client to share.
        *configs: a ProducerConfig, and a ClientConfig unless a client is shared; instead of their fields as
            keywords, or beside some of them.
        group: the producer group; None for DEFAULT_PRODUCER.
        rng: the source of randomness, for tests that replay a run.
        **options: the fields of ProducerConfig, and those of ClientConfig unless a client is shared.

    Raises:
        ConfigurationError: an option is unknown, given twice, or outside of what is allowed.
        ClosedError: the client is closed, or was opened in the parent of this process.
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

    def _limits(self) -> tuple[int, int]:
        return self.config.max_in_flight, self.config.max_in_flight_bytes

    @property
    def _client(self) -> core.Client:
        return self._target.client

    @property
    def config(self) -> ProducerConfig:
        """Its settings."""
        return self._target.config

    @written_for(producer.Producer.send)
    def send(
        self, message: Message, *, queue: Destination | None = None, timeout: float | None = None
    ) -> SendResult:
        """Has the docstring of the trio Producer's method."""
        self._check_open()
        return self._thread.wait_for(ThreadSendCall(self._thread, self._target, message, queue, timeout))

    def submit(
        self, message: Message, *, queue: Destination | None = None, timeout: float | None = None
    ) -> Future[SendResult]:
        """Send a message without waiting for the broker: waits only while ``max_in_flight`` are under way.

        Messages that one thread sends leave in that order. The result, or the error after the last try, is
        in the future, InvalidMessageError and SendForbiddenError too; ``timeout`` runs from when it has its
        turn. Cancelling the future before that keeps the message from being sent.

        Raises:
            ClosedError: the producer is closed, or was opened in the parent of this process.
        """
        return self._send_queue.send(message, queue, timeout)

    send_oneway: Final = blocking(producer.Producer.send_oneway)

    send_batch: Final = blocking(producer.Producer.send_batch)

    request: Final = blocking(producer.Producer.request)

    reply: Final = blocking(producer.Producer.reply)

    recall: Final = blocking(producer.Producer.recall)

    def submit_request(
        self, message: Message, *, queue: Destination | None = None, timeout: float | None = None
    ) -> Future[ReceivedMessage]:
        """Send a request without waiting for its reply: waits only for a place in flight and a connection.

        The reply, or the error, is in the future. The arguments and the errors are those of :meth:`request`;
        only InvalidMessageError, SendForbiddenError and ClosedError are raised at once.
        """
        future: ThreadFuture[ReceivedMessage] = ThreadFuture(self._thread, self._send_queue.completer)
        future.start()
        done = partial(_set_reply, future)
        self._call(self._target.submit_request, message, queue=queue, timeout=timeout, on_done=done)
        return future

    queues: Final = blocking(producer.Producer.queues)

    def add_hook(self, hook: ProducerHook) -> Callable[[], None]:
        """Have a hook called around sends from now on; returns what removes it."""
        return self._target.add_hook(hook)

    @property
    def in_flight(self) -> int:
        """How many pipelined sends have neither succeeded nor failed yet."""
        return len(self._send_queue)

    @property
    def statistics(self) -> ProducerStatistics:
        """What it has done until now."""
        return self._target.statistics


def _set_reply(future: ThreadFuture[ReceivedMessage], pending: PendingReply) -> None:
    if pending.error is not None:
        future.fail(pending.error)
    else:
        future.finish(pending.result())


class BatchingProducer(_Producer[producer.BatchingProducer]):
    """``rocketmq_py.BatchingProducer`` for threads: messages of all of them go together.

    The same methods, arguments and errors, without ``await``; closing, interruptions and callbacks are as
    for the blocking Producer.

    Args:
        client, group, rng: as for Producer; *configs may hold a BatchingConfig, too.
        **options: the fields of BatchingConfig and ProducerConfig, and those of ClientConfig unless a client
            is shared.

    Raises:
        ConfigurationError: an option is unknown, given twice, or outside of what is allowed.
        ClosedError: the client is closed, or was opened in the parent of this process.
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

    def _limits(self) -> tuple[int, int]:
        return sys.maxsize, self.config.max_buffered_bytes

    @property
    def _client(self) -> core.Client:
        return self._target.producer.client

    @property
    def config(self) -> BatchingConfig:
        """Its settings."""
        return self._target.config

    send: Final = blocking(producer.BatchingProducer.send)
    send_oneway: Final = blocking(producer.BatchingProducer.send_oneway)
    queues: Final = blocking(producer.BatchingProducer.queues)

    def submit(self, message: Message, *, queue: Destination | None = None) -> Future[SendResult]:
        """Accept a message, to be sent with others: waits only while ``max_buffered_bytes`` are exhausted.

        As the blocking Producer's ``submit`` otherwise.
        """
        return self._send_queue.send(message, queue)

    def send_all(
        self, messages: Iterable[Message], *, queues: Iterable[Destination | None] | None = None
    ) -> list[SendResult | RocketMQError]:
        """Send messages, and return the outcome of each; see the trio BatchingProducer's ``send_all``.

        All of them cross to the thread that serves calls at once: it is the fastest way to send many.
        """
        chosen = None if queues is None else list(queues)
        return self._call(self._target.send_all, list(messages), queues=chosen)

    def add_hook(self, hook: ProducerHook) -> Callable[[], None]:
        """Have a hook called around the sends of batches from now on; returns what removes it."""
        return self._target.producer.add_hook(hook)

    @property
    def pending(self) -> int:
        """How many messages have been accepted and have no result yet."""
        return self._target.pending

    @property
    def buffered_bytes(self) -> int:
        """How many bytes they take, of ``max_buffered_bytes``."""
        return self._target.buffered_bytes

    @property
    def statistics(self) -> ProducerStatistics:
        """What it has done until now."""
        return self._target.producer.statistics


class TransactionProducer(Producer):
    """``rocketmq_py.TransactionProducer`` for threads: the same methods and errors, without ``await``.

    ``check`` and the local work are plain functions, called in worker threads.

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
        target = producer.TransactionProducer(shared, *configs, group=group, check=check, rng=rng, **options)
        _Producer.__init__(self, target, parent)

    @property
    def transaction_config(self) -> TransactionConfig:
        """Its settings for transactions."""
        return self._target.transaction_config

    send_in_transaction: Final = blocking(producer.TransactionProducer.send_in_transaction)

    @contextmanager
    def transaction(
        self,
        message: Message,
        *,
        queue: Destination | None = None,
        timeout: float | None = None,
        check_immunity: float | None = None,
    ) -> Iterator[Transaction]:
        """Send a message that is delivered only if the ``with`` block ends well.

        The arguments and errors are those of the trio TransactionProducer's ``transaction``.
        """
        context = TrioContext(
            self._thread,
            self._target.transaction(message, queue=queue, timeout=timeout, check_immunity=check_immunity),
        )
        try:
            transaction = self._call(context.enter)
        except BaseException as error:
            if context.is_entered:  # it was interrupted in this moment
                self._thread.call(partial(context.leave, error))
            raise
        try:
            yield transaction
        except BaseException as error:
            self._thread.call(partial(context.leave, error))
            raise
        self._thread.call(partial(context.leave, None))

    @property
    def transaction_statistics(self) -> TransactionStatistics:
        """What became of its transactions until now."""
        statistics: TransactionStatistics = self._get("transaction_statistics")
        return statistics
