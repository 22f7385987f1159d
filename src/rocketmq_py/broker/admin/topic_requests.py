"""Requests of tools to create, change, delete and list topics."""

from __future__ import annotations

from collections.abc import Mapping

from rocketmq_py.broker.admin.attributes import change_topic_attributes
from rocketmq_py.broker.dispatch import UNSET_REMARK, Refusal, RequestHandler
from rocketmq_py.broker.state import BrokerState
from rocketmq_py.broker.topics import TopicConfig, topic_name_error
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.names import MAX_QUEUES, SYSTEM_TOPICS
from rocketmq_py.protocol.bodies import TopicConfigTable, TopicList, TopicOffset, TopicStats
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.handles import pop_retry_topic
from rocketmq_py.protocol.headers import (
    CreateTopicRequest,
    GetAllTopicConfigAnswer,
    GetTopicStatsInfoRequest,
)
from rocketmq_py.remoting import Connection


class TopicProcessor:
    """Answers requests about topics."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._topics = state.topics

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the request handlers by request code."""
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self._put,
            RequestCode.DELETE_TOPIC_IN_BROKER: self._delete,
            RequestCode.GET_TOPIC_CONFIG: self._config,
            RequestCode.GET_ALL_TOPIC_CONFIG: self._all_configs,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self._list_system_topics,
            RequestCode.GET_TOPIC_STATS_INFO: self._stats,
        }

    def _put(self, connection: Connection, request: Command) -> None:
        header = CreateTopicRequest.from_fields(request.fields)
        error = topic_name_error(header.topic) or self._system_topic_error(header.topic)
        if error is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, error)
        check_queue_count(f"topic[{header.topic}]", max(header.read_queue_nums, header.write_queue_nums))
        old = self._topics.get(header.topic)
        topic = TopicConfig(
            header.topic,
            header.read_queue_nums,
            header.write_queue_nums,
            header.perm,
            header.topic_filter_type,
            header.topic_sys_flag or 0,
            header.order,
            change_topic_attributes(old.attributes if old else None, header.attributes or ""),
        )
        self._topics.put(topic)
        connection.respond(request, ResponseCode.SUCCESS, remark=UNSET_REMARK)

    def _delete(self, connection: Connection, request: Command) -> None:
        topic = request.fields.get("topic", "")
        error = self._system_topic_error(topic) if topic.strip() else "The specified topic is blank."
        if error is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, error)
        for group in self._state.offsets.groups_of(topic):
            self._delete_topic(pop_retry_topic(topic, group))
            self._delete_topic(pop_retry_topic(topic, group, v2=True))
        self._delete_topic(topic)
        connection.respond(request, ResponseCode.SUCCESS)

    def _delete_topic(self, topic: str) -> None:
        self._topics.delete(topic)
        self._state.offsets.delete_topic(topic)
        self._state.store.delete_topic(topic)

    def _system_topic_error(self, topic: str) -> str | None:
        if self._topics.is_system_topic(topic):
            return f"The topic[{topic}] is conflict with system topic."
        return None

    def _config(self, connection: Connection, request: Command) -> None:
        name = request.fields.get("topic", "")
        topic = self._topics.get(name)
        if topic is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {name}")
        connection.respond(request, ResponseCode.SUCCESS, body=topic.body.encode())

    def _all_configs(self, connection: Connection, request: Command) -> None:
        # The whole table in one answer, as real brokers with enableSplitMetadata=false.
        table = {topic.topic_name: topic.body for topic in self._topics}
        version = self._state.data_version(self._topics.changes)
        body = TopicConfigTable(topic_config_table=table, data_version=version)
        answer = GetAllTopicConfigAnswer(total_topic_num=len(table))
        connection.respond(request, ResponseCode.SUCCESS, answer.to_fields(), body.encode())

    def _list_system_topics(self, connection: Connection, request: Command) -> None:
        own = {topic.topic_name for topic in self._topics if self._topics.is_system_topic(topic.topic_name)}
        body = TopicList(topic_list=tuple(sorted(SYSTEM_TOPICS | own)))
        connection.respond(request, ResponseCode.SUCCESS, body=body.encode())

    def _stats(self, connection: Connection, request: Command) -> None:
        header = GetTopicStatsInfoRequest.from_fields(request.fields)
        topic = self._topics.get(header.topic)
        if topic is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
        queues = max(topic.read_queue_nums, topic.write_queue_nums)
        table = {
            self._state.message_queue(header.topic, queue_id): self._offsets(header.topic, queue_id)
            for queue_id in range(queues)
        }
        body = TopicStats(table, self._state.store.put_rate(header.topic))
        connection.respond(request, ResponseCode.SUCCESS, body=body.encode())

    def _offsets(self, topic: str, queue_id: int) -> TopicOffset:
        queue = self._state.store.find_queue(topic, queue_id)
        if queue is None:
            return TopicOffset()
        newest = queue[queue.end - 1].store_time_ms if queue.start < queue.end else 0
        return TopicOffset(min_offset=queue.start, max_offset=queue.end, last_update_timestamp=newest)


def check_queue_count(owner: str, count: int) -> None:
    """Raise Refusal for more queues than a topic may have. Real brokers have no limit.

    Args:
        owner: the topic, for the remark.
        count: the number of queues.
    """
    if count > MAX_QUEUES:
        raise Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"The {owner} would have {count} queues; this broker lets it have {MAX_QUEUES}.",
        )
