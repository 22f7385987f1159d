"""SEND_MESSAGE requests, and their answers.

:class:`SendRequestBuilder` writes the requests of one topic. Its ext fields can be signed, passed to hooks,
and encoded in either serialization. Its :class:`HeaderTemplate` writes the same JSON header in one step.

Fast path: the headers of answers are decoded straight into typed fields (:class:`SendAnswer`). A client
decodes one answer for each message. The general path puts all ext fields in a dictionary (:class:`Command`).
Headers that do not fit the types here take that path, and read the same there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from rocketmq_py.codes import LANGUAGE_PYTHON, RequestCode, language_code
from rocketmq_py.errors import MessageTooLargeError
from rocketmq_py.message import Message, MessageQueue, SendResult, SendStatus
from rocketmq_py.names import DEFAULT_TOPIC
from rocketmq_py.properties import MAX_ENCODED_SIZE, encode_properties
from rocketmq_py.protocol import json_header
from rocketmq_py.protocol.command import VERSION, Command, pack_lengths
from rocketmq_py.protocol.headers import SendMessageRequest, SendMessageRequestV2
from rocketmq_py.protocol.headers.send import (
    MAX_OFFSET,
    MAX_QUEUE_ID,
    SendMessageAnswer,
    read_stored_position,
)
from rocketmq_py.protocol.json_header import Int32
from rocketmq_py.protocol.trace import DEFAULT_REGION

STORED: Mapping[int, SendStatus] = {status.value: status for status in SendStatus}
"""The response codes with which a broker confirms that it stored a message."""

_MAX_UTF8_SIZE = 4  # bytes of a character
_NO_PROPERTIES: Mapping[str, str] = {}
_LONG_NAMED = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE})
_LONG_NAMES = SendMessageRequest.wire_names()
_SHORT_NAMES = SendMessageRequestV2.wire_names()
_VARYING = ("queue_id", "sys_flag", "born_timestamp", "flag", "properties")
# The open fields of templates, see json_header.template, in the order in which HeaderTemplate fills them in.
_PLACEHOLDERS = {"sys_flag": b'"%d"', "born_timestamp": b'"%d"', "flag": b'"%d"', "properties": b"%b"}
_to_json = msgspec.json.Encoder().encode


def encode_message_properties(
    message: Message, unique_id: str, system_properties: Mapping[str, str] = _NO_PROPERTIES
) -> str:
    """Return the wire form of a message's properties, including those that stand for its attributes.

    Args:
        message: the message.
        unique_id: its id (UNIQ_KEY).
        system_properties: further properties of RocketMQ's own, such as RETRY_TOPIC.

    Raises:
        MessageTooLargeError: the properties take more than 32,767 bytes.
    """
    wait = "true" if message.wait_store_ok else "false"
    encoded = f"UNIQ_KEY\x01{unique_id}\x02WAIT\x01{wait}\x02"
    if message._is_bare and not system_properties:
        return encoded
    if message.tags:
        encoded += f"TAGS\x01{message.tags}\x02"
    if message.keys:
        encoded += f"KEYS\x01{' '.join(message.keys)}\x02"
    if message.delay_level:
        encoded += f"DELAY\x01{message.delay_level}\x02"
    elif message.delay:
        encoded += f"TIMER_DELAY_MS\x01{round(message.delay * 1000)}\x02"
    elif message.deliver_at_ms:
        encoded += f"TIMER_DELIVER_MS\x01{message.deliver_at_ms}\x02"
    if message.sharding_key:
        encoded += f"__SHARDINGKEY\x01{message.sharding_key}\x02"
    if message.priority is not None:
        encoded += f"_SYS_MSG_PRIORITY_\x01{message.priority}\x02"
    if message.lite_topic:
        encoded += f"__LITE_TOPIC\x01{message.lite_topic}\x02"
    if message.properties:
        encoded += encode_properties(message.properties)
    if system_properties:
        encoded += encode_properties(system_properties)
    if len(encoded) * _MAX_UTF8_SIZE > MAX_ENCODED_SIZE:
        _check_size(encoded)
    return encoded


def _check_size(encoded: str) -> None:
    size = len(encoded.encode(errors="replace"))
    if size > MAX_ENCODED_SIZE:
        raise MessageTooLargeError(
            f"the properties, with tags and keys, take {size} bytes; at most {MAX_ENCODED_SIZE} are allowed"
        )


def batch_properties(wait_store_ok: bool, sharding_key: str = "") -> str:
    """Return the wire form of the properties of a batch as a whole. Its messages have their own.

    A proxy tells from ``sharding_key`` that all of them are ordered. Brokers ignore it here.
    """
    wait = f"WAIT\x01{'true' if wait_store_ok else 'false'}\x02"
    return f"{wait}__SHARDINGKEY\x01{sharding_key}\x02" if sharding_key else wait


class SendRequestBuilder:
    """Builds the requests of one kind that a producer sends to one topic.

    Args:
        code: SEND_MESSAGE_V2, SEND_BATCH_MESSAGE or SEND_REPLY_MESSAGE_V2, or one of the codes with long
            field names: SEND_MESSAGE or SEND_REPLY_MESSAGE.
        producer_group: the sender's group.
        topic: the topic's name on the wire.
        default_topic: the topic whose settings a broker copies when it creates this topic automatically.
        default_topic_queues: the largest number of queues of a topic that is created automatically.
        unit_mode: whether topics that the broker creates belong to a unit.

    Attributes:
        code: the request code.
        is_batch: whether the body is a batch.
        names: the names of the ext fields, by attribute of ``headers.SendMessageRequestV2``.
    """

    def __init__(
        self,
        code: int,
        producer_group: str,
        topic: str,
        *,
        default_topic: str = DEFAULT_TOPIC,
        default_topic_queues: int = 4,
        unit_mode: bool = False,
    ) -> None:
        self.code = code
        self.is_batch: bool = code == RequestCode.SEND_BATCH_MESSAGE
        self.names: Mapping[str, str] = _LONG_NAMES if code in _LONG_NAMED else _SHORT_NAMES
        self._templates: dict[tuple[int, str], HeaderTemplate | None] = {}
        self._varying = tuple(self.names[attribute] for attribute in _VARYING)
        values = {
            "producer_group": producer_group,
            "topic": topic,
            "default_topic": default_topic,
            "default_topic_queue_nums": str(default_topic_queues),
            **dict.fromkeys(_VARYING, "0"),  # keeps their order when fields() sets them
            "reconsume_times": "0",
            "unit_mode": "true" if unit_mode else "false",
            "batch": "true" if self.is_batch else "false",
            "broker_name": "",
        }
        self._fields = {self.names[attribute]: value for attribute, value in values.items()}

    def fields(
        self,
        queue_id: int,
        broker_name: str,
        *,
        born_time_ms: int,
        properties: str,
        flag: int = 0,
        system_flag: int = 0,
    ) -> dict[str, str]:
        """Return the ext fields of a request. ``headers.SendMessageRequestV2`` documents them.

        Args:
            queue_id: the target queue.
            broker_name: the queue's broker.
            born_time_ms: the time of the message, epoch milliseconds.
            properties: the wire form of the properties.
            flag: the application's own number.
            system_flag: the message's system flag.
        """
        values = (str(queue_id), str(system_flag), str(born_time_ms), str(flag), properties)
        return {
            **self._fields,
            **dict(zip(self._varying, values, strict=True)),
            self.names["broker_name"]: broker_name,
        }

    def template(self, queue_id: int, broker_name: str) -> HeaderTemplate | None:
        """Return the template of the headers for one queue. None if ``json_header.template`` returns None."""
        key = queue_id, broker_name
        if key not in self._templates:
            self._templates[key] = self._new_template(queue_id, broker_name)
        return self._templates[key]

    def _new_template(self, queue_id: int, broker_name: str) -> HeaderTemplate | None:
        fields = {
            **self._fields,
            self.names["queue_id"]: str(queue_id),
            **{self.names[attribute]: f"\x00{attribute}" for attribute in _PLACEHOLDERS},
            self.names["broker_name"]: broker_name,
        }
        header = json_header.template(self.code, LANGUAGE_PYTHON, VERSION, fields, _PLACEHOLDERS)
        return None if header is None else HeaderTemplate(header)


# Fast path: avoids making and encoding 13 ext fields for each message, saves 17 % of pipelined
# (timeit of HeaderTemplate.frame and of SendRequestBuilder.fields with encode_request).
class HeaderTemplate:
    """The JSON header of requests to one queue, with placeholders for the values that differ."""

    __slots__ = ("_header",)

    def __init__(self, header: bytes) -> None:
        self._header = header

    def frame(
        self, opaque: int, born_time_ms: int, properties: str, flag: int, system_flag: int, body: bytes
    ) -> bytes:
        """Return the frame of a request. The arguments are those of :meth:`SendRequestBuilder.fields`.

        Raises:
            UnicodeEncodeError: the properties contain a lone surrogate.
        """
        header = self._header % (system_flag, born_time_ms, flag, _to_json(properties), opaque)
        size = len(header)
        return b"".join((pack_lengths(4 + size + len(body), size), header, body))


def send_fields(
    message: Message,
    queue: MessageQueue,
    *,
    producer_group: str,
    unique_id: str,
    born_time_ms: int,
    default_topic: str = DEFAULT_TOPIC,
    default_topic_queues: int = 4,
    system_flag: int = 0,
    reconsume_times: int = 0,
    max_reconsume_times: int | None = None,
    system_properties: Mapping[str, str] = _NO_PROPERTIES,
) -> dict[str, str]:
    """Return the ext fields of a single SEND_MESSAGE_V2. ``headers.SendMessageRequestV2`` documents them.

    The body is sent separately, compressed if ``system_flag`` says so.

    Args:
        message: the message.
        queue: the target queue, with the topic's name on the wire.
        producer_group: the sender's group.
        unique_id: the message's id.
        born_time_ms: the current time, epoch milliseconds.
        default_topic: as in :class:`SendRequestBuilder`.
        default_topic_queues: as in :class:`SendRequestBuilder`.
        system_flag: the message's system flag.
        reconsume_times: for a message sent to a retry topic, how often its group failed to consume it.
        max_reconsume_times: for a message sent to a retry topic, the failures after which it becomes a dead
            letter.
        system_properties: further properties of RocketMQ's own.

    Raises:
        MessageTooLargeError: the properties take more than 32,767 bytes.
    """
    builder = SendRequestBuilder(
        RequestCode.SEND_MESSAGE_V2,
        producer_group,
        queue.topic,
        default_topic=default_topic,
        default_topic_queues=default_topic_queues,
    )
    fields = builder.fields(
        queue.queue_id,
        queue.broker_name,
        born_time_ms=born_time_ms,
        properties=encode_message_properties(message, unique_id, system_properties),
        flag=message.flag,
        system_flag=system_flag,
    )
    fields[builder.names["reconsume_times"]] = str(reconsume_times)
    if max_reconsume_times is not None:
        fields[builder.names["max_reconsume_times"]] = str(max_reconsume_times)
    return fields


# Answers

_MAX_STORED_CODE = max(status.value for status in SendStatus)
"""Larger response codes are errors. One of them is GO_AWAY, which concerns the whole connection."""
_ANSWER_NAMES = SendMessageAnswer.wire_names()


# The structs are exempt from garbage collection (gc=False): they cannot be part of a reference cycle.
class SendAnswerFields(msgspec.Struct, rename=_ANSWER_NAMES, forbid_unknown_fields=True, gc=False):
    """The ext fields of a :class:`SendAnswer`. ``headers.SendMessageAnswer`` documents them."""

    msg_id: str
    queue_id: Annotated[int, msgspec.Meta(ge=0, le=MAX_QUEUE_ID)]
    queue_offset: Annotated[int, msgspec.Meta(ge=0, le=MAX_OFFSET)]
    transaction_id: str | None = None
    recall_handle: str | None = None
    batch_uniq_id: str | None = None
    region: str | None = None
    trace_on: str | None = None

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> SendAnswerFields:
        """Return the ext fields of an answer on the general path. Raises as ``read_stored_position``."""
        position = read_stored_position(fields)
        names = cls.__struct_fields__[len(position) :]
        others: dict[str, Any] = {name: fields.get(_ANSWER_NAMES[name]) for name in names}
        return cls(*position, **others)

    def as_dict(self) -> dict[str, str]:
        """Return the fields as a command has them: texts by their names on the wire."""
        values = {_ANSWER_NAMES[name]: getattr(self, name) for name in self.__struct_fields__}
        return {wire_name: str(value) for wire_name, value in values.items() if value is not None}


# Fast path: a SendResult is created from this when it is accessed, saves 7 % of pipelined.
Acknowledgement: TypeAlias = tuple[SendStatus, str, MessageQueue, SendAnswerFields]
"""A broker's acknowledgement: the status, the message's own id, its queue, and the fields of the answer."""


def send_result(acknowledgement: Acknowledgement) -> SendResult:
    """Return the result of a send that succeeded."""
    status, message_id, queue, fields = acknowledgement
    return SendResult(
        status,
        message_id,
        fields.msg_id,
        queue,
        fields.queue_offset,
        fields.transaction_id,
        fields.recall_handle,
        fields.region or DEFAULT_REGION,
        fields.trace_on != "false",
    )


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
