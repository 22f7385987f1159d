"""Plain sends at a broker's end: headers read straight into what is wanted of them, answers filled in.

Both run for every message. The general way, with all fields in dictionaries, takes three times as long. What
is read here is read the same there; whatever else comes is refused here, and left to that way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from rocketmq_py.codes import LANGUAGE_PYTHON, RequestCode, ResponseCode
from rocketmq_py.protocol import json_header
from rocketmq_py.protocol.command import (
    RESPONSE_FLAG,
    VERSION,
    Command,
    Serialization,
    decode_command,
    pack_lengths,
)
from rocketmq_py.protocol.json_header import Int32

_WIRE_NAMES = {
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
_PLAIN_NAMES = frozenset(_WIRE_NAMES.values())
_to_json = msgspec.json.Encoder().encode


# Neither of these is for the garbage collector to look at: they refer to nothing that could refer to them.
class SentFields(msgspec.Struct, rename=_WIRE_NAMES, forbid_unknown_fields=True, gc=False):
    """The fields of a ``headers.SendMessageRequestV2``, as texts."""

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


class PlainSend(msgspec.Struct, rename={"fields": "extFields"}, gc=False):
    """A request SEND_MESSAGE_V2 that wants an answer; see :class:`Command`.

    Attributes:
        header: its bytes, which come beside what is in them; as does the body.
    """

    code: Literal[310]
    fields: SentFields
    flag: Literal[0] = 0
    opaque: Int32 = 0
    remark: str | None = None
    language: str | None = None
    version: Int32 = 0
    header: bytes = b""
    body: bytes = b""

    def as_command(self) -> Command:
        """Return what the general way reads."""
        return decode_command(Serialization.JSON, self.header, self.body)


decode_plain_send: Final = msgspec.json.Decoder(PlainSend).decode
"""Returns what a header says that is such a request's. For others it raises one of NO_PLAIN_SEND."""
NO_PLAIN_SEND = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def is_plain_send(request: Command) -> bool:
    """Tell whether more like this one may come, so that it is worth trying to read them here."""
    is_asked = request.code == RequestCode.SEND_MESSAGE_V2 and not request.flag
    return is_asked and request.fields.keys() <= _PLAIN_NAMES


class AnswerTemplate:
    """The answers to plain sends to one queue, in which only what differs is left open.

    Args:
        header: what :func:`answer_template` made.
    """

    __slots__ = ("_header",)

    def __init__(self, header: bytes) -> None:
        self._header = header

    def frame(self, opaque: int, commit_log_offset: int, queue_offset: int, unique_id: str) -> bytes:
        """Return an answer's whole frame.

        Raises:
            UnicodeEncodeError: the unique id holds half a surrogate pair.
        """
        header = self._header % (commit_log_offset, queue_offset, _to_json(unique_id), opaque)
        size = len(header)
        return pack_lengths(4 + size, size) + header


def answer_template(marks: Mapping[str, str], id_prefix: str, queue_id: int) -> AnswerTemplate | None:
    """Return what writes the answers for a queue; None for marks out of the common.

    Args:
        marks: fields that all answers of the broker begin with.
        id_prefix: hexadecimal digits that its message ids begin with, before those of the place in the log.
        queue_id: the queue.
    """
    fields = {
        **marks,
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
