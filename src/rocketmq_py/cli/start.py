"""Where ``tail`` starts to read: the values of its option ``-o``."""

from __future__ import annotations

import enum
import re
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from rocketmq_py.consumer import StartPosition

_LARGEST = 2**63 - 1


class Position(enum.Enum):
    """What the number of an offset counts from."""

    BEGINNING = "beginning"
    END = "end"
    OFFSET = "offset"
    LAST = "last"
    TIMESTAMP = "timestamp"


@attrs.frozen
class Offset:
    """One value of ``-o``: a position, for the last three of them a number, perhaps a time to end at."""

    position: Position
    number: int = 0
    end_ms: int | None = None

    def start(self) -> StartPosition:
        """Return what the library calls it."""
        from rocketmq_py.consumer import StartPosition

        match self.position:
            case Position.BEGINNING:
                return StartPosition.BEGINNING
            case Position.END:
                return StartPosition.END
            case Position.OFFSET:
                return StartPosition.offset(self.number)
            case Position.LAST:
                return StartPosition.last(self.number)
            case Position.TIMESTAMP:
                return StartPosition.at(self.number)


def parse_offset(text: str) -> Offset:
    """Return the offset that ``beginning``, ``end``, ``N``, ``-N``, ``@TIMESTAMP_MS`` or ``@T1..@T2`` names.

    Raises ValueError for anything else.
    """
    if text in (Position.BEGINNING.value, Position.END.value):
        return Offset(Position(text))
    if found := re.fullmatch(r"@([0-9]{1,18})\.\.@([0-9]{1,18})", text):
        begin_ms, end_ms = int(found[1]), int(found[2])
        if begin_ms > end_ms:
            raise ValueError(f"{text!r} ends before it begins")
        return Offset(Position.TIMESTAMP, begin_ms, end_ms)
    found = re.fullmatch(r"([-@]?)([0-9]{1,19})", text)
    number = int(found[2]) if found else -1
    if found is None or number > _LARGEST or (found[1] == "-" and number == 0):
        raise ValueError(f"{text!r} is none of beginning, end, N, -N and @TIMESTAMP_MS, nor a range @T1..@T2")
    position = {"": Position.OFFSET, "-": Position.LAST, "@": Position.TIMESTAMP}[found[1]]
    return Offset(position, number)
