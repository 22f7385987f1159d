"""A request that was sent and has no answer yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from rocketmq_py.errors import Delivery, RocketMQError
from rocketmq_py.protocol.command import Command

if TYPE_CHECKING:
    from rocketmq_py.remoting.channel import Channel

Answer: TypeAlias = Command | RocketMQError
"""What comes of a request."""


class PendingRequest:
    """A request that waits for its answer. ``on_answer`` is called exactly once, unless it is forgotten.

    Attributes:
        channel: what carries it at present; a peer that goes away has another connection carry it.
        was_sent_away: whether a peer has answered GO_AWAY to it already.
        opaque, turn, place: its number on its connection, and where the writer has its frame.
    """

    __slots__ = (
        "body",
        "channel",
        "code",
        "fields",
        "on_answer",
        "opaque",
        "place",
        "tick",
        "timeout",
        "turn",
        "was_sent_away",
    )

    # Set by the channel that carries it and by Deadlines, before anybody asks.
    opaque: int
    turn: int
    place: int
    tick: int

    def __init__(
        self,
        channel: Channel,
        code: int,
        fields: Mapping[str, str],
        body: bytes,
        timeout: float,
        on_answer: Callable[[Answer], None],
    ) -> None:
        self.channel = channel
        self.code = code
        self.fields = fields
        self.body = body
        self.timeout = timeout
        self.on_answer = on_answer
        self.was_sent_away = False

    @property
    def delivery(self) -> Delivery:
        """Whether any byte of the request can have left this process."""
        return Delivery.UNKNOWN if self.channel.has_written(self) else Delivery.NOT_SENT

    def expire(self) -> None:
        """Answer with a time-out (called by Deadlines)."""
        self.channel.time_out(self)

    def forget(self) -> None:
        """Stop waiting: an answer that still comes is dropped."""
        self.channel.forget(self)
