"""A request that stores a message or a batch, with its remaining attempts and time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import trio

from rocketmq_py.client import flow_control
from rocketmq_py.client.features import Feature
from rocketmq_py.client.proxies import not_offered
from rocketmq_py.codes import ResponseCode
from rocketmq_py.credentials import RequestSigner
from rocketmq_py.errors import Delivery, FlowControlError, ProtocolError, RocketMQError
from rocketmq_py.message import Message, MessageQueue
from rocketmq_py.producer.destinations import check_destination
from rocketmq_py.producer.hooks import SendContext
from rocketmq_py.producer.outcome import Acknowledgement, OutcomeReceiver
from rocketmq_py.producer.settings import ProducerSettings
from rocketmq_py.protocol.command import Command, Serialization
from rocketmq_py.protocol.headers import read_stored_position
from rocketmq_py.protocol.send_answer import SendAnswer, SendAnswerFields
from rocketmq_py.protocol.send_request import STORED, HeaderTemplate, SendRequestBuilder
from rocketmq_py.remoting.answer_errors import broker_error
from rocketmq_py.remoting.back_off import BackOff
from rocketmq_py.remoting.pending_requests import Answer, PendingRequest
from rocketmq_py.selectors import QueueSelector

BACK_OFF: Final = BackOff(0.1)
"""Seconds before a retry."""
UNREACHED_BACK_OFF: Final = BackOff(0.1, longest=1.0)
"""Seconds between two attempts that reach no broker."""

Destination: TypeAlias = MessageQueue | QueueSelector
"""The queue of a message, or the selector that chooses it."""


class SendRequest(PendingRequest):
    """A request with a message or a batch, and its remaining attempts and time.

    The same object stands for each attempt in the table of its connection.

    Args:
        config: the producer's settings.
        header_builder: builds the header.
        messages: the messages.
        body: the body of the request. It is never copied.
        properties: the wire form of the properties in the header.
        message_id: the id of the message, or the comma-separated ids of a batch.
        born_time_ms: the creation time of the message, epoch milliseconds.
        timeout: seconds for all attempts together, from the start of the first.
        retries: attempts after the first.
        queue: the queue that the request must go to, or a selector. None for a free choice.
        system_flag: RocketMQ's own bits.

    Attributes:
        topic: the topic of the messages.
        send_timeout, send_deadline: seconds for all attempts together, and their deadline on trio's clock.
            ``timeout`` and ``deadline`` are those of one attempt.
        queue: the chosen queue.
        fixed_queue: the queue that every attempt must use. Set when a selector has chosen it.
        template: the header template for ``queue``. None if the header must be built from its fields.
        failed_broker: the broker of the last failed attempt.
        failures: the number of failed attempts that have reached a broker. Only these use up the retries.
        started: the start of the last attempt, on trio's clock.
        address: the broker of the last attempt. Empty before the first.
        may_be_compressed: whether the body is large enough for compression.
        wants_heartbeat: whether the broker must know this client's groups, or tell its version, first.
        needs: the feature that the broker must have. None if every broker has it. Implies wants_heartbeat.
        on_answer: the sender's function that takes the answer to an attempt, and its time of arrival.
        receiver: receives the outcome of the send. Usually the handle that the user has.
        context: the context of the hooks to call between the outcome and the receiver. None if there are
            none, or if the caller calls them.
        has_reply: whether the send is in flight until its reply arrives.
        in_halves: whether each half of the batch is sent by itself after an error of
            :func:`is_sent_in_halves`. Then its messages have not failed yet.
        in_background: whether a background task makes the attempts. An exception of a selector becomes the
            outcome then.
        scope: the scope of the task that backs off.
        is_written: whether the request of the current attempt was passed to a connection.
        is_carried: whether a connection had the request itself. RPC hooks let it carry another one.
        is_done: whether the send has its outcome, or was cancelled.
    """

    __slots__ = (
        "_born_time_ms",
        "_config",
        "_flag",
        "_may_be_stored",
        "_properties",
        "_retries",
        "_system_flag",
        "_unreached",
        "address",
        "context",
        "failed_broker",
        "failures",
        "fixed_queue",
        "has_reply",
        "header_builder",
        "in_background",
        "in_halves",
        "is_carried",
        "is_done",
        "is_written",
        "may_be_compressed",
        "message_id",
        "messages",
        "needs",
        "on_answer",
        "queue",
        "receiver",
        "scope",
        "selector",
        "send_deadline",
        "send_timeout",
        "started",
        "template",
        "topic",
        "wants_heartbeat",
    )

    # Set before the request is submitted.
    on_answer: Callable[[SendRequest, Answer | SendAnswer, float], None]
    receiver: OutcomeReceiver

    def __init__(
        self,
        config: ProducerSettings,
        header_builder: SendRequestBuilder,
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
        self._config = config
        self.header_builder: SendRequestBuilder = header_builder
        self.messages: tuple[Message, ...] = messages
        self.topic: str = messages[0].topic
        self.message_id: str = message_id
        self.code: int = header_builder.code
        self.body: bytes = body
        self.takes_send_answers: bool = True
        self.task: trio.lowlevel.Task | None = None
        self._answer = None
        self._properties = properties
        self._born_time_ms = born_time_ms
        # The messages of a batch have their own flags.
        self._flag: int = 0 if header_builder.is_batch else messages[0].flag
        self._system_flag: int = system_flag
        self._retries = retries
        self._may_be_stored: bool = False  # by an earlier attempt
        self.send_timeout: float = timeout
        self.send_deadline: float = 0.0  # set by the first attempt
        self.started: float = 0.0
        self.failures: int = 0
        self._unreached: int = 0  # failed attempts that have reached no broker
        self.failed_broker: str | None = None
        self.queue: MessageQueue | None = None
        self.fixed_queue: MessageQueue | None = None
        self.selector: QueueSelector | None = None
        self.template: HeaderTemplate | None = None
        self.address: str = ""
        self.may_be_compressed: bool = False
        self.wants_heartbeat: bool = False
        self.needs: Feature | None = None
        self.in_background: bool = False
        self.in_halves: bool = False
        self.has_reply: bool = False
        self.context: SendContext | None = None
        self.scope: trio.CancelScope | None = None
        self.is_written: bool = False
        self.is_carried: bool = False
        self.is_done: bool = False
        if queue is not None:
            self._set_destination(queue)

    def _set_destination(self, queue: Destination) -> None:
        check_destination(queue, self.topic)
        if isinstance(queue, MessageQueue):
            self.fixed_queue = queue
        else:
            self.selector = queue

    @property
    def may_have_arrived(self) -> bool:
        """Whether a broker may have received the message, while the outcome is unknown."""
        return self.is_written or self._may_be_stored

    @property
    def remaining(self) -> float:
        """Seconds left for all attempts together."""
        return max(self.send_deadline - trio.current_time(), 0.0)

    def set_compressed(self, body: bytes, system_flag: int) -> None:
        """Replace the body by its compressed form, and add the bits of the system flag for it."""
        self.body = body
        self._system_flag |= system_flag

    def start_attempt(self, now: float) -> None:
        """Start an attempt: set its deadline, and with the first attempt the deadline of all."""
        self.started = now
        self.was_sent_away: bool = False
        deadline = self.send_deadline
        if not deadline:
            self.send_deadline = deadline = now + self.send_timeout
        try_timeout = self._config.try_timeout
        if try_timeout is not None and self.failures < self._retries:
            self.deadline: float = min(deadline, now + try_timeout)
            self.timeout: float = try_timeout
        else:
            self.deadline = deadline
            self.timeout = deadline - now

    @property
    def fields(self) -> dict[str, str]:
        """The header's fields for the chosen queue."""
        queue = self.queue
        assert queue is not None
        return self.header_builder.fields(
            queue.queue_id,
            queue.broker_name,
            born_time_ms=self._born_time_ms,
            properties=self._properties,
            flag=self._flag,
            system_flag=self._system_flag,
        )

    def frame(self, opaque: int, serialization: Serialization, signer: RequestSigner | None) -> bytes:
        """Return the encoded request, from the template unless it is signed or has a binary header."""
        template = self.template
        if template is None or signer is not None or serialization:
            return super().frame(opaque, serialization, signer)
        return template.frame(
            opaque, self._born_time_ms, self._properties, self._flag, self._system_flag, self.body
        )

    def answered(self, answer: Answer | SendAnswer) -> None:
        """Pass the answer of an attempt to the sender."""
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
            if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise not_offered(self.address, self.code, answer.version)
            raise broker_error(answer.code, answer.remark, self.address)
        queue = self.queue
        assert queue is not None
        fields: Mapping[str, str] | SendAnswerFields
        if isinstance(answer, SendAnswer):
            fields = answer.stored
            offset_message_id, queue_id, offset = fields.message_id, fields.queue_id, fields.queue_offset
        else:
            fields = answer.fields
            try:
                offset_message_id, queue_id, offset = read_stored_position(fields)
            except ProtocolError as error:
                raise ProtocolError(f"malformed answer of {self.address} to a send: {error}") from error
        if queue_id != queue.queue_id:
            queue = MessageQueue(queue.topic, queue.broker_name, queue_id)
        return status, self.message_id, offset_message_id, queue, offset, fields

    def attempt_failed(self, error: RocketMQError) -> float | None:
        """Record a failed attempt. Return the seconds to back off, or None if it was the last attempt.

        An attempt that has reached no broker does not use up the retries. The next one follows as long as
        there is time. After the last attempt, ``error`` is the error to raise. Its ``delivery`` is UNKNOWN if
        any attempt may have reached a broker.
        """
        self.is_written = False
        if error.delivery is Delivery.UNKNOWN:
            self._may_be_stored = True
        if self.queue is not None:
            self.failed_broker = self.queue.broker_name
        is_final = not error.retriable
        if error.queue_gone:
            is_final = self.fixed_queue is not None and self.selector is None
            if self.selector is not None:
                self.fixed_queue = None  # the selector chooses one of the queues that are left
        if error.not_reached:
            self._unreached += 1
            back_off = min(UNREACHED_BACK_OFF.after(self._unreached), self.remaining)
            may_retry = back_off > 0
        else:
            self.failures += 1
            is_limited = isinstance(error, FlowControlError)
            back_off = (flow_control.BACK_OFF if is_limited else BACK_OFF).after(self.failures)
            may_retry = not is_final and self.failures <= self._retries and back_off < self.remaining
        if may_retry:
            return back_off
        if self._may_be_stored:
            error.delivery = Delivery.UNKNOWN
        if self.failures > 1:
            error.add_note(f"sending to topic {self.topic!r} failed after {self.failures} attempts")
        return None
