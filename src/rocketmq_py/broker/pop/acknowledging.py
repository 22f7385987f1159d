"""ACK_MESSAGE, BATCH_ACK_MESSAGE and CHANGE_MESSAGE_INVISIBLETIME.

Java: ``AckMessageProcessor``, ``ChangeInvisibleTimeProcessor``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rocketmq_py.broker.dispatch import FAQ, Refusal, RequestHandler
from rocketmq_py.broker.offsets import OffsetTable
from rocketmq_py.broker.pop.checkpoints import CheckpointKey, Checkpoints
from rocketmq_py.broker.pop.ordering import ILLEGAL, GroupQueue, OrderedDeliveries
from rocketmq_py.broker.store import MessageStore
from rocketmq_py.broker.topics import TopicTable
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

NOT_SET = "not set any response code"
"""The remark of Java's CHANGE_MESSAGE_INVISIBLETIME when all is well."""
_UNCHANGED = ChangeInvisibleTimeAnswer(pop_time=0, invisible_time=0, revive_qid=0).to_fields()


class Acknowledging:
    """Notes what became of popped messages. What is late, or was never popped, is passed over in silence.

    Args:
        store: says which messages there are.
        topics: the broker's topics.
        offsets: how far groups have come that consume in order.
        checkpoints: what was popped.
        ordered: what was popped in order.
        wake_when_free: told of queues that were popped in order, and may be free now.
        now_ms: the time, epoch milliseconds.
    """

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        offsets: OffsetTable,
        checkpoints: Checkpoints,
        ordered: OrderedDeliveries,
        *,
        wake_when_free: Callable[[GroupQueue], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._checkpoints = checkpoints
        self._ordered = ordered
        self._wake_when_free = wake_when_free
        self._now_ms = now_ms

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the handler of each request's code."""
        return {
            RequestCode.ACK_MESSAGE: self._acknowledge,
            RequestCode.BATCH_ACK_MESSAGE: self._acknowledge_batch,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self._change,
        }

    def _acknowledge(self, connection: Connection, request: Command) -> None:
        header = AckMessageRequest.from_fields(request.fields)
        self._check_queue(connection, header)
        first, end = self._range(header.topic, header.queue_id)
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
            self._checkpoints.acknowledge(_key(header, handle), header.offset)
        connection.respond(request, ResponseCode.SUCCESS)

    def _acknowledge_batch(self, connection: Connection, request: Command) -> None:
        acks = BatchAcks.decode(request.body).acks if request.body else ()
        if not acks:
            raise Refusal(ResponseCode.NO_MESSAGE, None)
        for ack in acks:
            self._acknowledge_together(connection, ack)
        connection.respond(request, ResponseCode.SUCCESS)

    def _acknowledge_together(self, connection: Connection, ack: BatchAck) -> None:
        mark = ack.topic_kind if ack.topic_kind in list(TopicKind) else TopicKind.NORMAL
        topic = TopicKind(mark).topic(ack.topic, ack.consumer_group)
        if ack.revive_queue_id == ORDERED_REVIVE_QUEUE:
            group_queue = GroupQueue(topic, ack.consumer_group, ack.queue_id)
            for offset in self._ordered.outstanding(group_queue):
                if ack.holds(offset):
                    self._acknowledge_ordered(connection, group_queue, offset, ack.pop_time_ms)
        else:
            key = CheckpointKey(topic, ack.consumer_group, ack.queue_id, ack.start_offset, ack.pop_time_ms)
            self._checkpoints.acknowledge_batch(key, ack)

    def _acknowledge_ordered(
        self, connection: Connection, group_queue: GroupQueue, offset: int, pop_time_ms: int
    ) -> None:
        committed = self._offsets.committed(group_queue.group, group_queue.topic, group_queue.queue_id)
        if committed is not None and offset < committed:
            return
        next_offset = self._ordered.acknowledge(group_queue, offset, pop_time_ms)
        if next_offset == ILLEGAL:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"offset is illegal, key:{group_queue.topic}@{group_queue.group}@{group_queue.queue_id},"
                f" old:{-1 if committed is None else committed}, commit:{offset}, next:{ILLEGAL},"
                f" /{connection.address}",
            )
        if next_offset >= 0:
            if not self._offsets.is_reset(group_queue.group, group_queue.topic, group_queue.queue_id):
                self._offsets.commit(group_queue.group, group_queue.topic, group_queue.queue_id, next_offset)
            self._wake_when_free(group_queue)

    def _change(self, connection: Connection, request: Command) -> None:
        header = ChangeInvisibleTimeRequest.from_fields(request.fields)
        self._check_queue(connection, header, _UNCHANGED)
        first, end = self._range(header.topic, header.queue_id)
        if not first <= header.offset < end:
            raise Refusal(ResponseCode.NO_MESSAGE, NOT_SET, _UNCHANGED)
        handle = ReceiptHandle.parse(header.extra_info)
        if handle.is_ordered:
            fields = self._change_ordered(header, handle)
        else:
            fields = self._change_unordered(header, handle)
        connection.respond(request, ResponseCode.SUCCESS, fields, remark=NOT_SET)

    def _change_unordered(
        self, header: ChangeInvisibleTimeRequest, handle: ReceiptHandle
    ) -> Mapping[str, str]:
        # Within one millisecond the key would be that of all that was popped together, which then were lost.
        now_ms = max(self._now_ms(), handle.pop_time_ms + 1)
        key = CheckpointKey(header.topic, header.consumer_group, header.queue_id, header.offset, now_ms)
        self._checkpoints.add(key, [header.offset], header.invisible_time, counts=not header.suspend)
        self._checkpoints.acknowledge(_key(header, handle), header.offset)
        return ChangeInvisibleTimeAnswer(
            pop_time=now_ms, invisible_time=header.invisible_time, revive_qid=handle.revive_queue_id
        ).to_fields()

    def _change_ordered(self, header: ChangeInvisibleTimeRequest, handle: ReceiptHandle) -> Mapping[str, str]:
        group_queue = GroupQueue(header.topic, header.consumer_group, header.queue_id)
        committed = self._offsets.committed(group_queue.group, group_queue.topic, group_queue.queue_id)
        if committed is not None and header.offset < committed:
            return _UNCHANGED
        visible_at_ms = self._now_ms() + header.invisible_time
        self._ordered.change(group_queue, header.offset, handle.pop_time_ms, visible_at_ms)
        self._wake_when_free(group_queue)
        return ChangeInvisibleTimeAnswer(
            pop_time=handle.pop_time_ms,
            invisible_time=visible_at_ms - handle.pop_time_ms,
            revive_qid=handle.revive_queue_id,
        ).to_fields()

    def _check_queue(
        self,
        connection: Connection,
        header: AckMessageRequest | ChangeInvisibleTimeRequest,
        fields: Mapping[str, str] | None = None,
    ) -> None:
        topic = self._topics.get(header.topic)
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

    def _range(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return a queue's first offset, and the one that its next message will get."""
        queue = self._store.find_queue(topic, queue_id)
        return (0, 0) if queue is None else (queue.start, queue.end)


def _key(header: AckMessageRequest | ChangeInvisibleTimeRequest, handle: ReceiptHandle) -> CheckpointKey:
    return CheckpointKey(
        header.topic, header.consumer_group, header.queue_id, handle.start_offset, handle.pop_time_ms
    )
