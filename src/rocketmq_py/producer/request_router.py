"""The router of send requests: from a request to a queue, and to the connection to its broker."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
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
from rocketmq_py.producer.send import Attempt, Send
from rocketmq_py.protocol.sends import HeaderTemplate, SendRequestBuilder
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
    """The targets of one topic and kind of requests, valid for one version of the routes.

    A target is made when it is used: a topic may have many queues, and any new route outdates all targets.
    """

    queues: Sequence[MessageQueue]
    targets: list[QueueTarget | None]
    counter: itertools.count[int]
    routes_version: int


class RequestRouter:
    """Chooses the queue of each attempt of a producer, and finds the connection to its broker.

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

    def choose_queue(self, attempt: Attempt, route: Route) -> Connection | None:
        """Choose the queue of an attempt.

        Returns the connection to the queue's broker. None if there is none, or none that the request may be
        written to before a heartbeat.

        Raises:
            NoQueueError, InvalidMessageError, and the exceptions of a selector.
        """
        send = attempt.send
        # Fast path: the cached connection and header of the next queue, saves 5 % of pipelined.
        if (
            send.fixed_queue is None
            and send.selector is None
            and send.failed_broker is None
            and (self._faults is None or self._faults.all_clear)
            and route.write_queues
        ):
            cached = self._cached_targets.get((route.topic, attempt.code))
            if cached is None or cached.routes_version != self._client.routes.version:
                cached = self._cache_targets(attempt, route)
            index = next(cached.counter) % len(cached.targets)
            target = cached.targets[index]
            if target is None:
                target = QueueTarget(cached.queues[index], send.request.header_builder)
                cached.targets[index] = target
            attempt.queue, attempt.template = target.queue, target.template
            connection = target.connection
            if connection is None or not connection.is_usable or send.needs is not None:
                connection = target.connection = self.connection_nowait(attempt)
            return connection
        _set_queue(attempt, self._choice.choose(route, send))
        return self.connection_nowait(attempt)

    def _cache_targets(self, attempt: Attempt, route: Route) -> CachedTargets:
        if len(self._cached_targets) >= MAX_CACHED_TARGETS:
            self._cached_targets.clear()
        cached = self._cached_targets[route.topic, attempt.code] = CachedTargets(
            queues=route.write_queues,
            targets=[None] * len(route.write_queues),
            counter=self._choice.counter(route.topic),
            routes_version=self._client.routes.version,
        )
        return cached

    def connection_nowait(self, attempt: Attempt) -> Connection | None:
        """Return the connection to the broker of the chosen queue. None as for :meth:`choose_queue`."""
        assert attempt.queue is not None
        address = self._client.routes.master_address_nowait(attempt.queue.broker_name)
        if address is None:
            return None
        connection = self._client.connections.get_nowait(self._client.brokers.request_address(address))
        if attempt.send.needs is not None and connection is not None:
            knows_client = self._client.heartbeats.is_current_on(connection)
            return connection if knows_client and not _is_too_old(connection, attempt) else None
        return connection

    async def route(self, send: Send) -> tuple[Attempt, Connection]:
        """Start an attempt: choose the queue, and return the attempt and the connection to its broker.

        Waits for the route, the connection and the heartbeat, as needed.
        """
        attempt = send.start_attempt(trio.current_time())
        route = self._client.routes.get_nowait(send.request.topic)
        if route is None:
            route = await self.wait_for_route(send)
            attempt = send.start_attempt(trio.current_time())
        return attempt, self.choose_queue(attempt, route) or await self.connect(attempt)

    async def wait_for_route(self, send: Send) -> Route:
        """Ask for the route of the topic.

        Start another attempt then: the latency of the name server must not count against the broker.
        """
        with nothing_sent():
            return await self._client.routes.get_before(send.request.topic, send.deadline, for_sending=True)

    async def refresh_route(self, send: Send) -> None:
        """Wait for a new route of the topic, but at most for a part of the time that is left."""
        with trio.move_on_after(min(MAX_REFRESH_SECONDS, send.remaining / 2)):
            await self._client.routes.wait_for_refresh(send.request.topic)

    async def connect(self, attempt: Attempt) -> Connection:
        """Dial the broker of the chosen queue, send a heartbeat if needed, and return the connection.

        If the broker cannot be reached, this fails at once if the request may go to another broker that may
        be reachable. Otherwise it waits until the attempt's deadline. If the broker lacks the feature that
        the request needs, a queue on another broker is chosen that has it, as during a rolling upgrade.

        Raises:
            UnsupportedByBrokerError: no broker that the request may go to has the feature.
        """
        with nothing_sent():
            connection = await self._dial(attempt)
            await self._send_heartbeat(attempt, connection)
            if _is_too_old(connection, attempt):
                connection = await self._connect_to_newer(attempt, connection)
        return connection

    async def _send_heartbeat(self, attempt: Attempt, connection: Connection) -> None:
        if attempt.send.needs is not None:
            timeout = max(attempt.deadline - trio.current_time(), 0.0)
            await self._client.heartbeats.ensure_current(connection, timeout=timeout)

    async def _connect_to_newer(self, attempt: Attempt, old: Connection) -> Connection:
        """Choose a queue on a broker that has the feature that the request needs, and connect to it."""
        send = attempt.send
        assert attempt.queue is not None
        assert send.needs is not None
        route = self._client.routes.get_nowait(send.request.topic)
        for broker_name, address in self._other_addresses(send, attempt.queue.broker_name).items():
            connection = await self._client.connections.get(address, deadline=attempt.deadline)
            await self._send_heartbeat(attempt, connection)
            if not _is_too_old(connection, attempt):
                assert route is not None  # it has the other brokers
                queues = [queue for queue in route.write_queues if queue.broker_name == broker_name]
                _set_queue(attempt, queues[next(self._choice.counter(route.topic)) % len(queues)])
                return connection
        raise send.needs.unsupported(old.address, old.peer_version)

    async def supports_timed(self, topic: str, timeout: float) -> bool:
        """Ask the brokers of a topic whether all of them support timed messages (5.x).

        Raises the errors of a send that cannot reach a broker within ``timeout`` seconds.
        """
        deadline = trio.current_time() + timeout
        with nothing_sent():
            route = await self._client.routes.get_before(topic, deadline, for_sending=True)
            for broker_name in dict.fromkeys(queue.broker_name for queue in route.write_queues):
                connection = await self._client.heartbeats.connect(self._address(broker_name), deadline)
                if not TIMED_MESSAGES.is_supported_by(connection.peer_version):
                    return False
        return True

    def has_other_broker(self, send: Send) -> bool:
        """Whether a failed send may go to a broker other than the one that failed.

        Never for a static topic: its queues move together, and a retry has to wait for the new route.
        """
        failed = send.failed_broker if send.queue is None else send.queue.broker_name
        return bool(self._other_addresses(send, failed))

    def not_connected(self, attempt: Attempt) -> RocketMQError:
        """Return the error of an attempt that has waited for its broker until its deadline."""
        assert attempt.queue is not None
        broker_name, seconds = attempt.queue.broker_name, attempt.deadline - attempt.started
        address = self._client.routes.master_address_nowait(broker_name)
        target = broker_name if address is None else self._client.brokers.request_address(address)
        return self._client.connections.not_connected(target, seconds)

    def _brokers_to_choose(self, send: Send) -> Iterable[str]:
        """Return the brokers among which a retry may choose, by name."""
        route = self._client.routes.get_nowait(send.request.topic)
        if route is None or send.fixed_queue is not None or route.logical_brokers:
            return ()
        return dict.fromkeys([queue.broker_name for queue in route.write_queues])

    async def _dial(self, attempt: Attempt) -> Connection:
        """Return a connection to the broker of the chosen queue; see :meth:`connect`."""
        assert attempt.queue is not None
        connections, broker_name = self._client.connections, attempt.queue.broker_name
        while True:
            address = self._address(broker_name)
            others = self._other_addresses(attempt.send, broker_name).values()
            if not all(map(connections.is_unreachable, others)):
                return await connections.get(address, deadline=attempt.deadline)
            recheck_at = min(attempt.deadline, trio.current_time() + RECHECK_SECONDS)
            try:
                found = await connections.get_any_before([address, *others], recheck_at)
            except (ConnectError, RequestTimeoutError) as error:
                if not error._not_reached:
                    raise
                if trio.current_time() >= attempt.deadline:
                    raise self.not_connected(attempt) from None
                self._client.routes.invalidate(attempt.send.request.topic)
            else:
                # Another broker can be reached first: this attempt ends, and the next one chooses that.
                return found if found.address == address else await connections.get(address)

    def _other_addresses(self, send: Send, broker_name: str | None) -> dict[str, str]:
        """Return the addresses of the brokers other than ``broker_name`` that a retry may choose, by name.

        Without those whose address is unknown. The order configuration of a topic may name such brokers.
        """
        addresses = {}
        for name in self._brokers_to_choose(send):
            address = self._client.routes.master_address_nowait(name)
            if name != broker_name and address is not None:
                addresses[name] = self._client.brokers.request_address(address)
        return addresses

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
            error._not_reached = True
        raise


def _set_queue(attempt: Attempt, queue: MessageQueue) -> None:
    attempt.queue = queue
    header_builder = attempt.send.request.header_builder
    attempt.template = header_builder.template(queue.queue_id, queue.broker_name)


def _is_too_old(connection: Connection, attempt: Attempt) -> bool:
    needs = attempt.send.needs
    return needs is not None and not needs.is_supported_by(connection.peer_version)
