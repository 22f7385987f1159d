"""A request that was sent and has no answer yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from rocketmq_py.errors import Delivery, RocketMQError
from rocketmq_py.protocol.command import Command

if TYPE_CHECKING:
    from rocketmq_py.remoting.connection import Connection

Answer: TypeAlias = Command | RocketMQError
"""What comes of a request."""


class PendingRequest:
    """A request that waits for its answer. ``on_answer`` is called exactly once, unless it is forgotten."""

    __slots__ = ("connection", "on_answer", "opaque", "place", "tick", "timeout", "turn")

    def __init__(
        self, connection: Connection, opaque: int, timeout: float, on_answer: Callable[[Answer], None]
    ) -> None:
        self.connection = connection
        self.opaque = opaque
        self.timeout = timeout
        self.on_answer = on_answer
        self.turn = connection.writer.turn
        self.place = connection.writer.next_place
        self.tick = 0

    @property
    def delivery(self) -> Delivery:
        """Whether any byte of the request can have left this process."""
        return Delivery.UNKNOWN if self.turn < self.connection.writer.turn else Delivery.NOT_SENT

    def take_back(self) -> None:
        """Do not send it any more: what is said to be not sent is tried elsewhere, or given up."""
        self.connection.writer.take_back(self.turn, self.place)

    def expire(self) -> None:
        """Answer with a time-out (called by Deadlines)."""
        self.connection.time_out(self)

    def forget(self) -> None:
        """Stop waiting: an answer that still comes is dropped."""
        self.connection.forget(self)
