"""Spans of queues, and what is pulled of them."""

from __future__ import annotations

import attrs

from rocketmq_py.arguments import check_instance, check_integer
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.message import MessageQueue, queue_name


@attrs.frozen
class OffsetRange:
    """Offsets of one queue, from ``start`` to before ``end``."""

    queue: MessageQueue
    start: int
    end: int

    def __attrs_post_init__(self) -> None:
        check_instance(self.queue, "queue", MessageQueue)
        check_integer(self.start, "start")
        check_integer(self.end, "end")
        if not 0 <= self.start <= self.end:
            raise ConfigurationError(
                f"a span of {queue_name(self.queue)} from {self.start} to {self.end}: its start must be 0 or "
                "more, and its end not below its start"
            )


@attrs.frozen
class PullResult:
    """What one pull brought of a span.

    Attributes:
        span: the span.
        body: stored messages, one behind the other. Some may lie outside of the span, and where tags were
            asked for some may only share a tag's hash: whoever reads them drops those.
        first: the offset that was asked for.
        next: the offset that comes after the chunk, at most the span's end.
        lost: the first and the last but one of offsets in the span that the broker has no more: they lie
            below its minimum, beyond its end, or the queue is gone. None where nothing is lost. The chunk
            has no messages then.
        offset_delta: what is to be added to the offsets that are stored in the messages (static topics
            of 5.x; 0 for all others).
    """

    span: OffsetRange
    body: bytes
    first: int
    next: int
    lost: tuple[int, int] | None = None
    offset_delta: int = 0
