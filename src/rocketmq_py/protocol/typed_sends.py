"""Fast paths for sends: headers decoded straight into typed fields, and answers written from a template.

A client decodes one answer for each message, a broker one request. The general path puts all ext fields in a
dictionary (:class:`Command`). Headers that do not fit the types here take that path, and read the same there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec

from rocketmq_py.codes import LANGUAGE_PYTHON, RequestCode, ResponseCode, language_code
from rocketmq_py.message import SendStatus
from rocketmq_py.protocol import json_header
from rocketmq_py.protocol.command import RESPONSE_FLAG, VERSION, Command, decode_command, pack_lengths
from rocketmq_py.protocol.headers.send import MAX_OFFSET, MAX_QUEUE_ID
from rocketmq_py.protocol.json_header import Int32

_MAX_STORED_CODE = max(status.value for status in SendStatus)
"""Larger response codes are errors. One of them is GO_AWAY, which concerns the whole connection."""
_ANSWER_NAMES = {
    "message_id": "msgId",
    "queue_id": "queueId",
    "queue_offset": "queueOffset",
    "transaction_id": "transactionId",
    "recall_handle": "recallHandle",
    "batch_unique_id": "batchUniqId",
    "region": "MSG_REGION",
    "trace_on": "TRACE_ON",
}
_REQUEST_NAMES = {
    "producer_group": "a",
    "topic": "b",
    "default_topic": "c",
    "default_topic_queues": "d",
    "queue_id": "e",
    "system_flag": "f",
    "born_time_ms": "g",
    "flag": "h",
    "properties": "i",
    "reconsume_times": "j",
    "unit_mode": "k",
    "is_batch": "m",
    "broker_name": "n",
}
_KNOWN_REQUEST_FIELDS = frozenset(_REQUEST_NAMES.values())
_to_json = msgspec.json.Encoder().encode


# The structs are exempt from garbage collection (gc=False): they cannot be part of a reference cycle.
class SendAnswerFields(msgspec.Struct, rename=_ANSWER_NAMES, forbid_unknown_fields=True, gc=False):
    """The ext fields of a :class:`SendAnswer`. ``headers.SendMessageAnswer`` documents them."""

    message_id: str
    queue_id: Annotated[int, msgspec.Meta(ge=0, le=MAX_QUEUE_ID)]
    queue_offset: Annotated[int, msgspec.Meta(ge=0, le=MAX_OFFSET)]
    transaction_id: str | None = None
    recall_handle: str | None = None
    batch_unique_id: str | None = None
    region: str | None = None
    trace_on: str | None = None

    def as_dict(self) -> dict[str, str]:
        """Return the fields as a command has them: texts by their names on the wire."""
        values = {wire_name: getattr(self, name) for name, wire_name in _ANSWER_NAMES.items()}
        return {wire_name: str(value) for wire_name, value in values.items() if value is not None}


# Fast path: avoids a dictionary of ext fields for each answer, saves 12 % of pipelined
# (timeit of decode_send_answer and of decode_command with read_stored_position).
class SendAnswer(msgspec.Struct, rename={"stored": "extFields"}, gc=False):
    """The answer to a send whose message was stored. The attributes are those of :class:`Command`."""

    code: Annotated[int, msgspec.Meta(ge=0, le=_MAX_STORED_CODE)]
    stored: SendAnswerFields
    flag: Literal[1]  # RESPONSE_FLAG
    opaque: Int32 = 0
    remark: str | None = None
    language: str | None = None
    version: Int32 = 0

    def as_command(self) -> Command:
        """Return the command that the general path reads."""
        language = language_code(self.language)
        fields = self.stored.as_dict()
        return Command(self.code, self.opaque, self.flag, fields, b"", self.remark, language, self.version)


# Not strict, because ext fields are texts even where they hold numbers.
decode_send_answer: Final = msgspec.json.Decoder(SendAnswer, strict=False).decode
"""Decode the header of a :class:`SendAnswer`. Raises one of JSON_ERRORS for any other header."""


def is_send_answer(answer: Command) -> bool:
    """Return whether :func:`decode_send_answer` is likely to succeed for answers like this one."""
    return "queueOffset" in answer.fields and "msgId" in answer.fields and not answer.body


class SendCommandFields(msgspec.Struct, rename=_REQUEST_NAMES, forbid_unknown_fields=True, gc=False):
    """The ext fields of a :class:`SendCommand`. ``headers.SendMessageRequestV2`` documents them."""

    producer_group: str
    topic: str
    queue_id: str
    system_flag: str
    born_time_ms: str
    flag: str
    properties: str = ""
    default_topic: str = ""
    default_topic_queues: str = "0"
    reconsume_times: Literal["0"] = "0"
    unit_mode: str = ""
    is_batch: Literal["false"] = "false"
    broker_name: str = ""


# Fast path: avoids a dictionary of ext fields and a typed header for each request, saves 38 % of pipelined in
# the embedded broker (timeit of decode_send_command, and of decode_command with SendMessageRequestV2).
class SendCommand(msgspec.Struct, rename={"fields": "extFields"}, gc=False):
    """A SEND_MESSAGE_V2 request with one message that wants an answer.

    The attributes are those of :class:`Command`, and these.

    Attributes:
        header: the undecoded header. The decoder sets it and ``body`` afterwards.
    """

    code: Literal[310]
    fields: SendCommandFields
    flag: Literal[0] = 0
    opaque: Int32 = 0
    remark: str | None = None
    language: str | None = None
    version: Int32 = 0
    header: bytes = b""
    body: bytes = b""

    def as_command(self) -> Command:
        """Return the command that the general path reads."""
        return decode_command(0, self.header, self.body)


decode_send_command: Final = msgspec.json.Decoder(SendCommand).decode
"""Decode the header of a :class:`SendCommand`. Raises one of JSON_ERRORS for any other header."""


def is_send_command(request: Command) -> bool:
    """Return whether :func:`decode_send_command` is likely to succeed for requests like this one."""
    is_twoway_send = request.code == RequestCode.SEND_MESSAGE_V2 and not request.flag
    return is_twoway_send and request.fields.keys() <= _KNOWN_REQUEST_FIELDS


# Fast path: avoids encoding the ext fields of each answer, saves 15 % of pipelined in the embedded broker
# (timeit of AnswerTemplate.frame and of encode_response).
class AnswerTemplate:
    """The JSON header of a broker's answers for one queue, with placeholders for the values that differ.

    Args:
        header: the result of :func:`answer_template`.
    """

    __slots__ = ("_header",)

    def __init__(self, header: bytes) -> None:
        self._header = header

    def frame(self, opaque: int, commit_log_offset: int, queue_offset: int, unique_id: str) -> bytes:
        """Return the frame of an answer.

        Raises:
            UnicodeEncodeError: the unique id contains a lone surrogate.
        """
        header = self._header % (commit_log_offset, queue_offset, _to_json(unique_id), opaque)
        size = len(header)
        return pack_lengths(4 + size, size) + header


def answer_template(broker_fields: Mapping[str, str], id_prefix: str, queue_id: int) -> AnswerTemplate | None:
    """Return the template of the answers for a queue, or None if a text prevents it.

    Args:
        broker_fields: the fields that all answers of the broker begin with.
        id_prefix: the beginning of the broker's message ids, in hexadecimal digits. The commit-log offset
            follows.
        queue_id: the queue.
    """
    fields = {
        **broker_fields,
        "msgId": "\x00msgId",
        "queueId": str(queue_id),
        "queueOffset": "\x00queueOffset",
        "transactionId": "\x00transactionId",
    }
    open_fields = {
        "msgId": b'"%b%%016X"' % id_prefix.encode(),
        "queueOffset": b'"%d"',
        "transactionId": b"%b",
    }
    header = json_header.template(
        ResponseCode.SUCCESS, LANGUAGE_PYTHON, VERSION, fields, open_fields, flag=RESPONSE_FLAG
    )
    return None if header is None else AnswerTemplate(header)
