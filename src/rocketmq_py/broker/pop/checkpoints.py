"""Popped messages that are not acknowledged, and their redelivery.

Java: ``PopCheckPoint``, ``PopBufferMergeService``, ``PopReviveService``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, NamedTuple

import trio

from rocketmq_py.broker.state import BrokerState
from rocketmq_py.broker.storage.broker_message import BrokerMessage, PutError
from rocketmq_py.broker.storage.consume_queue import StoredMessage
from rocketmq_py.broker.storage.delayed_delivery import MessageScheduler
from rocketmq_py.names import RETRY_PREFIX
from rocketmq_py.property_names import FIRST_POP_TIME, ORIGIN_GROUP
from rocketmq_py.protocol.bodies import BatchAck
from rocketmq_py.protocol.handles import pop_retry_topic
from rocketmq_py.remoting import Deadlines


class CheckpointKey(NamedTuple):
    """The part that the receipt handles of messages share that were popped together from one queue."""

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_time_ms: int


class Checkpoint:
    """Messages that were popped together from one queue.

    Attributes:
        key: identifies the checkpoint.
        offsets: the offsets of the messages that are not acknowledged.
        counts_as_failure: whether a redelivery increases the reconsume times.
        tick: used by ``Deadlines``.
    """

    __slots__ = ("_table", "counts_as_failure", "key", "offsets", "tick")

    def __init__(
        self,
        key: CheckpointKey,
        offsets: Iterable[int],
        table: CheckpointTable,
        *,
        counts_as_failure: bool,
    ) -> None:
        self.key: CheckpointKey = key
        self.offsets: Final = dict.fromkeys(offsets)
        self.counts_as_failure: bool = counts_as_failure
        self.tick: int = 0
        self._table = table

    def expire(self) -> None:
        """Redeliver the messages that are not acknowledged. ``Deadlines`` calls this at the timeout."""
        self._table.expire(self)


class CheckpointTable:
    """All checkpoints. :meth:`run` must be running for messages to be redelivered.

    Messages are redelivered exactly at their timeout. A real broker, which stores checkpoints in a topic, is
    some seconds late.

    Args:
        reviver: redelivers the messages of a checkpoint.
    """

    def __init__(self, reviver: MessageReviver) -> None:
        self._reviver = reviver
        self._deadlines = Deadlines()
        self._checkpoints: dict[CheckpointKey, Checkpoint] = {}

    def add(
        self, key: CheckpointKey, offsets: Iterable[int], invisible_ms: int, *, counts_as_failure: bool = True
    ) -> None:
        """Add popped messages, which time out after ``invisible_ms``."""
        self._remove(key)
        checkpoint = Checkpoint(key, offsets, self, counts_as_failure=counts_as_failure)
        self._checkpoints[key] = checkpoint
        self._deadlines.add(checkpoint, trio.current_time() + invisible_ms / 1000)

    def acknowledge(self, key: CheckpointKey, offset: int) -> None:
        """Acknowledge a message. Does nothing if it is not in the checkpoint or has timed out."""
        self._acknowledge(key, lambda popped: popped == offset)

    def acknowledge_batch(self, key: CheckpointKey, acks: BatchAck) -> None:
        """Acknowledge the messages in a batch acknowledgement."""
        self._acknowledge(key, acks.acknowledges)

    async def run(self) -> None:
        """Redeliver messages at their timeout, until cancelled."""
        await self._deadlines.run()

    def expire(self, checkpoint: Checkpoint) -> None:
        """Redeliver the messages of a checkpoint that are not acknowledged."""
        del self._checkpoints[checkpoint.key]
        self._reviver.revive(checkpoint)

    def _acknowledge(self, key: CheckpointKey, is_acknowledged: Callable[[int], bool]) -> None:
        checkpoint = self._checkpoints.get(key)
        if checkpoint is None:
            return
        for offset in [offset for offset in checkpoint.offsets if is_acknowledged(offset)]:
            del checkpoint.offsets[offset]
        if not checkpoint.offsets:
            self._remove(key)

    def _remove(self, key: CheckpointKey) -> None:
        checkpoint = self._checkpoints.pop(key, None)
        if checkpoint is not None:
            self._deadlines.remove(checkpoint)


class MessageReviver:
    """Redelivers unacknowledged messages: stores them again, in the retry topic of their group.

    There is no limit. Consumers discard messages that were redelivered too often. A message with a delay
    level is delayed again each time, as on real brokers.

    Args:
        state: the broker's tables.
        scheduler: stores the messages.
    """

    def __init__(self, state: BrokerState, scheduler: MessageScheduler) -> None:
        self._state = state
        self._scheduler = scheduler

    def revive(self, checkpoint: Checkpoint) -> None:
        """Redeliver the unacknowledged messages of a checkpoint, unless its topic or group was deleted."""
        state, key = self._state, checkpoint.key
        if (
            state.topics.get(_original_topic(key)) is None
            or state.subscription_groups.get_or_create(key.group) is None
        ):
            return
        queue = state.store.queue(key.topic, key.queue_id)
        for offset in checkpoint.offsets:
            if queue.start <= offset < queue.end:
                self._store_again(queue[offset], checkpoint)

    def _store_again(self, stored: StoredMessage, checkpoint: Checkpoint) -> None:
        key = checkpoint.key
        message = BrokerMessage.decode(stored)
        properties = dict(message.properties)
        if not message.reconsume_times or FIRST_POP_TIME not in properties:
            properties[FIRST_POP_TIME] = str(key.pop_time_ms)
        properties[ORIGIN_GROUP] = key.group
        retry = BrokerMessage(
            self._retry_topic(key),
            0,
            message.body,
            properties,
            message.flag,
            message.system_flag,
            message.born_time_ms,
            self._state.packed_address,
            message.reconsume_times + (1 if checkpoint.counts_as_failure else 0),
        )
        with suppress(PutError):  # the properties became too long. Real brokers cannot redeliver it, either.
            self._scheduler.put(retry)

    def _retry_topic(self, key: CheckpointKey) -> str:
        """Return the retry topic of a checkpoint. Creates it if it does not exist."""
        if key.topic.startswith(RETRY_PREFIX):
            topic = key.topic
        else:
            topic = pop_retry_topic(key.topic, key.group, v2=self._state.config.enable_retry_topic_v2)
        if self._state.topics.get(topic) is None:
            self._state.topics.get_or_create(topic, 1)
            if self._state.offsets.committed(key.group, topic, 0) is None:
                self._state.offsets.commit(key.group, topic, 0, 0)
        return topic


def _original_topic(key: CheckpointKey) -> str:
    """Return the topic of a checkpoint, without the prefix and group of a retry topic."""
    if not key.topic.startswith(RETRY_PREFIX):
        return key.topic
    return key.topic[len(RETRY_PREFIX) + len(key.group) + 1 :]
