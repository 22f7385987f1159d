"""The router of send requests: from a request to a queue, and to the connection to its broker."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import attrs
import trio

from rocketmq_py.client.core import ClientCore
from rocketmq_py.client.features import TIMED_MESSAGES
from rocketmq_py.client.routes import Route
from rocketmq_py.errors import (
    ConnectError,
    ConnectionLostError,
    Delivery,
    RequestTimeoutError,
    RocketMQError,
)
from rocketmq_py.message import MessageQueue
from rocketmq_py.producer.latency_faults import LatencyFaults
from rocketmq_py.producer.queue_choice import QueueChoice
from rocketmq_py.producer.send_request import SendRequest
from rocketmq_py.protocol.send_request import HeaderTemplate, SendRequestBuilder
from rocketmq_py.remoting import Connection
from rocketmq_py.remoting.reachability import RECHECK_SECONDS

MAX_CACHED_TARGETS = 4096
"""The largest number of cached entries, one per topic and request code. The cache is cleared when it is
full."""

MAX_REFRESH_SECONDS = 1.0
"""Seconds for which a retry waits for a new route. Then it uses the one that is known."""


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

    def __init__(self, client: ClientCore, faults: LatencyFaults | None, rng: random.Random) -> None:
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

        Waits for the route, the connection and the heartbeat, as needed.
        """
        route = self._client.routes.get_nowait(request.topic) or await self.wait_for_route(request)
        return self.choose_queue(request, route) or await self.connect(request)

    async def wait_for_route(self, request: SendRequest) -> Route:
        """Ask for the route of the request's topic. The attempt starts when it is known."""
        with nothing_sent():
            route = await self._client.routes.get_before(
                request.topic, request.send_deadline, for_sending=True
            )
        # The latency of the name server does not count against the broker.
        request.start_attempt(trio.current_time())
        return route

    async def refresh_route(self, request: SendRequest) -> None:
        """Wait for a new route of the request's topic, but at most for a part of the time that is left."""
        with trio.move_on_after(min(MAX_REFRESH_SECONDS, request.remaining / 2)):
            await self._client.routes.wait_for_refresh(request.topic)

    async def connect(self, request: SendRequest) -> Connection:
        """Dial the broker of the chosen queue, send a heartbeat if needed, and return the connection.

        If the broker cannot be reached, this fails at once if the request may go to another broker that may
        be reachable. Otherwise it waits until the attempt's deadline. If the broker lacks the feature that
        the request needs, a queue on another broker is chosen that has it, as during a rolling upgrade.

        Raises:
            UnsupportedByBrokerError: no broker that the request may go to has the feature.
        """
        with nothing_sent():
            connection = await self._dial(request)
            await self._send_heartbeat(request, connection)
            if _is_too_old(connection, request):
                connection = await self._connect_to_newer(request, connection)
        return connection

    async def _send_heartbeat(self, request: SendRequest, connection: Connection) -> None:
        if request.wants_heartbeat:
            timeout = max(request.deadline - trio.current_time(), 0.0)
            await self._client.heartbeats.ensure_current(connection, timeout=timeout)

    async def _connect_to_newer(self, request: SendRequest, old: Connection) -> Connection:
        """Choose a queue on a broker that has the feature that the request needs, and connect to it."""
        assert request.queue is not None
        assert request.needs is not None
        route = self._client.routes.get_nowait(request.topic)
        others = [name for name in self._brokers_to_choose(request) if name != request.queue.broker_name]
        for broker_name in others:
            address = self._address(broker_name)
            connection = await self._client.connections.get(address, deadline=request.deadline)
            await self._send_heartbeat(request, connection)
            if not _is_too_old(connection, request):
                assert route is not None  # it has the other brokers
                queues = [queue for queue in route.write_queues if queue.broker_name == broker_name]
                queue = request.queue = queues[next(self._choice.counter(request.topic)) % len(queues)]
                request.template = request.header_builder.template(queue.queue_id, queue.broker_name)
                return connection
        raise request.needs.unsupported(old.address, old.peer_version)

    async def supports_timed(self, topic: str, timeout: float) -> bool:
        """Ask the brokers of a topic whether all of them support timed messages (5.x).

        Raises the errors of a send that cannot reach a broker within ``timeout`` seconds.
        """
        deadline = trio.current_time() + timeout
        with nothing_sent():
            route = await self._client.routes.get_before(topic, deadline, for_sending=True)
            for broker_name in dict.fromkeys(queue.broker_name for queue in route.write_queues):
                connection = await self._client.connections.get_before(self._address(broker_name), deadline)
                remaining = max(deadline - trio.current_time(), 0.0)
                await self._client.heartbeats.ensure_current(connection, timeout=remaining)
                if not TIMED_MESSAGES.is_supported_by(connection.peer_version):
                    return False
        return True

    def has_other_broker(self, request: SendRequest) -> bool:
        """Whether a failed request may be sent to a broker other than the one that failed.

        Never for a static topic: its queues move together, and a retry has to wait for the new route.
        """
        return any(name != request.failed_broker for name in self._brokers_to_choose(request))

    def not_connected(self, request: SendRequest) -> RocketMQError:
        """Return the error of a request that has waited for its broker until its deadline."""
        assert request.queue is not None
        broker_name, seconds = request.queue.broker_name, request.deadline - request.started
        address = self._client.routes.master_address_nowait(broker_name)
        target = broker_name if address is None else self._client.brokers.request_address(address)
        return self._client.connections.not_connected(target, seconds)

    def _brokers_to_choose(self, request: SendRequest) -> Iterable[str]:
        """Return the brokers among which a retry may choose, by name."""
        route = self._client.routes.get_nowait(request.topic)
        if route is None or request.fixed_queue is not None or route.logical_brokers:
            return ()
        return dict.fromkeys([queue.broker_name for queue in route.write_queues])

    async def _dial(self, request: SendRequest) -> Connection:
        """Return a connection to the broker of the chosen queue; see :meth:`connect`."""
        assert request.queue is not None
        connections, broker_name = self._client.connections, request.queue.broker_name
        while True:
            address = self._address(broker_name)
            others = [self._address(name) for name in self._brokers_to_choose(request) if name != broker_name]
            if not all(map(connections.is_unreachable, others)):
                return await connections.get(address, deadline=request.deadline)
            recheck_at = min(request.deadline, trio.current_time() + RECHECK_SECONDS)
            try:
                found = await connections.get_any_before([address, *others], recheck_at)
            except (ConnectError, RequestTimeoutError) as error:
                if not error.not_reached:
                    raise
                if trio.current_time() >= request.deadline:
                    raise self.not_connected(request) from None
                self._client.routes.invalidate(request.topic)
            else:
                # Another broker can be reached first: this attempt ends, and the next one chooses that.
                return found if found.address == address else await connections.get(address)

    def _address(self, broker_name: str) -> str:
        """Return the address of a broker's master for sends. Raises NoQueueError if it is unknown."""
        return self._client.brokers.request_address(self._client.routes.broker_address(broker_name))


@contextmanager
def nothing_sent() -> Iterator[None]:
    """Set the ``delivery`` of errors to NOT_SENT: the block sends other requests, not the message."""
    try:
        yield
    except RocketMQError as error:
        error.delivery = Delivery.NOT_SENT
        if isinstance(error, ConnectionLostError | RequestTimeoutError):
            error.not_reached = True
        raise


def _is_too_old(connection: Connection, request: SendRequest) -> bool:
    return request.needs is not None and not request.needs.is_supported_by(connection.peer_version)
