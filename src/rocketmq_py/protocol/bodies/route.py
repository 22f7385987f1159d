"""Routes of topics, and clusters of brokers."""

from __future__ import annotations

import re

import msgspec

from rocketmq_py.address import normal_address
from rocketmq_py.names import MAX_QUEUES
from rocketmq_py.protocol.bodies.base import Body

MASTER_ID = 0
"""The broker id of a master. Slaves have larger ids. Java: ``MixAll.MASTER_ID``."""

READABLE = 4
"""The bit of ``QueueData.perm`` for queues that consumers may read. Java: ``PermName.PERM_READ``."""
WRITABLE = 2
"""The bit of ``QueueData.perm`` for queues that producers may write. Java: ``PermName.PERM_WRITE``."""

GLOBAL_SCOPE = "__global__"
"""The scope of logical queues. Java: ``MixAll.METADATA_SCOPE_GLOBAL``."""

_ORDERED = re.compile(r"([^:;]*):([0-9]{1,9})", re.ASCII).fullmatch


class QueueData(Body, frozen=True, kw_only=True):
    """A topic's queues on one broker. Java: ``QueueData``.

    Attributes:
        broker_name: the broker.
        read_queue_nums: the number of queues for consumers. Queue ids begin at 0.
        write_queue_nums: the number of queues for producers.
        perm: bits: READABLE, WRITABLE, and 1 for inherited.
        topic_sys_flag: the topic's system flag.
    """

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0


class BrokerData(Body, frozen=True, kw_only=True):
    """A broker: a master and its slaves. Java: ``BrokerData``.

    Attributes:
        cluster: the broker's cluster.
        broker_name: its name.
        announced: addresses by broker id, as the brokers announce them (Java: brokerAddrs). MASTER_ID is the
            id of the master.
        zone_name: its availability zone (5.x).
        enable_acting_master: whether a slave may act for the master (5.x).
    """

    cluster: str = ""
    broker_name: str
    announced: dict[int, str] = msgspec.field(name="brokerAddrs")
    zone_name: str | None = None
    enable_acting_master: bool = False

    @property
    def broker_addrs(self) -> dict[int, str]:
        """The addresses by broker id, as clients dial and compare them: ``host:port``."""
        return {broker_id: normal_address(address) for broker_id, address in self.announced.items()}


class TopicQueueMapping(Body, frozen=True, kw_only=True):
    """The logical queues of a static topic on one broker (5.x). Java: ``TopicQueueMappingInfo``.

    Attributes:
        scope: the scope of the logical queues. GLOBAL_SCOPE unless brokers are set up otherwise.
        total_queues: the number of logical queues of the topic, on all brokers.
        broker_name: the broker (on the wire: bname).
        epoch: the time of the last change of the mapping, epoch milliseconds. The newest one is valid.
        current_ids: the broker's physical queue of each logical queue (on the wire: currIdMap).
    """

    scope: str = GLOBAL_SCOPE
    total_queues: int = 0
    broker_name: str = msgspec.field(name="bname")
    epoch: int = 0
    current_ids: dict[int, int] = msgspec.field(name="currIdMap", default_factory=dict)


class TopicRoute(Body, frozen=True, kw_only=True):
    """A topic's route: the answer to GET_ROUTEINFO_BY_TOPIC. Java: ``TopicRouteData``.

    Attributes:
        queue_datas: the topic's queues, one item for each broker.
        broker_datas: the brokers' addresses.
        order_topic_conf: for an ordered topic, ``broker:count;broker:count``, which replaces ``queue_datas``.
        filter_server_table: the filter servers of brokers, a feature of 4.x.
        queue_mappings: the logical queues of a static topic, by broker name. Empty or None for other topics.

    Raises:
        ValueError: the order configuration cannot be read, or the topic has more than MAX_QUEUES queues.
            Decoding raises ProtocolError instead.
    """

    queue_datas: tuple[QueueData, ...] = ()
    broker_datas: tuple[BrokerData, ...] = ()
    order_topic_conf: str | None = None
    filter_server_table: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    queue_mappings: dict[str, TopicQueueMapping] | None = msgspec.field(
        name="topicQueueMappingByBroker", default=None
    )

    def __post_init__(self) -> None:
        count = sum([max(queues.read_queue_nums, queues.write_queue_nums, 0) for queues in self.queue_datas])
        count = max(count, sum([count for _, count in self.ordered_queues()]))
        count = max(count, sum(self._logical_counts().values()))
        if count > MAX_QUEUES:
            raise ValueError(f"a topic of {count} queues; at most {MAX_QUEUES} are allowed")

    def ordered_queues(self) -> list[tuple[str, int]]:
        """Return the broker names and numbers of queues in ``order_topic_conf``."""
        ordered = []
        for piece in (self.order_topic_conf or "").rstrip(";").split(";"):
            if piece:
                match = _ORDERED(piece)
                if match is None:
                    raise ValueError(f"orderTopicConf contains {piece[:80]!r}, expected broker:count")
                ordered.append((match[1], int(match[2])))
        return ordered

    def logical_queues(self) -> dict[str, list[str | None]]:
        """Return the broker of each logical queue of a static topic, by scope.

        The index in a list is the number of the logical queue. None means that no broker of the route has the
        queue at the moment. Empty for other topics.
        """
        brokers: dict[str, list[str | None]] = {
            scope: [None] * count for scope, count in self._logical_counts().items()
        }
        for mapping in self._mappings():
            of_scope = brokers[mapping.scope]
            for number in mapping.current_ids:
                if 0 <= number < len(of_scope):
                    of_scope[number] = mapping.broker_name
        return brokers

    def _logical_counts(self) -> dict[str, int]:
        """Return the number of logical queues by scope."""
        counts: dict[str, int] = {}
        for mapping in self._mappings():
            counts[mapping.scope] = max(mapping.total_queues, counts.get(mapping.scope, 0))
        return counts

    def _mappings(self) -> list[TopicQueueMapping]:
        """Return the mappings of all brokers, the newest last."""
        return sorted((self.queue_mappings or {}).values(), key=lambda mapping: mapping.epoch)


class ClusterInfo(Body, frozen=True, kw_only=True):
    """All brokers: the answer to GET_BROKER_CLUSTER_INFO. Java: ``ClusterInfo``.

    Attributes:
        broker_addr_table: the brokers by name.
        cluster_addr_table: the names of brokers by cluster.
    """

    broker_addr_table: dict[str, BrokerData] = msgspec.field(default_factory=dict)
    cluster_addr_table: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


class TopicList(Body, frozen=True, kw_only=True):
    """Names of topics: the answer to GET_ALL_TOPIC_LIST_FROM_NAMESERVER. Java: ``TopicList``."""

    topic_list: tuple[str, ...] = ()
    broker_addr: str | None = None
