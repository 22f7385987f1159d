"""SEND_MESSAGE requests: from a message to the header's ext fields, or to the whole frame.

:class:`SendRequestBuilder` writes the requests of one topic. Its ext fields can be signed, passed to hooks,
and encoded in either serialization. Its :class:`HeaderTemplate` writes the same JSON header in one step.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from rocketmq_py.codes import LANGUAGE_PYTHON, RequestCode
from rocketmq_py.errors import MessageTooLargeError
from rocketmq_py.message import Message, MessageQueue, SendStatus
from rocketmq_py.names import DEFAULT_TOPIC
from rocketmq_py.properties import MAX_ENCODED_SIZE, encode_properties
from rocketmq_py.protocol import json_header
from rocketmq_py.protocol.command import VERSION, pack_lengths
from rocketmq_py.protocol.headers import SendMessageRequest, SendMessageRequestV2

STORED: Mapping[int, SendStatus] = {status.value: status for status in SendStatus}
"""The response codes with which a broker confirms that it stored a message."""

_MAX_UTF8_SIZE = 4  # bytes of a character
_NO_PROPERTIES: Mapping[str, str] = {}
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
    if message.is_bare and not system_properties:
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
        self._templates: dict[tuple[int, str], HeaderTemplate | None] = {}
        self._fields = {
            "a": producer_group,
            "b": topic,
            "c": default_topic,
            "d": str(default_topic_queues),
            **dict.fromkeys("efghij", "0"),  # keeps their order when fields() sets them
            "k": "true" if unit_mode else "false",
            "m": "true" if self.is_batch else "false",
            "n": "",
        }

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
        fields = {
            **self._fields,
            "e": str(queue_id),
            "f": str(system_flag),
            "g": str(born_time_ms),
            "h": str(flag),
            "i": properties,
            "n": broker_name,
        }
        return long_named(fields) if self.code in _LONG_NAMED else fields

    def template(self, queue_id: int, broker_name: str) -> HeaderTemplate | None:
        """Return the template of the headers for one queue. None if ``json_header.template`` returns None."""
        key = queue_id, broker_name
        if key not in self._templates:
            self._templates[key] = self._new_template(queue_id, broker_name)
        return self._templates[key]

    def _new_template(self, queue_id: int, broker_name: str) -> HeaderTemplate | None:
        fields = {
            **self._fields,
            "e": str(queue_id),
            **{name: f"\x00{name}" for name in "fghi"},  # open fields, see json_header.template
            "n": broker_name,
        }
        if self.code in _LONG_NAMED:
            fields = long_named(fields)
        open_fields = {"f": b'"%d"', "g": b'"%d"', "h": b'"%d"', "i": b"%b"}
        header = json_header.template(self.code, LANGUAGE_PYTHON, VERSION, fields, open_fields)
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
    fields["j"] = str(reconsume_times)
    if max_reconsume_times is not None:
        fields["l"] = str(max_reconsume_times)
    return fields


_LONG_NAMED = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE})
_LONG_NAME_OF_ATTRIBUTE = {
    field.name: field.encode_name for field in msgspec.structs.fields(SendMessageRequest)
}
_LONG_NAMES = {
    field.encode_name: _LONG_NAME_OF_ATTRIBUTE[field.name]
    for field in msgspec.structs.fields(SendMessageRequestV2)
}


def long_named(fields: Mapping[str, str]) -> dict[str, str]:
    """Return the ext fields of SEND_MESSAGE_V2 under their names in SEND_MESSAGE."""
    return {_LONG_NAMES[name]: value for name, value in fields.items()}
