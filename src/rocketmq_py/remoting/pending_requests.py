"""Requests that were sent and have no answer yet, and the table of them that each connection keeps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

import trio

from rocketmq_py.credentials import RequestSigner
from rocketmq_py.errors import Delivery, RocketMQError
from rocketmq_py.protocol.command import Command, Serialization, encode_request
from rocketmq_py.protocol.sends import SendAnswer
from rocketmq_py.remoting.deadlines import UNWATCHED, Deadlines

Answer: TypeAlias = Command | RocketMQError
"""The result of a request: the peer's answer, or the error that took its place."""

_ROUNDING_ERROR = 1e-6
"""Seconds by which a tick of :class:`Deadlines` may come before the deadline that it stands for."""


class Carrier(Protocol):
    """The part of a channel that its requests use; see ``rocketmq_py.remoting.base_channel.Channel``."""

    received_at: float

    def has_written(self, pending: PendingRequest) -> bool:
        """Return whether any byte of the request may have left this process."""

    def forget(self, pending: PendingRequest) -> None:
        """Stop waiting for the answer, and take back the request if it has not been written."""

    def time_out(self, pending: PendingRequest) -> None:
        """Answer the request with RequestTimeoutError."""


class PendingRequest:
    """A request that waits for its answer. :meth:`answered` is called exactly once, unless it is forgotten.

    Args:
        code: a RequestCode.
        fields: the header's fields, unsigned.
        body: the body.
        timeout: the seconds that a timeout error reports. ``deadline`` decides when it is raised.

    Attributes:
        channel: the connection that carries the request, or the dial that it waits for. A connection that is
            going away passes the request to another one.
        was_sent_away: whether a peer has already answered GO_AWAY to it.
        opaque: its number on the connection.
        buffer_number: the number of the writer's buffer that its frame was put into.
        frame_index: the frame's index in that buffer.
        deadline: trio's time at which it times out.
        task: the task that waits for the answer, if any.
        takes_send_answers: whether :meth:`answered` accepts a SendAnswer. Otherwise it gets a Command.
    """

    # Every message makes one. Slots are read faster than attributes in a dictionary.
    __slots__ = (
        "_answer",
        "_ext_fields",
        "body",
        "buffer_number",
        "channel",
        "code",
        "deadline",
        "frame_index",
        "opaque",
        "takes_send_answers",
        "task",
        "tick",
        "timeout",
        "was_sent_away",
    )

    # Set by the channel that carries the request, and ``tick`` by Deadlines, before they are read.
    channel: Carrier
    opaque: int
    buffer_number: int
    frame_index: int
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
        """The header's fields, unsigned."""
        return self._ext_fields

    def frame(self, opaque: int, serialization: Serialization, signer: RequestSigner | None) -> bytes:
        """Return the encoded request with the number ``opaque``, completed by the signer if there is one.

        Raises InvalidMessageError if a text cannot be encoded as UTF-8.
        """
        fields = self.fields
        if signer is not None:
            fields = signer.complete(fields, self.body)
        return encode_request(self.code, opaque, fields, self.body, serialization=serialization)

    async def wait(self) -> Command | SendAnswer:
        """Wait for the answer. Return it, or raise the error that took its place.

        Call it right after sending, with no ``await`` in between: the answer must find the task waiting. The
        result is a SendAnswer only if ``takes_send_answers`` is set. A cancellation forgets the request.
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
        """Deliver the answer to the waiting task. Called by another task: neither blocks nor raises."""
        assert self.task is not None
        self._answer = answer
        trio.lowlevel.reschedule(self.task)

    @property
    def delivery(self) -> Delivery:
        """Whether the request may have reached the peer: UNKNOWN if a byte of it may have been written."""
        return Delivery.UNKNOWN if self.channel.has_written(self) else Delivery.NOT_SENT

    def expire(self) -> None:
        """Time the request out. Deadlines calls this for requests outside of a table of PendingRequests."""
        self.channel.time_out(self)

    def forget(self) -> None:
        """Stop waiting. An answer that still arrives is dropped."""
        self.channel.forget(self)

    def _abort(self, _: object) -> trio.lowlevel.Abort:
        self.task = None
        self.forget()
        return trio.lowlevel.Abort.SUCCEEDED


class CallbackRequest(PendingRequest):
    """A pending request that passes its answer to ``on_answer`` instead of a waiting task."""

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
        """Pass the answer to ``on_answer``."""
        assert not isinstance(answer, SendAnswer)
        self._on_answer(answer)


class PendingRequests:
    """The pending requests of one connection: finds the request of an answer, and times out the overdue ones.

    Deadlines watches the whole table at its earliest deadline, not each request. A request that is answered
    in time, as nearly all are, only pays one comparison.

    Args:
        deadlines: watches the earliest deadline.

    Attributes:
        by_opaque: the requests. The caller adds a request itself, and calls :meth:`watch` first if its
            deadline is before ``watched``.
        watched: the time at which overdue requests are looked for, or ``math.inf``. Never later than the
            earliest deadline.
        tick: set by Deadlines.
    """

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self.by_opaque: dict[int, PendingRequest] = {}
        self.watched: float = math.inf
        self.tick = UNWATCHED

    def watch(self, deadline: float) -> None:
        """Look for overdue requests at ``deadline``. Raises ValueError for NaN."""
        if math.isnan(deadline):
            raise ValueError("a deadline cannot be NaN")
        self._deadlines.remove(self)
        self._deadlines.add(self, deadline)
        self.watched = deadline

    def expire(self) -> None:
        """Time out the overdue requests, and watch the earliest deadline of the others."""
        now = trio.current_time() + _ROUNDING_ERROR
        self.watched = math.inf
        for overdue in [pending for pending in self.by_opaque.values() if pending.deadline <= now]:
            overdue.expire()  # its channel removes it from the table
        earliest = min((pending.deadline for pending in self.by_opaque.values()), default=math.inf)
        if earliest < self.watched:
            self.watch(earliest)

    def take_all(self) -> list[PendingRequest]:
        """Remove all requests and return them."""
        self._deadlines.remove(self)
        pending_requests = list(self.by_opaque.values())
        self.by_opaque.clear()
        return pending_requests
