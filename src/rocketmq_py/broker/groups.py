"""Who produces and consumes: the members of groups, what they subscribed, and notices to them.

Java: ``ClientManageProcessor``, ``ConsumerManager``, ``ConsumerGroupInfo``, ``ProducerManager``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs
import trio

from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.dispatch import Refusal, RequestHandler
from rocketmq_py.broker.filtering import SqlFilters, is_tag_expression, sql_filter_of
from rocketmq_py.broker.sql92 import SqlFilterError
from rocketmq_py.broker.subscription_groups import SubscriptionGroupTable
from rocketmq_py.broker.topics import TopicTable
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.names import retry_topic
from rocketmq_py.protocol.bodies import (
    CheckClientConfig,
    ConsumerData,
    ConsumerList,
    Heartbeat,
    MessageModel,
    SubscriptionData,
)
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import (
    GetConsumerListByGroupRequest,
    HeartbeatAnswer,
    NotifyConsumerIdsChangedRequest,
    UnregisterClientRequest,
)
from rocketmq_py.remoting import Connection

SCAN_SECONDS = 10.0
"""How often silent clients are looked for. Java: ``ClientHousekeepingService``."""


@attrs.frozen
class Member:
    """A client in a group, by way of one connection.

    Attributes:
        client_id: what it calls itself.
        language: its language code.
        version: an ordinal of Java's ``MQVersion``.
        heard_at: when its last heartbeat came, on trio's clock.
    """

    client_id: str
    language: int
    version: int
    heard_at: float


class ConsumerGroup:
    """The members of one consumer group, and what they subscribed. Java: ``ConsumerGroupInfo``.

    Attributes:
        members: by connection, in the order in which they came.
        subscriptions: by topic: those of the latest heartbeat, each in its newest version.
        data: what the latest heartbeat said of the group.
    """

    def __init__(self, data: ConsumerData) -> None:
        self.members: dict[Connection, Member] = {}
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.data = data

    @property
    def is_broadcasting(self) -> bool:
        """Whether each member gets every message."""
        return self.data.message_model == MessageModel.BROADCASTING

    def subscribe(self, subscriptions: tuple[SubscriptionData, ...]) -> bool:
        """Take over a heartbeat's subscriptions; return whether a topic came or went."""
        topics_before = self.subscriptions.keys()
        merged = {}
        for new in subscriptions:
            old = self.subscriptions.get(new.topic)
            merged[new.topic] = new if old is None or new.sub_version > old.sub_version else old
        changed = merged.keys() != topics_before
        self.subscriptions = merged
        return changed


class ConsumerGroups:
    """All consumer groups with members."""

    def __init__(self) -> None:
        self._groups: dict[str, ConsumerGroup] = {}
        self.get: Final = self._groups.get
        """Returns a group, None if it has no member."""

    def beat(
        self,
        connection: Connection,
        member: Member,
        data: ConsumerData,
        *,
        with_subscriptions: bool,
        notify: bool,
    ) -> None:
        """Note a member's heartbeat; members are told if the group or its topics changed."""
        group = self._groups.get(data.group_name)
        if group is None:
            group = self._groups[data.group_name] = ConsumerGroup(data)
        group.data = data
        changed = connection not in group.members
        group.members[connection] = member
        if with_subscriptions:
            changed |= group.subscribe(data.subscription_data_set)
        if changed and notify:
            self._notify(data.group_name, group)

    def leave(self, name: str, connection: Connection, *, notify: bool) -> None:
        """Forget a member; those who stay are told, even if it was none."""
        group = self._groups.get(name)
        if group is None:
            return
        group.members.pop(connection, None)
        if not group.members:
            del self._groups[name]
        if notify:
            self._notify(name, group)

    def groups_of(self, connection: Connection) -> list[str]:
        """Return the names of the groups that have a member on this connection."""
        return [name for name, group in self._groups.items() if connection in group.members]

    def subscribed_to(self, topic: str) -> list[str]:
        """Return the names of the groups that subscribe a topic."""
        return [name for name, group in self._groups.items() if topic in group.subscriptions]

    def silent_since(self, time: float) -> list[Connection]:
        """Return the connections of members without a heartbeat since ``time``, on trio's clock."""
        return [
            connection
            for group in self._groups.values()
            for connection, member in group.members.items()
            if member.heard_at < time
        ]

    def jump(self, seconds: float) -> None:
        """Note that the clock was put forward: the members were heard as recently as before."""
        for group in self._groups.values():
            _jump(group.members, seconds)

    def _notify(self, name: str, group: ConsumerGroup) -> None:
        if group.is_broadcasting:
            return
        notice = NotifyConsumerIdsChangedRequest(consumer_group=name)
        fields = notice.to_fields()
        for connection in group.members:
            if not connection.is_closed:
                connection.oneway_nowait(notice.code, fields)


class ProducerGroups:
    """All producer groups with members, and where each client is that has joined one."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[Connection, Member]] = {}
        self._clients: dict[str, Connection] = {}
        self._turn = 0
        self.find: Final = self._clients.get
        """Returns a client's connection by its id, None if no such client has joined a group.

        As on a real broker a client that leaves one of its groups is not found either, until it joins
        another one.
        """

    def beat(self, name: str, connection: Connection, member: Member) -> None:
        """Note a member's heartbeat."""
        members = self._groups.setdefault(name, {})
        if connection not in members:
            self._clients[member.client_id] = connection
        members[connection] = member

    def leave(self, name: str, connection: Connection) -> None:
        """Forget a member."""
        members = self._groups.get(name, {})
        member = members.pop(connection, None)
        if member is not None and self._clients.get(member.client_id) is connection:
            del self._clients[member.client_id]
        if not members:
            self._groups.pop(name, None)

    def members_of(self, name: str) -> Mapping[Connection, Member] | None:
        """Return the members of a group, None if it has none."""
        return self._groups.get(name)

    def names(self) -> list[str]:
        """Return the names of the groups."""
        return list(self._groups)

    def choose(self, name: str) -> Connection | None:
        """Return a member that can be asked something, another one each time; None if there is none."""
        ready = [
            connection
            for connection in self._groups.get(name, {})
            if not connection.is_closed and connection.has_space
        ]
        if not ready:
            return None
        self._turn += 1
        return ready[self._turn % len(ready)]

    def forget(self, connection: Connection) -> None:
        """Forget the members of a connection that is closed."""
        for name in [name for name, members in self._groups.items() if connection in members]:
            self.leave(name, connection)

    def silent_since(self, time: float) -> list[Connection]:
        """Return the connections of members without a heartbeat since ``time``, on trio's clock."""
        return [
            connection
            for members in self._groups.values()
            for connection, member in members.items()
            if member.heard_at < time
        ]

    def jump(self, seconds: float) -> None:
        """Note that the clock was put forward: the members were heard as recently as before."""
        for members in self._groups.values():
            _jump(members, seconds)


def _jump(members: dict[Connection, Member], seconds: float) -> None:
    for connection, member in members.items():
        members[connection] = attrs.evolve(member, heard_at=member.heard_at + seconds)


class Clients:
    """Answers heartbeats, goodbyes and questions for members, and drops clients that are gone.

    Args:
        config: the broker's settings.
        topics: get each consumer group's retry topic.
        subscription_groups: the settings of groups.
        consumers: the consumer groups.
        producers: the producer groups.
        sql_filters: take over the SQL filters of heartbeats.
    """

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicTable,
        subscription_groups: SubscriptionGroupTable,
        consumers: ConsumerGroups,
        producers: ProducerGroups,
        sql_filters: SqlFilters,
    ) -> None:
        self._config = config
        self._topics = topics
        self._subscription_groups = subscription_groups
        self._consumers = consumers
        self._producers = producers
        self._sql_filters = sql_filters
        self._fingerprints: dict[str, int] = {}

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the handler of each request's code."""
        return {
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: self._unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._list_consumers,
            RequestCode.CHECK_CLIENT_CONFIG: self._check_subscription,
        }

    async def drop_silent(self) -> None:
        """Close the connections of clients that have stopped sending heartbeats, until cancelled."""
        while True:
            await trio.sleep(SCAN_SECONDS)
            since = trio.current_time() - self._config.channel_expired_timeout
            for connection in [*self._consumers.silent_since(since), *self._producers.silent_since(since)]:
                connection.close("its client has sent no heartbeat")

    def forget(self, connection: Connection) -> None:
        """Forget the members of a connection that is closed; those who stay in their groups are told."""
        self._producers.forget(connection)
        for name in self._consumers.groups_of(connection):
            self._consumers.leave(name, connection, notify=self._wants_notices(name))

    def _wants_notices(self, group: str) -> bool:
        settings = self._subscription_groups.find(group)
        return settings is None or settings.notify_consumer_ids_changed_enable

    def _heartbeat(self, connection: Connection, request: Command) -> None:
        heartbeat = Heartbeat.decode(request.body)
        member = Member(heartbeat.client_id, request.language, request.version, trio.current_time())
        changed = False
        for data in heartbeat.consumer_data_set:
            changed |= self._note_fingerprint(data.group_name, heartbeat.heartbeat_fingerprint)
            settings = self._subscription_groups.find(data.group_name)
            if settings is None:
                continue
            self._topics.create_for_send_back(retry_topic(data.group_name), settings.retry_queue_nums)
            self._consumers.beat(
                connection,
                member,
                data,
                with_subscriptions=not heartbeat.without_sub,
                notify=settings.notify_consumer_ids_changed_enable,
            )
            self._sql_filters.register(data.group_name, data.subscription_data_set)
        for producer in heartbeat.producer_data_set:
            self._producers.beat(producer.group_name, connection, member)
        # A client without a fingerprint always sends its subscriptions: to it they count as changed.
        answer = HeartbeatAnswer(
            supports_heartbeat_v2=True,
            subscription_changed=changed or heartbeat.heartbeat_fingerprint == 0,
        )
        connection.respond(request, ResponseCode.SUCCESS, answer.to_fields())

    def _note_fingerprint(self, group: str, fingerprint: int) -> bool:
        known = self._fingerprints.get(group)
        self._fingerprints[group] = fingerprint
        return known is not None and known != fingerprint

    def _unregister(self, connection: Connection, request: Command) -> None:
        header = UnregisterClientRequest.from_fields(request.fields)
        if header.producer_group is not None:
            self._producers.leave(header.producer_group, connection)
        if header.consumer_group is not None:
            notify = self._wants_notices(header.consumer_group)
            self._consumers.leave(header.consumer_group, connection, notify=notify)
        connection.respond(request, ResponseCode.SUCCESS)

    def _list_consumers(self, connection: Connection, request: Command) -> None:
        header = GetConsumerListByGroupRequest.from_fields(request.fields)
        group = self._consumers.get(header.consumer_group)
        if group is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {header.consumer_group}")
        ids = tuple([member.client_id for member in group.members.values()])
        connection.respond(request, ResponseCode.SUCCESS, body=ConsumerList(consumer_id_list=ids).encode())

    def _check_subscription(self, connection: Connection, request: Command) -> None:
        if request.body:
            self._check_expression(CheckClientConfig.decode(request.body).subscription_data)
        connection.respond(request, ResponseCode.SUCCESS)

    def _check_expression(self, subscription: SubscriptionData) -> None:
        kind = subscription.expression_type
        if is_tag_expression(kind):
            return
        if not self._config.enable_property_filter:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR, f"The broker does not support consumer to filter message by {kind}"
            )
        try:
            sql_filter_of(kind, subscription.sub_string)
        except SqlFilterError as error:
            raise Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
