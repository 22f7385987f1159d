"""Makes the sends of messages: validates and encodes them before anything is sent."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import TypedDict

from rocketmq_py.arguments import Duration, check_timeout
from rocketmq_py.client.core import ClientCore
from rocketmq_py.client.features import LITE_TOPICS, TIMED_MESSAGES, TRANSACTIONS, Feature
from rocketmq_py.codes import RequestCode
from rocketmq_py.errors import InvalidMessageError
from rocketmq_py.message import Message
from rocketmq_py.producer.batch import EncodedBatch
from rocketmq_py.producer.destinations import Destination, key_of_batch
from rocketmq_py.producer.encoded_request import EncodedRequest
from rocketmq_py.producer.final_message import final
from rocketmq_py.producer.hooks import SendContext
from rocketmq_py.producer.send import Send
from rocketmq_py.producer.settings import ProducerSettings
from rocketmq_py.property_names import INSTANCE_ID, PRODUCER_GROUP, START_DELIVER_TIME
from rocketmq_py.protocol.sends import (
    SendRequestBuilder,
    batch_properties,
    encode_message_properties,
)

_NO_PROPERTIES: Mapping[str, str] = {}


def _check_half(message: Message) -> None:
    if message.delay_level or message.is_timed:
        raise InvalidMessageError("a message in a transaction cannot be delayed")
    if message.lite_topic:
        raise InvalidMessageError("a message in a transaction cannot have a lite topic")


def sends_start_deliver_time(config: ProducerSettings, client: ClientCore) -> bool:
    """Return whether timed messages have the property __STARTDELIVERTIME: as set, else by the address."""
    explicit = config.start_deliver_time
    return client.uses_start_deliver_time if explicit is None else explicit


class BuildOptions(TypedDict, total=False):
    """Optional arguments of :meth:`RequestBuilder.build`."""

    code: int
    system_flag: int
    system_properties: Mapping[str, str]
    needs: Feature | None


class RequestBuilder:
    """Makes the sends of a producer.

    Args:
        client: provides ids, the time, and the namespace.
        config: the producer's settings.
    """

    def __init__(self, client: ClientCore, config: ProducerSettings) -> None:
        self._client = client
        self._config = config
        self._namespace = client.namespace.name
        self._group = client.namespace.wrap_group(config.group)
        self._sends_start_time = sends_start_deliver_time(config, client)
        self._header_builder = lru_cache(maxsize=4096)(self._new_header_builder)  # by topic and code
        self._compress_over = config.compression.over if config.compression else math.inf

    def build(
        self,
        message: Message,
        queue: Destination | None,
        timeout: Duration | None,
        retries: int,
        context: SendContext | None = None,
        *,
        code: int = RequestCode.SEND_MESSAGE_V2,
        system_flag: int = 0,
        system_properties: Mapping[str, str] = _NO_PROPERTIES,
        needs: Feature | None = None,
        is_final: bool = False,
    ) -> Send:
        """Make the send of a message.

        Args:
            message: the message.
            queue: the queue, or a selector. None for a free choice.
            timeout: seconds for all attempts together. None for the setting.
            retries: attempts after the first.
            context: the context of the hooks, if there are any.
            code: the request code.
            system_flag: RocketMQ's own bits.
            system_properties: RocketMQ's own properties.
            needs: the feature that the broker must have. Lite topics and timed messages need newer brokers.
            is_final: whether :func:`final` has returned the message and the queue.

        Raises:
            InvalidMessageError: the message is not valid.
            ConfigurationError: the timeout is not valid.
        """
        config, client = self._config, self._client
        if not is_final:
            message, queue = final(message, queue, config.max_message_size)
        if needs is TRANSACTIONS:
            _check_half(message)
            system_properties = {**system_properties, PRODUCER_GROUP: self._group}
        if timeout is not None:
            timeout = check_timeout(timeout)
        if self._namespace:
            system_properties = {**system_properties, INSTANCE_ID: self._namespace}
        now_ms = client.now_ms()
        has_start_time = not message._is_bare and START_DELIVER_TIME in message.properties
        if self._sends_start_time and message.is_timed and not has_start_time:
            has_start_time = True
            due_ms = message.deliver_at_ms or now_ms + round(message.delay * 1000)
            system_properties = {**system_properties, START_DELIVER_TIME: str(due_ms)}
        unique_id = client.unique_ids.next(now_ms)
        if not message._is_bare and (message.lite_topic or (message.is_timed and not has_start_time)):
            needs = LITE_TOPICS if message.lite_topic else TIMED_MESSAGES
        send = Send(
            EncodedRequest(
                self._header_builder(message.topic, code),
                (message,),
                message.topic,
                unique_id,
                encode_message_properties(message, unique_id, system_properties),
                message.body,
                now_ms,
                message.flag,
                system_flag,
            ),
            config.send_timeout if timeout is None else timeout,
            config.try_timeout,
            retries,
            queue,
            needs,
            is_large=len(message.body) >= self._compress_over,
        )
        if context is not None:
            context._requests.append(send)
        return send

    def build_batch(
        self,
        batch: EncodedBatch,
        queue: Destination | None,
        timeout: Duration | None,
        retries: int,
        context: SendContext | None = None,
    ) -> Send:
        """Make the send of a batch. The arguments are those of :meth:`build`."""
        config, client = self._config, self._client
        timeout = check_timeout(timeout)
        send = Send(
            EncodedRequest(
                self._header_builder(batch.topic, RequestCode.SEND_BATCH_MESSAGE),
                batch.messages,
                batch.topic,
                ",".join(batch.unique_ids),
                batch_properties(batch.wait_store_ok, key_of_batch(batch.messages)),
                batch.body,
                client.now_ms(),
                0,
                0,
            ),
            config.send_timeout if timeout is None else timeout,
            config.try_timeout,
            retries,
            queue,
        )
        if context is not None:
            context._requests.append(send)
        return send

    def _new_header_builder(self, topic: str, code: int) -> SendRequestBuilder:
        # The names are converted here, once for each topic, so that sends do not pay for it.
        return SendRequestBuilder(
            code,
            self._group,
            self._client.namespace.wrap_topic(topic),
            unit_mode=self._client.settings.unit_mode,
        )
