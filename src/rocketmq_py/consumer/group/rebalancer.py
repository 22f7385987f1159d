"""Rebalancing: distribute the queues of the subscribed topics among the members of a group."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, Protocol

import trio

from rocketmq_py.allocation import AllocateByBroker, AllocateStrategy, strategy_name
from rocketmq_py.client.core import ClientCore
from rocketmq_py.client.retry_log import RetryLog, RetryLogs
from rocketmq_py.client.routes import Route
from rocketmq_py.consumer.group.broker_assignment import BrokerAssignments, TopicAssignment
from rocketmq_py.errors import (
    NameServerError,
    RocketMQError,
    UnsupportedByBrokerError,
)
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import MessageQueue
from rocketmq_py.names import RETRY_PREFIX
from rocketmq_py.remoting.back_off import BackOff

logger: Final = LibraryLogger("rocketmq_py.consumer")

SLOW_LOOKUP_SECONDS = 0.3
"""Seconds after which the topics whose routes are known are rebalanced before the others."""
BACK_OFF: Final = BackOff(1.0, longest=5.0)
"""Seconds between incomplete rounds.

A consumer that starts while the brokers are away begins this soon after they are back. The time is not
shorter, because each round asks for the members of all topics.
"""


class RebalancerOwner(Protocol):
    """The member whose queues a rebalancer assigns."""

    def subscribed_topics(self) -> Collection[str]:
        """Return the topics subscribed now."""

    def assigned_topics(self) -> Collection[str]:
        """Return the topics of which the member has queues now."""

    async def assign(self, topic: str, queues: Collection[MessageQueue]) -> None:
        """Change the member's queues of a topic to these."""


class PoppingMember(Protocol):
    """The member whose popped queues a rebalancer assigns."""

    def assign_popped(self, topic: str, queues: Collection[MessageQueue]) -> None:
        """Change the queues of a topic that the member pops from to these."""


class Rebalancer:
    """Computes this member's queues and assigns them. Java: ``RebalanceImpl``.

    A round covers all subscribed topics. It runs every ``interval`` seconds, and at once when the members,
    a route or the subscriptions change. If a broker's list of members is empty or lacks this client it is out
    of date, and the assignment stays unchanged.

    Args:
        client: sends the requests. Its client id is the member's.
        group: the consumer group.
        owner: the member.
        allocate: chooses the member's queues of a topic, or leaves the choice to brokers (AllocateByBroker).
            None assigns all queues to every member.
        interval: seconds between two rounds.
        popping: the member, called only for topics whose queues brokers assign. None if it cannot pop.

    Attributes:
        is_alone: whether the group had no other member when queues were last allocated. If brokers assign
            them, whether this member had all queues of each topic. Popped queues belong to all members.
    """

    def __init__(
        self,
        client: ClientCore,
        group: str,
        owner: RebalancerOwner,
        *,
        allocate: AllocateStrategy | None,
        interval: float,
        popping: PoppingMember | None = None,
    ) -> None:
        self._client = client
        self._group = group
        self._allocate = allocate
        self._broker_assignments: BrokerAssignments | None = None
        if isinstance(allocate, AllocateByBroker):
            self._broker_assignments = BrokerAssignments(
                client, group, strategy_name(allocate), can_pop=popping is not None
            )
        self._interval = interval
        self._owner = owner
        self._popping = popping
        self._wake_up = trio.Event()
        self._must_send_heartbeat = True
        self.is_alone: bool = True
        # For each topic of this round whose queues brokers assign: whether this member has all of them.
        self._has_all_queues: list[bool] = []
        self._name_server_log = RetryLog(logger, "route lookup", group=group)
        self._topic_logs = RetryLogs(logger, "route lookup", "topic", group=group)
        self._assignment_logs = RetryLogs(logger, "queue assignment", "topic", group=group)
        self._member_logs = RetryLogs(logger, "member lookup", "broker", group=group)

    def wake(self) -> None:
        """Start a round now, because the group's members have changed."""
        self._wake_up.set()

    def announce(self) -> None:
        """Start a round now, after a heartbeat, because the subscriptions or the brokers have changed."""
        self._must_send_heartbeat = True
        self._wake_up.set()

    def route_changed(self, route: Route) -> None:
        """Start a round now if the route is that of a subscribed topic."""
        if route.topic in self._owner.subscribed_topics():
            self.announce()

    async def run(self) -> None:
        """Run rounds until cancelled."""
        failures = 0
        while True:
            if await self._round():
                pause, failures = self._interval, 0
            else:
                failures += 1
                pause = min(BACK_OFF.after(failures), self._interval)
            with trio.move_on_after(pause):
                await self._wake_up.wait()

    async def _round(self) -> bool:
        """Rebalance all topics. Return whether the round was complete."""
        topics = list(self._owner.subscribed_topics())
        known = [topic for topic in topics if self._is_known(topic)]
        if 0 < len(known) < len(topics):
            routes = await self._routes_after_known(known, topics)
        else:
            routes = await self._routes(topics)
        # Changes reported from here on start another round.
        self._wake_up = trio.Event()
        if any(topic not in topics for topic in self._owner.subscribed_topics()):
            self._wake_up.set()
        if self._must_send_heartbeat and routes:
            # Sent before the members are queried, so that brokers list this one.
            self._must_send_heartbeat = False
            await self._client.heartbeats.send()
        members = _MemberQueries(self._client, self._group, self._member_logs)
        is_complete = len(routes) == len(topics)
        self._has_all_queues = []
        for route in routes:
            is_complete &= await self._rebalance(route, members)
        if self._has_all_queues:
            self.is_alone = all(self._has_all_queues)
        subscribed = self._owner.subscribed_topics()
        for topic in [topic for topic in self._owner.assigned_topics() if topic not in subscribed]:
            await self._owner.assign(topic, ())
            if self._popping is not None:
                self._popping.assign_popped(topic, ())
        return is_complete

    def _is_known(self, topic: str) -> bool:
        route = self._client.routes.get_nowait(topic)
        return route is not None and not route.is_default

    async def _routes_after_known(self, known: Sequence[str], topics: Sequence[str]) -> list[Route]:
        """Return the routes of all topics. If that takes long, rebalance the known topics meanwhile.

        Lookups wait for name servers that cannot be reached.
        """
        with trio.move_on_after(SLOW_LOOKUP_SECONDS):
            return await self._routes(topics)
        members = _MemberQueries(self._client, self._group, self._member_logs)
        for route in await self._routes(known):
            await self._rebalance(route, members)
        return await self._routes(topics)

    async def _routes(self, topics: Sequence[str]) -> list[Route]:
        """Return the routes of the topics. Topics without one are logged and left out."""
        routes = []
        unanswered: NameServerError | None = None
        for topic in topics:
            route = self._client.routes.get_nowait(topic)
            if route is None or not self._is_known(topic):
                if unanswered is not None:
                    continue  # the name servers are unreachable, so further lookups would fail too
                try:
                    route = await self._client.routes.get(topic)
                except NameServerError as error:
                    unanswered = error
                    continue
                except RocketMQError as error:
                    self._name_server_log.succeeded()
                    # Not for the group's retry topic: brokers create it at the first heartbeat.
                    if not topic.startswith(RETRY_PREFIX):
                        self._topic_logs.failed(topic, error)
                    continue
                self._name_server_log.succeeded()
            self._topic_logs.succeeded(topic)
            routes.append(route)
        if unanswered is not None:
            names = ",".join([topic for topic in topics if not topic.startswith(RETRY_PREFIX)])
            addresses = self._client.name_servers.addresses
            self._name_server_log.failed(unanswered, topics=names, name_servers=addresses)
        return routes

    async def _rebalance(self, route: Route, members: _MemberQueries) -> bool:
        """Assign the member's queues of one topic. Return False if they could not be determined."""
        topic = route.topic
        if not route.read_queues:
            await self._owner.assign(topic, ())
            return False
        if self._allocate is None:
            await self._owner.assign(topic, route.read_queues)
            return True
        assignment = await self._choose(route, members, self._allocate)
        if assignment is None:
            return False
        # A queue that changes from pull to pop, or back, is revoked before it is assigned.
        if self._popping is not None and assignment.popped is not None and not assignment.popped:
            self._popping.assign_popped(topic, ())
        await self._owner.assign(topic, assignment.pulled)
        if self._popping is not None and assignment.popped:
            self._popping.assign_popped(topic, assignment.popped)
        return True

    async def _choose(
        self, route: Route, members: _MemberQueries, allocate: AllocateStrategy
    ) -> TopicAssignment | None:
        """Return this member's queues. None if they are unknown now: the member then keeps its queues."""
        assigned: TopicAssignment | None = None
        if self._broker_assignments is not None:
            try:
                assigned = await self._broker_assignments.query(route)
            except UnsupportedByBrokerError:
                pass  # the members allocate the queues themselves
            except RocketMQError as error:
                self._assignment_logs.failed(route.topic, error)
                return None
            else:
                self._assignment_logs.succeeded(route.topic)
        if assigned is not None:
            has_all = len(assigned.pulled) == len(route.read_queues)
            self._has_all_queues.append(bool(assigned.popped) or has_all)
        if assigned:
            return assigned
        # An empty assignment from a broker also means that it does not know this member yet.
        client_ids = await members.client_ids(route)
        if self._client.client_id not in client_ids:
            # No broker answered, or it has not received this member's heartbeat yet.
            self._must_send_heartbeat = True
            return None
        if assigned is not None:
            return assigned
        self.is_alone = len(client_ids) == 1
        return TopicAssignment(allocate(self._group, self._client.client_id, route.read_queues, client_ids))


class _MemberQueries:
    """Queries brokers for the members of the group, each broker at most once a round."""

    def __init__(self, client: ClientCore, group: str, logs: RetryLogs) -> None:
        self._client = client
        self._group = group
        self._logs = logs
        self._answers: dict[str, Sequence[str]] = {}

    async def client_ids(self, route: Route) -> Sequence[str]:
        """Return the members' client ids, sorted, from the first broker of the route that has any.

        Brokers that cannot be reached come last.
        """
        is_unreachable = self._client.brokers.is_unreachable
        for broker_name in sorted(route.brokers, key=lambda name: (is_unreachable(name), name)):
            client_ids = self._answers.get(broker_name)
            if client_ids is None:
                client_ids = self._answers[broker_name] = await self._query(broker_name)
            if client_ids:
                return client_ids
        return ()

    async def _query(self, broker_name: str) -> Sequence[str]:
        try:
            client_ids = await self._client.brokers.consumer_ids(self._group, broker_name)
        except RocketMQError as error:
            self._logs.failed(broker_name, error)
            return ()
        self._logs.succeeded(broker_name)
        # A broker that was frozen may list a member twice for a while, once for a closed connection.
        # Counting it twice would leave the queues of the second entry unassigned.
        return sorted(set(client_ids))
