"""Commands: requests and answers alike (Java: ``RemotingCommand``), and their encoding as frames.

A frame is ``int32 length`` of the rest, ``int8 serialization``, ``int24 header length``, header, body.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from rocketmq_py.codes import LANGUAGE_PYTHON, language_code
from rocketmq_py.credentials import SECURITY_TOKEN, SIGNATURE
from rocketmq_py.errors import InvalidMessageError, ProtocolError
from rocketmq_py.protocol import binary_header, json_header
from rocketmq_py.protocol.decode_errors import JSON_ERRORS

VERSION = 513
"""The version that this client announces: the ordinal of Java's ``MQVersion.V5_5_0``."""

RESPONSE_FLAG = 1
ONEWAY_FLAG = 2
MAX_HEADER_SIZE = 2**24 - 1
"""Bytes of the largest header. Its length has 24 bits."""

_SECRET_FIELDS = frozenset({SIGNATURE, SECURITY_TOKEN})
_NO_FIELDS: Mapping[str, str] = {}
pack_lengths: Final[Callable[[int, int], bytes]] = struct.Struct(">II").pack
"""Pack a frame's first eight bytes: the length of the rest, and the header's serialization and length."""


class Serialization(enum.IntEnum):
    """The encoding of a command's header. A peer answers in the encoding of the request."""

    JSON = 0
    ROCKETMQ = 1


_ROCKETMQ_MARK = Serialization.ROCKETMQ << 24


class Command(msgspec.Struct, frozen=True):
    """A request, oneway request or answer, as received from a peer. Its ``repr`` shows no secrets.

    Attributes:
        code: a request code; in an answer, a response code.
        opaque: the number that matches an answer with its request: 32 bits, signed, chosen by the requester.
        flag: bit 0 marks an answer, bit 1 a oneway request.
        fields: the ext fields. All are texts on the wire; ``headers`` converts them to typed values.
        body: the bytes after the header.
        remark: in an answer, the reason why a request failed.
        language: the peer's language code. Java: ``LanguageCode``.
        version: the peer's version, an ordinal of Java's ``MQVersion``.
        serialization: the encoding of the header.
    """

    code: int
    opaque: int
    flag: int = 0
    fields: dict[str, str] = {}  # msgspec copies it for each command
    body: bytes = b""
    remark: str | None = None
    language: int = LANGUAGE_PYTHON
    version: int = VERSION
    serialization: Serialization = Serialization.JSON

    def __repr__(self) -> str:
        fields = {name: "***" if name in _SECRET_FIELDS else value for name, value in self.fields.items()}
        body = f"<{len(self.body)} bytes>"  # may contain a password
        return (
            f"Command(code={self.code}, opaque={self.opaque}, flag={self.flag}, fields={fields}, "
            f"body={body}, remark={self.remark!r}, language={self.language}, version={self.version}, "
            f"serialization={self.serialization!r})"
        )

    @property
    def is_response(self) -> bool:
        """Whether this is an answer."""
        return self.flag & RESPONSE_FLAG != 0

    @property
    def is_oneway(self) -> bool:
        """Whether this is a request without an answer."""
        return self.flag & ONEWAY_FLAG != 0


def encode_request(
    code: int,
    opaque: int,
    fields: Mapping[str, str],
    body: bytes = b"",
    *,
    oneway: bool = False,
    serialization: Serialization = Serialization.JSON,
) -> bytes:
    """Return the frame of a request.

    A code that does not fit the binary header's 16 bits is written with a JSON header.

    Raises:
        InvalidMessageError: a text cannot be encoded as UTF-8, or the header exceeds 16 MiB.
    """
    flag = ONEWAY_FLAG if oneway else 0
    return encode(code, LANGUAGE_PYTHON, VERSION, opaque, flag, None, fields, body, serialization)


def encode_response(
    request: Command,
    code: int,
    fields: Mapping[str, str] | None = None,
    body: bytes = b"",
    remark: str | None = None,
) -> bytes:
    """Return the frame of an answer to ``request``, in the request's serialization.

    Raises:
        InvalidMessageError: a text cannot be encoded as UTF-8, or the header exceeds 16 MiB.
    """
    if fields is None:
        fields = _NO_FIELDS
    return encode(
        code, LANGUAGE_PYTHON, VERSION, request.opaque, RESPONSE_FLAG, remark, fields, body,
        request.serialization,
    )  # fmt: skip


def encode(
    code: int,
    language: int,
    version: int,
    opaque: int,
    flag: int,
    remark: str | None,
    fields: Mapping[str, str],
    body: bytes,
    serialization: Serialization,
) -> bytes:
    """Return the frame of a command. The arguments are the attributes of :class:`Command`.

    Raises:
        InvalidMessageError: a text cannot be encoded as UTF-8, or the header exceeds 16 MiB.
    """
    try:
        if serialization == Serialization.JSON or not binary_header.fits(code, version):
            header = json_header.encode(code, language, version, opaque, flag, remark, fields)
            mark = 0
        else:
            header = binary_header.encode(code, language, version, opaque, flag, remark, fields)
            mark = _ROCKETMQ_MARK
    except (UnicodeEncodeError, struct.error) as error:
        reason = str(error)  # not the error itself, which holds the signature of the request
    else:
        size = len(header)
        if size <= MAX_HEADER_SIZE:
            return b"".join((pack_lengths(4 + size + len(body), mark | size), header, body))
        reason = f"its header has {size} bytes; at most {MAX_HEADER_SIZE} are possible"
    raise InvalidMessageError(f"command {code} cannot be encoded: {reason}")


def decode_command(serialization: int, header: bytes, body: bytes) -> Command:
    """Return the command of a frame that was split into its parts.

    Raises:
        ProtocolError: the header cannot be read, or its serialization is unknown.
    """
    if serialization == Serialization.JSON:
        try:
            read = json_header.decode_strictly(header)
        except JSON_ERRORS:
            read = json_header.decode_loosely(header)
        language = language_code(read.language)
        fields = {} if read.fields is None else read.fields
        return Command(read.code, read.opaque, read.flag, fields, body, read.remark, language, read.version)
    if serialization == Serialization.ROCKETMQ:
        code, opaque, flag, fields, remark, language, version = binary_header.decode(header)
        return Command(code, opaque, flag, fields, body, remark, language, version, Serialization.ROCKETMQ)
    raise ProtocolError(f"a frame's header has the unknown serialization {serialization}; known are 0 and 1")
