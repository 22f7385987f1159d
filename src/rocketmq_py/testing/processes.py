"""Name servers and brokers as processes of a cluster: each listens, and can be stopped and started again."""

from __future__ import annotations

import random
import re
import ssl
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import attrs
import trio

from rocketmq_py.address import format_address, split_address
from rocketmq_py.broker import BrokerConfig
from rocketmq_py.broker.core import Broker
from rocketmq_py.broker.dispatch import Dispatch
from rocketmq_py.broker.name_server import NameServer
from rocketmq_py.broker.store import StoredMessage
from rocketmq_py.broker.topics import PERM_READ, PERM_WRITE, TopicConfig
from rocketmq_py.codes import RequestCode
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.protocol.bodies import MASTER_ID, Heartbeat
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.stored_message import decode_messages
from rocketmq_py.remoting import Connection, serve
from rocketmq_py.testing.faults import CLIENTS, Faults
from rocketmq_py.testing.requests import Request, recorded
from rocketmq_py.testing.sockets import FaultySocket

MOST_REQUESTS = 10_000
"""Requests that are remembered; beyond it the oldest are forgotten."""


@attrs.frozen
class Surroundings:
    """What the servers of a cluster have in common.

    Attributes:
        now_ms: the time, epoch milliseconds.
        on_change: called after each request and each message that is stored.
        faults: what goes wrong.
        tls: the context of servers that talk TLS; None for plain text.
    """

    now_ms: Callable[[], int]
    on_change: Callable[[], None]
    faults: Faults
    tls: ssl.SSLContext | None


class Process(ABC):
    """One server of a cluster. Its state is its own: it outlives that the server is stopped.

    Args:
        host: the IP address to listen on.
        port: the port; 0 takes a free one, and that one again after a stop.
        around: what it has in common with the others.
    """

    def __init__(self, host: str, port: int, around: Surroundings) -> None:
        self.host = host
        self.port: int = port
        self.now_ms: Final = around.now_ms
        self.requests: deque[Request] = deque(maxlen=MOST_REQUESTS)
        self.faults: Faults = around.faults
        self._tls = around.tls
        self._on_change = around.on_change
        self._connections: dict[Connection, None] = {}
        self._peers: dict[str, set[str]] = {}
        self._scope: trio.CancelScope | None = None
        self._ended = trio.Event()

    @property
    def address(self) -> str:
        """``host:port``, once it has been started."""
        return format_address((self.host, self.port))

    @property
    def connection_count(self) -> int:
        """How many connections have asked something, and are open."""
        return len(self._connections)

    @property
    def is_running(self) -> bool:
        """Whether it listens."""
        return self._scope is not None

    async def start(self, nursery: trio.Nursery) -> None:
        """Start it in ``nursery``, and return when it listens.

        Raises ConfigurationError if its port is taken.
        """
        await nursery.start(self._live)

    async def stop(self) -> None:
        """Have it end at once: connections break, and nothing more is answered."""
        if self._scope is not None:
            self._scope.cancel()
            await self._ended.wait()

    async def _live(self, *, task_status: trio.TaskStatus[None]) -> None:
        self._ended = trio.Event()
        try:
            with trio.CancelScope() as self._scope:
                async with trio.open_nursery() as nursery:
                    bound = await nursery.start(
                        partial(
                            serve,
                            self._asked,
                            self.host,
                            self.port,
                            on_closed=self._closed,
                            tls=self._tls,
                            wrap=self._accepted,
                        )
                    )
                    self.port = split_address(bound)[1]
                    self._begin(nursery)
                    task_status.started()
        finally:
            self._scope = None
            self._ended.set()

    def _asked(self, connection: Connection, command: Command) -> None:
        peer = self._peers[connection.peer_address]
        self._connections[connection] = None
        self.requests.append(recorded(command, connection.peer_address, self.now_ms()))
        if command.code == RequestCode.HEART_BEAT:
            peer.update(_names_of(Heartbeat.decode(command.body).client_id))
        self.faults.handle(self.names, peer, connection, command, self.dispatch)
        self._on_change()

    def _accepted(self, stream: trio.SocketStream) -> trio.SocketStream:
        address = format_address(stream.socket.getpeername())
        names = self._peers[address] = {address, CLIENTS}
        return trio.SocketStream(FaultySocket(stream.socket, self.faults, self.names, lambda: names))

    def _closed(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        self._peers.pop(connection.peer_address, None)

    def cut(self, client: str | None) -> None:
        """Break the connections of a client, by its id or address; of all clients without one."""
        for connection in list(self._connections):
            if client is None or client in self._peers[connection.peer_address]:
                connection.close("cut by a test")

    def _is_apart_from(self, other: Process) -> bool:
        """Tell whether nothing gets from one to the other."""
        return self.faults.are_apart(self.names, other.names) or self.faults.are_apart(
            other.names, self.names
        )

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """What faults call it."""

    @property
    @abstractmethod
    def dispatch(self) -> Dispatch:
        """What answers requests."""

    @abstractmethod
    def _begin(self, nursery: trio.Nursery) -> None:
        """Do what is to be done when it listens."""

    @abstractmethod
    def wipe(self) -> None:
        """Forget everything; only while it is stopped."""


class NameServerProcess(Process):
    """A name server."""

    def __init__(self, host: str, port: int, around: Surroundings) -> None:
        super().__init__(host, port, around)
        self.wipe()

    @property
    def names(self) -> tuple[str, ...]:
        """Its address."""
        return (self.address,)

    def wipe(self) -> None:
        """Forget all brokers and values."""
        self.name_server: NameServer = NameServer()
        self._dispatch = Dispatch()
        self._dispatch.add(self.name_server.handlers())
        self.requests.clear()

    @property
    def dispatch(self) -> Dispatch:
        """What answers requests."""
        return self._dispatch

    def _begin(self, nursery: trio.Nursery) -> None:
        pass


class RegisteredProcess(Process):
    """A server that registers at name servers.

    Args:
        config: the broker's settings.
        name_servers: it registers at those that run.
        broker_id: 0 for a master.
    """

    def __init__(
        self,
        host: str,
        port: int,
        around: Surroundings,
        *,
        config: BrokerConfig,
        name_servers: Sequence[NameServerProcess],
        broker_id: int = MASTER_ID,
    ) -> None:
        super().__init__(host, port, around)
        self.config = config
        self._name_server_processes = name_servers
        self._broker_id = broker_id

    async def stop(self) -> None:
        """End at once. What is stored stays; the name servers notice."""
        if not self.is_running:
            return
        name_servers = self._name_servers()
        await super().stop()
        for name_server in name_servers:
            name_server.forget_broker(self.config.broker_name, self._broker_id)

    def _name_servers(self) -> list[NameServer]:
        return [
            process.name_server
            for process in self._name_server_processes
            if self.is_running and process.is_running and not self._is_apart_from(process)
        ]


class BrokerProcess(RegisteredProcess):
    """A broker, a master.

    Args:
        config: its settings.
        topics: those that it has from the beginning, with their numbers of queues.
        name_servers: it registers at those that run.
        rng: chooses queues where senders leave that to it.
    """

    def __init__(
        self,
        host: str,
        port: int,
        around: Surroundings,
        *,
        config: BrokerConfig,
        topics: Mapping[str, int],
        name_servers: Sequence[NameServerProcess],
        rng: random.Random,
    ) -> None:
        super().__init__(host, port, around, config=config, name_servers=name_servers)
        self._topics = topics
        self._rng = rng
        self.wipe()

    def wipe(self) -> None:
        """Forget all messages, topics, offsets and groups."""
        self.broker: Broker = Broker(self.config, self._name_servers, self.now_ms, self._rng)
        self._is_open = False
        self._flushed_to = 0
        self._flushed_offsets: Mapping[tuple[str, str], Mapping[int, int]] = {}
        self.requests.clear()
        if self.port:
            self._open()

    @property
    def names(self) -> tuple[str, ...]:
        """Its name and its address."""
        return (self.config.broker_name, self.address)

    def flush(self) -> None:
        """Have a crash keep what there is now."""
        self._flushed_to = self.broker.store.log.end
        self._flushed_offsets = self.broker.offsets.snapshot()

    def lose_unflushed(self) -> None:
        """Forget messages and offsets that came after the last flush; only while it is stopped."""
        self.broker.store.truncate(self._flushed_to)
        self.broker.offsets.restore(self._flushed_offsets)

    @property
    def dispatch(self) -> Dispatch:
        """What answers requests."""
        return self.broker.dispatch

    def create_topic(self, topic: str, queues: int) -> None:
        """Create a topic, or change how many queues it has."""
        self.broker.topics.put(TopicConfig(topic, queues, queues))

    def change_topic(
        self, topic: str, queues: int | None, readable: bool | None, writable: bool | None
    ) -> None:
        """Change a topic; what is None stays as it is."""
        old = self.broker.topics.get(topic) or TopicConfig(topic, queues or 4, queues or 4)
        bits = {
            PERM_READ: old.is_readable if readable is None else readable,
            PERM_WRITE: old.is_writable if writable is None else writable,
        }
        self.broker.topics.put(
            attrs.evolve(
                old,
                read_queue_nums=queues or old.read_queue_nums,
                write_queue_nums=queues or old.write_queue_nums,
                perm=old.perm & ~(PERM_READ | PERM_WRITE)
                | sum([bit for bit, is_set in bits.items() if is_set]),
            )
        )

    def jump(self, seconds: float) -> None:
        """Note that trio's clock was put forward."""
        if self._is_open:
            self.broker.jump(seconds)

    async def stop(self) -> None:
        """End at once. What is stored stays; locks are gone, and the name servers notice."""
        if self.is_running:
            await super().stop()
            self.broker.locks.clear()

    def _begin(self, nursery: trio.Nursery) -> None:
        if not self._is_open:
            self._open()
        for task in self.broker.tasks:
            nursery.start_soon(task)
        self.broker.register()

    def _open(self) -> None:
        self._is_open = True
        self.broker.open(self.address)
        self.broker.store.watchers.append(self._on_stored)
        for topic, queues in self._topics.items():
            self.create_topic(topic, queues)

    def _on_stored(self, _: StoredMessage) -> None:
        self._on_change()

    def _closed(self, connection: Connection) -> None:
        super()._closed(connection)
        self.broker.forget(connection)

    # Looking

    def messages(self, topic: str) -> list[ReceivedMessage]:
        """Return the messages of a topic, in the order in which they were stored."""
        stored = b"".join([message.data for message in self.broker.store.messages(topic)])
        return decode_messages(stored, self.config.broker_name)

    def offsets(self, group: str) -> dict[MessageQueue, int]:
        """Return what a group has committed."""
        return {
            MessageQueue(topic, self.config.broker_name, queue_id): offset
            for (topic, queue_id), offset in self.broker.offsets.of_group(group).items()
        }


def _names_of(client_id: str) -> set[str]:
    """Return what a client is called: its id, and the instance name in it (``address@instance``)."""
    instance = re.split("[@#]", client_id.partition("@")[2])[0]
    return {client_id, instance} - {""}
