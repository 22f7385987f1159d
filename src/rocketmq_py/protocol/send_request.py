"""From a message to the ext fields that send it: what runs for each message, in as few steps as there are."""

from __future__ import annotations

from collections.abc import Mapping

from rocketmq_py.errors import MessageTooLargeError
from rocketmq_py.message import Message, MessageQueue
from rocketmq_py.names import DEFAULT_TOPIC
from rocketmq_py.properties import MAX_ENCODED_SIZE, encode_properties

_MAX_UTF8_SIZE = 4  # bytes of a character at most
_NO_PROPERTIES: Mapping[str, str] = {}


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
    fields = {
        "a": producer_group,
        "b": queue.topic,
        "c": default_topic,
        "d": str(default_topic_queues),
        "e": str(queue.queue_id),
        "f": str(system_flag),
        "g": str(born_time_ms),
        "h": str(message.flag),
        "i": encode_message_properties(message, unique_id, system_properties),
        "j": str(reconsume_times),
        "k": "false",
        "m": "false",
        "n": queue.broker_name,
    }
    if max_reconsume_times is not None:
        fields["l"] = str(max_reconsume_times)
    return fields


def batch_fields(
    queue: MessageQueue,
    *,
    producer_group: str,
    born_time_ms: int,
    wait_store_ok: bool = True,
    default_topic: str = DEFAULT_TOPIC,
    default_topic_queues: int = 4,
) -> dict[str, str]:
    """Return the ext fields of SEND_BATCH_MESSAGE; ``send_body`` makes the body.

    Args:
        queue: where all of it goes; its topic is the one on the wire.
        producer_group: the sender's group.
        born_time_ms: the present, epoch milliseconds.
        wait_store_ok: what is true of each of its messages.
        default_topic: see ``send_fields``.
        default_topic_queues: see ``send_fields``.
    """
    return {
        "a": producer_group,
        "b": queue.topic,
        "c": default_topic,
        "d": str(default_topic_queues),
        "e": str(queue.queue_id),
        "f": "0",
        "g": str(born_time_ms),
        "h": "0",
        "i": f"WAIT\x01{'true' if wait_store_ok else 'false'}\x02",
        "j": "0",
        "k": "false",
        "m": "true",
        "n": queue.broker_name,
    }


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
