"""What brokers answer to sends, read straight into what is wanted of it: this runs for every message.

The general way, a :class:`Command` with all fields in a dictionary, takes twice as long. What is read here
is read the same there, as far as brokers write it; whatever else comes is refused here, and left to that way.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from rocketmq_py.codes import language_code
from rocketmq_py.message import SendStatus
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers.send import MOST_OFFSET, MOST_QUEUE_ID
from rocketmq_py.protocol.json_header import Int32

MOST_CODE = max(status.value for status in SendStatus)
"""Further codes are no success; GO_AWAY is one of them, which is not the request's own affair."""
_WIRE_NAMES = {
    "message_id": "msgId",
    "queue_id": "queueId",
    "queue_offset": "queueOffset",
    "transaction_id": "transactionId",
    "recall_handle": "recallHandle",
    "batch_unique_id": "batchUniqId",
    "region": "MSG_REGION",
    "trace_on": "TRACE_ON",
}


class StoredFields(msgspec.Struct, rename=_WIRE_NAMES, forbid_unknown_fields=True, gc=False):
    """The fields of a ``headers.SendMessageAnswer``."""

    message_id: str
    queue_id: Annotated[int, msgspec.Meta(ge=0, le=MOST_QUEUE_ID)]
    queue_offset: Annotated[int, msgspec.Meta(ge=0, le=MOST_OFFSET)]
    transaction_id: str | None = None
    recall_handle: str | None = None
    batch_unique_id: str | None = None
    region: str | None = None
    trace_on: str | None = None

    def as_dict(self) -> dict[str, str]:
        """Return them as texts, by the names that they have on the wire."""
        values = {wire: getattr(self, name) for name, wire in _WIRE_NAMES.items()}
        return {name: str(value) for name, value in values.items() if value is not None}


class SendAnswer(msgspec.Struct, rename={"stored": "extFields"}, gc=False):
    """An answer without a body that says where a message is; see :class:`Command`."""

    code: Annotated[int, msgspec.Meta(ge=0, le=MOST_CODE)]
    stored: StoredFields
    flag: Literal[1]  # RESPONSE_FLAG
    opaque: Int32 = 0
    remark: str | None = None
    language: str | None = None
    version: Int32 = 0

    def as_command(self) -> Command:
        """Return what the general way would have read."""
        language = language_code(self.language)
        fields = self.stored.as_dict()
        return Command(self.code, self.opaque, self.flag, fields, b"", self.remark, language, self.version)


# Not strict: ext fields are texts, also where they are numbers.
decode_send_answer: Final = msgspec.json.Decoder(SendAnswer, strict=False).decode
"""Returns what a header says that is such an answer's. For others it raises one of NO_SEND_ANSWER."""
NO_SEND_ANSWER = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def is_send_answer(answer: Command) -> bool:
    """Tell whether more like this one may come, so that it is worth trying to read them here."""
    return "queueOffset" in answer.fields and "msgId" in answer.fields and not answer.body
