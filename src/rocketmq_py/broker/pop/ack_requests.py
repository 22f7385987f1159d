"""ACK_MESSAGE, BATCH_ACK_MESSAGE and CHANGE_MESSAGE_INVISIBLETIME.

Java: ``AckMessageProcessor``, ``ChangeInvisibleTimeProcessor``.
"""

from __future__ import annotations

from collections.abc import Mapping

from rocketmq_py.broker.dispatch import FAQ, UNSET_REMARK, Refusal, RequestHandler
from rocketmq_py.broker.lite.lite_requests import UNCHANGED, LiteAcks
from rocketmq_py.broker.pop.checkpoints import CheckpointKey
from rocketmq_py.broker.pop.ordered_pops import NOT_POPPED, GroupQueue
from rocketmq_py.broker.pop.pop_requests import PopProcessor
from rocketmq_py.broker.state import BrokerState
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.protocol.bodies import BatchAck, BatchAcks
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.handles import ORDERED_REVIVE_QUEUE, ReceiptHandle, TopicKind
from rocketmq_py.protocol.headers import (
    AckMessageRequest,
    ChangeInvisibleTimeAnswer,
    ChangeInvisibleTimeRequest,
)
from rocketmq_py.remoting import Connection


class AckProcessor:
    """Acknowledges popped messages, and changes when they time out.

    Requests for messages that have timed out, or were never popped, are answered with success and ignored.

    Args:
        state: the broker's tables.
        pops: holds the popped messages.
        lite_acks: acknowledges messages of lite topics.
    """

    def __init__(self, state: BrokerState, pops: PopProcessor, lite_acks: LiteAcks) -> None:
        self._state = state
        self._offsets = state.offsets
        self._pops = pops
        self._checkpoints = pops.checkpoints
        self._ordered_pops = pops.ordered_pops
        self._lite_acks = lite_acks

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the request handlers by request code."""
        return {
            RequestCode.ACK_MESSAGE: self._acknowledge,
            RequestCode.BATCH_ACK_MESSAGE: self._acknowledge_batch,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self._change_invisible_time,
        }

    # Acknowledgements

    def _acknowledge(self, connection: Connection, request: Command) -> None:
        header = AckMessageRequest.from_fields(request.fields)
        self._check_queue(connection, header)
        if header.lite_topic:
            self._lite_acks.acknowledge(header)
            connection.respond(request, ResponseCode.SUCCESS)
            return
        first, end = self._offset_range(header.topic, header.queue_id)
        if not first <= header.offset <= end:
            raise Refusal(
                ResponseCode.NO_MESSAGE,
                f"offset is illegal, key:{header.topic}@{header.queue_id}, commit:{header.offset},"
                f" store:{first}~{end}",
            )
        handle = ReceiptHandle.parse(header.extra_info)
        if handle.is_ordered:
            group_queue = GroupQueue(header.topic, header.consumer_group, header.queue_id)
            self._acknowledge_ordered(connection, group_queue, header.offset, handle.pop_time_ms)
        else:
            self._checkpoints.acknowledge(_checkpoint_key(header, handle), header.offset)
        connection.respond(request, ResponseCode.SUCCESS)

    def _acknowledge_batch(self, connection: Connection, request: Command) -> None:
        acks = BatchAcks.decode(request.body).acks if request.body else ()
        if not acks:
            raise Refusal(ResponseCode.NO_MESSAGE, None)
        for ack in acks:
            self._acknowledge_all(connection, ack)
        connection.respond(request, ResponseCode.SUCCESS)

    def _acknowledge_all(self, connection: Connection, ack: BatchAck) -> None:
        mark = ack.topic_kind if ack.topic_kind in list(TopicKind) else TopicKind.NORMAL
        topic = TopicKind(mark).topic(ack.topic, ack.consumer_group)
        if ack.revive_queue_id == ORDERED_REVIVE_QUEUE:
            group_queue = GroupQueue(topic, ack.consumer_group, ack.queue_id)
            for offset in self._ordered_pops.popped_offsets(group_queue):
                if ack.acknowledges(offset):
                    self._acknowledge_ordered(connection, group_queue, offset, ack.pop_time_ms)
        else:
            key = CheckpointKey(topic, ack.consumer_group, ack.queue_id, ack.start_offset, ack.pop_time_ms)
            self._checkpoints.acknowledge_batch(key, ack)

    def _acknowledge_ordered(
        self, connection: Connection, group_queue: GroupQueue, offset: int, pop_time_ms: int
    ) -> None:
        group, topic, queue_id = group_queue.group, group_queue.topic, group_queue.queue_id
        committed = self._offsets.committed(group, topic, queue_id)
        if committed is not None and offset < committed:
            return
        next_offset = self._ordered_pops.acknowledge(group_queue, offset, pop_time_ms)
        if next_offset == NOT_POPPED:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"offset is illegal, key:{topic}@{group}@{queue_id}, old:"
                f"{-1 if committed is None else committed}, commit:{offset}, next:{NOT_POPPED},"
                f" /{connection.address}",
            )
        if next_offset >= 0:
            if not self._offsets.has_pending_reset(group, topic, queue_id):
                self._offsets.commit(group, topic, queue_id, next_offset)
            self._pops.wake_when_free(group_queue)

    # Changes of the invisible time

    def _change_invisible_time(self, connection: Connection, request: Command) -> None:
        header = ChangeInvisibleTimeRequest.from_fields(request.fields)
        self._check_queue(connection, header, UNCHANGED)
        if header.lite_topic:
            fields = self._lite_acks.change_invisible_time(header)
            connection.respond(request, ResponseCode.SUCCESS, fields, remark=UNSET_REMARK)
            return
        first, end = self._offset_range(header.topic, header.queue_id)
        if not first <= header.offset < end:
            raise Refusal(ResponseCode.NO_MESSAGE, UNSET_REMARK, UNCHANGED)
        handle = ReceiptHandle.parse(header.extra_info)
        if handle.is_ordered:
            fields = self._change_ordered(header, handle)
        else:
            fields = self._change_unordered(header, handle)
        connection.respond(request, ResponseCode.SUCCESS, fields, remark=UNSET_REMARK)

    def _change_unordered(
        self, header: ChangeInvisibleTimeRequest, handle: ReceiptHandle
    ) -> Mapping[str, str]:
        # Within the millisecond of the pop, the new checkpoint's key could equal that of the pop, whose other
        # messages would then be lost.
        now_ms = max(self._state.now_ms(), handle.pop_time_ms + 1)
        key = CheckpointKey(header.topic, header.consumer_group, header.queue_id, header.offset, now_ms)
        self._checkpoints.add(
            key, [header.offset], header.invisible_time, counts_as_failure=not header.suspend
        )
        self._checkpoints.acknowledge(_checkpoint_key(header, handle), header.offset)
        return ChangeInvisibleTimeAnswer(
            pop_time=now_ms, invisible_time=header.invisible_time, revive_qid=handle.revive_queue_id
        ).to_fields()

    def _change_ordered(self, header: ChangeInvisibleTimeRequest, handle: ReceiptHandle) -> Mapping[str, str]:
        group_queue = GroupQueue(header.topic, header.consumer_group, header.queue_id)
        committed = self._offsets.committed(header.consumer_group, header.topic, header.queue_id)
        if committed is not None and header.offset < committed:
            return UNCHANGED
        visible_at_ms = self._state.now_ms() + header.invisible_time
        self._ordered_pops.change_visibility(group_queue, header.offset, handle.pop_time_ms, visible_at_ms)
        self._pops.wake_when_free(group_queue)
        return ChangeInvisibleTimeAnswer(
            pop_time=handle.pop_time_ms,
            invisible_time=visible_at_ms - handle.pop_time_ms,
            revive_qid=handle.revive_queue_id,
        ).to_fields()

    # Checks

    def _check_queue(
        self,
        connection: Connection,
        header: AckMessageRequest | ChangeInvisibleTimeRequest,
        fields: Mapping[str, str] | None = None,
    ) -> None:
        """Raise Refusal, with ``fields``, if the queue does not exist."""
        topic = self._state.topics.get(header.topic)
        if topic is None:
            raise Refusal(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{header.topic}] not exist, apply first please! {FAQ}",
                fields,
            )
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] topicConfig.readQueueNums:"
                f"[{topic.read_queue_nums}] consumer:[/{connection.address}]",
                fields,
            )

    def _offset_range(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return the minimum and maximum offset of a queue."""
        queue = self._state.store.find_queue(topic, queue_id)
        return (0, 0) if queue is None else (queue.start, queue.end)


def _checkpoint_key(
    header: AckMessageRequest | ChangeInvisibleTimeRequest, handle: ReceiptHandle
) -> CheckpointKey:
    return CheckpointKey(
        header.topic, header.consumer_group, header.queue_id, handle.start_offset, handle.pop_time_ms
    )
