"""A position in the queues of a topic."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from numbers import Real
from typing import Any, ClassVar

import attrs

from rocketmq_py.arguments import check_integer, epoch_mistake, instance_of, wrong_type
from rocketmq_py.errors import ConfigurationError

MAX_VALUE = 2**63 - 1
"""The largest offset and time that requests can contain."""

_EPOCH = datetime.fromtimestamp(0, UTC)
_MILLISECOND = timedelta(milliseconds=1)


class PositionKind(enum.Enum):
    """The kind of a Position. The names of EARLIEST and LATEST are accepted in place of the position."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIME = "time"
    AGO = "ago"
    OFFSET = "offset"
    LAST = "last"


def _value(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    check_integer(value, attribute.name, lowest=0, highest=MAX_VALUE)


@attrs.frozen(repr=False)
class Position:
    """A position in each queue of a topic, for everything that starts, seeks, resets or reads.

    ``Position.earliest``, ``Position.latest``, or the result of a class method. The words ``"earliest"`` and
    ``"latest"`` are accepted in place of the first two. Not everything accepts every kind: an error names
    the accepted ones. Java: ``ConsumeFromWhere``. Java: ``OffsetOption``.

    Attributes:
        kind: the kind of position.
        value: of a time its epoch milliseconds or, for AGO, the milliseconds before now. Of an offset the
            offset, and of the last messages their number. Otherwise 0.
    """

    earliest: ClassVar[Position]
    """The oldest message that the broker has."""
    latest: ClassVar[Position]
    """The end of the queue: the next message that is sent."""

    kind: PositionKind = attrs.field(validator=instance_of(PositionKind))
    value: int = attrs.field(default=0, validator=_value)

    @classmethod
    def time(cls, time: datetime | timedelta | int) -> Position:
        """The first message stored at a time or later, or the end of the queue.

        Args:
            time: a datetime with a time zone, or epoch milliseconds. A timedelta counts back from the moment
                at which the position is used: when the consumer is created, or the method is called.

        Raises:
            ConfigurationError: the datetime has no time zone, the number or timedelta is negative, or the
                number seems to be epoch seconds.
        """
        if isinstance(time, datetime):
            if time.utcoffset() is None:
                raise ConfigurationError(f"time is {time}, without a time zone; give it one")
            # Rounded down, as brokers round the times of messages: a message that is stored later in the same
            # millisecond is included. All messages are later than the epoch.
            return cls(PositionKind.TIME, max((time - _EPOCH) // _MILLISECOND, 0))
        if isinstance(time, timedelta):
            return cls(PositionKind.AGO, check_integer(time // _MILLISECOND, "time", lowest=0))
        number: object = time
        if not isinstance(number, Real):
            raise wrong_type("time", "a datetime, a timedelta or epoch milliseconds", number)
        milliseconds = check_integer(number, "time", lowest=0)
        if mistake := epoch_mistake(milliseconds):
            raise ConfigurationError(f"time is {mistake}, or give a datetime")
        return cls(PositionKind.TIME, milliseconds)

    @classmethod
    def offset(cls, offset: int) -> Position:
        """The same offset in each queue."""
        return cls(PositionKind.OFFSET, check_integer(offset, "offset", lowest=0))

    @classmethod
    def last(cls, count: int) -> Position:
        """``count`` messages before the end of each queue, or its oldest message if it has fewer."""
        return cls(PositionKind.LAST, check_integer(count, "count", lowest=0))

    def __repr__(self) -> str:
        match self.kind:
            case PositionKind.EARLIEST | PositionKind.LATEST:
                return f"Position.{self.kind.value}"
            case PositionKind.AGO:
                return f"Position.time({timedelta(milliseconds=self.value)!r})"
            case _:
                return f"Position.{self.kind.value}({self.value})"


Position.earliest = Position(PositionKind.EARLIEST)
Position.latest = Position(PositionKind.LATEST)

WORDS: Mapping[str, Position] = {"earliest": Position.earliest, "latest": Position.latest}
"""The positions that have a word, by the word."""

_FORMS = {
    PositionKind.EARLIEST: "'earliest'",
    PositionKind.LATEST: "'latest'",
    PositionKind.TIME: "Position.time(...)",
    PositionKind.OFFSET: "Position.offset(...)",
    PositionKind.LAST: "Position.last(...)",
}
EVERY_KIND: frozenset[PositionKind] = frozenset(PositionKind)
"""The kinds of positions that a place without a restriction accepts."""
OF_GROUPS: frozenset[PositionKind] = EVERY_KIND - {PositionKind.OFFSET, PositionKind.LAST}
"""The kinds of positions at which a new consumer group can start."""
_TIMES = frozenset({PositionKind.TIME, PositionKind.AGO})


def check_position(
    value: object,
    name: str,
    kinds: frozenset[PositionKind] = EVERY_KIND,
    *,
    now_ms: int | None = None,
    or_else: str = "",
) -> Position:
    """Return the Position that ``value`` is or names. Upper and lower case are equal.

    Args:
        value: the argument of a user.
        name: its name.
        kinds: the accepted kinds.
        now_ms: the current time, epoch milliseconds. A duration before now becomes a time if it is given.
        or_else: what the caller accepts in addition, for errors.

    Raises ConfigurationError for anything else. It lists the accepted kinds.
    """
    position = value
    if isinstance(value, str):
        position = WORDS.get(value.lower())
    if isinstance(position, Position) and position.kind in kinds:
        if position.kind is PositionKind.AGO and now_ms is not None:
            return Position(PositionKind.TIME, max(now_ms - position.value, 0))
        return position
    *forms, last = [form for kind, form in _FORMS.items() if kind in kinds] + [or_else] * bool(or_else)
    expected = f"{', '.join(forms)} or {last}"
    if isinstance(value, str | Position):
        raise ConfigurationError(f"{name} is {value!r}; it must be {expected}")
    raise wrong_type(name, expected, value)


def check_times(start: object, end: object, *, now_ms: int) -> tuple[int | None, int | None]:
    """Return the store times between two positions in epoch milliseconds, or None for no bound.

    Args:
        start: the argument of a user: a time, or ``Position.earliest``.
        end: a time, or ``Position.latest``.
        now_ms: the current time, epoch milliseconds.

    Raises ConfigurationError for any other position.
    """
    begin = check_position(start, "start", _TIMES | {PositionKind.EARLIEST}, now_ms=now_ms)
    before = check_position(end, "end", _TIMES | {PositionKind.LATEST}, now_ms=now_ms)
    return (
        None if begin.kind is PositionKind.EARLIEST else begin.value,
        None if before.kind is PositionKind.LATEST else before.value,
    )
