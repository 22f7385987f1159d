"""The position at which a reader starts in each queue."""

from __future__ import annotations

import enum
from typing import ClassVar, Self

import attrs

from rocketmq_py.arguments import check_instance, not_negative
from rocketmq_py.errors import ConfigurationError


class StartPositionKind(enum.Enum):
    """The kind of a StartPosition."""

    BEGINNING = "beginning"
    END = "end"
    TIME = "time"
    OFFSET = "offset"
    LAST = "last"


@attrs.frozen
class StartPosition:
    """The position at which a reader starts: BEGINNING, END, or the result of a class method.

    Attributes:
        kind: the kind of position.
        value: its time, offset or number of messages.
    """

    BEGINNING: ClassVar[StartPosition]
    """The oldest message that the broker has."""
    END: ClassVar[StartPosition]
    """The next message that is sent."""

    kind: StartPositionKind
    value: int = attrs.field(default=0, validator=not_negative)

    @classmethod
    def of(cls, start: StartPosition | str) -> StartPosition:
        """Convert ``"beginning"`` or ``"end"`` to a StartPosition. A StartPosition is returned unchanged.

        Raises ConfigurationError for other values.
        """
        if isinstance(start, str):
            words = {one.kind.value: one for one in (cls.BEGINNING, cls.END)}
            if start.lower() not in words:
                raise ConfigurationError(
                    f"start is {start!r}; it must be 'beginning', 'end' or a StartPosition"
                )
            return words[start.lower()]
        return check_instance(start, "start", StartPosition)

    @classmethod
    def at(cls, timestamp_ms: int) -> Self:
        """Start at the first message stored at or after a time (epoch milliseconds)."""
        return cls(StartPositionKind.TIME, timestamp_ms)

    @classmethod
    def offset(cls, offset: int) -> Self:
        """Start at this offset in every queue. The broker corrects an offset outside of a queue."""
        return cls(StartPositionKind.OFFSET, offset)

    @classmethod
    def last(cls, count: int) -> Self:
        """Start ``count`` messages before the end of every queue."""
        return cls(StartPositionKind.LAST, count)


StartPosition.BEGINNING = StartPosition(StartPositionKind.BEGINNING)
StartPosition.END = StartPosition(StartPositionKind.END)
