"""How the JSON bodies of commands are read and written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self, TypeVar

import msgspec

from rocketmq_py.errors import ProtocolError
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol import fastjson
from rocketmq_py.protocol.decoding import decoder, shortened

T = TypeVar("T")


class Body(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The root of all JSON bodies. Java: ``RemotingSerializable``."""

    def encode(self) -> bytes:
        """Return the body as standard JSON. Members that are None are left out, as Java does."""
        return msgspec.json.encode(_without_none(msgspec.to_builtins(self)))

    @classmethod
    @decoder("a body")
    def decode(cls, data: bytes) -> Self:
        """Return the body that ``data`` holds: standard JSON, or fastjson's dialect.

        Members that it does not know are left alone; null counts as missing.

        Raises:
            ProtocolError: ``data`` is neither, or a member is missing or of another type.
        """
        try:
            return msgspec.json.decode(data, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return convert(fastjson.loads(data), cls)


@decoder("a body")
def convert(value: Any, kind: type[T]) -> T:
    """Return what ``fastjson.loads`` returned as ``kind``.

    A text that holds a number is taken for it, as fastjson does: Go's client quotes the codes of tags.

    Raises:
        ProtocolError: a member is missing or of another type.
    """
    try:
        return msgspec.convert(_without_none(value), kind, strict=False, str_keys=True)
    except msgspec.ValidationError as error:
        raise ProtocolError(f"a body is no {kind.__name__}: {error}") from error


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_none(member) for name, member in value.items() if member is not None}
    if isinstance(value, list | tuple):
        return [_without_none(item) for item in value]
    return value


class JsonMessageQueue(Body, frozen=True, kw_only=True):
    """A message queue inside of a body. Java: ``MessageQueue``."""

    topic: str
    broker_name: str
    queue_id: int

    @classmethod
    def of(cls, queue: MessageQueue) -> Self:
        """Return what stands for ``queue`` in a body."""
        return cls(topic=queue.topic, broker_name=queue.broker_name, queue_id=queue.queue_id)

    @property
    def queue(self) -> MessageQueue:
        """The queue that this stands for."""
        return MessageQueue(self.topic, self.broker_name, self.queue_id)


def json_queues(queues: Iterable[MessageQueue]) -> tuple[JsonMessageQueue, ...]:
    """Return what stands for the queues in a body."""
    return tuple([JsonMessageQueue.of(queue) for queue in queues])


@decoder("a table of queues")
def read_queue_table(table: object, kind: type[T]) -> dict[MessageQueue, T]:
    """Return a table whose keys are queues, of what ``fastjson.loads`` made of it.

    Raises:
        ProtocolError: it is no such table.
    """
    if not isinstance(table, dict):
        raise ProtocolError(f"a table of queues is {type(table).__name__}, not an object")
    queues = {}
    for key, value in table.items():
        try:
            members = dict(key)
        except (TypeError, ValueError) as error:
            raise ProtocolError(
                f"a table of queues has the key {shortened(repr(key))}, which is no queue"
            ) from error
        queues[convert(members, JsonMessageQueue).queue] = convert(value, kind)
    return queues


def write_queue_table(table: Mapping[MessageQueue, Any]) -> msgspec.Raw:
    """Return a table whose keys are queues in fastjson's dialect: the only form that Java reads."""
    encode = msgspec.json.encode
    members = [encode(JsonMessageQueue.of(queue)) + b":" + encode(value) for queue, value in table.items()]
    return msgspec.Raw(b"{" + b",".join(members) + b"}")
