"""Who of a group has which queues, looked at again whenever that may have changed."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final

import trio

from rocketmq_py.client.client import Client
from rocketmq_py.client.retry_log import RetryLog, RetryLogs
from rocketmq_py.client.routes import Route
from rocketmq_py.consumer.allocation.strategies import AllocateStrategy
from rocketmq_py.consumer.group.broker_assignment import AllocateByBroker, Assignments, TopicAssignment
from rocketmq_py.errors import (
    NameServerError,
    RocketMQError,
    UnsupportedByBrokerError,
)
from rocketmq_py.message import MessageQueue
from rocketmq_py.names import RETRY_PREFIX

logger: Final = logging.getLogger("rocketmq_py.consumer")

FIRST_RETRY_SECONDS = 1.0
"""After a round that could not settle everything the next one follows soon: after this, then doubled."""


class Rebalancer:
    """Asks who is in the group, and has each topic's queues assigned. Java: ``RebalanceImpl``.

    A round looks at every topic that is subscribed. It follows a broker's notice, a change of a route or
    of the subscriptions at once, and else after ``interval`` seconds. A list of members that is empty, or
    in which this client is missing, changes nothing: it is no basis to give queues away on.

    Args:
        client: the member.
        group: its group.
        allocate: chooses its queues of a topic, or has brokers do so; None gives every member all of them.
        interval: seconds between two rounds.
        topics: gives the topics that are subscribed now.
        assigned: topics of which it has queues now.
        assign: acquires and revokes queues so that it has those that it is called with.
        assign_popped: the same for those that the member pops from; called only for topics that brokers share
            out. None for a member that cannot pop.
    """

    def __init__(
        self,
        client: Client,
        group: str,
        *,
        allocate: AllocateStrategy | None,
        interval: float,
        topics: Callable[[], Collection[str]],
        assigned: Callable[[], Collection[str]],
        assign: Callable[[str, Collection[MessageQueue]], Awaitable[None]],
        assign_popped: Callable[[str, Collection[MessageQueue]], None] | None = None,
    ) -> None:
        self._client = client
        self._group = group
        self._allocate = allocate
        self._assignments: Assignments | None = None
        if isinstance(allocate, AllocateByBroker):
            self._assignments = Assignments(
                client, group, allocate.strategy_name, pops=assign_popped is not None
            )
        self._interval = interval
        self._topics = topics
        self._assigned = assigned
        self._assign = assign
        self._assign_popped = assign_popped
        self._wanted = trio.Event()
        self._must_announce = True
        self._name_server_log = RetryLog(logger, "route lookup", group=group)
        self._topic_logs = RetryLogs(logger, "route lookup", "topic", group=group)
        self._assignment_logs = RetryLogs(logger, "queue assignment", "topic", group=group)
        self._member_logs = RetryLogs(logger, "member lookup", "broker", group=group)

    def wake(self) -> None:
        """Have a round follow at once: the group's members have changed."""
        self._wanted.set()

    def announce(self) -> None:
        """Have a round follow at once, and brokers told before: subscriptions or brokers have changed."""
        self._must_announce = True
        self._wanted.set()

    def route_changed(self, route: Route) -> None:
        """Have a round follow if the route is one of a topic that is subscribed."""
        if route.topic in self._topics():
            self.announce()

    async def run(self) -> None:
        """Do rounds until cancelled."""
        retry = FIRST_RETRY_SECONDS
        while True:
            if await self._round():
                pause, retry = self._interval, FIRST_RETRY_SECONDS
            else:
                pause, retry = min(retry, self._interval), retry * 2
            with trio.move_on_after(pause):
                await self._wanted.wait()

    async def _round(self) -> bool:
        """Look at all topics; return whether everything could be settled."""
        topics = list(self._topics())
        routes = await self._routes(topics)
        # Whatever is reported from here on leads to another round.
        self._wanted = trio.Event()
        if any(topic not in topics for topic in self._topics()):
            self._wanted.set()
        if self._must_announce and routes:
            # Before asking who is there: brokers shall count this member.
            self._must_announce = False
            await self._client.heartbeats.send()
        members = _Members(self._client, self._group, self._member_logs)
        settled = len(routes) == len(topics)
        for route in routes:
            settled &= await self._rebalance(route, members)
        for topic in [topic for topic in self._assigned() if topic not in self._topics()]:
            await self._assign(topic, ())
            if self._assign_popped is not None:
                self._assign_popped(topic, ())
        return settled

    async def _routes(self, topics: Sequence[str]) -> list[Route]:
        """Return the routes of those topics that have one."""
        routes = []
        unanswered: NameServerError | None = None
        for topic in topics:
            route = self._client.routes.get_nowait(topic)
            if route is None or route.is_default:
                if unanswered is not None:
                    continue  # a lookup of each further topic would only take time
                try:
                    route = await self._client.routes.get(topic)
                except NameServerError as error:
                    unanswered = error
                    continue
                except RocketMQError as error:
                    self._name_server_log.succeeded()
                    # Users do not know the group's retry topic. Brokers create it at the first heartbeat.
                    if not topic.startswith(RETRY_PREFIX):
                        self._topic_logs.failed(topic, error)
                    continue
                self._name_server_log.succeeded()
            self._topic_logs.succeeded(topic)
            routes.append(route)
        if unanswered is not None:
            known = ",".join([topic for topic in topics if not topic.startswith(RETRY_PREFIX)])
            addresses = self._client.name_servers.addresses
            self._name_server_log.failed(unanswered, topics=known, name_servers=addresses)
        return routes

    async def _rebalance(self, route: Route, members: _Members) -> bool:
        topic = route.topic
        if not route.read_queues:
            await self._assign(topic, ())
            return False
        if self._allocate is None:
            await self._assign(topic, route.read_queues)
            return True
        assignment = await self._choose(route, members, self._allocate)
        if assignment is None:
            return False
        # What changes over from one to the other is first revoked, then acquired.
        if self._assign_popped is not None and assignment.popped is not None and not assignment.popped:
            self._assign_popped(topic, ())
        await self._assign(topic, assignment.pulled)
        if self._assign_popped is not None and assignment.popped:
            self._assign_popped(topic, assignment.popped)
        return True

    async def _choose(
        self, route: Route, members: _Members, allocate: AllocateStrategy
    ) -> TopicAssignment | None:
        """Return this member's queues; None if nobody can tell now, and it keeps what it has."""
        assigned: TopicAssignment | None = None
        if self._assignments is not None:
            try:
                assigned = await self._assignments.of(route)
            except UnsupportedByBrokerError:
                pass  # the members do it themselves
            except RocketMQError as error:
                self._assignment_logs.failed(route.topic, error)
                return None
            else:
                self._assignment_logs.succeeded(route.topic)
        if assigned:
            return assigned
        # Brokers that share out queues have none for a member that they do not know yet.
        client_ids = await members.seen_by(route)
        if self._client.client_id not in client_ids:
            # No broker answered, or its answer is older than this member's heartbeat.
            self._must_announce = True
            return None
        if assigned is not None:
            return assigned
        return TopicAssignment(allocate(self._group, self._client.client_id, route.read_queues, client_ids))


class _Members:
    """The members of the group, as the brokers see them; each broker is asked once."""

    def __init__(self, client: Client, group: str, logs: RetryLogs) -> None:
        self._client = client
        self._group = group
        self._logs = logs
        self._seen: dict[str, Sequence[str]] = {}

    async def seen_by(self, route: Route) -> Sequence[str]:
        """Return the members' client ids, sorted, from the first broker of the route that has any."""
        for broker_name in sorted(route.brokers):
            client_ids = self._seen.get(broker_name)
            if client_ids is None:
                client_ids = self._seen[broker_name] = await self._ask(broker_name)
            if client_ids:
                return client_ids
        return ()

    async def _ask(self, broker_name: str) -> Sequence[str]:
        try:
            client_ids = await self._client.brokers.consumer_ids(self._group, broker_name)
        except RocketMQError as error:
            self._logs.failed(broker_name, error)
            return ()
        self._logs.succeeded(broker_name)
        # A broker that was frozen may list a member twice for a while, once for a connection that is gone.
        # Sharing the queues with that one would leave half of them to nobody.
        return sorted(set(client_ids))
