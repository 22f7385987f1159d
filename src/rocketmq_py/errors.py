"""The base class :class:`RocketMQError`, and most of its subclasses.

By these attributes, callers decide what to do:

- ``retriable``: the same request may succeed on another broker, or on the same one later. False also if no
  broker was found (NameServerError, TopicNotFoundError, NoQueueError), although that may change.
- ``delivery``: whether the message of a failed send may be stored.

Both have a value in each class. Instances may have another ``delivery``.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from rocketmq_py.codes import ResponseCode, response_name
from rocketmq_py.error_texts import described, one_line, rounded
from rocketmq_py.queues import MessageQueue, SendResult

_JAVA_WRAPPING = re.compile(r"^(?:[\w.]*(?:Acl|Authentication|Ons)Exception: )+|, [\w.$]+\([\w.]+:\d+\)$")
"""Text that 4.x adds to a remark: Java's class in front, and the position in the source at the end."""


class Delivery(enum.Enum):
    """Whether a broker may have stored the message of a failed send."""

    NOT_SENT = "not sent"
    """No broker has the message: no byte of it was passed to the operating system."""
    REFUSED = "refused"
    """A broker answered that it did not store the message."""
    UNKNOWN = "unknown"
    """A broker may have stored the message: it was written, and no usable answer came."""


class RocketMQError(Exception):
    """The base class of all errors that this library raises on purpose."""

    retriable: ClassVar[bool] = False
    delivery: Delivery = Delivery.NOT_SENT
    # The library's own retries need to know more. Instances may have other values than their class.
    _invalidates_route: bool = False
    """Whether the route is outdated and must be fetched again immediately."""
    _queue_gone: bool = False
    """Whether the broker no longer has the queue, because its topic was deleted or has fewer queues now."""
    _not_reached: bool = False
    """Whether no broker was reached, and waiting may help.

    Its address refuses connections, or it has no route yet. Sends do not count this as an attempt.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        # For pickle and copy. Exception's passes the text to constructors that need other arguments.
        return _without_init, (type(self),), {**self.__dict__, "args": self.args}


def _without_init(kind: type[RocketMQError]) -> RocketMQError:
    return kind.__new__(kind)


class ConfigurationError(RocketMQError, ValueError):
    """A setting, name or address is not allowed. The text says which values are."""


class InvalidMessageError(RocketMQError, ValueError):
    """A message that no broker would accept. Nothing was sent."""


class MessageTooLargeError(InvalidMessageError):
    """A message, or its properties, exceed the size that brokers accept."""


class SendForbiddenError(RocketMQError):
    """A user's hook forbade the send. The hook's exception is the cause."""


class UnsupportedByBrokerError(RocketMQError):
    """The broker's version, or a proxy, does not support the request. The request had no effect."""


class BatchError(RocketMQError):
    """A batch was sent in several parts, of which one failed. Its error is the cause.

    ``results`` are those of the messages before that part, which are stored. ``delivery`` is that of the
    failed part. Later parts were not sent.
    """

    def __init__(self, results: Sequence[SendResult], total: int, error: RocketMQError) -> None:
        super().__init__(f"{len(results)} of {total} messages were stored, then: {error}")
        self.results: Final = tuple(results)
        self.delivery: Delivery = error.delivery
        self._not_reached: bool = error._not_reached


class ClosedError(RocketMQError):
    """The object was used after it was closed, or before it was opened."""


class OutsideEventLoopError(RocketMQError, RuntimeError):
    """An object was used outside of the event loop that its API needs.

    A trio object needs ``trio.run``, the one that it was opened in. An asyncio object needs a running loop.
    """


class ProtocolError(RocketMQError):
    """The peer sent bytes that are not RocketMQ's protocol. The connection is closed."""

    retriable = True
    delivery = Delivery.UNKNOWN


class ConnectError(RocketMQError):
    """No connection could be made to a name server or broker.

    The text counts the attempts since the address was reached last, and says since when it is unreachable.
    """

    retriable = True
    _invalidates_route = True
    _not_reached = True

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"cannot connect to {address}: {reason}")
        self.address = address
        self.reason = reason


class TLSError(ConnectError):
    """The TLS handshake failed. The text says why, and what to do."""


class ConnectionLostError(RocketMQError):
    """The connection broke before the answer came. ``delivery`` tells whether the request was written."""

    retriable = True
    _invalidates_route = True

    def __init__(self, address: str, reason: str, delivery: Delivery = Delivery.UNKNOWN) -> None:
        super().__init__(f"connection to {address} lost: {reason}")
        self.address = address
        self.reason = reason
        self.delivery = delivery
        self._not_reached: bool = delivery is Delivery.NOT_SENT


class RequestTimeoutError(RocketMQError, TimeoutError):
    """No answer came in time. ``delivery`` tells whether the request was written."""

    retriable = True
    _invalidates_route = True

    def __init__(self, address: str, timeout: float, delivery: Delivery = Delivery.UNKNOWN) -> None:
        super().__init__(f"no answer from {address} within {rounded(timeout)} s")
        self.address = address
        self.timeout = timeout
        self.delivery = delivery
        self._not_reached: bool = delivery is Delivery.NOT_SENT


class ReplyTimeoutError(RocketMQError, TimeoutError):
    """No reply to a request message came in time. ``sent`` is its SendResult, None if not acknowledged."""

    delivery = Delivery.UNKNOWN

    def __init__(self, topic: str, timeout: float, sent: SendResult | None) -> None:
        where = f"stored in {sent.queue}" if sent else "which was not acknowledged either"
        super().__init__(
            f"no reply within {rounded(timeout)} s to a request for topic {topic!r}, {where}. Check that a "
            "consumer of the topic replies. Some managed services do not offer replies"
        )
        self.sent = sent


class NameServerError(RocketMQError):
    """No name server answered. ``reasons`` has the error of each, by address."""

    _not_reached = True

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__(f"no name server answered ({'; '.join(reasons.values())})")
        self.reasons: dict[str, str] = dict(reasons)


class TopicNotFoundError(RocketMQError):
    """The name servers have no route for the topic.

    The text has the topic's full name if that differs from ``topic``, and advice if the namespace may be the
    cause.
    """

    def __init__(
        self, topic: str, name_servers: str, namespace: str = "", *, full_name: str = "", advice: str = ""
    ) -> None:
        where = f" in namespace {namespace!r}" if namespace else ""
        asked_for = f"asked for {full_name!r}: " if full_name not in ("", topic) else "asked "
        hint = f"; {advice}" if advice else ""
        super().__init__(f"topic {topic!r} does not exist{where} ({asked_for}{name_servers}){hint}")
        self.topic = topic


class NoQueueError(RocketMQError):
    """No queue, or no broker of the wanted role, can serve the request.

    Attributes:
        topic: the topic that has no queue to read. Empty for other causes.
    """

    _invalidates_route = True

    def __init__(self, text: str, topic: str = "", *, queue_gone: bool = False) -> None:
        super().__init__(text)
        self.topic = topic
        self._queue_gone = queue_gone


class NotAssignedError(RocketMQError):
    """The queue is not assigned to this consumer, or was revoked by a rebalance."""


class DataLossError(RocketMQError):
    """Messages that were requested by their offsets no longer exist.

    Attributes:
        queue: the queue.
        first: the first missing offset.
        end: the offset after the last missing one. None if it is unknown.
    """

    def __init__(
        self,
        queue: MessageQueue,
        first: int,
        end: int | None,
        suffix: str = "",
        *,
        cause: str = "the broker does not have them any more",
    ) -> None:
        offsets = f"{first} to {end - 1}" if end is not None else f"from {first} on"
        super().__init__(f"offsets {offsets} of {described(queue)} are not there: {cause}{suffix}")
        self.queue = queue
        self.first = first
        self.end = end


class BodyDecodeError(RocketMQError, ValueError):
    """The body of a message cannot be decompressed, or is no instance of the type that the program asked for.

    Attributes:
        topic: the message's topic.
        message_id: the message's id.
        reason: why the body cannot be decoded, and which package to install if one is missing.
    """

    def __init__(self, text: str, topic: str, message_id: str, reason: str) -> None:
        super().__init__(f"{text}: {reason}")
        self.topic = topic
        self.message_id = message_id
        self.reason = reason


class StoreError(RocketMQError):
    """State on a disk cannot be read or written. The text names it, and the cause.

    The state is the store of a relay or of deduplication, the file with the offsets of a broadcasting
    consumer, or the checkpoint of a Spark stream. A relay reads the messages again that it could not store.
    """


class BrokerError(RocketMQError):
    """A broker or name server answered with an error.

    ``remoting.answer_errors`` chooses the subclass.

    Attributes:
        code: the response code, such as ``ResponseCode.NO_MESSAGE``.
        remark: the reason that the server gave. None if it gave none.
        address: the address of the server.
    """

    delivery = Delivery.REFUSED

    def __init__(self, code: int, remark: str | None, address: str, *, text: str | None = None) -> None:
        super().__init__(text or f"{address} answered {response_name(code)} ({code}): {one_line(remark)}")
        self.code = code
        self.remark = remark
        self.address = address


_OUTDATED_ROUTE_CODES = frozenset(
    {
        ResponseCode.SERVICE_NOT_AVAILABLE,  # its disk is full, it shuts down, or it has become a replica
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NOT_LEADER_FOR_QUEUE,  # it no longer has the logical queue of a static topic
    }
)
"""Codes of brokers that do not serve the topic, or not in the way that the route says."""


class RetriableBrokerError(BrokerError):
    """The broker cannot serve the request now. Another one may, or the same one later."""

    retriable = True

    def __init__(
        self,
        code: int,
        remark: str | None,
        address: str,
        *,
        text: str | None = None,
        queue_gone: bool = False,
    ) -> None:
        super().__init__(code, remark, address, text=text)
        self._queue_gone = queue_gone
        self._invalidates_route: bool = queue_gone or code in _OUTDATED_ROUTE_CODES


class BrokerBusyError(RetriableBrokerError):
    """The broker sheds load (SYSTEM_BUSY). Back off before the next attempt."""


class FlowControlError(BrokerBusyError):
    """The service limits the rate of requests (FLOW_CONTROL), as managed services do for each instance.

    Sends are retried after a pause, as often as ``retries`` and the send's timeout allow. Pulls, pops and
    heartbeats are repeated after a pause, other requests only within their timeout.
    """


class AccessDeniedError(BrokerError):
    """The broker checks access, and credentials are missing, wrong, or lack the permission.

    4.x and proxies answer with SYSTEM_ERROR, 5.x with NO_PERMISSION. Only the remark tells it from others.
    """

    def __init__(self, code: int, remark: str | None, address: str) -> None:
        reason = _JAVA_WRAPPING.sub("", one_line(remark)).removesuffix(".")
        advice = "check the client's credentials and their permissions on the broker"
        super().__init__(code, remark, address, text=f"{address} denies access: {reason}; {advice}")


class MessageRefusedError(BrokerError):
    """The broker refuses the message (MESSAGE_ILLEGAL): its size, topic or properties.

    Proxies and managed services also compare the message's type with that of its topic. The text then says
    how to send messages of the topic's type.
    """


class SqlFilterRefusedError(BrokerError):
    """A broker refuses a SQL filter: it cannot parse it, or does not filter by properties.

    Attributes:
        topic: the subscribed topic.
        sql: the SQL filter.
    """

    def __init__(self, topic: str, sql: str, code: int, remark: str | None, address: str) -> None:
        reason = one_line(remark)
        if code != ResponseCode.SUBSCRIPTION_PARSE_FAILED:
            reason = f"{reason.removesuffix('.')}; set enablePropertyFilter=true on the broker"
        text = f"{address} refuses the SQL filter {sql!r} on topic {topic!r}: {reason}"
        super().__init__(code, remark, address, text=text)
        self.topic = topic
        self.sql = sql
