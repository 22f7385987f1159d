"""The position at which a group starts to consume a lite topic."""

from __future__ import annotations

from typing import ClassVar, Self

import attrs

from rocketmq_py.arguments import check_instance, not_negative
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.protocol.bodies import OffsetOption, OffsetOptionType

_FIRST_MESSAGE, _END = 1, 2
"""Java: ``OffsetOption.POLICY_MIN_VALUE``, ``POLICY_MAX_VALUE``."""


@attrs.frozen
class LiteStart:
    """The position at which a group starts in a lite topic: FIRST, END, or the result of a class method.

    It replaces the position at which the group stopped. Java: ``OffsetOption``.

    Attributes:
        kind: the meaning of ``value`` on the wire: POLICY, OFFSET or TAIL_N.
        value: the policy, offset or number of messages.
    """

    FIRST: ClassVar[LiteStart]
    """The oldest message of the lite topic."""
    END: ClassVar[LiteStart]
    """The next message that is sent."""

    kind: OffsetOptionType = attrs.field(converter=OffsetOptionType)
    value: int = attrs.field(validator=not_negative)

    @classmethod
    def of(cls, start: LiteStart | str) -> LiteStart:
        """Convert ``"first"`` or ``"end"`` to a LiteStart. A LiteStart is returned unchanged.

        Raises ConfigurationError for other values.
        """
        if isinstance(start, str):
            if start.lower() not in _WORDS:
                raise ConfigurationError(f"start is {start!r}; it must be 'first', 'end' or a LiteStart")
            return _WORDS[start.lower()]
        return check_instance(start, "start", LiteStart)

    @classmethod
    def at(cls, offset: int) -> Self:
        """Start at an offset of the lite topic."""
        return cls(OffsetOptionType.OFFSET, offset)

    @classmethod
    def back(cls, count: int) -> Self:
        """Start ``count`` messages before the group's position. Has no effect for a group without one."""
        return cls(OffsetOptionType.TAIL_N, count)

    def to_option(self) -> OffsetOption:
        """Return the position as it goes on the wire."""
        return OffsetOption(type=self.kind, value=self.value)


LiteStart.FIRST = LiteStart(OffsetOptionType.POLICY, _FIRST_MESSAGE)
LiteStart.END = LiteStart(OffsetOptionType.POLICY, _END)
_WORDS = {"first": LiteStart.FIRST, "end": LiteStart.END}
