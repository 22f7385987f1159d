"""SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE (Java: ``SendMessageProcessor``)."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import attrs

from rocketmq_py import properties as names
from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.dispatch import FAQ, Refusal, RequestHandler
from rocketmq_py.broker.draft import (
    TRANSACTION_BITS,
    Draft,
    decode_properties,
    delay_level_of,
    tags_code_of,
)
from rocketmq_py.broker.locks import QueueLocks
from rocketmq_py.broker.schedule import Schedule
from rocketmq_py.broker.store import MessageStore
from rocketmq_py.broker.subscription_groups import SubscriptionGroupTable
from rocketmq_py.broker.topics import TopicConfig, TopicTable, is_sendable, topic_fault
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import ProtocolError
from rocketmq_py.names import DEFAULT_TOPIC, RETRY_PREFIX, dead_letter_topic
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import SendMessageRequest
from rocketmq_py.protocol.send_body import decode_batch
from rocketmq_py.protocol.stored_message import INNER_BATCH_FLAG
from rocketmq_py.remoting import Connection

POP_CHECKPOINT = "POP_CK"
_TIMER_PROPERTIES = frozenset({"TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS"})
_FEATURE_PROPERTIES = _TIMER_PROPERTIES | {names.INNER_NUMBER, names.TRANSACTION_PREPARED}
_MAX_BATCH_TOPIC_LENGTH = 127


@attrs.frozen(slots=False, eq=False)
class _Send:
    """The header of a send, of either form."""

    topic: str
    queue_id: int
    system_flag: int
    born_time_ms: int
    flag: int
    properties: str
    reconsume_times: int
    max_reconsume_times: int | None
    is_batch: bool
    default_topic: str
    default_topic_queue_nums: int


class Sending:
    """Answers sends.

    Args:
        config: the broker's settings.
        topics: the broker's topics; a send may add one.
        subscription_groups: the settings of consumer groups.
        locks: tell which groups consume in order.
        store: keeps batches.
        schedule: keeps single messages, delayed or not.
        new_unique_id: makes the id of a message whose sender gave it none.
        born_host: gives a connection's peer in packed form.
        rng: chooses a queue when a send leaves that to the broker.
    """

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicTable,
        subscription_groups: SubscriptionGroupTable,
        locks: QueueLocks,
        store: MessageStore,
        schedule: Schedule,
        *,
        new_unique_id: Callable[[], str],
        born_host: Callable[[Connection], bytes],
        rng: random.Random,
    ) -> None:
        self._config = config
        self._topics = topics
        self._subscription_groups = subscription_groups
        self._locks = locks
        self._store = store
        self._schedule = schedule
        self._new_unique_id = new_unique_id
        self._born_host = born_host
        self._rng = rng
        self._marks = {
            names.MESSAGE_REGION: config.region_id,
            names.TRACE_SWITCH: "true" if config.trace_on else "false",
        }
        self._too_large = (
            "the message is illegal, maybe msg body or properties length not matched. msg body length limit "
            f"{config.max_message_size}B, msg properties length limit 32KB."
        )

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the handler of each request's code."""
        return {
            RequestCode.SEND_MESSAGE: self._send,
            RequestCode.SEND_MESSAGE_V2: self._send_v2,
            RequestCode.SEND_BATCH_MESSAGE: self._send_v2,
        }

    def _send(self, connection: Connection, request: Command) -> None:
        header = SendMessageRequest.from_fields(request.fields)
        send = _Send(
            header.topic,
            header.queue_id,
            header.sys_flag,
            header.born_timestamp,
            header.flag,
            header.properties or "",
            header.reconsume_times or 0,
            header.max_reconsume_times,
            bool(header.batch),
            header.default_topic,
            header.default_topic_queue_nums,
        )
        self._take(connection, request, send)

    def _send_v2(self, connection: Connection, request: Command) -> None:
        # The hot path: the names of SendMessageRequestV2, read without building one.
        fields = request.fields
        try:
            most = fields.get("l")
            send = _Send(
                fields["b"],
                int(fields["e"]),
                int(fields["f"]),
                int(fields["g"]),
                int(fields["h"]),
                fields.get("i", ""),
                int(fields.get("j", 0)),
                int(most) if most is not None else None,
                fields.get("m") == "true",
                fields.get("c", DEFAULT_TOPIC),
                int(fields.get("d", 0)),
            )
        except KeyError as error:
            raise ProtocolError(f"SendMessageRequestV2: field {error} is missing") from None
        except ValueError as error:
            raise ProtocolError(f"SendMessageRequestV2: {error}") from None
        self._take(connection, request, send)

    def _take(self, connection: Connection, request: Command, send: _Send) -> None:
        topic = self._topics.get(send.topic)
        if topic is None or not is_sendable(send.topic):
            topic = self._new_topic(send)
        queue_id = send.queue_id
        queues = max(topic.write_queue_nums, topic.read_queue_nums)
        if queue_id >= queues:
            raise self._refusal(
                ResponseCode.INVALID_PARAMETER,
                f"request queueId[{queue_id}] is illegal, {topic} Producer: {connection.address}",
            )
        if not request.body:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "the request has no body: a message needs one")
        if queue_id < 0:
            queue_id = self._rng.randrange(max(1, topic.write_queue_nums))
        if send.is_batch:
            self._store_batch(connection, request, send, queue_id)
        else:
            self._store_one(connection, request, send, queue_id)

    def _new_topic(self, send: _Send) -> TopicConfig:
        fault = topic_fault(send.topic)
        if fault is not None:
            raise self._refusal(ResponseCode.INVALID_PARAMETER, fault)
        if not is_sendable(send.topic):
            raise self._refusal(
                ResponseCode.NO_PERMISSION, f"Sending message to topic[{send.topic}] is forbidden."
            )
        topic = self._topics.create_for_send(send.topic, send.default_topic, send.default_topic_queue_nums)
        if topic is None and send.topic.startswith(RETRY_PREFIX):
            topic = self._topics.create_for_send_back(send.topic, 1)
        if topic is None:
            raise self._refusal(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{send.topic}] not exist, apply first please!{FAQ}"
            )
        return topic

    def _refusal(self, code: int, remark: str) -> Refusal:
        return Refusal(code, remark, self._marks)

    # One message

    def _store_one(self, connection: Connection, request: Command, send: _Send, queue_id: int) -> None:
        properties = decode_properties(send.properties)
        properties.update(self._marks)
        properties.pop(POP_CHECKPOINT, None)
        topic, stored_queue_id = send.topic, queue_id
        if topic.startswith(RETRY_PREFIX) and self._is_given_up(send):
            properties[names.DELAY_LEVEL] = "-1"
            topic = dead_letter_topic(topic.removeprefix(RETRY_PREFIX))
            stored_queue_id = 0
            self._topics.create_for_send_back(topic, 1)
        unique_id = properties.get(names.UNIQUE_KEY)
        if not unique_id:
            unique_id = properties[names.UNIQUE_KEY] = self._new_unique_id()
        properties[names.CLUSTER] = self._config.cluster_name
        draft = Draft(
            topic,
            stored_queue_id,
            request.body,
            properties,
            send.flag,
            send.system_flag,
            send.born_time_ms,
            self._born_host(connection),
            send.reconsume_times,
        )
        if not _FEATURE_PROPERTIES.isdisjoint(properties) or send.system_flag & INNER_BATCH_FLAG:
            self._check_features(draft)
        stored = self._schedule.put(draft)
        if stored is None:
            raise self._refusal(ResponseCode.MESSAGE_ILLEGAL, self._too_large)
        fields = {
            names.MESSAGE_REGION: self._marks[names.MESSAGE_REGION],
            names.TRACE_SWITCH: self._marks[names.TRACE_SWITCH],
            "msgId": self._store.message_id(stored.commit_log_offset),
            "queueId": str(queue_id),
            "queueOffset": str(stored.queue_offset),
            "transactionId": unique_id,
        }
        connection.respond(request, ResponseCode.SUCCESS, fields)

    def _is_given_up(self, send: _Send) -> bool:
        name = send.topic.removeprefix(RETRY_PREFIX)
        group = self._subscription_groups.find(name)
        if group is None:
            raise self._refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name} {FAQ}"
            )
        most = group.retry_max_times if send.max_reconsume_times is None else send.max_reconsume_times
        # Who consumes in order has tried again in place; what still comes here is given up.
        return send.reconsume_times > most or self._locks.holds_any(name)

    def _check_features(self, draft: Draft) -> None:
        properties = draft.properties
        if names.INNER_NUMBER in properties or draft.system_flag & INNER_BATCH_FLAG:
            raise self._refusal(ResponseCode.MESSAGE_ILLEGAL, self._too_large)
        if properties.get(names.TRANSACTION_PREPARED, "").lower() == "true" and not (
            draft.reconsume_times > 0 and draft.delay_level > 0
        ):
            raise self._refusal(
                ResponseCode.NO_PERMISSION,
                "this broker has no transactional messages: sending transaction message is forbidden",
            )
        if draft.delay_level <= 0 and not _TIMER_PROPERTIES.isdisjoint(properties):
            raise self._refusal(
                ResponseCode.SYSTEM_ERROR,
                "accurate timer message is not enabled, timerWheelEnable is false",
            )

    # A batch

    def _store_batch(self, connection: Connection, request: Command, send: _Send, queue_id: int) -> None:
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
                tags_code_of(decode_properties(message.properties.decode(errors="replace"))),
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

    def _check_batch(self, send: _Send) -> None:
        if len(send.topic) > _MAX_BATCH_TOPIC_LENGTH:
            raise self._refusal(
                ResponseCode.MESSAGE_ILLEGAL, f"message topic length too long {len(send.topic)}"
            )
        if send.topic.startswith(RETRY_PREFIX):
            raise self._refusal(
                ResponseCode.MESSAGE_ILLEGAL, f"batch request does not support retry group {send.topic}"
            )
        if send.system_flag & TRANSACTION_BITS or delay_level_of(decode_properties(send.properties)) > 0:
            raise self._refusal(ResponseCode.MESSAGE_ILLEGAL, self._too_large)
