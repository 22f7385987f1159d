"""What there is to know about single messages: what became of them, where they went, and who gave them up."""

from __future__ import annotations

import enum
from collections.abc import Mapping

import attrs

from rocketmq_py import properties as names
from rocketmq_py.admin.asking import Listing
from rocketmq_py.errors import RocketMQError
from rocketmq_py.message import ReceivedMessage
from rocketmq_py.names import DEAD_LETTER_PREFIX


class TrackType(enum.StrEnum):
    """What a group did with a message. Java: ``TrackType``."""

    CONSUMED = "CONSUMED"
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"
    """It is past the message, whose tag it does not subscribe."""
    PULL = "PULL"
    """Its members pull by themselves: only they know."""
    NOT_CONSUME_YET = "NOT_CONSUME_YET"
    NOT_ONLINE = "NOT_ONLINE"
    """Nobody of it is there; ``MessageTrack.is_past`` says whether it had come so far."""
    CONSUME_BROADCASTING = "CONSUME_BROADCASTING"
    """Each member keeps by itself how far it is."""
    UNKNOWN = "UNKNOWN"


@attrs.frozen(kw_only=True)
class MessageTrack:
    """What one group did with a message. Java: ``MessageTrack``.

    Attributes:
        group: the group.
        track_type: what it did.
        consumer_offset: where it goes on in the message's queue; None if it has never been there.
        is_past: whether that is behind the message.
        failure: why that is not known.
    """

    group: str
    track_type: TrackType
    consumer_offset: int | None = None
    is_past: bool = False
    failure: RocketMQError | None = None


@attrs.frozen(kw_only=True)
class MessageListing(Listing[ReceivedMessage]):
    """Messages that were looked for.

    Attributes:
        messages: oldest first.
        failures: the error of each broker that did not answer, by its name.
    """

    messages: tuple[ReceivedMessage, ...]
    failures: Mapping[str, RocketMQError]

    @property
    def _items(self) -> tuple[ReceivedMessage, ...]:
        return self.messages


@attrs.frozen(kw_only=True)
class TrackListing(Listing[MessageTrack]):
    """What groups did with a message.

    Attributes:
        tracks: sorted by group.
        failures: the error of each broker that did not say which groups it has, by its name.
    """

    tracks: tuple[MessageTrack, ...]
    failures: Mapping[str, RocketMQError]

    @property
    def _items(self) -> tuple[MessageTrack, ...]:
        return self.tracks


class TraceKind(enum.StrEnum):
    """What a trace tells of."""

    SENT = "SENT"
    CONSUMED = "CONSUMED"
    TRANSACTION = "TRANSACTION"
    """A transaction was committed or rolled back."""


@attrs.frozen(kw_only=True)
class TraceEvent:
    """Something that a client did with a message, as it says itself. Java: ``TraceView``.

    Attributes:
        kind: what it did.
        time_ms: when it began, epoch milliseconds on its clock; 0 if only the end is known.
        group: the producer or consumer group.
        client: the client's address, ``host:port``.
        cost_ms: how long it took; None if it is not over, or unknown.
        success: whether it went well; None if it is not over.
        retries: how often the group had failed on the message before.
        detail: how a consumer's call ended (SUCCESS, TIME_OUT, EXCEPTION, RETURN_NULL, FAILED), or what
            became of a transaction (COMMIT_MESSAGE, ROLLBACK_MESSAGE, UNKNOW); None for others.
        broker: the address of the broker that a message was sent to, ``host:port``; None for others.
    """

    kind: TraceKind
    time_ms: int
    group: str
    client: str
    cost_ms: int | None = None
    success: bool | None = None
    retries: int = 0
    detail: str | None = None
    broker: str | None = None


@attrs.frozen(kw_only=True)
class TraceListing(Listing[TraceEvent]):
    """What clients did with a message.

    Attributes:
        events: by time.
        failures: the error of each broker that did not tell its traces, by its name.
    """

    events: tuple[TraceEvent, ...]
    failures: Mapping[str, RocketMQError]

    @property
    def _items(self) -> tuple[TraceEvent, ...]:
        return self.events


@attrs.frozen(kw_only=True)
class DirectConsumeResult:
    """What came of a message that a member was told to consume. Java: ``ConsumeMessageDirectlyResult``.

    Attributes:
        result: CR_SUCCESS, CR_LATER, CR_ROLLBACK, CR_COMMIT, CR_THROW_EXCEPTION or CR_RETURN_NULL.
        remark: the failure, as text; None if there was none.
        spent_ms: how long it took.
        orderly: whether the member consumes in order.
    """

    result: str
    remark: str | None
    spent_ms: int
    orderly: bool

    @property
    def success(self) -> bool:
        """Whether the member consumed the message."""
        return self.result in ("CR_SUCCESS", "CR_COMMIT")


@attrs.frozen
class DeadLetter:
    """A message that a group has given up.

    Attributes:
        message: as it is among the dead letters: with ``message_id`` as its sender gave it.
    """

    message: ReceivedMessage

    @property
    def group(self) -> str:
        """The group that has given it up."""
        return self.message.topic.removeprefix(DEAD_LETTER_PREFIX)

    @property
    def origin_topic(self) -> str | None:
        """The topic that it was sent to; None if it does not say so."""
        properties = self.message.properties
        return properties.get(names.DEAD_LETTER_ORIGIN_TOPIC) or properties.get(names.RETRY_TOPIC)

    @property
    def origin_message_id(self) -> str | None:
        """The broker's id of the message that the group failed on first; None if it does not say so."""
        properties = self.message.properties
        return properties.get(names.ORIGIN_MESSAGE_ID) or properties.get(names.DEAD_LETTER_ORIGIN_MESSAGE_ID)


@attrs.frozen(kw_only=True)
class DeadLetters(Listing[DeadLetter]):
    """Dead letters of a group.

    Attributes:
        letters: the newest, oldest first.
        total: how many there are on the brokers that answered, listed or not.
        failures: the error of each broker that did not answer, by its name.
    """

    letters: tuple[DeadLetter, ...]
    total: int
    failures: Mapping[str, RocketMQError]

    @property
    def _items(self) -> tuple[DeadLetter, ...]:
        return self.letters
