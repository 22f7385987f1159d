"""The base classes of typed headers: how attributes become a command's ext fields, and back.

A header is a msgspec struct under :class:`Header`. An attribute's name is the field's name in snake case
(camel case on the wire, unless ``msgspec.field`` gives another name), its type chooses the conversion, and a
default makes the field optional.
"""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import msgspec

from rocketmq_py.errors import ProtocolError
from rocketmq_py.protocol.decode_errors import decoder, unreadable

Int32 = Annotated[int, 32]
"""An integer in the range of Java's ``Integer``."""
Int64 = Annotated[int, 64]
"""An integer in the range of Java's ``Long``: offsets, timestamps in epoch milliseconds."""


def _integer_reader(bits: int) -> Callable[[str], int]:
    lowest, highest = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def read(text: str) -> int:
        value = int(text)
        if lowest <= value <= highest:
            return value
        raise ValueError(f"{value} does not fit {bits} bits")

    return read


def _read_boolean(text: str) -> bool:
    return text.lower() == "true"  # as Java's parseBoolean, which accepts any text


def _write_boolean(value: bool) -> str:
    return "true" if value else "false"


_CONVERTERS: Mapping[Any, tuple[Callable[[str], Any], Callable[[Any], str]]] = {
    str: (str, str),
    bool: (_read_boolean, _write_boolean),
    Int32: (_integer_reader(32), str),
    Int64: (_integer_reader(64), str),
}


class _Field(NamedTuple):
    attribute: str
    wire_name: str
    is_required: bool
    read: Callable[[str], Any]
    write: Callable[[Any], str]


@functools.cache
def _fields_of(header: type[Header]) -> tuple[_Field, ...]:
    return tuple(
        [
            _Field(field.name, field.encode_name, field.required, *_CONVERTERS[_without_none(field.type)])
            for field in msgspec.structs.fields(header)
        ]
    )


def _without_none(hint: Any) -> Any:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        (hint,) = [choice for choice in typing.get_args(hint) if choice is not types.NoneType]
    return hint


class Header(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The base class of all typed headers. Java: ``CommandCustomHeader``."""

    def to_fields(self) -> dict[str, str]:
        """Return the ext fields as they go on the wire. Attributes that are None are left out."""
        fields = {}
        for attribute, wire_name, _, _, write in _fields_of(type(self)):
            value = getattr(self, attribute)
            if value is not None:
                fields[wire_name] = write(value)
        return fields

    @classmethod
    def wire_names(cls) -> dict[str, str]:
        """Return the names of the ext fields by attribute."""
        return {field.attribute: field.wire_name for field in _fields_of(cls)}

    @classmethod
    @decoder("a header")
    def from_fields(cls, fields: Mapping[str, str]) -> Self:
        """Return the header in a command's ext fields. Unknown fields are ignored.

        Raises:
            ProtocolError: a required field is missing, or a field is not a number of the right size.
        """
        values = {}
        wire_name = ""
        try:
            for attribute, wire_name, is_required, read, _ in _fields_of(cls):
                text = fields.get(wire_name)
                if text is not None:
                    values[attribute] = read(text)
                elif is_required:
                    raise ProtocolError(f"{cls.__name__}: field {wire_name!r} is missing")
        except ValueError as error:
            raise unreadable(f"{cls.__name__}: field {wire_name!r}", error) from error
        return cls(**values)


class Request(Header, frozen=True, kw_only=True):
    """The base class of request headers, with the fields that 5.x added to all. Java: ``RpcRequestHeader``.

    Attributes:
        broker_name: the name of the target broker. A client may know a queue under a logical broker name.
        namespace: the namespace of the names in the request.
        namespaced: whether the names in the request already contain the namespace.
    """

    code: ClassVar[int]

    broker_name: str | None = msgspec.field(default=None, name="bname")
    namespace: str | None = msgspec.field(default=None, name="ns")
    namespaced: bool | None = msgspec.field(default=None, name="nsd")


class QueueRequest(Request, frozen=True, kw_only=True):
    """The base class of requests about one queue. Java: ``TopicQueueRequestHeader``.

    Attributes:
        topic: the topic.
        queue_id: the queue on this broker.
    """

    topic: str
    queue_id: Int32
