"""The tables and settings that the request processors of a broker share."""

from __future__ import annotations

import random
from collections.abc import Callable

import attrs

from rocketmq_py.address import pack_address, split_address
from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.groups import ConsumerGroups, ProducerGroups, QueueLocks, SubscriptionGroups
from rocketmq_py.broker.message_filters import SqlFilterTable
from rocketmq_py.broker.offsets import OffsetTable
from rocketmq_py.broker.storage.message_store import MessageStore
from rocketmq_py.broker.topics import TopicConfig, TopicTable
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import MASTER_ID, DataVersion


@attrs.frozen(kw_only=True)
class BrokerState:
    """The tables and settings of one broker. Java: ``BrokerController``, without its behaviour.

    Attributes:
        config: the settings. Operators may change them at run time.
        address: the broker's own ``host:port``.
        now_ms: the clock, epoch milliseconds.
        rng: chooses queues that clients leave to the broker.
        store: the messages.
        topics: the topics.
        subscription_groups: the settings of consumer groups.
        offsets: the consumer offsets.
        locks: the queue locks of orderly consumers.
        consumers: the consumer groups with members.
        producers: the producer groups with members.
        sql_filters: the SQL filters of consumer groups.
        broker_id: 0 for a master.
        ip: the host of ``address``.
        packed_address: ``address`` as messages and message ids contain it.
        started_ms: when the state was created, epoch milliseconds.
    """

    config: BrokerConfig
    address: str
    now_ms: Callable[[], int]
    rng: random.Random
    store: MessageStore
    topics: TopicTable
    subscription_groups: SubscriptionGroups
    offsets: OffsetTable = attrs.field(factory=OffsetTable)
    locks: QueueLocks = attrs.field(factory=QueueLocks)
    consumers: ConsumerGroups = attrs.field(factory=ConsumerGroups)
    producers: ProducerGroups = attrs.field(factory=ProducerGroups)
    sql_filters: SqlFilterTable = attrs.field(factory=SqlFilterTable)
    broker_id: int = MASTER_ID
    ip: str = attrs.field(init=False)
    packed_address: bytes = attrs.field(init=False)
    started_ms: int = attrs.field(init=False)

    @ip.default
    def _ip(self) -> str:
        return split_address(self.address)[0]

    @packed_address.default
    def _packed_address(self) -> bytes:
        return pack_address(self.address)

    @started_ms.default
    def _started_ms(self) -> int:
        return self.now_ms()

    @classmethod
    def create(
        cls,
        config: BrokerConfig,
        address: str,
        now_ms: Callable[[], int],
        rng: random.Random,
        on_topic_change: Callable[[TopicConfig], None],
    ) -> BrokerState:
        """Create the state of a new master.

        Args:
            config: the settings.
            address: the broker's own ``host:port``.
            now_ms: the clock, epoch milliseconds.
            rng: chooses queues that clients leave to the broker.
            on_topic_change: called with each topic that is added or changed.
        """
        store = MessageStore(
            pack_address(address),
            max_bytes=config.max_store_bytes,
            max_messages=config.max_store_messages,
            max_message_size=config.max_message_size,
            has_lite_queues=config.enable_lmq and config.enable_multi_dispatch,
            now_ms=now_ms,
        )
        return cls(
            config=config,
            address=address,
            now_ms=now_ms,
            rng=rng,
            store=store,
            topics=TopicTable(config, on_topic_change),
            subscription_groups=SubscriptionGroups(config),
        )

    def message_queue(self, topic: str, queue_id: int) -> MessageQueue:
        """Return the value that names a queue of this broker."""
        return MessageQueue(topic, self.config.broker_name, queue_id)

    def data_version(self, changes: int) -> DataVersion:
        """Return the version of a table that has changed ``changes`` times."""
        return DataVersion(counter=changes, timestamp=self.started_ms)
