"""The producer: awaited, pipelined and oneway sends, single messages and lists."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Unpack

import trio

from rocketmq_py.client.config import ClientConfig, split_options
from rocketmq_py.client.instance import ClientInstance
from rocketmq_py.client.member import Member
from rocketmq_py.errors import (
    BatchError,
    ClosedError,
    Delivery,
    RocketMQError,
)
from rocketmq_py.message import Message, MessageQueue, SendResult
from rocketmq_py.producer.batch import batch_results, split_batch
from rocketmq_py.producer.config import DEFAULT_GROUP, ProducerConfig, ProducerOptions
from rocketmq_py.producer.hooks import Hooks, ProducerHook, SendContext, SendMode
from rocketmq_py.producer.in_flight import InFlight
from rocketmq_py.producer.pending import PendingSend
from rocketmq_py.producer.preparing import Preparing
from rocketmq_py.producer.sender import Sender
from rocketmq_py.producer.sending import Destination, Outcome, Sending
from rocketmq_py.producer.statistics import ProducerStatistics
from rocketmq_py.protocol.headers import RecallMessageAnswer, RecallMessageRequest
from rocketmq_py.protocol.recall_handle import RecallHandle


class Producer(Member):
    """Sends messages. Java: ``DefaultMQProducer``.

    Use it inside ``async with``; leaving waits until what is in flight has its result, for at most
    ``close_timeout`` seconds. Any number of tasks may send through one producer at the same time.

    Where a method takes ``queue``, a MessageQueue is the only queue that the message may go to, and a
    QueueSelector (``SelectByHash("order-7")``, or a callable of your own) chooses that: a try that fails is
    not moved to another queue then, so that the order of what follows is kept. None lets the producer
    choose, and choose another broker's after a failure.

    Args:
        client: name servers as ``host:port;host:port`` (None reads NAMESRV_ADDR, else 127.0.0.1:9876), or
            an open client to share.
        group: the producer group.
        rng: the source of randomness, for tests that replay a run.
        **options: the fields of ProducerConfig, and those of ClientConfig unless a client is shared.

    Raises:
        ConfigurationError: an option is unknown or outside of what is allowed.
    """

    def __init__(
        self,
        client: ClientInstance | str | None = None,
        *,
        group: str = DEFAULT_GROUP,
        rng: random.Random | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        own, shared = split_options(options, ProducerConfig, ClientConfig)
        super().__init__(client, rng, shared)
        self.config = ProducerConfig(group=group, **own)
        self._preparing = Preparing(self.client, self.config)
        self._sender = Sender(self.client, self.config, rng or self.client.rng)
        self._hooks = Hooks()
        self._in_flight = InFlight(self.config.max_in_flight, self.config.max_in_flight_bytes)

    async def send(
        self,
        message: Message,
        *,
        queue: Destination | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send a message and wait until a broker has stored it.

        Args:
            message: what to send.
            queue: where to; see the class.
            timeout: seconds for all tries together, instead of the setting ``send_timeout``.

        Raises:
            InvalidMessageError: no broker would take the message; nothing was sent.
            SendForbiddenError: a hook forbade it.
            TopicNotFoundError, NoQueueError, NameServerError: there is nowhere to send it.
            UnsupportedByBrokerError: it has an exact time, and the broker is older than 5.0.
            BrokerError: the broker refused it. ConnectError, ConnectionLostError, RequestTimeoutError.
                Their ``delivery`` says what is known: not sent, refused, or unknown.
            ClosedError: the producer is not open.

        When cancelled, nothing is left waiting; a request that was written may still be stored.
        """
        self._check_open()
        if not self._hooks:
            return await self._send(message, queue, timeout)
        async with self._hooks.around(self._context(SendMode.AWAITED, message)) as context:
            result = await self._send(context.messages[0], queue, timeout, context)
            context.results = (result,)
        return result

    async def send_soon(
        self,
        message: Message,
        *,
        queue: Destination | None = None,
        timeout: float | None = None,
        on_done: Callable[[PendingSend], None] | None = None,
    ) -> PendingSend:
        """Send a message without waiting for the broker: waits only for a place in flight.

        Messages that one task sends leave in that order, but a broker's threads may store them in another:
        where order matters, await each. The result, or the error after the last try, is in the
        PendingSend: await it, or give ``on_done``, which is called with it when it is done.

        Raises:
            InvalidMessageError, SendForbiddenError, ClosedError: at once. All else is the PendingSend's.

        When cancelled while it waits, the message is not sent.
        """
        self._check_open()
        pending = PendingSend()
        if on_done is not None:
            pending.add_done_callback(on_done)
        if not self._hooks:
            await self._send_soon(pending, message, queue, timeout)
            return pending
        context = self._context(SendMode.PIPELINED, message)
        await self._hooks.before_send(context)
        started = trio.current_time()
        try:
            await self._send_soon(pending, context.messages[0], queue, timeout, context, started)
        except BaseException as error:
            await self._hooks.after_send(context, started, error)
            raise
        return pending

    async def send_oneway(self, message: Message, *, queue: Destination | None = None) -> None:
        """Send a message that no broker answers: it may be lost, and nobody will know.

        Returns when the message is in the connection's buffer. Raises as :meth:`send` for what is known
        before that; there is one try. When cancelled, the message is not sent.
        """
        self._check_open()
        if not self._hooks:
            await self._send_oneway(message, queue)
            return
        async with self._hooks.around(self._context(SendMode.ONEWAY, message)) as context:
            await self._send_oneway(context.messages[0], queue, context)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: Destination | None = None,
        timeout: float | None = None,
    ) -> list[SendResult]:
        """Send messages of one topic together, and wait until a broker has stored them.

        They go to one queue, one after the other, unless they are more than ``max_message_size`` bytes with
        their properties: then they go in several parts, each awaited before the next, and each to a queue
        of its own if ``queue`` is None. A BatchingProducer makes batches by itself.

        Returns each message's own result, in the order of the messages.

        Raises:
            InvalidMessageError: there is no message, or one that cannot be in a batch: of another topic or
                another ``wait_store_ok``, delayed, or too large. Nothing was sent.
            BatchError: some parts were stored before one failed; it has their results.
            others: as :meth:`send`.

        When cancelled, nothing is left waiting; parts that were written may still be stored.
        """
        self._check_open()
        if not self._hooks:
            return await self._send_batch(messages, queue, timeout)
        async with self._hooks.around(self._context(SendMode.AWAITED, *messages)) as context:
            results = await self._send_batch(context.messages, queue, timeout, context)
            context.results = results
        return results

    async def recall(self, topic: str, recall_handle: str) -> str:
        """Take a timed message back before it is delivered; brokers 5.x only. Java: ``recallMessage``.

        Args:
            topic: the message's topic.
            recall_handle: of its SendResult.

        Returns the message's id.

        Raises:
            InvalidMessageError: the handle is none.
            BrokerError: the broker does not recall it: it has been delivered, or recalling is not enabled
                (recallMessageEnable). ConnectError, ConnectionLostError, RequestTimeoutError, NoQueueError.

        When cancelled, it may or may not have been recalled.
        """
        self._check_open()
        handle = RecallHandle.decode(recall_handle)
        await self.client.routes.get(topic, for_sending=True)
        header = RecallMessageRequest(
            producer_group=self.config.group,
            topic=topic,
            recall_handle=recall_handle,
            broker_name=handle.broker_name,
        )
        address = self.client.routes.broker_address(handle.broker_name)
        answer = await self.client.brokers.call(address, header)
        return RecallMessageAnswer.from_fields(answer.fields).msg_id

    async def queues(self, topic: str) -> Sequence[MessageQueue]:
        """Return the queues that a topic's messages may be sent to, sorted.

        Java: ``fetchPublishMessageQueues``. Raises as :meth:`send` for a topic without a route.
        """
        self._check_open()
        return (await self.client.routes.get(topic, for_sending=True)).write_queues

    def add_hook(self, hook: ProducerHook) -> Callable[[], None]:
        """Have a hook called around sends from now on; returns what removes it."""
        return self._hooks.add(hook)

    @property
    def in_flight(self) -> int:
        """How many pipelined sends have neither succeeded nor failed yet."""
        return len(self._in_flight)

    @property
    def statistics(self) -> ProducerStatistics:
        """What it has done until now."""
        counters, faults = self._sender.counters, self._sender.faults
        return ProducerStatistics(
            sent=counters.sent,
            failed=counters.failed,
            retried=counters.retried,
            oneway=counters.oneway,
            in_flight=len(self._in_flight),
            in_flight_bytes=self._in_flight.bytes,
            latency=counters.latency(),
            brokers={} if faults is None else faults.states(),
        )

    # Lifespan

    async def _open(self) -> None:
        await super()._open()
        self._sender.open(self.nursery)
        self.client.heartbeats.add_producer(self.config.group)

    async def _close(self) -> None:
        await self._in_flight.all_left()
        await self.client.heartbeats.remove_producer(self.config.group)
        await super()._close()

    def _abandon(self) -> None:
        self._sender.abandon()
        for pending in self._in_flight.abandon():
            self._sender.counters.failed += 1
            pending.resolve(_abandoned())

    # One request's way

    async def _send(
        self,
        message: Message,
        queue: Destination | None,
        timeout: float | None,
        context: SendContext | None = None,
    ) -> SendResult:
        sending = self._preparing.prepare(message, queue, timeout, self.config.retries, context)
        if sending.may_be_compressed:
            await self._preparing.compress(sending)
        return await self._deliver(sending)

    async def _deliver(self, sending: Sending) -> SendResult:
        """Try until it is stored, and count it."""
        try:
            result = await self._sender.deliver(sending)
        except RocketMQError:
            self._sender.counters.failed += len(sending.messages)
            raise
        self._sender.counters.sent += len(sending.messages)
        return result

    async def _send_soon(
        self,
        pending: PendingSend,
        message: Message,
        queue: Destination | None,
        timeout: float | None,
        context: SendContext | None = None,
        started: float = 0.0,
    ) -> None:
        sending = self._preparing.prepare(message, queue, timeout, self.config.retries_pipelined, context)
        if context is None:
            sending.on_done = partial(self._resolve, pending)
        else:
            sending.on_done = partial(self._resolve_after_hooks, pending, context, started)
        await self._in_flight.enter(pending, len(message.body))
        try:
            self._check_open()  # it may have been closed meanwhile
            if sending.may_be_compressed:
                await self._preparing.compress(sending)
            await self._sender.submit(sending)
        except BaseException:
            self._in_flight.leave(pending)
            raise

    async def _send_oneway(
        self,
        message: Message,
        queue: Destination | None,
        context: SendContext | None = None,
    ) -> None:
        sending = self._preparing.prepare(message, queue, None, 0, context)
        if sending.may_be_compressed:
            await self._preparing.compress(sending)
        await self._sender.send_oneway(sending)

    async def _send_batch(
        self,
        messages: Sequence[Message],
        queue: Destination | None,
        timeout: float | None,
        context: SendContext | None = None,
    ) -> list[SendResult]:
        batches = split_batch(
            messages, max_size=self.config.max_message_size, new_unique_id=self.client.unique_ids.next
        )
        results: list[SendResult] = []
        for batch in batches:
            sending = self._preparing.prepare_batch(batch, queue, timeout, self.config.retries, context)
            try:
                results += batch_results(await self._deliver(sending), batch)
            except RocketMQError as error:
                if not results:
                    raise
                raise BatchError(results, len(messages), error) from error
        return results

    def _context(self, mode: SendMode, *messages: Message) -> SendContext:
        return SendContext(
            producer_group=self.config.group,
            client_id=self.client.client_id,
            mode=mode,
            messages=list(messages),
            started_ms=self.client.now_ms(),
        )

    # Outcomes of pipelined sends

    def _resolve(self, pending: PendingSend, outcome: Outcome) -> None:
        if pending.done:
            return  # abandoned when the producer was closed
        counters = self._sender.counters
        if isinstance(outcome, RocketMQError):
            counters.failed += 1
        else:
            counters.sent += 1
        self._in_flight.leave(pending)
        pending.resolve(outcome)

    def _resolve_after_hooks(
        self, pending: PendingSend, context: SendContext, started: float, outcome: Outcome
    ) -> None:
        if not pending.done:
            self.nursery.start_soon(self._run_hooks_and_resolve, pending, context, started, outcome)

    async def _run_hooks_and_resolve(
        self, pending: PendingSend, context: SendContext, started: float, outcome: Outcome
    ) -> None:
        error = outcome if isinstance(outcome, RocketMQError) else None
        context.results = () if isinstance(outcome, RocketMQError) else (outcome,)
        await self._hooks.after_send(context, started, error)
        self._resolve(pending, outcome)


def _abandoned() -> RocketMQError:
    error = ClosedError("the producer was closed before the broker answered")
    error.delivery = Delivery.UNKNOWN
    return error
