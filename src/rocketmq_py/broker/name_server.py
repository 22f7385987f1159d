"""The name server: routes of topics (Java: ``DefaultRequestProcessor``, ``RouteInfoManager``)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs
import msgspec
import trio

from rocketmq_py.address import announced_address
from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.dispatch import FAQ, Refusal, RequestHandler
from rocketmq_py.broker.topics import PERM_READ, PERM_WRITE, TopicConfig
from rocketmq_py.codes import RequestCode, ResponseCode, version_ordinal
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import (
    MASTER_ID,
    READABLE,
    BrokerData,
    ClusterInfo,
    KeyValueTable,
    QueueData,
    TopicList,
    TopicRoute,
    read_properties,
)
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import (
    AddWritePermissionAnswer,
    AddWritePermissionRequest,
    DeleteKvConfigRequest,
    GetKvConfigRequest,
    GetKvListRequest,
    PutKvConfigRequest,
    WipeWritePermissionAnswer,
    WipeWritePermissionRequest,
)
from rocketmq_py.remoting import Connection

REGISTER_SECONDS = 30.0
"""Seconds between two registrations of a broker (registerNameServerPeriod)."""
STANDARD_JSON_VERSION = version_ordinal("4.9.4")
"""The ordinal of Java's ``MQVersion.V4_9_4``. Older clients are answered in fastjson's dialect."""

_ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"
"""The namespace in which tools keep the queues of ordered topics. Java: ``NamesrvUtil``."""
_ADDRESSES = re.compile(rb'"brokerAddrs":\{[^}]*\}')
_NUMBER_KEY = re.compile(rb'"(\d+)":')
_BLACK_LIST = frozenset({"configBlackList", "configStorePath", "kvConfigPath"})


@attrs.frozen
class _RegisteredBroker:
    """A registered broker.

    Attributes:
        config: its settings.
        topics: its topics, as it registered them.
        queues: its topics, as routes contain them.
        addresses: the addresses of the master and the replicas, by broker id.
    """

    config: BrokerConfig
    topics: dict[str, TopicConfig] = attrs.field(factory=dict)
    queues: dict[str, QueueData] = attrs.field(factory=dict)
    addresses: dict[int, str] = attrs.field(factory=dict)

    @property
    def data(self) -> BrokerData:
        return BrokerData(
            cluster=self.config.cluster_name,
            zone_name=self.config.zone_name or None,
            broker_name=self.config.broker_name,
            announced={
                broker_id: announced_address(address) for broker_id, address in sorted(self.addresses.items())
            },
        )


class NameServer:
    """Answers clients and tools with the topics and addresses that brokers have registered.

    As in a real cluster, a topic that is deleted on its broker keeps its route until it is deleted here too.
    A topic that is deleted only here comes back with the next registration of its broker.
    """

    def __init__(self) -> None:
        self._brokers: dict[str, _RegisteredBroker] = {}
        self._kv_configs: dict[str, dict[str, str]] = {}  # by namespace
        self._settings = {"enableAllTopicList": True, "enableTopicList": True, "orderMessageEnable": False}

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the request handlers by request code."""
        return {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster_info,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._list_topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._list_topics_of_cluster,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            RequestCode.PUT_KV_CONFIG: self._put_kv_config,
            RequestCode.GET_KV_CONFIG: self._get_kv_config,
            RequestCode.DELETE_KV_CONFIG: self._delete_kv_config,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._list_kv_configs,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_permission,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write_permission,
            RequestCode.GET_NAMESRV_CONFIG: self._get_config,
            RequestCode.UPDATE_NAMESRV_CONFIG: self._update_config,
        }

    # Registration

    def register(
        self,
        config: BrokerConfig,
        address: str,
        topics: Iterable[TopicConfig],
        broker_id: int = MASTER_ID,
    ) -> None:
        """Register a broker, and add or change topics.

        Args:
            config: the broker's settings.
            address: the address that clients connect to.
            topics: the topics to add or change. Replicas register none.
            broker_id: 0 for a master.
        """
        broker = self._brokers.setdefault(config.broker_name, _RegisteredBroker(config))
        broker.addresses[broker_id] = address
        for topic in topics:
            broker.topics[topic.topic_name] = topic
            broker.queues[topic.topic_name] = QueueData(
                broker_name=config.broker_name,
                read_queue_nums=topic.read_queue_nums,
                write_queue_nums=topic.write_queue_nums,
                perm=_effective_perm(config, topic.perm),
                topic_sys_flag=topic.topic_sys_flag,
            )

    def register_changed(self, config: BrokerConfig, address: str, topics: Iterable[TopicConfig]) -> None:
        """Register a broker, and those of its topics that are missing here or have changed.

        Other topics are not overwritten, because an operator may have changed their permissions here.
        """
        broker = self._brokers.get(config.broker_name)
        known = {} if broker is None else {name: broker.topics.get(name) for name in broker.queues}
        self.register(config, address, [topic for topic in topics if known.get(topic.topic_name) != topic])

    def unregister(self, name: str, broker_id: int = MASTER_ID) -> None:
        """Remove the address of a broker or a replica (Java: ``RouteInfoManager.onChannelDestroy``).

        The topics keep their routes as long as there is another address for the name.
        """
        broker = self._brokers.get(name)
        if broker is not None:
            broker.addresses.pop(broker_id, None)
            if not broker.addresses:
                del self._brokers[name]

    # Routes and topics

    def read_queues(self, topic: str) -> list[MessageQueue] | None:
        """Return the readable queues of a topic on all brokers, sorted. None if no broker has the topic."""
        found = [broker.queues[topic] for broker in self._brokers.values() if topic in broker.queues]
        if not found:
            return None
        return sorted(
            MessageQueue(topic, queues.broker_name, queue_id)
            for queues in found
            if queues.perm & READABLE
            for queue_id in range(queues.read_queue_nums)
        )

    def _route(self, connection: Connection, request: Command) -> None:
        topic = request.fields.get("topic", "null")
        brokers = [broker for broker in self._brokers.values() if topic in broker.queues]
        if not brokers:
            raise Refusal(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {topic}{FAQ}",
            )
        order = None
        if self._settings["orderMessageEnable"]:
            order = self._kv_configs.get(_ORDER_NAMESPACE, {}).get(topic)
        if request.fields.get("__ZONE_MODE", "").lower() == "true":
            brokers = _brokers_of_zone(brokers, request.fields.get("__ZONE_NAME", ""))
        route = TopicRoute(
            order_topic_conf=order,
            queue_datas=tuple([broker.queues[topic] for broker in brokers]),
            broker_datas=tuple([broker.data for broker in brokers]),
        )
        body = route.encode()
        accepts_standard = request.fields.get("acceptStandardJsonOnly", "").lower() == "true"
        if request.version < STANDARD_JSON_VERSION and not accepts_standard:
            body = _to_fastjson(body)
        connection.respond(request, ResponseCode.SUCCESS, body=body)

    def _cluster_info(self, connection: Connection, request: Command) -> None:
        clusters: dict[str, tuple[str, ...]] = {}
        for name, broker in self._brokers.items():
            clusters[broker.config.cluster_name] = (*clusters.get(broker.config.cluster_name, ()), name)
        brokers = {name: broker.data for name, broker in self._brokers.items()}
        info = ClusterInfo(broker_addr_table=brokers, cluster_addr_table=clusters)
        connection.respond(request, ResponseCode.SUCCESS, body=_to_fastjson(info.encode()))

    def _list_topics(self, connection: Connection, request: Command) -> None:
        self._check_enabled("enableAllTopicList")
        body = TopicList(topic_list=_topics_of(self._brokers.values())).encode()
        connection.respond(request, ResponseCode.SUCCESS, body=body)

    def _list_topics_of_cluster(self, connection: Connection, request: Command) -> None:
        self._check_enabled("enableTopicList")
        brokers = self._brokers_of(request.fields.get("cluster", ""))
        body = TopicList(topic_list=_topics_of(brokers)).encode()
        connection.respond(request, ResponseCode.SUCCESS, body=body)

    def _check_enabled(self, setting: str) -> None:
        if not self._settings[setting]:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "disable")

    def _delete_topic(self, connection: Connection, request: Command) -> None:
        for broker in self._brokers_of(request.fields.get("clusterName") or None):
            broker.queues.pop(request.fields.get("topic", ""), None)
        connection.respond(request, ResponseCode.SUCCESS)

    def _brokers_of(self, cluster: str | None) -> list[_RegisteredBroker]:
        """Return the brokers of a cluster, or all brokers for None."""
        return [broker for broker in self._brokers.values() if cluster in (None, broker.config.cluster_name)]

    # Settings: those of Java's ``NamesrvConfig`` that apply to a name server in memory

    def _get_config(self, connection: Connection, request: Command) -> None:
        lines = [f"{name}={str(value).lower()}\n" for name, value in self._settings.items()]
        connection.respond(request, ResponseCode.SUCCESS, body="".join(lines).encode())

    def _update_config(self, connection: Connection, request: Command) -> None:
        properties = read_properties(request.body)
        if _BLACK_LIST & properties.keys():
            raise Refusal(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        for name in self._settings.keys() & properties.keys():
            self._settings[name] = properties[name].strip().lower() == "true"
        connection.respond(request, ResponseCode.SUCCESS)

    # Key-value configs of clients and tools

    def _put_kv_config(self, connection: Connection, request: Command) -> None:
        header = PutKvConfigRequest.from_fields(request.fields)
        self._kv_configs.setdefault(header.kv_namespace, {})[header.key] = header.value
        connection.respond(request, ResponseCode.SUCCESS)

    def _get_kv_config(self, connection: Connection, request: Command) -> None:
        header = GetKvConfigRequest.from_fields(request.fields)
        value = self._kv_configs.get(header.kv_namespace, {}).get(header.key)
        if value is None:
            raise Refusal(
                ResponseCode.QUERY_NOT_FOUND,
                f"No config item, Namespace: {header.kv_namespace} Key: {header.key}",
            )
        connection.respond(request, ResponseCode.SUCCESS, {"value": value})

    def _delete_kv_config(self, connection: Connection, request: Command) -> None:
        header = DeleteKvConfigRequest.from_fields(request.fields)
        self._kv_configs.get(header.kv_namespace, {}).pop(header.key, None)
        connection.respond(request, ResponseCode.SUCCESS)

    def _list_kv_configs(self, connection: Connection, request: Command) -> None:
        namespace = GetKvListRequest.from_fields(request.fields).kv_namespace
        table = self._kv_configs.get(namespace)
        if table is None:
            raise Refusal(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")
        connection.respond(request, ResponseCode.SUCCESS, body=KeyValueTable(table=table).encode())

    # Permissions of brokers in routes

    def _wipe_write_permission(self, connection: Connection, request: Command) -> None:
        header = WipeWritePermissionRequest.from_fields(request.fields)
        count = self._change_permissions(header.broker, lambda perm: perm & ~PERM_WRITE)
        answer = WipeWritePermissionAnswer(wipe_topic_count=count)
        connection.respond(request, ResponseCode.SUCCESS, answer.to_fields())

    def _add_write_permission(self, connection: Connection, request: Command) -> None:
        header = AddWritePermissionRequest.from_fields(request.fields)
        # Java sets both bits, and clears the inherit bit.
        count = self._change_permissions(header.broker, lambda _: PERM_READ | PERM_WRITE)
        answer = AddWritePermissionAnswer(add_topic_count=count)
        connection.respond(request, ResponseCode.SUCCESS, answer.to_fields())

    def _change_permissions(self, broker_name: str, change: Callable[[int], int]) -> int:
        """Change the permissions of all topics of a broker. Returns the number of topics."""
        broker = self._brokers.get(broker_name)
        if broker is None:
            return 0
        for topic, queues in broker.queues.items():
            broker.queues[topic] = msgspec.structs.replace(queues, perm=change(queues.perm))
        return len(broker.queues)


async def register_periodically(register: Callable[[], None]) -> None:
    """Call ``register`` every ``REGISTER_SECONDS``, until cancelled."""
    while True:
        await trio.sleep(REGISTER_SECONDS)
        register()


def _brokers_of_zone(brokers: Sequence[_RegisteredBroker], zone: str) -> list[_RegisteredBroker]:
    """Return the brokers of a zone and those without a master. Java: ``ZoneRouteRPCHook``.

    A blank zone stands for all zones.
    """
    return [
        broker
        for broker in brokers
        if not zone.strip()
        or MASTER_ID not in broker.addresses
        or broker.config.zone_name.lower() == zone.lower()
    ]


def _topics_of(brokers: Iterable[_RegisteredBroker]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([topic for broker in brokers for topic in broker.queues]))


def _effective_perm(config: BrokerConfig, perm: int) -> int:
    # As in Java, only a broker without full permission clears the inherit bit of its topics.
    full = PERM_READ | PERM_WRITE
    allowed = config.broker_permission
    return perm if allowed & full == full else perm & allowed


def _to_fastjson(body: bytes) -> bytes:
    # fastjson does not quote number keys. The only ones here are broker ids.
    return _ADDRESSES.sub(lambda found: _NUMBER_KEY.sub(rb"\1:", found[0]), body)
