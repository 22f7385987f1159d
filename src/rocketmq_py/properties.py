r"""A message's properties: their names, and their form on the wire.

On the wire they are one UTF-8 text, ``key \x01 value \x02`` again and again (Java: ``MessageDecoder``,
``MessageConst``). Java leaves the last ``\x02`` out; both forms are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

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
TRANSACTION_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
"""Of a half message that was stored again: its first place in the half topic."""
TRANSACTION_ID = "__transactionId__"
TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
"""How often a broker has asked what became of a transaction."""
CHECK_IMMUNITY_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
"""How long after a half message a broker asks nothing."""
CORRELATION_ID = "CORRELATION_ID"
"""What a reply and its request have in common."""
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
"""The id of the client that waits for the reply."""
TTL = "TTL"
"""Milliseconds that it waits."""
MESSAGE_TYPE = "MSG_TYPE"
"""``REPLY_MESSAGE_TYPE`` on a reply."""
ARRIVE_TIME = "ARRIVE_TIME"
"""When a reply came to its client, epoch milliseconds."""
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
"""When a broker handed a reply on, epoch milliseconds."""
TIMER_DELAY_SECONDS = "TIMER_DELAY_SEC"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
"""When to deliver, epoch milliseconds; the two before it: how long to wait (5.x)."""
TIMER_OUT_MS = "TIMER_OUT_MS"
"""When a broker delivers, as it wrote it down: epoch milliseconds."""
TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
TIMER_DELAY_LEVEL = "TIMER_DELAY_LEVEL"
TIMER_DELETE_UNIQUE_KEY = "TIMER_DEL_UNIQKEY"
"""On a note that takes a timed message back: which one."""
SHARDING_KEY = "__SHARDINGKEY"
"""What a sender chose the queue by."""
PRIORITY = "_SYS_MSG_PRIORITY_"
"""Which queue a broker takes, where its sender leaves that to the message's priority (5.4.0)."""
BORN_TIME = "BORN_TIMESTAMP"
TRACE_CONTEXT = "TRACE_CONTEXT"
POP_CHECKPOINT = "POP_CK"
"""A popped message's receipt handle."""
FIRST_POP_TIME = "1ST_POP_TIME"
"""When a message was popped first, epoch milliseconds."""
ORIGIN_GROUP = "ORIGIN_GROUP"
"""Of a popped message that came again: the group that did not acknowledge it."""
INNER_NUMBER = "INNER_NUM"
DEAD_LETTER_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
DEAD_LETTER_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"

REPLY_MESSAGE_TYPE = "reply"
"""What MESSAGE_TYPE says on a reply (Java: ``MixAll.REPLY_MESSAGE_FLAG``)."""

KEY_SEPARATOR = " "
"""Between the keys of a message that has several."""

SYSTEM_PROPERTIES = frozenset(
    {
        KEYS, TAGS, UNIQUE_KEY, WAIT_STORE, DELAY_LEVEL, RETRY_TOPIC, REAL_TOPIC, REAL_QUEUE_ID,
        ORIGIN_MESSAGE_ID, RECONSUME_TIME, MAX_RECONSUME_TIMES, MIN_OFFSET, MAX_OFFSET, MESSAGE_REGION,
        TRACE_SWITCH, CLUSTER, INSTANCE_ID, PRODUCER_GROUP, TRANSACTION_PREPARED, TRANSACTION_QUEUE_OFFSET,
        DEAD_LETTER_ORIGIN_TOPIC, DEAD_LETTER_ORIGIN_MESSAGE_ID,
        CORRELATION_ID, REPLY_TO_CLIENT, TTL, MESSAGE_TYPE, ARRIVE_TIME, PUSH_REPLY_TIME,
        TIMER_DELAY_MS, TIMER_DELAY_SECONDS, TIMER_DELIVER_MS, TIMER_OUT_MS, TIMER_ENQUEUE_MS,
        TIMER_DEQUEUE_MS, TIMER_ROLL_TIMES, TIMER_DELAY_LEVEL, TIMER_DELETE_UNIQUE_KEY, BORN_TIME,
        "BUYER_ID", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG", "EXTEND_UNIQ_INFO",
        POP_CHECKPOINT, FIRST_POP_TIME, "CONSUME_START_TIME", "POP_CK_OFFSET",
        "DUP_INFO", "INNER_MULTI_QUEUE_OFFSET", "__BORNHOST", "__CRC32#",
        PRIORITY, ORIGIN_GROUP, "__LITE_TOPIC",
    }
)  # fmt: skip
"""Names that RocketMQ sets itself and refuses from users (Java: ``MessageConst.STRING_HASH_SET``)."""

MAX_ENCODED_SIZE = 32_767
"""Bytes of the encoded form: the stored message keeps its length in a signed 16-bit number."""


class FrozenProperties(dict[str, str]):
    """Properties that stay as they are: a dict in all but what would change it."""

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError(
            "a message's properties do not change; attrs.evolve(message, properties=...) makes another"
        )

    if not TYPE_CHECKING:  # for type checkers messages have a Mapping
        __setitem__ = __delitem__ = __ior__ = _refuse
        clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenProperties, (dict(self),)


NO_PROPERTIES = FrozenProperties()


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
