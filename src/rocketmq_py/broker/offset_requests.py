"""Queries, commits, copies and resets of consumer offsets.

Java: ``ConsumerManageProcessor``, ``AdminBrokerProcessor.resetOffset``, ``Broker2Client.resetOffset``.
"""

from __future__ import annotations

from collections.abc import Mapping

from rocketmq_py.broker.dispatch import UNSET_REMARK, Refusal, RequestHandler
from rocketmq_py.broker.state import BrokerState
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import ResetOffsets
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import (
    CloneGroupOffsetRequest,
    OffsetAnswer,
    QueryConsumerOffsetRequest,
    ResetOffsetRequest,
    UpdateConsumerOffsetRequest,
)
from rocketmq_py.remoting import Connection

_LANGUAGE_CPP = 1
"""If the tool is written in C++, brokers send the offsets to members as a list. Java: ``LanguageCode``."""


class OffsetProcessor:
    """Answers QUERY_CONSUMER_OFFSET, UPDATE_CONSUMER_OFFSET and CLONE_GROUP_OFFSET."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the request handlers by request code."""
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self._query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._update,
            RequestCode.CLONE_GROUP_OFFSET: self._clone,
        }

    def _query(self, connection: Connection, request: Command) -> None:
        header = QueryConsumerOffsetRequest.from_fields(request.fields)
        offset = self._state.offsets.committed(header.consumer_group, header.topic, header.queue_id)
        if offset is None or offset < 0:
            offset = self._offset_of_new_group(header)
        connection.respond(request, ResponseCode.SUCCESS, OffsetAnswer(offset=offset).to_fields())

    def _offset_of_new_group(self, header: QueryConsumerOffsetRequest) -> int:
        if header.set_zero_if_not_found is False:  # older clients send nothing, which counts as true
            raise Refusal(
                ResponseCode.QUERY_NOT_FOUND, "Not found, do not set to zero, maybe this group boot first"
            )
        # Real brokers return 0 if the queue has its first message, and has it in memory, as all are here.
        queue = self._state.store.find_queue(header.topic, header.queue_id)
        if queue is None or queue.start > 0 or queue.end == 0:
            raise Refusal(
                ResponseCode.QUERY_NOT_FOUND,
                "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
            )
        return 0

    def _update(self, connection: Connection, request: Command) -> None:
        header = UpdateConsumerOffsetRequest.from_fields(request.fields)
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        if not self._state.subscription_groups.exists(group):
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!")
        if self._state.topics.get(topic) is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        if self._state.offsets.has_pending_reset(group, topic, queue_id):
            # A commit that a consumer sends before its next pull must not undo the reset.
            connection.respond(request, ResponseCode.SUCCESS, remark="Offset has been previously reset")
            return
        self._state.offsets.commit(group, topic, queue_id, header.commit_offset)
        connection.respond(request, ResponseCode.SUCCESS)

    def _clone(self, connection: Connection, request: Command) -> None:
        header = CloneGroupOffsetRequest.from_fields(request.fields)
        topic = header.topic or ""
        members = self._state.consumers.get(header.src_group)
        subscribed = members.subscriptions if members else {}
        # Unless the group is offline, a topic that its members do not subscribe to is skipped.
        is_skipped = not header.offline and subscribed and topic not in subscribed
        # Without a topic nothing is copied, as on real brokers.
        if not is_skipped and self._state.topics.get(topic):
            self._state.offsets.clone(header.src_group, topic, header.dest_group)
        connection.respond(request, ResponseCode.SUCCESS)


class OffsetResetProcessor:
    """Answers INVOKE_BROKER_TO_RESET_OFFSET.

    Since 5.0 the broker keeps the new offsets until the group's next pull or pop, and answers a pull with
    them. Before 5.0, and here without ``use_server_side_reset_offset``, it sends them to the group's members.
    """

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the request handlers by request code."""
        return {RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self._reset}

    def _reset(self, connection: Connection, request: Command) -> None:
        header = ResetOffsetRequest.from_fields(request.fields)
        if self._state.config.use_server_side_reset_offset:
            offsets, remark = self._reset_by_broker(header), None
        else:
            as_list = request.language == _LANGUAGE_CPP
            offsets, remark = self._reset_by_members(header, as_list=as_list), UNSET_REMARK
        connection.respond(request, ResponseCode.SUCCESS, body=ResetOffsets(offsets).encode(), remark=remark)

    def _offset_at_time(self, header: ResetOffsetRequest, queue_id: int) -> int:
        """Return the offset at the requested time; the end of the queue if the time is negative."""
        queue = self._state.store.find_queue(header.topic, queue_id)
        if queue is None:
            return 0
        return queue.end if header.timestamp < 0 else queue.search(header.timestamp)

    # By the broker

    def _reset_by_broker(self, header: ResetOffsetRequest) -> Mapping[MessageQueue, int]:
        state = self._state
        topic = state.topics.get(header.topic)
        if topic is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} does not exist")
        if not state.subscription_groups.exists(header.group):
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.group} does not exist")
        if header.queue_id >= 0:
            offsets = {state.message_queue(header.topic, header.queue_id): self._requested_offset(header)}
        else:
            offsets = {
                state.message_queue(header.topic, queue_id): self._offset_at_time(header, queue_id)
                for queue_id in range(topic.read_queue_nums)
            }
        if not offsets:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "No queues to reset.")
        for queue, offset in offsets.items():
            state.offsets.reset(header.group, header.topic, queue.queue_id, offset)
        return offsets

    def _requested_offset(self, header: ResetOffsetRequest) -> int:
        """Return the new offset of a single queue: the requested offset, or the one at the requested time."""
        offset = header.offset
        if offset is None or offset == -1:
            return self._offset_at_time(header, header.queue_id)
        queue = self._state.store.find_queue(header.topic, header.queue_id)
        first, end = (queue.start, queue.end) if queue else (0, 0)
        if not first <= offset <= end + 1:  # as on real brokers
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"Target offset {offset} not in consume queue range [{first}-{end}]",
            )
        return offset

    # By the members

    def _reset_by_members(self, header: ResetOffsetRequest, *, as_list: bool) -> Mapping[MessageQueue, int]:
        offsets = self._offsets_for_members(header)
        group = self._state.consumers.get(header.group)
        if group is None:
            raise Refusal(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {header.group} Topic: {header.topic}"
                f" Timestamp: {header.timestamp}",
            )
        notice = ResetOffsetRequest(
            topic=header.topic, group=header.group, timestamp=header.timestamp, is_force=False
        )
        body = ResetOffsets(offsets)
        encoded = body.encode_as_list() if as_list else body.encode()
        group.send_oneway(notice.code, notice.to_fields(), encoded)
        return offsets

    def _offsets_for_members(self, header: ResetOffsetRequest) -> Mapping[MessageQueue, int]:
        topic = self._state.topics.get(header.topic)
        if topic is None:
            raise Refusal(
                ResponseCode.TOPIC_NOT_EXIST,
                f"[reset-offset] reset offset failed, no topic in this broker. topic={header.topic}",
            )
        offsets = {}
        for queue_id in range(topic.write_queue_nums):  # not the read queues, as on real brokers
            committed = self._state.offsets.committed(header.group, header.topic, queue_id)
            if committed is None:
                remark = f"THe consumer group <{header.group}> not exist"  # sic
                raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
            at_time = self._offset_at_time(header, queue_id)
            is_applied = header.is_force or at_time < committed
            offsets[self._state.message_queue(header.topic, queue_id)] = at_time if is_applied else committed
        return offsets
