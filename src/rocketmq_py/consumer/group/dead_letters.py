"""Reports the messages that become dead letters of a group: a log line and a counter for each."""

from __future__ import annotations

from typing import Final

from rocketmq_py.consumer.group.counters import ConsumerCounters
from rocketmq_py.consumer.group.handler_results import DEAD_LETTER
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import ReceivedMessage

logger: Final = LibraryLogger("rocketmq_py.consumer")

MAX_KEYS = 200
"""Characters of the keys in a log line."""

REQUESTED = "the handler returned ConsumeLater(-1)"
LAST_DELIVERY_FAILED = "its last delivery failed"
NOT_ACKNOWLEDGED = "none of its deliveries was acknowledged in time"

_SENT = "message sent to the dead-letter queue: group=%s topic=%s message=%s keys=%s deliveries=%d: %s"


def reason_for_dead_letter(message: ReceivedMessage, delay_level: int, max_reconsume_times: float) -> str:
    """Return why a failed message becomes a dead letter. Empty if it is delivered again.

    Args:
        message: the message.
        delay_level: the delay, as in ConsumeLater.
        max_reconsume_times: redeliveries after which a message becomes a dead letter.
    """
    if delay_level == DEAD_LETTER:
        return REQUESTED
    return LAST_DELIVERY_FAILED if message.reconsume_times >= max_reconsume_times else ""


class DeadLetters:
    """Counts and logs the dead letters of one consumer.

    Args:
        group: the consumer group.
        counters: the consumer's counters. Dead letters count for the topic that they were sent to.
    """

    def __init__(self, group: str, counters: ConsumerCounters) -> None:
        self._group = group
        self._counters = counters

    def note(self, message: ReceivedMessage, reason: str, *, deliveries: int) -> None:
        """Report that a message has become a dead letter: a WARNING, or INFO if the handler chose so.

        Args:
            message: the message.
            reason: why, for the log.
            deliveries: the number of its deliveries to the group.
        """
        self._counters.of(message.topic).dead_letters += 1
        topic = message.topic + (f" lite_topic={message.lite_topic}" if message.lite_topic else "")
        keys = ",".join(message.keys)[:MAX_KEYS]
        values = self._group, topic, message.message_id, keys, deliveries, reason
        if reason == REQUESTED:
            logger.info(_SENT, *values)
        else:
            logger.warning(_SENT, *values)
