"""The results that a message handler may return."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence, Set
from typing import Any, TypeVar

import attrs

from rocketmq_py.arguments import check_number, not_negative, seconds_or_none
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.message import DELAY_LEVEL_NAMES, MAX_DELAY_LEVEL

Value = TypeVar("Value")

_RESULTS = reprlib.Repr()
"""Describes values of any size, also those whose ``__repr__`` fails."""
_RESULTS.maxother = _RESULTS.maxstring = 80

FIRST_DELAY_LEVEL = 3
"""The default delay level after the first failure of a message. Each further failure adds 1."""
DEAD_LETTER = -1
"""The delay level that moves a message to the group's dead letter topic without further retries."""
_SECONDS_OF_UNIT = {"s": 1.0, "m": 60.0, "h": 3600.0}
DELAY_SECONDS = (0.0, *[float(name[:-1]) * _SECONDS_OF_UNIT[name[-1]] for name in DELAY_LEVEL_NAMES])
"""The seconds of each delay level in a broker's default settings. Clients cannot query other settings."""


def delay_seconds(delay_level: int, failures: int) -> float:
    """Return the time until a message is delivered again, with the times of a broker's default settings.

    Args:
        delay_level: the delay level. For 0 the delay grows with the number of failures.
        failures: the number of earlier failures.
    """
    return DELAY_SECONDS[delay_level or min(FIRST_DELAY_LEVEL + failures, MAX_DELAY_LEVEL)]


def _delay_level(_: object, attribute: attrs.Attribute[Any], value: int) -> None:
    if not DEAD_LETTER <= value <= MAX_DELAY_LEVEL:
        raise ConfigurationError(
            f"{attribute.name} is {value!r}; it must be from {DEAD_LETTER} to {MAX_DELAY_LEVEL}"
        )


@attrs.frozen
class ConsumeResult:
    """Base class of the results that a handler may return. Returning None acknowledges the messages.

    Any other value ends the consumer's run with a ConfigurationError, and the messages are redelivered.
    """


@attrs.frozen
class ConsumeLater(ConsumeResult):
    """Redeliver the message later. Java: ``ConsumeConcurrentlyStatus.RECONSUME_LATER``.

    Args:
        delay_level: the delay before the redelivery. 1 to 18 name a level of the broker (by default 1s, 5s,
            10s, 30s, 1m … 2h), 0 lets the broker choose by the number of failures, and -1 moves the message
            to the group's dead letter topic (delayLevelWhenNextConsume).
        done: for a list of messages, how many of the first ones to acknowledge. Only the others are
            redelivered (ackIndex, which is one less).

    Raises:
        ConfigurationError: a number is out of range.
    """

    delay_level: int = attrs.field(default=0, validator=_delay_level)
    done: int = attrs.field(default=0, validator=not_negative)


def _finite_or_none(_: object, attribute: attrs.Attribute[Any], value: float | None) -> None:
    if value is not None and not 0 <= check_number(value, attribute.name) < math.inf:
        raise ConfigurationError(f"{attribute.name} is {value!r}; it must be a finite number, 0 or more")


@attrs.frozen
class Suspend(ConsumeResult):
    """Suspend the queue, then deliver the same messages again. For orderly consumers.

    Java: ``ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT``.

    Args:
        seconds: the pause. None uses the consumer's ``suspend_current_queue``
            (suspendCurrentQueueTimeMillis).

    Raises:
        ConfigurationError: ``seconds`` is negative or infinite.
    """

    seconds: float | None = attrs.field(default=None, converter=seconds_or_none, validator=_finite_or_none)


@attrs.frozen
class CommitOffset(ConsumeResult):
    """Commit all messages of the queue that were delivered so far. Java: ``ConsumeOrderlyStatus.COMMIT``.

    For orderly consumers with ``auto_commit=False``. With ``auto_commit=True`` it is the same as None.
    """


@attrs.frozen
class RollbackOffset(ConsumeResult):
    """Suspend the queue, then deliver again all messages since its last CommitOffset.

    For orderly consumers with ``auto_commit=False``. Java: ``ConsumeOrderlyStatus.ROLLBACK``.

    Args:
        seconds: the pause. None uses the consumer's ``suspend_current_queue``.

    Raises:
        ConfigurationError: ``seconds`` is negative or infinite.
    """

    seconds: float | None = attrs.field(default=None, converter=seconds_or_none, validator=_finite_or_none)


@attrs.frozen
class SplitResult(ConsumeResult):
    """The result of a call that gave the handler only some of the messages. Not for handlers.

    Args:
        dead_letters: the reasons of messages that become dead letters, by their index in the call.
        done: the indexes of messages to acknowledge.
        result: the handler's result for the other messages.
    """

    dead_letters: Mapping[int, str] = attrs.field(factory=dict)
    done: Set[int] = frozenset()
    result: object = None

    def remaining(self, messages: Sequence[Value]) -> list[Value]:
        """Return the messages that :attr:`result` stands for."""
        settled = self.dead_letters.keys() | self.done
        return [message for index, message in enumerate(messages) if index not in settled]


def unsupported_result(result: object, *, orderly: bool) -> ConfigurationError:
    """Return the error of a handler that returned a value which its consumer does not support."""
    supported = "Suspend(...)" if orderly else "ConsumeLater(...)"
    if orderly and isinstance(result, RollbackOffset):
        reason = "which needs auto_commit=False"
    else:
        reason = f"which {'ordered' if orderly else 'concurrent'} consumers do not support"
    return ConfigurationError(
        f"the handler returned {_RESULTS.repr(result)}, {reason}. Return None to acknowledge messages, or "
        f"{supported} to choose the delay, or raise an exception"
    )
