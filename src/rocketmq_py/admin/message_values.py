"""Values that describe messages: listings, the tracks of groups, the traces of clients, dead letters."""

from __future__ import annotations

import enum
from collections.abc import Mapping

import attrs

from rocketmq_py.admin.fan_out import Listing
from rocketmq_py.errors import RocketMQError
from rocketmq_py.message import ReceivedMessage
from rocketmq_py.names import DEAD_LETTER_PREFIX
from rocketmq_py.property_names import (
    DEAD_LETTER_ORIGIN_MESSAGE_ID,
    DEAD_LETTER_REASON,
    ORIGIN_MESSAGE_ID,
)


class TrackType(enum.StrEnum):
    """The state of a message in a group. Java: ``TrackType``."""

    CONSUMED = "CONSUMED"
    """The group's offset is past the message."""
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"
    """The group's offset is past the message, but its subscription excludes the message."""
    PULL = "PULL"
    """The group consists of pull consumers. Brokers do not know what they consumed."""
    NOT_CONSUME_YET = "NOT_CONSUME_YET"
    """The group's offset is not past the message yet."""
    NOT_ONLINE = "NOT_ONLINE"
    """The group has no members online. ``MessageTrack.is_past`` tells whether its offset is past."""
    CONSUME_BROADCASTING = "CONSUME_BROADCASTING"
    """The group broadcasts. Its members store their offsets locally."""
    UNKNOWN = "UNKNOWN"
    """A broker did not answer."""


@attrs.frozen(kw_only=True)
class MessageTrack:
    """The state of a message in one group. Java: ``MessageTrack``.

    Attributes:
        group: the group.
        track_type: the state.
        committed: the group's committed offset in the message's queue. None if it has none.
        is_past: whether that offset is past the message.
        failure: the error that made the state UNKNOWN.
    """

    group: str
    track_type: TrackType
    committed: int | None = None
    is_past: bool = False
    failure: RocketMQError | None = None


@attrs.frozen(kw_only=True)
class MessageListing(Listing[ReceivedMessage]):
    """The messages that a search found.

    Attributes:
        messages: the messages, oldest first.
        failures: the error of each broker that did not answer, by its name.
    """

    messages: tuple[ReceivedMessage, ...]
    failures: Mapping[str, RocketMQError]

    @property
    def _items(self) -> tuple[ReceivedMessage, ...]:
        return self.messages


@attrs.frozen(kw_only=True)
class TrackListing(Listing[MessageTrack]):
    """The states of a message in all groups.

    Attributes:
        tracks: the states, sorted by group.
        failures: the error of each broker that did not list its groups, by its name.
    """

    tracks: tuple[MessageTrack, ...]
    failures: Mapping[str, RocketMQError]

    @property
    def _items(self) -> tuple[MessageTrack, ...]:
        return self.tracks


class TraceKind(enum.StrEnum):
    """The kinds of events in message traces. Java: ``TraceType``."""

    SENT = "SENT"
    """A producer sent the message."""
    CONSUMED = "CONSUMED"
    """A consumer's handler was called with the message."""
    TRANSACTION = "TRANSACTION"
    """A producer committed or rolled back the message's transaction."""
    RECALLED = "RECALLED"
    """A producer recalled the timed message."""


@attrs.frozen(kw_only=True)
class TraceEvent:
    """An event in the life of a message, as its client traced it. Java: ``TraceView``.

    Attributes:
        kind: the kind of the event.
        time_ms: start time, epoch milliseconds on the client's clock. If only the end was traced, its time.
        group: the producer or consumer group.
        client_address: the client's address, ``host:port``.
        cost_ms: duration, milliseconds. None if it has not ended or is unknown.
        success: whether it succeeded. None if it has not ended.
        reconsume_times: number of earlier deliveries to the group that failed.
        detail: the outcome of a handler's call (SUCCESS, TIME_OUT, EXCEPTION, RETURN_NULL, FAILED) or of a
            transaction (COMMIT_MESSAGE, ROLLBACK_MESSAGE, UNKNOW). None for other events.
        broker_address: the address of the broker that the message was sent to, ``host:port``. None for other
            events.
    """

    kind: TraceKind
    time_ms: int
    group: str
    client_address: str
    cost_ms: int | None = None
    success: bool | None = None
    reconsume_times: int = 0
    detail: str | None = None
    broker_address: str | None = None


@attrs.frozen(kw_only=True)
class TraceListing(Listing[TraceEvent]):
    """The traced events of a message.

    Attributes:
        events: the events, sorted by time.
        failures: the error of each broker that did not return its traces, by its name.
    """

    events: tuple[TraceEvent, ...]
    failures: Mapping[str, RocketMQError]

    @property
    def _items(self) -> tuple[TraceEvent, ...]:
        return self.events


@attrs.frozen(kw_only=True)
class DirectConsumeResult:
    """The result of :meth:`Messages.consume_directly`. Java: ``ConsumeMessageDirectlyResult``.

    Attributes:
        result: CR_SUCCESS, CR_LATER, CR_ROLLBACK, CR_COMMIT, CR_THROW_EXCEPTION or CR_RETURN_NULL.
        remark: the error of the handler as text. None if it succeeded.
        cost_ms: duration of the handler's call, milliseconds.
        orderly: whether the member consumes in order.
    """

    result: str
    remark: str | None
    cost_ms: int
    orderly: bool

    @property
    def success(self) -> bool:
        """Whether the member consumed the message."""
        return self.result in ("CR_SUCCESS", "CR_COMMIT")


@attrs.frozen
class DeadLetter:
    """A message that a group failed on too often.

    Attributes:
        message: the message in the dead-letter topic. It has the ``message_id`` of the original message.
        origin_topic: the topic that the message was sent to. None if its properties do not contain it.
        resent_ms: when it was first sent again, epoch milliseconds. None if it was not, or if the message
            that was sent again has expired. Brokers find that message by their index (messageIndexEnable).
    """

    message: ReceivedMessage
    origin_topic: str | None = None
    resent_ms: int | None = None

    @property
    def group(self) -> str:
        """The group that failed on the message."""
        return self.message.topic.removeprefix(DEAD_LETTER_PREFIX)

    @property
    def origin_message_id(self) -> str | None:
        """The offset message id of the original message. None if its properties do not contain it."""
        properties = self.message.properties
        return properties.get(ORIGIN_MESSAGE_ID) or properties.get(DEAD_LETTER_ORIGIN_MESSAGE_ID)

    @property
    def reason(self) -> str | None:
        """Why a consumer moved it here without retries, or None (the property ``DLQ_REASON``)."""
        return self.message.properties.get(DEAD_LETTER_REASON)


@attrs.frozen(kw_only=True)
class DeadLetterListing(Listing[DeadLetter]):
    """The newest dead letters of a group.

    Attributes:
        letters: the dead letters, oldest first.
        total: the number of dead letters on the brokers that answered, including those not listed.
        failures: the error of each broker that did not answer, by its name, and those of letters for which
            a broker did not say whether they were sent again, by their ``offset_message_id``.
    """

    letters: tuple[DeadLetter, ...]
    total: int
    failures: Mapping[str, RocketMQError]

    @property
    def _items(self) -> tuple[DeadLetter, ...]:
        return self.letters
