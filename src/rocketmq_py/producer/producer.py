"""The producer: awaited, pipelined and oneway sends, batches, and requests with replies."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from threading import get_ident
from types import CoroutineType
from typing import Any, Unpack

import trio

from rocketmq_py.arguments import Duration, check_instance, check_text, wrong_type
from rocketmq_py.client.client import Client
from rocketmq_py.client.settings import ClientSettings
from rocketmq_py.errors import BrokerError, InvalidMessageError, MessageTooLargeError, RocketMQError
from rocketmq_py.message import Message, SendResult
from rocketmq_py.names import check_topic
from rocketmq_py.producer.batch import EncodedBatch, check_list
from rocketmq_py.producer.batcher import Batcher
from rocketmq_py.producer.destinations import Destination
from rocketmq_py.producer.hooks import SendContext, SendMode
from rocketmq_py.producer.outcome import OutcomeReceiver
from rocketmq_py.producer.pending import PendingSend
from rocketmq_py.producer.requesting_producer import RequestingProducer
from rocketmq_py.producer.settings import ProducerOptions, ProducerSettings
from rocketmq_py.producer.tracing import recall_record
from rocketmq_py.property_names import MESSAGE_REGION
from rocketmq_py.protocol.handles import RecallHandle
from rocketmq_py.protocol.headers import RecallMessageAnswer
from rocketmq_py.shown_settings import takes_settings


@takes_settings(ProducerSettings, ClientSettings)
class Producer(RequestingProducer):
    """Sends messages. Java: ``DefaultMQProducer``.

    Use it as an async context manager. Leaving the context waits for the sends in flight for as long as
    results arrive: brokers store or refuse messages, or replies come. After ``close_timeout`` seconds without
    one, the rest fails with ClosedError, is logged, and is counted as ``given_up``. A cancellation that comes
    meanwhile, or KeyboardInterrupt, ends the wait at once. Any number of tasks may send through one producer
    at the same time.

    Methods with an argument ``queue`` send to this MessageQueue only, or to the queue that this QueueSelector
    chooses (``SelectByHash("order-7")``, or a callable). Retries use the same queue, which keeps the order of
    messages. With None, the producer chooses the queue, and after a failure a queue of another broker.

    With the setting ``linger``, :meth:`send`, :meth:`submit` and :meth:`send_all` collect messages of one
    topic for up to ``linger`` seconds, and send them in one request, which is several times as fast. Each
    message has its own result. Without ``queue``, each batch goes to another queue, and batches are sent
    concurrently. Messages for one queue, passed or chosen by a selector, are stored in the order in which
    they were accepted: the next batch is sent when the previous one has its result. A message is sent alone,
    in the same order, if brokers do not accept it in a batch (it is delayed, has a priority or a lite topic,
    or is for a retry topic), if it is larger than ``max_batch_bytes``, or if it is large enough for
    compression. If a broker refuses a batch, each half is sent by itself, so that only the refused messages
    fail. Hooks see each message by itself, before it is added to a batch. All other methods send at once.
    Java has this as ``autoBatch``.

    Args:
        client: name servers as ``host:port;host:port`` (None reads NAMESRV_ADDR, else 127.0.0.1:9876), or
            an open client to share.
        group: the producer group. None for DEFAULT_PRODUCER.
        **options: the settings of a Producer, and those of a Client unless one is shared.

    Raises:
        ConfigurationError: an option is unknown or invalid.
    """

    def __init__(
        self,
        client: str | Client | None = None,
        *,
        group: str | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        super().__init__(client, group=group, **options)
        # Accepts a message that has passed the relay and the hooks; see _accept. ``linger`` decides how.
        self._accept_after_hooks: Callable[..., Any] = self._accept_alone
        if self._settings.linger is not None:
            self._batcher = Batcher(self, self._settings.linger)
            self._accept_after_hooks = self._batcher.accept

    async def send(
        self,
        message: Message,
        *,
        queue: Destination | None = None,
        timeout: Duration | None = None,
    ) -> SendResult:
        """Send a message and wait until a broker has stored it.

        Args:
            message: the message.
            queue: the queue, or a selector; see the class.
            timeout: seconds for all attempts together, from the start of the first. None for the setting
                ``send_timeout``. The smallest timeout of its messages applies to a batch.

        Raises:
            InvalidMessageError: no broker would accept the message. Nothing was sent.
            SendForbiddenError: a hook forbids the send.
            TopicNotFoundError, NoQueueError, NameServerError: the topic has no queue to send to.
            UnsupportedByBrokerError: the message is timed, the broker is older than 5.0, and ``delay_relay``
                is not set.
            BrokerError: the broker refused the message.
            ConnectError, ConnectionLostError, RequestTimeoutError: the broker did not answer. ``delivery``
                says whether the message may have been stored.
            ClosedError: the producer is not open.

        If cancelled, no attempt is left running. A broker may still store a request that was written. With
        ``linger``, a message that was accepted for a batch is still sent.
        """
        self._check_open()
        if self._batcher is not None:
            return await (await self.submit(message, queue=queue, timeout=timeout))
        if self._delay_relay is not None:
            message = await self._delay_relay.redirect(message, queue)
        _, result = await self._deliver(message, queue, timeout)
        return result

    async def submit(
        self,
        message: Message,
        *,
        queue: Destination | None = None,
        timeout: Duration | None = None,
    ) -> PendingSend:
        """Send a message without waiting for the broker. Await the returned handle for the result.

        Waits only while ``max_in_flight`` sends, or ``max_in_flight_bytes``, are in flight. With ``linger``,
        only the bytes count. Messages of one task are written in order, but the broker may store them in
        another order. If the order matters, await each result before the next send, or set ``linger``.

        Args:
            message: the message.
            queue: the queue, or a selector; see the class.
            timeout: seconds for all attempts together, after the wait. None for the setting ``send_timeout``.

        Raises:
            ConfigurationError: ``timeout`` is not a number above 0, or a selector does not accept its
                arguments.
            InvalidMessageError, SendForbiddenError, ClosedError: as :meth:`send`.
            RocketMQError: with ``delay_relay``, the brokers of a timed message could not be asked for their
                versions.

        All other errors are in the PendingSend. If cancelled while it waits, the message is not sent.
        """
        if self._thread != get_ident():
            self._check_open()  # raises the error
        await trio.lowlevel.checkpoint_if_cancelled()
        accepted = self._accept(message, queue, timeout)
        pending: PendingSend = accepted if isinstance(accepted, PendingSend) else await accepted
        return pending

    async def send_all(
        self, messages: Iterable[Message], *, queues: Iterable[Destination | None] | None = None
    ) -> list[SendResult | RocketMQError]:
        """Send messages, wait for all of them, and return the outcome of each in order.

        An outcome is a SendResult, or the error of a message that could not be sent. Errors are not raised.

        Args:
            messages: the messages, of any topics.
            queues: the queue or selector of each message, or None; see the class.

        Raises:
            InvalidMessageError: the numbers of messages and queues differ. Nothing was sent.
            ClosedError: the producer is not open. Nothing was sent.

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
        if self._batcher is not None:
            self._batcher.send_collected()
        for one in outcomes:
            if isinstance(one, PendingSend):
                await one.wait()
        return [
            one if isinstance(one, RocketMQError) else one.exception() or one.result() for one in outcomes
        ]

    def _accept(
        self,
        message: Message,
        queue: Destination | None,
        timeout: Duration | None,
        receiver: OutcomeReceiver | None = None,
    ) -> Any:
        """Accept a message for sending, after the delay relay and the hooks, if there are any.

        Returns the handle, or the ``receiver`` of another API, or a coroutine that returns it and must be
        awaited.
        """
        if self._hooks.all or (self._delay_relay is not None and self._delay_relay.concerns(message)):
            return self._accept_with_hooks(message, queue, timeout, receiver)
        return self._accept_after_hooks(message, queue, timeout, receiver)

    def _accept_alone(
        self,
        message: Message,
        queue: Destination | None,
        timeout: Duration | None,
        receiver: OutcomeReceiver | None = None,
        context: SendContext | None = None,
    ) -> OutcomeReceiver | Coroutine[Any, Any, OutcomeReceiver]:
        """Submit a message in a request of its own; see ``_accept``."""
        pending = PendingSend() if receiver is None else receiver
        send = self._builder.build(message, queue, timeout, self._settings.retries, context)
        send.receiver = pending
        if context is not None:
            send.context = context
        waiting = self._pipeline.submit(send)
        return pending if waiting is None else waiting

    async def _accept_with_hooks(
        self,
        message: Message,
        queue: Destination | None,
        timeout: Duration | None,
        receiver: OutcomeReceiver | None = None,
    ) -> OutcomeReceiver:
        """Accept a message after the delay relay and the hooks; see ``_accept``."""
        if self._delay_relay is not None:
            message = await self._delay_relay.redirect(message, queue)
        async with self._hooked(SendMode.PIPELINED, [message]) as ((final,), context):
            accepted = self._accept_after_hooks(final, queue, timeout, receiver, context)
            pending: OutcomeReceiver = await accepted if type(accepted) is CoroutineType else accepted
            return pending

    async def flush(self) -> None:
        """Send the collected messages, and wait for the outcome of every pipelined send and every request.

        Errors are not raised here. They are in the PendingSends. If cancelled, the sends continue. Raises
        ClosedError if this producer is not open.
        """
        self._check_open()
        await trio.lowlevel.checkpoint()
        await self._flush()

    async def _flush(self) -> None:
        if self._batcher is not None:
            await self._batcher.flush()
        await self._pipeline.flush()

    async def send_oneway(self, message: Message, *, queue: Destination | None = None) -> None:
        """Send a message without an acknowledgement. It may be lost without an error.

        Returns when the message is in the connection's buffer. Raises as :meth:`send` for errors before that.
        There are no retries. If cancelled, the message is not sent.
        """
        self._check_open()
        if self._delay_relay is not None:
            message = await self._delay_relay.redirect(message, queue)
        async with self._hooked(SendMode.ONEWAY, [message]) as ((final,), context):
            await self._sender.send_oneway(self._builder.build(final, queue, None, 0, context))

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: Destination | None = None,
        timeout: Duration | None = None,
    ) -> Sequence[SendResult]:
        """Send messages of one topic in a batch, and wait until a broker has stored them.

        They are stored in one queue in order. If they take more than ``max_message_size`` bytes with their
        properties, they are sent in several batches, one after the other, and each to a queue of its own if
        ``queue`` is None. With ``linger``, the producer collects batches by itself.

        Args:
            messages: the messages.
            queue: the queue, or a selector; see the class.
            timeout: seconds for all attempts of one batch. None for the setting ``send_timeout``.

        Returns the result of each message, in order.

        Raises:
            InvalidMessageError: the list is empty, or a message is too large, delayed, or differs from the
                others in its topic, ``wait_store_ok`` or, without ``queue``, sharding key. Nothing was sent.
            BatchError: some batches were stored before one failed. The error has their results.
            RocketMQError: as :meth:`send`.

        If cancelled, no attempt is left running. A broker may still store batches that were written.
        """
        self._check_open()
        check_list(messages)
        async with self._hooked(SendMode.AWAITED, messages) as (final, context):
            return await self._batch_sender.send(final, queue, timeout, context)

    async def _send_encoded(
        self, batch: EncodedBatch, *, queue: Destination | None = None, timeout: Duration | None = None
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
        if len(batch.body) > self._settings.max_message_size:
            raise MessageTooLargeError(
                f"the encoded batch has {len(batch.body)} bytes; max_message_size is "
                f"{self._settings.max_message_size}"
            )
        send = self._builder.build_batch(batch, queue, timeout, self._settings.retries)
        return await self._pipeline.deliver(send)

    async def recall(self, topic: str, recall_handle: str) -> str:
        """Recall a timed message before it is delivered. Brokers from 5.3.2 on. Java: ``recallMessage``.

        Args:
            topic: the topic of the message.
            recall_handle: the handle in its SendResult.

        Returns the message's id.

        Raises:
            InvalidMessageError: the handle is malformed.
            TopicNotFoundError, NoQueueError, NameServerError: the topic has no queue to send to, or the
                address of the message's broker is unknown.
            UnsupportedByBrokerError: the broker is older than 5.3.2, or behind a proxy.
            BrokerError: the message was delivered already, or the broker does not allow recalls
                (recallMessageEnable).
            ConnectError, ConnectionLostError, RequestTimeoutError: the broker did not answer.
            ClosedError: the producer is not open.

        If cancelled, the message may or may not have been recalled.
        """
        self._check_open()
        check_topic(topic)
        handle = RecallHandle.decode(check_text(recall_handle, "recall_handle"))
        await self._client.routes.get(topic, for_sending=True)
        try:
            answer = await self._client.brokers.recall(
                handle.broker_name, self._settings.group, topic, recall_handle
            )
        except BrokerError:
            self._trace_recall(topic, handle, success=False)
            raise
        self._trace_recall(topic, handle, success=True, region=answer.fields.get(MESSAGE_REGION))
        return RecallMessageAnswer.from_fields(answer.fields).msg_id

    def _trace_recall(
        self, topic: str, handle: RecallHandle, *, success: bool, region: str | None = None
    ) -> None:
        if self._tracing is not None:
            now_ms, group = self._client.now_ms(), self._settings.group
            record = recall_record(topic, handle, group, region=region, success=success, now_ms=now_ms)
            self._tracing.append(record, record.region)

    def _start_send(
        self,
        message: Message,
        queue: Destination | None,
        timeout: Duration | None,
        receiver: OutcomeReceiver,
    ) -> Callable[[], None] | None:
        self._check_open()
        if self._hooks.all or (self._delay_relay is not None and self._delay_relay.concerns(message)):
            return None
        send = self._builder.build(message, queue, timeout, self._settings.retries)
        if not self._pipeline.start(send, receiver):
            return None
        return partial(self._pipeline.cancel, send)


def accept(
    producer: Producer,
    message: Message,
    queue: Destination | None,
    timeout: Duration | None,
    receiver: OutcomeReceiver,
) -> OutcomeReceiver | Coroutine[Any, Any, OutcomeReceiver]:
    """Submit a message of another API, whose ``receiver`` gets the outcome.

    Returns the receiver, or a coroutine that submits the message, after the hooks and once there is space.
    """
    accepted: OutcomeReceiver | Coroutine[Any, Any, OutcomeReceiver]
    accepted = producer._accept(message, queue, timeout, receiver)
    return accepted


def start_send(
    producer: Producer,
    message: Message,
    queue: Destination | None,
    timeout: Duration | None,
    receiver: OutcomeReceiver,
) -> Callable[[], None] | None:
    """Start an awaited send of another API, whose ``receiver`` gets the outcome.

    Returns a function that cancels the send. None if nothing was started, because something has to be awaited
    first. Await ``Producer.send`` then. Raises as that does.
    """
    return producer._start_send(message, queue, timeout, receiver)
