r"""Trace records of messages that were sent and consumed. Java: ``TraceDataEncoder``.

A record is a text: fields separated by ``\x01``, and ``\x02`` at the end. The body of a message on the trace
topic contains one or more records.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import attrs

from rocketmq_py.properties import MAX_ENCODED_SIZE
from rocketmq_py.protocol.decode_errors import decoder

_FIELD_END = "\x01"
_RECORD_END = "\x02"
_NONE = "null"
"""Stands for no tags and no keys, as in Java, whose reader fails on an empty field at the end of a record."""

DEFAULT_REGION = "DefaultRegion"
"""The region of a broker without a configured one. Java: ``MixAll.DEFAULT_TRACE_REGION_ID``."""

MAX_KEYS_SIZE = MAX_ENCODED_SIZE - 1024
"""Bytes of the keys of a message with records. The rest is for the properties that client and broker add."""

_SEPARATORS = re.compile(r"[\s\x01\x02]+")


class TracedType(enum.IntEnum):
    """The kind of a traced message. Java: ``MessageType``."""

    NORMAL = 0
    TRANSACTION_HALF = 1
    TRANSACTION_COMMIT = 2
    DELAY = 3
    ORDER = 4


@attrs.frozen(kw_only=True)
class ProducerTrace:
    """The attributes that all records of producers have.

    Attributes:
        timestamp_ms: the beginning of the send, epoch milliseconds.
        region: the broker's region.
        group: the producer group.
        topic: the message's topic.
        message_id: the sender's id of the message.
        tags: the message's tags.
        keys: its business keys, separated by blanks.
        store_host: the broker's ``host:port``.
    """

    timestamp_ms: int
    region: str
    group: str
    topic: str
    message_id: str
    tags: str
    keys: str
    store_host: str

    def _fields(self, kind: str, *more: object) -> tuple[object, ...]:
        return (
            kind, self.timestamp_ms, self.region, self.group, self.topic, self.message_id,
            self.tags or _NONE, self.keys or _NONE, self.store_host, *more,
        )  # fmt: skip


def _read_producer(fields: Sequence[str]) -> dict[str, Any]:
    """Return the attributes of a ProducerTrace."""
    return {
        "timestamp_ms": int(fields[1]), "region": fields[2], "group": fields[3], "topic": fields[4],
        "message_id": fields[5], "tags": _text(fields, 6), "keys": _text(fields, 7), "store_host": fields[8],
    }  # fmt: skip


@attrs.frozen(kw_only=True)
class PublishTrace(ProducerTrace):
    """The record of a send. Java: ``Pub``.

    The attributes are those of :class:`ProducerTrace`, and these.

    Attributes:
        body_size: bytes of the body.
        cost_ms: duration of the send in milliseconds.
        traced_type: the kind of the message.
        offset_message_id: the broker's id of the message.
        success: whether the message was stored with status SEND_OK.
    """

    body_size: int
    cost_ms: int
    traced_type: TracedType
    offset_message_id: str
    success: bool

    def fields(self) -> tuple[object, ...]:
        """Return the fields of the record."""
        return self._fields(
            "Pub", self.body_size, self.cost_ms, int(self.traced_type), self.offset_message_id,
            _boolean(self.success),
        )  # fmt: skip


@attrs.frozen(kw_only=True)
class ConsumeStartTrace:
    """The record of a message that is passed to a consumer. Java: ``SubBefore``.

    Attributes:
        timestamp_ms: the time, epoch milliseconds.
        region: the broker's region.
        group: the consumer group.
        request_id: the id of the call, which the record of its end has too.
        message_id: the message's id.
        retries: how often its group failed to consume it before.
        keys: its business keys, separated by blanks.
    """

    timestamp_ms: int
    region: str
    group: str
    request_id: str
    message_id: str
    retries: int
    keys: str

    def fields(self) -> tuple[object, ...]:
        """Return the fields of the record."""
        return (
            "SubBefore", self.timestamp_ms, self.region, self.group, self.request_id, self.message_id,
            self.retries, self.keys or _NONE,
        )  # fmt: skip


class ConsumeReturnType(enum.IntEnum):
    """The outcome of a consumer's call. Java: ``ConsumeReturnType``."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURN_NULL = 3
    FAILED = 4


@attrs.frozen(kw_only=True)
class ConsumeEndTrace:
    """The record of the end of a consumer's call. Java: ``SubAfter``.

    Attributes:
        request_id: the id of the call, which the record of its start has too.
        message_id: the message's id.
        cost_ms: duration of the call in milliseconds, divided by its number of messages.
        success: whether the message was consumed.
        keys: its business keys, separated by blanks.
        returned: the outcome of the call.
        timestamp_ms: the end of the call, epoch milliseconds.
        group: the consumer group.
    """

    request_id: str
    message_id: str
    cost_ms: int
    success: bool
    keys: str
    returned: ConsumeReturnType
    timestamp_ms: int
    group: str

    def fields(self) -> tuple[object, ...]:
        """Return the fields of the record."""
        return (
            "SubAfter", self.request_id, self.message_id, self.cost_ms, _boolean(self.success),
            self.keys or _NONE, int(self.returned), self.timestamp_ms, self.group,
        )  # fmt: skip


@attrs.frozen(kw_only=True)
class EndTransactionTrace(ProducerTrace):
    """The record of a transaction's commit or rollback. Java: ``EndTransaction``.

    The attributes are those of :class:`ProducerTrace`, and these.

    Attributes:
        transaction_id: the transaction's id.
        state: ``COMMIT_MESSAGE``, ``ROLLBACK_MESSAGE`` or ``UNKNOW``.
        from_check: whether this was the answer to a broker's check.
    """

    transaction_id: str
    state: str
    from_check: bool

    def fields(self) -> tuple[object, ...]:
        """Return the fields of the record."""
        return self._fields(
            "EndTransaction", int(TracedType.TRANSACTION_COMMIT), self.transaction_id, self.state,
            _boolean(self.from_check),
        )  # fmt: skip


@attrs.frozen(kw_only=True)
class RecallTrace:
    """The record of a recall of a timed message. Java: ``Recall``.

    Attributes:
        timestamp_ms: the time, epoch milliseconds.
        region: the broker's region.
        group: the producer group.
        topic: the message's topic.
        message_id: the sender's id of the message.
        success: whether the broker accepted the recall.
        keys: empty. Only other records have keys.
    """

    timestamp_ms: int
    region: str
    group: str
    topic: str
    message_id: str
    success: bool
    keys: str = ""

    def fields(self) -> tuple[object, ...]:
        """Return the fields of the record."""
        return (
            "Recall", self.timestamp_ms, self.region, self.group, self.topic, self.message_id,
            _boolean(self.success),
        )  # fmt: skip


TraceRecord: TypeAlias = (
    PublishTrace | ConsumeStartTrace | ConsumeEndTrace | EndTransactionTrace | RecallTrace
)


def encode_record(record: TraceRecord, *, cloud: bool = False) -> str:
    """Return the wire form of a record, with ``cloud`` that of a record for the topic of a region."""
    fields = record.fields()
    if cloud and isinstance(record, ConsumeEndTrace):
        # As in Java, which leaves out the time and the group there, and ends with a separator.
        fields = (*fields[:-2], "")
    return _FIELD_END.join(map(str, fields)) + _RECORD_END


class TraceKeys:
    """The keys of a message with trace records: message ids and business keys, without duplicates.

    They are part of the message's properties, whose size is limited.
    """

    def __init__(self) -> None:
        self._keys: dict[str, None] = {}
        self._bytes_left = MAX_KEYS_SIZE

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def add(self, record: TraceRecord, *, partly: bool) -> bool:
        """Add the keys of a record if they fit, and return whether they were added.

        With ``partly``, add those that fit, and return True.
        """
        added: dict[str, None] = {}
        bytes_left = self._bytes_left
        # Ids from other clients may contain blanks or separators.
        for key in _SEPARATORS.split(f"{record.message_id} {record.keys}"):
            if not key or key in self._keys or key in added:
                continue
            size = len(key.encode(errors="replace")) + 1  # keys are separated by blanks
            if size <= bytes_left:
                added[key] = None
                bytes_left -= size
            elif not partly:
                return False
        self._keys |= added
        self._bytes_left = bytes_left
        return True


@decoder("a trace")
def read_records(body: bytes) -> list[list[str]]:
    """Return the fields of each record in the body of a trace message. The first field is the kind."""
    return [record.split(_FIELD_END) for record in body.decode(errors="replace").split(_RECORD_END) if record]


def decode_records(body: bytes) -> list[TraceRecord]:
    """Return the records in the body of a message on the trace topic.

    Records of unknown kinds or with unexpected fields are skipped, because any client may write to that
    topic. Fields that old clients do not write are empty.
    """
    records = []
    for fields in read_records(body):
        read = _READERS.get(fields[0])
        if read is not None:
            with suppress(ValueError, IndexError):
                records.append(read(fields))
    return records


def _read_publish(fields: Sequence[str]) -> PublishTrace:
    # Clients before 4.7 do not write the offset message id.
    has_offset_id = len(fields) > 13
    return PublishTrace(
        **_read_producer(fields),
        body_size=int(fields[9]), cost_ms=int(fields[10]), traced_type=TracedType(int(fields[11])),
        offset_message_id=fields[12] if has_offset_id else "",
        success=fields[13 if has_offset_id else 12] == "true",
    )  # fmt: skip


def _read_consume_start(fields: Sequence[str]) -> ConsumeStartTrace:
    return ConsumeStartTrace(
        timestamp_ms=int(fields[1]), region=fields[2], group=fields[3], request_id=fields[4],
        message_id=fields[5], retries=int(fields[6]), keys=_text(fields, 7),
    )  # fmt: skip


def _read_consume_end(fields: Sequence[str]) -> ConsumeEndTrace:
    success = fields[4] == "true"
    returned = ConsumeReturnType.SUCCESS if success else ConsumeReturnType.FAILED
    return ConsumeEndTrace(
        request_id=fields[1], message_id=fields[2], cost_ms=int(fields[3]), success=success,
        keys=_text(fields, 5),
        returned=ConsumeReturnType(int(fields[6])) if len(fields) > 6 else returned,
        timestamp_ms=int(fields[7]) if len(fields) > 8 else 0,
        group=fields[8] if len(fields) > 8 else "",
    )  # fmt: skip


def _read_end_transaction(fields: Sequence[str]) -> EndTransactionTrace:
    return EndTransactionTrace(
        **_read_producer(fields),
        transaction_id=fields[10], state=fields[11], from_check=fields[12] == "true",
    )  # fmt: skip


def _read_recall(fields: Sequence[str]) -> RecallTrace:
    return RecallTrace(
        timestamp_ms=int(fields[1]), region=fields[2], group=fields[3], topic=fields[4],
        message_id=fields[5], success=fields[6] == "true",
    )  # fmt: skip


_READERS: Mapping[str, Callable[[Sequence[str]], TraceRecord]] = {
    "Pub": _read_publish,
    "SubBefore": _read_consume_start,
    "SubAfter": _read_consume_end,
    "EndTransaction": _read_end_transaction,
    "Recall": _read_recall,
}


def _text(fields: Sequence[str], index: int) -> str:
    """Return tags or keys, which may be missing."""
    text = fields[index] if len(fields) > index else ""
    return "" if text == _NONE else text


def _boolean(value: bool) -> str:
    return "true" if value else "false"
