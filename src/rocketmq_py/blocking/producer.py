"""Producers for threads."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Unpack

from rocketmq_py import producer
from rocketmq_py.blocking.door import Door, shared_client
from rocketmq_py.blocking.hand_over import ThreadHandOver
from rocketmq_py.client.config import ClientConfig
from rocketmq_py.client.instance import ClientInstance
from rocketmq_py.crossing.door import Behind
from rocketmq_py.crossing.sends import Sends
from rocketmq_py.errors import RocketMQError
from rocketmq_py.message import Message, MessageQueue, ReceivedMessage, SendResult
from rocketmq_py.producer.batching_config import BatchingConfig, BatchingOptions
from rocketmq_py.producer.config import ProducerConfig, ProducerOptions
from rocketmq_py.producer.hooks import ProducerHook
from rocketmq_py.producer.send_request import Destination
from rocketmq_py.producer.statistics import ProducerStatistics

if TYPE_CHECKING:
    from rocketmq_py.blocking.client import Client


class _Sends(Sends[Behind, ThreadHandOver], Door[Behind]):
    """A door through which messages are handed over."""

    _new_hand_over = ThreadHandOver


class Producer(_Sends[producer.Producer]):
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
        client: Client | str | None = None,
        *configs: ProducerConfig | ClientConfig,
        group: str | None = None,
        rng: random.Random | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        shared, within = shared_client(client)
        super().__init__(producer.Producer(shared, *configs, group=group, rng=rng, **options), within)

    def _room(self) -> tuple[int, int]:
        return self.config.max_in_flight, self.config.max_in_flight_bytes

    @property
    def _client(self) -> ClientInstance:
        return self._behind.client

    @property
    def config(self) -> ProducerConfig:
        """Its settings."""
        return self._behind.config

    def send(
        self, message: Message, *, queue: Destination | None = None, timeout: float | None = None
    ) -> SendResult:
        """Send a message and wait until a broker has stored it; see the trio Producer's ``send``."""
        return self._call(self._behind.send, message, queue=queue, timeout=timeout)

    def send_soon(
        self, message: Message, *, queue: Destination | None = None, timeout: float | None = None
    ) -> Future[SendResult]:
        """Send a message without waiting for the broker: waits only while ``max_in_flight`` are under way.

        Messages that one thread sends leave in that order. The result, or the error after the last try, is
        in the future, InvalidMessageError and SendForbiddenError too; ``timeout`` runs from when it has its
        turn. Cancelling the future before that keeps the message from being sent.

        Raises:
            ClosedError: the producer is closed, or was opened in the parent of this process.
        """
        return self._hand_over.add(message, {"queue": queue, "timeout": timeout})

    def send_oneway(self, message: Message, *, queue: Destination | None = None) -> None:
        """Send a message that no broker answers; see the trio Producer's ``send_oneway``."""
        self._call(self._behind.send_oneway, message, queue=queue)

    def send_batch(
        self, messages: Sequence[Message], *, queue: Destination | None = None, timeout: float | None = None
    ) -> Sequence[SendResult]:
        """Send messages of one topic together; see the trio Producer's ``send_batch``."""
        return self._call(self._behind.send_batch, messages, queue=queue, timeout=timeout)

    def request(
        self, message: Message, *, queue: Destination | None = None, timeout: float | None = None
    ) -> ReceivedMessage:
        """Send a request and wait for its reply; see the trio Producer's ``request``."""
        return self._call(self._behind.request, message, queue=queue, timeout=timeout)

    def reply(self, request: ReceivedMessage, body: bytes, *, timeout: float | None = None) -> SendResult:
        """Reply to a request that a consumer received; see the trio Producer's ``reply``."""
        return self._call(self._behind.reply, request, body, timeout=timeout)

    def recall(self, topic: str, recall_handle: str) -> str:
        """Take a timed message back before it is delivered; see the trio Producer's ``recall``."""
        return self._call(self._behind.recall, topic, recall_handle)

    def flush(self) -> None:
        """Wait until every message that was given to :meth:`send_soon` until now has its outcome."""
        self._check_open()
        self._hand_over.flush()

    def queues(self, topic: str) -> Sequence[MessageQueue]:
        """Return the queues that a topic's messages may be sent to, sorted."""
        return self._call(self._behind.queues, topic)

    def add_hook(self, hook: ProducerHook) -> Callable[[], None]:
        """Have a hook called around sends from now on; returns what removes it."""
        return self._behind.add_hook(hook)

    @property
    def in_flight(self) -> int:
        """How many pipelined sends have neither succeeded nor failed yet."""
        return len(self._hand_over)

    @property
    def statistics(self) -> ProducerStatistics:
        """What it has done until now."""
        return self._behind.statistics


class BatchingProducer(_Sends[producer.BatchingProducer]):
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
        client: Client | str | None = None,
        *configs: BatchingConfig | ProducerConfig | ClientConfig,
        group: str | None = None,
        rng: random.Random | None = None,
        **options: Unpack[BatchingOptions],
    ) -> None:
        shared, within = shared_client(client)
        super().__init__(producer.BatchingProducer(shared, *configs, group=group, rng=rng, **options), within)

    def _room(self) -> tuple[int, int]:
        return sys.maxsize, self.config.max_buffered_bytes

    @property
    def _client(self) -> ClientInstance:
        return self._behind.producer.client

    @property
    def config(self) -> BatchingConfig:
        """Its settings."""
        return self._behind.config

    def send(self, message: Message, *, queue: Destination | None = None) -> SendResult:
        """Send a message and wait until a broker has stored it, which takes ``linger`` seconds longer."""
        return self._call(self._behind.send, message, queue=queue)

    def send_soon(self, message: Message, *, queue: Destination | None = None) -> Future[SendResult]:
        """Accept a message, to be sent with others: waits only while ``max_buffered_bytes`` are exhausted.

        As the blocking Producer's ``send_soon`` otherwise.
        """
        return self._hand_over.add(message, {"queue": queue})

    def send_all(
        self, messages: Iterable[Message], *, queues: Iterable[Destination | None] | None = None
    ) -> list[SendResult | RocketMQError]:
        """Send messages, and return the outcome of each; see the trio BatchingProducer's ``send_all``.

        All of them cross to the thread that serves calls at once: it is the fastest way to send many.
        """
        chosen = None if queues is None else list(queues)
        return self._call(self._behind.send_all, list(messages), queues=chosen)

    def flush(self) -> None:
        """Send what is collected, and wait until every message accepted until now has its outcome."""
        self._call(self._flush)

    def add_hook(self, hook: ProducerHook) -> Callable[[], None]:
        """Have a hook called around the sends of batches from now on; returns what removes it."""
        return self._behind.producer.add_hook(hook)

    @property
    def pending(self) -> int:
        """How many messages have been accepted and have no result yet."""
        return self._behind.pending

    @property
    def buffered_bytes(self) -> int:
        """How many bytes they take, of ``max_buffered_bytes``."""
        return self._behind.buffered_bytes

    @property
    def statistics(self) -> ProducerStatistics:
        """What it has done until now."""
        return self._behind.producer.statistics
