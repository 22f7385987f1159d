r"""A message's properties: their names, and their form on the wire.

On the wire they are one UTF-8 text, ``key \x01 value \x02`` again and again (Java: ``MessageDecoder``,
``MessageConst``). Java leaves the last ``\x02`` out; both forms are read.
"""

from __future__ import annotations

from collections.abc import Mapping

KEYS = "KEYS"
TAGS = "TAGS"
UNIQUE_KEY = "UNIQ_KEY"
WAIT_STORE = "WAIT"
DELAY_LEVEL = "DELAY"
RETRY_TOPIC = "RETRY_TOPIC"
REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE_ID = "REAL_QID"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME = "RECONSUME_TIME"
MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
MIN_OFFSET = "MIN_OFFSET"
MAX_OFFSET = "MAX_OFFSET"
MESSAGE_REGION = "MSG_REGION"
TRACE_SWITCH = "TRACE_ON"
CLUSTER = "CLUSTER"
INSTANCE_ID = "INSTANCE_ID"
PRODUCER_GROUP = "PGROUP"
TRANSACTION_PREPARED = "TRAN_MSG"
INNER_NUMBER = "INNER_NUM"
DEAD_LETTER_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
DEAD_LETTER_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"

KEY_SEPARATOR = " "
"""Between the keys of a message that has several."""

SYSTEM_PROPERTIES = frozenset(
    {
        KEYS, TAGS, UNIQUE_KEY, WAIT_STORE, DELAY_LEVEL, RETRY_TOPIC, REAL_TOPIC, REAL_QUEUE_ID,
        ORIGIN_MESSAGE_ID, RECONSUME_TIME, MAX_RECONSUME_TIMES, MIN_OFFSET, MAX_OFFSET, MESSAGE_REGION,
        TRACE_SWITCH, CLUSTER, INSTANCE_ID, PRODUCER_GROUP, TRANSACTION_PREPARED,
        DEAD_LETTER_ORIGIN_TOPIC, DEAD_LETTER_ORIGIN_MESSAGE_ID,
        "BUYER_ID", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG", "EXTEND_UNIQ_INFO",
        "CONSUME_START_TIME", "POP_CK", "POP_CK_OFFSET", "1ST_POP_TIME", "TRAN_PREPARED_QUEUE_OFFSET",
        "DUP_INFO", "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "ARRIVE_TIME", "PUSH_REPLY_TIME",
        "MSG_TYPE", "INNER_MULTI_QUEUE_OFFSET", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS",
        "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES", "TIMER_OUT_MS", "TIMER_DEL_UNIQKEY",
        "TIMER_DELAY_LEVEL", "__BORNHOST", "BORN_TIMESTAMP", "__CRC32#",
        "ORIGIN_GROUP", "_SYS_MSG_PRIORITY_", "__LITE_TOPIC",
    }
)  # fmt: skip
"""Names that RocketMQ sets itself and refuses from users (Java: ``MessageConst.STRING_HASH_SET``)."""

MAX_ENCODED_SIZE = 32_767
"""Bytes of the encoded form: the stored message keeps its length in a signed 16-bit number."""


def encode_properties(properties: Mapping[str, str]) -> str:
    r"""Return the wire form. The caller has made sure that no key or value holds ``\x01`` or ``\x02``."""
    return "".join([f"{key}\x01{value}\x02" for key, value in properties.items()])


def decode_properties(encoded: str) -> dict[str, str]:
    """Return the properties of a wire form; pieces without a separator are left out, as Java does."""
    properties = {}
    for piece in encoded.split("\x02"):
        key, separator, value = piece.partition("\x01")
        if separator:
            properties[key] = value
    return properties
