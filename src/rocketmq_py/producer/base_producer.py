"""The base class of producers: construction, lifespan, hooks and statistics."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Unpack

import trio

from rocketmq_py.client.client import Client
from rocketmq_py.client.config import ClientConfig, split_options
from rocketmq_py.client.lifespan import start_soon
from rocketmq_py.client.member import Member
from rocketmq_py.message import Message, MessageQueue
from rocketmq_py.names import check_topic
from rocketmq_py.producer.admission import Admission
from rocketmq_py.producer.batch_sender import BatchSender
from rocketmq_py.producer.config import ProducerConfig, ProducerOptions
from rocketmq_py.producer.delay_relay import delay_relay
from rocketmq_py.producer.health import ProducerHealth
from rocketmq_py.producer.hooks import Hooks, ProducerHook, SendContext, SendMode
from rocketmq_py.producer.meter import SendMeter
from rocketmq_py.producer.pipeline import Pipeline
from rocketmq_py.producer.request_builder import RequestBuilder, check_message
from rocketmq_py.producer.request_reply import PendingReplies
from rocketmq_py.producer.sender import Sender
from rocketmq_py.producer.statistics import ProducerStatistics
from rocketmq_py.producer.tracing import trace_sends


class BaseProducer(Member):
    """The parts of a producer, and their lifespan. The arguments are those of Producer."""

    def __init__(
        self,
        client: str | Client | None = None,
        *configs: ProducerConfig | ClientConfig,
        group: str | None = None,
        rng: random.Random | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        own, shared = split_options(options, ProducerConfig, ClientConfig, configs=configs, group=group)
        super().__init__(client, rng, shared)
        self.config: ProducerConfig = ProducerConfig(**own)
        self._sender = Sender(self.client, self.config, rng or self.client.rng)
        self._builder = RequestBuilder(self.client, self.config)
        self._batch_sender = BatchSender(self.client, self.config, self._builder, self._sender)
        self._hooks = Hooks()
        admission = Admission(self.config.max_in_flight, self.config.max_in_flight_bytes)
        self._pipeline = Pipeline(self._sender, self._hooks, admission)
        self._delay_relay = delay_relay(self.config, self.client, self._sender.router.supports_timed)
        self._tracing = trace_sends(self.config, self.client, self._hooks)
        self._replies = PendingReplies(self.client, self._sender, self._pipeline)
        self._is_in_heartbeats = False
        self.close_timeout: float = self.config.close_timeout
        self._announce()

    async def queues(self, topic: str) -> Sequence[MessageQueue]:
        """Return the queues of a topic that messages can be sent to, sorted.

        Java: ``fetchPublishMessageQueues``. Raises as :meth:`send` for a topic without a route.
        """
        self._check_open()
        return (await self.client.routes.get(check_topic(topic), for_sending=True)).write_queues

    def add_hook(self, hook: ProducerHook) -> Callable[[], None]:
        """Add a hook that runs around every send. Returns a function that removes it."""
        return self._hooks.add(hook)

    @property
    def in_flight(self) -> int:
        """The number of pipelined sends, and of requests that wait for replies, without an outcome."""
        return len(self._pipeline)

    @property
    def statistics(self) -> ProducerStatistics:
        """A snapshot of the producer's counters."""
        counters, faults = self._sender.counters, self._sender.faults
        return ProducerStatistics(
            sent=counters.sent,
            failed=counters.failed,
            retried=counters.retried,
            oneway=counters.oneway,
            late_replies=self._replies.late,
            in_flight=len(self._pipeline),
            in_flight_bytes=self._pipeline.admission.bytes,
            latency=counters.latency(),
            brokers=faults.states() if faults is not None and self.is_open else {},
        )

    def _enable_metering(self) -> SendMeter:
        """Return the meter, which records from the first call of this method on."""
        if self._sender.meter is None:
            self._sender.meter = SendMeter()
        return self._sender.meter

    def health(self) -> ProducerHealth:
        """Return whether it can send. For readiness probes. Does not wait, see :meth:`Client.health`.

        A producer that is not open is unhealthy.
        """
        client = self.client.health()
        error, failed_at = self._sender.counters.last_error or (None, 0.0)
        return ProducerHealth(
            reasons=client.reasons if self.is_open else (str(self._not_open()),),
            client=client,
            in_flight=len(self._pipeline),
            last_error=error,
            last_error_age=None if error is None or not self.is_open else trio.current_time() - failed_at,
        )

    async def _open(self) -> None:
        await super()._open()
        self._sender.open(self.nursery)
        self._pipeline.open(self.nursery)
        self._replies.open(self.nursery)
        if self._tracing is not None:
            self.nursery.start_soon(self._tracing.run)
        self.client.heartbeats.add_producer(self.config.group)
        self._is_in_heartbeats = True

    async def _close(self) -> None:
        try:
            await self._pipeline.close()
            if self._tracing is not None:
                await self._tracing.flush()
        finally:  # otherwise brokers would send their checks to a closed producer
            self._is_in_heartbeats = False
            await self.client.heartbeats.remove_producer(self.config.group)
        await super()._close()

    def _abandon(self) -> None:
        if self._is_in_heartbeats and self.client.is_open:  # a shared client, and no graceful close
            start_soon(self.client.nursery, self.client.heartbeats.remove_producer, self.config.group)
        self._sender.abandon()
        self._replies.close()
        self._pipeline.abandon()

    def _context(self, mode: SendMode, messages: Sequence[Message], *, is_half: bool = False) -> SendContext:
        """Return the context of a send for its hooks."""
        for message in messages:
            check_message(message)
        return SendContext(
            producer_group=self.config.group,
            client_id=self.client.client_id,
            mode=mode,
            messages=list(messages),
            is_half=is_half,
            started_ms=self.client.now_ms(),
        )
