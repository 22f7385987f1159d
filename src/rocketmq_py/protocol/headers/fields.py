"""How a typed header becomes a command's ext fields and back.

A header is a msgspec struct under :class:`Header`. Its attributes say all that there is to know: the name
(snake case here, camel case on the wire, unless ``msgspec.field`` gives another), the type, and by a default
that the field may be missing. This is compiled once for each class, when it is first used: of a hundred
classes a program uses a few.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Self

import msgspec

from rocketmq_py.errors import ProtocolError
from rocketmq_py.protocol.decoding import decoder, unreadable

Int32 = Annotated[int, 32]
"""A number with the range of Java's ``Integer``."""
Int64 = Annotated[int, 64]
"""A number with the range of Java's ``Long``: offsets, timestamps in epoch milliseconds."""


def _integer_reader(bits: int) -> Callable[[str], int]:
    lowest, highest = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def read(text: str) -> int:
        value = int(text)
        if lowest <= value <= highest:
            return value
        raise ValueError(f"{value} does not fit {bits} bits")

    return read


def _read_boolean(text: str) -> bool:
    return text.lower() == "true"  # like Java's parseBoolean, which finds nothing wrong


def _write_boolean(value: bool) -> str:
    return "true" if value else "false"


_CONVERTERS: Mapping[Any, tuple[Callable[[str], Any], Callable[[Any], str]]] = {
    str: (str, str),
    bool: (_read_boolean, _write_boolean),
    Int32: (_integer_reader(32), str),
    Int64: (_integer_reader(64), str),
}


def _without_none(hint: Any) -> Any:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        (hint,) = [choice for choice in typing.get_args(hint) if choice is not types.NoneType]
    return hint


class _Uncompiled:
    """Stands in the place of what a class's methods loop over until that is first asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, header: object, cls: type[Header]) -> Any:
        cls._compile()
        return getattr(cls, self._name)


_READING: Any = _Uncompiled("_reading")
_WRITING: Any = _Uncompiled("_writing")


class Header(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The root of all typed headers. Java: ``CommandCustomHeader``."""

    # attribute, name on the wire, whether it must be there, and its converter: what the methods loop over
    _reading: ClassVar[tuple[tuple[str, str, bool, Callable[[str], Any]], ...]] = _READING
    _writing: ClassVar[tuple[tuple[str, str, Callable[[Any], str]], ...]] = _WRITING

    @classmethod
    def __init_subclass__(cls, **options: Any) -> None:
        """Have the class compile what is its own, and not take over what its parent has compiled."""
        cls._reading, cls._writing = _READING, _WRITING

    @classmethod
    def _compile(cls) -> None:
        reading = []
        writing = []
        for attribute in msgspec.structs.fields(cls):
            read, write = _CONVERTERS[_without_none(attribute.type)]
            name = attribute.encode_name
            reading.append((attribute.name, name, attribute.required, read))
            writing.append((attribute.name, name, write))
        cls._reading = tuple(reading)
        cls._writing = tuple(writing)

    def to_fields(self) -> dict[str, str]:
        """Return the ext fields: names and values as on the wire; what is None is left out."""
        fields = {}
        for attribute, name, write in self._writing:
            value = getattr(self, attribute)
            if value is not None:
                fields[name] = write(value)
        return fields

    @classmethod
    @decoder("a header")
    def from_fields(cls, fields: Mapping[str, str]) -> Self:
        """Return the header that a command's ext fields hold. Fields that it does not know are left alone.

        Raises:
            ProtocolError: a field that must be there is missing, or a number is none or too large.
        """
        values = {}
        name = ""
        try:
            for attribute, name, required, read in cls._reading:
                text = fields.get(name)
                if text is not None:
                    values[attribute] = read(text)
                elif required:
                    raise ProtocolError(f"{cls.__name__}: field {name!r} is missing")
        except ValueError as error:
            raise unreadable(f"{cls.__name__}: field {name!r}", error) from error
        return cls(**values)


class Request(Header, frozen=True, kw_only=True):
    """What a request may carry beside its own fields since 5.x. Java: ``RpcRequestHeader``.

    Attributes:
        broker_name: the broker that is meant: a client may know a queue by a name that is not physical.
        namespace: the namespace that the names in the request belong to.
        namespaced: whether the names in the request already have the namespace in them.
    """

    code: ClassVar[int]

    broker_name: str | None = msgspec.field(default=None, name="bname")
    namespace: str | None = msgspec.field(default=None, name="ns")
    namespaced: bool | None = msgspec.field(default=None, name="nsd")


class QueueRequest(Request, frozen=True, kw_only=True):
    """A request about one queue. Java: ``TopicQueueRequestHeader``.

    Attributes:
        topic: the topic.
        queue_id: the queue on this broker.
    """

    topic: str
    queue_id: Int32
