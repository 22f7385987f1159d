"""Brokers and name servers that can be looked at, and what goes wrong with them."""

from __future__ import annotations

import datetime
import math
import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, TypeAlias, TypeVar

import attrs
import trio

from rocketmq_py.broker import BrokerConfig
from rocketmq_py.codes import ResponseCode
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.testing.clock import seconds_of
from rocketmq_py.testing.faults import (
    Aim,
    Fault,
    Faults,
    NetworkFault,
    Partition,
    RequestFault,
    Strike,
    late,
    lose_answer,
    lose_request,
    refuse,
)
from rocketmq_py.testing.processes import BrokerProcess, NameServerProcess, Process
from rocketmq_py.testing.replicas import ReplicaProcess
from rocketmq_py.testing.requests import Request, codes_of

_SHOWN = 10

Keep: TypeAlias = Literal["all", "flushed", "nothing"]
"""What a broker still has when it comes back from a crash."""
_Result = TypeVar("_Result")


class Cluster(ABC):
    """Name servers and brokers: what tests do with them.

    Faults strike all brokers and name servers, or those that ``server`` names (a broker by its name, its
    replica by that and ``-1``, each by its address), and all clients or one: by its ``instance_name`` or id,
    which brokers know from heartbeats, or by its address ``host:port``, as :meth:`requests` shows it.
    They end when they are told to, or with :meth:`heal`.

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
        now_ms: Callable[[], int],
        on_change: Callable[[], None],
        rng: random.Random,
        replicas: bool,
    ) -> None:
        if brokers < 1 or name_servers < 1:
            raise ConfigurationError(
                f"{brokers} brokers and {name_servers} name servers were asked for; one of each is the least"
            )
        counts = dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(topics, 4)
        host = iter(hosts)
        self._faults = Faults()
        self._name_servers = [
            NameServerProcess(next(host), ports[0], now_ms, on_change, self._faults)
            for _ in range(name_servers)
        ]
        self._brokers = [
            BrokerProcess(
                next(host),
                ports[1],
                now_ms,
                on_change,
                self._faults,
                config=one,
                topics=counts,
                name_servers=self._name_servers,
                rng=rng,
            )
            for one in _named(config, brokers)
        ]
        self._replicas = [
            ReplicaProcess(
                next(host), ports[1], now_ms, on_change, self._faults, master=broker,
                name_servers=self._name_servers,
            )
            for broker in (self._brokers if replicas else [])
        ]  # fmt: skip
        self.broker_names = tuple([broker.config.broker_name for broker in self._brokers])

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
        """Create a topic on each broker, or change how many queues it has there."""

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
        """

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
                counts.update(broker.broker.store.counts())
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

    # Requests that go wrong

    def fail(
        self,
        request: int | str | None,
        *,
        code: int = ResponseCode.SYSTEM_BUSY,
        remark: str = "a test has it fail",
        times: int | None = None,
        topic: str | None = None,
        client: str | None = None,
        server: str | None = None,
    ) -> Fault:
        """Have requests answered with an error, and not done.

        Args:
            request: which: a RequestCode or its name, as for :meth:`requests`; None for all.
            code: the answer's ResponseCode.
            remark: what it says.
            times: how many of them; None for all until the fault is ended.
            topic: those about this topic only.
            client: those of this client only.
            server: those to this broker or name server only.

        Raises:
            ConfigurationError: there is no such request or server, or ``times`` is below 1.
        """
        return self._strike(refuse(code, remark), request, times, topic, client, server)

    def lose_answers(
        self,
        request: int | str | None,
        *,
        times: int | None = None,
        topic: str | None = None,
        client: str | None = None,
        server: str | None = None,
    ) -> Fault:
        """Have requests done, and not answered. Arguments and errors are those of :meth:`fail`."""
        return self._strike(lose_answer, request, times, topic, client, server)

    def lose_requests(
        self,
        request: int | str | None,
        *,
        times: int | None = None,
        topic: str | None = None,
        client: str | None = None,
        server: str | None = None,
    ) -> Fault:
        """Have requests neither done nor answered. Arguments and errors are those of :meth:`fail`."""
        return self._strike(lose_request, request, times, topic, client, server)

    def delay(
        self,
        request: int | str | None,
        duration: float | str | datetime.timedelta,
        *,
        times: int | None = None,
        topic: str | None = None,
        client: str | None = None,
        server: str | None = None,
    ) -> Fault:
        """Have requests done ``duration`` later, on the brokers' clock; else as :meth:`fail`.

        Those whose connection has ended until then are lost.
        """
        return self._strike(late(seconds_of(duration), self._nursery), request, times, topic, client, server)

    def _strike(
        self,
        strike: Strike,
        request: int | str | None,
        times: int | None,
        topic: str | None,
        client: str | None,
        server: str | None,
    ) -> Fault:
        if times is not None and times < 1:
            raise ConfigurationError(f"times is {times}; it must be 1 or more, or None")
        codes = None if request is None else codes_of(request)
        return self._add(RequestFault(self._aim(server, client), codes, topic, times, strike, self._end))

    # Networks that go wrong

    def freeze(self, server: str | None = None, *, client: str | None = None) -> Fault:
        """Have nothing get through to a broker or a name server, nor from it: until the fault is ended.

        Connections stay, new ones are taken; what was sent arrives then.
        """
        return self._add(NetworkFault(self._aim(server, client), self._end, latency=math.inf))

    def slow(
        self,
        *,
        latency: float = 0.0,
        bytes_per_second: float = math.inf,
        server: str | None = None,
        client: str | None = None,
    ) -> Fault:
        """Have bytes take longer, in both directions.

        Args:
            latency: seconds, on the brokers' clock, that each piece takes longer. The next one waits for it.
            bytes_per_second: how much gets through.
            server: of this broker or name server only.
            client: of this client only.
        """
        if latency < 0 or not bytes_per_second > 0:
            raise ConfigurationError(
                f"latency is {latency} and bytes_per_second {bytes_per_second}; they must not be negative"
            )
        aim = self._aim(server, client)
        return self._add(NetworkFault(aim, self._end, latency=latency, bytes_per_second=bytes_per_second))

    def slice(self, size: int = 1, *, server: str | None = None, client: str | None = None) -> Fault:
        """Have bytes come in pieces of ``size`` at the most: frames are cut anywhere."""
        if size < 1:
            raise ConfigurationError(f"size is {size}; it must be 1 or more")
        return self._add(NetworkFault(self._aim(server, client), self._end, size=size))

    def partition(self, one: str, other: str) -> Fault:
        """Have nothing get from one party to the other, nor back: until the fault is ended.

        A party is a broker, a name server, a client, or ``"clients"``, which is all of them. What was sent
        arrives in the end, unless its sender gave up.

        Raises ConfigurationError if neither is a broker or a name server.
        """
        if not {one, other} & self._server_names:
            raise ConfigurationError(f"neither {one!r} nor {other!r} is a broker or a name server here")
        return self._add(Partition(one, other, self._end))

    def cut(self, server: str | None = None, *, client: str | None = None) -> None:
        """Break connections, now; they can be made again."""

        def cut() -> None:
            for process in self._processes if server is None else self._chosen(server):
                process.cut(client)

        self._call(cut)

    def heal(self) -> None:
        """End all faults. What was crashed is not started again."""
        self._call(self._faults.clear)

    def flush(self, server: str | None = None) -> None:
        """Have brokers keep what they have now when they crash with ``keep="flushed"``."""

        def flush() -> None:
            for broker in self._chosen_brokers(server):
                broker.flush()

        self._call(flush)

    async def _crash(self, server: str | None, keep: Keep) -> None:
        for process in self._chosen(server):
            await process.stop()
            if keep == "nothing":
                process.wipe()
            elif keep == "flushed" and isinstance(process, BrokerProcess):
                process.lose_unflushed()

    async def _restart(self, server: str | None) -> None:
        for process in self._chosen(server):
            await process.stop()
            await process.start(self._nursery)
        for replica in self._replicas:
            if replica.is_running and replica.is_behind:
                await replica.stop()
                await replica.start(self._nursery)

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

    def _aim(self, server: str | None, client: str | None) -> Aim:
        if server is None:
            return Aim(None, client)
        return Aim(frozenset({name for one in self._chosen(server) for name in one.names}), client)

    def _add(self, fault: RequestFault | NetworkFault) -> Fault:
        self._call(lambda: self._faults.add(fault))
        return fault

    def _end(self, fault: Fault) -> None:
        self._call(lambda: self._faults.remove(fault))

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
