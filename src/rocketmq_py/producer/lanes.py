"""Where requests go: the queue that is chosen, and the connection to its broker.

What is the same for all requests to a queue is found once and kept in a :class:`Lane`; most sends find theirs
by its place in a list.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import trio

from rocketmq_py.client.client import Client
from rocketmq_py.client.routes import Route
from rocketmq_py.codes import V5_0_0_SNAPSHOT
from rocketmq_py.errors import (
    Delivery,
    InvalidMessageError,
    RequestTimeoutError,
    RocketMQError,
    UnsupportedByBrokerError,
)
from rocketmq_py.message import MessageQueue
from rocketmq_py.producer.latency_faults import LatencyFaults
from rocketmq_py.producer.queue_choice import FaultAwareRoundRobin, RoundRobin
from rocketmq_py.producer.selectors import select
from rocketmq_py.producer.send_request import SendRequest
from rocketmq_py.protocol.send_request import HeaderTemplate, SendRequestBuilder
from rocketmq_py.remoting import Connection


class Lane:
    """The way to one queue.

    Attributes:
        queue: where it leads.
        connection: the broker's, if it was used already; it may have ended since.
        template: what writes the headers of requests, from the first connection on.
    """

    __slots__ = ("connection", "queue", "template")

    def __init__(self, queue: MessageQueue) -> None:
        self.queue: MessageQueue = queue
        self.connection: Connection | None = None
        self.template: HeaderTemplate | None = None


class TopicLanes:
    """The lanes of one kind of requests to one topic, as long as its route stays the same.

    Attributes:
        route: the route.
        changes: how often any route had changed when the connections were known to be right.
        all: the lanes, in the order of the route's queues to write to.
        turn: which of them is the next.
    """

    __slots__ = ("_by_queue", "all", "changes", "route", "turn")

    def __init__(self, route: Route, turn: itertools.count[int]) -> None:
        self.route: Route = route
        self.changes: int = -1
        self.all: list[Lane] = [Lane(queue) for queue in route.write_queues]
        self.turn: Final = turn
        self._by_queue: dict[MessageQueue, Lane] | None = None

    def to(self, queue: MessageQueue) -> Lane:
        """Return the lane to a queue; one for this time only if the queue is not in the route."""
        if self._by_queue is None:
            self._by_queue = {lane.queue: lane for lane in self.all}
        return self._by_queue.get(queue) or Lane(queue)


class Lanes:
    """Finds the way of each request of one producer.

    Args:
        client: routes, connections and heartbeats.
        faults: what is held against which broker, if that is looked at.
        rng: where turns begin.
    """

    def __init__(self, client: Client, faults: LatencyFaults | None, rng: random.Random) -> None:
        self._client = client
        self._faults = faults
        self._choice = RoundRobin(rng) if faults is None else FaultAwareRoundRobin(faults, rng)

    def take(self, request: SendRequest) -> Connection | None:
        """Choose a queue for a request whose topic's route is known.

        Returns the connection to its broker, or None if there is none yet that it may be written to.
        Raises NoQueueError, InvalidMessageError, and what a selector raises.
        """
        lanes = request.form.lanes
        if lanes is None or lanes.changes != self._client.routes.changes:
            lanes = self._renewed(request)
        if (
            request.fixed_queue is None
            and request.selector is None
            and request.failed_broker is None
            and (self._faults is None or self._faults.all_clear)
            and lanes.all
        ):
            lane = lanes.all[next(lanes.turn) % len(lanes.all)]
        else:
            lane = lanes.to(self._choose(lanes.route, request))
        request.queue = lane.queue
        connection = lane.connection
        if connection is None or not connection.is_usable:
            connection = lane.connection = self._connection_nowait(lane.queue)
            if connection is None:
                request.template = None
                return None
            if lane.template is None:
                lane.template = request.form.template(lane.queue.queue_id, lane.queue.broker_name)
        request.template = lane.template
        if request.wants_heartbeat and not self._is_introduced(connection, request):
            return None
        return connection

    def again(self, request: SendRequest) -> Connection | None:
        """Return the connection to the broker of the queue that was chosen, as :meth:`take` does."""
        assert request.queue is not None
        connection = self._connection_nowait(request.queue)
        if connection is None or (request.wants_heartbeat and not self._is_introduced(connection, request)):
            return None
        return connection

    async def find(self, request: SendRequest) -> Connection:
        """As :meth:`take`, but wait for all that is missing: the route, a connection, a heartbeat.

        The queue of a request that is aimed at one stays.
        """
        if request.form.lanes is None:
            await self.find_route(request)
        connection = self.again(request) if request.is_aimed else self.take(request)
        request.is_aimed = False
        return connection or await self.connect(request)

    async def find_route(self, request: SendRequest) -> None:
        """Have the route of the request's topic known; its try begins when it is."""
        routes = self._client.routes
        if routes.get_nowait(request.topic) is not None:
            return
        with trio.move_on_at(request.send_deadline) as waiting, nothing_sent():
            await routes.get(request.topic, for_sending=True)
        if waiting.cancelled_caught:
            names = self._client.name_servers.addresses
            raise RequestTimeoutError(names, request.send_timeout, Delivery.NOT_SENT)
        request.begin_try(trio.current_time())  # how long the name server took is not held against the broker

    async def connect(self, request: SendRequest) -> Connection:
        """Return the connection to the broker of the queue that was chosen: dial, introduce where needed."""
        assert request.queue is not None
        with nothing_sent():
            connection = await self._reach(
                request.queue.broker_name, request.deadline, introduced=request.wants_heartbeat
            )
            if _is_too_old(connection, request):
                raise UnsupportedByBrokerError(
                    f"{connection.address} is older than 5.0 and would deliver a message with an exact "
                    "time at once; use delay_level, or a relay (delay_relay)"
                )
        return connection

    async def keeps_times(self, topic: str, timeout: float) -> bool:
        """Ask whether all brokers that messages of a topic may go to keep exact times (5.x).

        Within ``timeout`` seconds. Raises what a send raises that finds no broker.
        """
        end = trio.current_time() + timeout
        with trio.move_on_at(end) as waiting, nothing_sent():
            route = await self._client.routes.get(topic, for_sending=True)
            for broker_name in dict.fromkeys(queue.broker_name for queue in route.write_queues):
                connection = await self._reach(broker_name, end, introduced=True)
                if connection.peer_version < V5_0_0_SNAPSHOT:
                    return False
        if waiting.cancelled_caught:
            raise RequestTimeoutError(self._client.name_servers.addresses, timeout, Delivery.NOT_SENT)
        return True

    def has_other_broker(self, request: SendRequest) -> bool:
        """Whether a request that failed may go to another broker than the one where it did."""
        route = self._client.routes.get_nowait(request.topic)
        if route is None or request.fixed_queue is not None:
            return False
        return any(queue.broker_name != request.failed_broker for queue in route.write_queues)

    def _renewed(self, request: SendRequest) -> TopicLanes:
        """Return the lanes for the present route; all connections are looked up anew."""
        routes = self._client.routes
        route = routes.get_nowait(request.topic)
        assert route is not None, "no route is ever forgotten"
        lanes = request.form.lanes
        if lanes is None or lanes.route is not route:
            lanes = request.form.lanes = TopicLanes(route, self._choice.turn(route.topic))
        for lane in lanes.all:
            lane.connection = None
        lanes.changes = routes.changes
        return lanes

    def _choose(self, route: Route, request: SendRequest) -> MessageQueue:
        if request.fixed_queue is not None:
            return request.fixed_queue
        if request.selector is None:
            return self._choice.choose(route, request.failed_broker)
        queues = route.queues_to_write()
        try:
            queue = select(request.selector, queues, request.messages[0])
        except RocketMQError:
            raise
        except Exception as error:
            if not request.in_background:
                raise
            raise InvalidMessageError(f"the queue selector raised {error!r}") from error
        request.fixed_queue = queue
        return queue

    def _connection_nowait(self, queue: MessageQueue) -> Connection | None:
        address = self._client.routes.master_address_nowait(queue.broker_name)
        channel = self._client.brokers.channel(address) if address else None
        return self._client.connections.get_nowait(channel) if channel else None

    async def _reach(self, broker_name: str, end: float, *, introduced: bool) -> Connection:
        """Return a connection to a broker's master; with ``introduced``, one over which it knows us."""
        address = self._client.brokers.channel(self._client.routes.broker_address(broker_name))
        connection = await self._client.connections.get_before(address, end)
        if introduced:
            left = max(end - trio.current_time(), 0.0)
            await self._client.heartbeats.ensure_heard(connection, timeout=left)
        return connection

    def _is_introduced(self, connection: Connection, request: SendRequest) -> bool:
        return self._client.heartbeats.is_heard_on(connection) and not _is_too_old(connection, request)


class TopicForm(SendRequestBuilder):
    """What the requests of one kind to one topic have in common, and the ways that they go.

    Attributes:
        lanes: as far as they are known.
    """

    lanes: TopicLanes | None  # set by who makes it: one that is on the class takes longer to look up


@contextmanager
def nothing_sent() -> Iterator[None]:
    """Mark errors: what failed was not the message's own request, whatever is known of that one's."""
    try:
        yield
    except RocketMQError as error:
        error.delivery = Delivery.NOT_SENT
        raise


def _is_too_old(connection: Connection, request: SendRequest) -> bool:
    return request.is_timed and connection.peer_version < V5_0_0_SNAPSHOT
