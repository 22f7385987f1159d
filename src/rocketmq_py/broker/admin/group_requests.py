"""Requests of tools about consumer groups and producer groups."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import trio

from rocketmq_py.address import announced_address
from rocketmq_py.broker.admin.attributes import GROUP_ATTRIBUTES, change_attributes
from rocketmq_py.broker.admin.topic_requests import check_queue_count
from rocketmq_py.broker.dispatch import Refusal, RequestHandler
from rocketmq_py.broker.groups import GroupMember
from rocketmq_py.broker.state import BrokerState
from rocketmq_py.broker.topics import group_name_error
from rocketmq_py.codes import RequestCode, ResponseCode, language_name
from rocketmq_py.protocol.bodies import (
    Connection as ConnectionBody,
)
from rocketmq_py.protocol.bodies import (
    ConsumerConnection,
    GroupList,
    GroupSubscription,
    ProducerConnection,
    ProducerInfo,
    ProducerTable,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    TopicList,
)
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import (
    DeleteSubscriptionGroupRequest,
    GetAllSubscriptionGroupAnswer,
    GetConsumerConnectionListRequest,
    GetProducerConnectionListRequest,
    GetSubscriptionGroupConfigRequest,
    QuerySubscriptionByConsumerRequest,
    QueryTopicConsumeByWhoRequest,
    QueryTopicsByConsumerRequest,
)
from rocketmq_py.remoting import Connection


class GroupProcessor:
    """Answers requests about groups: their settings, members, topics and subscriptions."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._groups = state.subscription_groups

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the request handlers by request code."""
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self._put,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self._delete,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self._config,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self._all_configs,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self._consumer_connections,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self._producer_connections,
            RequestCode.GET_ALL_PRODUCER_INFO: self._all_producers,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self._groups_of_topic,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self._topics_of_group,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self._subscription,
        }

    # Settings

    def _put(self, connection: Connection, request: Command) -> None:
        if request.body:
            group = SubscriptionGroupConfig.decode(request.body)
            error = group_name_error(group.group_name)
            if error is not None:
                raise Refusal(ResponseCode.INVALID_PARAMETER, error)
            check_queue_count(f"retry topic of group[{group.group_name}]", group.retry_queue_nums)
            known = self._groups.get(group.group_name)
            old = known.attributes if known else None
            attributes = change_attributes(GROUP_ATTRIBUTES, old, group.attributes)
            self._groups.put(msgspec.structs.replace(group, attributes=attributes))
        connection.respond(request, ResponseCode.SUCCESS)

    def _delete(self, connection: Connection, request: Command) -> None:
        header = DeleteSubscriptionGroupRequest.from_fields(request.fields)
        self._groups.delete(header.group)
        if header.clean_offset:
            self._state.offsets.delete_group(header.group)
        connection.respond(request, ResponseCode.SUCCESS)

    def _config(self, connection: Connection, request: Command) -> None:
        header = GetSubscriptionGroupConfigRequest.from_fields(request.fields)
        group = self._groups.get_or_create(header.group)
        if group is None:
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
        connection.respond(request, ResponseCode.SUCCESS, body=group.encode())

    def _all_configs(self, connection: Connection, request: Command) -> None:
        # The whole table in one answer, as real brokers with enableSplitMetadata=false.
        table = {group.group_name: group for group in self._groups}
        version = self._state.data_version(self._groups.changes)
        body = SubscriptionGroupTable(subscription_group_table=table, data_version=version)
        answer = GetAllSubscriptionGroupAnswer(total_group_num=len(table))
        connection.respond(request, ResponseCode.SUCCESS, answer.to_fields(), body.encode())

    # Members

    def _consumer_connections(self, connection: Connection, request: Command) -> None:
        header = GetConsumerConnectionListRequest.from_fields(request.fields)
        group = self._state.consumers.get(header.consumer_group)
        if group is None:
            raise Refusal(
                ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{header.consumer_group}] not online"
            )
        body = ConsumerConnection(
            connection_set=_connections_of(group.members),
            subscription_table=group.subscriptions,
            consume_type=group.consumer_data.consume_type,
            message_model=group.consumer_data.message_model,
            consume_from_where=group.consumer_data.consume_from_where,
        )
        connection.respond(request, ResponseCode.SUCCESS, body=body.encode())

    def _producer_connections(self, connection: Connection, request: Command) -> None:
        name = GetProducerConnectionListRequest.from_fields(request.fields).producer_group
        members = self._state.producers.members_of(name)
        if members is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        body = ProducerConnection(connection_set=_connections_of(members))
        connection.respond(request, ResponseCode.SUCCESS, body=body.encode())

    def _all_producers(self, connection: Connection, request: Command) -> None:
        clock_offset_ms = self._state.now_ms() - trio.current_time() * 1000
        producers = self._state.producers
        table = {
            name: tuple(
                [
                    ProducerInfo(
                        client_id=member.client_id,
                        remote_ip=f"/{member_connection.address}",
                        language=language_name(member.language),
                        version=member.version,
                        last_update_timestamp=round(clock_offset_ms + member.last_heartbeat * 1000),
                    )
                    for member_connection, member in (producers.members_of(name) or {}).items()
                ]
            )
            for name in producers.names()
        }
        connection.respond(request, ResponseCode.SUCCESS, body=ProducerTable(data=table).encode())

    # Topics and subscriptions

    def _groups_of_topic(self, connection: Connection, request: Command) -> None:
        topic = QueryTopicConsumeByWhoRequest.from_fields(request.fields).topic
        subscribers = self._state.consumers.subscribers_of(topic)
        groups = dict.fromkeys([*subscribers, *self._state.offsets.groups_of(topic)])
        connection.respond(request, ResponseCode.SUCCESS, body=GroupList(group_list=tuple(groups)).encode())

    def _topics_of_group(self, connection: Connection, request: Command) -> None:
        header = QueryTopicsByConsumerRequest.from_fields(request.fields)
        topics = tuple(self._state.offsets.topics_of(header.group))
        body = TopicList(topic_list=topics, broker_addr=announced_address(self._state.address))
        connection.respond(request, ResponseCode.SUCCESS, body=body.encode())

    def _subscription(self, connection: Connection, request: Command) -> None:
        header = QuerySubscriptionByConsumerRequest.from_fields(request.fields)
        group = self._state.consumers.get(header.group)
        subscription = group.subscriptions.get(header.topic) if group else None
        body = GroupSubscription(group=header.group, topic=header.topic, subscription_data=subscription)
        connection.respond(request, ResponseCode.SUCCESS, body=body.encode())


def _connections_of(members: Mapping[Connection, GroupMember]) -> tuple[ConnectionBody, ...]:
    return tuple(
        [
            ConnectionBody(
                client_id=member.client_id,
                client_addr=connection.address,
                language=language_name(member.language),
                version=member.version,
            )
            for connection, member in members.items()
        ]
    )
