"""The router of send requests: from a request to a queue, and to the connection to its broker."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from contextlib import contextmanager

import attrs
import trio

from rocketmq_py.client.client import Client
from rocketmq_py.client.routes import Route
from rocketmq_py.codes import V5_0_0_SNAPSHOT, V5_5_0
from rocketmq_py.errors import Delivery, RequestTimeoutError, RocketMQError, UnsupportedByBrokerError
from rocketmq_py.message import MessageQueue
from rocketmq_py.producer.latency_faults import LatencyFaults
from rocketmq_py.producer.queue_choice import QueueChoice
from rocketmq_py.producer.send_request import SendRequest
from rocketmq_py.protocol.send_request import HeaderTemplate, SendRequestBuilder
from rocketmq_py.remoting import Connection

MAX_CACHED_TARGETS = 4096
"""The largest number of cached entries, one per topic and request code. The cache is cleared when it is
full."""


class QueueTarget:
    """A queue, the template of its requests' headers, and the connection that the last one was written to."""

    __slots__ = ("connection", "queue", "template")

    def __init__(self, queue: MessageQueue, header_builder: SendRequestBuilder) -> None:
        self.queue: MessageQueue = queue
        self.template: HeaderTemplate | None = header_builder.template(queue.queue_id, queue.broker_name)
        self.connection: Connection | None = None


@attrs.frozen
class CachedTargets:
    """The targets of one topic and kind of requests, valid for one version of the routes."""

    targets: list[QueueTarget]
    counter: itertools.count[int]
    routes_version: int


class RequestRouter:
    """Chooses the queue of each request of a producer, and finds the connection to its broker.

    Args:
        client: provides routes, connections and heartbeats.
        faults: the brokers to avoid. None without the latency-fault strategy.
        rng: chooses the first queue of each topic.
    """

    def __init__(self, client: Client, faults: LatencyFaults | None, rng: random.Random) -> None:
        self._client = client
        self._faults = faults
        self._choice = QueueChoice(faults, rng)
        self._cached_targets: dict[tuple[str, int], CachedTargets] = {}  # by topic and request code

    def choose_queue(self, request: SendRequest, route: Route) -> Connection | None:
        """Choose the queue of a request for its next attempt.

        Returns the connection to the queue's broker. None if there is none, or none that the request may be
        written to before a heartbeat.

        Raises:
            NoQueueError, InvalidMessageError, and the exceptions of a selector.
        """
        # Fast path: the cached connection and header of the next queue, saves 5 % of pipelined.
        if (
            request.fixed_queue is None
            and request.selector is None
            and request.failed_broker is None
            and (self._faults is None or self._faults.all_clear)
            and route.write_queues
        ):
            cached = self._cached_targets.get((request.topic, request.code))
            if cached is None or cached.routes_version != self._client.routes.version:
                cached = self._cache_targets(request, route)
            target = cached.targets[next(cached.counter) % len(cached.targets)]
            request.queue, request.template = target.queue, target.template
            connection = target.connection
            if connection is None or not connection.is_usable or request.wants_heartbeat:
                connection = target.connection = self.connection_nowait(request)
            return connection
        queue = request.queue = self._choice.choose(route, request)
        request.template = request.header_builder.template(queue.queue_id, queue.broker_name)
        return self.connection_nowait(request)

    def _cache_targets(self, request: SendRequest, route: Route) -> CachedTargets:
        if len(self._cached_targets) >= MAX_CACHED_TARGETS:
            self._cached_targets.clear()
        cached = self._cached_targets[request.topic, request.code] = CachedTargets(
            targets=[QueueTarget(queue, request.header_builder) for queue in route.write_queues],
            counter=self._choice.counter(route.topic),
            routes_version=self._client.routes.version,
        )
        return cached

    def connection_nowait(self, request: SendRequest) -> Connection | None:
        """Return the connection to the broker of the chosen queue. None as for :meth:`choose_queue`."""
        assert request.queue is not None
        address = self._client.routes.master_address_nowait(request.queue.broker_name)
        if address is None:
            return None
        connection = self._client.connections.get_nowait(self._client.brokers.request_address(address))
        if request.wants_heartbeat and connection is not None:
            knows_client = self._client.heartbeats.is_current_on(connection)
            return connection if knows_client and not _is_too_old(connection, request) else None
        return connection

    async def route(self, request: SendRequest) -> Connection:
        """Choose the queue of a request, and return the connection to its broker.

        Waits for the route, the connection and the heartbeat, as needed. A queue that is chosen already is
        kept.
        """
        route = self._client.routes.get_nowait(request.topic) or await self.wait_for_route(request)
        is_chosen, request.is_queue_chosen = request.is_queue_chosen, False
        connection = self.connection_nowait(request) if is_chosen else self.choose_queue(request, route)
        return connection or await self.connect(request)

    async def wait_for_route(self, request: SendRequest) -> Route:
        """Ask for the route of the request's topic. The attempt starts when it is known."""
        with trio.move_on_at(request.send_deadline), nothing_sent():
            route = await self._client.routes.get(request.topic, for_sending=True)
            # The latency of the name server does not count against the broker.
            request.start_attempt(trio.current_time())
            return route
        addresses = self._client.name_servers.addresses
        raise RequestTimeoutError(addresses, request.send_timeout, Delivery.NOT_SENT)

    async def connect(self, request: SendRequest) -> Connection:
        """Dial the broker of the chosen queue, send a heartbeat if needed, and return the connection."""
        assert request.queue is not None
        with nothing_sent():
            connection = await self._connect(
                request.queue.broker_name, request.deadline, heartbeat=request.wants_heartbeat
            )
            if _is_too_old(connection, request):
                if request.is_lite:
                    raise UnsupportedByBrokerError(
                        f"broker {connection.address} is older than 5.5.0 and has no lite topics; no "
                        "consumer would receive the message"
                    )
                raise UnsupportedByBrokerError(
                    f"broker {connection.address} is older than 5.0 and would deliver a timed message at "
                    "once; use delay_level, or a relay (delay_relay)"
                )
        return connection

    async def supports_timed(self, topic: str, timeout: float) -> bool:
        """Ask the brokers of a topic whether all of them support timed messages (5.x).

        Raises the errors of a send that cannot reach a broker within ``timeout`` seconds.
        """
        deadline = trio.current_time() + timeout
        with trio.move_on_at(deadline) as scope, nothing_sent():
            route = await self._client.routes.get(topic, for_sending=True)
            for broker_name in dict.fromkeys(queue.broker_name for queue in route.write_queues):
                connection = await self._connect(broker_name, deadline, heartbeat=True)
                if connection.peer_version < V5_0_0_SNAPSHOT:
                    return False
        if scope.cancelled_caught:
            raise RequestTimeoutError(self._client.name_servers.addresses, timeout, Delivery.NOT_SENT)
        return True

    def has_other_broker(self, request: SendRequest) -> bool:
        """Whether a failed request may be sent to a broker other than the one that failed.

        Never for a static topic: its queues move together, and a retry has to wait for the new route.
        """
        route = self._client.routes.get_nowait(request.topic)
        if route is None or request.fixed_queue is not None or route.logical_brokers:
            return False
        return any(queue.broker_name != request.failed_broker for queue in route.write_queues)

    async def _connect(self, broker_name: str, deadline: float, *, heartbeat: bool) -> Connection:
        """Return a connection to a broker's master. With ``heartbeat``, the broker knows this client."""
        address = self._client.brokers.request_address(self._client.routes.broker_address(broker_name))
        connection = await self._client.connections.get_before(address, deadline)
        if heartbeat:
            timeout = max(deadline - trio.current_time(), 0.0)
            await self._client.heartbeats.ensure_current(connection, timeout=timeout)
        return connection


@contextmanager
def nothing_sent() -> Iterator[None]:
    """Set the ``delivery`` of errors to NOT_SENT: the block sends other requests, not the message."""
    try:
        yield
    except RocketMQError as error:
        error.delivery = Delivery.NOT_SENT
        raise


def _is_too_old(connection: Connection, request: SendRequest) -> bool:
    if request.is_lite:
        return connection.peer_version < V5_5_0
    return request.is_timed and connection.peer_version < V5_0_0_SNAPSHOT
