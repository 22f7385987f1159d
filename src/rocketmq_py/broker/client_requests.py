"""Heartbeats, group membership and queue locks of clients (Java: ``ClientManageProcessor``)."""

from __future__ import annotations

from collections.abc import Mapping

import trio

from rocketmq_py.broker.dispatch import Refusal, RequestHandler
from rocketmq_py.broker.groups import GroupMember
from rocketmq_py.broker.message_filters import is_tag_expression, parse_sql_filter
from rocketmq_py.broker.sql92 import SqlFilterError
from rocketmq_py.broker.state import BrokerState
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.names import retry_topic
from rocketmq_py.protocol.bodies import (
    CheckClientConfig,
    ConsumerList,
    Heartbeat,
    LockedQueues,
    QueueLock,
    SubscriptionData,
)
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import (
    GetConsumerListByGroupRequest,
    HeartbeatAnswer,
    UnregisterClientRequest,
)
from rocketmq_py.remoting import Connection

SCAN_SECONDS = 10.0
"""Seconds between two scans for silent clients. Java: ``ClientHousekeepingService``."""


class ClientProcessor:
    """Answers heartbeats, unregistrations, lock requests and queries for group members.

    :meth:`close_silent_clients` must be running for clients without heartbeats to be dropped.
    """

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._fingerprints: dict[str, int] = {}

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the request handlers by request code."""
        return {
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: self._unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._list_consumers,
            RequestCode.CHECK_CLIENT_CONFIG: self._check_subscription,
            RequestCode.LOCK_BATCH_MQ: self._lock,
            RequestCode.UNLOCK_BATCH_MQ: self._unlock,
        }

    async def close_silent_clients(self) -> None:
        """Close the connections of clients that have stopped sending heartbeats, until cancelled."""
        state = self._state
        while True:
            await trio.sleep(SCAN_SECONDS)
            since = trio.current_time() - state.config.channel_expired_timeout
            for connection in [*state.consumers.silent_since(since), *state.producers.silent_since(since)]:
                connection.close("its client has sent no heartbeat")

    def drop_connection(self, connection: Connection) -> None:
        """Remove the members of a closed connection from their groups, and notify the other members."""
        self._state.producers.drop_connection(connection)
        for group in self._state.consumers.groups_of(connection):
            # As on real brokers, even if notify_consumer_ids_changed_enable is off for the group.
            self._state.consumers.remove_member(group, connection, notify=True)

    def shift_clock(self, seconds: float) -> None:
        """Keep the age of heartbeats and locks after trio's clock was advanced by ``seconds``."""
        self._state.locks.shift_clock(seconds)
        self._state.consumers.shift_clock(seconds)
        self._state.producers.shift_clock(seconds)

    # Membership

    def _heartbeat(self, connection: Connection, request: Command) -> None:
        state = self._state
        heartbeat = Heartbeat.decode(request.body)
        member = GroupMember(heartbeat.client_id, request.language, request.version, trio.current_time())
        changed = False
        for data in heartbeat.consumer_data_set:
            changed |= self._record_fingerprint(data.group_name, heartbeat.heartbeat_fingerprint)
            settings = state.subscription_groups.get_or_create(data.group_name)
            if settings is None:
                continue
            state.topics.get_or_create(retry_topic(data.group_name), settings.retry_queue_nums)
            state.consumers.record_heartbeat(
                connection,
                member,
                data,
                with_subscriptions=not heartbeat.without_sub,
                notify=settings.notify_consumer_ids_changed_enable,
            )
            state.sql_filters.register(data.group_name, data.subscription_data_set)
        for producer in heartbeat.producer_data_set:
            state.producers.record_heartbeat(producer.group_name, connection, member)
        # A client without fingerprints sends its subscriptions each time, so they count as changed.
        answer = HeartbeatAnswer(
            supports_heartbeat_v2=True,
            subscription_changed=changed or heartbeat.heartbeat_fingerprint == 0,
        )
        connection.respond(request, ResponseCode.SUCCESS, answer.to_fields())

    def _record_fingerprint(self, group: str, fingerprint: int) -> bool:
        """Record a fingerprint, a hash of subscriptions. Returns whether it differs from the group's last."""
        last = self._fingerprints.get(group)
        self._fingerprints[group] = fingerprint
        return last is not None and last != fingerprint

    def _unregister(self, connection: Connection, request: Command) -> None:
        header = UnregisterClientRequest.from_fields(request.fields)
        if header.producer_group is not None:
            self._state.producers.remove_member(header.producer_group, connection)
        group = header.consumer_group
        if group is not None:
            settings = self._state.subscription_groups.get_or_create(group)
            notify = settings is None or settings.notify_consumer_ids_changed_enable
            self._state.consumers.remove_member(group, connection, notify=notify)
        connection.respond(request, ResponseCode.SUCCESS)

    def _list_consumers(self, connection: Connection, request: Command) -> None:
        header = GetConsumerListByGroupRequest.from_fields(request.fields)
        group = self._state.consumers.get(header.consumer_group)
        if group is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {header.consumer_group}")
        ids = tuple([member.client_id for member in group.members.values()])
        connection.respond(request, ResponseCode.SUCCESS, body=ConsumerList(consumer_id_list=ids).encode())

    # Subscriptions

    def _check_subscription(self, connection: Connection, request: Command) -> None:
        if request.body:
            self._check_expression(CheckClientConfig.decode(request.body).subscription_data)
        connection.respond(request, ResponseCode.SUCCESS)

    def _check_expression(self, subscription: SubscriptionData) -> None:
        expression_type = subscription.expression_type
        if is_tag_expression(expression_type):
            return
        if not self._state.config.enable_property_filter:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {expression_type}",
            )
        try:
            parse_sql_filter(expression_type, subscription.sub_string)
        except SqlFilterError as error:
            raise Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None

    # Locks

    def _lock(self, connection: Connection, request: Command) -> None:
        lock = QueueLock.decode(request.body)
        locked = self._state.locks.lock(lock.consumer_group, lock.queues, lock.client_id)
        connection.respond(request, ResponseCode.SUCCESS, body=LockedQueues.of(locked).encode())

    def _unlock(self, connection: Connection, request: Command) -> None:
        lock = QueueLock.decode(request.body)
        self._state.locks.unlock(lock.consumer_group, lock.queues, lock.client_id)
        connection.respond(request, ResponseCode.SUCCESS)
