"""Heartbeats: what tells brokers which groups this client belongs to."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final
from weakref import WeakKeyDictionary

import attrs
import msgspec
import trio

from rocketmq_py.client.namespace import Namespace
from rocketmq_py.client.retry_log import RetryLogs
from rocketmq_py.client.routes import Routes
from rocketmq_py.codes import ResponseCode
from rocketmq_py.errors import BrokerError, ClosedError, RocketMQError
from rocketmq_py.protocol import headers
from rocketmq_py.protocol.bodies import MASTER_ID, ConsumerData, Heartbeat, ProducerData
from rocketmq_py.remoting import Connection, ConnectionPool
from rocketmq_py.remoting.running import open_nursery

logger: Final = logging.getLogger("rocketmq_py.client")

FORGOTTEN_ROUNDS = 20
"""A broker that has had no heartbeat for so many rounds is one that went away for good."""
LEAVE_SECONDS = 1.0
"""How long a broker may take to answer a heartbeat that is under way, and then the unregistering."""


@attrs.define(eq=False)
class _Heartbeat:
    """A heartbeat that is under way, and why it failed."""

    answered: trio.Event = attrs.field(factory=trio.Event)
    error: RocketMQError | None = None


class Heartbeats:
    """Announces the groups of one client to every broker in use, and unregisters them again.

    Masters hear of all groups; slaves only of consumers, who may pull from them.

    Args:
        nursery: where heartbeats go on that nobody waits for any more.
        client_id: who speaks.
        connections: how brokers are reached.
        routes: which brokers are in use.
        namespace: the tenant whose groups and topics these are.
        unit_mode: whether what brokers create for the consumers is marked as that of a unit.
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
        self._wanted = trio.Event()
        self._groups_changed = 0
        self._expects_replies = False
        self._heard: WeakKeyDictionary[Connection, int] = WeakKeyDictionary()
        self._heard_at: dict[str, float] = {}  # when last, on trio's clock
        self._under_way: WeakKeyDictionary[Connection, dict[_Heartbeat, None]] = WeakKeyDictionary()

    def add_producer(self, group: str) -> None:
        """Announce a producer group from now on. Several producers of one client may share a group."""
        self._groups_changed += 1
        self._producers[group] = self._producers.get(group, 0) + 1

    def add_consumer(self, group: str, describe: Callable[[], ConsumerData]) -> None:
        """Announce a consumer group; ``describe`` gives its subscriptions at each heartbeat."""
        self._groups_changed += 1
        self._consumers[group] = describe

    async def remove_producer(self, group: str) -> None:
        """Stop announcing a producer group, and tell the brokers if it was its last producer.

        A broker that is told so hands no reply to this client any more, whatever its other groups are. Where
        replies are expected, the group stays until the client's last producer leaves.
        """
        self._producers[group] -= 1
        if self._expects_replies and any(self._producers.values()):
            return
        gone = [group for group, count in self._producers.items() if not count]
        for left in gone:
            del self._producers[left]
        for left in gone:
            await self._unregister(
                headers.UnregisterClientRequest(client_id=self._client_id, producer_group=left)
            )

    async def remove_consumer(self, group: str) -> None:
        """Stop announcing a consumer group, and tell the brokers, who tell its other members.

        When cancelled, nobody waits for the brokers' answers, but they are told all the same.
        """
        if self._consumers.pop(group, None) is not None:
            await self._unregister(
                headers.UnregisterClientRequest(client_id=self._client_id, consumer_group=group)
            )

    def has_consumer(self, group: str) -> bool:
        """Whether a consumer of ``group`` is being announced."""
        return group in self._consumers

    def expect_replies(self) -> None:
        """Take care from now on that brokers can hand replies to this client."""
        self._expects_replies = True

    def is_heard_on(self, connection: Connection) -> bool:
        """Whether the broker has heard of all of this client's groups over this connection."""
        return self._heard.get(connection) == self._groups_changed

    async def ensure_heard(self, connection: Connection, *, timeout: float) -> None:
        """Send a heartbeat over this connection, unless the broker has heard of all groups over it.

        Brokers send transaction checks and replies only to connections that they had a heartbeat from; and
        its answer tells the broker's version. Raises as :meth:`Connection.request`, and BrokerError, and
        ClosedError.
        """
        if not self.is_heard_on(connection):
            await self._send_on(connection, min(timeout, self._timeout))

    async def _send_on(self, connection: Connection, timeout: float) -> None:
        """Send one, and wait for its answer. When cancelled, it goes on: who leaves has to know its end."""
        heartbeat = _Heartbeat()
        try:
            self._nursery.start_soon(self._tell, connection, timeout, heartbeat)
        except RuntimeError:
            raise ClosedError("the client is closed") from None  # its nursery has ended
        self._under_way.setdefault(connection, {})[heartbeat] = None
        await heartbeat.answered.wait()
        if heartbeat.error is not None:
            raise heartbeat.error

    async def _tell(self, connection: Connection, timeout: float, heartbeat: _Heartbeat) -> None:
        groups = self._groups_changed
        header = headers.HeartbeatRequest()
        try:
            answer = await connection.request(header.code, header.to_fields(), self._body(), timeout=timeout)
            if answer.code != ResponseCode.SUCCESS:
                raise BrokerError.from_answer(answer.code, answer.remark, connection.address)
            self._heard[connection] = groups
            self._heard_at[connection.address] = trio.current_time()
        except RocketMQError as error:
            heartbeat.error = error
        except trio.Cancelled:
            heartbeat.error = ClosedError("the client is closed")
            raise
        finally:
            del self._under_way[connection][heartbeat]
            heartbeat.answered.set()

    def submit(self) -> None:
        """Have a round sent at once by the background task: a group, subscription or broker is new."""
        self._wanted.set()

    async def send(self) -> None:
        """Send one heartbeat to every broker in use, all at the same time. What fails is logged."""
        if not self._producers and not self._consumers:
            return
        addresses = dict.fromkeys(self._addresses())
        # Further connections that brokers know this client by, over the VIP channel, fall silent otherwise.
        addresses |= {connection.address: None for connection in self._heard if not connection.is_closed}
        async with open_nursery() as nursery:
            for address in addresses:
                nursery.start_soon(self._send_to, address)

    async def send_anew(self, connection: Connection) -> None:
        """Send a heartbeat over a connection that takes the place of one that had any. A failure is logged.

        With a connection brokers forget the client, and share its queues out to others. Java: the
        ``ChannelEventListener`` of ``MQClientInstance``, since 5.0.
        """
        if connection.address in self._heard_at and (self._producers or self._consumers):
            with self._failures_logged(connection.address):
                await self._send_on(connection, self._timeout)

    async def run(self) -> None:
        """Send a round every ``interval`` seconds, and when one is wanted at once."""
        while True:
            with trio.move_on_after(self._interval):
                await self._wanted.wait()
            self._wanted = trio.Event()
            await self.send()
            # Brokers come and go.
            long_ago = trio.current_time() - FORGOTTEN_ROUNDS * self._interval
            self._heard_at = {address: at for address, at in self._heard_at.items() if at > long_ago}

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

    @contextmanager
    def _failures_logged(self, address: str) -> Iterator[None]:
        try:
            yield
        except RocketMQError as error:
            groups = ",".join(sorted({*self._producers, *self._consumers}))
            self._retry_logs.failed(address, error, groups=groups, retry_in=self._interval)
        else:
            self._retry_logs.succeeded(address)

    def _body(self) -> bytes:
        return Heartbeat(
            client_id=self._client_id,
            producer_data_set=tuple(
                [ProducerData(group_name=self._namespace.wrap_group(group)) for group in self._producers]
            ),
            consumer_data_set=tuple([self._on_wire(describe()) for describe in self._consumers.values()]),
        ).encode()

    def _on_wire(self, consumer: ConsumerData) -> ConsumerData:
        consumer = self._namespace.wrap_consumer(consumer)
        return msgspec.structs.replace(consumer, unit_mode=True) if self._unit_mode else consumer

    async def _unregister(self, header: headers.UnregisterClientRequest) -> None:
        """Tell all brokers that a group was left. When cancelled, that goes on: they would keep a ghost."""
        ended = trio.Event()
        try:
            self._nursery.start_soon(self._unregister_everywhere, header, ended)
        except RuntimeError:
            return  # the client is closed, and its connections with it
        await ended.wait()

    async def _unregister_everywhere(
        self, header: headers.UnregisterClientRequest, ended: trio.Event
    ) -> None:
        try:
            async with open_nursery() as nursery:
                # Brokers know members by their connections, and notice by themselves which of those have
                # gone.
                for connection in list(self._under_way):
                    if not connection.is_closed and not connection.draining:
                        nursery.start_soon(self._unregister_on, connection, header)
        finally:
            ended.set()

    async def _unregister_on(self, connection: Connection, header: headers.UnregisterClientRequest) -> None:
        patience = min(self._timeout, LEAVE_SECONDS)
        # Brokers have other threads for heartbeats. If one is read first and served second, the group has its
        # member back, and a share of the queues is nobody's for two minutes.
        with trio.move_on_after(patience):
            for heartbeat in list(self._under_way[connection]):
                await heartbeat.answered.wait()
        if self._is_joined(header):
            return  # again, meanwhile
        try:
            wire = self._namespace.wrap(header)
            await connection.request(wire.code, wire.to_fields(), timeout=patience)
        except RocketMQError as error:
            logger.info("group not unregistered: %s", error)
        if self._is_joined(header):
            # Whether the broker has read its heartbeat before this or after it, nobody knows.
            self._groups_changed += 1
            self.submit()

    def _is_joined(self, header: headers.UnregisterClientRequest) -> bool:
        return header.consumer_group in self._consumers or header.producer_group in self._producers
