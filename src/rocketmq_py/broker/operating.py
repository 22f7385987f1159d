"""How the broker is doing and set up, and its tables of topics and groups (``AdminBrokerProcessor``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.dispatch import Refusal, RequestHandler
from rocketmq_py.broker.groups import SubscriptionGroupTable
from rocketmq_py.broker.offsets import OffsetTable
from rocketmq_py.broker.settings import alter, shown
from rocketmq_py.broker.storage.message_store import MessageStore
from rocketmq_py.broker.topics import TopicTable
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.names import SYSTEM_TOPICS
from rocketmq_py.protocol import bodies
from rocketmq_py.protocol.bodies import (
    MASTER_ID,
    DataVersion,
    KeyValueTable,
    TopicConfigTable,
    TopicList,
    read_properties,
)
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import (
    DeleteSubscriptionGroupRequest,
    GetAllSubscriptionGroupAnswer,
    GetAllTopicConfigAnswer,
    GetSubscriptionGroupConfigRequest,
)
from rocketmq_py.remoting import Connection

VERSION = "V5_5_0"
"""Which of Java's brokers this one answers like."""


class Operating:
    """Answers operators' tools.

    Args:
        config: the broker's own copy of its settings, which operators may change.
        topics: the broker's topics.
        subscription_groups: the settings of groups.
        offsets: how far groups have come.
        store: the broker's messages.
        address: the broker's ``host:port``.
        now_ms: the time, epoch milliseconds.
        broker_id: 0 for a master.
    """

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicTable,
        subscription_groups: SubscriptionGroupTable,
        offsets: OffsetTable,
        store: MessageStore,
        *,
        address: str,
        now_ms: Callable[[], int],
        broker_id: int = MASTER_ID,
    ) -> None:
        self._broker_id = broker_id
        self._config = config
        self._topics = topics
        self._subscription_groups = subscription_groups
        self._offsets = offsets
        self._store = store
        self._address = address
        self._now_ms = now_ms
        self._opened_ms = now_ms()
        self._config_changes = 0

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the handler of each request's code."""
        return {
            RequestCode.GET_BROKER_RUNTIME_INFO: self._runtime_info,
            RequestCode.GET_BROKER_CONFIG: self._broker_config,
            RequestCode.UPDATE_BROKER_CONFIG: self._alter_config,
            RequestCode.GET_ALL_TOPIC_CONFIG: self._all_topics,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self._system_topics,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self._all_groups,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self._group,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self._delete_group,
        }

    # The broker

    def _runtime_info(self, connection: Connection, request: Command) -> None:
        body = KeyValueTable(table={name: str(value) for name, value in self._figures().items()})
        connection.respond(request, ResponseCode.SUCCESS, body=body.encode())

    def _figures(self) -> Mapping[str, object]:
        """Return what there is of Java's figures: nothing of disks, caches and pools of threads."""
        store, log = self._store, self._store.log
        oldest = log[log.start] if log.start < log.end else None
        return {
            "bootTimestamp": self._opened_ms,
            "runtime": _duration(self._now_ms() - self._opened_ms),
            "brokerActive": "true",
            "brokerVersionDesc": VERSION,
            "startAcceptSendRequestTimeStamp": 0,
            "putMessageTimesTotal": max(1, store.put_meter.total),
            "putMessageSizeTotal": store.end_offset,
            "putMessageAverageSize": store.end_offset / max(1, store.put_meter.total),
            "putMessageFailedTimes": 0,
            "putTps": store.put_meter.rates(),
            "getFoundTps": store.get_meter.rates(),
            "getTransferredTps": store.get_meter.rates(),
            "msgPutTotalYesterdayMorning": 0,
            "msgPutTotalTodayMorning": 0,
            "msgPutTotalTodayNow": store.put_meter.total,
            "msgGetTotalYesterdayMorning": 0,
            "msgGetTotalTodayMorning": 0,
            "msgGetTotalTodayNow": store.get_meter.total,
            "commitLogMinOffset": oldest.commit_log_offset if oldest else store.end_offset,
            "commitLogMaxOffset": store.end_offset,
            "earliestMessageTimeStamp": oldest.store_time_ms if oldest else -1,
            "dispatchBehindBytes": 0,
            "pageCacheLockTimeMills": 0,
            "sendThreadPoolQueueSize": 0,
            "pullThreadPoolQueueSize": 0,
            "ackThreadPoolQueueSize": 0,
            "sendThreadPoolQueueHeadWaitTimeMills": 0,
            "pullThreadPoolQueueHeadWaitTimeMills": 0,
            "ackThreadPoolQueueHeadWaitTimeMills": 0,
            "timerReadBehind": 0,
            "timerOffsetBehind": 0,
            "timerCongestNum": 0,
            "timerEnqueueTps": 0.0,
            "timerDequeueTps": 0.0,
        }

    def _broker_config(self, connection: Connection, request: Command) -> None:
        settings = shown(self._config, self._address, self._broker_id)
        body = "".join([f"{name}={value}\n" for name, value in settings.items()]).encode()
        fields = {"version": self._version(self._config_changes).encode().decode()}
        connection.respond(request, ResponseCode.SUCCESS, fields, body)

    def _alter_config(self, connection: Connection, request: Command) -> None:
        wanted = read_properties(request.body)
        alter(self._config, wanted)
        self._config_changes += 1
        self._store.max_message_size = self._config.max_message_size
        if "brokerPermission" in wanted:
            self._topics.register_all()
        connection.respond(request, ResponseCode.SUCCESS)

    # Its tables. As real brokers do with enableSplitMetadata=false, it gives each as a whole.

    def _version(self, changes: int) -> DataVersion:
        return DataVersion(counter=changes, timestamp=self._opened_ms)

    def _all_topics(self, connection: Connection, request: Command) -> None:
        table = {topic.topic_name: topic.body for topic in self._topics}
        body = TopicConfigTable(topic_config_table=table, data_version=self._version(self._topics.changes))
        answer = GetAllTopicConfigAnswer(total_topic_num=len(table))
        connection.respond(request, ResponseCode.SUCCESS, answer.to_fields(), body.encode())

    def _system_topics(self, connection: Connection, request: Command) -> None:
        own = {topic.topic_name for topic in self._topics if self._topics.is_system_topic(topic.topic_name)}
        body = TopicList(topic_list=tuple(sorted(SYSTEM_TOPICS | own)))
        connection.respond(request, ResponseCode.SUCCESS, body=body.encode())

    def _all_groups(self, connection: Connection, request: Command) -> None:
        table = {group.group_name: group for group in self._subscription_groups}
        version = self._version(self._subscription_groups.changes)
        body = bodies.SubscriptionGroupTable(subscription_group_table=table, data_version=version)
        answer = GetAllSubscriptionGroupAnswer(total_group_num=len(table))
        connection.respond(request, ResponseCode.SUCCESS, answer.to_fields(), body.encode())

    def _group(self, connection: Connection, request: Command) -> None:
        header = GetSubscriptionGroupConfigRequest.from_fields(request.fields)
        group = self._subscription_groups.find(header.group)
        if group is None:
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
        connection.respond(request, ResponseCode.SUCCESS, body=group.encode())

    def _delete_group(self, connection: Connection, request: Command) -> None:
        header = DeleteSubscriptionGroupRequest.from_fields(request.fields)
        self._subscription_groups.delete(header.group)
        if header.clean_offset:
            self._offsets.delete_group(header.group)
        connection.respond(request, ResponseCode.SUCCESS)


def _duration(milliseconds: int) -> str:
    """Return a time as Java writes it. Java: ``StoreStatsService.getFormatRuntime``."""
    seconds, _ = divmod(milliseconds, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"
