"""Every error that rocketmq-py raises, in one tree.

What a retry loop wants to know is data on the class, so that nobody has to list classes:

- ``retriable``: another broker, or the same one later, may well accept the same request.
- ``invalidates_route``: the route that led here is out of date and is asked for again at once.
- ``delivery``: what is known about the message of a failed send (see :class:`Delivery`).
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from rocketmq_py.codes import ResponseCode, response_name
from rocketmq_py.queues import MessageQueue, SendResult


class Delivery(enum.Enum):
    """What is known about a message whose send failed."""

    NOT_SENT = "not sent"
    """No byte of it was handed to the operating system: no broker has it."""
    REFUSED = "refused"
    """A broker answered that it did not store it."""
    UNKNOWN = "unknown"
    """It was written and no answer came: a broker may or may not have stored it."""


class RocketMQError(Exception):
    """The root of the tree: ``except RocketMQError`` catches all that this library raises on purpose."""

    retriable: ClassVar[bool] = False
    invalidates_route: ClassVar[bool] = False
    delivery: Delivery = Delivery.NOT_SENT


class ConfigurationError(RocketMQError, ValueError):
    """A setting, name or address is outside of what is allowed; the text says what is."""


class InvalidMessageError(RocketMQError, ValueError):
    """A message that no broker would take: found before anything is sent."""


class MessageTooLargeError(InvalidMessageError):
    """A message, or its properties, are larger than brokers take."""


class InvalidPropertyError(InvalidMessageError):
    """A property, a tag or a key cannot be written: it is empty, no text, or holds a separator."""


class SendForbiddenError(RocketMQError):
    """A hook of the user's forbade the send; its own exception is the cause."""


class UnsupportedByBrokerError(RocketMQError):
    """The broker's version does not know what is asked for; nothing was sent."""


class BatchError(RocketMQError):
    """A list of messages was sent in several parts, and not all of them were stored.

    The error of the part that failed is the cause; ``delivery`` is its own. What came after it was not sent.

    Attributes:
        results: of the messages that were stored, the first ones of the list.
    """

    def __init__(self, results: Sequence[SendResult], total: int, error: RocketMQError) -> None:
        super().__init__(f"{len(results)} of {total} messages were stored, then: {error}")
        self.results: Final = tuple(results)
        self.delivery: Delivery = error.delivery


class LocalOffsetsError(RocketMQError):
    """The file with a broadcasting consumer's offsets cannot be read, nor its backup."""

    def __init__(self, reasons: str) -> None:
        super().__init__(
            f"local offsets cannot be read ({reasons}); repair or remove these files: "
            "without them, the consumer begins where its consume_from says"
        )


class ClosedError(RocketMQError):
    """The object was used after it was closed, or before it was opened."""


class OutsideTrioError(RocketMQError, RuntimeError):
    """It was used where no trio runs, or in another ``trio.run`` than it was opened in."""


class OutsideAsyncioError(RocketMQError, RuntimeError):
    """What is for asyncio was used where no loop runs."""


class ProtocolError(RocketMQError):
    """The peer sent bytes that are not RocketMQ's protocol; the connection is closed."""

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
    """No encrypted connection could be made: the text says what is wrong with which certificate."""


class ConnectionLostError(RocketMQError):
    """The connection broke while a request was waiting; ``delivery`` says whether it had been written."""

    retriable = True
    invalidates_route = True

    def __init__(self, address: str, reason: str, delivery: Delivery = Delivery.UNKNOWN) -> None:
        super().__init__(f"connection to {address} lost: {reason}")
        self.address = address
        self.reason = reason
        self.delivery = delivery


def _rounded(seconds: float) -> str:
    """Return seconds as one says them: what is left of a time-out has seventeen digits."""
    return f"{round(seconds, 1 if seconds >= 1 else 3):g}"


class RequestTimeoutError(RocketMQError, TimeoutError):
    """No answer came in time; ``delivery`` says whether the request had been written."""

    retriable = True
    invalidates_route = True

    def __init__(self, address: str, timeout: float, delivery: Delivery = Delivery.UNKNOWN) -> None:
        super().__init__(f"no answer from {address} within {_rounded(timeout)} s")
        self.address = address
        self.timeout = timeout
        self.delivery = delivery


class ReplyTimeoutError(RocketMQError, TimeoutError):
    """A request was sent, and no reply to it came in time.

    Attributes:
        sent: where the request was stored; None if that was not acknowledged either.
    """

    delivery = Delivery.UNKNOWN

    def __init__(self, topic: str, timeout: float, sent: SendResult | None) -> None:
        where = f"stored in {sent.queue}" if sent else "whose own sending was not acknowledged either"
        super().__init__(f"no reply within {_rounded(timeout)} s to a request for topic {topic!r}, {where}")
        self.sent = sent


def leaves_of(error: BaseException) -> list[BaseException]:
    """Return the errors that a group of errors holds, whatever groups they are in; of no group itself."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves_of(inner)]
    return [error]


class NameServerError(RocketMQError):
    """None of the name servers answered; ``reasons`` has each one's, by address."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__(f"no name server answered ({'; '.join(reasons.values())})")
        self.reasons: dict[str, str] = dict(reasons)


class TopicNotFoundError(RocketMQError):
    """The name servers know no route for the topic."""

    def __init__(self, topic: str, name_servers: str, namespace: str = "") -> None:
        where = f" in namespace {namespace!r}" if namespace else ""
        super().__init__(f"topic {topic!r} does not exist{where} (asked {name_servers})")
        self.topic = topic


class TopicExistsError(RocketMQError):
    """A topic that was to be created is there already.

    Attributes:
        topic: its name.
        brokers: the names of the brokers that have it.
    """

    def __init__(self, topic: str, brokers: Sequence[str]) -> None:
        super().__init__(f"topic {topic!r} exists already on {', '.join(brokers)}")
        self.topic = topic
        self.brokers: tuple[str, ...] = tuple(brokers)


class GroupExistsError(RocketMQError):
    """A group that was to be created is there already.

    Attributes:
        group: its name.
        brokers: the names of the brokers that have it.
    """

    def __init__(self, group: str, brokers: Sequence[str]) -> None:
        super().__init__(f"group {group!r} exists already on {', '.join(brokers)}")
        self.group = group
        self.brokers: tuple[str, ...] = tuple(brokers)


class GroupNotFoundError(RocketMQError):
    """No broker that was asked knows the group."""

    def __init__(self, group: str, asked: str, namespace: str = "") -> None:
        where = f" in namespace {namespace!r}" if namespace else ""
        super().__init__(f"group {group!r} does not exist{where} (asked {asked})")
        self.group = group


class SomeBrokersFailedError(RocketMQError):
    """Several brokers, or name servers, were to do something, and not all of them did.

    Attributes:
        done: those that did it, by name or address.
        answers: what each of them answered.
        failures: the error of each of the others.
    """

    def __init__(self, what: str, answers: Mapping[str, Any], failures: Mapping[str, RocketMQError]) -> None:
        done = tuple(answers)
        said = "; ".join(f"{name}: {error}" for name, error in failures.items())
        others = f"; it is done on {', '.join(done)}" if done else ""
        super().__init__(f"{what} failed on {len(failures)} of {len(failures) + len(done)}: {said}{others}")
        self.done = done
        self.answers: dict[str, Any] = dict(answers)
        self.failures: dict[str, RocketMQError] = dict(failures)


class NoQueueError(RocketMQError):
    """The topic has a route, but no queue of it can serve this: no permission, or no broker is up."""

    invalidates_route = True


class QueueGoneError(NoQueueError):
    """The broker says that it does not have the queue: its topic has fewer now, or was deleted there."""


class NotAssignedError(RocketMQError):
    """The queue is not this consumer's: it was never assigned to it, or rebalancing has taken it away."""


class DataLossError(RocketMQError):
    """Messages that were asked for by their offsets are no longer there.

    Attributes:
        queue: where they were.
        first: the first offset that is missing.
        end: the offset after the last one; None where that is not known.
    """

    def __init__(
        self,
        queue: MessageQueue,
        first: int,
        end: int | None,
        advice: str = "",
        *,
        cause: str = "the broker does not have them any more",
    ) -> None:
        where = f"queue {queue.queue_id} of topic {queue.topic!r} on broker {queue.broker_name!r}"
        which = f"{first} to {end - 1}" if end is not None else f"from {first} on"
        super().__init__(f"offsets {which} of {where} are not there: {cause}{advice}")
        self.queue = queue
        self.first = first
        self.end = end


class UnreadableBodyError(RocketMQError):
    """A message's body is compressed, or a batch, and cannot be opened.

    Attributes:
        queue: where the message is.
        offset: its place there.
        reason: why it cannot be opened, and what to install if that is the cause.
    """

    def __init__(self, queue: MessageQueue, offset: int, reason: str) -> None:
        where = f"queue {queue.queue_id} of topic {queue.topic!r} on broker {queue.broker_name!r}"
        super().__init__(f"the message at offset {offset} of {where} cannot be opened: {reason}")
        self.queue = queue
        self.offset = offset
        self.reason = reason


MOST_CHARACTERS = 500
"""Of a peer's words in an error's text: they may be megabytes, and are logged again and again."""


def one_line(words: str | None) -> str:
    """Return a peer's words as one line of bounded length; brokers put line breaks and links into them."""
    if not words:
        return "no reason given"
    line = " ".join(words[: 2 * MOST_CHARACTERS].split())
    if len(words) <= 2 * MOST_CHARACTERS and len(line) <= MOST_CHARACTERS:
        return line
    return f"{line[:MOST_CHARACTERS]}... ({len(words)} characters)"


class BrokerError(RocketMQError):
    """A broker or name server answered with an error: its code, its own words, and its address.

    Which subclass is raised depends on the code; :meth:`from_answer` chooses it.
    """

    delivery = Delivery.REFUSED

    def __init__(self, code: int, remark: str | None, address: str) -> None:
        super().__init__(f"{address} answered {response_name(code)} ({code}): {one_line(remark)}")
        self.code = code
        self.remark = remark
        self.address = address

    @classmethod
    def from_answer(cls, code: int, remark: str | None, address: str) -> BrokerError:
        """Return the error of the class that stands for ``code``, and for what is known of the remark."""
        words = _ACCESS_WORDS.get(code)
        if words is not None and remark and words.search(remark):
            return AccessDeniedError(code, remark, address)
        return _CLASS_OF_CODE.get(code, BrokerError)(code, remark, address)


class RetriableBrokerError(BrokerError):
    """The broker cannot serve this now; another one may (SYSTEM_ERROR, SERVICE_NOT_AVAILABLE and others)."""

    retriable = True


class BrokerBusyError(RetriableBrokerError):
    """The broker sheds load (SYSTEM_BUSY, FLOW_CONTROL): wait a little before the next try."""


class BrokerTopicError(RetriableBrokerError):
    """The broker does not know this topic (TOPIC_NOT_EXIST): the route is out of date."""

    invalidates_route = True


class NoPermissionError(BrokerTopicError):
    """The broker, or the topic on it, may not be written to or read from (NO_PERMISSION)."""


class AccessDeniedError(BrokerError):
    """The broker checks access, and does not let these credentials do this, or wants some.

    4.x answers with SYSTEM_ERROR then, 5.x with NO_PERMISSION: only the remark tells it from other causes.
    """

    def __init__(self, code: int, remark: str | None, address: str) -> None:
        super().__init__(code, remark, address)
        reason = _JAVA_WRAPPING.sub("", one_line(remark))
        self.args: tuple[Any, ...] = (
            f"{address} denies access: {reason.removesuffix('.')}; "
            "check the client's credentials, and what the broker lets them do",
        )


class MessageRefusedError(BrokerError):
    """The broker finds the message itself wrong (MESSAGE_ILLEGAL): its size, name or properties."""


class SubscriptionError(BrokerError):
    """The broker cannot use the subscription: a filter it cannot parse, or one it has not got yet."""


class SqlFilterRefusedError(SubscriptionError):
    """A broker does not accept a SQL filter: it cannot read it, or filters by no properties at all.

    Attributes:
        topic: the topic that was subscribed.
        sql: the SQL filter.
    """

    def __init__(self, topic: str, sql: str, code: int, remark: str | None, address: str) -> None:
        super().__init__(code, remark, address)
        reason = one_line(remark)
        if code != ResponseCode.SUBSCRIPTION_PARSE_FAILED:
            reason = f"{reason.removesuffix('.')}; set enablePropertyFilter=true on the broker"
        self.args: tuple[Any, ...] = (
            f"{address} refuses the SQL filter {sql!r} on topic {topic!r}: {reason}",
        )
        self.topic = topic
        self.sql = sql


_ACCESS_WORDS: Mapping[int, re.Pattern[str]] = {
    ResponseCode.SYSTEM_ERROR: re.compile(r"\bAclException\b"),
    ResponseCode.NO_PERMISSION: re.compile(
        r"signature failed|username cannot be null|^User:.* (not found|disabled)|has no permission to access"
    ),
}
"""What the remark of a broker that denies access says: 4.x with the first code, 5.x with the second."""

_JAVA_WRAPPING = re.compile(r"^[\w.]*AclException: |, [\w.$]+\([\w.]+:\d+\)$")
"""What 4.x puts around its words: Java's class before, and the place in its source behind."""

_CLASS_OF_CODE: Mapping[int, type[BrokerError]] = {
    ResponseCode.SYSTEM_ERROR: RetriableBrokerError,
    ResponseCode.SYSTEM_BUSY: BrokerBusyError,
    ResponseCode.MESSAGE_ILLEGAL: MessageRefusedError,
    ResponseCode.SERVICE_NOT_AVAILABLE: RetriableBrokerError,
    ResponseCode.NO_PERMISSION: NoPermissionError,
    ResponseCode.TOPIC_NOT_EXIST: BrokerTopicError,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: SubscriptionError,
    ResponseCode.SUBSCRIPTION_NOT_EXIST: SubscriptionError,
    ResponseCode.SUBSCRIPTION_NOT_LATEST: SubscriptionError,
    ResponseCode.FLOW_CONTROL: BrokerBusyError,
    ResponseCode.NO_BUYER_ID: RetriableBrokerError,
    ResponseCode.NOT_IN_CURRENT_UNIT: RetriableBrokerError,
    ResponseCode.GO_AWAY: RetriableBrokerError,
}
