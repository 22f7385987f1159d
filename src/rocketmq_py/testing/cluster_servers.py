"""The servers of a test cluster, which tests start, stop and crash like processes."""

from __future__ import annotations

import random
import re
import ssl
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import attrs
import trio

from rocketmq_py.address import format_address, split_address
from rocketmq_py.broker.broker import Broker
from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.dispatch import Dispatcher
from rocketmq_py.broker.name_server import NameServer
from rocketmq_py.broker.storage.consume_queue import StoredMessage
from rocketmq_py.broker.topics import PERM_READ, PERM_WRITE, TopicConfig
from rocketmq_py.codes import RequestCode
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.protocol.bodies import MASTER_ID, Heartbeat
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.stored_message import decode_messages
from rocketmq_py.remoting import Connection, serve
from rocketmq_py.testing.faults import CLIENTS, ActiveFaults
from rocketmq_py.testing.faulty_socket import FaultySocket
from rocketmq_py.testing.requests import Request, record_request

MAX_REQUESTS = 10_000
"""Maximum number of recorded requests per server. Beyond it the oldest are dropped."""


@attrs.frozen
class ClusterContext:
    """The objects that the servers of a cluster share.

    Attributes:
        now_ms: the clock, epoch milliseconds.
        on_change: called after each request and each stored message.
        faults: the active faults.
        tls: the SSL context of the servers; None for plain text.
    """

    now_ms: Callable[[], int]
    on_change: Callable[[], None]
    faults: ActiveFaults
    tls: ssl.SSLContext | None


class ServerProcess(ABC):
    """A server of a cluster. It keeps its state when it is stopped.

    Args:
        host: the IP address to listen on.
        port: the port; 0 for a free one, which it keeps after a stop.
        context: the objects that all servers share.

    Attributes:
        requests: the last requests that it has received.
    """

    def __init__(self, host: str, port: int, context: ClusterContext) -> None:
        self.host = host
        self.port: int = port
        self.now_ms: Final = context.now_ms
        self.requests: deque[Request] = deque(maxlen=MAX_REQUESTS)
        self.faults: ActiveFaults = context.faults
        self._tls = context.tls
        self._on_change = context.on_change
        self._connections: dict[Connection, None] = {}
        self._peer_names: dict[str, set[str]] = {}  # by address
        self._scope: trio.CancelScope | None = None
        self._ended = trio.Event()

    @property
    def address(self) -> str:
        """``host:port``, after it has been started."""
        return format_address((self.host, self.port))

    @property
    def connection_count(self) -> int:
        """The number of open connections that have sent a request."""
        return len(self._connections)

    @property
    def is_running(self) -> bool:
        """Whether it listens."""
        return self._scope is not None

    async def start(self, nursery: trio.Nursery) -> None:
        """Start the server in ``nursery``. Returns when it listens.

        Raises ConfigurationError if its port is in use.
        """
        await nursery.start(self._run)

    async def stop(self) -> None:
        """Stop the server at once. Its connections break, and it answers nothing more."""
        if self._scope is not None:
            self._scope.cancel()
            await self._ended.wait()

    async def _run(self, *, task_status: trio.TaskStatus[None]) -> None:
        self._ended = trio.Event()
        try:
            with trio.CancelScope() as self._scope:
                async with trio.open_nursery() as nursery:
                    bound = await nursery.start(
                        partial(
                            serve,
                            self._handle,
                            self.host,
                            self.port,
                            on_closed=self._on_closed,
                            tls=self._tls,
                            wrap=self._wrap_stream,
                        )
                    )
                    self.port = split_address(bound)[1]
                    self._on_started(nursery)
                    task_status.started()
        finally:
            self._scope = None
            self._ended.set()

    def _handle(self, connection: Connection, command: Command) -> None:
        peer = self._peer_names[connection.peer_address]
        self._connections[connection] = None
        self.requests.append(record_request(command, connection.peer_address, self.now_ms()))
        if command.code == RequestCode.HEART_BEAT:
            peer.update(_client_names(Heartbeat.decode(command.body).client_id))
        self.faults.handle(self.names, peer, connection, command, self.dispatch)
        self._on_change()

    def _wrap_stream(self, stream: trio.SocketStream) -> trio.SocketStream:
        try:
            address = format_address(stream.socket.getpeername())
        except OSError:
            return stream  # the client has already broken the connection, and `serve` closes it
        names = self._peer_names[address] = {address, CLIENTS}
        return trio.SocketStream(FaultySocket(stream.socket, self.faults, self.names, names))

    def _on_closed(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        self._peer_names.pop(connection.peer_address, None)

    def cut(self, client: str | None) -> None:
        """Break the connections of a client, named by its id or address, or of all clients for None."""
        for connection in list(self._connections):
            if client is None or client in self._peer_names[connection.peer_address]:
                connection.close("cut by a test")

    def _is_partitioned_from(self, other: ServerProcess) -> bool:
        """Return whether a fault holds up the bytes between two servers."""
        return self.faults.are_partitioned(self.names, other.names) or self.faults.are_partitioned(
            other.names, self.names
        )

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The names by which tests select the server."""

    @property
    @abstractmethod
    def dispatch(self) -> Dispatcher:
        """Answers requests."""

    @abstractmethod
    def _on_started(self, nursery: trio.Nursery) -> None:
        """Start background tasks when the server listens."""

    @abstractmethod
    def wipe(self) -> None:
        """Drop all state. Only allowed while the server is stopped."""


class NameServerProcess(ServerProcess):
    """A name server.

    Args:
        check: raises Refusal for requests that are not permitted. None permits all.
    """

    def __init__(
        self, host: str, port: int, context: ClusterContext, check: Callable[[Command], None] | None
    ) -> None:
        super().__init__(host, port, context)
        self._check = check
        self.wipe()

    @property
    def names(self) -> tuple[str, ...]:
        """Its address."""
        return (self.address,)

    def wipe(self) -> None:
        """Drop all registered brokers and key-value configs."""
        self.name_server: NameServer = NameServer()
        self._dispatch = Dispatcher(self._check)
        self._dispatch.add(self.name_server.handlers())
        self.requests.clear()

    @property
    def dispatch(self) -> Dispatcher:
        """Answers requests."""
        return self._dispatch

    def _on_started(self, nursery: trio.Nursery) -> None:
        pass


class RegisteredProcess(ServerProcess):
    """A server that registers at name servers.

    Args:
        config: the broker's settings.
        name_servers: the name servers. It registers at those that are running.
        broker_id: 0 for a master.
    """

    def __init__(
        self,
        host: str,
        port: int,
        context: ClusterContext,
        *,
        config: BrokerConfig,
        name_servers: Sequence[NameServerProcess],
        broker_id: int = MASTER_ID,
    ) -> None:
        super().__init__(host, port, context)
        self.config = config
        self._name_server_processes = name_servers
        self._broker_id = broker_id

    async def stop(self) -> None:
        """Stop at once. Stored data stays, and the name servers remove the address.

        Stopped name servers remove it, too: a real name server has no addresses when it starts. A name server
        that is partitioned from this server keeps the address.
        """
        if not self.is_running:
            return
        await super().stop()
        for process in self._name_server_processes:
            if not self._is_partitioned_from(process):
                process.name_server.unregister(self.config.broker_name, self._broker_id)

    @abstractmethod
    def shift_clock(self, seconds: float) -> None:
        """Keep the age of heartbeats and locks after trio's clock was advanced by ``seconds``."""

    def _name_servers(self) -> list[NameServer]:
        """Return the name servers at which it can register now."""
        return [
            process.name_server
            for process in self._name_server_processes
            if self.is_running and process.is_running and not self._is_partitioned_from(process)
        ]


class BrokerProcess(RegisteredProcess):
    """A broker, a master.

    Args:
        config: its settings.
        topics: the topics to create.
        name_servers: the name servers. It registers at those that are running.
        rng: chooses queues that clients leave to the broker.
    """

    def __init__(
        self,
        host: str,
        port: int,
        context: ClusterContext,
        *,
        config: BrokerConfig,
        topics: Iterable[TopicConfig],
        name_servers: Sequence[NameServerProcess],
        rng: random.Random,
    ) -> None:
        super().__init__(host, port, context, config=config, name_servers=name_servers)
        self._topics = topics
        self._rng = rng
        self.wipe()

    def wipe(self) -> None:
        """Drop all messages, topics, offsets and groups."""
        self.broker: Broker = Broker(self.config, self._name_servers, self.now_ms, self._rng)
        self._is_open = False
        self._flushed_to = 0
        self._flushed_offsets: Mapping[tuple[str, str], Mapping[int, int]] = {}
        self._flushed_transactions: tuple[int, frozenset[int]] = (0, frozenset())
        self.requests.clear()
        if self.port:
            self._open()

    @property
    def names(self) -> tuple[str, ...]:
        """Its name and its address."""
        return (self.config.broker_name, self.address)

    def flush(self) -> None:
        """Mark the present messages, offsets and ends of transactions as flushed."""
        self._flushed_to = self.broker.state.store.log.end
        self._flushed_offsets = self.broker.state.offsets.snapshot()
        self._flushed_transactions = self.broker.transactions.snapshot()

    def lose_unflushed(self) -> None:
        """Drop messages, offsets and ends of transactions since the last flush.

        Only allowed while the broker is stopped.
        """
        self.broker.state.store.truncate(self._flushed_to)
        self.broker.state.offsets.restore(self._flushed_offsets)
        self.broker.transactions.restore(self._flushed_transactions)

    @property
    def dispatch(self) -> Dispatcher:
        """Answers requests."""
        return self.broker.dispatch

    def create_topic(self, topic: TopicConfig) -> None:
        """Create a topic, or replace its settings."""
        self.broker.state.topics.put(topic)

    def change_topic(
        self, topic: str, queues: int | None, readable: bool | None, writable: bool | None
    ) -> None:
        """Change a topic. Values that are None stay unchanged."""
        old = self.broker.state.topics.get(topic) or TopicConfig(topic, queues or 4, queues or 4)
        bits = {
            PERM_READ: old.is_readable if readable is None else readable,
            PERM_WRITE: old.is_writable if writable is None else writable,
        }
        self.broker.state.topics.put(
            attrs.evolve(
                old,
                read_queue_nums=queues or old.read_queue_nums,
                write_queue_nums=queues or old.write_queue_nums,
                perm=old.perm & ~(PERM_READ | PERM_WRITE)
                | sum([bit for bit, is_set in bits.items() if is_set]),
            )
        )

    def shift_clock(self, seconds: float) -> None:
        """Keep the age of heartbeats and locks after trio's clock was advanced by ``seconds``."""
        if self._is_open:
            self.broker.shift_clock(seconds)

    async def stop(self) -> None:
        """Stop at once. Stored data stays, locks are dropped, and the name servers remove the address."""
        if self.is_running:
            await super().stop()
            self.broker.state.locks.clear()

    def _on_started(self, nursery: trio.Nursery) -> None:
        if not self._is_open:
            self._open()
        for task in self.broker.tasks:
            nursery.start_soon(task)
        self.broker.register()

    def _open(self) -> None:
        self._is_open = True
        self.broker.open(self.address)
        self.broker.state.store.listeners.append(self._on_stored)
        for topic in self._topics:
            self.create_topic(topic)

    def _on_stored(self, _: StoredMessage) -> None:
        self._on_change()

    def _on_closed(self, connection: Connection) -> None:
        super()._on_closed(connection)
        self.broker.drop_connection(connection)

    # Inspection

    def messages(self, topic: str) -> list[ReceivedMessage]:
        """Return the messages of a topic, in the order in which they were stored."""
        stored = b"".join([message.data for message in self.broker.state.store.messages(topic)])
        return decode_messages(stored, self.config.broker_name)

    def committed(self, group: str) -> dict[MessageQueue, int]:
        """Return the committed offsets of a group."""
        return {
            self.broker.state.message_queue(topic, queue_id): offset
            for (topic, queue_id), offset in self.broker.state.offsets.of_group(group).items()
        }


def _client_names(client_id: str) -> set[str]:
    """Return the names of a client: its id, and the instance name in the id (``address@instance``)."""
    instance = re.split("[@#]", client_id.partition("@")[2])[0]
    return {client_id, instance} - {""}
