"""The routes of topics: their queues and brokers, refreshed in the background."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from weakref import WeakValueDictionary

import attrs
import trio

from rocketmq_py.client.name_servers import NameServers
from rocketmq_py.client.retry_log import RetryLog, RetryLogs
from rocketmq_py.error_texts import allow_reading, shortened
from rocketmq_py.errors import NameServerError, NoQueueError, RocketMQError, TopicNotFoundError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import MessageQueue
from rocketmq_py.names import DEFAULT_TOPIC, RETRY_PREFIX
from rocketmq_py.protocol.bodies import GLOBAL_SCOPE, MASTER_ID, READABLE, WRITABLE, TopicRoute
from rocketmq_py.queues import LOGICAL_BROKER_PREFIX, logical_queue
from rocketmq_py.remoting.back_off import BackOff
from rocketmq_py.remoting.nurseries import open_nursery

DEFAULT_TOPIC_QUEUES: Final = 4
"""The largest number of queues of a topic that a broker creates. Java: ``defaultTopicQueueNums``."""

logger: Final = LibraryLogger("rocketmq_py.client")

INVALIDATED_PAUSE = 0.05
"""Seconds between an error that invalidates a route and its refresh, because many sends fail at once."""

BACK_OFF: Final = BackOff(0.1, longest=1.0)
"""Seconds between two requests for a route that a name server does not know now."""

MISSING_PAUSE = 1.0
"""Seconds between two requests for a topic that does not exist yet."""


@attrs.frozen
class Route:
    """The route of a topic. Java: ``TopicPublishInfo`` and the subscribe info.

    Attributes:
        topic: the topic.
        write_queues: the writable queues that have a master.
        read_queues: the readable queues, sorted.
        brokers: the addresses of each broker, by broker name and broker id. 0 is the master.
        logical_brokers: the same for the broker names of the logical queues of a static topic (5.x).
        is_default: whether the topic does not exist yet. The queues are those that a broker would create.
    """

    topic: str
    write_queues: tuple[MessageQueue, ...]
    read_queues: tuple[MessageQueue, ...]
    brokers: Mapping[str, Mapping[int, str]]
    is_default: bool = False
    logical_brokers: Mapping[str, Mapping[int, str]] = attrs.field(factory=dict)

    def queues_to_write(self) -> tuple[MessageQueue, ...]:
        """Return the ``write_queues``. Raises NoQueueError if there are none."""
        if not self.write_queues:
            error = NoQueueError(f"topic {self.topic!r} has no queue that may be written to and has a master")
            # Without any master, the topic may be writable when they are back.
            error._not_reached = not any(MASTER_ID in addresses for addresses in self.brokers.values())
            raise error
        return self.write_queues

    def queues_to_read(self) -> tuple[MessageQueue, ...]:
        """Return the ``read_queues``. Raises NoQueueError if there are none."""
        if not self.read_queues:
            advice = f": it may only be written to; {allow_reading(self.topic)}" if self.write_queues else ""
            raise NoQueueError(f"topic {self.topic!r} has no readable queue{advice}", self.topic)
        return self.read_queues

    @classmethod
    def of(cls, topic: str, wire: TopicRoute) -> Route:
        """Return the route that a name server's answer describes."""
        brokers = {broker.broker_name: broker.broker_addrs for broker in wire.broker_datas}
        if wire.queue_mappings and wire.order_topic_conf is None:
            return cls._of_static_topic(topic, wire, brokers)
        queues = sorted(wire.queue_datas, key=lambda queue: queue.broker_name)
        write_queues = [
            MessageQueue(topic, queue.broker_name, queue_id)
            for queue in queues
            if queue.perm & WRITABLE and MASTER_ID in brokers.get(queue.broker_name, {})
            for queue_id in range(queue.write_queue_nums)
        ]
        if wire.order_topic_conf:
            write_queues = [
                MessageQueue(topic, broker_name, queue_id)
                for broker_name, count in wire.ordered_queues()
                for queue_id in range(count)
            ]
        read_queues = [
            MessageQueue(topic, queue.broker_name, queue_id)
            for queue in queues
            if queue.perm & READABLE
            for queue_id in range(queue.read_queue_nums)
        ]
        return cls(topic, tuple(write_queues), tuple(read_queues), brokers)

    @classmethod
    def _of_static_topic(
        cls, topic: str, wire: TopicRoute, brokers: Mapping[str, Mapping[int, str]]
    ) -> Route:
        """Return the route of a static topic. Java: ``topicRouteData2EndpointsForStaticTopic``."""
        write_queues: list[MessageQueue] = []
        read_queues: list[MessageQueue] = []
        logical_brokers: dict[str, Mapping[int, str]] = {}
        for scope, of_scope in wire.logical_queues().items():
            # Java's prefix ends with "__", and the global scope begins with it.
            java_name = LOGICAL_BROKER_PREFIX + (scope[2:] if scope == GLOBAL_SCOPE else scope)
            for number, broker_name in enumerate(of_scope):
                queue = logical_queue(topic, java_name, number)
                addresses = logical_brokers[queue.broker_name] = brokers.get(broker_name or "", {})
                read_queues.append(queue)
                if MASTER_ID in addresses:
                    write_queues.append(queue)
        return cls(topic, tuple(write_queues), tuple(read_queues), brokers, logical_brokers=logical_brokers)

    @classmethod
    def of_default(cls, topic: str, wire: TopicRoute, most_queues: int) -> Route:
        """Return the route of a topic that a broker will create, from the route of the default topic."""
        brokers = {broker.broker_name: broker.broker_addrs for broker in wire.broker_datas}
        write_queues = [
            MessageQueue(topic, queue.broker_name, queue_id)
            for queue in sorted(wire.queue_datas, key=lambda queue: queue.broker_name)
            if queue.perm & WRITABLE and MASTER_ID in brokers.get(queue.broker_name, {})
            for queue_id in range(min(most_queues, queue.read_queue_nums))
        ]
        return cls(topic, tuple(write_queues), (), brokers, is_default=True)


class Routes:
    """The routes of all topics in use. Concurrent requests for the same topic are coalesced.

    Args:
        name_servers: provide the routes.
        refresh_interval: seconds between two refreshes of all routes.
        on_change: called with each new or changed route.

    Attributes:
        version: incremented with each change of a route or of a broker's addresses.
        replaced_addresses: former addresses of brokers, which are in no route any more. Whoever closes their
            connections removes them from this set.
    """

    def __init__(
        self,
        name_servers: NameServers,
        *,
        refresh_interval: float,
        on_change: Callable[[Route], None],
    ) -> None:
        self._name_servers = name_servers
        self._refresh_interval = refresh_interval
        self._on_change = on_change
        self._routes: dict[str, Route] = {}
        self._refreshed_at: dict[str, float] = {}
        self._outdated: set[str] = set()
        self._name_server_log = RetryLog(logger, "route refresh")
        self._topic_logs = RetryLogs(logger, "route refresh", "topic")
        # Locks of requests in flight. Weak, because users may request any number of missing topics.
        self._locks: WeakValueDictionary[str, trio.Lock] = WeakValueDictionary()
        self._brokers: dict[str, Mapping[int, str]] = {}
        self._some_outdated = trio.Event()
        self._refreshed: dict[str, trio.Event] = {}  # set by the next refresh of a topic
        self.version: int = 0
        self.replaced_addresses: set[str] = set()

    def get_nowait(self, topic: str) -> Route | None:
        """Return the known route of a topic, else None."""
        return self._routes.get(topic)

    async def get(self, topic: str, *, for_sending: bool = False) -> Route:
        """Return the route of a topic. If it is unknown, request it from a name server.

        Args:
            topic: the topic.
            for_sending: if the topic does not exist, return the queues that a broker would create.

        Raises:
            TopicNotFoundError: the topic does not exist, and no broker would create it.
            NameServerError: no name server answered.
            BrokerError: a name server answered with an error.
        """
        route = self._routes.get(topic)
        if route is None or (route.is_default and not for_sending):
            async with self._locks.setdefault(topic, trio.Lock()):
                route = self._routes.get(topic)  # another task may have got it while this one waited
                if route is None or (route.is_default and not for_sending):
                    route = await self.refresh(topic, for_sending=for_sending)
        return route

    async def get_before(self, topic: str, deadline: float, *, for_sending: bool = False) -> Route:
        """Return the route of a topic. Repeat the request until ``deadline`` while there is no answer.

        Also repeats it while no broker is registered at the name servers. Other errors are raised at once.

        Args:
            topic: the topic.
            deadline: trio's time.
            for_sending: as for :meth:`get`.

        Raises as :meth:`get`, and RequestTimeoutError if the name servers can be reached but do not answer.
        """
        started = trio.current_time()
        last_error: RocketMQError | None = None
        with trio.move_on_at(deadline):
            for failures in itertools.count(1):
                try:
                    return await self.get(topic, for_sending=for_sending)
                except RocketMQError as error:
                    # A broker may have registered between two requests of the first attempt that it answers.
                    if not (error._not_reached or (last_error is not None and last_error._not_reached)):
                        raise
                    last_error = error
                await trio.sleep(BACK_OFF.after(failures))
        raise last_error or self._name_servers.not_answered(deadline - started)

    async def find(self, topic: str, *, for_sending: bool = False) -> Route:
        """Return the route of a topic, for calls that may wait until a broker is registered.

        Arguments and errors are those of :meth:`get`. See :meth:`NameServers.until_registered`.
        """
        return await self._name_servers.until_registered(lambda: self.get(topic, for_sending=for_sending))

    async def wait_for(self, topic: str, *, interval: float = MISSING_PAUSE) -> Route:
        """Return the route of a topic. Repeat the request every ``interval`` seconds until the topic exists.

        The errors of name servers are ignored.
        """
        while True:
            try:
                return await self.get(topic)
            except RocketMQError:
                await trio.sleep(interval)

    async def refresh(self, topic: str, *, for_sending: bool = False) -> Route:
        """Request the route of a topic from a name server now. Raises as :meth:`get`."""
        try:
            route = Route.of(topic, await self._name_servers.route(topic))
        except TopicNotFoundError as error:
            if not for_sending:
                raise
            route = await self._default_route(topic, error)
        self._refreshed_at[topic] = trio.current_time()
        if route != self._routes.get(topic):
            self._routes[topic] = route
            before = self._addresses()
            self._brokers.update(route.brokers)
            self._brokers.update(route.logical_brokers)
            self._note_replaced(before)
            self.version += 1
            self._on_change(route)
        return route

    async def _default_route(self, topic: str, missing: TopicNotFoundError) -> Route:
        try:
            wire = await self._name_servers.route(DEFAULT_TOPIC)
        except TopicNotFoundError:
            # The brokers or the name server may have just been started. The topic may exist.
            await self._name_servers.has_no_broker(missing)
            raise missing from None
        return Route.of_default(topic, wire, DEFAULT_TOPIC_QUEUES)

    def invalidate(self, topic: str) -> None:
        """Refresh the route of a topic soon, because an error has shown that it is outdated.

        Until then the old route remains in use. Its other brokers may be fine.
        """
        if topic in self._routes:
            self._outdated.add(topic)
            self._some_outdated.set()

    async def wait_for_refresh(self, topic: str) -> None:
        """Invalidate the route of a topic, and wait until the refresh has ended. It may have failed."""
        if topic in self._routes:
            self.invalidate(topic)
            await self._refreshed.setdefault(topic, trio.Event()).wait()

    def master_address_nowait(self, broker_name: str) -> str | None:
        """Return the address of a broker's master, or None if it is unknown."""
        addresses = self._brokers.get(broker_name)
        return None if addresses is None else addresses.get(MASTER_ID)

    def broker_address(self, broker_name: str, *, broker_id: int = MASTER_ID, any_id: bool = False) -> str:
        """Return the address of a broker. Raises NoQueueError if it is unknown.

        Args:
            broker_name: the name of the broker.
            broker_id: the master, or a replica.
            any_id: accept any broker of this name if this one is unknown.
        """
        addresses = self._brokers.get(broker_name, {})
        address = addresses.get(broker_id)
        if address is None and any_id and addresses:
            address = addresses[min(addresses)]
        if address is None:
            role = "master" if broker_id == MASTER_ID else f"replica {broker_id}"
            error = NoQueueError(f"the address of the {role} of broker {broker_name!r} is unknown")
            error._not_reached = True  # it may register at the name servers again
            raise error
        return address

    def brokers(self) -> Mapping[str, Mapping[int, str]]:
        """Return the addresses of all brokers of the routes in use, by broker name and broker id."""
        return self._brokers

    def topics(self) -> Sequence[str]:
        """Return the topics in use."""
        return list(self._routes)

    def oldest_age(self) -> float | None:
        """Return the seconds since the refresh of the oldest route. None without routes."""
        oldest = min(self._refreshed_at.values(), default=None)
        return None if oldest is None else trio.current_time() - oldest

    async def run(self) -> None:
        """Refresh all routes every ``refresh_interval`` seconds, and outdated routes at once."""
        async with open_nursery() as nursery:
            nursery.start_soon(self._refresh_all)
            nursery.start_soon(self._refresh_outdated)

    async def _refresh_all(self) -> None:
        next_round = trio.current_time() + self._refresh_interval
        while True:
            await trio.sleep_until(next_round)
            next_round = trio.current_time() + self._refresh_interval
            self._forget_brokers_without_route()
            for topic in sorted(self._routes):
                await self._refresh_in_background(topic)

    async def _refresh_outdated(self) -> None:
        """Refresh outdated routes. A task of its own, because a round over many topics may take long."""
        while True:
            await self._some_outdated.wait()
            await trio.sleep(INVALIDATED_PAUSE)
            self._some_outdated = trio.Event()
            outdated, self._outdated = self._outdated, set()
            for topic in sorted(outdated):
                refreshed = self._refreshed.pop(topic, None)
                await self._refresh_in_background(topic)
                if refreshed is not None:
                    refreshed.set()

    async def _refresh_in_background(self, topic: str) -> None:
        try:
            async with self._locks.setdefault(topic, trio.Lock()):
                await self.refresh(topic, for_sending=self._routes[topic].is_default)
        except NameServerError as error:
            if self._name_servers.is_closed:
                return
            # The old routes remain in use. Sends must not fail because the name servers are down.
            topics = shortened(",".join(sorted(filter(_is_user_topic, self._routes))))
            self._name_server_log.failed(error, topics=topics, name_servers=self._name_servers.addresses)
        except RocketMQError as error:
            self._name_server_log.succeeded()
            self._topic_logs.failed(topic, error)
        else:
            self._name_server_log.succeeded()
            self._topic_logs.succeeded(topic)

    def _forget_brokers_without_route(self) -> None:
        routed = {
            name for route in self._routes.values() for name in (*route.brokers, *route.logical_brokers)
        }
        before = self._addresses()
        for name in self._brokers.keys() - routed:
            del self._brokers[name]
            self.version += 1
        self._note_replaced(before)

    def _addresses(self) -> set[str]:
        return {address for addresses in self._brokers.values() for address in addresses.values()}

    def _note_replaced(self, before: set[str]) -> None:
        self.replaced_addresses |= before
        self.replaced_addresses -= self._addresses()


def _is_user_topic(topic: str) -> bool:
    return not topic.startswith(RETRY_PREFIX)
