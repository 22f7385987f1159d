"""RECALL_MESSAGE: a timed message is taken back before it is due (Java: ``RecallMessageProcessor``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rocketmq_py import properties as names
from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.dispatch import UNSET_REMARK, Refusal, RequestHandler
from rocketmq_py.broker.draft import Draft, number_or_minus_one
from rocketmq_py.broker.put_status import NotStored
from rocketmq_py.broker.schedule import Schedule
from rocketmq_py.broker.topics import TopicTable
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import InvalidMessageError
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.handles import RecallHandle
from rocketmq_py.protocol.headers import RecallMessageAnswer, RecallMessageRequest
from rocketmq_py.remoting import Connection

_TAG = "_RECALL_TAG_"
_BODY = b"0"


class Recalling:
    """Takes timed messages back.

    What does it is a note: a timed message itself, due in the same second as the one that it takes back.
    So a success says that the note is there, not that there was such a message.

    Args:
        config: the broker's settings.
        topics: the broker's topics.
        schedule: keeps the notes.
        born_host: gives a connection's peer in packed form.
        now_ms: the time, epoch milliseconds.
    """

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicTable,
        schedule: Schedule,
        *,
        born_host: Callable[[Connection], bytes],
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._topics = topics
        self._schedule = schedule
        self._born_host = born_host
        self._now_ms = now_ms
        self._marks = {names.MESSAGE_REGION: config.region_id}

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the handler of each request's code."""
        return {RequestCode.RECALL_MESSAGE: self._recall}

    def _recall(self, connection: Connection, request: Command) -> None:
        header = RecallMessageRequest.from_fields(request.fields)
        if not self._config.recall_message_enable:
            raise self._refusal(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        if self._topics.get(header.topic) is None:
            raise self._refusal(
                ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{header.topic}] not exist"
            )
        handle = self._handle(header)
        try:
            self._schedule.put(self._note(connection, header, handle))
        except NotStored:
            raise self._refusal(ResponseCode.SYSTEM_ERROR, "recall failed, execute error") from None
        fields = {**self._marks, **RecallMessageAnswer(msg_id=handle.message_id).to_fields()}
        connection.respond(request, ResponseCode.SUCCESS, fields, remark=UNSET_REMARK)

    def _handle(self, header: RecallMessageRequest) -> RecallHandle:
        try:
            handle = RecallHandle.decode(header.recall_handle)
        except InvalidMessageError:
            raise self._refusal(ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid") from None
        if handle.topic != header.topic:
            raise self._refusal(ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match")
        if handle.broker_name != self._config.broker_name:
            raise self._refusal(ResponseCode.ILLEGAL_OPERATION, "recall failed, broker service not available")
        left_ms = number_or_minus_one(handle.deliver_at_ms) - self._now_ms()
        if not 0 < left_ms < self._config.timer_max_delay_sec * 1000:
            raise self._refusal(ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid")
        return handle

    def _note(self, connection: Connection, header: RecallMessageRequest, handle: RecallHandle) -> Draft:
        now_ms = self._now_ms()
        properties = {
            names.TAGS: _TAG,
            names.TIMER_DELETE_UNIQUE_KEY: handle.message_id,
            names.UNIQUE_KEY: handle.message_id,
            names.TIMER_DELIVER_MS: handle.deliver_at_ms,
            names.BORN_TIME: str(now_ms),
            names.TRACE_CONTEXT: "",
        }
        if header.producer_group is not None:
            properties[names.PRODUCER_GROUP] = header.producer_group
        return Draft(header.topic, 0, _BODY, properties, 0, 0, now_ms, self._born_host(connection))

    def _refusal(self, code: int, remark: str) -> Refusal:
        return Refusal(code, remark, self._marks)
