"""The producer that makes batches by itself."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Unpack

import trio
from trio.lowlevel import checkpoint_if_cancelled

from rocketmq_py.arguments import check_timeout, wrong_type
from rocketmq_py.callables import check_callback, known_callbacks
from rocketmq_py.client.client import Client
from rocketmq_py.client.config import ClientConfig, split_options
from rocketmq_py.client.lifespan import Lifespan, start_soon
from rocketmq_py.errors import (
    BatchError,
    ClosedError,
    ConfigurationError,
    Delivery,
    InvalidMessageError,
    MessageRefusedError,
    MessageTooLargeError,
    RocketMQError,
    SendForbiddenError,
)
from rocketmq_py.message import Message, MessageQueue, SendResult
from rocketmq_py.producer.accumulator import Accumulator, ProducerBatch
from rocketmq_py.producer.admission import Admission
from rocketmq_py.producer.batch import must_go_alone
from rocketmq_py.producer.batching_config import BatchingConfig, BatchingOptions
from rocketmq_py.producer.config import ProducerConfig
from rocketmq_py.producer.first_attempt import BatchAttempt
from rocketmq_py.producer.hooks import ProducerHook
from rocketmq_py.producer.pending import BatchedSend, FailureLog, PendingSend
from rocketmq_py.producer.producer import Producer
from rocketmq_py.producer.request_builder import check_message
from rocketmq_py.producer.selectors import check_destination, select, select_by_sharding_key
from rocketmq_py.producer.send_request import Destination, Stored
from rocketmq_py.producer.statistics import ProducerStatistics
from rocketmq_py.properties import SHARDING_KEY

_OVERHEAD = 112
"""Bytes at most of a message in a batch beside body, tag, keys and properties: lengths, id, their names."""
YIELD_EVERY = 256
"""A sender that always finds space lets other tasks run after so many sends: about a millisecond's."""
_FAULTS_OF_ONE = (MessageRefusedError, InvalidMessageError, SendForbiddenError)
"""What befalls a batch, and may be due to one message in it."""


class BatchingProducer(Lifespan):
    """Sends messages together that are sent at about the same time: several times as fast as a Producer.

    Use it as a Producer: inside ``async with``, from any number of tasks. Messages of one topic are collected
    for up to ``linger`` seconds and go in one request; each has a result of its own. Leaving sends what is
    still collected and waits for the results, for at most ``close_timeout`` seconds.

    Where ``queue`` is None, each batch goes to another queue, and several are under way at the same time.
    Messages for one queue, given or chosen by a selector, are stored in the order in which they were
    accepted: the next batch goes when the one before has its result.

    A message goes alone, in its turn, if it is delayed, larger than ``max_batch_size``, or large enough to be
    compressed: brokers deliver batches at once, and take no compressed ones. If a broker or a hook refuses a
    batch, each half of it is sent by itself, so that one message that is at fault fails alone.

    Java: ``DefaultMQProducer`` with ``autoBatch``.

    Args:
        client: name servers as ``host:port;host:port`` (None reads NAMESRV_ADDR, else 127.0.0.1:9876), or
            an open client to share.
        *configs: a BatchingConfig, a ProducerConfig, and a ClientConfig unless a client is shared; instead of
            their fields as keywords, or beside some of them.
        group: the producer group; None for DEFAULT_PRODUCER.
        rng: the source of randomness, for tests that replay a run.
        **options: the fields of BatchingConfig and ProducerConfig, and those of ClientConfig unless a client
            is shared.

    Raises:
        ConfigurationError: an option is unknown, given twice, or outside of what is allowed.

    Attributes:
        config: its settings.
        producer: sends the batches; has the hooks and the statistics.
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
        self.close_timeout: float = self.producer.close_timeout
        self._max_batch_size = self.config.max_batch_size
        self._max_message_size = self.producer.config.max_message_size
        if self._max_batch_size > self._max_message_size:
            raise ConfigurationError(
                f"max_batch_size is {self._max_batch_size}; at most max_message_size is allowed, which is "
                f"{self._max_message_size}"
            )
        compression = self.producer.config.compression
        self._compress_over = compression.over if compression else math.inf
        # What is smaller goes with others, if it has nothing but a body.
        self._small = min(self._max_batch_size, self._compress_over + _OVERHEAD - 1)
        self._admission = Admission(
            math.inf, self.config.max_buffered_bytes, self._relieve, yield_every=YIELD_EVERY
        )
        self._failures = FailureLog()
        self._accumulator = Accumulator(
            linger=self.config.linger,
            max_size=self._max_batch_size,
            max_messages=self.config.max_batch_messages,
            now=trio.current_time,
            send=self._start,
            waits=self._wake,
        )
        self._asleep = trio.lowlevel.ParkingLot()

    async def send(
        self, message: Message, *, queue: Destination | None = None, timeout: float | None = None
    ) -> SendResult:
        """Send a message and wait until a broker has stored it, which takes ``linger`` seconds longer.

        Args:
            message: what to send.
            queue: where to; see the class.
            timeout: seconds for all tries together, from when its batch is sent; instead of the setting
                ``send_timeout``. The least of its messages' counts for a batch.

        Raises as :meth:`Producer.send`. When cancelled before the message is accepted, it is not sent; after
        that it is sent all the same.
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
        """Accept a message, to be sent with others: waits only while ``max_buffered_bytes`` are exhausted.

        Args:
            message: what to send.
            queue: where to; see the class.
            timeout: as :meth:`send` has it.
            on_done: called with the PendingSend when the result, or the error after the last try, is there.

        Raises:
            ConfigurationError: ``timeout`` is no number of seconds, or ``on_done`` or a selector does not
                accept its arguments. At once, as InvalidMessageError and ClosedError. The PendingSend has all
                other errors.

        When cancelled, the message is not sent.
        """
        if type(message) is not Message:
            check_message(message)
        if timeout is not None:
            check_timeout(timeout)
        if on_done is not None and (type(on_done), getattr(on_done, "__code__", None)) not in known_callbacks:
            check_callback(on_done, "on_done")
        size, alone = _OVERHEAD + len(message.body), False
        if not message.is_bare or size > self._small or message.topic[0] == "%":
            size, alone = self._measure(message)
            if queue is None and message.sharding_key:
                queue = select_by_sharding_key
        if queue is not None:
            try:
                queue = await self._choose(queue, message)
            except (ClosedError, ConfigurationError, InvalidMessageError):
                raise
            except RocketMQError as error:
                pending = PendingSend(on_done)
                pending.resolve(error, self._failures)
                return pending
        admission = self._admission
        await checkpoint_if_cancelled()
        if not admission.enter_nowait(size):
            await admission.enter(size)
        if self._thread is None:  # it may have been closed meanwhile
            admission.leave(size)
            raise self._not_open()
        batched = self._accumulator.add(message, size, queue, alone, timeout, on_done)
        if admission.is_wanted:
            self._relieve()
        return batched

    async def send_all(
        self, messages: Iterable[Message], *, queues: Iterable[Destination | None] | None = None
    ) -> list[SendResult | RocketMQError]:
        """Send messages, and return the outcome of each, in their order, when all of them have one.

        An outcome is a result, or the error of a message that could not be sent: errors are not raised.

        Args:
            messages: what to send.
            queues: where each goes to, as many as there are messages; see the class.

        Raises:
            InvalidMessageError: there are not as many ``queues`` as messages. Nothing was sent.
            ClosedError: this producer is not open. Nothing was sent.

        When cancelled, what was accepted until then is sent all the same.
        """
        self._check_open()
        if isinstance(messages, Message | str) or not isinstance(messages, Iterable):
            raise wrong_type("messages", "a list of Message", messages)
        if queues is not None and not isinstance(queues, Iterable):
            raise wrong_type("queues", "a list of MessageQueue", queues)
        messages = list(messages)
        destinations = [None] * len(messages) if queues is None else list(queues)
        if len(destinations) != len(messages):
            raise InvalidMessageError(f"there are {len(messages)} messages, and {len(destinations)} queues")
        outcomes: list[PendingSend | RocketMQError] = []
        for message, queue in zip(messages, destinations, strict=True):
            try:
                outcomes.append(await self.submit(message, queue=queue))
            except RocketMQError as error:
                outcomes.append(error)
        self._accumulator.send_all()  # nothing more comes that would be worth waiting for
        for one in outcomes:
            if isinstance(one, PendingSend) and not one.done:
                await one.wait()
        return [_outcome(one) if isinstance(one, PendingSend) else one for one in outcomes]

    async def flush(self) -> None:
        """Send what is collected, and wait until every message accepted until now has its result.

        When cancelled, everything is sent all the same. Raises ClosedError if this producer is not open.
        """
        self._check_open()
        await self._flush()

    async def send_oneway(self, message: Message, *, queue: Destination | None = None) -> None:
        """Send a message at once and by itself, which no broker answers; see :meth:`Producer.send_oneway`."""
        self._check_open()
        await self.producer.send_oneway(message, queue=queue)

    async def queues(self, topic: str) -> Sequence[MessageQueue]:
        """Return the queues that a topic's messages may be sent to; see :meth:`Producer.queues`."""
        self._check_open()
        return await self.producer.queues(topic)

    def add_hook(self, hook: ProducerHook) -> Callable[[], None]:
        """Have a hook called around sends of batches from now on; returns what removes it."""
        return self.producer.add_hook(hook)

    @property
    def statistics(self) -> ProducerStatistics:
        """What it has done until now, message by message. What is accepted is ``pending``, not in flight."""
        return self.producer.statistics

    @property
    def pending(self) -> int:
        """How many messages have been accepted and have no result yet."""
        return sum([len(batch.messages) for batch in self._accumulator.batches])

    @property
    def buffered_bytes(self) -> int:
        """How many bytes they take, of ``max_buffered_bytes``."""
        return self._admission.bytes

    # Lifespan

    async def _open(self) -> None:
        await self.producer.start(self.nursery)
        self.nursery.start_soon(self._send_what_is_due)

    async def _close(self) -> None:
        await self._flush()
        await self.producer.aclose()

    def _abandon(self) -> None:
        for batch in self._accumulator.abandon():
            error = ClosedError("the producer was closed before the message could be sent")
            if batch.is_under_way:
                error = ClosedError("the producer was closed before the broker answered")
                error.delivery = Delivery.UNKNOWN
            if batch.attempt is not None:
                batch.attempt.give_up()
            self._finish(batch, [error] * len(batch.messages))
        self._failures.report()

    # One message's way

    def _measure(self, message: Message) -> tuple[int, bool]:
        """Return how many bytes a message takes at most, and whether it goes alone."""
        body_size = len(message.body)
        size = _OVERHEAD + body_size
        if not message.is_bare:
            size += _size_of_texts(message)
        if size > self._max_batch_size or body_size >= self._compress_over:
            if body_size > self._max_message_size:
                raise MessageTooLargeError(
                    f"the body has {body_size} bytes; max_message_size is {self._max_message_size}"
                )
            return size, True
        return size, must_go_alone(message)

    async def _choose(self, queue: Destination, message: Message) -> MessageQueue:
        check_destination(queue, message.topic)
        if isinstance(queue, MessageQueue):
            return queue
        route = await self.producer.client.routes.get(message.topic, for_sending=True)
        return select(queue, route.queues_to_write(), message)

    def _relieve(self) -> None:
        """Send what lingers, where somebody waits for space and nothing under way will make any."""
        if not self._accumulator.under_way:
            self._accumulator.send_due(math.inf)

    # Batches

    def _wake(self) -> None:
        self._asleep.unpark()

    async def _send_what_is_due(self) -> None:
        while True:
            deadline = self._accumulator.send_due(trio.current_time())
            if deadline is None:
                await self._asleep.park()
            else:
                await trio.sleep_until(deadline)

    async def _flush(self) -> None:
        await trio.lowlevel.checkpoint()
        self._accumulator.send_all()
        for batch in list(self._accumulator.batches):
            await BatchedSend(batch.pending, 0).wait()

    def _start(self, batch: ProducerBatch) -> None:
        """Send a batch: without a task where only the answer has to be waited for, as nearly always."""
        attempt = None
        if len(batch.messages) > 1:
            try:
                attempt = self.producer._begin_batch(
                    batch.messages, partial(self._answered, batch), batch.queue, batch.timeout
                )
            except RocketMQError:
                attempt = None  # raised again, and handled, in the task
        if attempt is not None and attempt.is_under_way:
            batch.attempt = attempt
        else:
            start_soon(self._nursery, self._deliver, batch, attempt)

    def _answered(self, batch: ProducerBatch, stored: Stored | SendResult | None) -> None:
        attempt, batch.attempt = batch.attempt, None
        assert attempt is not None
        if stored is None:
            start_soon(self._nursery, self._deliver, batch, attempt)
        else:
            self._arrived(batch, attempt.results(stored))

    async def _deliver(self, batch: ProducerBatch, attempt: BatchAttempt | None) -> None:
        self._arrived(batch, await self._outcomes(batch.messages, batch.queue, batch.timeout, attempt))

    def _arrived(self, batch: ProducerBatch, outcomes: Sequence[SendResult | RocketMQError]) -> None:
        self._accumulator.arrived(batch, trio.current_time())
        self._finish(batch, outcomes)
        if self._admission.is_wanted:
            self._relieve()

    async def _outcomes(
        self,
        messages: Sequence[Message],
        queue: MessageQueue | None,
        timeout: float | None,
        attempt: BatchAttempt | None = None,
    ) -> Sequence[SendResult | RocketMQError]:
        """Send messages together, and return the outcome of each. ``attempt`` has been made already."""
        try:
            if attempt is not None:
                return attempt.results(await attempt.rest())
            if len(messages) == 1:
                return [await self.producer.send(messages[0], queue=queue, timeout=timeout)]
            return await self.producer.send_batch(messages, queue=queue, timeout=timeout)
        except BatchError as error:
            return [*error.results, *[error] * (len(messages) - len(error.results))]
        except RocketMQError as error:
            is_due_to_one = isinstance(error, _FAULTS_OF_ONE) and error.delivery is not Delivery.UNKNOWN
            if len(messages) == 1 or not is_due_to_one:
                return [error] * len(messages)
        middle = len(messages) // 2
        first_half = await self._outcomes(messages[:middle], queue, timeout)
        return [*first_half, *await self._outcomes(messages[middle:], queue, timeout)]

    def _finish(self, batch: ProducerBatch, outcomes: Sequence[SendResult | RocketMQError]) -> None:
        batch.pending.resolve(outcomes, self._failures)
        self._admission.leave(batch.size, len(batch.messages))


def _outcome(pending: PendingSend) -> SendResult | RocketMQError:
    try:
        return pending.result()
    except RocketMQError as error:
        return error


def _size_of_texts(message: Message) -> int:
    texts = [message.tags, message.keys, *message.properties, *message.properties.values()]
    size = 2 * len(message.properties)
    if message.sharding_key:
        texts += [SHARDING_KEY, message.sharding_key]
        size += 2
    for text in texts:
        size += len(text) if text.isascii() else len(text.encode())
    return size
