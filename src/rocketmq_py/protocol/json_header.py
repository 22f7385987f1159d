"""A command's header as JSON text (Java: ``SerializeType.JSON``).

The fields are written in the order in which Java writes them: its parser is fastest with that order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from rocketmq_py.codes import language_name
from rocketmq_py.errors import ProtocolError

_MAX_TEMPLATE_SIZE = 64 * 1024
"""Bytes of a header without what is left open: far from the most that a header can have."""
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class Header(msgspec.Struct, rename={"fields": "extFields"}):
    """What a header says, as it is written."""

    code: Int32
    opaque: Int32 = 0
    flag: Int32 = 0
    fields: dict[str, str] | None = None
    remark: str | None = None
    language: str | None = None
    version: Int32 = 0


_to_json = msgspec.json.Encoder().encode
decode_strictly: Final = msgspec.json.Decoder(Header).decode
"""Returns a header that is as all but some clients write it; one call, as this runs for every answer. What it
raises for others is the affair of :func:`decode_loosely`."""


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
        UnicodeEncodeError: a text holds half a surrogate pair.
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
    """Return a header in which some values are left open, for the operator ``%``.

    That is ``open_fields``: what stands for each in ``fields`` is a NUL and its key here, and what it becomes
    its value. The opaque is left open, too: ``%d``. None for names out of the common, or very long ones.
    """
    try:
        header = encode(code, language, version, 0, flag, None, fields)
    except UnicodeEncodeError:
        return None
    header = header.replace(b"%", b"%%")
    # No name can look like these: a quotation mark in one is escaped, and so would a NUL be.
    openings = {b'"\\u0000%b"' % name.encode(): value for name, value in open_fields.items()}
    for opening, value in (openings | {b'"opaque":0,': b'"opaque":%d,'}).items():
        if header.count(opening) != 1:
            return None
        header = header.replace(opening, value)
    return header if len(header) <= _MAX_TEMPLATE_SIZE else None


def decode_loosely(data: bytes) -> Header:
    """Return a header that :data:`decode_strictly` refused.

    Ext fields that are numbers or booleans become texts, and those that are null are left out: some clients
    write such headers.

    Raises:
        ProtocolError: the bytes are no JSON, or not such a header.
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
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"a frame's JSON header cannot be read: {error}") from error


def _text(value: object) -> str:
    return value if isinstance(value, str) else _to_json(value).decode()
