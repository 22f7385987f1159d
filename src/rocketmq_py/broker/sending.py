"""SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE (Java: ``SendMessageProcessor``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from rocketmq_py import properties as names
from rocketmq_py.broker.admission import Admission, Send, read_long_form, read_short_form
from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.dispatch import FAQ, Refusal, RequestHandler
from rocketmq_py.broker.draft import (
    TRANSACTION_BITS,
    Draft,
    decode_properties,
    delay_level_of,
    number_or_minus_one,
    tags_code_of,
)
from rocketmq_py.broker.locks import QueueLocks
from rocketmq_py.broker.put_status import NotStored, PutStatus, explain
from rocketmq_py.broker.schedule import Schedule
from rocketmq_py.broker.store import MessageStore, StoredMessage
from rocketmq_py.broker.subscription_groups import SubscriptionGroupTable
from rocketmq_py.broker.timers import WISHES
from rocketmq_py.broker.topics import TopicConfig, TopicTable
from rocketmq_py.broker.transactions import Transactions
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.names import RETRY_PREFIX, dead_letter_topic
from rocketmq_py.protocol.batch import decode_batch
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.handles import RecallHandle
from rocketmq_py.protocol.stored_message import INNER_BATCH_FLAG
from rocketmq_py.remoting import Connection

_TIMED = WISHES | {names.TIMER_OUT_MS}
UNLIKE_PLAIN_BITS = TRANSACTION_BITS | INNER_BATCH_FLAG
UNLIKE_PLAIN = _TIMED | {
    names.DELAY_LEVEL,
    names.INNER_NUMBER,
    names.POP_CHECKPOINT,
    names.PRIORITY,
    names.TRANSACTION_PREPARED,
}
"""Bits of the system flag, and properties, of messages with which more is done than to store them."""
_UNLIKE_PRIORITY = WISHES | {names.DELAY_LEVEL, names.SHARDING_KEY}
_MAX_BATCH_TOPIC_LENGTH = 127


class Sending:
    """Answers sends.

    Args:
        config: the broker's settings.
        admission: checks what comes.
        topics: the broker's topics; a message that is given up may add one.
        subscription_groups: the settings of consumer groups.
        locks: tell which groups consume in order.
        store: keeps batches.
        schedule: keeps single messages, delayed or not.
        transactions: keeps half messages.
        new_unique_id: makes the id of a message whose sender gave it none.
        born_host: gives a connection's peer in packed form.
    """

    def __init__(
        self,
        config: BrokerConfig,
        admission: Admission,
        topics: TopicTable,
        subscription_groups: SubscriptionGroupTable,
        locks: QueueLocks,
        store: MessageStore,
        schedule: Schedule,
        transactions: Transactions,
        *,
        new_unique_id: Callable[[], str],
        born_host: Callable[[Connection], bytes],
    ) -> None:
        self._config = config
        self._admission = admission
        self._topics = topics
        self._subscription_groups = subscription_groups
        self._locks = locks
        self._store = store
        self._schedule = schedule
        self._transactions = transactions
        self._new_unique_id = new_unique_id
        self._born_host = born_host
        self._marks = admission.marks

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the handler of each request's code."""
        return {
            RequestCode.SEND_MESSAGE: partial(self._take, read_long_form),
            RequestCode.SEND_MESSAGE_V2: partial(self._take, read_short_form),
            RequestCode.SEND_BATCH_MESSAGE: partial(self._take, read_short_form),
        }

    def _take(self, read: Callable[[Command], Send], connection: Connection, request: Command) -> None:
        send = read(request)
        topic, queue_id = self._admission.admit(connection, request, send)
        if send.is_batch:
            self._store_batch(connection, request, send, queue_id)
        else:
            self._store_one(connection, request, send, topic, queue_id)

    # One message

    def _store_one(
        self, connection: Connection, request: Command, send: Send, topic: TopicConfig, queue_id: int
    ) -> None:
        properties = decode_properties(send.properties)
        properties.update(self._marks)
        stored_topic, stored_queue_id = send.topic, queue_id
        # Nearly all messages are plain: what is asked of the others is asked at once.
        is_plain = UNLIKE_PLAIN.isdisjoint(properties) and not send.system_flag & UNLIKE_PLAIN_BITS
        if not is_plain:
            properties.pop(names.POP_CHECKPOINT, None)
        if stored_topic.startswith(RETRY_PREFIX) and self._is_given_up(send):
            properties[names.DELAY_LEVEL] = "-1"
            stored_topic = dead_letter_topic(stored_topic.removeprefix(RETRY_PREFIX))
            stored_queue_id = 0
            self._topics.create_for_send_back(stored_topic, 1)
        elif not is_plain and names.PRIORITY in properties:
            queue_id = stored_queue_id = _queue_by_priority(properties, topic, queue_id)
        unique_id = properties.get(names.UNIQUE_KEY)
        if not unique_id:
            unique_id = properties[names.UNIQUE_KEY] = self._new_unique_id()
        properties[names.CLUSTER] = self._config.cluster_name
        draft = Draft(
            stored_topic,
            stored_queue_id,
            request.body,
            properties,
            send.flag,
            send.system_flag,
            send.born_time_ms,
            self._born_host(connection),
            send.reconsume_times,
        )
        try:
            stored = draft.store_in(self._store) if is_plain else self._put(draft)
        except NotStored as error:
            raise self._admission.refusal(*explain(error.status, self._config)) from None
        fields = {
            names.MESSAGE_REGION: self._marks[names.MESSAGE_REGION],
            names.TRACE_SWITCH: self._marks[names.TRACE_SWITCH],
            "msgId": self._store.message_id(stored.commit_log_offset),
            "queueId": str(queue_id),
            "queueOffset": str(stored.queue_offset),
            "transactionId": unique_id,
        }
        if not is_plain and not _TIMED.isdisjoint(properties):
            self._add_recall_handle(fields, stored)
        connection.respond(request, ResponseCode.SUCCESS, fields)

    def _is_given_up(self, send: Send) -> bool:
        name = send.topic.removeprefix(RETRY_PREFIX)
        group = self._subscription_groups.find(name)
        if group is None:
            raise self._admission.refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name} {FAQ}"
            )
        most = group.retry_max_times if send.max_reconsume_times is None else send.max_reconsume_times
        # Who consumes in order has tried again in place; what still comes here is given up.
        return send.reconsume_times > most or self._locks.holds_any(name)

    def _put(self, draft: Draft) -> StoredMessage:
        properties = draft.properties
        if names.INNER_NUMBER in properties or draft.system_flag & INNER_BATCH_FLAG:
            raise NotStored(PutStatus.MESSAGE_ILLEGAL)
        if names.TRANSACTION_PREPARED not in properties or not _is_half(draft):
            return self._schedule.put(draft)
        if self._config.reject_transaction_message:
            raise self._admission.refusal(
                ResponseCode.NO_PERMISSION, self._admission.forbidden("sending transaction message")
            )
        return self._transactions.prepare(draft)

    def _add_recall_handle(self, fields: dict[str, str], stored: StoredMessage) -> None:
        properties = Draft.of(stored).properties
        topic, slot = properties.get(names.REAL_TOPIC), properties.get(names.TIMER_OUT_MS)
        if topic is None or slot is None or topic.startswith(RETRY_PREFIX):
            return
        # One beyond the begin of the second that the message is in: what takes it back must be in it, too.
        time_ms = str(number_or_minus_one(slot) + 1)
        handle = RecallHandle(topic, self._config.broker_name, time_ms, fields["transactionId"])
        fields["recallHandle"] = handle.encode()

    # A batch

    def _store_batch(self, connection: Connection, request: Command, send: Send, queue_id: int) -> None:
        self._check_batch(send)
        if len(request.body) > self._config.max_message_size:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "message body size exceeded")
        born_host = self._born_host(connection)
        queue = self._store.queue(send.topic, queue_id)
        ids = []
        first_offset = queue.end
        for message in decode_batch(request.body):
            stored = self._store.append(
                queue,
                message.body,
                message.properties,
                _tags_code_in(message.properties),
                message.flag,
                send.system_flag,
                send.born_time_ms,
                born_host,
                send.reconsume_times,
            )
            ids.append(self._store.message_id(stored.commit_log_offset))
        fields = {
            **self._marks,
            "msgId": ",".join(ids),
            "queueId": str(queue_id),
            "queueOffset": str(first_offset),
        }
        unique_id = decode_properties(send.properties).get(names.UNIQUE_KEY)
        if unique_id is not None:
            fields["transactionId"] = unique_id
        connection.respond(request, ResponseCode.SUCCESS, fields)

    def _check_batch(self, send: Send) -> None:
        if len(send.topic) > _MAX_BATCH_TOPIC_LENGTH:
            raise self._admission.refusal(
                ResponseCode.MESSAGE_ILLEGAL, f"message topic length too long {len(send.topic)}"
            )
        if send.topic.startswith(RETRY_PREFIX):
            raise self._admission.refusal(
                ResponseCode.MESSAGE_ILLEGAL, f"batch request does not support retry group {send.topic}"
            )
        if send.system_flag & TRANSACTION_BITS or delay_level_of(decode_properties(send.properties)) > 0:
            raise self._admission.refusal(*explain(PutStatus.MESSAGE_ILLEGAL, self._config))


def _tags_code_in(properties: bytes) -> int:
    """Return the hash of the tag in properties as they are on the wire, 0 without one."""
    if b"TAGS\x01" not in properties:
        return 0
    return tags_code_of(decode_properties(properties.decode(errors="replace")))


def _is_half(draft: Draft) -> bool:
    """Tell whether a message is a half message; one that comes again after a failure is none any more."""
    is_wished = draft.properties[names.TRANSACTION_PREPARED].lower() == "true"
    return is_wished and not (draft.reconsume_times > 0 and draft.delay_level > 0)


def _queue_by_priority(properties: dict[str, str], topic: TopicConfig, queue_id: int) -> int:
    """Return the queue of a message with a priority (5.5.0): the priority is the queue.

    Messages that are something else beside that lose it. Java: ``TopicMessageType``.
    """
    priority = number_or_minus_one(properties[names.PRIORITY])
    if priority < 0:
        return queue_id
    is_half = properties.get(names.TRANSACTION_PREPARED, "").lower() == "true"
    if is_half or not _UNLIKE_PRIORITY.isdisjoint(properties):
        del properties[names.PRIORITY]
        return queue_id
    return max(0, min(priority, topic.write_queue_nums - 1))
