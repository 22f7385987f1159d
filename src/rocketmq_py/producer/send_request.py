"""One request to store messages on its way: the tries that it has left, and what is known about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

import trio

from rocketmq_py.credentials import Credentials
from rocketmq_py.errors import BrokerError, Delivery, ProtocolError, RocketMQError
from rocketmq_py.message import Message, MessageQueue, SendResult, SendStatus
from rocketmq_py.producer.selectors import QueueSelector, check_destination
from rocketmq_py.protocol.command import Command, Serialization
from rocketmq_py.protocol.headers import stored_place
from rocketmq_py.protocol.send_request import STORED, HeaderTemplate
from rocketmq_py.protocol.trace import DEFAULT_REGION
from rocketmq_py.protocol.typed_sends import SendAnswer, SendAnswerFields
from rocketmq_py.remoting.pending_requests import Answer, PendingRequest

if TYPE_CHECKING:
    from rocketmq_py.producer.lanes import TopicForm
    from rocketmq_py.producer.pending import Outstanding

FIRST_BACK_OFF = 0.1
"""Seconds before the second try, doubled for each further one, where trying at once would be in vain."""

Stored: TypeAlias = tuple[SendStatus, str, str, MessageQueue, int, Mapping[str, str] | SendAnswerFields]
"""A broker's answer as :func:`send_result` takes it: the result is made when it is looked at."""

Outcome: TypeAlias = Stored | SendResult | RocketMQError

Destination: TypeAlias = MessageQueue | QueueSelector
"""Where a message must go: to this queue, or to the one that this chooses."""


class NotStoreOKError(RocketMQError):
    """Ends a try that stored the message, but not as safely as the broker should; never reaches users."""

    retriable = True
    delivery = Delivery.UNKNOWN


def send_result(outcome: Stored | SendResult) -> SendResult:
    """Return the result of a send that succeeded."""
    if isinstance(outcome, SendResult):
        return outcome
    status, message_id, offset_message_id, queue, offset, fields = outcome
    if type(fields) is SendAnswerFields:
        return SendResult(
            status,
            message_id,
            offset_message_id,
            queue,
            offset,
            fields.transaction_id,
            fields.recall_handle,
            fields.region or DEFAULT_REGION,
            fields.trace_on != "false",
        )
    assert not isinstance(fields, SendAnswerFields)
    return SendResult(
        status,
        message_id,
        offset_message_id,
        queue,
        offset,
        fields.get("transactionId"),
        fields.get("recallHandle"),
        fields.get("MSG_REGION") or DEFAULT_REGION,
        fields.get("TRACE_ON") != "false",
    )


class SendRequest(PendingRequest):
    """A request with one message or a batch, and the tries and the time that are left.

    It is what waits for the answer of each of its tries, too: there is one object for a send, and no other.

    Args:
        form: what its header has in common with others.
        messages: what is sent.
        body: the request's body; it may be large and is never copied.
        properties: the wire form of the properties in its header.
        message_id: the id of the message; of a batch all of them, with commas between.
        born_time_ms: when it was made, epoch milliseconds.
        timeout: seconds for all tries together, from the first one's beginning on.
        retries: tries after the first.
        queue: the only queue that it may go to, what chooses that, or None for a free choice.
        system_flag: RocketMQ's own bits.

    Attributes:
        send_timeout, send_deadline: seconds for all tries together, and when they are over, on trio's clock;
            ``timeout`` and ``deadline`` are those of a try.
        template: what writes its header for the queue that it is aimed at; None where only the fields can.
        fixed_queue: the only queue that it may go to, once that is known: a try that fails is not moved.
        failed_broker: of the last try that failed.
        failures: how many tries failed.
        stored: the result of a try that stored it, though not as safely as wished.
        started: when the last try began, on trio's clock.
        address: the broker of the last try; empty before.
        may_be_compressed: whether the body is large enough for it.
        wants_store_ok: whether a status other than SEND_OK is a reason to try another broker.
        wants_heartbeat: whether the broker must know this client's groups, or tell its version, before.
        try_timeout: seconds for one try, if another may follow.
        on_answer: what gets the answer to a try that no task waits for, and when it was received; None where
            a task waits.
        on_done: what gets the outcome where no task waits for it.
        pending: what is told the outcome of a pipelined one, as a rule what the user has of it.
        in_background: whether its tries are made where nobody waits for what a selector raises.
        is_awaited: whether ``on_done`` gets the error of a first try, as somebody waits who makes the others.
        is_aimed: whether its queue has been chosen for the try that comes next.
        is_written: whether the try that was begun has been left with a connection.
    """

    __slots__ = (
        "_born_time_ms",
        "_flag",
        "_may_be_stored",
        "_properties",
        "_retries",
        "_system_flag",
        "address",
        "failed_broker",
        "failures",
        "fixed_queue",
        "form",
        "in_background",
        "is_aimed",
        "is_awaited",
        "is_written",
        "may_be_compressed",
        "message_id",
        "messages",
        "on_answer",
        "on_done",
        "pending",
        "queue",
        "selector",
        "send_deadline",
        "send_timeout",
        "started",
        "stored",
        "template",
        "try_timeout",
        "wants_heartbeat",
        "wants_store_ok",
    )

    # Set by who submits it.
    on_answer: Callable[[SendRequest, Answer | SendAnswer, float], None]
    on_done: Callable[[SendRequest, Outcome], None]
    pending: Outstanding

    def __init__(
        self,
        form: TopicForm,
        messages: tuple[Message, ...],
        body: bytes,
        properties: str,
        message_id: str,
        born_time_ms: int,
        timeout: float,
        retries: int,
        queue: Destination | None,
        system_flag: int = 0,
    ) -> None:
        # All by their places: to call a class with names takes twice as long.
        self.form: TopicForm = form
        self.messages: tuple[Message, ...] = messages
        self.message_id: str = message_id
        self.code: int = form.code
        self.body: bytes = body
        self.was_sent_away: bool = False
        self.takes_send_answers: bool = True
        self.task: trio.lowlevel.Task | None = None
        self._answer = None
        self._properties = properties
        self._born_time_ms = born_time_ms
        # A batch's messages have flags of their own.
        self._flag: int = 0 if form.is_batch else messages[0].flag
        self._system_flag: int = system_flag
        self._retries = retries
        self._may_be_stored: bool = False  # by an earlier try
        self.send_timeout: float = timeout
        self.send_deadline: float = 0.0  # not begun
        self.try_timeout: float | None = None
        self.started: float = 0.0
        self.failures: int = 0
        self.failed_broker: str | None = None
        self.stored: SendResult | None = None
        self.queue: MessageQueue | None = None
        self.fixed_queue: MessageQueue | None = None
        self.selector: QueueSelector | None = None
        self.template: HeaderTemplate | None = None
        self.address: str = ""
        self.may_be_compressed: bool = False
        self.wants_store_ok: bool = False
        self.wants_heartbeat: bool = False
        self.in_background: bool = False
        self.is_awaited: bool = False
        self.is_aimed: bool = False
        self.is_written: bool = False
        if queue is not None:
            self._set_destination(queue)

    def _set_destination(self, queue: Destination) -> None:
        check_destination(queue, self.topic)
        if isinstance(queue, MessageQueue):
            self.fixed_queue = queue
        else:
            self.selector = queue

    @property
    def topic(self) -> str:
        """Where it goes."""
        return self.messages[0].topic

    @property
    def is_timed(self) -> bool:
        """Whether it has an exact time, which only brokers of 5.x keep."""
        return self.messages[0].is_timed

    @property
    def may_have_arrived(self) -> bool:
        """Whether a broker may have it, as far as is known while no outcome is there."""
        return self.is_written or self._may_be_stored

    @property
    def remaining(self) -> float:
        """Seconds that are left for all tries together."""
        return max(self.send_deadline - trio.current_time(), 0.0)

    def set_compressed(self, body: bytes, system_flag: int) -> None:
        """Take the compressed form of the body, and the bits of the system flag that say so."""
        self.body = body
        self._system_flag |= system_flag

    def begin_try(self, now: float) -> None:
        """Begin a try: the time that it may take runs from now on, with the first one that of all."""
        self.started = now
        self.was_sent_away = False
        deadline = self.send_deadline
        if not deadline:
            self.send_deadline = deadline = now + self.send_timeout
        if self.try_timeout is not None and self.failures < self._retries:
            self.deadline: float = min(deadline, now + self.try_timeout)
            self.timeout: float = self.try_timeout
        else:
            self.deadline = deadline
            self.timeout = deadline - now

    @property
    def fields(self) -> dict[str, str]:
        """Its header's fields, for the queue that it was aimed at."""
        queue = self.queue
        assert queue is not None
        return self.form.fields(
            queue.queue_id,
            queue.broker_name,
            born_time_ms=self._born_time_ms,
            properties=self._properties,
            flag=self._flag,
            system_flag=self._system_flag,
        )

    def frame(self, opaque: int, serialization: Serialization, credentials: Credentials | None) -> bytes:
        """Return its bytes: from the template, where neither credentials nor a binary header are wanted."""
        template = self.template
        if template is None or credentials is not None or serialization:
            return super().frame(opaque, serialization, credentials)
        return template.frame(
            opaque, self._born_time_ms, self._properties, self._flag, self._system_flag, self.body
        )

    def answered(self, answer: Answer | SendAnswer) -> None:
        """Take what came of a try: for the task that waits for it, or for ``on_answer``."""
        if self.task is None:
            self.on_answer(self, answer, self.channel.received_at)
        else:
            super().answered(answer)

    def stored_by(self, answer: Command | SendAnswer) -> Stored:
        """Return what the broker's answer says. Raises BrokerError if it did not store the message."""
        status = STORED.get(answer.code)
        if status is None:
            raise BrokerError.from_answer(answer.code, answer.remark, self.address)
        queue = self.queue
        assert queue is not None
        fields: Mapping[str, str] | SendAnswerFields
        if isinstance(answer, SendAnswer):
            fields = answer.stored
            offset_message_id, queue_id, offset = fields.message_id, fields.queue_id, fields.queue_offset
        else:
            fields = answer.fields
            try:
                offset_message_id, queue_id, offset = stored_place(fields)
            except ProtocolError as error:
                raise ProtocolError(f"{self.address} answered a send: {error}") from error
        if queue_id != queue.queue_id:
            queue = MessageQueue(queue.topic, queue.broker_name, queue_id)
        stored = status, self.message_id, offset_message_id, queue, offset, fields
        if self.wants_store_ok and status is not SendStatus.SEND_OK:
            self.stored = send_result(stored)
            raise NotStoreOKError(f"{self.address} stored it with {status.name}")
        return stored

    def failed(self, error: RocketMQError) -> float | None:
        """Note that a try failed. Return the seconds to wait before the next, or None if it was the last.

        ``error`` then is the one to raise: it says "unknown" if any try may have reached a broker.
        """
        self.is_written = False
        if error.delivery is Delivery.UNKNOWN:
            self._may_be_stored = True
        if self.queue is not None:
            self.failed_broker = self.queue.broker_name
        self.failures += 1
        back_off: float = FIRST_BACK_OFF * 2 ** (self.failures - 1)
        if not error.retriable or self.failures > self._retries or self.remaining <= back_off:
            if self._may_be_stored:
                error.delivery = Delivery.UNKNOWN
            if self.failures > 1:
                error.add_note(f"sending to topic {self.topic!r} failed after {self.failures} tries")
            return None
        return back_off
