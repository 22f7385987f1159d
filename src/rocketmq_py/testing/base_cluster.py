"""The servers of a test cluster: their topics, messages, offsets and requests."""

from __future__ import annotations

import random
import ssl
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import attrs
import trio

from rocketmq_py.arguments import check_integer
from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.profile_rules import access_keys_of, name_server_check, server_tls
from rocketmq_py.broker.topics import check_topics, type_attributes
from rocketmq_py.credentials import Credentials
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.remoting import TLS
from rocketmq_py.testing.cluster_servers import (
    BrokerProcess,
    ClusterContext,
    NameServerProcess,
    ServerProcess,
)
from rocketmq_py.testing.faults import ActiveFaults
from rocketmq_py.testing.replicas import ReplicaProcess
from rocketmq_py.testing.requests import Request, codes_of

_DESCRIBED_REQUESTS = 10

_Result = TypeVar("_Result")


class BaseCluster(ABC):
    """Name servers and brokers, which tests inspect and whose topics they change.

    Args:
        brokers: the number of brokers.
        name_servers: the number of name servers.
        hosts: the IP addresses to listen on: of the name servers, then of the brokers, then of the replicas.
        ports: the port of all name servers, and the port of all brokers and replicas; 0 for free ports.
        topics: the topics to create on each broker. See :class:`EmbeddedBroker`.
        config: the settings of each broker.
        tls: the SSL context of the servers; None for plain text, or the profile's certificate.
        now_ms: the clock of the servers, epoch milliseconds.
        on_change: called after each request and each stored message.
        rng: chooses queues that clients leave to the brokers.
        replicas: whether each broker has a replica.
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
        check_integer(brokers, "brokers", lowest=1)
        check_integer(name_servers, "name_servers", lowest=1)
        self._config = config
        created = check_topics(topics, config.profile).values()
        host = iter(hosts)
        self._faults = ActiveFaults()
        context = ClusterContext(now_ms, on_change, self._faults, server_tls(tls, config))
        self._name_servers = [
            NameServerProcess(next(host), ports[0], context, name_server_check(config))
            for _ in range(name_servers)
        ]
        self._brokers = [
            BrokerProcess(
                next(host),
                ports[1],
                context,
                config=broker_config,
                topics=created,
                name_servers=self._name_servers,
                rng=rng,
            )
            for broker_config in _broker_configs(config, brokers)
        ]
        self._replicas = [
            ReplicaProcess(next(host), ports[1], context, master=broker, name_servers=self._name_servers)
            for broker in (self._brokers if replicas else [])
        ]

    @property
    def broker_names(self) -> tuple[str, ...]:
        """The names of the brokers."""
        return tuple([broker.config.broker_name for broker in self._brokers])

    @abstractmethod
    def _call(self, function: Callable[[], _Result]) -> _Result:
        """Call a function where the cluster runs. Returns its result or raises its error."""

    @property
    @abstractmethod
    def _nursery(self) -> trio.Nursery:
        """The nursery of the servers."""

    @property
    def name_server_address(self) -> str:
        """The addresses of the name servers for clients, ``host:port;host:port``."""
        return ";".join([process.address for process in self._name_servers])

    @property
    def broker_addresses(self) -> Mapping[str, str]:
        """The address of each broker by its name."""
        return {broker.config.broker_name: broker.address for broker in self._brokers}

    @property
    def client_options(self) -> dict[str, Any]:
        """The keyword arguments with which clients connect: ``Producer(address, **broker.client_options)``.

        Credentials if the brokers check them, and the namespace and the TLS settings that the profile needs.
        """
        options: dict[str, Any] = {}
        for access_key, secret_key in access_keys_of(self._config).items():
            options["credentials"] = Credentials(access_key, secret_key)
        profile = self._config.profile
        if profile is not None and profile.namespace is not None:
            options["namespace"] = profile.namespace.value
        if profile is not None and profile.namespace_v2 is not None:
            options["namespace_v2"] = profile.namespace_v2.value
        if profile is not None and profile.untrusted_tls is not None:
            options["tls"] = TLS(verify=False)
        return options

    # Topics

    def create_topic(self, topic: str, *, queues: int = 4, message_type: str = "") -> None:
        """Create a topic on each broker, or replace its settings there.

        Args:
            topic: the topic.
            queues: the number of queues on each broker.
            message_type: ``"NORMAL"``, ``"FIFO"``, ``"DELAY"`` or ``"TRANSACTION"``. Some profiles compare it
                with the messages. Empty for NORMAL.

        Raises ConfigurationError if the name, the number of queues or the type is invalid.
        """
        (created,) = check_topics({topic: queues}, self._config.profile).values()
        created = attrs.evolve(created, attributes=type_attributes(message_type))

        def create() -> None:
            for broker in self._brokers:
                broker.create_topic(created)

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
        """Change a topic as an operator does. Values that are None stay unchanged.

        Args:
            topic: the topic; created if it does not exist.
            queues: the number of queues on each broker. Removed queues keep their messages.
            readable: whether consumers may pull from it.
            writable: whether producers may send to it.
            server: change the topic on this broker only.

        Raises ConfigurationError if the name or the number of queues is invalid, or ``server`` is no broker.
        """
        (full_name,) = check_topics({topic: 4 if queues is None else queues}, self._config.profile)

        def change() -> None:
            for broker in self._find_brokers(server):
                broker.change_topic(full_name, queues, readable, writable)

        self._call(change)

    # Inspection

    def topics(self) -> dict[str, int]:
        """Return the number of messages of each topic that has messages, including system topics."""

        def count() -> dict[str, int]:
            counts: Counter[str] = Counter()
            for broker in self._brokers:
                counts.update(broker.broker.state.store.message_counts())
            return dict(sorted(counts.items()))

        return self._call(count)

    def messages(self, topic: str) -> list[ReceivedMessage]:
        """Return the messages of a topic, in the order in which each broker stored them."""
        name = self._full_name(topic)
        return self._call(lambda: [message for broker in self._brokers for message in broker.messages(name)])

    def committed(self, group: str) -> dict[MessageQueue, int]:
        """Return the committed offsets of a group."""
        name = self._full_name(group)
        return self._call(
            lambda: {
                queue: offset for broker in self._brokers for queue, offset in broker.committed(name).items()
            }
        )

    def requests(self, code: int | str | None = None, *, topic: str | None = None) -> list[Request]:
        """Return the last requests that brokers and name servers have received, up to 10,000 of each.

        Args:
            code: a RequestCode, or a name, which selects all variants of the request: SEND_MESSAGE includes
                SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE. None for all requests.
            topic: return requests with this topic in their header only.
        """
        codes = None if code is None else codes_of(code)
        name = None if topic is None else self._full_name(topic)
        requests = self._call(
            lambda: [request for process in self._processes for request in process.requests]
        )
        return [
            request
            for request in sorted(requests, key=lambda request: request.time_ms)
            if (codes is None or request.code in codes) and (name is None or request.topic == name)
        ]

    def describe(self) -> str:
        """Return a description of the cluster's contents for the output of failed tests."""
        requests = self._call(lambda: [request for broker in self._brokers for request in broker.requests])
        latest = sorted(requests, key=lambda request: request.time_ms)[-_DESCRIBED_REQUESTS:]
        topics = [f"  {topic}: {count} messages" for topic, count in self.topics().items()]
        return "\n".join(
            [
                "topics with messages:",
                *(topics or ["  none"]),
                "latest requests:",
                *([f"  {request}" for request in latest] or ["  none"]),
            ]
        )

    def _count(self, topic: str) -> int:
        return self.topics().get(self._full_name(topic), 0)

    def _full_name(self, name: str) -> str:
        """Return the name of a topic or group with the namespace of the profile."""
        return name if self._config.profile is None else self._config.profile.full_name(name)

    # Servers

    @property
    def _processes(self) -> list[ServerProcess]:
        return [*self._name_servers, *self._brokers, *self._replicas]

    @property
    def _server_names(self) -> set[str]:
        return {name for process in self._processes for name in process.names}

    def _find_processes(self, server: str | None) -> list[ServerProcess]:
        """Return the servers with a name, or all brokers for None. Raises ConfigurationError."""
        if server is None:
            return [*self._brokers]
        found = [process for process in self._processes if server in process.names]
        if not found:
            known = ", ".join(sorted(self._server_names))
            raise ConfigurationError(f"there is no broker or name server {server!r}; there are {known}")
        return found

    def _find_brokers(self, server: str | None) -> list[BrokerProcess]:
        """Return the broker with a name, or all brokers for None. Raises ConfigurationError."""
        found = [process for process in self._find_processes(server) if isinstance(process, BrokerProcess)]
        if not found:
            raise ConfigurationError(f"{server!r} is not a broker; there are {', '.join(self.broker_names)}")
        return found

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


def _broker_configs(config: BrokerConfig, count: int) -> list[BrokerConfig]:
    """Return the settings of each broker. With several brokers, each name gets a letter: ``broker-a``."""
    if count == 1:
        return [config]
    stem = config.broker_name.removesuffix("-a")
    return [
        attrs.evolve(config, broker_name=f"{stem}-{chr(ord('a') + number) if number < 26 else number}")
        for number in range(count)
    ]
