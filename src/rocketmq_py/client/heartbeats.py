"""Heartbeats, which announce the producer and consumer groups of a client to brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final
from weakref import WeakKeyDictionary

import attrs
import msgspec
import trio

from rocketmq_py.client.flow_control import BACK_OFF
from rocketmq_py.client.namespace import Namespace
from rocketmq_py.client.proxies import is_answer_of_proxy
from rocketmq_py.client.retry_log import RetryLogs
from rocketmq_py.client.routes import Routes
from rocketmq_py.codes import ResponseCode
from rocketmq_py.errors import ClosedError, FlowControlError, RocketMQError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.protocol import headers
from rocketmq_py.protocol.bodies import MASTER_ID, ConsumerData, Heartbeat, ProducerData
from rocketmq_py.remoting import Connection, ConnectionPool
from rocketmq_py.remoting.answer_errors import broker_error
from rocketmq_py.remoting.nurseries import open_nursery

logger: Final = LibraryLogger("rocketmq_py.client")

FORGOTTEN_ROUNDS = 20
"""A broker that answered no heartbeat for this many rounds is removed from :meth:`Heartbeats.health`."""
LEAVE_SECONDS = 1.0
"""Seconds for the answer to a heartbeat in flight before unregistering, and for the answer to that."""


@attrs.define(eq=False)
class _Heartbeat:
    """A heartbeat in flight, and its error if it failed."""

    answered: trio.Event = attrs.field(factory=trio.Event)
    error: RocketMQError | None = None


class Heartbeats:
    """Sends the heartbeats of a client to every broker of its routes, and unregisters its groups.

    Masters get heartbeats for all groups. Slaves get them only if there are consumers, which may pull from
    them.

    Args:
        nursery: runs the requests, which continue if the caller is cancelled.
        client_id: the client's id.
        connections: the connections to brokers.
        routes: the brokers.
        namespace: converts the names of groups and topics.
        unit_mode: whether topics that brokers create for the consumers belong to a unit.
        interval: seconds between two rounds.
        timeout: seconds for one heartbeat.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        client_id: str,
        connections: ConnectionPool,
        routes: Routes,
        *,
        namespace: Namespace,
        unit_mode: bool,
        interval: float,
        timeout: float,
    ) -> None:
        self._nursery = nursery
        self._client_id = client_id
        self._connections = connections
        self._routes = routes
        self._namespace = namespace
        self._unit_mode = unit_mode
        self._interval = interval
        self._timeout = timeout
        self._retry_logs = RetryLogs(logger, "heartbeat", "broker")
        self._producers: dict[str, int] = {}
        self._consumers: dict[str, Callable[[], ConsumerData]] = {}
        self._requested = trio.Event()
        self._groups_version = 0  # incremented when groups change
        self._expects_replies = False
        # The version of the groups in the last heartbeat of each connection.
        self._versions: WeakKeyDictionary[Connection, int] = WeakKeyDictionary()
        self._last_heartbeats: dict[str, float] = {}  # by broker address, on trio's clock
        self._refused: set[str] = set()  # broker addresses whose heartbeats flow control refuses
        # All connections that have carried heartbeats, each with those in flight.
        self._heartbeats: WeakKeyDictionary[Connection, dict[_Heartbeat, None]] = WeakKeyDictionary()

    def add_producer(self, group: str) -> None:
        """Add a producer group to heartbeats. Several producers of a client may share a group."""
        self._groups_version += 1
        self._producers[group] = self._producers.get(group, 0) + 1

    def add_consumer(self, group: str, describe: Callable[[], ConsumerData]) -> None:
        """Add a consumer group to heartbeats. ``describe`` returns its data for each heartbeat."""
        self._groups_version += 1
        self._consumers[group] = describe

    async def remove_producer(self, group: str) -> None:
        """Remove a producer from its group. With the last producer, unregister the group.

        A broker stops sending replies to a client when any group is unregistered. If replies are expected,
        groups stay registered until the client's last producer leaves.
        """
        self._producers[group] -= 1
        if self._expects_replies and any(self._producers.values()):
            return
        empty = [group for group, count in self._producers.items() if not count]
        for group in empty:
            del self._producers[group]
        for group in empty:
            await self._unregister(
                headers.UnregisterClientRequest(client_id=self._client_id, producer_group=group)
            )

    async def remove_consumer(self, group: str) -> None:
        """Remove a consumer group, and unregister it. Brokers notify its other members.

        If cancelled, the requests continue in the background.
        """
        if self._consumers.pop(group, None) is not None:
            await self._unregister(
                headers.UnregisterClientRequest(client_id=self._client_id, consumer_group=group)
            )

    def has_consumer(self, group: str) -> bool:
        """Whether heartbeats contain the consumer group."""
        return group in self._consumers

    def expect_replies(self) -> None:
        """Keep producer groups registered, so that brokers can send replies to this client."""
        self._expects_replies = True

    def is_current_on(self, connection: Connection) -> bool:
        """Whether the broker got a heartbeat with all current groups over this connection."""
        return self._versions.get(connection) == self._groups_version

    async def connect(self, address: str, deadline: float) -> Connection:
        """Return a connection to a broker that has got a heartbeat with all current groups.

        Its ``peer_version`` is known. Raises the errors of ``ConnectionPool.get_before`` and
        :meth:`ensure_current`. ``deadline`` is on trio's clock.
        """
        connection = await self._connections.get_before(address, deadline)
        await self.ensure_current(connection, timeout=max(deadline - trio.current_time(), 0.0))
        return connection

    async def ensure_current(self, connection: Connection, *, timeout: float) -> None:
        """Send a heartbeat over this connection, unless the broker got one with all current groups.

        Brokers send transaction checks and replies only to connections with a heartbeat. Its answer contains
        the broker's version, and shows whether the peer is a proxy.

        Raises:
            BrokerError, ClosedError, and the errors of :meth:`Connection.request`.
        """
        if not self.is_current_on(connection):
            await self._send_on(connection, min(timeout, self._timeout))

    async def _send_on(self, connection: Connection, timeout: float) -> None:
        """Send a heartbeat and wait for its answer. If cancelled, it continues in the background."""
        heartbeat = _Heartbeat()
        try:
            self._nursery.start_soon(self._exchange, connection, timeout, heartbeat)
        except RuntimeError:
            raise ClosedError("the client is closed") from None  # its nursery has ended
        self._heartbeats.setdefault(connection, {})[heartbeat] = None
        await heartbeat.answered.wait()
        if heartbeat.error is not None:
            raise heartbeat.error

    async def _exchange(self, connection: Connection, timeout: float, heartbeat: _Heartbeat) -> None:
        version = self._groups_version
        header = headers.HeartbeatRequest()
        try:
            answer = await connection.request(header.code, header.to_fields(), self._body(), timeout=timeout)
            if answer.code != ResponseCode.SUCCESS:
                raise broker_error(answer.code, answer.remark, connection.address)
            connection.peer_is_proxy = is_answer_of_proxy(answer)
            self._versions[connection] = version
            self._last_heartbeats[connection.address] = trio.current_time()
        except RocketMQError as error:
            heartbeat.error = error
        except trio.Cancelled:
            heartbeat.error = ClosedError("the client is closed")
            raise
        finally:
            del self._heartbeats[connection][heartbeat]
            heartbeat.answered.set()

    def health(self, address: str) -> tuple[float | None, str | None]:
        """Return the seconds since a broker answered a heartbeat, and the error of the last heartbeat.

        Both are None without a heartbeat. Without groups there are no more heartbeats, and no error.
        """
        answered_at = self._last_heartbeats.get(address)
        error = self._retry_logs.error(address) if self._has_groups else None
        return (
            None if answered_at is None else trio.current_time() - answered_at,
            None if error is None else str(error),
        )

    def route_changed(self) -> None:
        """Make :meth:`run` send a round now, if a broker of the routes may not know all of the client.

        Not for each further topic of known brokers: a producer may have thousands. Consumers have
        subscriptions, which may be new.
        """
        known = {one.address for one in self._versions if one.is_usable and self.is_current_on(one)}
        if self._consumers or not known.issuperset(self._addresses()):
            self.request_round()

    def request_round(self) -> None:
        """Make :meth:`run` send a round now, because a group, subscription or broker is new."""
        self._requested.set()

    async def send(self) -> None:
        """Send a heartbeat to every broker concurrently. Failures are logged."""
        if not self._has_groups:
            return
        addresses = dict.fromkeys(self._addresses())
        # Connections over the VIP channel have other addresses, and would time out without heartbeats.
        others = [one for one in self._versions if not one.is_closed and one.address not in addresses]
        async with open_nursery() as nursery:
            for address in addresses:
                nursery.start_soon(self._send_to, address)
            for connection in others:
                nursery.start_soon(self._send_over, connection)

    async def send_anew(self, connection: Connection) -> None:
        """Send a heartbeat over a connection that replaces an earlier one. A failure is logged.

        When a connection ends, brokers forget the client, and assign its queues to other members. Java: the
        ``ChannelEventListener`` of ``MQClientInstance``, since 5.0.
        """
        if connection.address in self._last_heartbeats and self._has_groups:
            with self._failures_logged(connection.address):
                await self._send_on(connection, self._timeout)

    async def run(self) -> None:
        """Send a round every ``interval`` seconds, and after :meth:`request_round`."""
        while True:
            with trio.move_on_after(self._interval):
                await self._requested.wait()
            self._requested = trio.Event()
            await self.send()
            long_ago = trio.current_time() - FORGOTTEN_ROUNDS * self._interval
            self._last_heartbeats = {
                address: time for address, time in self._last_heartbeats.items() if time > long_ago
            }

    @property
    def _has_groups(self) -> bool:
        return bool(self._producers or self._consumers)

    def _addresses(self) -> Iterable[str]:
        for addresses in self._routes.brokers().values():
            for broker_id, address in addresses.items():
                if broker_id == MASTER_ID or self._consumers:
                    yield address

    async def _send_to(self, address: str) -> None:
        deadline = trio.current_time() + self._timeout
        with self._failures_logged(address):
            connection = await self._connections.get_before(address, deadline)
            await self._send_on(connection, max(deadline - trio.current_time(), 0.0))

    async def _send_over(self, connection: Connection) -> None:
        """Send a heartbeat over a connection, unless it was closed meanwhile. It is not dialled again."""
        if not connection.is_closed:
            with self._failures_logged(connection.address):
                await self._send_on(connection, self._timeout)

    @contextmanager
    def _failures_logged(self, address: str) -> Iterator[None]:
        try:
            yield
        except RocketMQError as error:
            is_limited = isinstance(error, FlowControlError)
            groups = ",".join(sorted({*self._producers, *self._consumers}))
            retry_in = BACK_OFF.first if is_limited else self._interval
            self._retry_logs.failed(address, error, groups=groups, retry_in=retry_in)
            if is_limited and address not in self._refused:
                self._refused.add(address)
                self._nursery.start_soon(self._repeat, address)
        else:
            self._retry_logs.succeeded(address)
            self._refused.discard(address)

    async def _repeat(self, address: str) -> None:
        """Repeat a heartbeat that flow control refused, until it is accepted or the next round is due."""
        refusals = 1
        while address in self._refused and BACK_OFF.after(refusals) < self._interval:
            await trio.sleep(BACK_OFF.after(refusals))
            refusals += 1
            if address in self._refused and self._has_groups:
                await self._send_to(address)
        self._refused.discard(address)

    def _body(self) -> bytes:
        consumers = [describe() for describe in self._consumers.values()]
        if self._unit_mode:
            consumers = [msgspec.structs.replace(consumer, unit_mode=True) for consumer in consumers]
        heartbeat = Heartbeat(
            client_id=self._client_id,
            producer_data_set=tuple([ProducerData(group_name=group) for group in self._producers]),
            consumer_data_set=tuple(consumers),
        )
        return self._namespace.wrap(heartbeat).encode()

    async def _unregister(self, header: headers.UnregisterClientRequest) -> None:
        """Unregister a group from all brokers. If cancelled, the requests continue in the background."""
        ended = trio.Event()
        try:
            self._nursery.start_soon(self._unregister_everywhere, header, ended)
        except RuntimeError:
            return  # the client is closed, and so are its connections
        await ended.wait()

    async def _unregister_everywhere(
        self, header: headers.UnregisterClientRequest, ended: trio.Event
    ) -> None:
        try:
            async with open_nursery() as nursery:
                # Brokers know a member by the connection of its heartbeats. A closed one needs no request.
                for connection in list(self._heartbeats):
                    if not connection.is_closed and not connection.draining:
                        nursery.start_soon(self._unregister_on, connection, header)
        finally:
            ended.set()

    async def _unregister_on(self, connection: Connection, header: headers.UnregisterClientRequest) -> None:
        timeout = min(self._timeout, LEAVE_SECONDS)
        # Brokers handle heartbeats in other threads. A heartbeat that is handled after the unregistering
        # would add the member again, and its share of the queues would have no consumer for two minutes.
        with trio.move_on_after(timeout):
            for heartbeat in list(self._heartbeats[connection]):
                await heartbeat.answered.wait()
        if self._is_registered(header):
            return  # the group was added again meanwhile
        try:
            wire = self._namespace.wrap(header)
            await connection.request(wire.code, wire.to_fields(), timeout=timeout)
        except RocketMQError as error:
            group = header.consumer_group or header.producer_group
            logger.info("unregister failed: group=%s broker=%s error=%s", group, connection.address, error)
        if self._is_registered(header):
            # The broker may have handled the new heartbeat before the unregistering.
            self._groups_version += 1
            self.request_round()

    def _is_registered(self, header: headers.UnregisterClientRequest) -> bool:
        return header.consumer_group in self._consumers or header.producer_group in self._producers
