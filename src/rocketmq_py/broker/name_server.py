"""The name server's half: where topics are (Java: ``DefaultRequestProcessor``, ``RouteInfoManager``)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

import attrs
import msgspec

from rocketmq_py.address import announced_address
from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.dispatch import FAQ, Refusal, RequestHandler
from rocketmq_py.broker.topics import PERM_READ, PERM_WRITE, TopicConfig
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.protocol.bodies import (
    MASTER_ID,
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

VERSION_OF_STANDARD_JSON = 401
"""The ordinal of Java's ``MQVersion.V4_9_4``: older clients are answered in fastjson's dialect."""

_ORDER = "ORDER_TOPIC_CONFIG"
"""Where tools keep which queues ordered topics have. Java: ``NamesrvUtil``."""
_ADDRESSES = re.compile(rb'"brokerAddrs":\{[^}]*\}')
_NUMBER_KEY = re.compile(rb'"(\d+)":')
_BLACK_LIST = frozenset({"configBlackList", "configStorePath", "kvConfigPath"})


@attrs.frozen
class _Registered:
    """What is known of a broker: its topics as it registered them, and what clients are told of them."""

    config: BrokerConfig
    topics: dict[str, TopicConfig] = attrs.field(factory=dict)
    queues: dict[str, QueueData] = attrs.field(factory=dict)
    addresses: dict[int, str] = attrs.field(factory=dict)

    @property
    def data(self) -> BrokerData:
        return BrokerData(
            cluster=self.config.cluster_name,
            broker_name=self.config.broker_name,
            announced={
                broker_id: announced_address(address) for broker_id, address in sorted(self.addresses.items())
            },
        )


class NameServer:
    """Knows the topics and addresses of brokers as they have registered them.

    As in a real cluster, a topic that is deleted on its broker keeps its route until it is deleted here
    too, and one that is deleted only here comes back with the broker's next registration.
    """

    def __init__(self) -> None:
        self._brokers: dict[str, _Registered] = {}
        self._values: dict[str, dict[str, str]] = {}
        self._settings = {"enableAllTopicList": True, "enableTopicList": True, "orderMessageEnable": False}

    def register(
        self,
        config: BrokerConfig,
        address: str,
        topics: Iterable[TopicConfig],
        broker_id: int = MASTER_ID,
    ) -> None:
        """Note a broker's topics: new ones, and changes.

        Args:
            config: the broker's settings.
            address: where clients are sent to.
            topics: some or all that it has; replicas leave that to their masters.
            broker_id: 0 for a master; replicas have others.
        """
        broker = self._brokers.setdefault(config.broker_name, _Registered(config))
        broker.addresses[broker_id] = address
        for topic in topics:
            broker.topics[topic.topic_name] = topic
            broker.queues[topic.topic_name] = QueueData(
                broker_name=config.broker_name,
                read_queue_nums=topic.read_queue_nums,
                write_queue_nums=topic.write_queue_nums,
                perm=_perm(config, topic.perm),
                topic_sys_flag=topic.topic_sys_flag,
            )

    def register_missing(self, config: BrokerConfig, address: str, topics: Iterable[TopicConfig]) -> None:
        """Note those of a broker's topics that are not known (any more), or as they are now: at times.

        What the broker has not changed is not written over: an operator may have changed permissions here.
        """
        broker = self._brokers.get(config.broker_name)
        known = {} if broker is None else {name: broker.topics.get(name) for name in broker.queues}
        self.register(config, address, [topic for topic in topics if known.get(topic.topic_name) != topic])

    def forget_broker(self, name: str, broker_id: int = MASTER_ID) -> None:
        """Forget a broker that is gone, or a replica (Java: ``RouteInfoManager.onChannelDestroy``).

        As long as another of that name is there, its topics keep their routes.
        """
        broker = self._brokers.get(name)
        if broker is not None:
            broker.addresses.pop(broker_id, None)
            if not broker.addresses:
                del self._brokers[name]

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the handler of each request's code."""
        return {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster_info,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._all_topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._topics_of_cluster,
            RequestCode.PUT_KV_CONFIG: self._put_value,
            RequestCode.GET_KV_CONFIG: self._value,
            RequestCode.DELETE_KV_CONFIG: self._delete_value,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._list_values,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_permission,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write_permission,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete,
            RequestCode.GET_NAMESRV_CONFIG: self._config,
            RequestCode.UPDATE_NAMESRV_CONFIG: self._alter_config,
        }

    def _route(self, connection: Connection, request: Command) -> None:
        topic = request.fields.get("topic", "null")
        having = [broker for broker in self._brokers.values() if topic in broker.queues]
        if not having:
            raise Refusal(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {topic}{FAQ}",
            )
        queues = tuple([broker.queues[topic] for broker in having])
        order = self._values.get(_ORDER, {}).get(topic) if self._settings["orderMessageEnable"] else None
        route = TopicRoute(
            order_topic_conf=order,
            queue_datas=queues,
            broker_datas=tuple([one.data for one in having]),
        )
        body = route.encode()
        wants_standard = request.fields.get("acceptStandardJsonOnly", "").lower() == "true"
        if request.version < VERSION_OF_STANDARD_JSON and not wants_standard:
            body = _in_dialect(body)
        connection.respond(request, ResponseCode.SUCCESS, body=body)

    def _cluster_info(self, connection: Connection, request: Command) -> None:
        clusters: dict[str, tuple[str, ...]] = {}
        for name, broker in self._brokers.items():
            clusters[broker.config.cluster_name] = (*clusters.get(broker.config.cluster_name, ()), name)
        brokers = {name: broker.data for name, broker in self._brokers.items()}
        info = ClusterInfo(broker_addr_table=brokers, cluster_addr_table=clusters)
        connection.respond(request, ResponseCode.SUCCESS, body=_in_dialect(info.encode()))

    def _all_topics(self, connection: Connection, request: Command) -> None:
        self._check_lists("enableAllTopicList")
        body = TopicList(topic_list=_topics_of(self._brokers.values())).encode()
        connection.respond(request, ResponseCode.SUCCESS, body=body)

    def _topics_of_cluster(self, connection: Connection, request: Command) -> None:
        self._check_lists("enableTopicList")
        body = TopicList(topic_list=_topics_of(self._of_cluster(request.fields.get("cluster", "")))).encode()
        connection.respond(request, ResponseCode.SUCCESS, body=body)

    def _check_lists(self, setting: str) -> None:
        if not self._settings[setting]:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "disable")

    # Its own settings: of Java's ``NamesrvConfig`` those that there is something to in memory

    def _config(self, connection: Connection, request: Command) -> None:
        lines = [f"{name}={str(value).lower()}\n" for name, value in self._settings.items()]
        connection.respond(request, ResponseCode.SUCCESS, body="".join(lines).encode())

    def _alter_config(self, connection: Connection, request: Command) -> None:
        wanted = read_properties(request.body)
        if _BLACK_LIST & wanted.keys():
            raise Refusal(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        for name in self._settings.keys() & wanted.keys():
            self._settings[name] = wanted[name].strip().lower() == "true"
        connection.respond(request, ResponseCode.SUCCESS)

    # Values that clients and tools keep here

    def _put_value(self, connection: Connection, request: Command) -> None:
        header = PutKvConfigRequest.from_fields(request.fields)
        self._values.setdefault(header.kv_namespace, {})[header.key] = header.value
        connection.respond(request, ResponseCode.SUCCESS)

    def _value(self, connection: Connection, request: Command) -> None:
        header = GetKvConfigRequest.from_fields(request.fields)
        value = self._values.get(header.kv_namespace, {}).get(header.key)
        if value is None:
            raise Refusal(
                ResponseCode.QUERY_NOT_FOUND,
                f"No config item, Namespace: {header.kv_namespace} Key: {header.key}",
            )
        connection.respond(request, ResponseCode.SUCCESS, {"value": value})

    def _delete_value(self, connection: Connection, request: Command) -> None:
        header = DeleteKvConfigRequest.from_fields(request.fields)
        self._values.get(header.kv_namespace, {}).pop(header.key, None)
        connection.respond(request, ResponseCode.SUCCESS)

    def _list_values(self, connection: Connection, request: Command) -> None:
        namespace = GetKvListRequest.from_fields(request.fields).kv_namespace
        values = self._values.get(namespace)
        if values is None:
            raise Refusal(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")
        connection.respond(request, ResponseCode.SUCCESS, body=KeyValueTable(table=values).encode())

    # What producers are told of the broker

    def _wipe_write_permission(self, connection: Connection, request: Command) -> None:
        header = WipeWritePermissionRequest.from_fields(request.fields)
        count = self._change_permission(header.broker, lambda perm: perm & ~PERM_WRITE)
        answer = WipeWritePermissionAnswer(wipe_topic_count=count)
        connection.respond(request, ResponseCode.SUCCESS, answer.to_fields())

    def _add_write_permission(self, connection: Connection, request: Command) -> None:
        header = AddWritePermissionRequest.from_fields(request.fields)
        # Java gives both back, and takes the inherited bit away.
        count = self._change_permission(header.broker, lambda _: PERM_READ | PERM_WRITE)
        answer = AddWritePermissionAnswer(add_topic_count=count)
        connection.respond(request, ResponseCode.SUCCESS, answer.to_fields())

    def _change_permission(self, broker_name: str, change: Callable[[int], int]) -> int:
        """Return how many topics it was changed for: all that this broker has."""
        broker = self._brokers.get(broker_name)
        if broker is None:
            return 0
        for topic, queues in broker.queues.items():
            broker.queues[topic] = msgspec.structs.replace(queues, perm=change(queues.perm))
        return len(broker.queues)

    def _delete(self, connection: Connection, request: Command) -> None:
        for broker in self._of_cluster(request.fields.get("clusterName") or None):
            broker.queues.pop(request.fields.get("topic", ""), None)
        connection.respond(request, ResponseCode.SUCCESS)

    def _of_cluster(self, name: str | None) -> list[_Registered]:
        """Return the brokers of a cluster; of all without a name."""
        return [broker for broker in self._brokers.values() if name in (None, broker.config.cluster_name)]


def _topics_of(brokers: Iterable[_Registered]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([topic for broker in brokers for topic in broker.queues]))


def _perm(config: BrokerConfig, perm: int) -> int:
    # As in Java, only a broker that may not do everything takes the inherited bit away.
    everything = PERM_READ | PERM_WRITE
    allowed = config.broker_permission
    return perm if allowed & everything == everything else perm & allowed


def _in_dialect(body: bytes) -> bytes:
    # fastjson does not quote keys that are numbers; here those are the ids of brokers.
    return _ADDRESSES.sub(lambda found: _NUMBER_KEY.sub(rb"\1:", found[0]), body)
