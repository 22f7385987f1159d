"""Name servers and brokers as processes of a cluster: each listens, and can be stopped and started again."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import trio

from rocketmq_py.broker import BrokerConfig
from rocketmq_py.broker.core import Broker
from rocketmq_py.broker.dispatch import Dispatch
from rocketmq_py.broker.name_server import NameServer
from rocketmq_py.broker.store import StoredMessage
from rocketmq_py.broker.topics import TopicConfig
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.stored_message import decode_messages
from rocketmq_py.remoting import Connection, serve
from rocketmq_py.remoting.address import format_address, split_address
from rocketmq_py.testing.requests import Request, recorded

MOST_REQUESTS = 10_000
"""Requests that are remembered; beyond it the oldest are forgotten."""


class Process(ABC):
    """One server of a cluster. Its state is its own: it outlives that the server is stopped.

    Args:
        host: the IP address to listen on.
        port: the port; 0 takes a free one, and that one again after a stop.
        now_ms: the time, epoch milliseconds.
        on_change: called after each request and each message that is stored.
    """

    def __init__(
        self, host: str, port: int, now_ms: Callable[[], int], on_change: Callable[[], None]
    ) -> None:
        self.host = host
        self.port = port
        self.now_ms = now_ms
        self.requests: deque[Request] = deque(maxlen=MOST_REQUESTS)
        self._on_change = on_change
        self._connections: dict[Connection, None] = {}
        self._scope: trio.CancelScope | None = None
        self._ended = trio.Event()

    @property
    def address(self) -> str:
        """``host:port``, once it has been started."""
        return format_address((self.host, self.port))

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
                        partial(serve, self._asked, self.host, self.port, on_closed=self._closed)
                    )
                    self.port = split_address(bound)[1]
                    self._begin(nursery)
                    task_status.started()
        finally:
            self._scope = None
            self._ended.set()

    def _asked(self, connection: Connection, command: Command) -> None:
        self._connections[connection] = None
        self.requests.append(recorded(command, connection.peer_address, self.now_ms()))
        self.dispatch(connection, command)
        self._on_change()

    def _closed(self, connection: Connection) -> None:
        self._connections.pop(connection, None)

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

    def __init__(
        self, host: str, port: int, now_ms: Callable[[], int], on_change: Callable[[], None]
    ) -> None:
        super().__init__(host, port, now_ms, on_change)
        self.wipe()

    def wipe(self) -> None:
        """Forget all brokers and values."""
        self.name_server = NameServer()
        self._dispatch = Dispatch()
        self._dispatch.add(self.name_server.handlers())
        self.requests.clear()

    @property
    def dispatch(self) -> Dispatch:
        """What answers requests."""
        return self._dispatch

    def _begin(self, nursery: trio.Nursery) -> None:
        pass


class BrokerProcess(Process):
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
        now_ms: Callable[[], int],
        on_change: Callable[[], None],
        *,
        config: BrokerConfig,
        topics: Mapping[str, int],
        name_servers: Sequence[NameServerProcess],
        rng: random.Random,
    ) -> None:
        super().__init__(host, port, now_ms, on_change)
        self.config = config
        self._topics = topics
        self._name_server_processes = name_servers
        self._rng = rng
        self.wipe()

    def wipe(self) -> None:
        """Forget all messages, topics, offsets and groups."""
        self.broker = Broker(self.config, self._name_servers, self.now_ms, self._rng)
        self._is_open = False
        self.requests.clear()

    @property
    def dispatch(self) -> Dispatch:
        """What answers requests."""
        return self.broker.dispatch

    def create_topic(self, topic: str, queues: int) -> None:
        """Create a topic, or change how many queues it has."""
        self.broker.topics.put(TopicConfig(topic, queues, queues))

    def jump(self, seconds: float) -> None:
        """Note that trio's clock was put forward."""
        if self._is_open:
            self.broker.jump(seconds)

    async def stop(self) -> None:
        """End at once. What is stored stays; locks are gone, and the name servers notice."""
        await super().stop()
        self.broker.locks.clear()
        for name_server in self._name_servers():
            name_server.forget_broker(self.config.broker_name)

    def _name_servers(self) -> list[NameServer]:
        return [process.name_server for process in self._name_server_processes if process.is_running]

    def _begin(self, nursery: trio.Nursery) -> None:
        if not self._is_open:
            self._is_open = True
            self.broker.open(self.address)
            self.broker.store.watchers.append(self._on_stored)
            for topic, queues in self._topics.items():
                self.create_topic(topic, queues)
        for task in self.broker.tasks:
            nursery.start_soon(task)
        self.broker.register()

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
