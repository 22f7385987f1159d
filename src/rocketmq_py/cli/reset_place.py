"""Where ``group reset`` sets a group: the values of its options ``--to`` and ``--file``."""

from __future__ import annotations

import re
from typing import IO, TYPE_CHECKING, Annotated, Any

import attrs
import click

if TYPE_CHECKING:
    from rocketmq_py.admin import ResetTo
    from rocketmq_py.message import MessageQueue

_LARGEST = 2**63 - 1


@attrs.frozen
class Place:
    """One value of ``--to``: earliest or latest, a time or an offset."""

    word: str
    number: int = 0

    def reset_to(self) -> ResetTo:
        """Return what the library calls it."""
        from rocketmq_py.admin import ResetTo

        match self.word:
            case "earliest":
                return ResetTo.earliest()
            case "latest":
                return ResetTo.latest()
            case "time":
                return ResetTo.at(self.number)
            case _:
                return ResetTo.offset(self.number)


def parse_place(text: str) -> Place:
    """Return the place that ``earliest``, ``latest``, ``@MS`` or ``OFFSET`` names; else raise ValueError."""
    if text in ("earliest", "latest"):
        return Place(text)
    found = re.fullmatch(r"(@?)([0-9]{1,19})", text)
    if found is None or int(found[2]) > _LARGEST:
        raise ValueError(f"{text!r} is none of earliest, latest, @MS and OFFSET")
    return Place("time" if found[1] else "offset", int(found[2]))


def read_offsets(file: IO[bytes], topic: str) -> dict[MessageQueue, int]:
    """Return the offsets in a file of JSON lines; other members of a line are left alone.

    Raises click.UsageError for a line that is none.
    """
    import msgspec

    from rocketmq_py.message import MessageQueue

    number_kind = Annotated[int, msgspec.Meta(ge=0)]
    kind = msgspec.defstruct("Line", [("broker", str), ("queue", number_kind), ("offset", number_kind)])
    offsets = {}
    for number, text in enumerate(file, 1):
        if text.strip():
            try:
                line: Any = msgspec.json.decode(text, type=kind)
            except msgspec.MsgspecError as error:
                raise click.UsageError(f"line {number} of the offsets: {error}") from None
            offsets[MessageQueue(topic, line.broker, line.queue)] = line.offset
    return offsets
