"""Requests of a producer, and the replies of consumers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rocketmq_py.arguments import Duration, check_instance, check_timeout
from rocketmq_py.client.features import REPLIES
from rocketmq_py.client.proxies import raise_if_proxy
from rocketmq_py.codes import RequestCode
from rocketmq_py.errors import UnsupportedByBrokerError
from rocketmq_py.message import Message, ReceivedMessage, SendResult
from rocketmq_py.producer.base_producer import BaseProducer
from rocketmq_py.producer.destinations import Destination
from rocketmq_py.producer.hooks import SendMode
from rocketmq_py.producer.pending import PendingReply
from rocketmq_py.producer.request_reply import reply_to
from rocketmq_py.properties import NO_PROPERTIES

if TYPE_CHECKING:
    from rocketmq_py.codecs import Codec


class RequestingProducer(BaseProducer):
    """The part of a Producer that sends requests and replies."""

    async def request(
        self,
        message: Message,
        *,
        queue: Destination | None = None,
        timeout: Duration | None = None,
    ) -> ReceivedMessage:
        """Send a request and wait for the reply that a consumer sends with :meth:`reply`.

        Args:
            message: the request.
            queue: the queue, or a selector; see the class.
            timeout: seconds for sending and for the reply together. None for the setting ``send_timeout``.
                The request carries it as its TTL.

        Raises:
            ReplyTimeoutError: no reply came in time.
            UnsupportedByBrokerError: the brokers are older than 4.6.0 or behind a proxy. Nothing was sent.
            RocketMQError: as :meth:`send`, if the request could not be sent.

        If cancelled, the request may still be sent, and a reply that arrives is dropped.
        """
        pending = await self.submit_request(message, queue=queue, timeout=timeout)
        try:
            return await pending
        finally:
            self._replies.forget(pending)

    async def submit_request(
        self,
        message: Message,
        *,
        queue: Destination | None = None,
        timeout: Duration | None = None,
    ) -> PendingReply:
        """Send a request without waiting for its reply. Await the returned handle for the reply.

        Waits as :meth:`submit`. The arguments are those of :meth:`request`.

        Raises:
            ConfigurationError: a selector does not accept its arguments.
            InvalidMessageError, SendForbiddenError, ClosedError: as :meth:`send`.

        All other errors are in the PendingReply. If cancelled while it waits, the request is not sent.
        """
        self._check_open()
        pending = self._replies.new_pending()
        timeout = check_timeout(timeout)
        timeout = self._settings.send_timeout if timeout is None else timeout
        properties = self._replies.properties(pending, timeout)
        async with self._hooked(SendMode.PIPELINED, [message]) as ((final,), context):
            send = self._builder.build(
                final,
                queue,
                timeout,
                self._settings.retries,
                context,
                system_properties=properties,
                needs=REPLIES,
            )
            send.context = context
            await self._replies.submit(send, pending)
        return pending

    async def reply(
        self,
        request: ReceivedMessage,
        body: object,
        *,
        codec: Codec | None = None,
        properties: Mapping[str, str] = NO_PROPERTIES,
        timeout: Duration | None = None,
    ) -> SendResult:
        """Reply to a request that a consumer received.

        Args:
            request: the request.
            body: the body of the reply, bytes-like. With a codec, the value to encode.
            codec: encodes the value, for example ``rocketmq_py.codecs.JSON``. The requester decodes it with
                ``reply.decode(Quote)``.
            properties: the reply's own properties, as in a Message.
            timeout: seconds for all attempts together. None for the setting ``send_timeout``.

        Raises:
            InvalidMessageError: the message is not a request, the body or a property is not valid, or the
                codec cannot encode the value.
            BrokerError: the requesting client is gone.
            UnsupportedByBrokerError: the brokers are older than 4.6.0 or behind a proxy. Nothing was sent.
            RocketMQError: as :meth:`send`.

        If cancelled, no attempt is left running. A reply that was written may still arrive.
        """
        self._check_open()
        check_instance(request, "request", ReceivedMessage)
        message, system_properties, queue = reply_to(request, body, codec, properties)
        self._client.namespace.add_system_topic(message.topic)
        code = RequestCode.SEND_REPLY_MESSAGE_V2
        send = None
        try:
            async with self._hooked(SendMode.AWAITED, [message]) as ((final,), context):
                send = self._builder.build(
                    final,
                    queue,
                    timeout,
                    self._settings.retries,
                    context,
                    code=code,
                    system_properties=system_properties,
                )
                result = await self._pipeline.deliver(send)
                if context is not None:
                    context.results = (result,)
            return result
        except UnsupportedByBrokerError:
            if send is not None and send.address:
                await raise_if_proxy(
                    self._client.connections,
                    send.address,
                    code,
                    timeout=self._client.settings.request_timeout,
                )
            raise
