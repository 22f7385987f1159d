"""Questions about what is stored: offsets, times, single messages, messages by key.

Java: ``AdminBrokerProcessor`` and ``QueryMessageProcessor``.
"""

from __future__ import annotations

from collections.abc import Mapping

from rocketmq_py.broker.dispatch import Refusal, RequestHandler
from rocketmq_py.broker.key_index import KeyIndex
from rocketmq_py.broker.storage.message_store import MessageStore
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import (
    GetEarliestStoreTimeAnswer,
    GetEarliestStoreTimeRequest,
    GetMaxOffsetRequest,
    GetMinOffsetRequest,
    OffsetAnswer,
    QueryMessageAnswer,
    QueryMessageRequest,
    SearchOffsetRequest,
    ViewMessageRequest,
)
from rocketmq_py.remoting import Connection

MAX_QUERIED = 64
"""Messages in one answer to a query by key (maxMsgsNumBatch)."""
MAX_QUERIED_BY_ID = 32
"""The same for a query by unique id, whatever it asks for (defaultQueryMaxNum)."""


class Queries:
    """Answers questions; changes nothing."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._index = KeyIndex(store)

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the handler of each request's code."""
        return {
            RequestCode.GET_MAX_OFFSET: self._max_offset,
            RequestCode.GET_MIN_OFFSET: self._min_offset,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._search_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self._earliest_store_time,
            RequestCode.VIEW_MESSAGE_BY_ID: self._view,
            RequestCode.QUERY_MESSAGE: self._query,
        }

    def _max_offset(self, connection: Connection, request: Command) -> None:
        header = GetMaxOffsetRequest.from_fields(request.fields)
        queue = self._store.find_queue(header.topic, header.queue_id)
        answer = OffsetAnswer(offset=queue.end if queue else 0)
        connection.respond(request, ResponseCode.SUCCESS, answer.to_fields())

    def _min_offset(self, connection: Connection, request: Command) -> None:
        header = GetMinOffsetRequest.from_fields(request.fields)
        queue = self._store.find_queue(header.topic, header.queue_id)
        answer = OffsetAnswer(offset=queue.start if queue else 0)
        connection.respond(request, ResponseCode.SUCCESS, answer.to_fields(), remark="")

    def _search_offset(self, connection: Connection, request: Command) -> None:
        header = SearchOffsetRequest.from_fields(request.fields)
        queue = self._store.find_queue(header.topic, header.queue_id)
        upper = (header.boundary_type or "").upper() == "UPPER"
        answer = OffsetAnswer(offset=queue.search(header.timestamp, upper=upper) if queue else 0)
        connection.respond(request, ResponseCode.SUCCESS, answer.to_fields())

    def _earliest_store_time(self, connection: Connection, request: Command) -> None:
        header = GetEarliestStoreTimeRequest.from_fields(request.fields)
        queue = self._store.find_queue(header.topic, header.queue_id)
        time_ms = queue[queue.start].store_time_ms if queue and queue.start < queue.end else -1
        answer = GetEarliestStoreTimeAnswer(timestamp=time_ms)
        connection.respond(request, ResponseCode.SUCCESS, answer.to_fields())

    def _view(self, connection: Connection, request: Command) -> None:
        header = ViewMessageRequest.from_fields(request.fields)
        stored = self._store.message_at(header.offset)
        if stored is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {header.offset}")
        connection.respond(request, ResponseCode.SUCCESS, body=stored.data)

    def _query(self, connection: Connection, request: Command) -> None:
        header = QueryMessageRequest.from_fields(request.fields)
        count = MAX_QUERIED_BY_ID if header.unique_key_query else min(header.max_num, MAX_QUERIED)
        found = self._index.find(
            header.topic, header.key, header.begin_timestamp, header.end_timestamp, count
        )
        last = self._index.last_indexed if found else None
        answer = QueryMessageAnswer(
            index_last_update_timestamp=last.store_time_ms if last else 0,
            index_last_update_phyoffset=last.commit_log_offset if last else 0,
        )
        if not found:
            raise Refusal(
                ResponseCode.QUERY_NOT_FOUND,
                "can not find message, maybe time range not correct",
                answer.to_fields(),
            )
        body = b"".join([message.data for message in found])
        connection.respond(request, ResponseCode.SUCCESS, answer.to_fields(), body)
