"""Fast path: sends of plain messages to existing topics, without intermediate objects.

Nearly all sends are plain, and this handles them in half the CPU time of ``SendProcessor``. It stores
and answers exactly the same, and leaves every other send to ``SendProcessor``.
"""

from __future__ import annotations

import re

import msgspec

from rocketmq_py.broker.sends.send_requests import TIMED_PROPERTIES, SendValidator
from rocketmq_py.broker.state import BrokerState
from rocketmq_py.broker.storage.broker_message import TRANSACTION_BITS, packed_peer, tag_code_or_zero
from rocketmq_py.broker.storage.consume_queue import ConsumeQueue
from rocketmq_py.broker.topics import is_sendable
from rocketmq_py.errors import InvalidMessageError
from rocketmq_py.names import RETRY_PREFIX
from rocketmq_py.properties import decode_properties, encode_properties
from rocketmq_py.property_names import (
    CLUSTER,
    DELAY_LEVEL,
    INNER_NUMBER,
    LITE_QUEUES,
    LITE_TOPIC,
    POP_CHECKPOINT,
    PRIORITY,
    TAGS,
    TRANSACTION_PREPARED,
    UNIQUE_KEY,
)
from rocketmq_py.protocol.stored_message import INNER_BATCH_FLAG
from rocketmq_py.protocol.typed_sends import AnswerTemplate, SendCommand, answer_template
from rocketmq_py.remoting import Connection

_SPECIAL_BITS = TRANSACTION_BITS | INNER_BATCH_FLAG
_SPECIAL_PROPERTIES = TIMED_PROPERTIES | {
    DELAY_LEVEL,
    INNER_NUMBER,
    LITE_QUEUES,
    LITE_TOPIC,
    POP_CHECKPOINT,
    PRIORITY,
    TRANSACTION_PREPARED,
}
"""Properties of messages that only ``SendProcessor`` handles."""

# Fast path: matches messages that have at most tags and keys. Decoding properties takes three times as long.
_match_common_properties = re.compile(
    "UNIQ_KEY\x01([^\x01\x02]++)\x02WAIT\x01(?:true|false)\x02"
    "(?:TAGS\x01([^\x01\x02]++)\x02)?+(?:KEYS\x01[^\x01\x02]++\x02)?+"
).fullmatch


class _Target(msgspec.Struct, frozen=True):
    """A queue that plain messages are sent to, and the template of its answers."""

    queue: ConsumeQueue
    answer: AnswerTemplate


class PlainSendHandler:
    """Stores and answers plain sends.

    Args:
        state: the broker's tables.
        validator: provides the fields that all answers have.
    """

    def __init__(self, state: BrokerState, validator: SendValidator) -> None:
        self._topics = state.topics
        self._store = state.store
        self._common_fields = validator.common_fields
        added = {**validator.common_fields, CLUSTER: state.config.cluster_name}
        self._added_properties = encode_properties(added)
        self._special_properties = _SPECIAL_PROPERTIES | added.keys()
        self._targets: dict[str, dict[str, _Target]] = {}  # by topic, and by queue id as text
        self._topic_changes = state.topics.changes

    def handle(self, connection: Connection, send: SendCommand) -> bytes | None:
        """Store a message and return the encoded answer. Returns None if the message is not plain."""
        fields = send.fields
        encoded = fields.properties
        if not encoded.endswith("\x02"):
            encoded += "\x02"  # Java leaves the last separator out
        if common := _match_common_properties(encoded):
            unique_id, tags = common.groups()
        elif decoded := self._unique_id_and_tags(encoded):
            unique_id, tags = decoded
        else:
            return None
        try:
            system_flag = int(fields.system_flag)
            flag, born_time_ms = int(fields.flag), int(fields.born_time_ms)
            int(fields.default_topic_queues)  # not used, but SendProcessor refuses it if it is not a number
        except ValueError:
            return None
        if not send.body or system_flag & _SPECIAL_BITS:
            return None
        target = self._target(fields.topic, fields.queue_id)
        if target is None:
            return None
        try:
            stored = self._store.append(
                target.queue,
                send.body,
                (encoded + self._added_properties).encode(),
                tag_code_or_zero(tags),
                flag,
                system_flag,
                born_time_ms,
                packed_peer(connection.peer_address),
            )
        except InvalidMessageError:
            return None  # nothing was stored; SendProcessor answers with the reason
        return target.answer.frame(send.opaque, stored.commit_log_offset, stored.queue_offset, unique_id)

    def _unique_id_and_tags(self, encoded: str) -> tuple[str, str | None] | None:
        """Decode properties. Returns None unless appending the broker's properties is all that they need."""
        properties = decode_properties(encoded)
        unique_id = properties.get(UNIQUE_KEY)
        count = len(properties)
        if (
            not unique_id
            # Encoding them again must give the same text: each name once, and each with a value.
            or encoded.count("\x01") != count
            or encoded.count("\x02") != count
            or "" in properties
            or "" in properties.values()
            or not self._special_properties.isdisjoint(properties)
        ):
            return None
        return unique_id, properties.get(TAGS)

    def _target(self, topic_name: str, queue_text: str) -> _Target | None:
        if self._topic_changes != self._topics.changes:
            self._targets.clear()  # a topic may have been deleted or changed
            self._topic_changes = self._topics.changes
        targets = self._targets.get(topic_name)
        target = None if targets is None else targets.get(queue_text)
        return self._find_target(topic_name, queue_text) if target is None else target

    def _find_target(self, topic_name: str, queue_text: str) -> _Target | None:
        topic = self._topics.get(topic_name)
        if topic is None or topic.order or not is_sendable(topic_name) or topic_name.startswith(RETRY_PREFIX):
            return None
        try:
            queue_id = int(queue_text)
        except ValueError:
            return None
        if not 0 <= queue_id < max(topic.write_queue_nums, topic.read_queue_nums):
            return None
        if str(queue_id) != queue_text:
            return None  # variants such as "00" must not fill the table
        answer = answer_template(self._common_fields, self._store.id_prefix, queue_id)
        if answer is None:
            return None
        target = _Target(self._store.queue(topic_name, queue_id), answer)
        self._targets.setdefault(topic_name, {})[queue_text] = target
        return target
