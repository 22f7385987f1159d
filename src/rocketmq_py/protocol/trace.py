r"""Records of what happened to messages, in RocketMQ's own format. Java: ``TraceDataEncoder``.

A record is a text of fields with ``\x01`` between, ended with ``\x02``; the body of a message for the trace
topic holds one or more of them.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import attrs

from rocketmq_py.protocol.decoding import decoder

_FIELD_END = "\x01"
_RECORD_END = "\x02"
_NO_KEYS = "null"
"""As Java writes it: its reader drops empty fields at a record's end, and then misses them."""

DEFAULT_REGION = "DefaultRegion"
"""The region of a broker that is told of none (Java: ``MixAll.DEFAULT_TRACE_REGION_ID``)."""


_SEPARATING = re.compile(r"[\s\x01\x02]+")


class TracedType(enum.IntEnum):
    """What kind of message was sent. Java: ``MessageType``."""

    NORMAL = 0
    TRANSACTION_HALF = 1
    TRANSACTION_COMMIT = 2
    DELAY = 3
    ORDER = 4


@attrs.frozen(kw_only=True)
class ProducerTrace:
    """What the records of producers have in common.

    Attributes:
        timestamp_ms: when it began, epoch milliseconds.
        region: the broker's region.
        group: the producer group.
        topic: the message's topic.
        message_id: the id that the sender gave it.
        tags: its tags.
        keys: its business keys, with blanks between.
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
            kind, self.timestamp_ms, self.region, self.group, self.topic, self.message_id, self.tags,
            self.keys, self.store_host, *more,
        )  # fmt: skip


def _read_producer(fields: Sequence[str]) -> dict[str, Any]:
    """Return the attributes of a ProducerTrace."""
    names = ("region", "group", "topic", "message_id", "tags", "keys", "store_host")
    return {"timestamp_ms": int(fields[1]), **dict(zip(names, fields[2:9], strict=True))}


@attrs.frozen(kw_only=True)
class PublishTrace(ProducerTrace):
    """A message was sent. Java: the ``Pub`` record.

    The attributes are those of :class:`ProducerTrace`, and these.

    Attributes:
        body_size: bytes of its body.
        cost_ms: how long sending took.
        traced_type: its kind.
        offset_message_id: the id that the broker gave it.
        success: whether it was stored as safely as the broker should.
    """

    body_size: int
    cost_ms: int
    traced_type: TracedType
    offset_message_id: str
    success: bool

    def fields(self) -> tuple[object, ...]:
        """Return what stands in the record."""
        return self._fields(
            "Pub", self.body_size, self.cost_ms, int(self.traced_type), self.offset_message_id,
            _boolean(self.success),
        )  # fmt: skip


@attrs.frozen(kw_only=True)
class ConsumeStartTrace:
    """A consumer was given a message. Java: the ``SubBefore`` record.

    Attributes:
        timestamp_ms: when, epoch milliseconds.
        region: the broker's region.
        group: the consumer group.
        request_id: what the two records of one call have in common.
        message_id: the message's id.
        retries: how often its group failed on it before.
        keys: its business keys, with blanks between.
    """

    timestamp_ms: int
    region: str
    group: str
    request_id: str
    message_id: str
    retries: int
    keys: str

    def fields(self) -> tuple[object, ...]:
        """Return what stands in the record."""
        return (
            "SubBefore", self.timestamp_ms, self.region, self.group, self.request_id, self.message_id,
            self.retries, self.keys or _NO_KEYS,
        )  # fmt: skip


class ConsumeReturn(enum.IntEnum):
    """How a consumer's call ended. Java: ``ConsumeReturnType``."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURN_NULL = 3
    FAILED = 4


@attrs.frozen(kw_only=True)
class ConsumeEndTrace:
    """A consumer is done with a message. Java: the ``SubAfter`` record.

    Attributes:
        request_id: what the two records of one call have in common.
        message_id: the message's id.
        cost_ms: how long the call took, shared among its messages.
        success: whether it was consumed.
        keys: its business keys, with blanks between.
        returned: how the call ended.
        timestamp_ms: when the call ended, epoch milliseconds.
        group: the consumer group.
    """

    request_id: str
    message_id: str
    cost_ms: int
    success: bool
    keys: str
    returned: ConsumeReturn
    timestamp_ms: int
    group: str

    def fields(self) -> tuple[object, ...]:
        """Return what stands in the record."""
        return (
            "SubAfter", self.request_id, self.message_id, self.cost_ms, _boolean(self.success),
            self.keys or _NO_KEYS, int(self.returned), self.timestamp_ms, self.group,
        )  # fmt: skip


@attrs.frozen(kw_only=True)
class EndTransactionTrace(ProducerTrace):
    """A broker was told what became of a transaction. Java: the ``EndTransaction`` record.

    The attributes are those of :class:`ProducerTrace`, and these.

    Attributes:
        transaction_id: the transaction's id.
        state: ``COMMIT_MESSAGE``, ``ROLLBACK_MESSAGE`` or ``UNKNOW``.
        from_check: whether it answered a broker's check.
    """

    transaction_id: str
    state: str
    from_check: bool

    def fields(self) -> tuple[object, ...]:
        """Return what stands in the record."""
        return self._fields(
            "EndTransaction", int(TracedType.TRANSACTION_COMMIT), self.transaction_id, self.state,
            _boolean(self.from_check),
        )  # fmt: skip


TraceRecord: TypeAlias = PublishTrace | ConsumeStartTrace | ConsumeEndTrace | EndTransactionTrace


def encode_record(record: TraceRecord) -> str:
    """Return the wire form of a record."""
    return _FIELD_END.join(map(str, record.fields())) + _RECORD_END


def keys_of(records: Iterable[TraceRecord]) -> Sequence[str]:
    """Return the keys by which a message with these records is found: ids and business keys, each once."""
    keys: dict[str, None] = {}
    for record in records:
        # Ids may come from other clients, with blanks or separators in them.
        keys.update(dict.fromkeys(_SEPARATING.split(f"{record.message_id} {record.keys}")))
    keys.pop("", None)
    return list(keys)


@decoder("a trace")
def read_records(body: bytes) -> list[list[str]]:
    """Return the fields of each record in the body of a message of the trace topic; the first is its kind."""
    return [record.split(_FIELD_END) for record in body.decode(errors="replace").split(_RECORD_END) if record]


def decode_records(body: bytes) -> list[TraceRecord]:
    """Return the records in the body of a message of the trace topic.

    Those of a kind that is not known here, and those that lack fields or have others, are left out: any
    client may write what it likes there. Of old clients, what they do not write is empty.
    """
    records = []
    for fields in read_records(body):
        read = _READERS.get(fields[0])
        if read is not None:
            with suppress(ValueError, IndexError):
                records.append(read(fields))
    return records


def _read_publish(fields: Sequence[str]) -> PublishTrace:
    # Before 4.7 there was no id of the broker's.
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
        message_id=fields[5], retries=int(fields[6]), keys=_keys_of(fields, 7),
    )  # fmt: skip


def _read_consume_end(fields: Sequence[str]) -> ConsumeEndTrace:
    success = fields[4] == "true"
    returned = ConsumeReturn.SUCCESS if success else ConsumeReturn.FAILED
    return ConsumeEndTrace(
        request_id=fields[1], message_id=fields[2], cost_ms=int(fields[3]), success=success,
        keys=_keys_of(fields, 5),
        returned=ConsumeReturn(int(fields[6])) if len(fields) > 6 else returned,
        timestamp_ms=int(fields[7]) if len(fields) > 8 else 0,
        group=fields[8] if len(fields) > 8 else "",
    )  # fmt: skip


def _read_end_transaction(fields: Sequence[str]) -> EndTransactionTrace:
    return EndTransactionTrace(
        **_read_producer(fields),
        transaction_id=fields[10], state=fields[11], from_check=fields[12] == "true",
    )  # fmt: skip


_READERS: Mapping[str, Callable[[Sequence[str]], TraceRecord]] = {
    "Pub": _read_publish,
    "SubBefore": _read_consume_start,
    "SubAfter": _read_consume_end,
    "EndTransaction": _read_end_transaction,
}


def _keys_of(fields: Sequence[str], place: int) -> str:
    keys = fields[place] if len(fields) > place else ""
    return "" if keys == _NO_KEYS else keys


def _boolean(value: bool) -> str:
    return "true" if value else "false"
