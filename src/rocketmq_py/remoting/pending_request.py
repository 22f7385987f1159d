"""A request that was sent and has no answer yet."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

import trio

from rocketmq_py.credentials import Credentials
from rocketmq_py.errors import Delivery, RocketMQError
from rocketmq_py.protocol.command import Command, Serialization, encode_request
from rocketmq_py.protocol.send_answer import SendAnswer
from rocketmq_py.protocol.signature import signed

if TYPE_CHECKING:
    from rocketmq_py.remoting.channel import Channel

Answer: TypeAlias = Command | RocketMQError
"""What comes of a request."""


class PendingRequest:
    """A request that waits for its answer. :meth:`answered` is called exactly once, unless it is forgotten.

    Args:
        code: a RequestCode.
        fields: the header's fields, not signed.
        body: the body.
        timeout: the seconds that a time-out's error speaks of.

    Attributes:
        channel: what carries it at present; a peer that goes away has another connection carry it.
        was_sent_away: whether a peer has answered GO_AWAY to it already.
        opaque, turn, place: its number on its connection, and where the writer has its frame.
        deadline: trio's time at which it counts as timed out.
        task: who waits for the answer, where somebody does.
        takes_send_answers: whether it gets the answer to a send as what that is, and not as a Command.
    """

    # There is one for every message: slots are looked up in less time than attributes with defaults.
    __slots__ = (
        "_answer",
        "_ext_fields",
        "body",
        "channel",
        "code",
        "deadline",
        "opaque",
        "place",
        "takes_send_answers",
        "task",
        "tick",
        "timeout",
        "turn",
        "was_sent_away",
    )

    # Set by the channel that carries it and by Deadlines, before anybody asks.
    channel: Channel
    opaque: int
    turn: int
    place: int
    tick: int

    def __init__(self, code: int, fields: Mapping[str, str], body: bytes, timeout: float) -> None:
        self.code: int = code
        self.body: bytes = body
        self.timeout: float = timeout
        self.deadline: float = math.inf
        self.was_sent_away: bool = False
        self.takes_send_answers: bool = False
        self.task: trio.lowlevel.Task | None = None
        self._answer: Answer | SendAnswer | None = None
        self._ext_fields = fields

    @property
    def fields(self) -> Mapping[str, str]:
        """The header's fields, not signed."""
        return self._ext_fields

    def frame(self, opaque: int, serialization: Serialization, credentials: Credentials | None) -> bytes:
        """Return its bytes under the number ``opaque``, signed if there are credentials.

        Raises InvalidMessageError where a text cannot be written as UTF-8.
        """
        fields = self.fields
        if credentials is not None:
            fields = signed(fields, self.body, credentials)
        return encode_request(self.code, opaque, fields, self.body, serialization=serialization)

    async def wait(self) -> Command | SendAnswer:
        """Wait for the answer, and return or raise it. When cancelled, it is forgotten.

        To be called in the same step of the task as what sends it. It is a SendAnswer only where those are
        taken.
        """
        self.task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._abort)
        answer = self._answer
        self.task = self._answer = None
        if isinstance(answer, RocketMQError):
            raise answer
        assert answer is not None
        return answer

    def answered(self, answer: Answer | SendAnswer) -> None:
        """Take what came of it; runs in another task, and neither blocks nor raises."""
        assert self.task is not None
        self._answer = answer
        trio.lowlevel.reschedule(self.task)

    @property
    def delivery(self) -> Delivery:
        """Whether any byte of the request can have left this process."""
        return Delivery.UNKNOWN if self.channel.has_written(self) else Delivery.NOT_SENT

    def expire(self) -> None:
        """Answer with a time-out, where it is watched by itself (called by Deadlines)."""
        self.channel.time_out(self)

    def forget(self) -> None:
        """Stop waiting: an answer that still comes is dropped."""
        self.channel.forget(self)

    def _abort(self, _: object) -> trio.lowlevel.Abort:
        self.task = None
        self.forget()
        return trio.lowlevel.Abort.SUCCEEDED


class SubmittedRequest(PendingRequest):
    """One that nobody waits for: ``on_answer`` gets the answer."""

    __slots__ = ("_on_answer",)

    def __init__(
        self,
        code: int,
        fields: Mapping[str, str],
        body: bytes,
        timeout: float,
        on_answer: Callable[[Answer], None],
    ) -> None:
        super().__init__(code, fields, body, timeout)
        self._on_answer = on_answer

    def answered(self, answer: Answer | SendAnswer) -> None:
        """Hand the answer on."""
        assert not isinstance(answer, SendAnswer)
        self._on_answer(answer)
