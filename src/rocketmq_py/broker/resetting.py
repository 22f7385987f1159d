"""INVOKE_BROKER_TO_RESET_OFFSET: a group goes on from another time or offset.

Since 5.0 the broker itself sees to that: it keeps the new offset until the group's next pull, which is
answered with it. Before, and here without ``use_server_side_reset_offset``, it tells the group's members.

Java: ``AdminBrokerProcessor.resetOffset``, ``Broker2Client.resetOffset``.
"""

from __future__ import annotations

from collections.abc import Mapping

from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.dispatch import Refusal, RequestHandler
from rocketmq_py.broker.groups import ConsumerGroups
from rocketmq_py.broker.offsets import OffsetTable
from rocketmq_py.broker.storage.message_store import MessageStore
from rocketmq_py.broker.subscription_groups import SubscriptionGroupTable
from rocketmq_py.broker.topics import TopicTable
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import ResetOffsets
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import ResetOffsetRequest
from rocketmq_py.remoting import Connection

LANGUAGE_CPP = 1
"""Tools in C++ want members to be told in another form. Java: ``LanguageCode.CPP``."""
NOT_SET = "not set any response code"
"""The remark of Java's answer when members were told."""


class Resetting:
    """Sets groups back, or forward.

    Args:
        config: the broker's settings.
        store: says which offsets are of a time.
        topics: the broker's topics.
        subscription_groups: tell which groups there are.
        offsets: how far groups have come.
        consumers: the members of groups.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        subscription_groups: SubscriptionGroupTable,
        offsets: OffsetTable,
        consumers: ConsumerGroups,
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics
        self._subscription_groups = subscription_groups
        self._offsets = offsets
        self._consumers = consumers

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the handler of each request's code."""
        return {RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self._reset}

    def _reset(self, connection: Connection, request: Command) -> None:
        header = ResetOffsetRequest.from_fields(request.fields)
        if self._config.use_server_side_reset_offset:
            offsets, remark = self._keep(header), None
        else:
            offsets, remark = self._tell(header, as_list=request.language == LANGUAGE_CPP), NOT_SET
        connection.respond(request, ResponseCode.SUCCESS, body=ResetOffsets(offsets).encode(), remark=remark)

    # By the broker

    def _keep(self, header: ResetOffsetRequest) -> Mapping[MessageQueue, int]:
        topic = self._topics.get(header.topic)
        if topic is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} does not exist")
        if not self._subscription_groups.knows(header.group):
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.group} does not exist")
        if header.queue_id >= 0:
            offsets = {self._queue(header, header.queue_id): self._wanted_offset(header)}
        else:
            offsets = {
                self._queue(header, queue_id): self._offset_at(header, queue_id)
                for queue_id in range(topic.read_queue_nums)
            }
        if not offsets:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "No queues to reset.")
        for queue, offset in offsets.items():
            self._offsets.reset(header.group, header.topic, queue.queue_id, offset)
        return offsets

    def _wanted_offset(self, header: ResetOffsetRequest) -> int:
        """Return the offset for one queue: the one that is asked for, or that of the time."""
        offset = header.offset
        if offset is None or offset == -1:
            return self._offset_at(header, header.queue_id)
        queue = self._store.find_queue(header.topic, header.queue_id)
        first, end = (queue.start, queue.end) if queue else (0, 0)
        if not first <= offset <= end + 1:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"Target offset {offset} not in consume queue range [{first}-{end}]",
            )
        return offset

    def _offset_at(self, header: ResetOffsetRequest, queue_id: int) -> int:
        queue = self._store.find_queue(header.topic, queue_id)
        if queue is None:
            return 0
        return queue.end if header.timestamp < 0 else queue.search(header.timestamp)

    def _queue(self, header: ResetOffsetRequest, queue_id: int) -> MessageQueue:
        return MessageQueue(header.topic, self._config.broker_name, queue_id)

    # By the members

    def _tell(self, header: ResetOffsetRequest, *, as_list: bool) -> Mapping[MessageQueue, int]:
        offsets = self._offsets_for_members(header)
        group = self._consumers.get(header.group)
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
        for member in group.members:
            if not member.is_closed and member.has_space:
                member.oneway_nowait(
                    notice.code, notice.to_fields(), body.encode_as_list() if as_list else body.encode()
                )
        return offsets

    def _offsets_for_members(self, header: ResetOffsetRequest) -> Mapping[MessageQueue, int]:
        topic = self._topics.get(header.topic)
        if topic is None:
            raise Refusal(
                ResponseCode.TOPIC_NOT_EXIST,
                f"[reset-offset] reset offset failed, no topic in this broker. topic={header.topic}",
            )
        offsets = {}
        for queue_id in range(topic.write_queue_nums):
            committed = self._offsets.committed(header.group, header.topic, queue_id)
            if committed is None:
                raise Refusal(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{header.group}> not exist")
            at_time = self._offset_at(header, queue_id)
            forced = header.is_force or at_time < committed
            offsets[self._queue(header, queue_id)] = at_time if forced else committed
        return offsets
