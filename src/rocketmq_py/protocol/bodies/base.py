"""The base class of JSON bodies, and tables whose keys are message queues."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self, TypeVar

import msgspec

from rocketmq_py.error_texts import shortened
from rocketmq_py.errors import ProtocolError
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol import fastjson
from rocketmq_py.protocol.decode_errors import JSON_ERRORS, decoder

T = TypeVar("T")


class Body(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The base class of all JSON bodies. Java: ``RemotingSerializable``."""

    def encode(self) -> bytes:
        """Return the body as standard JSON. Members that are None are left out, as in Java."""
        return msgspec.json.encode(_without_none(msgspec.to_builtins(self)))

    @classmethod
    @decoder("a body")
    def decode(cls, data: bytes) -> Self:
        """Return the body in ``data``: standard JSON, or fastjson's dialect.

        Unknown members are ignored. A member that is null counts as missing.

        Raises:
            ProtocolError: ``data`` is not JSON, or a member is missing or has the wrong type.
        """
        try:
            return msgspec.json.decode(data, type=cls)
        except JSON_ERRORS:
            return convert(fastjson.loads(data), cls)


@decoder("a body")
def convert(value: Any, kind: type[T]) -> T:
    """Convert a result of ``fastjson.loads`` to ``kind``.

    A text that holds a number is accepted as a number, as in fastjson: Go's client quotes the codes of tags.

    Raises:
        ProtocolError: a member is missing or has the wrong type.
    """
    try:
        return msgspec.convert(_without_none(value), kind, strict=False, str_keys=True)
    except msgspec.ValidationError as error:
        raise ProtocolError(f"a body is not a {kind.__name__}: {error}") from error


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_none(member) for name, member in value.items() if member is not None}
    if isinstance(value, list | tuple):
        return [_without_none(item) for item in value]
    return value


class JsonMessageQueue(Body, frozen=True, kw_only=True):
    """A message queue in a body. Java: ``MessageQueue``."""

    topic: str
    broker_name: str
    queue_id: int

    @classmethod
    def of(cls, queue: MessageQueue) -> Self:
        """Return the JSON form of ``queue``."""
        return cls(topic=queue.topic, broker_name=queue.broker_name, queue_id=queue.queue_id)

    @property
    def queue(self) -> MessageQueue:
        """The message queue."""
        return MessageQueue(self.topic, self.broker_name, self.queue_id)


def json_queues(queues: Iterable[MessageQueue]) -> tuple[JsonMessageQueue, ...]:
    """Return the JSON forms of the queues."""
    return tuple([JsonMessageQueue.of(queue) for queue in queues])


@decoder("a table of queues")
def read_queue_table(table: object, kind: type[T]) -> dict[MessageQueue, T]:
    """Return the table whose keys are queues, from its result of ``fastjson.loads``.

    Raises:
        ProtocolError: it is not such a table.
    """
    if not isinstance(table, dict):
        raise ProtocolError(f"a table of queues is {type(table).__name__}, not an object")
    queues = {}
    for key, value in table.items():
        try:
            members = dict(key)
        except (TypeError, ValueError) as error:
            raise ProtocolError(
                f"a table of queues has the key {shortened(repr(key))}, which is not a queue"
            ) from error
        queues[convert(members, JsonMessageQueue).queue] = convert(value, kind)
    return queues


def write_queue_table(table: Mapping[MessageQueue, Any]) -> msgspec.Raw:
    """Return a table whose keys are queues, in fastjson's dialect, the only form that Java reads."""
    encode = msgspec.json.encode
    members = [encode(JsonMessageQueue.of(queue)) + b":" + encode(value) for queue, value in table.items()]
    return msgspec.Raw(b"{" + b",".join(members) + b"}")
