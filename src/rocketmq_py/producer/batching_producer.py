"""The batching producer, which collects messages into batches."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from threading import get_ident
from typing import Unpack

import trio

from rocketmq_py.arguments import check_timeout, wrong_type
from rocketmq_py.callables import check_callback
from rocketmq_py.client.client import Client
from rocketmq_py.client.config import ClientConfig, split_options
from rocketmq_py.client.lifespan import Lifespan, start_soon
from rocketmq_py.errors import (
    BatchError,
    ClosedError,
    ConfigurationError,
    InvalidMessageError,
    MessageTooLargeError,
    RocketMQError,
)
from rocketmq_py.message import Message, MessageQueue, SendResult
from rocketmq_py.producer.accumulator import Accumulator, ProducerBatch
from rocketmq_py.producer.admission import Admission
from rocketmq_py.producer.batch import (
    MAX_MESSAGE_OVERHEAD,
    is_sent_in_halves,
    max_batched_size,
    may_be_batched,
)
from rocketmq_py.producer.config import BatchingConfig, BatchingOptions, ProducerConfig
from rocketmq_py.producer.first_attempt import BatchAttempt
from rocketmq_py.producer.health import ProducerHealth
from rocketmq_py.producer.hooks import ProducerHook
from rocketmq_py.producer.outcome import Acknowledgement, FailureLog, closed_error
from rocketmq_py.producer.pending import BatchedSend, PendingSend
from rocketmq_py.producer.producer import Producer
from rocketmq_py.producer.request_builder import check_message
from rocketmq_py.producer.selectors import check_destination, destination_of, select
from rocketmq_py.producer.send_request import Destination
from rocketmq_py.producer.statistics import ProducerStatistics

YIELD_EVERY = 256
"""A task whose sends never wait yields to other tasks after this many, about once a millisecond."""


class BatchingProducer(Lifespan):
    """Collects messages into batches, and is several times as fast as a Producer.

    Use it like a Producer: as an async context manager, from any number of tasks. Messages of one topic are
    collected for up to ``linger`` seconds and sent in one request. Each message has its own result. Leaving
    the context sends the collected messages and waits for their results, for at most ``close_timeout``
    seconds.

    Without ``queue``, each batch goes to another queue, and batches are sent concurrently. Messages for one
    queue, passed or chosen by a selector, are stored in the order in which they were accepted: the next batch
    is sent when the previous one has its result.

    A message is sent alone if brokers do not accept it in a batch (it is delayed, has a priority or a lite
    topic, or is for a retry topic), if it is larger than ``max_batch_size``, or if it is large enough for
    compression. If a broker or a hook refuses a batch, each half is sent by itself, so that only the refused
    messages fail. Java: ``DefaultMQProducer`` with ``autoBatch``.

    Args:
        client: name servers as ``host:port;host:port`` (None reads NAMESRV_ADDR, else 127.0.0.1:9876), or
            an open client to share.
        *configs: a BatchingConfig, a ProducerConfig, and a ClientConfig unless a client is shared. Keywords
            may set fields that these leave at their defaults.
        group: the producer group. None for DEFAULT_PRODUCER.
        rng: the source of randomness, for tests that replay a run.
        **options: the fields of BatchingConfig and ProducerConfig, and those of ClientConfig unless a client
            is shared.

    Raises:
        ConfigurationError: an option is unknown, given twice, or invalid.

    Attributes:
        config: the settings for batches.
        producer: the producer that sends the batches. It has the hooks and the statistics.
    """

    def __init__(
        self,
        client: str | Client | None = None,
        *configs: BatchingConfig | ProducerConfig | ClientConfig,
        group: str | None = None,
        rng: random.Random | None = None,
        **options: Unpack[BatchingOptions],
    ) -> None:
        super().__init__()
        own, of_producer, of_client = split_options(
            options, BatchingConfig, ProducerConfig, ClientConfig, configs=configs, group=group
        )
        self.config: BatchingConfig = BatchingConfig(**own)
        self.producer: Producer = Producer(client, rng=rng, **of_producer, **of_client)
        self.producer._sender.counters.is_sent_again = is_sent_in_halves
        self.close_timeout: float = self.producer.close_timeout
        self._max_batch_size = self.config.max_batch_size
        self._max_message_size = self.producer.config.max_message_size
        if self._max_batch_size > self._max_message_size:
            raise ConfigurationError(
                f"max_batch_size is {self._max_batch_size}; it must be at most max_message_size, which is "
                f"{self._max_message_size}"
            )
        compression = self.producer.config.compression
        self._compress_over = compression.over if compression else math.inf
        self._max_bare_size = min(self._max_batch_size, self._compress_over + MAX_MESSAGE_OVERHEAD - 1)
        self._admission = Admission(
            math.inf, self.config.max_buffered_bytes, self._free_space, yield_every=YIELD_EVERY
        )
        self._failures = FailureLog()
        self._idle = trio.lowlevel.ParkingLot()
        self._accumulator = Accumulator(
            linger=self.config.linger,
            max_size=self._max_batch_size,
            max_messages=self.config.max_batch_messages,
            now=trio.current_time,
            send=self._start,
            on_linger=self._idle.unpark,
        )

    async def send(
        self, message: Message, *, queue: Destination | None = None, timeout: float | None = None
    ) -> SendResult:
        """Send a message in a batch, and wait until a broker has stored it.

        Args:
            message: the message.
            queue: the queue, or a selector; see the class.
            timeout: seconds for all attempts together, from the start of the first attempt. None for the
                setting ``send_timeout``. The smallest timeout of its messages applies to a batch.

        Raises:
            RocketMQError: as :meth:`Producer.send`.

        The message waits up to ``linger`` seconds for others. If cancelled before the message is accepted, it
        is not sent. If cancelled later, it is still sent.
        """
        return await (await self.submit(message, queue=queue, timeout=timeout))

    async def submit(
        self,
        message: Message,
        *,
        queue: Destination | None = None,
        timeout: float | None = None,
        on_done: Callable[[PendingSend], None] | None = None,
    ) -> PendingSend:
        """Add a message to a batch, and return its handle. Waits only if ``max_buffered_bytes`` are in use.

        Args:
            message: the message.
            queue: the queue, or a selector; see the class.
            timeout: as for :meth:`send`.
            on_done: called with the PendingSend when the message has its result or its error.

        Raises:
            ConfigurationError: ``timeout`` is not a number of seconds, or ``on_done`` or a selector does not
                accept its arguments.
            InvalidMessageError: the message cannot be sent.
            ClosedError: this producer is not open.

        All other errors are in the PendingSend. If cancelled, the message is not sent.
        """
        if self._thread != get_ident():
            self._check_open()  # raises the error
        if type(message) is not Message:
            check_message(message)
        if timeout is not None:
            check_timeout(timeout)
        if on_done is not None:
            check_callback(on_done, "on_done")
        # Fast path: messages with nothing but a small body, saves 6 % of batching.
        size, alone = MAX_MESSAGE_OVERHEAD + len(message.body), False
        if not message.is_bare or size > self._max_bare_size or message.topic[0] == "%":
            size, alone = self._measure(message)
            if not message.is_timed or self.producer._delay_relay is None:  # a relay's topic has other queues
                queue = destination_of(message, queue)
        if queue is not None:
            try:
                queue = await self._choose(queue, message)
            except (ClosedError, ConfigurationError, InvalidMessageError):
                raise
            except RocketMQError as error:
                self.producer._sender.counters.send_failed(error)
                pending = PendingSend(on_done)
                pending.fail(error, self._failures)
                return pending
        admission = self._admission
        await trio.lowlevel.checkpoint_if_cancelled()
        if not admission.enter_nowait(size):
            await admission.enter(size)
        if self._thread is None:  # closed while the task waited
            admission.leave(size)
            raise self._not_open()
        batched = self._accumulator.add(message, size, queue, alone, timeout, on_done)
        if admission.has_waiters:
            self._free_space()
        return batched

    async def send_all(
        self, messages: Iterable[Message], *, queues: Iterable[Destination | None] | None = None
    ) -> list[SendResult | RocketMQError]:
        """Send messages, wait for all of them, and return the outcome of each in order.

        An outcome is a SendResult, or the error of a message that could not be sent. Errors are not raised.

        Args:
            messages: the messages.
            queues: the queue or selector of each message, or None; see the class.

        Raises:
            InvalidMessageError: the numbers of messages and queues differ. Nothing was sent.
            ClosedError: this producer is not open. Nothing was sent.

        If cancelled, the messages that were accepted until then are still sent.
        """
        self._check_open()
        if isinstance(messages, Message | str) or not isinstance(messages, Iterable):
            raise wrong_type("messages", "a list of Message", messages)
        if queues is not None and not isinstance(queues, Iterable):
            raise wrong_type("queues", "a list of MessageQueue", queues)
        messages = list(messages)
        destinations = [None] * len(messages) if queues is None else list(queues)
        if len(destinations) != len(messages):
            raise InvalidMessageError(
                f"queues has {len(destinations)} entries for {len(messages)} messages; it must have one each"
            )
        outcomes: list[PendingSend | RocketMQError] = []
        for message, queue in zip(messages, destinations, strict=True):
            try:
                outcomes.append(await self.submit(message, queue=queue))
            except RocketMQError as error:
                outcomes.append(error)
        self._accumulator.send_all()
        for one in outcomes:
            if isinstance(one, PendingSend) and not one.done:
                await one.wait()
        return [one if isinstance(one, RocketMQError) else one.error or one.result() for one in outcomes]

    async def flush(self) -> None:
        """Send the collected messages, and wait until every message accepted until now has its outcome.

        If cancelled, the messages are still sent. Raises ClosedError if this producer is not open.
        """
        self._check_open()
        await self._flush()

    async def send_oneway(self, message: Message, *, queue: Destination | None = None) -> None:
        """Send a message alone and without an acknowledgement; see :meth:`Producer.send_oneway`."""
        self._check_open()
        await self.producer.send_oneway(message, queue=queue)

    async def queues(self, topic: str) -> Sequence[MessageQueue]:
        """Return the queues of a topic that messages can be sent to; see :meth:`Producer.queues`."""
        self._check_open()
        return await self.producer.queues(topic)

    def add_hook(self, hook: ProducerHook) -> Callable[[], None]:
        """Add a hook that runs around every batch send. Returns a function that removes it."""
        return self.producer.add_hook(hook)

    def health(self) -> ProducerHealth:
        """Return whether it can send, as ``Producer.health``. ``in_flight`` is 0: see ``pending``."""
        return self.producer.health()

    @property
    def statistics(self) -> ProducerStatistics:
        """The statistics, counted by message. ``in_flight`` is 0: see ``pending``."""
        return self.producer.statistics

    @property
    def pending(self) -> int:
        """The number of accepted messages without an outcome."""
        return sum([len(batch.messages) for batch in self._accumulator.batches])

    @property
    def buffered_bytes(self) -> int:
        """The bytes of ``max_buffered_bytes`` that the pending messages take."""
        return self._admission.bytes

    # Lifespan

    async def _open(self) -> None:
        await self.producer.start(self.nursery)
        self.nursery.start_soon(self._send_due_batches)

    async def _close(self) -> None:
        await self._flush()
        await self.producer.aclose()

    def _abandon(self) -> None:
        for batch in self._accumulator.abandon():
            error = closed_error(may_be_stored=batch.is_in_flight)
            self.producer._sender.counters.send_failed(error, len(batch.messages))
            if batch.attempt is not None:
                batch.attempt.forget()
            self._set_outcomes(batch, [error] * len(batch.messages))
        self._failures.report()

    # Messages and batches

    def _measure(self, message: Message) -> tuple[int, bool]:
        """Return the largest size that a message may take, and whether it must be sent alone."""
        body_size, size = len(message.body), max_batched_size(message)
        if body_size > self._max_message_size:
            raise MessageTooLargeError(
                f"the body has {body_size} bytes; max_message_size is {self._max_message_size}"
            )
        is_large = size > self._max_batch_size or body_size >= self._compress_over
        return size, is_large or not may_be_batched(message)

    async def _choose(self, queue: Destination, message: Message) -> MessageQueue:
        check_destination(queue, message.topic)
        if isinstance(queue, MessageQueue):
            return queue
        route = await self.producer.client.routes.get(message.topic, for_sending=True)
        return select(queue, route.queues_to_write(), message)

    def _free_space(self) -> None:
        """Send lingering batches because tasks wait for space, unless a batch in flight will free some."""
        if not self._accumulator.in_flight:
            self._accumulator.send_due(math.inf)

    async def _send_due_batches(self) -> None:
        while True:
            deadline = self._accumulator.send_due(trio.current_time())
            if deadline is None:
                await self._idle.park()
            else:
                await trio.sleep_until(deadline)

    async def _flush(self) -> None:
        await trio.lowlevel.checkpoint()
        self._accumulator.send_all()
        for batch in list(self._accumulator.batches):
            await BatchedSend(batch.pending, 0).wait()

    def _start(self, batch: ProducerBatch) -> None:
        """Send a batch. Starts a task only if the first attempt cannot be written immediately."""
        attempt = None
        if len(batch.messages) > 1:
            with suppress(RocketMQError):  # the task meets the same error, and handles it
                attempt = self.producer._begin_batch(
                    batch.messages, partial(self._answered, batch), batch.queue, batch.timeout
                )
        if attempt is not None and attempt.is_in_flight:
            batch.attempt = attempt
        else:
            start_soon(self._nursery, self._deliver, batch, attempt)

    def _answered(self, batch: ProducerBatch, stored: Acknowledgement | SendResult | None) -> None:
        attempt, batch.attempt = batch.attempt, None
        assert attempt is not None
        if stored is None:
            start_soon(self._nursery, self._deliver, batch, attempt)
        else:
            self._finish(batch, attempt.results(stored))

    async def _deliver(self, batch: ProducerBatch, attempt: BatchAttempt | None) -> None:
        self._finish(batch, await self._outcomes(batch.messages, batch.queue, batch.timeout, attempt))

    def _finish(self, batch: ProducerBatch, outcomes: Sequence[SendResult | RocketMQError]) -> None:
        self._accumulator.finished(batch, trio.current_time())
        self._set_outcomes(batch, outcomes)
        if self._admission.has_waiters:
            self._free_space()

    async def _outcomes(
        self,
        messages: Sequence[Message],
        queue: MessageQueue | None,
        timeout: float | None,
        attempt: BatchAttempt | None = None,
    ) -> Sequence[SendResult | RocketMQError]:
        """Send a batch, and its halves if one message may be at fault. ``attempt`` is the first attempt."""
        try:
            if attempt is not None:
                return attempt.results(await attempt.rest())
            if len(messages) == 1:
                return [await self.producer.send(messages[0], queue=queue, timeout=timeout)]
            return await self.producer.send_batch(messages, queue=queue, timeout=timeout)
        except BatchError as error:
            return [*error.results, *[error] * (len(messages) - len(error.results))]
        except RocketMQError as error:
            if not is_sent_in_halves(error, len(messages)):
                return [error] * len(messages)
        middle = len(messages) // 2
        first_half = await self._outcomes(messages[:middle], queue, timeout)
        return [*first_half, *await self._outcomes(messages[middle:], queue, timeout)]

    def _set_outcomes(self, batch: ProducerBatch, outcomes: Sequence[SendResult | RocketMQError]) -> None:
        batch.pending.finish(outcomes, self._failures)
        self._admission.leave(batch.size, len(batch.messages))
