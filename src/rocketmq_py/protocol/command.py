"""Commands, which are both the requests and the answers (Java: ``RemotingCommand``), and their bytes.

A frame is ``int32 length`` of what follows, ``int8 serialization``, ``int24 header length``, header, body.
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

VERSION = 513
"""What this client says it is as good as: the ordinal of Java's ``MQVersion.V5_5_0``."""

RESPONSE_FLAG = 1
ONEWAY_FLAG = 2
MAX_HEADER_SIZE = 2**24 - 1
"""Bytes of a header: its length has 24 bits."""

_SECRET_FIELDS = frozenset({SIGNATURE, SECURITY_TOKEN})
_NO_FIELDS: Mapping[str, str] = {}
pack_lengths: Final[Callable[[int, int], bytes]] = struct.Struct(">II").pack
"""What a frame begins with: the bytes that follow, and those of its header with the mark of its form."""


class Serialization(enum.IntEnum):
    """How a command's header is written. A peer answers in the form that it was asked in."""

    JSON = 0
    ROCKETMQ = 1


# An attribute of an enumeration costs more than a name of the module.
_JSON = Serialization.JSON
_ROCKETMQ = Serialization.ROCKETMQ


# A Struct, which is built in half the time of a class of attrs: one is built for every answer.
class Command(msgspec.Struct, frozen=True):
    """A request, a oneway request or an answer, as it came from a peer. Its ``repr`` shows no secret.

    Attributes:
        code: a request code; in an answer, a response code.
        opaque: the number by which an answer finds its request: a signed 32-bit number of the asker's choice.
        flag: bit 0 marks an answer, bit 1 a request that nobody answers.
        fields: the header's own fields. All are texts on the wire; ``headers`` has types for them.
        body: what follows the header.
        remark: in an answer, why a request failed.
        language: the peer's language code. Java: ``LanguageCode``.
        version: the peer's version, as an ordinal of Java's ``MQVersion``.
        serialization: the form that the header had.
    """

    code: int
    opaque: int
    flag: int = 0
    fields: dict[str, str] = {}  # each gets its own
    body: bytes = b""
    remark: str | None = None
    language: int = LANGUAGE_PYTHON
    version: int = VERSION
    serialization: Serialization = Serialization.JSON

    def __repr__(self) -> str:
        fields = {name: "***" if name in _SECRET_FIELDS else value for name, value in self.fields.items()}
        body = f"<{len(self.body)} bytes>"  # a password may be in it
        return (
            f"Command(code={self.code}, opaque={self.opaque}, flag={self.flag}, fields={fields}, "
            f"body={body}, remark={self.remark!r}, language={self.language}, version={self.version}, "
            f"serialization={self.serialization!r})"
        )

    @property
    def is_response(self) -> bool:
        """Whether this answers a request."""
        return self.flag & RESPONSE_FLAG != 0

    @property
    def is_oneway(self) -> bool:
        """Whether this is a request that wants no answer."""
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
    """Return a request's whole frame.

    A code that does not fit the binary header's 16 bits makes it a JSON one.

    Raises:
        InvalidMessageError: a text cannot be written as UTF-8, or the header would exceed 16 MiB.
    """
    return encode(
        code,
        LANGUAGE_PYTHON,
        VERSION,
        opaque,
        ONEWAY_FLAG if oneway else 0,
        None,
        fields,
        body,
        serialization,
    )


def encode_response(
    request: Command,
    code: int,
    fields: Mapping[str, str] | None = None,
    body: bytes = b"",
    remark: str | None = None,
) -> bytes:
    """Return the whole frame of an answer to ``request``, in the request's serialization.

    Raises:
        InvalidMessageError: a text cannot be written as UTF-8, or the header would exceed 16 MiB.
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
    """Return the whole frame of a command with these attributes; see :class:`Command`.

    Raises:
        InvalidMessageError: a text cannot be written as UTF-8, or the header would exceed 16 MiB.
    """
    try:
        if serialization == _JSON or not binary_header.fits(code, version):
            header = json_header.encode(code, language, version, opaque, flag, remark, fields)
            mark = 0
        else:
            header = binary_header.encode(code, language, version, opaque, flag, remark, fields)
            mark = 1 << 24
    except (UnicodeEncodeError, struct.error) as error:
        reason = str(error)  # not the error itself, which holds what signs the request
    else:
        size = len(header)
        if size <= MAX_HEADER_SIZE:
            return b"".join((pack_lengths(4 + size + len(body), mark | size), header, body))
        reason = f"its header has {size} bytes; at most {MAX_HEADER_SIZE} are possible"
    raise InvalidMessageError(f"command {code} cannot be written: {reason}")


def decode_command(serialization: int, header: bytes, body: bytes) -> Command:
    """Return the command of a frame that was cut into its parts.

    Raises:
        ProtocolError: the header cannot be read, or is in a serialization that does not exist.
    """
    if serialization == 0:
        try:
            read = json_header.decode_strictly(header)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            read = json_header.decode_loosely(header)
        language = language_code(read.language)
        fields = {} if read.fields is None else read.fields
        return Command(
            read.code, read.opaque, read.flag, fields, body, read.remark, language, read.version, _JSON
        )
    if serialization == 1:
        code, opaque, flag, fields, remark, language, version = binary_header.decode(header)
        return Command(code, opaque, flag, fields, body, remark, language, version, _ROCKETMQ)
    raise ProtocolError(f"a frame's header is in serialization {serialization}; 0 and 1 exist")
