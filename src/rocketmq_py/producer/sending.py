"""One message on its way: the tries that it has left, and what is known about it."""

from __future__ import annotations

import trio

from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import BrokerError, Delivery, ProtocolError, RocketMQError
from rocketmq_py.message import Message, MessageQueue, SendResult, SendStatus
from rocketmq_py.protocol.command import Command

FIRST_BACK_OFF = 0.1
"""Seconds before the second try, doubled for each further one, where trying at once would be in vain."""

_STATUS = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
}


class Sending:
    """A message, its request, and the tries and the time that are left.

    Args:
        message: what is sent; its body may be large and is never copied.
        fields: the request's header; queue and broker are filled in for each try.
        unique_id: the id by which consumers know it, the same for every try.
        timeout: seconds for all tries together, from now on.
        retries: tries after the first.
        queue: the only queue that it may go to, or None for a free choice.
    """

    __slots__ = (
        "_fields", "_retries", "_tries", "_was_written", "deadline", "failed_broker", "fixed_queue",
        "message", "queue", "timeout", "unique_id",
    )  # fmt: skip

    code = RequestCode.SEND_MESSAGE_V2

    def __init__(
        self,
        message: Message,
        fields: dict[str, str],
        unique_id: str,
        *,
        timeout: float,
        retries: int,
        queue: MessageQueue | None,
    ) -> None:
        self.message = message
        self.unique_id = unique_id
        self.timeout = timeout
        self.deadline = trio.current_time() + timeout
        self.fixed_queue = queue
        self.queue = queue
        self.failed_broker: str | None = None
        self._fields = fields
        self._retries = retries
        self._tries = 0
        self._was_written = False

    @property
    def remaining(self) -> float:
        """Seconds that are left for all tries together."""
        return max(self.deadline - trio.current_time(), 0.0)

    def begin(self, queue: MessageQueue) -> dict[str, str]:
        """Begin a try: return the request's fields, for ``queue``."""
        self.queue = queue
        self._fields["e"] = str(queue.queue_id)
        self._fields["n"] = queue.broker_name
        return self._fields

    def result(self, answer: Command, address: str) -> SendResult:
        """Return what the broker's answer says. Raises BrokerError if it did not store the message."""
        status = _STATUS.get(answer.code)  # type: ignore[call-overload]  # an int is an IntEnum's equal
        if status is None:
            raise BrokerError.from_answer(answer.code, answer.remark, address)
        fields, queue = answer.fields, self.queue
        assert queue is not None
        try:
            queue_id = int(fields["queueId"])
            return SendResult(
                status,
                self.unique_id,
                fields["msgId"],
                queue
                if queue_id == queue.queue_id
                else MessageQueue(queue.topic, queue.broker_name, queue_id),
                int(fields["queueOffset"]),
                fields.get("transactionId"),
                fields.get("recallHandle"),
            )
        except (KeyError, ValueError) as error:
            raise ProtocolError(f"{address} answered a send without a usable {error}") from error

    def failed(self, error: RocketMQError) -> float | None:
        """Note that a try failed. Return the seconds to wait before the next, or None if it was the last.

        ``error`` then is the one to raise: it says "unknown" if any try may have reached a broker.
        """
        self._tries += 1
        if error.delivery is Delivery.UNKNOWN:
            self._was_written = True
        if self.queue is not None:
            self.failed_broker = self.queue.broker_name
        back_off: float = FIRST_BACK_OFF * 2 ** (self._tries - 1)
        if not error.retriable or self._tries > self._retries or self.remaining <= back_off:
            if self._was_written:
                error.delivery = Delivery.UNKNOWN
            if self._tries > 1:
                error.add_note(f"sending to topic {self.message.topic!r} failed after {self._tries} tries")
            return None
        return back_off
