"""Reads the messages of a pop, queue by queue (Java: ``PopMessageProcessor.popMsgFromQueue``)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import attrs

from rocketmq_py.broker.pop.checkpoints import CheckpointKey, CheckpointTable
from rocketmq_py.broker.pop.ordered_pops import GroupQueue, OrderedPops
from rocketmq_py.broker.state import BrokerState
from rocketmq_py.broker.storage.broker_message import BrokerMessage
from rocketmq_py.broker.storage.consume_queue import (
    ConsumeQueue,
    MessageFilter,
    ReadResult,
    StoredMessage,
    read_messages,
)
from rocketmq_py.codes import ResponseCode
from rocketmq_py.errors import InvalidMessageError
from rocketmq_py.names import RETRY_PREFIX
from rocketmq_py.properties import encode_properties
from rocketmq_py.property_names import POP_CHECKPOINT
from rocketmq_py.protocol.handles import (
    ORDERED_REVIVE_QUEUE,
    PoppedOffsets,
    PopQueueKey,
    ReceiptHandle,
    TopicKind,
    pop_retry_topic,
)
from rocketmq_py.protocol.headers import INIT_FROM_MIN, PopMessageRequest
from rocketmq_py.protocol.stored_message import encode_message

FROM_RETRY_PERCENT = 20
"""The percentage of pops that read the retry topic first (popFromRetryProbability)."""
REVIVE_QUEUES = 8
"""The number of queues in which real brokers store checkpoints; used in receipt handles (reviveQueueNum)."""


@attrs.define(eq=False)
class PopBatch:
    """The messages of one pop.

    Attributes:
        header: the header of the pop.
        message_filter: its filter.
        pop_time_ms: the time of the pop, epoch milliseconds.
        revive_queue_id: the revive queue in the receipt handles.
        messages: the encoded messages.
        remaining: the number of messages left in the queues.
        count: the number of popped messages, including those that could not be encoded.
        starts: the origin of the messages, as are the next three. See ``PoppedOffsets``.
        offsets_of: see ``PoppedOffsets``.
        queue_counts: see ``PoppedOffsets``.
        counts: see ``PoppedOffsets``.
    """

    header: PopMessageRequest
    message_filter: MessageFilter
    pop_time_ms: int
    revive_queue_id: int
    messages: list[bytes] = attrs.field(factory=list)
    remaining: int = 0
    count: int = 0
    starts: dict[PopQueueKey, int] = attrs.field(factory=dict)
    offsets_of: dict[PopQueueKey, tuple[int, ...]] = attrs.field(factory=dict)
    queue_counts: dict[PopQueueKey, int] = attrs.field(factory=dict)
    counts: dict[tuple[PopQueueKey, int], int] = attrs.field(factory=dict)

    @property
    def space(self) -> int:
        """How many more messages the pop may return."""
        return self.header.max_msg_nums - self.count

    @property
    def offsets(self) -> PoppedOffsets:
        """The origin of the messages."""
        return PoppedOffsets(self.starts, self.offsets_of, self.queue_counts, self.counts)


class PopReader:
    """Reads messages for pops, and records them as popped.

    Args:
        state: the broker's tables.
        checkpoints: records popped messages.
        ordered_pops: records messages that are popped in order.
    """

    def __init__(self, state: BrokerState, checkpoints: CheckpointTable, ordered_pops: OrderedPops) -> None:
        self._state = state
        self._config = state.config
        self._checkpoints = checkpoints
        self._ordered_pops = ordered_pops
        self._revive_queue_id = -1

    def read(
        self, header: PopMessageRequest, message_filter: MessageFilter, *, by_priority: bool
    ) -> PopBatch:
        """Read messages of a topic and, unless the pop is ordered, of the group's retry topic.

        Args:
            header: the header of the pop. Its topic exists.
            message_filter: the filter.
            by_priority: whether to start with the highest queue instead of a random one.
        """
        random_percent = self._state.rng.randrange(100)
        batch = PopBatch(header, message_filter, self._state.now_ms(), self._next_revive_queue(header))
        retry_topic = self._retry_topic(header, random_percent)
        retries_first = not by_priority and random_percent < FROM_RETRY_PERCENT
        first = 0 if by_priority else random_percent
        if retries_first and not header.order:
            self._read_topic(batch, retry_topic, first)
        if header.queue_id < 0:
            self._read_topic(batch, header.topic, first)
        else:
            self._read_queue(batch, header.topic, header.queue_id)
        if not retries_first and not header.order and batch.space > 0:
            self._read_topic(batch, retry_topic, first)
        return batch

    def _next_revive_queue(self, header: PopMessageRequest) -> int:
        if header.order:
            return ORDERED_REVIVE_QUEUE
        self._revive_queue_id = (self._revive_queue_id + 1) % REVIVE_QUEUES
        return self._revive_queue_id

    def _retry_topic(self, header: PopMessageRequest, random_percent: int) -> str:
        # With new topic names, every other pop reads the topic of the old name.
        v2 = self._config.enable_retry_topic_v2 and random_percent % 2 == 1
        return pop_retry_topic(header.topic, header.consumer_group, v2=v2)

    def _read_topic(self, batch: PopBatch, name: str, first: int) -> None:
        topic = self._state.topics.get(name)
        queues = topic.read_queue_nums if topic is not None else 0
        for index in range(queues):
            self._read_queue(batch, name, (queues - 1 - index + first) % queues)

    def _read_queue(self, batch: PopBatch, topic: str, queue_id: int) -> None:
        header = batch.header
        group_queue = GroupQueue(topic, header.consumer_group, queue_id)
        queue = self._state.store.queue(topic, queue_id)
        start = start_offset(self._state, self._ordered_pops, group_queue, queue, header.init_mode)
        if header.order and self._ordered_pops.free_at(group_queue, header.attempt_id) > batch.pop_time_ms:
            return
        if batch.space <= 0:
            batch.remaining += queue.end - start
            return
        result = read_messages(queue, start, batch.space, batch.message_filter, self._config)
        if result.code == ResponseCode.PULL_OFFSET_MOVED:
            start = result.next_offset
            self._commit(group_queue, start)
            result = read_messages(queue, start, batch.space, batch.message_filter, self._config)
        if result.messages:
            self._add(batch, group_queue, start, result)
        elif result.code == ResponseCode.PULL_RETRY_IMMEDIATELY:
            self._commit(group_queue, result.next_offset)
        batch.remaining += queue.end - result.next_offset

    def _commit(self, group_queue: GroupQueue, offset: int) -> None:
        self._state.offsets.commit(group_queue.group, group_queue.topic, group_queue.queue_id, offset)

    def _add(self, batch: PopBatch, group_queue: GroupQueue, start: int, result: ReadResult) -> None:
        """Add messages to a batch, and record them as popped."""
        header = batch.header
        mark = TopicKind.of(group_queue.topic), group_queue.queue_id
        offsets = tuple([message.queue_offset for message in result.messages])
        if header.order:
            counts = self._ordered_pops.record(
                group_queue, header.attempt_id, batch.pop_time_ms, header.invisible_time, offsets
            )
            batch.counts.update({(mark, offset): count for offset, count in counts.items()})
            batch.queue_counts[mark] = min(counts.get(offset, 0) for offset in offsets)
            self._commit(group_queue, start)
        else:
            key = CheckpointKey(
                group_queue.topic, group_queue.group, group_queue.queue_id, start, batch.pop_time_ms
            )
            self._checkpoints.add(key, offsets, header.invisible_time)
            self._commit(group_queue, result.next_offset)
        batch.starts[mark] = start
        batch.offsets_of[mark] = offsets
        batch.count += len(offsets)
        if mark[0] is TopicKind.NORMAL:
            batch.messages += [message.data for message in result.messages]
        else:
            self._add_retries(batch, start, result.messages)

    def _add_retries(self, batch: PopBatch, start: int, messages: Sequence[StoredMessage]) -> None:
        """Add messages of a retry topic, with the requested topic in place of their own.

        Each has its receipt handle as a property, because the offsets in the answer do not identify it.
        """
        for message in messages:
            handle = ReceiptHandle(
                start_offset=start,
                pop_time_ms=batch.pop_time_ms,
                invisible_ms=batch.header.invisible_time,
                revive_queue_id=batch.revive_queue_id,
                topic_kind=TopicKind.of(message.topic),
                broker_name=self._config.broker_name,
                queue_id=message.queue_id,
                offset=message.queue_offset,
            )
            with suppress(InvalidMessageError):  # the properties became too long; it is redelivered later
                batch.messages.append(self._encode_retry(batch.header.topic, message, handle))

    def _encode_retry(self, topic: str, stored: StoredMessage, handle: ReceiptHandle) -> bytes:
        message = BrokerMessage.decode(stored)
        properties = {POP_CHECKPOINT: str(handle), **message.properties}
        return encode_message(
            topic=topic,
            body=message.body,
            properties=encode_properties(properties).encode(),
            queue_id=message.queue_id,
            queue_offset=stored.queue_offset,
            commit_log_offset=stored.commit_log_offset,
            flag=message.flag,
            system_flag=message.system_flag,
            born_time_ms=message.born_time_ms,
            born_address=message.born_address,
            store_time_ms=stored.store_time_ms,
            store_address=self._state.packed_address,
            reconsume_times=message.reconsume_times,
            prepared_transaction_offset=message.prepared_transaction_offset,
        )


def start_offset(
    state: BrokerState,
    ordered_pops: OrderedPops,
    group_queue: GroupQueue,
    queue: ConsumeQueue,
    init_mode: int,
) -> int:
    """Return the offset at which a group continues, or starts."""
    group, topic, queue_id = group_queue.group, group_queue.topic, group_queue.queue_id
    reset = state.offsets.take_reset(group, topic, queue_id)
    if reset is not None:
        ordered_pops.unblock(group_queue)
        state.offsets.commit(group, topic, queue_id, reset)
    offset = state.offsets.committed(group, topic, queue_id)
    if offset is not None and offset >= 0:
        return offset
    if init_mode == INIT_FROM_MIN or topic.startswith(RETRY_PREFIX):
        offset = queue.start
    else:
        # As on real brokers, a queue that has its first message in memory is read from there.
        offset = 0 if queue.start == 0 else queue.end - 1
    state.offsets.commit(group, topic, queue_id, offset)
    return offset
