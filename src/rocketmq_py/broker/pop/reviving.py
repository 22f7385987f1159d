"""Messages that nobody acknowledged come again, in the group's retry topic (Java: ``PopReviveService``)."""

from __future__ import annotations

from contextlib import suppress

from rocketmq_py import properties as names
from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.draft import Draft
from rocketmq_py.broker.offsets import OffsetTable
from rocketmq_py.broker.pop.checkpoints import Checkpoint, CheckpointKey
from rocketmq_py.broker.put_status import NotStored
from rocketmq_py.broker.schedule import Schedule
from rocketmq_py.broker.store import MessageStore, StoredMessage
from rocketmq_py.broker.subscription_groups import SubscriptionGroupTable
from rocketmq_py.broker.topics import TopicTable
from rocketmq_py.names import RETRY_PREFIX
from rocketmq_py.protocol.handles import pop_retry_topic


class Reviving:
    """Stores messages again. However often that was, none is given up: that is for consumers to do.

    Args:
        config: the broker's settings.
        topics: get the retry topics.
        subscription_groups: tell which groups there still are.
        store: has the messages.
        schedule: stores them again.
        offsets: say where a group begins in a retry topic that is new.
        address: the broker's own, packed: that is where such a message is born.
    """

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicTable,
        subscription_groups: SubscriptionGroupTable,
        store: MessageStore,
        schedule: Schedule,
        offsets: OffsetTable,
        *,
        address: bytes,
    ) -> None:
        self._config = config
        self._topics = topics
        self._subscription_groups = subscription_groups
        self._store = store
        self._schedule = schedule
        self._offsets = offsets
        self._address = address

    def revive(self, checkpoint: Checkpoint) -> None:
        """Deliver again what of a checkpoint is not acknowledged, unless its topic or group is gone."""
        key = checkpoint.key
        if self._topics.get(_normal_topic(key)) is None or self._subscription_groups.find(key.group) is None:
            return
        queue = self._store.queue(key.topic, key.queue_id)
        for offset in checkpoint.offsets:
            if queue.start <= offset < queue.end:
                self._store_again(queue[offset], checkpoint)

    def _store_again(self, stored: StoredMessage, checkpoint: Checkpoint) -> None:
        key = checkpoint.key
        message = Draft.of(stored)
        properties = dict(message.properties)
        if not message.reconsume_times:
            properties.pop(names.FIRST_POP_TIME, None)
        properties.setdefault(names.FIRST_POP_TIME, str(key.pop_time_ms))
        properties[names.ORIGIN_GROUP] = key.group
        again = Draft(
            self._retry_topic(key),
            0,
            message.body,
            properties,
            message.flag,
            message.system_flag,
            message.born_time_ms,
            self._address,
            message.reconsume_times + (1 if checkpoint.counts else 0),
        )
        with suppress(NotStored):
            self._schedule.put(again)

    def _retry_topic(self, key: CheckpointKey) -> str:
        if key.topic.startswith(RETRY_PREFIX):
            topic = key.topic
        else:
            topic = pop_retry_topic(key.topic, key.group, v2=self._config.enable_retry_topic_v2)
        if self._topics.get(topic) is None:
            self._topics.create_for_send_back(topic, 1)
            if self._offsets.committed(key.group, topic, 0) is None:
                self._offsets.commit(key.group, topic, 0, 0)
        return topic


def _normal_topic(key: CheckpointKey) -> str:
    """Return the topic that was asked for where something was popped from its retry topic."""
    if not key.topic.startswith(RETRY_PREFIX):
        return key.topic
    return key.topic[len(RETRY_PREFIX) + len(key.group) + 1 :]
