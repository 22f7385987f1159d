"""SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE.

Java: ``SendMessageProcessor``, ``AbstractSendMessageProcessor.msgCheck``.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from rocketmq_py.broker.dispatch import FAQ, Refusal, RequestHandler
from rocketmq_py.broker.sends.transactions import TransactionProcessor
from rocketmq_py.broker.state import BrokerState
from rocketmq_py.broker.storage.broker_message import (
    TRANSACTION_BITS,
    BrokerMessage,
    PutError,
    PutStatus,
    decode_complete_properties,
    delay_level_of,
    int_or_minus_one,
    packed_peer,
    tag_code_in,
)
from rocketmq_py.broker.storage.consume_queue import StoredMessage
from rocketmq_py.broker.storage.delayed_delivery import DELIVERY_TIME_PROPERTIES, MessageScheduler
from rocketmq_py.broker.topics import PERM_WRITE, TopicConfig, is_sendable, topic_name_error
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import ProtocolError
from rocketmq_py.names import DEFAULT_TOPIC, RETRY_PREFIX, dead_letter_topic, lite_queue
from rocketmq_py.property_names import (
    CLUSTER,
    DELAY_LEVEL,
    INNER_NUMBER,
    LITE_QUEUES,
    LITE_TOPIC,
    MESSAGE_REGION,
    POP_CHECKPOINT,
    PRIORITY,
    REAL_TOPIC,
    SHARDING_KEY,
    TIMER_OUT_MS,
    TRACE_SWITCH,
    TRANSACTION_PREPARED,
    UNIQUE_KEY,
)
from rocketmq_py.protocol.batch import decode_batch
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.handles import RecallHandle
from rocketmq_py.protocol.headers import (
    SendBatchMessageRequest,
    SendMessageRequest,
    SendMessageRequestV2,
    SendReplyMessageRequest,
    SendReplyMessageRequestV2,
)
from rocketmq_py.protocol.message_id import UniqueIdGenerator
from rocketmq_py.protocol.stored_message import INNER_BATCH_FLAG
from rocketmq_py.remoting import Connection

TIMED_PROPERTIES = DELIVERY_TIME_PROPERTIES | {TIMER_OUT_MS}
"""The properties of messages that have, or have had, a delivery time."""
_NO_PRIORITY_WITH = DELIVERY_TIME_PROPERTIES | {DELAY_LEVEL, SHARDING_KEY}
_MAX_BATCH_TOPIC_LENGTH = 127


class SendHeader(msgspec.Struct, frozen=True, eq=False):
    """The attributes of ``headers.SendMessageRequest`` that the broker reads."""

    producer_group: str
    topic: str
    queue_id: int
    sys_flag: int
    born_timestamp: int
    flag: int
    properties: str
    reconsume_times: int
    max_reconsume_times: int | None
    batch: bool
    default_topic: str
    default_topic_queue_nums: int


_FORMS = (
    SendMessageRequest,
    SendMessageRequestV2,
    SendBatchMessageRequest,
    SendReplyMessageRequest,
    SendReplyMessageRequestV2,
)
_FORM_NAMES: Mapping[int, str] = {form.code: form.__name__ for form in _FORMS}
_WIRE_NAMES: Mapping[int, tuple[str, ...]] = {
    form.code: tuple(map(form.wire_names().__getitem__, SendHeader.__struct_fields__)) for form in _FORMS
}


def read_header(request: Command) -> SendHeader:
    """Read the header of a send or of a reply. Raises ProtocolError."""
    # Fast path: reads the fields without creating a SendMessageRequest for each send.
    fields = request.fields
    group, topic, queue, system_flag, born, flag, properties, times, most, batch, default, queues = (
        _WIRE_NAMES[request.code]
    )
    try:
        max_reconsume_times = fields.get(most)
        return SendHeader(
            fields[group],
            fields[topic],
            int(fields[queue]),
            int(fields[system_flag]),
            int(fields[born]),
            int(fields[flag]),
            fields.get(properties, ""),
            int(fields.get(times, 0)),
            int(max_reconsume_times) if max_reconsume_times is not None else None,
            fields.get(batch) == "true",
            fields.get(default, DEFAULT_TOPIC),
            int(fields.get(queues, 0)),
        )
    except KeyError as error:
        raise ProtocolError(f"{_FORM_NAMES[request.code]}: field {error} is missing") from None
    except ValueError as error:
        raise ProtocolError(f"{_FORM_NAMES[request.code]}: {error}") from None


class SendValidator:
    """Validates sends, and creates topics for them. Java: ``AbstractSendMessageProcessor.msgCheck``.

    Attributes:
        common_fields: the broker's region and whether tracing is on. All answers to sends have these fields,
            and all messages have these properties.
    """

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self.common_fields: dict[str, str] = {
            MESSAGE_REGION: state.config.region_id,
            TRACE_SWITCH: "true" if state.config.trace_on else "false",
        }

    @property
    def is_writable(self) -> bool:
        """Whether the broker's permission allows sends."""
        return self._state.config.broker_permission & PERM_WRITE != 0

    def find_queue(
        self, connection: Connection, request: Command, header: SendHeader
    ) -> tuple[TopicConfig, int]:
        """Return the topic and the queue id of a send. Creates the topic if it does not exist.

        Raises Refusal if the send is invalid.
        """
        if not request.body:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "the request has no body: a message needs one")
        topic = self._state.topics.get(header.topic)
        if topic is not None and topic.order and not self.is_writable:
            # As on real brokers, only the route keeps producers from sending to other topics.
            raise self.refusal(ResponseCode.NO_PERMISSION, self.forbidden("sending message"))
        if topic is None or not is_sendable(header.topic):
            topic = self._create_topic(header)
        queue_id = header.queue_id
        if queue_id >= topic.write_queue_nums and queue_id >= topic.read_queue_nums:
            raise self.refusal(
                ResponseCode.INVALID_PARAMETER,
                f"request queueId[{queue_id}] is illegal, {topic} Producer: {connection.address}",
            )
        if queue_id < 0:
            queue_id = self._state.rng.randrange(max(1, topic.write_queue_nums))
        return topic, queue_id

    def refusal(self, code: int, remark: str) -> Refusal:
        """Return a refusal of a send."""
        return Refusal(code, remark, self.common_fields)

    def forbidden(self, operation: str) -> str:
        """Return the remark that this broker forbids an operation."""
        return f"the broker[{self._state.ip}] {operation} is forbidden"

    def _create_topic(self, header: SendHeader) -> TopicConfig:
        error = topic_name_error(header.topic)
        if error is not None:
            raise self.refusal(ResponseCode.INVALID_PARAMETER, error)
        if not is_sendable(header.topic):
            raise self.refusal(
                ResponseCode.NO_PERMISSION, f"Sending message to topic[{header.topic}] is forbidden."
            )
        topic = self._state.topics.create_for_send(
            header.topic, header.default_topic, header.default_topic_queue_nums
        )
        if topic is None and header.topic.startswith(RETRY_PREFIX):
            topic = self._state.topics.get_or_create(header.topic, 1)
        if topic is None:
            raise self.refusal(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please!{FAQ}"
            )
        return topic


class SendProcessor:
    """Answers sends.

    Args:
        state: the broker's tables.
        validator: validates sends.
        scheduler: stores single messages, delayed or not.
        transactions: stores half messages.
        unique_ids: creates the ids of messages that their senders did not give one.
    """

    def __init__(
        self,
        state: BrokerState,
        validator: SendValidator,
        scheduler: MessageScheduler,
        transactions: TransactionProcessor,
        unique_ids: UniqueIdGenerator,
    ) -> None:
        self._state = state
        self._config = state.config
        self._store = state.store
        self._validator = validator
        self._scheduler = scheduler
        self._transactions = transactions
        self._unique_ids = unique_ids

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the request handlers by request code."""
        return {
            RequestCode.SEND_MESSAGE: self._send,
            RequestCode.SEND_MESSAGE_V2: self._send,
            RequestCode.SEND_BATCH_MESSAGE: self._send,
        }

    def _send(self, connection: Connection, request: Command) -> None:
        header = read_header(request)
        topic, queue_id = self._validator.find_queue(connection, request, header)
        if header.batch:
            self._store_batch(connection, request, header, queue_id)
        else:
            self._store_single(connection, request, header, topic, queue_id)

    # A single message

    def _store_single(
        self, connection: Connection, request: Command, header: SendHeader, topic: TopicConfig, queue_id: int
    ) -> None:
        common_fields = self._validator.common_fields
        properties = decode_complete_properties(header.properties)
        properties.update(common_fields)
        properties.pop(POP_CHECKPOINT, None)
        stored_topic, stored_queue_id = header.topic, queue_id
        if header.topic.startswith(RETRY_PREFIX) and self._is_dead_letter(header):
            properties[DELAY_LEVEL] = "-1"
            stored_topic = dead_letter_topic(header.topic.removeprefix(RETRY_PREFIX))
            stored_queue_id = 0
            self._state.topics.get_or_create(stored_topic, 1)
        elif PRIORITY in properties:
            queue_id = stored_queue_id = _queue_by_priority(properties, topic, queue_id)
        if not properties.get(UNIQUE_KEY):
            properties[UNIQUE_KEY] = self._unique_ids.next()
        if properties.get(LITE_TOPIC):
            properties[LITE_QUEUES] = lite_queue(header.topic, properties[LITE_TOPIC])
        properties[CLUSTER] = self._config.cluster_name
        message = BrokerMessage(
            stored_topic,
            stored_queue_id,
            request.body,
            properties,
            header.flag,
            header.sys_flag,
            header.born_timestamp,
            packed_peer(connection.peer_address),
            header.reconsume_times,
        )
        try:
            stored = self._put(message)
        except PutError as error:
            raise self._validator.refusal(*error.status.answer(self._config)) from None
        fields = {
            **common_fields,
            "msgId": self._store.message_id(stored.commit_log_offset),
            "queueId": str(queue_id),
            "queueOffset": str(stored.queue_offset),
            "transactionId": properties[UNIQUE_KEY],
        }
        if not TIMED_PROPERTIES.isdisjoint(properties):
            self._add_recall_handle(fields, stored)
        connection.respond(request, ResponseCode.SUCCESS, fields)

    def _is_dead_letter(self, header: SendHeader) -> bool:
        """Return whether a message sent to a retry topic has become a dead letter."""
        name = header.topic.removeprefix(RETRY_PREFIX)
        group = self._state.subscription_groups.get_or_create(name)
        if group is None:
            raise self._validator.refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name} {FAQ}"
            )
        max_retries = (
            group.retry_max_times if header.max_reconsume_times is None else header.max_reconsume_times
        )
        # Orderly consumers retry in place, and send only messages here that they have stopped retrying.
        return header.reconsume_times > max_retries or self._state.locks.is_orderly(name)

    def _put(self, message: BrokerMessage) -> StoredMessage:
        properties = message.properties
        if INNER_NUMBER in properties or message.system_flag & INNER_BATCH_FLAG:
            raise PutError(PutStatus.MESSAGE_ILLEGAL)
        if TRANSACTION_PREPARED not in properties or not _is_half_message(message):
            return self._scheduler.put(message)
        if self._config.reject_transaction_message:
            raise self._validator.refusal(
                ResponseCode.NO_PERMISSION, self._validator.forbidden("sending transaction message")
            )
        return self._transactions.prepare(message)

    def _add_recall_handle(self, fields: dict[str, str], stored: StoredMessage) -> None:
        properties = BrokerMessage.decode(stored).properties
        topic, slot = properties.get(REAL_TOPIC), properties.get(TIMER_OUT_MS)
        if topic is None or slot is None or topic.startswith(RETRY_PREFIX):
            return
        # A recall must fall into the same slot as the message, so its time is 1 ms after the slot's start.
        time_ms = str(int_or_minus_one(slot) + 1)
        handle = RecallHandle(topic, self._config.broker_name, time_ms, fields["transactionId"])
        fields["recallHandle"] = handle.encode()

    # A batch

    def _store_batch(
        self, connection: Connection, request: Command, header: SendHeader, queue_id: int
    ) -> None:
        self._check_batch(header)
        if len(request.body) > self._config.max_message_size:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "message body size exceeded")
        born_address = packed_peer(connection.peer_address)
        queue = self._store.queue(header.topic, queue_id)
        ids = []
        first_offset = queue.end
        for message in decode_batch(request.body):
            stored = self._store.append(
                queue,
                message.body,
                message.properties,
                _encoded_tags_code(message.properties),
                message.flag,
                header.sys_flag,
                header.born_timestamp,
                born_address,
                header.reconsume_times,
            )
            ids.append(self._store.message_id(stored.commit_log_offset))
        fields = {
            **self._validator.common_fields,
            "msgId": ",".join(ids),
            "queueId": str(queue_id),
            "queueOffset": str(first_offset),
        }
        unique_id = decode_complete_properties(header.properties).get(UNIQUE_KEY)
        if unique_id is not None:
            fields["transactionId"] = unique_id
        connection.respond(request, ResponseCode.SUCCESS, fields)

    def _check_batch(self, header: SendHeader) -> None:
        refusal = self._validator.refusal
        if len(header.topic) > _MAX_BATCH_TOPIC_LENGTH:
            raise refusal(ResponseCode.MESSAGE_ILLEGAL, f"message topic length too long {len(header.topic)}")
        if header.topic.startswith(RETRY_PREFIX):
            raise refusal(
                ResponseCode.MESSAGE_ILLEGAL, f"batch request does not support retry group {header.topic}"
            )
        delay_level = delay_level_of(decode_complete_properties(header.properties))
        if header.sys_flag & TRANSACTION_BITS or delay_level > 0:
            raise refusal(*PutStatus.MESSAGE_ILLEGAL.answer(self._config))


def _encoded_tags_code(properties: bytes) -> int:
    """Return the hash of the tag in encoded properties; 0 without a tag."""
    if b"TAGS\x01" not in properties:
        return 0
    return tag_code_in(decode_complete_properties(properties.decode(errors="replace")))


def _is_half_message(message: BrokerMessage) -> bool:
    """Return whether a message with ``TRANSACTION_PREPARED`` is a half message. Delayed retries are not."""
    is_prepared = message.properties[TRANSACTION_PREPARED].lower() == "true"
    return is_prepared and not (message.reconsume_times > 0 and message.delay_level > 0)


def _queue_by_priority(properties: dict[str, str], topic: TopicConfig, queue_id: int) -> int:
    """Return the queue of a message with a priority (5.4.0): the queue id is the priority.

    Messages that are also delayed, ordered or transactional lose the priority. Java: ``TopicMessageType``.
    """
    priority = int_or_minus_one(properties[PRIORITY])
    if priority < 0:
        return queue_id
    is_half = properties.get(TRANSACTION_PREPARED, "").lower() == "true"
    if is_half or not _NO_PRIORITY_WITH.isdisjoint(properties):
        del properties[PRIORITY]
        return queue_id
    return max(0, min(priority, topic.write_queue_nums - 1))
