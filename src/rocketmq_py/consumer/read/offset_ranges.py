"""Ranges of offsets, and the results of pulling them."""

from __future__ import annotations

import attrs

from rocketmq_py.arguments import check_instance, check_integer
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.message import MessageQueue, queue_name


@attrs.frozen
class OffsetRange:
    """The offsets of one queue from ``start`` up to, but not including, ``end``.

    Raises:
        ConfigurationError: ``start`` is negative, or ``end`` is below ``start``.
    """

    queue: MessageQueue
    start: int
    end: int

    def __attrs_post_init__(self) -> None:
        check_instance(self.queue, "queue", MessageQueue)
        check_integer(self.start, "start")
        check_integer(self.end, "end")
        if not 0 <= self.start <= self.end:
            raise ConfigurationError(
                f"invalid range of {queue_name(self.queue)}, {self.start} to {self.end}: start must be 0 or "
                "more, and end must not be below start"
            )


@attrs.frozen
class PullResult:
    """The undecoded result of one pull from an OffsetRange.

    Attributes:
        range: the range.
        body: the concatenated stored messages. It may contain messages outside of the range and, with a
            subscription to tags, messages whose tag only has the same hash. The reader has to skip them.
        first: the first offset of this result.
        next: the offset after this result, at most the end of the range.
        lost: the lost offsets, as (first, next). They lie before the queue's first message or after its end,
            or the queue was deleted. The result has no messages then. None if no offset is lost.
        offset_delta: to be added to the offsets stored in the messages (static topics of 5.x, otherwise 0).
    """

    range: OffsetRange
    body: bytes
    first: int
    next: int
    lost: tuple[int, int] | None = None
    offset_delta: int = 0
