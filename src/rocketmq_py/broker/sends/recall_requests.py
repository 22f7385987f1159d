"""RECALL_MESSAGE: cancels the delivery of a timed message (Java: ``RecallMessageProcessor``)."""

from __future__ import annotations

from collections.abc import Mapping

from rocketmq_py.broker.dispatch import UNSET_REMARK, Refusal, RequestHandler
from rocketmq_py.broker.state import BrokerState
from rocketmq_py.broker.storage.broker_message import BrokerMessage, PutError, int_or_minus_one, packed_peer
from rocketmq_py.broker.storage.delayed_delivery import MessageScheduler
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import InvalidMessageError
from rocketmq_py.property_names import (
    BORN_TIME,
    MESSAGE_REGION,
    PRODUCER_GROUP,
    TAGS,
    TIMER_DELETE_UNIQUE_KEY,
    TIMER_DELIVER_MS,
    TRACE_CONTEXT,
    UNIQUE_KEY,
)
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.handles import RecallHandle
from rocketmq_py.protocol.headers import RecallMessageAnswer, RecallMessageRequest
from rocketmq_py.remoting import Connection

_TAG = "_RECALL_TAG_"
_BODY = b"0"


class RecallProcessor:
    """Answers recalls of timed messages.

    A recall is stored as a timed message of its own, in the time slot of the message that it cancels. Success
    therefore means that the recall was stored, not that the message existed.

    Args:
        state: the broker's tables.
        scheduler: stores the recalls.
    """

    def __init__(self, state: BrokerState, scheduler: MessageScheduler) -> None:
        self._state = state
        self._config = state.config
        self._scheduler = scheduler
        self._common_fields = {MESSAGE_REGION: state.config.region_id}

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the request handlers by request code."""
        return {RequestCode.RECALL_MESSAGE: self._recall}

    def _recall(self, connection: Connection, request: Command) -> None:
        header = RecallMessageRequest.from_fields(request.fields)
        if not self._config.recall_message_enable:
            raise self._refusal(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        if self._state.topics.get(header.topic) is None:
            raise self._refusal(
                ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{header.topic}] not exist"
            )
        handle = self._read_handle(header)
        try:
            self._scheduler.put(self._recall_message(connection, header, handle))
        except PutError:
            raise self._refusal(ResponseCode.SYSTEM_ERROR, "recall failed, execute error") from None
        fields = {**self._common_fields, **RecallMessageAnswer(msg_id=handle.message_id).to_fields()}
        connection.respond(request, ResponseCode.SUCCESS, fields, remark=UNSET_REMARK)

    def _read_handle(self, header: RecallMessageRequest) -> RecallHandle:
        """Decode and check the recall handle of a request. Raises Refusal."""
        try:
            handle = RecallHandle.decode(header.recall_handle)
        except InvalidMessageError:
            raise self._refusal(ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid") from None
        if handle.topic != header.topic:
            raise self._refusal(ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match")
        if handle.broker_name != self._config.broker_name:
            raise self._refusal(ResponseCode.ILLEGAL_OPERATION, "recall failed, broker service not available")
        left_ms = int_or_minus_one(handle.deliver_at_ms) - self._state.now_ms()
        if not 0 < left_ms < self._config.timer_max_delay_sec * 1000:
            raise self._refusal(ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid")
        return handle

    def _recall_message(
        self, connection: Connection, header: RecallMessageRequest, handle: RecallHandle
    ) -> BrokerMessage:
        now_ms = self._state.now_ms()
        properties = {
            TAGS: _TAG,
            TIMER_DELETE_UNIQUE_KEY: handle.message_id,
            UNIQUE_KEY: handle.message_id,
            TIMER_DELIVER_MS: handle.deliver_at_ms,
            BORN_TIME: str(now_ms),
            TRACE_CONTEXT: "",
        }
        if header.producer_group is not None:
            properties[PRODUCER_GROUP] = header.producer_group
        born_address = packed_peer(connection.peer_address)
        return BrokerMessage(header.topic, 0, _BODY, properties, 0, 0, now_ms, born_address)

    def _refusal(self, code: int, remark: str) -> Refusal:
        return Refusal(code, remark, self._common_fields)
