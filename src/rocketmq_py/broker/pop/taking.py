"""What one pop takes, queue by queue (Java: ``PopMessageProcessor.popMsgFromQueue``)."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress

import attrs

from rocketmq_py import properties as names
from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.draft import Draft
from rocketmq_py.broker.filtering import Wanted
from rocketmq_py.broker.offsets import OffsetTable
from rocketmq_py.broker.pop.checkpoints import CheckpointKey, Checkpoints
from rocketmq_py.broker.pop.ordering import GroupQueue, OrderedDeliveries
from rocketmq_py.broker.pulling import Found, look
from rocketmq_py.broker.store import ConsumeQueue, MessageStore, StoredMessage
from rocketmq_py.broker.topics import TopicTable
from rocketmq_py.codes import ResponseCode
from rocketmq_py.errors import InvalidMessageError
from rocketmq_py.names import RETRY_PREFIX
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
"""How many of a hundred pops look into the retry topic first (popFromRetryProbability)."""
REVIVE_QUEUES = 8
"""How many queues real brokers keep what was popped in; here they are only counted (reviveQueueNum)."""


@attrs.define(eq=False)
class Taken:
    """What a pop has taken so far.

    Attributes:
        header: what was asked for.
        wanted: the filter.
        pop_time_ms: when, epoch milliseconds.
        revive_queue_id: what receipt handles say.
        messages: their stored forms.
        rest: how many more messages there are.
        starts: where they come from: see ``PoppedOffsets``, like the three below.
        offsets_of: see there.
        queue_counts: see there.
        counts: see there.
        taken: how many they are, with those that could not be put into the answer.
    """

    header: PopMessageRequest
    wanted: Wanted
    pop_time_ms: int
    revive_queue_id: int
    messages: list[bytes] = attrs.field(factory=list)
    rest: int = 0
    starts: dict[PopQueueKey, int] = attrs.field(factory=dict)
    offsets_of: dict[PopQueueKey, tuple[int, ...]] = attrs.field(factory=dict)
    queue_counts: dict[PopQueueKey, int] = attrs.field(factory=dict)
    counts: dict[tuple[PopQueueKey, int], int] = attrs.field(factory=dict)
    taken: int = 0

    @property
    def space(self) -> int:
        """How many more messages it may take."""
        return self.header.max_msg_nums - self.taken

    @property
    def offsets(self) -> PoppedOffsets:
        """Where the messages come from."""
        return PoppedOffsets(self.starts, self.offsets_of, self.queue_counts, self.counts)


class Taking:
    """Takes messages for pops.

    Args:
        config: the broker's settings.
        store: has the messages.
        topics: say which queues there are.
        offsets: how far groups have come.
        checkpoints: note what is popped, and comes again if it is not acknowledged.
        ordered: note what is popped in order.
        now_ms: the time, epoch milliseconds.
        rng: chooses where a pop begins.
        address: the broker's own, packed.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        offsets: OffsetTable,
        checkpoints: Checkpoints,
        ordered: OrderedDeliveries,
        *,
        now_ms: Callable[[], int],
        rng: random.Random,
        address: bytes,
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._checkpoints = checkpoints
        self._ordered = ordered
        self._now_ms = now_ms
        self._rng = rng
        self._address = address
        self._revive_queue_id = -1

    def take(self, header: PopMessageRequest, wanted: Wanted, *, priority: bool) -> Taken:
        """Take messages of a topic and, unless it is in order, of the group's retry topic.

        Args:
            header: what is asked for; its topic is there.
            wanted: the filter.
            priority: whether to begin with the highest queue instead of any.
        """
        chance = self._rng.randrange(100)
        taken = Taken(header, wanted, self._now_ms(), self._next_revive_queue(header))
        retry_topic = self._retry_topic(header, chance)
        retries_first = not priority and chance < FROM_RETRY_PERCENT
        first = 0 if priority else chance
        if retries_first and not header.order:
            self._take_topic(taken, retry_topic, first)
        if header.queue_id < 0:
            self._take_topic(taken, header.topic, first)
        else:
            self._take_queue(taken, header.topic, header.queue_id)
        if not retries_first and not header.order and taken.space > 0:
            self._take_topic(taken, retry_topic, first)
        return taken

    def _next_revive_queue(self, header: PopMessageRequest) -> int:
        if header.order:
            return ORDERED_REVIVE_QUEUE
        self._revive_queue_id = (self._revive_queue_id + 1) % REVIVE_QUEUES
        return self._revive_queue_id

    def _retry_topic(self, header: PopMessageRequest, chance: int) -> str:
        # Where its name was changed, the topic of the old name is looked at every other time.
        v2 = self._config.enable_retry_topic_v2 and chance % 2 == 1
        return pop_retry_topic(header.topic, header.consumer_group, v2=v2)

    def _take_topic(self, taken: Taken, name: str, first: int) -> None:
        topic = self._topics.get(name)
        queues = topic.read_queue_nums if topic is not None else 0
        for index in range(queues):
            self._take_queue(taken, name, (queues - 1 - index + first) % queues)

    def _take_queue(self, taken: Taken, topic: str, queue_id: int) -> None:
        header = taken.header
        group_queue = GroupQueue(topic, header.consumer_group, queue_id)
        queue = self._store.queue(topic, queue_id)
        start = self._start(group_queue, queue, header.init_mode)
        if header.order and self._ordered.free_at(group_queue, header.attempt_id) > taken.pop_time_ms:
            return
        if taken.space <= 0:
            taken.rest += queue.end - start
            return
        found = look(queue, start, taken.space, taken.wanted, self._config)
        if found.code == ResponseCode.PULL_OFFSET_MOVED:
            start = found.next_offset
            self._commit(group_queue, start)
            found = look(queue, start, taken.space, taken.wanted, self._config)
        if found.messages:
            self._note(taken, group_queue, start, found)
        elif found.code == ResponseCode.PULL_RETRY_IMMEDIATELY:
            self._commit(group_queue, found.next_offset)
        taken.rest += queue.end - found.next_offset

    def _start(self, group_queue: GroupQueue, queue: ConsumeQueue, init_mode: int) -> int:
        """Return where a group goes on, or begins."""
        reset = self._offsets.take_reset(group_queue.group, group_queue.topic, group_queue.queue_id)
        if reset is not None:
            self._ordered.forget(group_queue)
            self._commit(group_queue, reset)
        offset = self._offsets.committed(group_queue.group, group_queue.topic, group_queue.queue_id)
        if offset is not None and offset >= 0:
            return offset
        if init_mode == INIT_FROM_MIN or group_queue.topic.startswith(RETRY_PREFIX):
            offset = queue.start
        else:
            # A queue that still has its first message in memory is read from there, whatever is asked for.
            offset = 0 if queue.start == 0 else queue.end - 1
        self._commit(group_queue, offset)
        return offset

    def _commit(self, group_queue: GroupQueue, offset: int) -> None:
        self._offsets.commit(group_queue.group, group_queue.topic, group_queue.queue_id, offset)

    def _note(self, taken: Taken, group_queue: GroupQueue, start: int, found: Found) -> None:
        header = taken.header
        mark = TopicKind.of(group_queue.topic), group_queue.queue_id
        offsets = tuple([message.queue_offset for message in found.messages])
        if header.order:
            counts = self._ordered.note(
                group_queue, header.attempt_id, taken.pop_time_ms, header.invisible_time, offsets
            )
            taken.counts.update({(mark, offset): count for offset, count in counts.items()})
            taken.queue_counts[mark] = min(counts.get(offset, 0) for offset in offsets)
            self._commit(group_queue, start)
        else:
            key = CheckpointKey(
                group_queue.topic, group_queue.group, group_queue.queue_id, start, taken.pop_time_ms
            )
            self._checkpoints.add(key, offsets, header.invisible_time)
            self._commit(group_queue, found.next_offset)
        taken.starts[mark] = start
        taken.offsets_of[mark] = offsets
        taken.taken += len(offsets)
        if mark[0] is TopicKind.NORMAL:
            taken.messages += [message.data for message in found.messages]
        else:
            self._add_retries(taken, start, found.messages)

    def _add_retries(self, taken: Taken, start: int, messages: Sequence[StoredMessage]) -> None:
        """Add messages of a retry topic as if they were of the topic that was asked for.

        Their receipt handles are put into them: from what else the answer says they cannot be told.
        """
        for message in messages:
            handle = ReceiptHandle(
                start_offset=start,
                pop_time_ms=taken.pop_time_ms,
                invisible_ms=taken.header.invisible_time,
                revive_queue_id=taken.revive_queue_id,
                topic_kind=TopicKind.of(message.topic),
                broker_name=self._config.broker_name,
                queue_id=message.queue_id,
                offset=message.queue_offset,
            )
            with suppress(InvalidMessageError):  # its properties became too long: it comes again
                taken.messages.append(self._under(taken.header.topic, message, handle))

    def _under(self, topic: str, stored: StoredMessage, handle: ReceiptHandle) -> bytes:
        message = Draft.of(stored)
        properties = {names.POP_CHECKPOINT: str(handle), **message.properties}
        return encode_message(
            topic=topic,
            body=message.body,
            properties=names.encode_properties(properties).encode(),
            queue_id=message.queue_id,
            queue_offset=stored.queue_offset,
            commit_log_offset=stored.commit_log_offset,
            flag=message.flag,
            system_flag=message.system_flag,
            born_time_ms=message.born_time_ms,
            born_address=message.born_address,
            store_time_ms=stored.store_time_ms,
            store_address=self._address,
            reconsume_times=message.reconsume_times,
            prepared_transaction_offset=message.prepared_transaction_offset,
        )
