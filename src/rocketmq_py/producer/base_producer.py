"""The base class of producers: construction, lifespan, hooks and statistics."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import ClassVar, Unpack

import trio

from rocketmq_py.arguments import Duration
from rocketmq_py.client.client import Client, Member
from rocketmq_py.client.lifespan import from_any_thread, nursery_of, start_soon
from rocketmq_py.client.settings import ClientSettings, split_options
from rocketmq_py.errors import InvalidMessageError
from rocketmq_py.message import Message, MessageQueue, SendResult
from rocketmq_py.names import check_topic
from rocketmq_py.producer.admission import Admission
from rocketmq_py.producer.batch_sender import BatchSender
from rocketmq_py.producer.batcher import Batcher
from rocketmq_py.producer.closing import Closing
from rocketmq_py.producer.delay_relay import delay_relay
from rocketmq_py.producer.destinations import Destination
from rocketmq_py.producer.final_message import check_message
from rocketmq_py.producer.hooks import Hooks, ProducerHook, SendContext, SendMode
from rocketmq_py.producer.pipeline import Pipeline
from rocketmq_py.producer.request_builder import BuildOptions, RequestBuilder
from rocketmq_py.producer.request_reply import PendingReplies
from rocketmq_py.producer.sender import Sender
from rocketmq_py.producer.settings import ProducerOptions, ProducerSettings
from rocketmq_py.producer.statistics import Counters, ProducerHealth, ProducerStatistics, SendMeter
from rocketmq_py.producer.tracing import trace_sends


class BaseProducer(Member):
    """The parts of a producer, and their lifespan. The arguments are those of Producer."""

    _settings_class: ClassVar[type[ProducerSettings]] = ProducerSettings

    def __init__(
        self,
        client: str | Client | None = None,
        *,
        group: str | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        own, shared = split_options(options, self._settings_class, ClientSettings, group=group)
        super().__init__(client, shared)
        self._settings: ProducerSettings = self._settings_class(**own)
        self._sender = Sender(self._client, self._settings, self._client.rng)
        self._builder = RequestBuilder(self._client, self._settings)
        self._hooks = Hooks()
        admission = Admission(self._settings.max_in_flight, self._settings.max_in_flight_bytes)
        self._pipeline = Pipeline(self._sender, self._hooks, admission)
        self._batch_sender = BatchSender(self._client, self._settings, self._builder, self._pipeline)
        self._batcher: Batcher | None = None
        self._delay_relay = delay_relay(self._settings, self._client, self._sender.router)
        self._tracing = trace_sends(self._settings, self._client, self._hooks)
        self._replies = PendingReplies(self._client, self._sender, self._pipeline)
        self._is_in_heartbeats = False
        self._closing = Closing(self._sender.counters, self._settings.group)
        self._close_timeout: float = self._settings.close_timeout
        self._announce()

    @property
    def settings(self) -> ProducerSettings:
        """The settings."""
        return self._settings

    async def queues(self, topic: str) -> Sequence[MessageQueue]:
        """Return the queues of a topic that messages can be sent to, sorted.

        Java: ``fetchPublishMessageQueues``. Raises as :meth:`send` for a topic without a route.
        """
        self._check_open()
        return (await self._client.routes.find(check_topic(topic), for_sending=True)).write_queues

    @from_any_thread
    def add_hook(self, hook: ProducerHook) -> Callable[[], None]:
        """Add a hook that runs around every send. Returns a function that removes it."""
        return self._hooks.add(hook)

    @property
    def in_flight(self) -> int:
        """The number of messages without an outcome: those of :meth:`submit` and ``submit_request``.

        With ``linger``, those of all sends that are collected into batches.
        """
        return len(self._pipeline) + (0 if self._batcher is None else len(self._batcher))

    @property
    @from_any_thread
    def statistics(self) -> ProducerStatistics:
        """A snapshot of the producer's counters."""
        counters, faults = self._sender.counters, self._sender.faults
        return ProducerStatistics(
            **counters.counted(),
            late_replies=self._replies.late,
            in_flight=self.in_flight,
            in_flight_bytes=bytes_in_flight(self),
            latency=counters.latency(),
            brokers=faults.states() if faults is not None and self.is_open else {},
        )

    @from_any_thread
    def health(self) -> ProducerHealth:
        """Return whether it can send. For readiness probes. Does not wait, see :meth:`Client.health`.

        A producer that is not open is unhealthy.
        """
        client = self._client.health()
        error, failed_at = self._sender.counters.last_error or (None, 0.0)
        return ProducerHealth(
            reasons=client.reasons if self.is_open else (str(self._not_open()),),
            client=client,
            in_flight=self.in_flight,
            last_error=error,
            last_error_age=None if error is None or not self.is_open else trio.current_time() - failed_at,
        )

    async def _open(self) -> None:
        await super()._open()
        self._sender.open(self._nursery)
        self._pipeline.open(self._nursery)
        if self._batcher is not None:
            self._batcher.open(self._nursery)
        self._replies.open(self._nursery)
        if self._tracing is not None:
            self._nursery.start_soon(self._tracing.run)
        self._client.heartbeats.add_producer(self._settings.group)
        self._is_in_heartbeats = True

    async def _finish_pending(self) -> bool:
        if not await self._closing.finish(self._outcomes, self._close_timeout):
            return False
        if self._tracing is not None:
            await self._tracing.finish(self._close_timeout)
        return True

    async def _outcomes(self) -> None:
        """Take no more sends, and wait for the outcomes of those in flight."""
        if self._batcher is not None:
            await self._batcher.close()
        await self._pipeline.close()

    async def _close(self) -> None:
        if self._batcher is not None:
            self._batcher.give_up(self._closing)
        try:
            if self._tracing is not None:
                await self._tracing.flush()
        finally:  # otherwise brokers would send their checks to a closed producer
            self._is_in_heartbeats = False
            await self._client.heartbeats.remove_producer(self._settings.group)
        await super()._close()

    def _abandon(self) -> None:
        if self._is_in_heartbeats and self._client.is_open:  # a shared client, and no graceful close
            start_soon(
                nursery_of(self._client), self._client.heartbeats.remove_producer, self._settings.group
            )
        self._sender.abandon()
        self._replies.close(self._closing)
        if self._batcher is not None:
            self._batcher.give_up(self._closing)
        self._pipeline.abandon(self._closing)
        if self._has_opened:
            self._closing.report(self._client.name_servers.addresses)

    @asynccontextmanager
    async def _hooked(
        self, mode: SendMode, messages: Sequence[Message], *, is_half: bool = False
    ) -> AsyncIterator[tuple[Sequence[Message], SendContext | None]]:
        """Call the hooks around a block that sends messages.

        Yields the messages to send, which the hooks may have replaced, and the context of the hooks. None if
        there are none. :meth:`Hooks.after_outcome` calls the hooks after a pipelined send.

        Raises SendForbiddenError, and InvalidMessageError if one is not a Message.
        """
        if not self._hooks.all:
            yield messages, None
            return
        for message in messages:
            check_message(message)
        context = SendContext(
            producer_group=self._settings.group,
            client_id=self._client.client_id,
            mode=mode,
            messages=list(messages),
            is_half=is_half,
            started_ms=self._client.now_ms(),
        )
        await self._hooks.check_forbidden(context)
        try:
            await self._hooks.before_send(context)
            if len(context.messages) != len(messages):
                raise InvalidMessageError(
                    f"a hook changed the number of messages from {len(messages)} to {len(context.messages)}; "
                    "before_send may only replace messages"
                )
            yield context.messages, context
        except BaseException as error:
            await self._hooks.after_send(context, error)
            raise
        if mode is not SendMode.PIPELINED:
            await self._hooks.after_send(context)

    async def _deliver(
        self,
        message: Message,
        queue: Destination | None,
        timeout: Duration | None,
        *,
        is_half: bool = False,
        **options: Unpack[BuildOptions],
    ) -> tuple[Message, SendResult]:
        """Send a message in a request of its own, with hooks. Return it as it was sent, and the result.

        ``options`` are those of :meth:`RequestBuilder.build`. Raises as ``Producer.send``.
        """
        retries = self._settings.retries
        async with self._hooked(SendMode.AWAITED, [message], is_half=is_half) as ((final,), context):
            send = self._builder.build(final, queue, timeout, retries, context, **options)
            result = await self._pipeline.deliver(send)
            if context is not None:
                context.results = (result,)
        return final, result


def closing_of(producer: BaseProducer) -> Closing:
    """Return the part of a producer that ends its pending sends."""
    return producer._closing


def bytes_in_flight(producer: BaseProducer) -> int:
    """Return the size of the messages without an outcome, those that wait for a batch included."""
    batcher = producer._batcher
    return producer._pipeline.admission.bytes + (0 if batcher is None else batcher.bytes)


def metered_sends(producer: BaseProducer) -> tuple[Counters, SendMeter]:
    """Return the counters of a producer, and its meter, which records from the first call on."""
    sender = producer._sender
    if sender.meter is None:
        sender.meter = SendMeter()
    return sender.counters, sender.meter
