"""Where a reader begins in each queue."""

from __future__ import annotations

import enum
from typing import ClassVar, Self

import attrs

from rocketmq_py.arguments import check_instance, not_negative
from rocketmq_py.errors import ConfigurationError


class StartPositionKind(enum.Enum):
    """What ``StartPosition.value`` means."""

    BEGINNING = "beginning"
    END = "end"
    TIME = "time"
    OFFSET = "offset"
    LAST = "last"


@attrs.frozen
class StartPosition:
    """The position at which a reader begins: BEGINNING, END, or one that a class method returns.

    Attributes:
        kind: see StartPositionKind.
        value: the time, offset or number that goes with it.
    """

    BEGINNING: ClassVar[StartPosition]
    """With the oldest message that the broker has."""
    END: ClassVar[StartPosition]
    """With what is sent from now on."""

    kind: StartPositionKind
    value: int = attrs.field(default=0, validator=not_negative)

    @classmethod
    def of(cls, start: StartPosition | str) -> StartPosition:
        """Return the start that ``"beginning"`` or ``"end"`` names; a Start as it is.

        Raises ConfigurationError for anything else.
        """
        if isinstance(start, str):
            words = {one.kind.value: one for one in (cls.BEGINNING, cls.END)}
            if start.lower() not in words:
                raise ConfigurationError(f"start is {start!r}; it must be 'beginning', 'end' or a Start")
            return words[start.lower()]
        return check_instance(start, "start", StartPosition)

    @classmethod
    def at(cls, timestamp_ms: int) -> Self:
        """Begin with the first message stored at a time (epoch milliseconds) or later."""
        return cls(StartPositionKind.TIME, timestamp_ms)

    @classmethod
    def offset(cls, offset: int) -> Self:
        """Begin at this offset in every queue; one that a queue does not have is corrected by the broker."""
        return cls(StartPositionKind.OFFSET, offset)

    @classmethod
    def last(cls, count: int) -> Self:
        """Begin so many messages before the end of every queue."""
        return cls(StartPositionKind.LAST, count)


StartPosition.BEGINNING = StartPosition(StartPositionKind.BEGINNING)
StartPosition.END = StartPosition(StartPositionKind.END)
