"""Consumer groups and producer groups: their settings, their members, and the queues that they lock.

Java: ``SubscriptionGroupManager``, ``ConsumerManager``, ``ConsumerGroupInfo``, ``ProducerManager``,
``RebalanceLockManager``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import attrs
import trio

from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.topics import group_name_error
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import ConsumerData, MessageModel, SubscriptionData, SubscriptionGroupConfig
from rocketmq_py.protocol.headers import NotifyConsumerIdsChangedRequest
from rocketmq_py.remoting import Connection

_SYSTEM_GROUPS = (
    "TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "CID_RMQ_SYS_TRANS",
)  # fmt: skip


class SubscriptionGroups:
    """The settings of consumer groups.

    :meth:`get_or_create` creates groups if ``auto_create_subscription_group`` is set.

    Attributes:
        changes: how many times a group was added, changed or deleted.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._groups = {name: SubscriptionGroupConfig(group_name=name) for name in _SYSTEM_GROUPS}
        self.changes: int = 0

    def __iter__(self) -> Iterator[SubscriptionGroupConfig]:
        return iter(self._groups.values())

    def exists(self, group: str) -> bool:
        """Return whether a group exists."""
        return group in self._groups

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """Return a group's settings if it exists."""
        return self._groups.get(group)

    def get_or_create(self, group: str) -> SubscriptionGroupConfig | None:
        """Return a group's settings, creating the group if that is enabled and its name is valid."""
        found = self._groups.get(group)
        if found is None and self._config.auto_create_subscription_group and group_name_error(group) is None:
            found = SubscriptionGroupConfig(group_name=group)
            self.put(found)
        return found

    def put(self, group: SubscriptionGroupConfig) -> None:
        """Add or change a group."""
        self._groups[group.group_name] = group
        self.changes += 1

    def delete(self, group: str) -> None:
        """Delete a group if it exists."""
        if self._groups.pop(group, None) is not None:
            self.changes += 1


@attrs.frozen
class GroupMember:
    """A client in a group.

    Attributes:
        client_id: the client's id.
        language: its language code.
        version: the ordinal of its Java ``MQVersion``.
        last_heartbeat: the time of its last heartbeat, on trio's clock.
    """

    client_id: str
    language: int
    version: int
    last_heartbeat: float


class ConsumerGroup:
    """The members and subscriptions of a consumer group. Java: ``ConsumerGroupInfo``.

    Attributes:
        members: the members by connection, in the order in which they joined.
        subscriptions: the subscriptions by topic: those of the last heartbeat, in their newest version.
        consumer_data: the group's part of the last heartbeat.
    """

    def __init__(self, consumer_data: ConsumerData) -> None:
        self.members: dict[Connection, GroupMember] = {}
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.consumer_data = consumer_data

    @property
    def is_broadcasting(self) -> bool:
        """Whether each member receives every message."""
        return self.consumer_data.message_model == MessageModel.BROADCASTING

    def send_oneway(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> None:
        """Send a request to all members, except those that do not read: their requests would accumulate."""
        for connection in self.members:
            if not connection.is_closed and connection.has_space:
                connection.oneway_nowait(code, fields, body)

    def update_subscriptions(self, subscriptions: tuple[SubscriptionData, ...]) -> bool:
        """Replace the subscriptions by those of a heartbeat. Returns whether the set of topics changed."""
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

    def get(self, name: str) -> ConsumerGroup | None:
        """Return a group by name, or None if it has no member."""
        return self._groups.get(name)

    def record_heartbeat(
        self,
        connection: Connection,
        member: GroupMember,
        data: ConsumerData,
        *,
        with_subscriptions: bool,
        notify: bool,
    ) -> None:
        """Add or update a member.

        Without ``with_subscriptions`` (heartbeat V2), the subscriptions stay. With ``notify``, notify all
        members of a clustering group if the group or its topics changed.
        """
        group = self._groups.get(data.group_name)
        if group is None:
            group = self._groups[data.group_name] = ConsumerGroup(data)
        group.consumer_data = data
        changed = connection not in group.members
        group.members[connection] = member
        if with_subscriptions:
            changed |= group.update_subscriptions(data.subscription_data_set)
        if changed and notify:
            self._notify_members(data.group_name, group)

    def remove_member(self, name: str, connection: Connection, *, notify: bool) -> None:
        """Remove a member. With ``notify``, notify the others, even if the client was not a member."""
        group = self._groups.get(name)
        if group is None:
            return
        group.members.pop(connection, None)
        if not group.members:
            del self._groups[name]
        if notify:
            self._notify_members(name, group)

    def groups_of(self, connection: Connection) -> list[str]:
        """Return the names of the groups that have a member on this connection."""
        return [name for name, group in self._groups.items() if connection in group.members]

    def subscribers_of(self, topic: str) -> list[str]:
        """Return the names of the groups that subscribe to a topic."""
        return [name for name, group in self._groups.items() if topic in group.subscriptions]

    def silent_since(self, time: float) -> list[Connection]:
        """Return the connections of members without a heartbeat since ``time``, on trio's clock."""
        return [
            connection for group in self._groups.values() for connection in _silent_since(group.members, time)
        ]

    def shift_clock(self, seconds: float) -> None:
        """Keep the age of all heartbeats after trio's clock was advanced by ``seconds``."""
        for group in self._groups.values():
            _shift_clock(group.members, seconds)

    def _notify_members(self, name: str, group: ConsumerGroup) -> None:
        if group.is_broadcasting:
            return
        notice = NotifyConsumerIdsChangedRequest(consumer_group=name)
        group.send_oneway(notice.code, notice.to_fields())


class ProducerGroups:
    """All producer groups with members, and the connection of each of their clients."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[Connection, GroupMember]] = {}
        self._clients: dict[str, Connection] = {}
        self._choices = 0

    def connection_of(self, client_id: str) -> Connection | None:
        """Return a client's connection, or None if the client is not in a group.

        As on a real broker, a client that left one of its groups is not found either, until it joins another.
        """
        return self._clients.get(client_id)

    def record_heartbeat(self, name: str, connection: Connection, member: GroupMember) -> None:
        """Add or update a member."""
        members = self._groups.setdefault(name, {})
        if connection not in members:
            self._clients[member.client_id] = connection
        members[connection] = member

    def remove_member(self, name: str, connection: Connection) -> None:
        """Remove a member."""
        members = self._groups.get(name, {})
        member = members.pop(connection, None)
        if member is not None and self._clients.get(member.client_id) is connection:
            del self._clients[member.client_id]
        if not members:
            self._groups.pop(name, None)

    def members_of(self, name: str) -> Mapping[Connection, GroupMember] | None:
        """Return the members of a group, or None if it has none."""
        return self._groups.get(name)

    def names(self) -> list[str]:
        """Return the names of the groups."""
        return list(self._groups)

    def choose_member(self, name: str) -> Connection | None:
        """Return the next member, in turn, that can take a request; None if there is none."""
        ready = [
            connection
            for connection in self._groups.get(name, {})
            if not connection.is_closed and connection.has_space
        ]
        if not ready:
            return None
        self._choices += 1
        return ready[self._choices % len(ready)]

    def drop_connection(self, connection: Connection) -> None:
        """Remove the members of a closed connection."""
        for name in [name for name, members in self._groups.items() if connection in members]:
            self.remove_member(name, connection)

    def silent_since(self, time: float) -> list[Connection]:
        """Return the connections of members without a heartbeat since ``time``, on trio's clock."""
        return [
            connection for members in self._groups.values() for connection in _silent_since(members, time)
        ]

    def shift_clock(self, seconds: float) -> None:
        """Keep the age of all heartbeats after trio's clock was advanced by ``seconds``."""
        for members in self._groups.values():
            _shift_clock(members, seconds)


def _silent_since(members: Mapping[Connection, GroupMember], time: float) -> list[Connection]:
    return [connection for connection, member in members.items() if member.last_heartbeat < time]


def _shift_clock(members: dict[Connection, GroupMember], seconds: float) -> None:
    for connection, member in members.items():
        members[connection] = attrs.evolve(member, last_heartbeat=member.last_heartbeat + seconds)


# Queue locks

LOCK_SECONDS = 60.0
"""Seconds until a lock that is not renewed expires (rocketmq.broker.rebalance.lockMaxLiveTime)."""


@attrs.frozen
class _Lock:
    client_id: str
    locked_at: float

    @property
    def is_expired(self) -> bool:
        return trio.current_time() - self.locked_at > LOCK_SECONDS


class QueueLocks:
    """The queue locks of orderly groups: each queue of a group is locked by at most one client."""

    def __init__(self) -> None:
        self._locks: dict[str, dict[MessageQueue, _Lock]] = {}

    def lock(self, group: str, queues: Collection[MessageQueue], client_id: str) -> list[MessageQueue]:
        """Lock or renew queues. Returns those that the client holds now; others are locked by its peers."""
        locks = self._locks.setdefault(group, {})
        locked = []
        for queue in queues:
            lock = locks.get(queue)
            if lock is None or lock.client_id == client_id or lock.is_expired:
                locks[queue] = _Lock(client_id, trio.current_time())
                locked.append(queue)
        return locked

    def unlock(self, group: str, queues: Collection[MessageQueue], client_id: str) -> None:
        """Unlock those of the queues that the client has locked."""
        locks = self._locks.get(group, {})
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                del locks[queue]

    def clear(self) -> None:
        """Drop all locks, as stopping a broker does."""
        self._locks.clear()

    def shift_clock(self, seconds: float) -> None:
        """Keep the age of all locks after trio's clock was advanced by ``seconds``."""
        for locks in self._locks.values():
            for queue, lock in locks.items():
                locks[queue] = attrs.evolve(lock, locked_at=lock.locked_at + seconds)

    def is_orderly(self, group: str) -> bool:
        """Return whether any client of the group holds a lock, which means that it consumes in order."""
        return any(not lock.is_expired for lock in self._locks.get(group, {}).values())
