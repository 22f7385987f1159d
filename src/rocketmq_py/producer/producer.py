"""The producer: awaited, pipelined and oneway sends, single messages and lists."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from threading import get_ident
from typing import Any, Unpack

import trio

from rocketmq_py.arguments import check_instance, check_text, check_timeout
from rocketmq_py.callables import check_callback, known_callbacks
from rocketmq_py.client.client import Client
from rocketmq_py.client.config import ClientConfig, split_options
from rocketmq_py.client.member import Member
from rocketmq_py.errors import InvalidMessageError, MessageTooLargeError
from rocketmq_py.message import Message, MessageQueue, ReceivedMessage, SendResult
from rocketmq_py.names import check_topic
from rocketmq_py.producer.admission import Admission
from rocketmq_py.producer.batch import EncodedBatch, check_list
from rocketmq_py.producer.config import ProducerConfig, ProducerOptions
from rocketmq_py.producer.delay_relay import delay_relay
from rocketmq_py.producer.first_attempt import BatchAttempt, FirstAttempt, OnAnswer
from rocketmq_py.producer.hooks import Hooks, ProducerHook, SendContext, SendMode
from rocketmq_py.producer.lists import Lists
from rocketmq_py.producer.pending import Outstanding, PendingReply, PendingSend
from rocketmq_py.producer.pipeline import Pipeline
from rocketmq_py.producer.request_builder import RequestBuilder, check_message
from rocketmq_py.producer.requests import Requests, reply_to
from rocketmq_py.producer.send_request import Destination
from rocketmq_py.producer.sender import Sender
from rocketmq_py.producer.statistics import ProducerStatistics
from rocketmq_py.producer.tracing import trace_sends
from rocketmq_py.protocol.handles import RecallHandle


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
        *configs: a ProducerConfig, and a ClientConfig unless a client is shared; instead of their fields as
            keywords, or beside some of them.
        group: the producer group; None for DEFAULT_PRODUCER.
        rng: the source of randomness, for tests that replay a run.
        **options: the fields of ProducerConfig, and those of ClientConfig unless a client is shared.

    Raises:
        ConfigurationError: an option is unknown, given twice, or outside of what is allowed.
    """

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
        self._lists = Lists(self.client, self.config, self._builder, self._sender)
        self._hooks = Hooks()
        admission = Admission(self.config.max_in_flight, self.config.max_in_flight_bytes)
        self._pipeline = Pipeline(self._sender, self._hooks, admission)
        self._delay_relay = delay_relay(self.config, self.client, self._sender.lanes.keeps_times)
        self._tracing = trace_sends(self.config, self.client, self._hooks)
        self._requests = Requests(self.client, self._sender, self._pipeline)
        self.close_timeout: float = self.config.close_timeout

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
            UnsupportedByBrokerError: it has an exact time, the broker is older than 5.0, and there is no
                ``delay_relay``.
            BrokerError: the broker refused it. ConnectError, ConnectionLostError, RequestTimeoutError.
                Their ``delivery`` says what is known: not sent, refused, or unknown.
            ClosedError: the producer is not open.

        When cancelled, nothing is left waiting; a request that was written may still be stored.
        """
        self._check_open()
        if self._delay_relay is not None:
            message = await self._delay_relay.take(message, queue)
        retries = self.config.retries
        if not self._hooks.all:
            return await self._sender.deliver(self._builder.build(message, queue, timeout, retries))
        async with self._hooks.around(self._context(SendMode.AWAITED, [message])) as context:
            request = self._builder.build(context.messages[0], queue, timeout, retries, context)
            context.results = (result := await self._sender.deliver(request),)
        return result

    async def submit(
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
        ``timeout`` runs from when it has its place.

        Raises:
            ConfigurationError: ``on_done`` or a selector does not accept its arguments. At once, as
                InvalidMessageError, SendForbiddenError and ClosedError. All else is the PendingSend's. With
            ``delay_relay``, and an exact time, also what asking the brokers for their versions raises.

        When cancelled while it waits, the message is not sent.
        """
        if self._thread != get_ident():
            self._check_open()
        if on_done is not None and (type(on_done), getattr(on_done, "__code__", None)) not in known_callbacks:
            check_callback(on_done, "on_done")
        if self._delay_relay is not None:
            message = await self._delay_relay.take(message, queue)
        pending, retries = PendingSend(on_done), self.config.retries_pipelined
        if not self._hooks.all:
            request = self._builder.build(message, queue, timeout, retries)
            request.pending, request.on_done = pending, self._pipeline.on_done
            await trio.lowlevel.checkpoint_if_cancelled()
            if (waiting := self._pipeline.submit(request)) is not None:
                await waiting
            return pending
        async with self._hooks.before(self._context(SendMode.PIPELINED, [message])) as context:
            request = self._builder.build(context.messages[0], queue, timeout, retries, context)
            request.pending = pending
            request.on_done = self._pipeline.after_hooks(context, self._pipeline.finish)
            await self._pipeline.submit_in_turn(request)
        return pending

    async def flush(self) -> None:
        """Wait until all that was pipelined until now, requests too, has its outcome.

        What failed is not raised here: the PendingSends have it. When cancelled, everything goes on. Raises
        ClosedError if this producer is not open.
        """
        self._check_open()
        await trio.lowlevel.checkpoint()
        await self._pipeline.flush()

    async def send_oneway(self, message: Message, *, queue: Destination | None = None) -> None:
        """Send a message that no broker answers: it may be lost, and nobody will know.

        Returns when the message is in the connection's buffer. Raises as :meth:`send` for what is known
        before that; there is one try. When cancelled, the message is not sent.
        """
        self._check_open()
        if self._delay_relay is not None:
            message = await self._delay_relay.take(message, queue)
        if not self._hooks.all:
            await self._sender.send_oneway(self._builder.build(message, queue, None, 0))
            return
        async with self._hooks.around(self._context(SendMode.ONEWAY, [message])) as context:
            request = self._builder.build(context.messages[0], queue, None, 0, context)
            await self._sender.send_oneway(request)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: Destination | None = None,
        timeout: float | None = None,
    ) -> Sequence[SendResult]:
        """Send messages of one topic together, and wait until a broker has stored them.

        They go to one queue, one after the other, unless they are more than ``max_message_size`` bytes with
        their properties: then they go in several parts, each awaited before the next, and each to a queue
        of its own if ``queue`` is None. A BatchingProducer makes batches by itself.

        Returns each message's own result, in the order of the messages.

        Raises:
            InvalidMessageError: there is no message, or one that cannot be in a batch: of another topic or
                another ``wait_store_ok`` or, without ``queue``, sharding key; delayed, or too large. Nothing
                was sent.
            BatchError: some parts were stored before one failed; it has their results.
            others: as :meth:`send`.

        When cancelled, nothing is left waiting; parts that were written may still be stored.
        """
        self._check_open()
        check_list(messages)
        if not self._hooks.all:
            return await self._lists.send(messages, queue, timeout)
        async with self._hooks.around(self._context(SendMode.AWAITED, messages)) as context:
            if len(context.messages) != len(messages):
                raise InvalidMessageError("a hook must not change how many messages there are")
            results = await self._lists.send(context.messages, queue, timeout, context)
            context.results = results
        return results

    async def send_encoded(
        self, batch: EncodedBatch, *, queue: Destination | None = None, timeout: float | None = None
    ) -> SendResult:
        """Send a batch that is already encoded, and wait until a broker has stored it.

        Every attempt sends the same bytes. Hooks are not called, because there are no Message objects.

        Args:
            batch: the encoded messages.
            queue: the queue, or a selector, which gets a placeholder message. None lets the producer choose.
            timeout: seconds for all attempts together, instead of ``send_timeout``.

        Raises:
            ConfigurationError: ``batch`` is not an EncodedBatch.
            MessageTooLargeError: the body exceeds ``max_message_size``.
            RocketMQError: as :meth:`send`.

        If cancelled, no attempt is left running. A broker may still store a request that was written.
        """
        self._check_open()
        check_instance(batch, "batch", EncodedBatch)
        if len(batch.body) > self.config.max_message_size:
            raise MessageTooLargeError(
                f"the encoded batch has {len(batch.body)} bytes; max_message_size is "
                f"{self.config.max_message_size}"
            )
        request = self._builder.build_batch(batch, queue, timeout, self.config.retries)
        return await self._sender.deliver(request)

    async def request(
        self,
        message: Message,
        *,
        queue: Destination | None = None,
        timeout: float | None = None,
    ) -> ReceivedMessage:
        """Send a request and wait for the reply that a consumer sends with :meth:`reply`.

        Args:
            message: what is asked.
            queue: where to; see the class.
            timeout: seconds for sending and for the reply together, instead of ``send_timeout``. The
                request carries it as its TTL.

        Raises:
            ReplyTimeoutError: no reply came in time.
            others: as :meth:`send`, when the request could not be sent.

        When cancelled, nobody waits for the reply any more; one that still comes is dropped.
        """
        pending = await self.submit_request(message, queue=queue, timeout=timeout)
        try:
            return await pending
        finally:
            self._requests.forget(pending)

    async def submit_request(
        self,
        message: Message,
        *,
        queue: Destination | None = None,
        timeout: float | None = None,
        on_done: Callable[[PendingReply], None] | None = None,
    ) -> PendingReply:
        """Send a request without waiting for its reply: waits only for a place in flight and a connection.

        The reply, or the error, is in the PendingReply: await it, or give ``on_done``, which is called once
        with it when it is done. The arguments and the errors are those of :meth:`request`; only
        InvalidMessageError, SendForbiddenError and ClosedError are raised at once.

        When cancelled while it waits, the request is not sent.
        """
        self._check_open()
        if on_done is not None:
            check_callback(on_done, "on_done")
        pending = self._requests.new_pending()
        if on_done is not None:
            pending.add_done_callback(on_done)
        check_timeout(timeout)
        timeout = self.config.send_timeout if timeout is None else timeout
        retries, properties = self.config.retries_pipelined, self._requests.properties(pending, timeout)
        if not self._hooks.all:
            request = self._builder.build(message, queue, timeout, retries, system_properties=properties)
            await self._requests.submit(request, pending)
            return pending
        async with self._hooks.before(self._context(SendMode.PIPELINED, [message])) as context:
            request = self._builder.build(
                context.messages[0], queue, timeout, retries, context, system_properties=properties
            )
            await self._requests.submit(request, pending, self._pipeline.after_hooks(context))
        return pending

    async def reply(
        self, request: ReceivedMessage, body: bytes, *, timeout: float | None = None
    ) -> SendResult:
        """Reply to a request that a consumer received: ``body`` goes to whoever waits for it.

        Raises:
            InvalidMessageError: the message is no request.
            others: as :meth:`send`; BrokerError where who asked has gone.

        When cancelled, nothing is left waiting; a reply that was written may still arrive.
        """
        self._check_open()
        message, properties, queue = reply_to(check_instance(request, "request", ReceivedMessage), body)
        self.client.namespace.add_system_topic(message.topic)
        retries, code = self.config.retries, self._builder.reply_code
        return await self._sender.deliver(
            self._builder.build(message, queue, timeout, retries, code=code, system_properties=properties)
        )

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
        check_topic(topic)
        broker_name = RecallHandle.decode(check_text(recall_handle, "recall_handle")).broker_name
        await self.client.routes.get(topic, for_sending=True)
        return await self.client.brokers.recall(broker_name, self.config.group, topic, recall_handle)

    async def queues(self, topic: str) -> Sequence[MessageQueue]:
        """Return the queues that a topic's messages may be sent to, sorted.

        Java: ``fetchPublishMessageQueues``. Raises as :meth:`send` for a topic without a route.
        """
        self._check_open()
        return (await self.client.routes.get(check_topic(topic), for_sending=True)).write_queues

    def add_hook(self, hook: ProducerHook) -> Callable[[], None]:
        """Have a hook called around sends from now on; returns what removes it."""
        return self._hooks.add(hook)

    @property
    def in_flight(self) -> int:
        """How many pipelined sends have neither succeeded nor failed yet."""
        return len(self._pipeline)

    @property
    def statistics(self) -> ProducerStatistics:
        """What it has done until now."""
        counters, faults = self._sender.counters, self._sender.faults
        return ProducerStatistics(
            sent=counters.sent,
            failed=counters.failed,
            retried=counters.retried,
            oneway=counters.oneway,
            late_replies=self._requests.late,
            in_flight=len(self._pipeline),
            in_flight_bytes=self._pipeline.admission.bytes,
            latency=counters.latency(),
            brokers={} if faults is None else faults.states(),
        )

    # For the other APIs and the BatchingProducer, which have no task per send

    def _submit(
        self, pending: Outstanding, message: Message, queue: Destination | None, timeout: float | None
    ) -> Coroutine[Any, Any, object] | None:
        """Do what :meth:`submit` does, with ``pending`` instead of a new PendingSend.

        Await the coroutine that is returned, if any. This and the coroutine raise as :meth:`submit`.
        """
        if self._hooks.all or self._delay_relay is not None:
            on_done = partial(_forward_outcome, pending)
            return self.submit(message, queue=queue, timeout=timeout, on_done=on_done)
        request = self._builder.build(message, queue, timeout, self.config.retries_pipelined)
        request.pending, request.on_done = pending, self._pipeline.on_done
        return self._pipeline.submit(request)

    def _begin_send(
        self, message: Message, on_answer: OnAnswer, queue: Destination | None, timeout: float | None
    ) -> FirstAttempt | None:
        """Start :meth:`send`. Returns None if that needs a task from the beginning, because of hooks."""
        self._check_open()
        if self._hooks.all or self._delay_relay is not None:
            return None
        request = self._builder.build(message, queue, timeout, self.config.retries)
        return FirstAttempt(self._sender, request, on_answer)

    def _begin_batch(
        self,
        messages: Sequence[Message],
        on_answer: OnAnswer,
        queue: Destination | None,
        timeout: float | None,
    ) -> BatchAttempt | None:
        """Start :meth:`send_batch`. Returns None if that needs a task: for hooks, or several requests."""
        self._check_open()
        check_list(messages)
        return None if self._hooks.all else self._lists.begin(messages, on_answer, queue, timeout)

    # Lifespan

    async def _open(self) -> None:
        await super()._open()
        self._sender.open(self.nursery)
        self._pipeline.open(self.nursery)
        self._requests.open(self.nursery)
        if self._tracing is not None:
            self.nursery.start_soon(self._tracing.run)
        self.client.heartbeats.add_producer(self.config.group)

    async def _close(self) -> None:
        try:
            await self._pipeline.close()
            if self._tracing is not None:
                await self._tracing.flush()
        finally:  # brokers must not go on asking a group that nobody answers for
            await self.client.heartbeats.remove_producer(self.config.group)
        await super()._close()

    def _abandon(self) -> None:
        self._sender.abandon()
        self._pipeline.abandon()
        self._requests.close()

    def _context(self, mode: SendMode, messages: Sequence[Message], *, is_half: bool = False) -> SendContext:
        """Return what hooks see of a send."""
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


def _forward_outcome(pending: Outstanding, done: PendingSend) -> None:
    if done.error is None:
        pending.settle(done.result())
    else:
        pending.resolve(done.error, None)
