"""Automatic batches: the part of a Producer with ``linger`` that collects messages and sends the batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol

import trio

from rocketmq_py.arguments import Duration, check_timeout
from rocketmq_py.client.core import ClientCore
from rocketmq_py.client.lifespan import start_soon
from rocketmq_py.errors import ClosedError, ConfigurationError, InvalidMessageError, RocketMQError
from rocketmq_py.message import Message, MessageQueue, SendResult
from rocketmq_py.producer.accumulator import Accumulator, ProducerBatch
from rocketmq_py.producer.admission import Admission
from rocketmq_py.producer.batch import (
    MAX_BATCHED_MESSAGES,
    MAX_MESSAGE_OVERHEAD,
    BatchResults,
    is_sent_in_halves,
    max_batched_size,
    may_be_batched,
    split_batch,
)
from rocketmq_py.producer.closing import Closing
from rocketmq_py.producer.destinations import Destination, check_destination, select
from rocketmq_py.producer.final_message import final
from rocketmq_py.producer.hooks import Hooks, SendContext
from rocketmq_py.producer.outcome import FailureLog, OutcomeReceiver, closed_error
from rocketmq_py.producer.pending import BatchedSend, PendingSend
from rocketmq_py.producer.pipeline import Pipeline
from rocketmq_py.producer.request_builder import RequestBuilder
from rocketmq_py.producer.sender import Sender
from rocketmq_py.producer.settings import ProducerSettings
from rocketmq_py.remoting.nurseries import open_nursery

YIELD_EVERY = 256
"""A task whose sends never wait yields to other tasks after this many, about once a millisecond."""


class BatchOwner(Protocol):
    """The producer that a Batcher works for."""

    _client: ClientCore
    _settings: ProducerSettings
    _builder: RequestBuilder
    _hooks: Hooks
    _sender: Sender
    _pipeline: Pipeline


class Batcher:
    """Collects the messages of a producer into batches, and sends them.

    Without ``queue``, each batch goes to another queue, and batches are sent concurrently. Messages for one
    queue, passed or chosen by a selector, are stored in the order in which they were accepted: the next batch
    is sent when the previous one has its result.

    A message is sent alone if brokers do not accept it in a batch (it is delayed, has a priority or a lite
    topic, or is for a retry topic), if it is larger than ``max_batch_bytes``, or if it is large enough for
    compression. If a broker refuses a batch, each half is sent by itself, so that only the refused messages
    fail.

    Hooks were called before a message is accepted. They are called again when its batch has its outcome.

    Args:
        producer: the producer, whose pipeline sends the batches.
        linger: seconds that a batch waits for more messages.
    """

    def __init__(self, producer: BatchOwner, linger: float) -> None:
        settings = producer._settings
        self._builder = producer._builder
        self._hooks = producer._hooks
        self._pipeline = producer._pipeline
        self._retries = settings.retries
        self._timeout = settings.send_timeout
        self._client = producer._client
        self._counters = producer._sender.counters
        self._failures = producer._pipeline.failures
        self._max_batch_bytes = settings.max_batch_bytes
        self._max_message_size = settings.max_message_size
        self._compress_over = settings.compression.over if settings.compression else math.inf
        self._max_bare_size = min(self._max_batch_bytes, self._compress_over + MAX_MESSAGE_OVERHEAD - 1)
        self._admission = Admission(
            math.inf, settings.max_in_flight_bytes, self._free_space, yield_every=YIELD_EVERY
        )
        self._nursery: trio.Nursery | None = None
        self._idle = trio.lowlevel.ParkingLot()
        self._accumulator = Accumulator(
            self, linger=linger, max_size=self._max_batch_bytes, max_messages=MAX_BATCHED_MESSAGES
        )

    def __len__(self) -> int:
        return self._admission.count

    @property
    def bytes(self) -> int:
        """The bytes of the messages without a result, with their properties and lengths."""
        return self._admission.bytes

    def accept(
        self,
        message: Message,
        queue: Destination | None,
        timeout: Duration | None,
        receiver: OutcomeReceiver | None = None,
        context: SendContext | None = None,
    ) -> OutcomeReceiver | Coroutine[Any, Any, OutcomeReceiver]:
        """Add a message to a batch; see ``Producer._accept``."""
        seconds = self._timeout if timeout is None else check_timeout(timeout) or self._timeout
        message, queue = final(message, queue, self._max_message_size)
        # Fast path: messages with nothing but a small body, saves 6 % of batching.
        size, alone = MAX_MESSAGE_OVERHEAD + len(message.body), False
        if not message._is_bare or size > self._max_bare_size or message.topic[0] == "%":
            size, alone = self._measure(message)
        on_done = None if receiver is None else partial(_pass_on, receiver)
        if queue is not None:
            check_destination(queue, message.topic)
            if not isinstance(queue, MessageQueue):
                return self._add_to_selected(message, size, queue, alone, seconds, on_done, context)
        if not self._admission.enter_nowait(size):
            return self._add_when_space(message, size, queue, alone, seconds, on_done, context)
        return self._accumulator.add(message, size, queue, alone, seconds, on_done, context)

    async def _add_to_selected(
        self,
        message: Message,
        size: int,
        selector: Destination,
        alone: bool,
        timeout: float,
        on_done: Callable[[PendingSend], None] | None,
        context: SendContext | None,
    ) -> OutcomeReceiver:
        """Add a message to a batch for the queue that a selector chooses."""
        assert not isinstance(selector, MessageQueue)
        try:
            route = await self._client.routes.get(message.topic, for_sending=True)
            queue = select(selector, route.queues_to_write(), message)
        except (ClosedError, ConfigurationError, InvalidMessageError):
            raise
        except RocketMQError as error:
            self._counters.send_failed(error)
            if context is not None:
                await self._hooks.after_outcome(context, error)
            pending = PendingSend(on_done)
            pending._fail(error, self._failures)
            return pending
        return await self._add_when_space(message, size, queue, alone, timeout, on_done, context)

    async def _add_when_space(
        self,
        message: Message,
        size: int,
        queue: MessageQueue | None,
        alone: bool,
        timeout: float,
        on_done: Callable[[PendingSend], None] | None,
        context: SendContext | None,
    ) -> OutcomeReceiver:
        """Add a message to a batch when there is space. Raises ClosedError if the producer was closed."""
        await self._admission.enter(size)
        pending = self._accumulator.add(message, size, queue, alone, timeout, on_done, context)
        if self._admission.has_waiters:
            self._free_space()
        return pending

    def send_collected(self) -> None:
        """Send the collected messages without waiting for ``linger``."""
        self._accumulator.send_all()

    async def flush(self) -> None:
        """Send the collected messages, and wait for the outcome of each that was accepted until now."""
        self._accumulator.send_all()
        for batch in list(self._accumulator.batches):
            await BatchedSend(batch.pending, 0).wait()

    # Lifespan

    def open(self, nursery: trio.Nursery) -> None:
        """Start. Tasks that send batches run in ``nursery``."""
        self._nursery = nursery
        nursery.start_soon(self._send_due_batches)

    async def close(self) -> None:
        """Accept no more messages, and wait for the outcomes of the accepted ones."""
        self._admission.close()
        await self.flush()

    def give_up(self, closing: Closing) -> None:
        """Fail the messages without an outcome. ``closing`` logs them."""
        self._admission.close()
        for batch in self._accumulator.abandon():
            if batch.outcomes is not None:  # its hooks have not ended
                self._set_outcomes(batch, batch.outcomes, self._failures)
                continue
            error = closed_error(may_be_stored=batch.is_in_flight)
            self._counters.send_failed(error, len(batch.messages))
            closing.add(batch.messages[0].topic, error, len(batch.messages))
            self._set_outcomes(batch, [error] * len(batch.messages), None)

    # Messages and batches

    def _measure(self, message: Message) -> tuple[int, bool]:
        """Return the largest size that a message may take, and whether it must be sent alone."""
        size = max_batched_size(message)
        is_large = size > self._max_batch_bytes or len(message.body) >= self._compress_over
        return size, is_large or not may_be_batched(message)

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

    def now(self) -> float:
        """Return the time of the lingering batches, on trio's clock."""
        return trio.current_time()

    def linger(self) -> None:
        """Wait for the deadline of a batch that has started to linger."""
        self._idle.unpark()

    def start(self, batch: ProducerBatch) -> None:
        """Send a batch in a task of its own."""
        start_soon(self._nursery, self._deliver, batch)

    async def _deliver(self, batch: ProducerBatch) -> None:
        for context in batch.contexts.values():
            context.started = trio.current_time()
        outcomes = batch.outcomes = await self._outcomes(batch, 0, len(batch.messages))
        if batch.contexts:
            async with open_nursery() as nursery:
                for index, context in batch.contexts.items():
                    nursery.start_soon(self._hooks.after_outcome, context, outcomes[index])
        self._finish(batch, outcomes)

    def _finish(self, batch: ProducerBatch, outcomes: Sequence[SendResult | RocketMQError]) -> None:
        if batch not in self._accumulator.batches:
            return  # given up
        self._accumulator.finished(batch, trio.current_time())
        self._set_outcomes(batch, outcomes, self._failures)
        if self._admission.has_waiters:
            self._free_space()

    async def _outcomes(
        self, batch: ProducerBatch, start: int, end: int
    ) -> Sequence[SendResult | RocketMQError]:
        """Send a part of a batch, and its halves if one message may be at fault."""
        try:
            return await self._send(batch, start, end)
        except RocketMQError as error:
            if not is_sent_in_halves(error, end - start):
                return [error] * (end - start)
        middle = (start + end) // 2
        first_half = await self._outcomes(batch, start, middle)
        return [*first_half, *await self._outcomes(batch, middle, end)]

    async def _send(self, batch: ProducerBatch, start: int, end: int) -> Sequence[SendResult]:
        """Send a part of a batch in one request. Raises as ``Producer.send``."""
        queue, timeout, retries = batch.queue, batch.timeout, self._retries
        if end - start == 1:
            send = self._builder.build(batch.messages[start], queue, timeout, retries, is_final=True)
            batch.show_to_hooks(send, start, end)
            return [await self._pipeline.deliver(send)]
        # One request, because none is larger than max_batch_bytes.
        (encoded,) = split_batch(
            batch.messages[start:end],
            max_size=self._max_message_size,
            new_unique_ids=self._client.unique_ids.take,
        )
        send = self._builder.build_batch(encoded, queue, timeout, retries)
        send.in_halves = True
        batch.show_to_hooks(send, start, end)
        return BatchResults(await self._pipeline.deliver(send), encoded.unique_ids)

    def _set_outcomes(
        self, batch: ProducerBatch, outcomes: Sequence[SendResult | RocketMQError], log: FailureLog | None
    ) -> None:
        batch.pending.finish(outcomes, log)
        self._admission.leave(batch.size, len(batch.messages))


def _pass_on(receiver: OutcomeReceiver, pending: PendingSend) -> None:
    """Set the outcome of a send of another API. Its result is made from ``pending`` when it is read."""
    if (error := pending.exception()) is not None:
        receiver._fail(error, None)
    else:
        receiver._succeed(pending)
