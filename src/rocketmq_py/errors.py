"""The base class :class:`RocketMQError`, and most of its subclasses.

By these attributes, callers decide what to do:

- ``retriable``: the same request may succeed on another broker, or on the same one later. False also if no
  broker was found (NameServerError, TopicNotFoundError, NoQueueError), although that may change.
- ``invalidates_route``: the route is outdated and must be fetched again immediately.
- ``delivery``: whether the message of a failed send may be stored. Senders also set it on instances.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from rocketmq_py.codes import ResponseCode, response_name
from rocketmq_py.error_texts import described, one_line, rounded
from rocketmq_py.queues import MessageQueue, SendResult

_JAVA_WRAPPING = re.compile(r"^[\w.]*AclException: |, [\w.$]+\([\w.]+:\d+\)$")
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
    invalidates_route: ClassVar[bool] = False
    delivery: Delivery = Delivery.NOT_SENT

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


class InvalidPropertyError(InvalidMessageError):
    """A property, tag or key cannot be encoded: it is empty, not a str, or contains a separator."""


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


class LocalOffsetsError(RocketMQError):
    """Neither the file with a broadcasting consumer's offsets nor its backup can be read."""

    def __init__(self, reasons: str) -> None:
        super().__init__(
            f"local offsets cannot be read ({reasons}); repair or remove these files, or set "
            "discard_damaged_offsets=True if they are damaged. Without them, the consumer starts at its "
            "consume_from"
        )


class ClosedError(RocketMQError):
    """The object was used after it was closed, or before it was opened."""


class OutsideTrioError(RocketMQError, RuntimeError):
    """A trio object was used outside of ``trio.run``, or in another one than it was opened in."""


class OutsideAsyncioError(RocketMQError, RuntimeError):
    """An asyncio object was used without a running event loop."""


class ProtocolError(RocketMQError):
    """The peer sent bytes that are not RocketMQ's protocol. The connection is closed."""

    retriable = True
    delivery = Delivery.UNKNOWN


class ConnectError(RocketMQError):
    """No connection could be made to a name server or broker."""

    retriable = True
    invalidates_route = True

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"cannot connect to {address}: {reason}")
        self.address = address
        self.reason = reason


class TLSError(ConnectError):
    """The TLS handshake failed. The text says why, and what to do."""


class ConnectionLostError(RocketMQError):
    """The connection broke before the answer came. ``delivery`` tells whether the request was written."""

    retriable = True
    invalidates_route = True

    def __init__(self, address: str, reason: str, delivery: Delivery = Delivery.UNKNOWN) -> None:
        super().__init__(f"connection to {address} lost: {reason}")
        self.address = address
        self.reason = reason
        self.delivery = delivery


class RequestTimeoutError(RocketMQError, TimeoutError):
    """No answer came in time. ``delivery`` tells whether the request was written."""

    retriable = True
    invalidates_route = True

    def __init__(self, address: str, timeout: float, delivery: Delivery = Delivery.UNKNOWN) -> None:
        super().__init__(f"no answer from {address} within {rounded(timeout)} s")
        self.address = address
        self.timeout = timeout
        self.delivery = delivery


class ReplyTimeoutError(RocketMQError, TimeoutError):
    """No reply to a request message came in time. ``sent`` is its SendResult, None if not acknowledged."""

    delivery = Delivery.UNKNOWN

    def __init__(self, topic: str, timeout: float, sent: SendResult | None) -> None:
        where = f"stored in {sent.queue}" if sent else "which was not acknowledged either"
        super().__init__(f"no reply within {rounded(timeout)} s to a request for topic {topic!r}, {where}")
        self.sent = sent


class NameServerError(RocketMQError):
    """No name server answered. ``reasons`` has the error of each, by address."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__(f"no name server answered ({'; '.join(reasons.values())})")
        self.reasons: dict[str, str] = dict(reasons)


class TopicNotFoundError(RocketMQError):
    """The name servers have no route for the topic."""

    def __init__(self, topic: str, name_servers: str, namespace: str = "") -> None:
        where = f" in namespace {namespace!r}" if namespace else ""
        super().__init__(f"topic {topic!r} does not exist{where} (asked {name_servers})")
        self.topic = topic


class TopicExistsError(RocketMQError):
    """The topic to create exists already, on the brokers that ``brokers`` names."""

    def __init__(self, topic: str, brokers: Sequence[str]) -> None:
        super().__init__(f"topic {topic!r} exists already on {', '.join(brokers)}")
        self.topic = topic
        self.brokers: tuple[str, ...] = tuple(brokers)


class GroupExistsError(RocketMQError):
    """The group to create exists already, on the brokers that ``brokers`` names."""

    def __init__(self, group: str, brokers: Sequence[str]) -> None:
        super().__init__(f"group {group!r} exists already on {', '.join(brokers)}")
        self.group = group
        self.brokers: tuple[str, ...] = tuple(brokers)


class GroupNotFoundError(RocketMQError):
    """None of the asked brokers knows the group."""

    def __init__(self, group: str, asked: str, namespace: str = "") -> None:
        where = f" in namespace {namespace!r}" if namespace else ""
        super().__init__(f"group {group!r} does not exist{where} (asked {asked})")
        self.group = group


class SomeBrokersFailedError(RocketMQError):
    """A request to several brokers or name servers failed on some of them, or on all.

    Attributes:
        done: the names or addresses of those on which it succeeded.
        answers: the answers of those, by name or address.
        failures: the errors of the others, by name or address.
    """

    def __init__(
        self, action: str, answers: Mapping[str, Any], failures: Mapping[str, RocketMQError]
    ) -> None:
        self.done: tuple[str, ...] = tuple(answers)
        reasons = "; ".join(f"{name}: {error}" for name, error in failures.items())
        others = f"; it is done on {', '.join(answers)}" if answers else ""
        total = len(failures) + len(answers)
        super().__init__(f"{action} failed on {len(failures)} of {total}: {reasons}{others}")
        self.answers: dict[str, Any] = dict(answers)
        self.failures: dict[str, RocketMQError] = dict(failures)


class NoQueueError(RocketMQError):
    """No queue, or no broker of the wanted role, can serve the request."""

    invalidates_route = True


class QueueGoneError(NoQueueError):
    """The broker no longer has the queue: its topic was deleted, or has fewer queues now."""


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


class UnreadableBodyError(RocketMQError):
    """A message's body is compressed, or is a batch, and cannot be read.

    Attributes:
        queue: the message's queue.
        offset: the message's offset.
        reason: the cause, and which package to install if one is missing.
    """

    def __init__(self, queue: MessageQueue, offset: int, reason: str) -> None:
        super().__init__(f"the message at offset {offset} of {described(queue)} cannot be opened: {reason}")
        self.queue = queue
        self.offset = offset
        self.reason = reason


class BodyDecodeError(RocketMQError, ValueError):
    """The body of a message is not an instance of the type that the program asked for.

    Attributes:
        topic: the message's topic.
        message_id: the message's id.
        kind: the name of the type.
        reason: why the body cannot be decoded.
    """

    def __init__(self, topic: str, message_id: str, kind: str, reason: str) -> None:
        super().__init__(
            f"the body of message {message_id} of topic {topic!r} cannot be decoded as {kind}: {reason}"
        )
        self.topic = topic
        self.message_id = message_id
        self.kind = kind
        self.reason = reason


class BrokerError(RocketMQError):
    """A broker or name server answered with an error. ``remoting.answer_errors`` chooses the subclass.

    ``code`` is the response code, ``remark`` the reason, if it gave one, and ``address`` that of the server.
    """

    delivery = Delivery.REFUSED

    def __init__(self, code: int, remark: str | None, address: str, *, text: str | None = None) -> None:
        super().__init__(text or f"{address} answered {response_name(code)} ({code}): {one_line(remark)}")
        self.code = code
        self.remark = remark
        self.address = address


class RetriableBrokerError(BrokerError):
    """The broker cannot serve the request now. Another one may (SYSTEM_ERROR, SERVICE_NOT_AVAILABLE, …)."""

    retriable = True


class BrokerBusyError(RetriableBrokerError):
    """The broker sheds load (SYSTEM_BUSY, FLOW_CONTROL). Back off before the next attempt."""


class BrokerTopicError(RetriableBrokerError):
    """The broker does not have the topic (TOPIC_NOT_EXIST), or no longer the logical queue of a static topic
    (NOT_LEADER_FOR_QUEUE). The route is outdated.
    """

    invalidates_route = True


class NoPermissionError(BrokerTopicError):
    """The broker, or the topic on it, is not writable or not readable (NO_PERMISSION)."""


class LiteQuotaError(BrokerError):
    """The broker accepts no more subscriptions to lite topics (LITE_SUBSCRIPTION_QUOTA_EXCEEDED).

    The broker's setting ``maxLiteSubscriptionCount`` limits those of all its consumers together. Unsubscribe
    from lite topics that are no longer needed, or raise the limit.
    """


class LiteTopicExpiredError(BrokerError):
    """The broker no longer has the message, because its lite topic has expired (NO_MESSAGE).

    The attribute ``lite.topic.expiration`` of the parent topic sets the minutes after the last message.
    """


class AccessDeniedError(BrokerError):
    """The broker checks access, and credentials are missing, wrong, or lack the permission.

    4.x answers with SYSTEM_ERROR, 5.x with NO_PERMISSION. Only the remark tells it from other errors.
    """

    def __init__(self, code: int, remark: str | None, address: str) -> None:
        reason = _JAVA_WRAPPING.sub("", one_line(remark)).removesuffix(".")
        advice = "check the client's credentials and their permissions on the broker"
        super().__init__(code, remark, address, text=f"{address} denies access: {reason}; {advice}")


class MessageRefusedError(BrokerError):
    """The broker refuses the message (MESSAGE_ILLEGAL): its size, topic or properties."""


class SubscriptionError(BrokerError):
    """The broker cannot use the subscription: it cannot parse the filter, or does not have it yet."""


class SqlFilterRefusedError(SubscriptionError):
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
