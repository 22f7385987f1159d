"""The producer: awaited, pipelined and oneway sends, batches, and requests with replies."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import trio

from rocketmq_py.arguments import check_instance, check_text
from rocketmq_py.callables import check_callback
from rocketmq_py.codes import ResponseCode
from rocketmq_py.errors import BrokerError, InvalidMessageError, MessageTooLargeError
from rocketmq_py.message import Message, SendResult
from rocketmq_py.names import check_topic
from rocketmq_py.producer.batch import EncodedBatch, check_list
from rocketmq_py.producer.first_attempt import BatchAttempt, FirstAttempt, OnAnswer
from rocketmq_py.producer.hooks import SendMode
from rocketmq_py.producer.outcome import OutcomeReceiver
from rocketmq_py.producer.pending import PendingSend
from rocketmq_py.producer.requesting_producer import RequestingProducer
from rocketmq_py.producer.send_request import Destination
from rocketmq_py.producer.tracing import recall_record
from rocketmq_py.property_names import MESSAGE_REGION
from rocketmq_py.protocol.handles import RecallHandle
from rocketmq_py.protocol.headers import RecallMessageAnswer


class Producer(RequestingProducer):
    """Sends messages. Java: ``DefaultMQProducer``.

    Use it as an async context manager. Leaving the context waits for the sends in flight, for at most
    ``close_timeout`` seconds. Any number of tasks may send through one producer at the same time.

    Methods with an argument ``queue`` send to this MessageQueue only, or to the queue that this QueueSelector
    chooses (``SelectByHash("order-7")``, or a callable). Retries use the same queue, which keeps the order of
    messages. With None, the producer chooses the queue, and after a failure a queue of another broker.

    Args:
        client: name servers as ``host:port;host:port`` (None reads NAMESRV_ADDR, else 127.0.0.1:9876), or
            an open client to share.
        *configs: a ProducerConfig, and a ClientConfig unless a client is shared. Keywords may set fields that
            these leave at their defaults.
        group: the producer group. None for DEFAULT_PRODUCER.
        rng: the source of randomness, for tests that replay a run.
        **options: the fields of ProducerConfig, and those of ClientConfig unless a client is shared.

    Raises:
        ConfigurationError: an option is unknown, given twice, or invalid.
    """

    async def send(
        self,
        message: Message,
        *,
        queue: Destination | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send a message and wait until a broker has stored it.

        Args:
            message: the message.
            queue: the queue, or a selector; see the class.
            timeout: seconds for all attempts together. None for the setting ``send_timeout``.

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

        If cancelled, no attempt is left running. A broker may still store a request that was written.
        """
        self._check_open()
        if self._delay_relay is not None:
            message = await self._delay_relay.redirect(message, queue)
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
        """Send a message without waiting for the broker. Await the returned handle for the result.

        Waits only while ``max_in_flight`` sends, or ``max_in_flight_bytes``, are in flight. Messages of one
        task are written in order, but the broker may store them in another order. If the order matters, await
        each result before the next send.

        Args:
            message: the message.
            queue: the queue, or a selector; see the class.
            timeout: seconds for all attempts together, after the wait. None for the setting ``send_timeout``.
            on_done: called with the PendingSend when the message has its result or its error.

        Raises:
            ConfigurationError: ``on_done`` or a selector does not accept its arguments.
            InvalidMessageError, SendForbiddenError, ClosedError: as :meth:`send`.
            RocketMQError: with ``delay_relay``, the brokers of a timed message could not be asked for their
                versions.

        All other errors are in the PendingSend. If cancelled while it waits, the message is not sent.
        """
        self._check_open()
        if on_done is not None:
            check_callback(on_done, "on_done")
        pending = PendingSend(on_done)
        if self._hooks.all or self._delay_relay is not None:
            await self._submit_with_hooks(pending, message, queue, timeout)
            return pending
        request = self._builder.build(message, queue, timeout, self.config.retries_pipelined)
        request.pending, request.on_done = pending, self._pipeline.on_done
        await trio.lowlevel.checkpoint_if_cancelled()
        if (waiting := self._pipeline.submit(request)) is not None:
            await waiting
        return pending

    async def _submit_with_hooks(
        self, pending: OutcomeReceiver, message: Message, queue: Destination | None, timeout: float | None
    ) -> None:
        """Submit a message as :meth:`submit`, with the hooks and the delay relay, if there are any."""
        self._check_open()
        if self._delay_relay is not None:
            message = await self._delay_relay.redirect(message, queue)
        retries = self.config.retries_pipelined
        if not self._hooks.all:
            request = self._builder.build(message, queue, timeout, retries)
            request.pending, request.on_done = pending, self._pipeline.on_done
            await self._pipeline.wait_and_submit(request)
            return
        async with self._hooks.before(self._context(SendMode.PIPELINED, [message])) as context:
            request = self._builder.build(context.messages[0], queue, timeout, retries, context)
            request.pending = pending
            request.on_done = self._pipeline.after_hooks(context, self._pipeline.finish)
            await self._pipeline.wait_and_submit(request)

    async def flush(self) -> None:
        """Wait until every pipelined send, and every request, has its outcome.

        Errors are not raised here. They are in the PendingSends. If cancelled, the sends continue. Raises
        ClosedError if this producer is not open.
        """
        self._check_open()
        await trio.lowlevel.checkpoint()
        await self._pipeline.flush()

    async def send_oneway(self, message: Message, *, queue: Destination | None = None) -> None:
        """Send a message without an acknowledgement. It may be lost without an error.

        Returns when the message is in the connection's buffer. Raises as :meth:`send` for errors before that.
        There are no retries. If cancelled, the message is not sent.
        """
        self._check_open()
        if self._delay_relay is not None:
            message = await self._delay_relay.redirect(message, queue)
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
        """Send messages of one topic in a batch, and wait until a broker has stored them.

        They are stored in one queue in order. If they take more than ``max_message_size`` bytes with their
        properties, they are sent in several batches, one after the other, and each to a queue of its own if
        ``queue`` is None. A BatchingProducer collects batches by itself.

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
        if not self._hooks.all:
            return await self._batch_sender.send(messages, queue, timeout)
        async with self._hooks.around(self._context(SendMode.AWAITED, messages)) as context:
            if len(context.messages) != len(messages):
                raise InvalidMessageError(
                    f"a hook changed the number of messages of a batch from {len(messages)} to "
                    f"{len(context.messages)}; before_send may only replace messages"
                )
            return await self._batch_sender.send(context.messages, queue, timeout, context)

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

    async def recall(self, topic: str, recall_handle: str) -> str:
        """Recall a timed message before it is delivered. Brokers 5.x only. Java: ``recallMessage``.

        Args:
            topic: the topic of the message.
            recall_handle: the handle in its SendResult.

        Returns the message's id.

        Raises:
            InvalidMessageError: the handle is malformed.
            TopicNotFoundError, NoQueueError, NameServerError: the topic has no queue to send to, or the
                address of the message's broker is unknown.
            BrokerError: the message was delivered already, or the broker does not allow recalls
                (recallMessageEnable).
            ConnectError, ConnectionLostError, RequestTimeoutError: the broker did not answer.
            ClosedError: the producer is not open.

        If cancelled, the message may or may not have been recalled.
        """
        self._check_open()
        check_topic(topic)
        handle = RecallHandle.decode(check_text(recall_handle, "recall_handle"))
        await self.client.routes.get(topic, for_sending=True)
        try:
            answer = await self.client.brokers.recall(
                handle.broker_name, self.config.group, topic, recall_handle
            )
        except BrokerError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                self._trace_recall(topic, handle, success=False)
            raise
        self._trace_recall(topic, handle, success=True, region=answer.fields.get(MESSAGE_REGION))
        return RecallMessageAnswer.from_fields(answer.fields).msg_id

    def _trace_recall(
        self, topic: str, handle: RecallHandle, *, success: bool, region: str | None = None
    ) -> None:
        if self._tracing is not None:
            now_ms, group = self.client.now_ms(), self.config.group
            self._tracing.append(
                recall_record(topic, handle, group, region=region, success=success, now_ms=now_ms)
            )

    # For the BatchingProducer and the other APIs, which have no task per send

    def _submit(
        self, pending: OutcomeReceiver, message: Message, queue: Destination | None, timeout: float | None
    ) -> Coroutine[Any, Any, object] | None:
        """Submit a message as :meth:`submit`, with ``pending`` instead of a new PendingSend.

        Await the coroutine that is returned, if any. This and the coroutine raise as :meth:`submit`.
        """
        if self._hooks.all or self._delay_relay is not None:
            return self._submit_with_hooks(pending, message, queue, timeout)
        request = self._builder.build(message, queue, timeout, self.config.retries_pipelined)
        request.pending, request.on_done = pending, self._pipeline.on_done
        return self._pipeline.submit(request)

    def _begin_send(
        self, message: Message, on_answer: OnAnswer, queue: Destination | None, timeout: float | None
    ) -> FirstAttempt | None:
        """Start :meth:`send` without a task. Returns None if hooks or the relay need a task."""
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
        """Start :meth:`send_batch` without a task. Returns None for hooks, or for several batches."""
        self._check_open()
        check_list(messages)
        return None if self._hooks.all else self._batch_sender.begin(messages, on_answer, queue, timeout)
