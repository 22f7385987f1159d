"""A send with its attempts: the state, the remaining retries and time, and the receiver of the outcome."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from rocketmq_py.client import flow_control
from rocketmq_py.client.features import Feature
from rocketmq_py.client.proxies import not_offered
from rocketmq_py.codes import ResponseCode
from rocketmq_py.credentials import RequestSigner
from rocketmq_py.errors import Delivery, FlowControlError, ProtocolError, RocketMQError
from rocketmq_py.message import MessageQueue
from rocketmq_py.producer.destinations import Destination, check_destination
from rocketmq_py.producer.encoded_request import EncodedRequest
from rocketmq_py.producer.hooks import SendContext
from rocketmq_py.producer.outcome import Acknowledgement, Outcome, OutcomeReceiver
from rocketmq_py.producer.send_states import (
    ANSWERED,
    BACKING_OFF,
    COMPRESSING,
    DONE,
    NEXT_STATES,
    READY,
    WRITTEN,
    SendState,
)
from rocketmq_py.protocol.command import Command, Serialization
from rocketmq_py.protocol.sends import STORED, HeaderTemplate, SendAnswer, SendAnswerFields
from rocketmq_py.remoting import Connection
from rocketmq_py.remoting.answer_errors import broker_error
from rocketmq_py.remoting.back_off import BackOff
from rocketmq_py.remoting.pending_requests import Answer, PendingRequest
from rocketmq_py.selectors import QueueSelector

BACK_OFF: Final = BackOff(0.1)
"""Seconds before a retry."""
UNREACHED_BACK_OFF: Final = BackOff(0.1, longest=1.0)
"""Seconds between two attempts that reach no broker."""


class Attempt(PendingRequest):
    """One attempt of a send. It is the request in the table of its connection.

    Args:
        send: the send.
        started: the start, on trio's clock.
        deadline: its deadline, on trio's clock.
        timeout: the seconds that the error of a timeout reports.

    Attributes:
        queue: the chosen queue. None before the choice.
        template: the header template for ``queue``. None if the header must be built from its fields.
        connection: the connection that it was written to. None before.
        is_carried: whether the connection has this request. RPC hooks let it carry another one.
        on_answer: the sender's function that takes the answer and its time of arrival.
    """

    __slots__ = ("_request", "connection", "is_carried", "on_answer", "queue", "send", "started", "template")

    on_answer: Callable[[Attempt, Answer | SendAnswer, float], None]

    def __init__(self, send: Send, started: float, deadline: float, timeout: float) -> None:
        # Not super().__init__(), which would be another call for each message.
        request = send.request
        self._request: EncodedRequest = request
        self.code: int = request.header_builder.code
        self.body: bytes = request.body
        self.timeout: float = timeout
        self.deadline: float = deadline
        self.was_sent_away: bool = False
        self.takes_send_answers: bool = True
        self.send: Send = send
        self.started: float = started
        self.queue: MessageQueue | None = None
        self.template: HeaderTemplate | None = None
        self.connection: Connection | None = None
        self.is_carried: bool = False

    @property
    def fields(self) -> dict[str, str]:
        """The header's fields for the chosen queue."""
        assert self.queue is not None
        return self._request.fields(self.queue)

    def frame(self, opaque: int, serialization: Serialization, signer: RequestSigner | None) -> bytes:
        """Return the encoded request, from the template unless it is signed or has a binary header."""
        template = self.template
        if template is None or signer is not None or serialization:
            return super().frame(opaque, serialization, signer)
        request = self._request
        return template.frame(
            opaque, request.born_time_ms, request.properties, request.flag, request.system_flag, self.body
        )

    def answered(self, answer: Answer | SendAnswer) -> None:
        """Pass the answer to the sender."""
        self.on_answer(self, answer, self.channel.received_at)

    def read_answer(self, answer: Command | SendAnswer) -> Acknowledgement:
        """Return the acknowledgement in a broker's answer.

        Raises:
            BrokerError: the broker did not store the message.
            UnsupportedByBrokerError: the broker does not offer this kind of sends, such as batches.
            ProtocolError: the answer is malformed.
        """
        status = STORED.get(answer.code)
        if status is None:
            address = self.send.address
            if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise not_offered(address, self.code, answer.version)
            raise broker_error(answer.code, answer.remark, address)
        queue = self.queue
        assert queue is not None
        if isinstance(answer, SendAnswer):
            fields = answer.stored
        else:
            try:
                fields = SendAnswerFields.of(answer.fields)
            except ProtocolError as error:
                raise ProtocolError(f"malformed answer of {self.send.address} to a send: {error}") from error
        if fields.queue_id != queue.queue_id:
            queue = MessageQueue(queue.topic, queue.broker_name, fields.queue_id)
        return status, self._request.message_id, queue, fields


class Send:
    """A request on its way to a broker, from its acceptance to its outcome.

    Args:
        request: the encoded request.
        timeout: seconds for all attempts together, from the start of the first.
        try_timeout: seconds for one attempt, except the last. None for all of the time that is left.
        retries: attempts after the first.
        queue: the queue that the request must go to, or a selector. None for a free choice.
        needs: the feature that the broker must have. The broker must know this client's groups, and tell its
            version, before the request is written. None if every broker has it.
        is_large: whether the body has to be compressed first.

    Attributes:
        receiver: receives the outcome. Set before the first attempt.
        state: its state. Change it with :meth:`enter`.
        attempt: the current or the last attempt. None before the first.
        deadline: the deadline of all attempts, on trio's clock. 0.0 before the first.
        selector: the queue selector. None without one.
        fixed_queue: the queue that every attempt must use. Set when a selector has chosen it.
        failed_broker: the broker of the last failed attempt.
        failures: the number of failed attempts that have reached a broker. Only these use up the retries.
        context: the context of the hooks to call between the outcome and the receiver. None if there are
            none, or if the caller calls them.
        has_reply: whether it is in flight until its reply arrives.
        in_halves: whether each half of the batch is sent by itself after an error of
            :func:`is_sent_in_halves`. Then its messages have not failed yet.
        scope: the scope of the task that backs off.
    """

    __slots__ = (
        "_may_be_stored",
        "_retries",
        "_try_timeout",
        "_unreached",
        "attempt",
        "context",
        "deadline",
        "failed_broker",
        "failures",
        "fixed_queue",
        "has_reply",
        "in_halves",
        "needs",
        "receiver",
        "request",
        "scope",
        "selector",
        "state",
        "timeout",
    )

    receiver: OutcomeReceiver

    def __init__(
        self,
        request: EncodedRequest,
        timeout: float,
        try_timeout: float | None,
        retries: int,
        queue: Destination | None,
        needs: Feature | None = None,
        *,
        is_large: bool = False,
    ) -> None:
        self.request: EncodedRequest = request
        self.timeout: float = timeout
        self._try_timeout = try_timeout
        self._retries = retries
        self.needs: Feature | None = needs
        self.state: SendState = COMPRESSING if is_large else READY
        self.attempt: Attempt | None = None
        self.deadline: float = 0.0
        self.selector: QueueSelector | None = None
        self.fixed_queue: MessageQueue | None = None
        self.failed_broker: str | None = None
        self.failures: int = 0
        self._unreached: int = 0  # failed attempts that have reached no broker
        self._may_be_stored: bool = False  # by an earlier attempt
        self.context: SendContext | None = None
        self.has_reply: bool = False
        self.in_halves: bool = False
        self.scope: trio.CancelScope | None = None
        if queue is not None:
            self._set_destination(queue)

    def _set_destination(self, queue: Destination) -> None:
        check_destination(queue, self.request.topic)
        if isinstance(queue, MessageQueue):
            self.fixed_queue = queue
        else:
            self.selector = queue

    def enter(self, state: SendState) -> None:
        """Change the state, as NEXT_STATES allows."""
        assert state in NEXT_STATES[self.state], f"a send cannot go from {self.state!r} to {state!r}"
        self.state = state

    @property
    def message_id(self) -> str:
        """The id of the message, or the comma-separated ids of a batch."""
        return self.request.message_id

    @property
    def queue(self) -> MessageQueue | None:
        """The queue of the last attempt. None before its choice."""
        return None if self.attempt is None else self.attempt.queue

    @property
    def address(self) -> str:
        """The address of the broker that the last attempt was written to. Empty if it was not written."""
        if self.attempt is None or self.attempt.connection is None:
            return ""
        return self.attempt.connection.address

    @property
    def may_have_arrived(self) -> bool:
        """Whether a broker may have received the message, while the outcome is unknown."""
        return self.state is WRITTEN or self._may_be_stored

    @property
    def remaining(self) -> float:
        """Seconds left for all attempts together."""
        return max(self.deadline - trio.current_time(), 0.0)

    def start_attempt(self, now: float) -> Attempt:
        """Make the next attempt: set its deadline, and with the first one the deadline of all."""
        deadline = self.deadline
        if not deadline:
            self.deadline = deadline = now + self.timeout
        timeout = deadline - now
        if self._try_timeout is not None and self.failures < self._retries:
            timeout = self._try_timeout
            deadline = min(deadline, now + timeout)
        self.attempt = attempt = Attempt(self, now, deadline, timeout)
        return attempt

    def end(self) -> None:
        """Enter the state DONE, with the outcome."""
        self.enter(DONE)
        if self.attempt is not None:
            del self.attempt.send  # it is a reference cycle

    def answered(self, outcome: Outcome) -> None:
        """Record the outcome of the last attempt. It may be called again."""
        if self.state is not ANSWERED:
            self.enter(ANSWERED)
            self._may_be_stored = self._may_be_stored or not isinstance(outcome, RocketMQError)

    def attempt_failed(self, error: RocketMQError) -> None:
        """Record that the attempt has failed. A task has to back off."""
        self.enter(BACKING_OFF)
        if error.delivery is Delivery.UNKNOWN:
            self._may_be_stored = True

    def back_off(self, error: RocketMQError, *, is_paused: bool) -> float | None:
        """Return the seconds before the next attempt, or None if the one that failed was the last.

        ``is_paused`` is False if the next attempt goes to another broker or queue, and so follows at once.

        An attempt that has reached no broker does not use up the retries. The next one follows as long as
        there is time. After the last attempt, ``error`` is the error to raise. Its ``delivery`` is UNKNOWN if
        any attempt may have reached a broker.
        """
        queue = self.queue
        if queue is not None:
            self.failed_broker = queue.broker_name
        is_final = not error.retriable
        if error._queue_gone:
            is_final = self.fixed_queue is not None and self.selector is None
            if self.selector is not None:
                self.fixed_queue = None  # the selector chooses one of the queues that are left
        if error._not_reached:
            self._unreached += 1
            back_off = min(UNREACHED_BACK_OFF.after(self._unreached), self.remaining)
            may_retry = back_off > 0
        else:
            self.failures += 1
            is_limited = isinstance(error, FlowControlError)
            back_off = (flow_control.BACK_OFF if is_limited else BACK_OFF).after(self.failures)
            pause = back_off if is_paused else 0.0
            may_retry = not is_final and self.failures <= self._retries and pause < self.remaining
        if may_retry:
            return back_off
        self.end_attempts(error)
        return None

    def end_attempts(self, error: RocketMQError) -> None:
        """Make ``error`` that of the send: add the number of failed attempts, and set its ``delivery``."""
        if self._may_be_stored:
            error.delivery = Delivery.UNKNOWN
        if self.failures > 1:
            error.add_note(f"sending to topic {self.request.topic!r} failed after {self.failures} attempts")
