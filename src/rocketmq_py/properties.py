r"""The properties of a message as an immutable mapping, and their encoding on the wire.

On the wire they are one UTF-8 text, a sequence of ``key \x01 value \x02``. Java omits the last ``\x02``; both
forms are decoded. Their names are in ``property_names``. Java: ``MessageDecoder``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

MAX_ENCODED_SIZE = 32_767
"""Bytes of the encoded properties. A stored message has their length in a signed 16-bit number."""


class FrozenProperties(dict[str, str]):
    """Immutable properties: a dict whose mutating methods raise TypeError."""

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError(
            "a message's properties are immutable; make another with attrs.evolve(message, properties=...)"
        )

    if not TYPE_CHECKING:  # type checkers see a Mapping, which has none of these
        __setitem__ = __delitem__ = __ior__ = _refuse
        clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenProperties, (dict(self),)


NO_PROPERTIES = FrozenProperties()


def encode_properties(properties: Mapping[str, str]) -> str:
    r"""Return the wire form. No key or value may contain ``\x01`` or ``\x02``."""
    return "".join([f"{key}\x01{value}\x02" for key, value in properties.items()])


def decode_properties(encoded: str) -> dict[str, str]:
    """Return the properties in a wire form. Pieces without a separator are ignored, as in Java."""
    properties = {}
    for piece in encoded.split("\x02"):
        key, separator, value = piece.partition("\x01")
        if separator:
            properties[key] = value
    return properties
