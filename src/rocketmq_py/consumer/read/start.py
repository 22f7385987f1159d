"""Where a reader begins in each queue."""

from __future__ import annotations

import enum
from typing import ClassVar, Self

import attrs

from rocketmq_py.arguments import check_instance, not_negative
from rocketmq_py.errors import ConfigurationError


class StartKind(enum.Enum):
    """What ``Start.value`` means."""

    BEGINNING = "beginning"
    END = "end"
    TIME = "time"
    OFFSET = "offset"
    LAST = "last"


@attrs.frozen
class Start:
    """Where a reader begins: ``Start.BEGINNING``, ``Start.END``, or what the class methods make.

    Attributes:
        kind: see StartKind.
        value: the time, offset or number that goes with it.
    """

    BEGINNING: ClassVar[Start]
    """With the oldest message that the broker has."""
    END: ClassVar[Start]
    """With what is sent from now on."""

    kind: StartKind
    value: int = attrs.field(default=0, validator=not_negative)

    @classmethod
    def of(cls, start: Start | str) -> Start:
        """Return the start that ``"beginning"`` or ``"end"`` names; a Start as it is.

        Raises ConfigurationError for anything else.
        """
        if isinstance(start, str):
            words = {one.kind.value: one for one in (cls.BEGINNING, cls.END)}
            if start.lower() not in words:
                raise ConfigurationError(f"start is {start!r}; it must be 'beginning', 'end' or a Start")
            return words[start.lower()]
        return check_instance(start, "start", Start)

    @classmethod
    def at(cls, timestamp_ms: int) -> Self:
        """Begin with the first message stored at a time (epoch milliseconds) or later."""
        return cls(StartKind.TIME, timestamp_ms)

    @classmethod
    def offset(cls, offset: int) -> Self:
        """Begin at this offset in every queue; one that a queue does not have is corrected by the broker."""
        return cls(StartKind.OFFSET, offset)

    @classmethod
    def last(cls, count: int) -> Self:
        """Begin so many messages before the end of every queue."""
        return cls(StartKind.LAST, count)


Start.BEGINNING = Start(StartKind.BEGINNING)
Start.END = Start(StartKind.END)
