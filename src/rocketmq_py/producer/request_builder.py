"""From messages to the requests that send them: what is checked and encoded before anything is sent."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

from rocketmq_py.client.client import Client
from rocketmq_py.client.config import check_timeout
from rocketmq_py.codes import RequestCode
from rocketmq_py.errors import InvalidMessageError, MessageTooLargeError
from rocketmq_py.message import Message, MessageQueue
from rocketmq_py.producer.batch import EncodedBatch
from rocketmq_py.producer.config import ProducerConfig
from rocketmq_py.producer.hooks import SendContext
from rocketmq_py.producer.selectors import select_by_sharding_key
from rocketmq_py.producer.send_request import Destination, SendRequest
from rocketmq_py.properties import INSTANCE_ID
from rocketmq_py.protocol.send_request import batch_fields, send_fields

_NO_PROPERTIES: Mapping[str, str] = {}


def check_message(message: object) -> None:
    """Raise InvalidMessageError if it is no message."""
    if isinstance(message, Message):
        return
    kind = type(message).__name__
    hint = "; send_batch sends several" if isinstance(message, list | tuple) else ""
    raise InvalidMessageError(f"message is a Message(topic, body), not {kind}{hint}")


class RequestBuilder:
    """Makes the requests of one producer.

    Args:
        client: gives ids, the time, and the namespace.
        config: the producer's settings.
    """

    def __init__(self, client: Client, config: ProducerConfig) -> None:
        self._client = client
        self._config = config
        self._group = client.namespace.wrap_group(config.group)
        # Each try fills in its own queue and broker; what is on the wire of all is the topic's name.
        self._target = lru_cache(maxsize=4096)(
            lambda topic: MessageQueue(client.namespace.wrap_topic(topic), "", 0)
        )
        self._compress_over = config.compression.over if config.compression else math.inf
        self._code = RequestCode.SEND_MESSAGE_V2 if config.request_form == "V2" else RequestCode.SEND_MESSAGE

    def build(
        self,
        message: Message,
        queue: Destination | None,
        timeout: float | None,
        retries: int,
        context: SendContext | None = None,
        *,
        code: int | None = None,
        system_flag: int = 0,
        system_properties: Mapping[str, str] = _NO_PROPERTIES,
    ) -> SendRequest:
        """Return the request for a message.

        Args:
            message: what is sent.
            queue: where to.
            timeout: seconds for all tries together; None for the setting.
            retries: tries after the first.
            context: what the hooks see of it, if there are any.
            code: the kind of the request; None for the setting.
            system_flag: RocketMQ's own bits.
            system_properties: RocketMQ's own properties.

        Raises:
            InvalidMessageError: no broker would take it, or it is no message.
            ConfigurationError: the timeout is none.
        """
        config, client = self._config, self._client
        if type(message) is not Message:
            check_message(message)
        if timeout is not None:
            check_timeout(timeout)
        if queue is None and message.sharding_key:
            queue = select_by_sharding_key
        if len(message.body) > config.max_message_size:
            raise MessageTooLargeError(
                f"the body has {len(message.body)} bytes; max_message_size is {config.max_message_size}"
            )
        if client.namespace.name:
            system_properties = {**system_properties, INSTANCE_ID: client.namespace.name}
        unique_id = client.unique_ids.next()
        fields = send_fields(
            message,
            self._target(message.topic),
            producer_group=self._group,
            unique_id=unique_id,
            born_time_ms=client.now_ms(),
            default_topic_queues=client.config.default_topic_queues,
            system_flag=system_flag,
            system_properties=system_properties,
        )
        request = SendRequest(
            (message,),
            message.body,
            fields,
            unique_id,
            timeout=config.send_timeout if timeout is None else timeout,
            retries=retries,
            queue=queue,
            code=self._code if code is None else code,
        )
        if message.delay or message.deliver_at_ms:
            request.wants_heartbeat = True
        if len(message.body) >= self._compress_over:
            request.may_be_compressed = True
        return self._finish(request, context)

    def build_batch(
        self,
        batch: EncodedBatch,
        queue: Destination | None,
        timeout: float | None,
        retries: int,
        context: SendContext | None = None,
    ) -> SendRequest:
        """Return the request for a batch; the arguments are those of :meth:`build`."""
        config, client = self._config, self._client
        check_timeout(timeout)
        fields = batch_fields(
            self._target(batch.topic),
            producer_group=self._group,
            born_time_ms=client.now_ms(),
            wait_store_ok=batch.wait_store_ok,
            default_topic_queues=client.config.default_topic_queues,
        )
        request = SendRequest(
            batch.messages,
            batch.body,
            fields,
            ",".join(batch.unique_ids),
            timeout=config.send_timeout if timeout is None else timeout,
            retries=retries,
            queue=queue,
            code=RequestCode.SEND_BATCH_MESSAGE,
        )
        return self._finish(request, context)

    def _finish(self, request: SendRequest, context: SendContext | None) -> SendRequest:
        config = self._config
        queue = request.fixed_queue
        if queue is not None and queue.topic != request.topic:
            raise InvalidMessageError(f"queue {queue} is not one of topic {request.topic!r}")
        if self._client.config.unit_mode:
            request.set_unit_mode()
        if config.try_timeout is not None:
            request.try_timeout = config.try_timeout
        if config.retry_another_broker_when_not_store_ok:
            request.wants_store_ok = True
        if context is not None:
            context.requests.append(request)
        return request
