"""Commands, which are both the requests and the answers (Java: ``RemotingCommand``), and their bytes.

A frame is ``int32 length`` of what follows, ``int8 serialization``, ``int24 header length``, header, body.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Mapping

import attrs

from rocketmq_py.errors import InvalidMessageError, ProtocolError
from rocketmq_py.protocol import binary_header, json_header
from rocketmq_py.protocol.signature import SECURITY_TOKEN, SIGNATURE

LANGUAGE_JAVA = 0
LANGUAGE_PYTHON = 3
VERSION = 513
"""What this client says it is as good as: the ordinal of Java's ``MQVersion.V5_5_0``."""

RESPONSE_FLAG = 1
ONEWAY_FLAG = 2
MAX_HEADER_SIZE = 2**24 - 1
"""Bytes of a header: its length has 24 bits."""

_SECRET_FIELDS = frozenset({SIGNATURE, SECURITY_TOKEN})
_NO_FIELDS: Mapping[str, str] = {}
_pack_lengths = struct.Struct(">II").pack


class Serialization(enum.IntEnum):
    """How a command's header is written. A peer answers in the form that it was asked in."""

    JSON = 0
    ROCKETMQ = 1


# An attribute of an enumeration costs more than a name of the module.
_JSON = Serialization.JSON
_ROCKETMQ = Serialization.ROCKETMQ


def _show_fields(fields: Mapping[str, str]) -> str:
    return repr({name: "***" if name in _SECRET_FIELDS else value for name, value in fields.items()})


def _show_size(body: bytes) -> str:
    return f"<{len(body)} bytes>"  # a password may be in it


# Not slotted: a frozen class with a __dict__ is built in 0.6 of a slotted one's time, and one is built for
# every answer.
@attrs.frozen(slots=False)
class Command:
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
    fields: dict[str, str] = attrs.field(factory=dict, repr=_show_fields)
    body: bytes = attrs.field(default=b"", repr=_show_size)
    remark: str | None = None
    language: int = LANGUAGE_PYTHON
    version: int = VERSION
    serialization: Serialization = Serialization.JSON

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
            return b"".join((_pack_lengths(4 + size + len(body), mark | size), header, body))
        reason = f"its header has {size} bytes; at most {MAX_HEADER_SIZE} are possible"
    raise InvalidMessageError(f"command {code} cannot be written: {reason}")


def decode_command(serialization: int, header: bytes, body: bytes) -> Command:
    """Return the command of a frame that was cut into its parts.

    Raises:
        ProtocolError: the header cannot be read, or is in a serialization that does not exist.
    """
    if serialization == 0:
        code, opaque, flag, fields, remark, language, version = json_header.decode(header)
        return Command(code, opaque, flag, fields, body, remark, language, version, _JSON)
    if serialization == 1:
        code, opaque, flag, fields, remark, language, version = binary_header.decode(header)
        return Command(code, opaque, flag, fields, body, remark, language, version, _ROCKETMQ)
    raise ProtocolError(f"a frame's header is in serialization {serialization}; 0 and 1 exist")
