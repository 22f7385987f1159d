"""Brokers and name servers as tests look at them."""

from __future__ import annotations

import random
import ssl
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

import attrs
import trio

from rocketmq_py.broker import BrokerConfig
from rocketmq_py.broker.topics import check_topics
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.testing.faults import Faults
from rocketmq_py.testing.processes import BrokerProcess, NameServerProcess, Process, Surroundings
from rocketmq_py.testing.replicas import ReplicaProcess
from rocketmq_py.testing.requests import Request, codes_of

_SHOWN = 10

_Result = TypeVar("_Result")


class Servers(ABC):
    """Name servers and brokers: looking at them, and changing their topics.

    Attributes:
        broker_names: the names of its brokers.
    """

    def __init__(
        self,
        brokers: int,
        name_servers: int,
        *,
        hosts: Iterable[str],
        ports: tuple[int, int] = (0, 0),
        topics: Mapping[str, int] | Iterable[str],
        config: BrokerConfig,
        tls: ssl.SSLContext | None = None,
        now_ms: Callable[[], int],
        on_change: Callable[[], None],
        rng: random.Random,
        replicas: bool = False,
    ) -> None:
        if brokers < 1 or name_servers < 1:
            raise ConfigurationError(
                f"{brokers} brokers and {name_servers} name servers were asked for; one of each is the least"
            )
        counts = check_topics(topics)
        host = iter(hosts)
        self._faults = Faults()
        around = Surroundings(now_ms, on_change, self._faults, tls)
        self._name_servers = [NameServerProcess(next(host), ports[0], around) for _ in range(name_servers)]
        self._brokers = [
            BrokerProcess(
                next(host),
                ports[1],
                around,
                config=one,
                topics=counts,
                name_servers=self._name_servers,
                rng=rng,
            )
            for one in _named(config, brokers)
        ]
        self._replicas = [
            ReplicaProcess(next(host), ports[1], around, master=broker, name_servers=self._name_servers)
            for broker in (self._brokers if replicas else [])
        ]
        self.broker_names: Final = tuple([broker.config.broker_name for broker in self._brokers])

    @abstractmethod
    def _call(self, function: Callable[[], _Result]) -> _Result:
        """Return what a function returns where the cluster runs."""

    @property
    @abstractmethod
    def _nursery(self) -> trio.Nursery:
        """What its processes run in."""

    @property
    def name_server_address(self) -> str:
        """The addresses of the name servers, ``host:port;host:port``: what clients are given."""
        return ";".join([process.address for process in self._name_servers])

    @property
    def broker_addresses(self) -> Mapping[str, str]:
        """The address of each broker, by its name."""
        return {broker.config.broker_name: broker.address for broker in self._brokers}

    def create_topic(self, topic: str, *, queues: int = 4) -> None:
        """Create a topic on each broker, or change how many queues it has there.

        Raises ConfigurationError for a name that brokers refuse, and for no queues or too many.
        """
        check_topics({topic: queues})

        def create() -> None:
            for broker in self._brokers:
                broker.create_topic(topic, queues)

        self._call(create)

    def change_topic(
        self,
        topic: str,
        *,
        queues: int | None = None,
        readable: bool | None = None,
        writable: bool | None = None,
        server: str | None = None,
    ) -> None:
        """Change what routes say of a topic, as an operator does; what is None stays as it is.

        Args:
            topic: which one; it is created where there is none.
            queues: how many queues it has on each broker. Those that it has no more keep their messages.
            readable: whether consumers may pull from it.
            writable: whether producers may send to it.
            server: on this broker only.

        Raises ConfigurationError as :meth:`create_topic`, and if there is no such broker.
        """
        check_topics([topic] if queues is None else {topic: queues})

        def change() -> None:
            for broker in self._chosen_brokers(server):
                broker.change_topic(topic, queues, readable, writable)

        self._call(change)

    # Looking

    def topics(self) -> dict[str, int]:
        """Return how many messages each topic has that has any, those of brokers' own too."""

        def count() -> dict[str, int]:
            counts: Counter[str] = Counter()
            for broker in self._brokers:
                counts.update(broker.broker.state.store.message_counts())
            return dict(sorted(counts.items()))

        return self._call(count)

    def messages(self, topic: str) -> list[ReceivedMessage]:
        """Return what is stored in a topic, in the order in which each broker stored it."""
        return self._call(lambda: [message for broker in self._brokers for message in broker.messages(topic)])

    def offsets(self, group: str) -> dict[MessageQueue, int]:
        """Return what a group has committed: where it goes on in each queue."""
        return self._call(
            lambda: {
                queue: offset for broker in self._brokers for queue, offset in broker.offsets(group).items()
            }
        )

    def requests(self, code: int | str | None = None, *, topic: str | None = None) -> list[Request]:
        """Return the latest requests that came to brokers and name servers: of each, 10,000 at the most.

        Args:
            code: a RequestCode, or its name, which stands for all forms: SEND_MESSAGE for
                SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE, too. None for all requests.
            topic: of those that name this topic only.
        """
        codes = None if code is None else codes_of(code)
        found = self._call(lambda: [request for process in self._processes for request in process.requests])
        return [
            request
            for request in sorted(found, key=lambda request: request.time_ms)
            if (codes is None or request.code in codes) and (topic is None or request.topic == topic)
        ]

    def describe(self) -> str:
        """Return what is there, as failures show it."""

        requests = self._call(lambda: [request for broker in self._brokers for request in broker.requests])
        latest = sorted(requests, key=lambda request: request.time_ms)[-_SHOWN:]
        topics = [f"  {topic}: {count} messages" for topic, count in self.topics().items()]
        return "\n".join(
            [
                "topics with messages:",
                *(topics or ["  none"]),
                "latest requests:",
                *([f"  {request}" for request in latest] or ["  none"]),
            ]
        )

    @property
    def _processes(self) -> list[Process]:
        return [*self._name_servers, *self._brokers, *self._replicas]

    @property
    def _server_names(self) -> set[str]:
        return {name for process in self._processes for name in process.names}

    def _chosen(self, server: str | None) -> list[Process]:
        """Return a server by its name; without one, all brokers."""
        if server is None:
            return [*self._brokers]
        found = [process for process in self._processes if server in process.names]
        if not found:
            known = ", ".join(sorted(self._server_names))
            raise ConfigurationError(f"{server!r} is no broker or name server here; there are {known}")
        return found

    def _chosen_brokers(self, server: str | None) -> list[BrokerProcess]:
        return [process for process in self._chosen(server) if isinstance(process, BrokerProcess)]

    def _count(self, topic: str) -> int:
        return self.topics().get(topic, 0)

    async def _start(self) -> None:
        for process in self._processes:
            await process.start(self._nursery)

    async def _reset(self) -> None:
        self._faults.clear()
        for process in self._processes:
            await process.stop()
        for process in self._processes:
            process.wipe()
        await self._start()


def _named(config: BrokerConfig, count: int) -> list[BrokerConfig]:
    """Return the settings of each broker: broker-a, broker-b, or the name that was set with a letter."""
    if count == 1:
        return [config]
    stem = config.broker_name.removesuffix("-a")
    return [
        attrs.evolve(config, broker_name=f"{stem}-{chr(ord('a') + number) if number < 26 else number}")
        for number in range(count)
    ]
