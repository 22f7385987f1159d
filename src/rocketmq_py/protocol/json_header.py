"""A command's header as JSON (Java: ``SerializeType.JSON``).

The members are written in the order of Java's own encoder, because its parser is fastest with that order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from rocketmq_py.codes import language_name
from rocketmq_py.errors import ProtocolError
from rocketmq_py.protocol.decode_errors import JSON_ERRORS

_MAX_TEMPLATE_SIZE = 64 * 1024
"""Bytes of a template. Far below the largest possible header, so that filling it in cannot exceed that."""

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class Header(msgspec.Struct, rename={"fields": "extFields"}):
    """The members of a JSON header."""

    code: Int32
    opaque: Int32 = 0
    flag: Int32 = 0
    fields: dict[str, str] | None = None
    remark: str | None = None
    language: str | None = None
    version: Int32 = 0


_to_json = msgspec.json.Encoder().encode
decode_strictly: Final = msgspec.json.Decoder(Header).decode
"""Decode a header as nearly all clients write it. For any other, raises one of JSON_ERRORS; then use
:func:`decode_loosely`."""


def encode(
    code: int,
    language: int,
    version: int,
    opaque: int,
    flag: int,
    remark: str | None,
    fields: Mapping[str, str],
) -> bytes:
    """Return the header's bytes. A language code without a name is written as OTHER.

    Raises:
        UnicodeEncodeError: a text contains a lone surrogate.
    """
    header: dict[str, Any] = {
        "code": code,
        "extFields": fields,
        "flag": flag,
        "language": language_name(language),
        "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": version,
    }
    if remark is not None:
        header["remark"] = remark
    return _to_json(header)


def template(
    code: int,
    language: int,
    version: int,
    fields: Mapping[str, str],
    open_fields: Mapping[str, bytes],
    flag: int = 0,
) -> bytes | None:
    """Return a header with placeholders for some values, to be filled in with the operator ``%``.

    The opaque's placeholder is ``%d``. It comes after those of the fields.

    Args:
        code, language, version, flag: as in :func:`encode`.
        fields: the ext fields. The value of an open field is a NUL and the key of its placeholder.
        open_fields: the placeholders, such as ``b'"%d"'``, by their keys.

    Returns:
        None if the template would be ambiguous, because of unusual texts in ``fields``, or too long.
    """
    try:
        header = encode(code, language, version, 0, flag, None, fields)
    except UnicodeEncodeError:
        return None
    header = header.replace(b"%", b"%%")
    # No text can contain these byte sequences: JSON escapes the quotation marks and the NUL of a text.
    markers = {b'"\\u0000%b"' % key.encode(): value for key, value in open_fields.items()}
    for marker, placeholder in (markers | {b'"opaque":0,': b'"opaque":%d,'}).items():
        if header.count(marker) != 1:
            return None
        header = header.replace(marker, placeholder)
    return header if len(header) <= _MAX_TEMPLATE_SIZE else None


def decode_loosely(data: bytes) -> Header:
    """Decode a header that :data:`decode_strictly` refused.

    Some clients write ext fields that are numbers, booleans or null. Numbers and booleans become texts, and
    null is left out.

    Raises:
        ProtocolError: the bytes are not JSON, or not a header.
    """
    try:
        header = msgspec.json.decode(data)
        if isinstance(header, dict):
            fields = header.get("extFields")
            if isinstance(fields, dict):
                header["extFields"] = {
                    name: _text(value) for name, value in fields.items() if value is not None
                }
        return msgspec.convert(header, Header)
    except JSON_ERRORS as error:
        raise ProtocolError(f"a frame's JSON header cannot be read: {error}") from error


def _text(value: object) -> str:
    return value if isinstance(value, str) else _to_json(value).decode()
