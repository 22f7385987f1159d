"""Failed deliveries, and the dead letters of a group: the event, its log line and its counter.

All consumers decide with :class:`FailedDelivery` whether a message is delivered again. They report each dead
letter to :class:`DeadLetters` once it has been sent: those of push consumers in ``push.send_back``, and those
of popped messages and lite topics in ``pop.requests``.
"""

from __future__ import annotations

import enum
from typing import Final

import attrs

from rocketmq_py.consumer.group.counters import ConsumerCounters
from rocketmq_py.consumer.group.handler_results import DEAD_LETTER
from rocketmq_py.error_texts import error_line
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import ReceivedMessage

logger: Final = LibraryLogger("rocketmq_py.consumer")

MAX_KEYS = 200
"""Characters of the keys in a log line."""

_SENT = "message sent to the dead-letter queue: group=%s topic=%s message=%s keys=%s deliveries=%d: %s"


class Cause(enum.Enum):
    """Why a message becomes a dead letter. The values are for the log."""

    REQUESTED = "the handler returned ConsumeLater(-1)"
    REJECTED = "the program rejected it"
    UNUSABLE = "it cannot be handled"
    LAST_DELIVERY_FAILED = "its last delivery failed"
    NOT_ACKNOWLEDGED = "none of its deliveries was acknowledged in time"


@attrs.frozen(eq=False)
class DeadLetter:
    """A message that becomes a dead letter of the group, and the cause of its failure.

    Attributes:
        message: the message, as it was delivered last.
        cause: why it becomes a dead letter.
        stored_reason: the text that the dead letter itself gets, as the property ``DLQ_REASON``. Empty for
            none.
        error: the exception of its last delivery. None if it failed without one.
    """

    message: ReceivedMessage
    cause: Cause
    stored_reason: str = ""
    error: BaseException | None = None

    @property
    def reason(self) -> str:
        """The cause in words, for the log."""
        reason = self.stored_reason or self.cause.value
        return reason if self.error is None else f"{reason}: {error_line(self.error)}"

    @property
    def deliveries(self) -> int:
        """The number of deliveries to the group. One that is given up on arrival does not count."""
        return self.message.reconsume_times + (self.cause is not Cause.NOT_ACKNOWLEDGED)


@attrs.frozen(eq=False)
class FailedDelivery:
    """A delivery whose handler call has failed, or has asked for another delivery.

    Attributes:
        message: the message.
        delay_level: the delay of the next delivery, as in ConsumeLater.
        error: the exception, or None.
    """

    message: ReceivedMessage
    delay_level: int = 0
    error: BaseException | None = None

    def dead_letter(self, max_reconsume_times: float) -> DeadLetter | None:
        """Return the dead letter that the message becomes. None if it is delivered again.

        Args:
            max_reconsume_times: redeliveries after which a message becomes a dead letter.
        """
        if self.delay_level == DEAD_LETTER:
            return DeadLetter(self.message, Cause.REQUESTED, error=self.error)
        if self.message.reconsume_times >= max_reconsume_times:
            return DeadLetter(self.message, Cause.LAST_DELIVERY_FAILED, error=self.error)
        return None


class DeadLetters:
    """Counts and logs the dead letters of one consumer.

    Args:
        group: the consumer group.
        counters: the consumer's counters. Dead letters count for the topic that they were sent to.
    """

    def __init__(self, group: str, counters: ConsumerCounters) -> None:
        self._group = group
        self._counters = counters

    def note(self, dead_letter: DeadLetter) -> None:
        """Report a dead letter that was sent: a WARNING, or INFO if the handler chose so."""
        message = dead_letter.message
        self._counters.of(message.topic).dead_letters += 1
        topic = message.topic + (f" lite_topic={message.lite_topic}" if message.lite_topic else "")
        keys = ",".join(message.keys)[:MAX_KEYS]
        values = self._group, topic, message.message_id, keys, dead_letter.deliveries, dead_letter.reason
        if dead_letter.cause is Cause.REQUESTED:
            logger.info(_SENT, *values)
        else:
            logger.warning(_SENT, *values)
