"""From a message to the header that sends it: what runs for each message, in few steps.

There are two ways to the same bytes. The general one makes the ext fields, which can be signed, shown to
hooks and written in either serialization. The fast one fills in a :class:`HeaderTemplate`, which has been
written once for each topic, queue and kind of request.
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

STORED: Mapping[int, SendStatus] = {status.value: status for status in SendStatus}
"""The codes of answers to a send which say that the message is stored."""

_MAX_UTF8_SIZE = 4  # bytes of a character at most
_NO_PROPERTIES: Mapping[str, str] = {}
_to_json = msgspec.json.Encoder().encode


def bare_properties(unique_id: str) -> str:
    """Return the wire form of the properties of a message without any of its own."""
    return f"UNIQ_KEY\x01{unique_id}\x02WAIT\x01true\x02"


def encode_message_properties(
    message: Message, unique_id: str, system_properties: Mapping[str, str] = _NO_PROPERTIES
) -> str:
    """Return the wire form of all of a message's properties: the user's, and what its attributes stand for.

    Args:
        message: the message.
        unique_id: its id (UNIQ_KEY).
        system_properties: further ones of RocketMQ's own, such as RETRY_TOPIC of a message sent back.

    Raises:
        MessageTooLargeError: they are longer than 32,767 bytes.
    """
    if message.is_bare and not system_properties:
        return bare_properties(unique_id)
    wait = "true" if message.wait_store_ok else "false"
    encoded = f"UNIQ_KEY\x01{unique_id}\x02WAIT\x01{wait}\x02"
    if message.tags:
        encoded += f"TAGS\x01{message.tags}\x02"
    if message.keys:
        encoded += f"KEYS\x01{message.keys}\x02"
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


class SendRequestBuilder:
    """What the headers of all requests of one kind have in common that a producer makes for one topic.

    Args:
        code: the kind: SEND_MESSAGE_V2, SEND_BATCH_MESSAGE, SEND_REPLY_MESSAGE_V2, or one with long names.
        producer_group: the sender's group.
        topic: the topic, as it is on the wire.
        default_topic: whose settings a topic gets that the broker creates for this message.
        default_topic_queues: how many queues such a topic gets at most.
        unit_mode: whether what brokers create is marked as that of a unit.

    Attributes:
        code: the kind.
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
        self._fields = {
            "a": producer_group,
            "b": topic,
            "c": default_topic,
            "d": str(default_topic_queues),
            # In this order, and so that what is filled in later keeps its place.
            **dict.fromkeys("efghij", "0"),
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
        """Return the ext fields of a request; ``headers.SendMessageRequestV2`` says what each means.

        Args:
            queue_id: the queue that it goes to.
            broker_name: the queue's broker.
            born_time_ms: when the message was made, epoch milliseconds.
            properties: their wire form.
            flag: the application's own number.
            system_flag: RocketMQ's own bits.
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
        """Return what writes the JSON headers of requests to a queue; None for names out of the common."""
        fields = {
            **self._fields,
            "e": str(queue_id),
            **{name: f"\x00{name}" for name in "fghi"},
            "n": broker_name,
        }
        if self.code in _LONG_NAMED:
            fields = long_named(fields)
        open_fields = {"f": b'"%d"', "g": b'"%d"', "h": b'"%d"', "i": b"%b"}
        header = json_header.template(self.code, LANGUAGE_PYTHON, VERSION, fields, open_fields)
        open_fields["i"] = _to_json(bare_properties("%b"))
        bare_header = json_header.template(self.code, LANGUAGE_PYTHON, VERSION, fields, open_fields)
        return None if header is None or bare_header is None else HeaderTemplate(header, bare_header)


class HeaderTemplate:
    """A JSON header in which only what differs from message to message is left open.

    Of most messages the properties differ by the id alone: these have a header of their own, in which they
    are escaped already.
    """

    __slots__ = ("_bare_header", "_header")

    def __init__(self, header: bytes, bare_header: bytes) -> None:
        self._header = header
        self._bare_header = bare_header

    def frame(
        self, opaque: int, born_time_ms: int, properties: str, flag: int, system_flag: int, body: bytes
    ) -> bytes:
        """Return a request's whole frame; see :meth:`SendRequestBuilder.fields`.

        Raises:
            UnicodeEncodeError: the properties hold half a surrogate pair.
        """
        header = self._header % (system_flag, born_time_ms, flag, _to_json(properties), opaque)
        size = len(header)
        return b"".join((pack_lengths(4 + size + len(body), size), header, body))

    def bare_frame(
        self, opaque: int, born_time_ms: int, unique_id: str, flag: int, system_flag: int, body: bytes
    ) -> bytes:
        """As :meth:`frame`, with the properties that :func:`bare_properties` returns."""
        header = self._bare_header % (system_flag, born_time_ms, flag, unique_id.encode(), opaque)
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
    """Return the ext fields of SEND_MESSAGE_V2; ``headers.SendMessageRequestV2`` says what each means.

    The body goes along by itself, compressed if ``system_flag`` says so.

    Args:
        message: the message.
        queue: where it goes; its topic is the one on the wire.
        producer_group: the sender's group.
        unique_id: the message's id.
        born_time_ms: the present, epoch milliseconds.
        default_topic: whose settings a topic gets that the broker creates for this message.
        default_topic_queues: how many queues such a topic gets at most.
        system_flag: RocketMQ's own bits.
        reconsume_times: of a message sent again to a retry topic: how often its group failed on it.
        max_reconsume_times: of a message sent again to a retry topic: when the group gives up.
        system_properties: further properties of RocketMQ's own.

    Raises:
        MessageTooLargeError: the properties are longer than 32,767 bytes.
    """
    form = SendRequestBuilder(
        RequestCode.SEND_MESSAGE_V2,
        producer_group,
        queue.topic,
        default_topic=default_topic,
        default_topic_queues=default_topic_queues,
    )
    fields = form.fields(
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


def batch_properties(wait_store_ok: bool) -> str:
    """Return the wire form of the properties that a whole batch has, beside those of its messages."""
    return f"WAIT\x01{'true' if wait_store_ok else 'false'}\x02"


_LONG_NAMED = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE})
_LONG_NAMES = {
    "a": "producerGroup",
    "b": "topic",
    "c": "defaultTopic",
    "d": "defaultTopicQueueNums",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsumeTimes",
    "k": "unitMode",
    "l": "maxReconsumeTimes",
    "m": "batch",
    "n": "bname",
}


def long_named(fields: Mapping[str, str]) -> dict[str, str]:
    """Return the ext fields of SEND_MESSAGE for those of SEND_MESSAGE_V2."""
    return {_LONG_NAMES[name]: value for name, value in fields.items()}
