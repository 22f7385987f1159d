"""Sending messages back that a group failed on: to be delivered again, or as its dead letters."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from rocketmq_py import properties as names
from rocketmq_py.client.client import Client
from rocketmq_py.client.retry_log import RetryLogs
from rocketmq_py.consumer.group.handler_results import DEAD_LETTER, FIRST_DELAY_LEVEL
from rocketmq_py.errors import RocketMQError
from rocketmq_py.message import MAX_DELAY_LEVEL, Message, MessageQueue, ReceivedMessage
from rocketmq_py.names import retry_topic
from rocketmq_py.protocol.compression import CompressionType, compress
from rocketmq_py.protocol.send_request import send_fields
from rocketmq_py.protocol.stored_message import (
    COMPRESSED_FLAG,
    COMPRESSION_TYPE_MASK,
    COMPRESSION_TYPE_SHIFT,
)

logger: Final = logging.getLogger("rocketmq_py.consumer")

PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"
"""In whose name copies are sent. Java: ``MixAll.CLIENT_INNER_PRODUCER_GROUP``."""
MAX_FAILURES = 2**31 - 1
"""What fits the field that counts them. A dead letter has more than its group allows."""
COMPRESS_OVER = 4096
"""Bytes from which on the body of a copy is compressed: the original may have been too large otherwise."""

_NOT_COPIED = frozenset({names.UNIQUE_KEY, names.WAIT_STORE, names.DELAY_LEVEL, names.TRANSACTION_PREPARED})
"""Properties that a copy has from elsewhere, or shall not have."""


class SendBack:
    """Has a group's messages delivered to it again, or collected as its dead letters.

    Java: ``DefaultMQPushConsumerImpl.sendMessageBack``.

    Args:
        client: how brokers are reached.
        group: the group that failed.
        max_reconsume_times: deliveries after the first one, before the message is a dead letter.
    """

    def __init__(self, client: Client, group: str, *, max_reconsume_times: int) -> None:
        self._client = client
        self._group = group
        self._max_reconsume_times = max_reconsume_times
        self._retry_logs = RetryLogs(logger, "send back", "broker", group=group)

    async def send_back(self, message: ReceivedMessage, delay_level: int) -> None:
        """Have the message's broker keep it for later; if it does not, send a copy to any broker.

        Args:
            message: what the group failed on.
            delay_level: as ConsumeLater has it.

        Raises:
            RocketMQError: neither was possible, which is logged. The message is where it was.
        """
        try:
            await self._client.brokers.send_back(
                message,
                self._group,
                delay_level=delay_level,
                max_reconsume_times=self._max_reconsume_times,
            )
        except RocketMQError as error:
            logger.debug("message %s was not sent back, sending a copy: %s", message.message_id, error)
            await self.send_copy(message, delay_level)
        else:
            self._retry_logs.succeeded(message.broker_name)

    async def drop(self, message: ReceivedMessage, _: int) -> None:
        """Do without it: where every member gets every message, none is delivered again."""
        logger.warning(
            "group %s: message %s of topic %s is dropped: a broadcasting group has no second delivery",
            self._group, message.message_id, message.topic,
        )  # fmt: skip

    async def send_copy(self, message: ReceivedMessage, delay_level: int) -> None:
        """Send a copy to the group's retry topic; after too many failures brokers make it a dead letter.

        Arguments and errors are those of :meth:`send_back`. The brokers are tried in turn, that of the
        message last.
        """
        try:
            await self._send_copy(message, delay_level)
        except RocketMQError as error:
            self._retry_logs.failed(
                message.broker_name, error, topic=message.topic, message=message.message_id
            )
            raise
        self._retry_logs.succeeded(message.broker_name)

    async def _send_copy(self, message: ReceivedMessage, delay_level: int) -> None:
        route = await self._client.routes.get(retry_topic(self._group))
        candidates = list(route.queues_to_write())
        self._client.rng.shuffle(candidates)
        queues = {queue.broker_name: queue for queue in candidates}
        own = queues.pop(message.broker_name, None)
        in_turn = [*queues.values(), *([own] if own is not None else [])]
        fields, body = self._copy(message, route.topic, delay_level)
        await self._client.brokers.send_to_first(in_turn, fields, body)

    def _copy(
        self, message: ReceivedMessage, topic: str, delay_level: int
    ) -> tuple[Callable[[MessageQueue], dict[str, str]], bytes]:
        """Return what gives the ext fields of a copy for a queue, and its body."""
        body, system_flag = message.body, message.system_flag & (COMPRESSED_FLAG | COMPRESSION_TYPE_MASK)
        if message.corruption is None and len(body) >= COMPRESS_OVER:
            body = compress(body)
            system_flag = COMPRESSED_FLAG | CompressionType.ZLIB << COMPRESSION_TYPE_SHIFT
        failures, limit = message.reconsume_times + 1, self._max_reconsume_times
        if delay_level == DEAD_LETTER:
            limit = min(limit, MAX_FAILURES - 1)
            delay_level, failures = 0, limit + 1
        elif not delay_level:
            delay_level = min(FIRST_DELAY_LEVEL + message.reconsume_times, MAX_DELAY_LEVEL)
        kept = {name: value for name, value in message.properties.items() if name not in _NOT_COPIED}
        kept.setdefault(names.ORIGIN_MESSAGE_ID, message.message_id)
        kept[names.RETRY_TOPIC] = self._client.namespace.wrap_topic(message.topic)
        fields = partial(
            send_fields,
            Message(topic, message.body, flag=message.flag, delay_level=delay_level),
            producer_group=PRODUCER_GROUP,
            unique_id=message.message_id,
            born_time_ms=self._client.now_ms(),
            system_flag=system_flag,
            reconsume_times=failures,
            max_reconsume_times=limit,
            system_properties=kept,
        )
        return fields, body
