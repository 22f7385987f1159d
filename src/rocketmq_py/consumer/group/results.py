"""What a handler may return."""

from __future__ import annotations

import math
from typing import Any

import attrs

from rocketmq_py.arguments import not_negative
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.message import MAX_DELAY_LEVEL

FIRST_DELAY_LEVEL = 3
"""The delay level of a copy after the first failure, where none was chosen; each further one adds one."""
DEAD_LETTER = -1
"""The delay level of what shall not come again: it goes to the group's dead letters at once."""


def _delay_level(_: object, attribute: attrs.Attribute[Any], value: int) -> None:
    if not DEAD_LETTER <= value <= MAX_DELAY_LEVEL:
        raise ConfigurationError(
            f"{attribute.name} is {value!r}; {DEAD_LETTER} to {MAX_DELAY_LEVEL} are allowed"
        )


@attrs.frozen
class ConsumeResult:
    """The root of what a handler may return instead of None, which means: done with.

    Anything else is a mistake: it ends the run with a ConfigurationError, and the messages come again.
    """


@attrs.frozen
class ConsumeLater(ConsumeResult):
    """Deliver it again later. Java: ``ConsumeConcurrentlyStatus.RECONSUME_LATER``.

    Args:
        delay_level: when: 1 to 18 say it (1s 5s 10s 30s 1m … 2h in a broker's default settings), 0 lets the
            broker choose by the number of failures, -1 is never: it goes to the group's dead letters
            (delayLevelWhenNextConsume).
        done: of a list of messages, how many from its beginning are done with; only the others come again
            (ackIndex, which is one less).

    Raises:
        ConfigurationError: a number is outside of what is allowed.
    """

    delay_level: int = attrs.field(default=0, validator=_delay_level)
    done: int = attrs.field(default=0, validator=not_negative)


def _seconds(_: object, attribute: attrs.Attribute[Any], value: float | None) -> None:
    if value is not None and not 0 <= value < math.inf:
        raise ConfigurationError(f"{attribute.name} is {value!r}; it must be 0 or more")


@attrs.frozen
class Suspend(ConsumeResult):
    """Have the queue rest, and then hand the same messages out again: for consumers in order.

    Java: ``ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT``.

    Args:
        seconds: how long; None is the consumer's ``suspend_current_queue`` (suspendCurrentQueueTimeMillis).

    Raises:
        ConfigurationError: ``seconds`` is negative.
    """

    seconds: float | None = attrs.field(default=None, validator=_seconds)


@attrs.frozen
class CommitOffset(ConsumeResult):
    """Be done with all that was handed out of the queue so far. Java: ``ConsumeOrderlyStatus.COMMIT``.

    For consumers in order with ``auto_commit=False``; with auto_commit it says nothing new.
    """


@attrs.frozen
class RollbackOffset(ConsumeResult):
    """Hand out again all that was handed out of the queue since the last Commit, after it has rested.

    For consumers in order with ``auto_commit=False``. Java: ``ConsumeOrderlyStatus.ROLLBACK``.

    Args:
        seconds: as for Suspend.

    Raises:
        ConfigurationError: ``seconds`` is negative.
    """

    seconds: float | None = attrs.field(default=None, validator=_seconds)


def check_result(result: object) -> None:
    """Raise ConfigurationError for what a handler returned and nobody can have meant: True, False, a text."""
    if result is not None and not isinstance(result, ConsumeResult):
        raise ConfigurationError(
            f"the handler returned {result!r}: return None when the messages are done with, a ConsumeResult "
            "such as ConsumeLater() when they are not, or raise; these messages come again"
        )
