"""The names of message properties that RocketMQ or this package gives a meaning. Java: ``MessageConst``."""

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
"""For a half message that was stored again, its first offset in the half topic."""
TRANSACTION_ID = "__transactionId__"
TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
"""How often a broker has checked the transaction."""
CHECK_IMMUNITY_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
"""Seconds after a half message during which the broker does not check its transaction."""
CORRELATION_ID = "CORRELATION_ID"
"""The id that a reply shares with its request."""
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
"""The id of the client that waits for the reply."""
TTL = "TTL"
"""Milliseconds that this client waits."""
MESSAGE_TYPE = "MSG_TYPE"
"""``REPLY_MESSAGE_TYPE`` in a reply."""
ARRIVE_TIME = "ARRIVE_TIME"
"""When a reply arrived at the client, epoch milliseconds."""
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
"""When a broker pushed a reply to the client, epoch milliseconds."""
TIMER_DELAY_SECONDS = "TIMER_DELAY_SEC"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
"""The delivery time, epoch milliseconds. The two properties above are delays instead (5.x)."""
START_DELIVER_TIME = "__STARTDELIVERTIME"
"""The delivery time on some managed services, epoch milliseconds. Brokers of Apache RocketMQ ignore it."""
TIMER_OUT_MS = "TIMER_OUT_MS"
"""The delivery time that the broker recorded, epoch milliseconds."""
TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
TIMER_DELAY_LEVEL = "TIMER_DELAY_LEVEL"
TIMER_DELETE_UNIQUE_KEY = "TIMER_DEL_UNIQKEY"
"""The id of the timed message that this message cancels."""
SHARDING_KEY = "__SHARDINGKEY"
"""The key by which the sender chose the queue."""
PRIORITY = "_SYS_MSG_PRIORITY_"
"""The message's priority, by which the broker chooses the queue (5.4.0)."""
LITE_TOPIC = "__LITE_TOPIC"
"""The message's lite topic (5.5)."""
LITE_QUEUES = "INNER_MULTI_DISPATCH"
"""The lite queues of a stored message, separated by commas: ``%LMQ%$parent$child`` (5.5)."""
LITE_OFFSETS = "INNER_MULTI_QUEUE_OFFSET"
"""The offsets of a stored message in its LITE_QUEUES."""
BORN_TIME = "BORN_TIMESTAMP"
TRACE_CONTEXT = "TRACE_CONTEXT"
POP_CHECKPOINT = "POP_CK"
"""A popped message's receipt handle."""
FIRST_POP_TIME = "1ST_POP_TIME"
"""The time of a message's first pop, epoch milliseconds."""
ORIGIN_GROUP = "ORIGIN_GROUP"
"""For a popped message that is delivered again, the group that did not acknowledge it."""
INNER_NUMBER = "INNER_NUM"
DEAD_LETTER_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
DEAD_LETTER_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"
DEAD_LETTER_REASON = "DLQ_REASON"
"""Why this client moved a message to the dead letters without retries."""
CONTENT_TYPE = "contentType"
"""The format of the body, as rocketmq-spring names it: a MIME type. A property of the user."""

REPLY_MESSAGE_TYPE = "reply"
"""The MESSAGE_TYPE of a reply. Java: ``MixAll.REPLY_MESSAGE_FLAG``."""

KEY_SEPARATOR = " "
"""Separates several keys of one message."""


def split_keys(text: str) -> tuple[str, ...]:
    """Return the keys in the property KEYS, as brokers split it."""
    if KEY_SEPARATOR in text:
        return tuple([key for key in text.split(KEY_SEPARATOR) if key])
    return (text,) if text else ()


SYSTEM_PROPERTIES = frozenset(
    {
        KEYS, TAGS, UNIQUE_KEY, WAIT_STORE, DELAY_LEVEL, RETRY_TOPIC, REAL_TOPIC, REAL_QUEUE_ID,
        ORIGIN_MESSAGE_ID, RECONSUME_TIME, MAX_RECONSUME_TIMES, MIN_OFFSET, MAX_OFFSET, MESSAGE_REGION,
        TRACE_SWITCH, CLUSTER, INSTANCE_ID, PRODUCER_GROUP, TRANSACTION_PREPARED, TRANSACTION_ID,
        TRANSACTION_QUEUE_OFFSET,
        DEAD_LETTER_ORIGIN_TOPIC, DEAD_LETTER_ORIGIN_MESSAGE_ID,
        CORRELATION_ID, REPLY_TO_CLIENT, TTL, MESSAGE_TYPE, ARRIVE_TIME, PUSH_REPLY_TIME,
        TIMER_DELAY_MS, TIMER_DELAY_SECONDS, TIMER_DELIVER_MS, TIMER_OUT_MS, TIMER_ENQUEUE_MS,
        TIMER_DEQUEUE_MS, TIMER_ROLL_TIMES, TIMER_DELAY_LEVEL, TIMER_DELETE_UNIQUE_KEY, BORN_TIME,
        "BUYER_ID", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG", "EXTEND_UNIQ_INFO",
        POP_CHECKPOINT, FIRST_POP_TIME, "CONSUME_START_TIME", "POP_CK_OFFSET",
        "DUP_INFO", LITE_QUEUES, LITE_OFFSETS, "__BORNHOST", "__CRC32#",
        PRIORITY, ORIGIN_GROUP, LITE_TOPIC,
    }
)  # fmt: skip
"""Properties that RocketMQ sets, and users cannot set. Java: ``MessageConst.STRING_HASH_SET``."""
