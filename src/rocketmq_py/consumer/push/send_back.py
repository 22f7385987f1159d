"""Sends failed messages back to the broker, for redelivery or as dead letters of the group."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from rocketmq_py.client.core import ClientCore
from rocketmq_py.client.retry_log import RetryLogs
from rocketmq_py.consumer.group.counters import ConsumerCounters
from rocketmq_py.consumer.group.dead_letters import DeadLetter, DeadLetters, FailedDelivery
from rocketmq_py.consumer.group.handler_results import DEAD_LETTER, FIRST_DELAY_LEVEL
from rocketmq_py.consumer.pop.acknowledger import PopAcknowledger
from rocketmq_py.consumer.pop.messages import PoppedMessage
from rocketmq_py.errors import RocketMQError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import MAX_DELAY_LEVEL, Message, ReceivedMessage
from rocketmq_py.names import retry_topic
from rocketmq_py.property_names import (
    DEAD_LETTER_REASON,
    DELAY_LEVEL,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
    TRANSACTION_PREPARED,
    UNIQUE_KEY,
    WAIT_STORE,
)
from rocketmq_py.protocol.compression import CompressionType, compress
from rocketmq_py.protocol.sends import send_fields
from rocketmq_py.protocol.stored_message import (
    COMPRESSED_FLAG,
    COMPRESSION_TYPE_MASK,
    COMPRESSION_TYPE_SHIFT,
)

logger: Final = LibraryLogger("rocketmq_py.consumer")

PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"
"""The producer group of copies. Java: ``MixAll.CLIENT_INNER_PRODUCER_GROUP``."""
MAX_FAILURES = 2**31 - 1
"""The largest number of failures that the request can carry."""
COMPRESS_OVER = 4096
"""Bodies of this many bytes or more are compressed, since the original may have fit only when compressed."""

MAX_REASON = 1000
"""Characters of the reason in a dead letter. Brokers limit the size of all properties together."""

_NOT_COPIED = frozenset(
    {
        UNIQUE_KEY,
        WAIT_STORE,
        DELAY_LEVEL,
        TRANSACTION_PREPARED,
    }
)
"""Properties that are not copied, because the copy must not have them or gets its own."""


class SendBack:
    """Sends messages back for redelivery to a group, or to its dead-letter queue.

    Java: ``DefaultMQPushConsumerImpl.sendMessageBack``.

    Args:
        client: the client that sends the requests.
        group: the consumer group.
        counters: the consumer's counters.
        max_reconsume_times: redeliveries after which a message becomes a dead letter.
    """

    def __init__(
        self, client: ClientCore, group: str, counters: ConsumerCounters, *, max_reconsume_times: int
    ) -> None:
        self._client = client
        self._group = group
        self._max_reconsume_times = max_reconsume_times
        self._dead_letters = DeadLetters(group, counters)
        self._retry_logs = RetryLogs(logger, "send back", "broker", group=group)

    async def send_back(self, failed: FailedDelivery) -> None:
        """Ask the message's broker to deliver it again later. If that fails, send a copy to any broker.

        Raises:
            RocketMQError: both failed, which is logged. The original message is unchanged.

        When cancelled, the message may have been sent back.
        """
        message = failed.message
        try:
            await self._client.brokers.send_back(
                message,
                self._group,
                delay_level=failed.delay_level,
                max_reconsume_times=self._max_reconsume_times,
            )
        except RocketMQError as error:
            logger.debug("send back failed, sending a copy: message=%s: %s", message.message_id, error)
            await self.send_copy(message, failed.delay_level)
        else:
            self._retry_logs.succeeded(message.broker_name)
        dead_letter = failed.dead_letter(self._max_reconsume_times)
        if dead_letter is not None:
            self._dead_letters.note(dead_letter)

    async def send_to_dead_letters(self, dead_letter: DeadLetter) -> None:
        """Make a message a dead letter at once. Errors are those of :meth:`send_back`."""
        await self.send_copy(dead_letter.message, DEAD_LETTER, dead_letter.stored_reason)
        self._dead_letters.note(dead_letter)

    async def send_copy(self, message: ReceivedMessage, delay_level: int, reason: str = "") -> None:
        """Send a copy to the group's retry topic. Brokers turn it into a dead letter after too many failures.

        Tries one broker after the other, the message's own broker last. The copy has the property
        ``DLQ_REASON`` if ``reason`` is not empty. The other arguments and the errors are those of
        :meth:`send_back`.
        """
        try:
            await self._send_copy(message, delay_level, reason)
        except RocketMQError as error:
            self._retry_logs.failed(
                message.broker_name, error, topic=message.topic, message=message.message_id
            )
            raise
        self._retry_logs.succeeded(message.broker_name)

    async def _send_copy(self, message: ReceivedMessage, delay_level: int, reason: str) -> None:
        route = await self._client.routes.get(retry_topic(self._group))
        queues = list(route.queues_to_write())
        self._client.rng.shuffle(queues)
        queue_by_broker = {queue.broker_name: queue for queue in queues}
        own = queue_by_broker.pop(message.broker_name, None)
        candidates = [*queue_by_broker.values(), *([own] if own is not None else [])]
        fields, body = self._copy(message, route.topic, delay_level)
        await self._client.brokers.send_to_first(candidates, fields, body, _properties(message, reason))

    def _copy(
        self, message: ReceivedMessage, topic: str, delay_level: int
    ) -> tuple[Callable[..., dict[str, str]], bytes]:
        """Return a function that makes the ext fields of a copy for a queue, and the body of the copy."""
        body, system_flag = message.body, message.system_flag & (COMPRESSED_FLAG | COMPRESSION_TYPE_MASK)
        if message.corruption is None and len(body) >= COMPRESS_OVER:
            body = compress(body)
            system_flag = COMPRESSED_FLAG | CompressionType.ZLIB << COMPRESSION_TYPE_SHIFT
        failures, limit = message.reconsume_times + 1, self._max_reconsume_times
        if delay_level == DEAD_LETTER:
            # Brokers make a dead letter of a copy with more failures than its limit.
            limit = min(limit, MAX_FAILURES - 1)
            delay_level, failures = 0, limit + 1
        elif not delay_level:
            delay_level = min(FIRST_DELAY_LEVEL + message.reconsume_times, MAX_DELAY_LEVEL)
        fields = partial(
            send_fields,
            Message(topic, message.body, flag=message.flag, delay_level=delay_level),
            producer_group=PRODUCER_GROUP,
            unique_id=message.message_id,
            born_time_ms=self._client.now_ms(),
            system_flag=system_flag,
            reconsume_times=failures,
            max_reconsume_times=limit,
        )
        return fields, body


class SendBackOrPopLater:
    """Sends pulled messages back, and changes the time until popped messages are delivered again.

    Args:
        send_back: for pulled messages, and for all dead letters.
        acknowledger: for popped messages.
    """

    def __init__(self, send_back: SendBack, acknowledger: PopAcknowledger) -> None:
        self._send_back = send_back
        self._acknowledger = acknowledger

    async def send_back(self, failed: FailedDelivery) -> None:
        """Have a message delivered again after a delay. Errors are those of SendBack."""
        if isinstance(failed.message, PoppedMessage):
            await self._acknowledger.send_back(failed)
        else:
            await self._send_back.send_back(failed)

    async def send_to_dead_letters(self, dead_letter: DeadLetter) -> None:
        """Make a message a dead letter."""
        await self._send_back.send_to_dead_letters(dead_letter)
        if isinstance(dead_letter.message, PoppedMessage):
            self._acknowledger.acknowledge(dead_letter.message)


class DroppedMessages:
    """Drops the failed messages of a broadcasting group, which has neither redelivery nor dead letters.

    Args:
        group: the consumer group.
    """

    def __init__(self, group: str) -> None:
        self._group = group

    async def send_back(self, failed: FailedDelivery) -> None:
        """Drop a message, with a log line."""
        message = failed.message
        logger.warning(
            "message dropped: group=%s topic=%s message=%s: the handler failed, and broadcasting groups have "
            "no redelivery",
            self._group, message.topic, message.message_id,
        )  # fmt: skip

    async def send_to_dead_letters(self, dead_letter: DeadLetter) -> None:
        """Drop a message, with a log line that has the reason."""
        message = dead_letter.message
        logger.warning(
            "message dropped: group=%s topic=%s message=%s: broadcasting groups have no dead letters: %s",
            self._group, message.topic, message.message_id, dead_letter.reason,
        )  # fmt: skip


def _properties(message: ReceivedMessage, reason: str) -> dict[str, str]:
    """Return the properties of a copy."""
    properties = {name: value for name, value in message.properties.items() if name not in _NOT_COPIED}
    properties.setdefault(ORIGIN_MESSAGE_ID, message.message_id)
    if reason:
        properties[DEAD_LETTER_REASON] = _printable(reason)[:MAX_REASON]
    properties[RETRY_TOPIC] = message.topic
    return properties


def _printable(text: str) -> str:
    """Return a text without line breaks, and without the characters that separate properties."""
    return " ".join("".join([letter if letter.isprintable() else " " for letter in text]).split())
